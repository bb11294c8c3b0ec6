"""What a flow can say of `type: postgres`. Imports neither Arrow nor a client."""

from scribengin.core.options import REQUIRED, NodeType, Option

_KEYED = frozenset({"update"})

SINK = NodeType(
    type="postgres",
    role="sink",
    doc="Writes rows to a table of PostgreSQL, each record once: they are staged by tasks, and one transaction takes a whole Batch.",
    options=(
        Option(
            "server", "text", "address and database, without a password", REQUIRED, example='"postgresql://etl@db1:5432/shop"', pace=True
        ),
        Option(
            "config",
            "map",
            "further settings of the connection (libpq), such as `sslmode`; secrets as `${secret:env/NAME}`",
            {},
            example="{sslmode: verify-full, sslrootcert: /etc/ssl/ca.pem}",
            secret=True,
            pace=True,
        ),
        Option(
            "table",
            "text",
            "the table, with its schema unless that is `public`; made where it is not there",
            REQUIRED,
            example="sales.orders",
        ),
        Option(
            "mode",
            "choice",
            "`append` adds each row; `upsert` replaces the row of the same key; `changes` does what the column `change` says",
            "append",
            ("append", "upsert", "changes"),
            adds={"upsert": _KEYED, "changes": _KEYED},
        ),
        Option("key", "list", "upsert, changes: the columns that tell rows apart", (), example="[id]"),
        Option(
            "version",
            "text",
            "upsert, changes: of rows of one key the one with the greatest value here stands; without it the last one to come",
            None,
            example="updated_at",
        ),
        Option(
            "change",
            "text",
            "changes: the column that says `insert`, `update` or `delete`; it is not written to the table",
            None,
            example="op",
        ),
        Option("staging", "text", "the schema for our own tables; made where it is not there", "scribengin", example="scribengin"),
    ),
    abilities=frozenset({"exactly_once", "append"}),
)
