"""The options of `type: cassandra`. Imports no client."""

from scribengin.connectors.addresses import hosts_fault
from scribengin.connectors.keyed.contract import KEYED_ABILITIES
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option, keys_check

_SERVER = (
    Option(
        "server",
        "list",
        "HOST or HOST:PORT of one or more nodes of a cluster; the other nodes are discovered",
        REQUIRED,
        example='["cassandra1:9042"]',
        pace=True,
        check=hosts_fault,
        by_member=True,
    ),
    Option(
        "config",
        "map",
        "login: `user` and `password`, as `${secret:env/NAME}`; `ca`: a PEM file of the CA that signed the servers' certificates, which "
        "turns TLS on; `datacenter`: the local one, by default that of the first node that answers",
        {},
        example="{ca: /etc/ssl/ca.pem}",
        secret=True,
        pace=True,
        check=keys_check("ca", "datacenter", "password", "user"),
    ),
)
_KEYSPACE = Option("keyspace", "text", "the keyspace, which must exist", REQUIRED, example="shop")

SOURCE = NodeType(
    type="cassandra",
    role="source",
    doc="Reads a Cassandra table once, split by partition tokens.",
    options=(
        *_SERVER,
        _KEYSPACE,
        Option("table", "text", "the table", REQUIRED, example="orders"),
        Option(
            "consistency",
            "choice",
            "how many replicas must answer a read",
            "LOCAL_QUORUM",
            ("ONE", "LOCAL_ONE", "TWO", "QUORUM", "LOCAL_QUORUM", "ALL"),
        ),
        Option(
            "on_change",
            "choice",
            "if rows change after they were assigned to a Batch and before it is committed: `stop`, for which all rows are read twice, "
            "or `ignore`, which is at least once",
            "stop",
            ("stop", "ignore"),
            adds={"stop": frozenset({"replayable"})},
        ),
        Option(
            "max_rows",
            "int",
            "maximum rows of one Batch; a larger partition is not split",
            250_000,
            example="100000",
            low=1,
            pace=True,
            of_streams=True,
        ),
        Option(
            "split", "int", "maximum rows that one task reads; a larger partition is not split", 50_000, example="20000", low=1, pace=True
        ),
        Option("page", "int", "rows in one answer of a node", 1000, example="100", low=1, high=100_000, pace=True),
    ),
    abilities=frozenset({"bounded", "static", "table"}),
)

SINK = NodeType(
    type="cassandra",
    role="sink",
    doc="Writes rows to a Cassandra table, each record once: ids come from the records or a key, the write time from the Batch.",
    options=(
        *_SERVER,
        _KEYSPACE,
        Option("table", "text", "the table; created if it does not exist", REQUIRED, example="orders"),
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
        Option(
            "partition", "int", "upsert: how many of the first columns of `key` form the partition key of a table that is created", 1, low=1
        ),
        Option("id_column", "text", "append: the text column that is the primary key; it holds the origin of the row", "record"),
        Option(
            "version_column",
            "text",
            "a bigint column for the write time, which identifies the Batch of a row; append requires it, upsert writes it if it exists",
            "version",
        ),
        Option(
            "consistency",
            "choice",
            "how many replicas must confirm a write",
            "LOCAL_QUORUM",
            ("ONE", "LOCAL_ONE", "TWO", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"),
        ),
        Option("batch", "int", "maximum rows of one unlogged batch to a replica", 50, low=1, high=1000, pace=True),
        Option(
            "connections", "int", "how many parts of a Batch are sent in parallel, each in several requests", 2, low=1, high=64, pace=True
        ),
        Option(
            "records",
            "text",
            "the table of the keyspace for Scribengin's own records: the writer of each table, and its newest Batch",
            "scribengin_places",
        ),
    ),
    abilities=KEYED_ABILITIES | {"table"},
)
