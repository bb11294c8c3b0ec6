"""What a flow can say of `type: sqlite_table`. Imports neither Spark nor Arrow: `validate` reads it.

Options that are called `table`, `mode`, `key`, `version` and `change` are checked by the rules that hold for all tables."""

from scribengin.connectors.sql.contract import SQL_ABILITIES
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option

_KEYED = frozenset({"update"})

SINK = NodeType(
    type="sqlite_table",
    role="sink",
    doc="Writes rows to a table of a SQLite file, each record once.",
    options=(
        Option("database", "path", "the database file", REQUIRED, example="shop.db", by_member=True),
        Option("table", "text", "the table; made where it is not there", REQUIRED, example="customers"),
        Option(
            "mode",
            "choice",
            "`append` adds each row; `upsert` replaces the row of the same key; `changes` does what the column `change` says",
            "append",
            ("append", "upsert", "changes"),
            adds={"upsert": _KEYED, "changes": _KEYED},
            alone={"upsert": ALONE_BY_KEY, "changes": ALONE_BY_KEY},
        ),
        Option("key", "list", "upsert, changes: the columns that tell rows apart", (), example="[id]"),
        Option("version", "text", "upsert, changes: of rows of one key the one with the greatest value here stands", None, example="at"),
        Option("change", "text", "changes: the column that says `insert`, `update` or `delete`", None, example="op"),
    ),
    abilities=SQL_ABILITIES,
)
