"""What a flow can say of `type: hbase`. Imports no client."""

from collections.abc import Iterable

from scribengin.connectors.addresses import Fault, is_host, url_check
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option, keys_check

_THRIFT = ("thrift", "thrift+tls")
_rest_fault = url_check("http", "https", write="write http://HOST:PORT, or thrift://HOST:PORT of a Thrift server")


def _servers_fault(servers: Iterable[str]) -> Fault | None:
    """Servers are all of REST, or all of Thrift."""
    given = [*servers]
    if not any(each.startswith("thrift") for each in given):
        return _rest_fault(given)
    for each in given:
        scheme, _, host = each.partition("://")
        if scheme not in _THRIFT or not is_host(host):
            return f'has "{each.rpartition("@")[2]}", which is not an address of a Thrift server', (
                "write thrift://HOST:PORT, or thrift+tls://HOST:PORT; or name REST servers alone"
            )
    return None


_SERVER = (
    Option(
        "server",
        "list",
        "where REST servers of one HBase answer, of which any will do; or its Thrift servers, `thrift://HOST:PORT`, `thrift+tls://HOST:PORT`",
        REQUIRED,
        example="[http://hbase1:8080]",
        pace=True,
        check=_servers_fault,
        by_member=True,
    ),
    Option(
        "config",
        "map",
        "how to log in to a REST server, `user` and `password`, as `${secret:env/NAME}`; `ca`: a PEM file of who signs the server's "
        "certificate",
        {},
        example="{ca: /etc/ssl/ca.pem}",
        secret=True,
        pace=True,
        check=keys_check("ca", "password", "user"),
    ),
)
_CELLS = (
    Option("family", "text", "the column family of columns that `columns` does not name", "d"),
    Option(
        "columns",
        "map",
        "the cell of a column, FAMILY:QUALIFIER; of the others it is `family` and their name",
        {},
        example='{amount: "d:a"}',
    ),
    Option(
        "values",
        "choice",
        "`text`: a value as JSON has it; `binary`: numbers and booleans as HBase's class Bytes makes them, all else as text",
        "text",
        ("text", "binary"),
    ),
)

SOURCE = NodeType(
    type="hbase",
    role="source",
    doc="Reads a table of HBase once, by REST or by Thrift, cut by row keys.",
    options=(
        *_SERVER,
        Option("table", "text", "the table, or NAMESPACE:TABLE", REQUIRED, example="orders"),
        Option(
            "row",
            "text",
            "columns that the row key is made of, and how: `{customer}/{id:12}` with zeros before the id, `{id:reverse}` from its end; "
            "`{key}` alone: all of it",
            "",
            example='"{customer}/{id:12}"',
        ),
        *_CELLS,
        Option(
            "on_change",
            "choice",
            "what rows do that changed after they were taken and before they were committed: `stop`, for which all is read twice, or "
            "`ignore`, which is at least once",
            "stop",
            ("stop", "ignore"),
            adds={"stop": frozenset({"replayable"})},
        ),
        Option("max_rows", "int", "rows one Batch takes at most", 250_000, example="100000", low=1, pace=True, of_streams=True),
        Option("split", "int", "rows one task reads at most", 50_000, example="20000", low=1, pace=True),
        Option(
            "page",
            "int",
            "rows that a server answers with at once; fewer where they are large",
            5000,
            example="1000",
            low=1,
            high=100_000,
            pace=True,
        ),
    ),
    abilities=frozenset({"bounded", "static"}),
)

SINK = NodeType(
    type="hbase",
    role="sink",
    doc="Writes rows to a table of HBase by REST or Thrift, each record once: row keys from records or a key, timestamps from the Batch.",
    options=(
        *_SERVER,
        Option("table", "text", "the table, or NAMESPACE:TABLE; made where it is not there", REQUIRED, example="orders"),
        Option(
            "mode",
            "choice",
            "`append`: a row for each record; `upsert`: the newest row of each key",
            "append",
            ("append", "upsert"),
            adds={"upsert": frozenset({"update"})},
            alone={"upsert": ALONE_BY_KEY},
        ),
        Option("key", "list", "upsert: the columns that tell rows apart", (), example="[customer, id]"),
        Option(
            "row",
            "text",
            "upsert: the row key, made of the columns of `key`: `{id}`, `{id:12}` with zeros before it, `{id:reverse}` from its end; "
            "without it the value of one column, a JSON array of several",
            "",
            example='"{customer}/{id:12}"',
        ),
        *_CELLS,
        Option("connections", "int", "how many requests are sent at once", 2, low=1, high=64, pace=True),
        Option(
            "records",
            "text",
            "the table for our own records: who writes where, and which Batch came last",
            "scribengin",
            example="scribengin",
        ),
    ),
    abilities=frozenset({"exactly_once", "append"}),
)
