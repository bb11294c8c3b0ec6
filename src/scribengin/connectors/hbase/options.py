"""The options of `type: hbase`. Imports no client."""

from collections.abc import Iterable

from scribengin.connectors.addresses import Fault, is_host, url_check
from scribengin.connectors.keyed.contract import KEYED_ABILITIES
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option, keys_check

_THRIFT = ("thrift", "thrift+tls")
_rest_fault = url_check("http", "https", write="write http://HOST:PORT, or thrift://HOST:PORT of a Thrift server")


def _servers_fault(servers: Iterable[str]) -> Fault | None:
    """The error of the addresses: they must be all REST, or all Thrift. None if they are valid."""
    given = [*servers]
    if not any(each.startswith("thrift") for each in given):
        return _rest_fault(given)
    for each in given:
        scheme, _, host = each.partition("://")
        if scheme not in _THRIFT or not is_host(host):
            return f'has "{each.rpartition("@")[2]}", which is not an address of a Thrift server', (
                "write thrift://HOST:PORT, or thrift+tls://HOST:PORT; or name only REST servers"
            )
    return None


_SERVER = (
    Option(
        "server",
        "list",
        "addresses of equivalent REST servers of one HBase; or its Thrift servers, `thrift://HOST:PORT`, `thrift+tls://HOST:PORT`",
        REQUIRED,
        example="[http://hbase1:8080]",
        pace=True,
        check=_servers_fault,
        by_member=True,
    ),
    Option(
        "config",
        "map",
        "login to a REST server: `user` and `password`, as `${secret:env/NAME}`; `ca`: a PEM file of the CA that signed the server's "
        "certificate",
        {},
        example="{ca: /etc/ssl/ca.pem}",
        secret=True,
        pace=True,
        check=keys_check("ca", "password", "user"),
    ),
)
_CELLS = (
    Option("family", "text", "the column family of columns that are not in `columns`", "d"),
    Option(
        "columns",
        "map",
        "the cell of a column, FAMILY:QUALIFIER; other columns use `family` and their own name",
        {},
        example='{amount: "d:a"}',
    ),
    Option(
        "values",
        "choice",
        "`text`: values as in JSON; `binary`: numbers and booleans as HBase's class Bytes encodes them, all else as text",
        "text",
        ("text", "binary"),
    ),
)

SOURCE = NodeType(
    type="hbase",
    role="source",
    doc="Reads an HBase table once, by REST or Thrift, split by row key.",
    options=(
        *_SERVER,
        Option("table", "text", "the table, or NAMESPACE:TABLE", REQUIRED, example="orders"),
        Option(
            "row",
            "text",
            "how the row key is built from columns: `{customer}/{id:12}` pads the id with zeros, `{id:reverse}` reverses it; `{key}` "
            "alone is the whole row key",
            "",
            example='"{customer}/{id:12}"',
        ),
        *_CELLS,
        Option(
            "on_change",
            "choice",
            "if rows change after they were assigned to a Batch and before it is committed: `stop`, for which all rows are read twice, "
            "or `ignore`, which is at least once",
            "stop",
            ("stop", "ignore"),
            adds={"stop": frozenset({"replayable"})},
        ),
        Option("max_rows", "int", "maximum rows of one Batch", 250_000, example="100000", low=1, pace=True, of_streams=True),
        Option("split", "int", "maximum rows that one task reads", 50_000, example="20000", low=1, pace=True),
        Option(
            "page",
            "int",
            "rows in one answer of a server; fewer if they are large",
            5000,
            example="1000",
            low=1,
            high=100_000,
            pace=True,
        ),
    ),
    abilities=frozenset({"bounded", "static", "table"}),
    untyped="cells",
    checks=("scribengin.connectors.hbase.checks:row_keys_are_made_of_columns",),
)

SINK = NodeType(
    type="hbase",
    role="sink",
    doc=(
        "Writes rows to an HBase table by REST or Thrift, each record once: row keys come from the records or a key, timestamps from "
        "the Batch."
    ),
    options=(
        *_SERVER,
        Option("table", "text", "the table, or NAMESPACE:TABLE; created if it does not exist", REQUIRED, example="orders"),
        Option(
            "mode",
            "choice",
            "`append`: a row for each record; `upsert`: the newest row of each key",
            "append",
            ("append", "upsert"),
            adds={"upsert": frozenset({"update"})},
            alone={"upsert": ALONE_BY_KEY},
        ),
        Option("key", "list", "upsert: the columns that identify a row", (), example="[customer, id]"),
        Option(
            "row",
            "text",
            "upsert: the row key, built from the columns of `key`: `{id}`, `{id:12}` padded with zeros, `{id:reverse}` reversed; by "
            "default the value of a single key column, or a JSON array of several",
            "",
            example='"{customer}/{id:12}"',
        ),
        *_CELLS,
        Option("connections", "int", "how many requests are sent in parallel", 2, low=1, high=64, pace=True),
        Option(
            "records",
            "text",
            "the table for Scribengin's own records: the writer of each table, and its newest Batch",
            "scribengin",
            example="scribengin",
        ),
    ),
    abilities=KEYED_ABILITIES | {"table"},
    checks=("scribengin.connectors.hbase.checks:row_keys_tell_keys_apart",),
)
