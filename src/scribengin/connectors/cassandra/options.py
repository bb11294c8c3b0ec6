"""What a flow can say of `type: cassandra`. Imports no client."""

from scribengin.connectors.addresses import hosts_fault
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option, keys_check

_SERVER = (
    Option(
        "server",
        "list",
        "HOST or HOST:PORT of nodes of one cluster; the others are found",
        REQUIRED,
        example='["cassandra1:9042"]',
        pace=True,
        check=hosts_fault,
        by_member=True,
    ),
    Option(
        "config",
        "map",
        "how to log in, `user` and `password`, as `${secret:env/NAME}`; `ca`: a PEM file of who signs the servers' certificates, "
        "with which it goes by TLS; `datacenter`: the one that is near, else that of the first node that answers",
        {},
        example="{ca: /etc/ssl/ca.pem}",
        secret=True,
        pace=True,
        check=keys_check("ca", "datacenter", "password", "user"),
    ),
)
_KEYSPACE = Option("keyspace", "text", "the keyspace, which must be there", REQUIRED, example="shop")

SOURCE = NodeType(
    type="cassandra",
    role="source",
    doc="Reads a table of Cassandra once, cut by the tokens of its partitions.",
    options=(
        *_SERVER,
        _KEYSPACE,
        Option("table", "text", "the table", REQUIRED, example="orders"),
        Option(
            "consistency",
            "choice",
            "how many replicas are asked for each row",
            "LOCAL_QUORUM",
            ("ONE", "LOCAL_ONE", "TWO", "QUORUM", "LOCAL_QUORUM", "ALL"),
        ),
        Option(
            "on_change",
            "choice",
            "what rows do that changed after they were taken and before they were committed: `stop`, for which all is read twice, or "
            "`ignore`, which is at least once",
            "stop",
            ("stop", "ignore"),
            adds={"stop": frozenset({"replayable"})},
        ),
        Option(
            "max_rows",
            "int",
            "rows one Batch takes at most, but for a partition that has more",
            250_000,
            example="100000",
            low=1,
            pace=True,
            of_streams=True,
        ),
        Option("split", "int", "rows one task reads at most, but for a partition that has more", 50_000, example="20000", low=1, pace=True),
        Option("page", "int", "rows that a node answers with at once", 1000, example="100", low=1, high=100_000, pace=True),
    ),
    abilities=frozenset({"bounded", "static"}),
)

SINK = NodeType(
    type="cassandra",
    role="sink",
    doc="Writes rows to a table of Cassandra, each record once: ids from the records or a key, the time of writing from the Batch.",
    options=(
        *_SERVER,
        _KEYSPACE,
        Option("table", "text", "the table; made where it is not there", REQUIRED, example="orders"),
        Option(
            "mode",
            "choice",
            "`append`: a row for each record; `upsert`: the newest row of each key",
            "append",
            ("append", "upsert"),
            adds={"upsert": frozenset({"update"})},
            alone={"upsert": ALONE_BY_KEY},
        ),
        Option("key", "list", "upsert: the columns of the primary key", (), example="[user, day]"),
        Option("partition", "int", "upsert: how many of the first columns of `key` are the partition of a table that is made", 1, low=1),
        Option("id_column", "text", "append: the text column that is the primary key; it holds what a row was made of", "record"),
        Option(
            "version_column",
            "text",
            "a bigint column for the time of writing, which tells the Batch of a row; append needs it, upsert writes it where it is there",
            "version",
        ),
        Option(
            "consistency",
            "choice",
            "how many replicas must have a row before it counts as written",
            "LOCAL_QUORUM",
            ("ONE", "LOCAL_ONE", "TWO", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"),
        ),
        Option("batch", "int", "how many rows at most go to a replica in one unlogged batch", 50, low=1, high=1000, pace=True),
        Option("connections", "int", "how many parts of a Batch are sent at once, each in several requests", 2, low=1, high=64, pace=True),
        Option(
            "records",
            "text",
            "the table of the keyspace for our own records: who writes where, and which Batch came last",
            "scribengin_places",
        ),
    ),
    abilities=frozenset({"exactly_once", "append"}),
)
