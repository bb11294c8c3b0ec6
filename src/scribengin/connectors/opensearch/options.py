"""The options of `type: opensearch` and `type: elasticsearch`. Imports no client."""

from scribengin.connectors.addresses import url_check
from scribengin.connectors.keyed.contract import KEYED_ABILITIES
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option, keys_check

_KEYED = frozenset({"update"})


_SERVER = (
    Option(
        "server",
        "list",
        "address of the server; or several equivalent addresses of one cluster",
        REQUIRED,
        example="[https://search1:9200]",
        pace=True,
        check=url_check("http", "https", write="write http://HOST:PORT or https://HOST:PORT"),
        by_member=True,
    ),
    Option(
        "config",
        "map",
        "login: `user` and `password` or `api_key`, as `${secret:env/NAME}`; `ca`: a PEM file of the CA that signed the server's "
        "certificate",
        {},
        example="{ca: /etc/ssl/ca.pem}",
        secret=True,
        pace=True,
        check=keys_check("api_key", "ca", "password", "user"),
    ),
)


def source_type(type_: str, name: str) -> NodeType:
    """The declaration of the source type. Both servers use the same requests, except for opening a point in time."""
    return NodeType(
        type=type_,
        role="source",
        doc=f"Reads the documents of an index of {name} once, as they are at the start: from a point in time, split by shard and write "
        "order.",
        options=(
            *_SERVER,
            Option("index", "text", "the index, an alias, or several by a pattern", REQUIRED, example='"orders-*"'),
            Option(
                "on_change",
                "choice",
                "if documents change after they were assigned to a Batch and before it is committed, and the point in time has expired: "
                "`stop`, or `ignore`, which is at least once",
                "stop",
                ("stop", "ignore"),
                adds={"stop": frozenset({"replayable"})},
            ),
            Option(
                "keep_alive",
                "duration",
                "how long the cluster keeps the point in time between two requests",
                600.0,
                example="30m",
                pace=True,
            ),
            Option("max_rows", "int", "maximum documents of one Batch", 1_000_000, example="100000", low=1, pace=True, of_streams=True),
            Option("split", "int", "maximum documents that one task reads", 100_000, example="20000", low=1, pace=True),
        ),
        abilities=frozenset({"bounded", "static", "holds_back"}),
        untyped="documents",
    )


def sink_type(type_: str, name: str) -> NodeType:
    """The declaration of the sink type. Both servers use the same requests."""
    return NodeType(
        type=type_,
        role="sink",
        doc=(
            f"Writes rows as documents to an index of {name}, each record once: ids come from the records or a key, versions from the "
            "Batch."
        ),
        options=(
            *_SERVER,
            Option(
                "index",
                "text",
                "the index; created if it does not exist, with a mapping of the columns. With a column and a strftime format in braces "
                "it is the index for the row's time in UTC: `orders-{ts:%Y.%m.%d}`",
                REQUIRED,
                example="tweets",
            ),
            Option(
                "mode",
                "choice",
                "`append`: a document for each row; `upsert`: the newest row of each key",
                "append",
                ("append", "upsert"),
                adds={"upsert": _KEYED},
                alone={"upsert": ALONE_BY_KEY},
            ),
            Option("key", "list", "upsert: the columns that form the document id", (), example="[user, day]"),
            Option("connections", "int", "how many requests are sent in parallel", 2, low=1, high=64, pace=True),
            Option(
                "compression",
                "choice",
                "compression of the requests: `gzip` makes them smaller at the cost of CPU time on both sides",
                "none",
                ("none", "gzip"),
                pace=True,
            ),
            Option(
                "records",
                "text",
                "the index for Scribengin's own records: the writer of each index, and its newest Batch",
                "scribengin",
                example="scribengin",
            ),
        ),
        abilities=KEYED_ABILITIES | {"table"},
        checks=("scribengin.connectors.opensearch.checks:indexes_are_of_a_time",),
    )


SOURCE = source_type("opensearch", "OpenSearch")
SINK = sink_type("opensearch", "OpenSearch")
