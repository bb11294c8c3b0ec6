"""What a flow can say of `type: sqlite`. Imports neither Spark nor Arrow: `validate` reads it."""

from scribengin.core.options import REQUIRED, NodeType, Option

_DATABASE = Option("database", "path", "the database file", REQUIRED, example="shop.db")

SOURCE = NodeType(
    type="sqlite",
    role="source",
    doc="Reads a table to which rows are only appended, in the order of their rowid.",
    options=(
        _DATABASE,
        Option("table", "text", "the table", REQUIRED, example="orders"),
        Option("max_rows", "int", "rows one Batch takes at most", 100_000, example="100000", low=1, pace=True),
    ),
    abilities=frozenset({"replayable", "bounded", "static"}),
)

SINK = NodeType(
    type="sqlite",
    role="sink",
    doc="Appends rows to a table that this flow alone writes, each row once.",
    options=(_DATABASE, Option("table", "text", "the table; made when the first row comes", REQUIRED, example="large_orders")),
    abilities=frozenset({"exactly_once", "append", "compares_columns"}),
)
