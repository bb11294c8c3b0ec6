"""What a flow can say of `type: opensearch` and `type: elasticsearch`. Imports no client."""

from scribengin.connectors.addresses import url_check
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option, keys_check

_KEYED = frozenset({"update"})


_SERVER = (
    Option(
        "server",
        "list",
        "where it answers; several of one cluster, of which any will do",
        REQUIRED,
        example="[https://search1:9200]",
        pace=True,
        check=url_check("http", "https", write="write http://HOST:PORT or https://HOST:PORT"),
        by_member=True,
    ),
    Option(
        "config",
        "map",
        "how to log in, `user` and `password` or `api_key`, as `${secret:env/NAME}`; `ca`: a PEM file of who signs the server's "
        "certificate",
        {},
        example="{ca: /etc/ssl/ca.pem}",
        secret=True,
        pace=True,
        check=keys_check("api_key", "ca", "password", "user"),
    ),
)


def source_type(type_: str, name: str) -> NodeType:
    """The declaration; both speak the same but for how a point in time is opened."""
    return NodeType(
        type=type_,
        role="source",
        doc=f"Reads the documents of an index of {name} once, as they are at the start: from a point in time, cut by shards and by the "
        "order of their writing.",
        options=(
            *_SERVER,
            Option("index", "text", "the index, an alias, or several by a pattern", REQUIRED, example='"orders-*"'),
            Option(
                "on_change",
                "choice",
                "what documents do that changed after they were taken and before they were committed, where the point in time is gone: "
                "`stop`, or `ignore`, which is at least once",
                "stop",
                ("stop", "ignore"),
                adds={"stop": frozenset({"replayable"})},
            ),
            Option(
                "keep_alive",
                "duration",
                "how long the cluster holds the point in time between two requests",
                600.0,
                example="30m",
                pace=True,
            ),
            Option("max_rows", "int", "documents one Batch takes at most", 1_000_000, example="100000", low=1, pace=True, of_streams=True),
            Option("split", "int", "documents one task reads at most", 100_000, example="20000", low=1, pace=True),
        ),
        abilities=frozenset({"bounded", "static"}),
    )


def sink_type(type_: str, name: str) -> NodeType:
    """The declaration; both speak the same."""
    return NodeType(
        type=type_,
        role="sink",
        doc=f"Writes rows as documents to an index of {name}, each record once: ids from the records or a key, versions from the Batch.",
        options=(
            *_SERVER,
            Option(
                "index",
                "text",
                "the index; made where it is not there, with a mapping of the columns. With a column and strftime's letters in braces "
                "it is the index of the row's time in UTC: `orders-{ts:%Y.%m.%d}`",
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
            Option("key", "list", "upsert: the columns that make a document's id", (), example="[user, day]"),
            Option("connections", "int", "how many requests are sent at once", 2, low=1, high=64, pace=True),
            Option(
                "compression",
                "choice",
                "how rows are sent: `gzip` makes the requests small, for some work at both ends",
                "none",
                ("none", "gzip"),
                pace=True,
            ),
            Option(
                "records",
                "text",
                "the index for our own records: who writes where, and which Batch came last",
                "scribengin",
                example="scribengin",
            ),
        ),
        abilities=frozenset({"exactly_once", "append"}),
    )


SOURCE = source_type("opensearch", "OpenSearch")
SINK = sink_type("opensearch", "OpenSearch")
