"""What a flow can say of `type: postgres`. Imports neither Arrow nor a client."""

from scribengin.connectors.addresses import database_fault
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option

_KEYED = frozenset({"update"})

_SERVER = (
    Option(
        "server",
        "text",
        "address and database, without a password",
        REQUIRED,
        example='"postgresql://etl@db1:5432/shop"',
        pace=True,
        check=database_fault,
        by_member=True,
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
)

SOURCE = NodeType(
    type="postgres",
    role="source",
    doc="Reads a table of PostgreSQL, cut by its key: once as it is now, or what comes to it by a column that grows.",
    options=(
        *_SERVER,
        Option("table", "text", "the table, with its schema unless that is `public`", REQUIRED, example="sales.orders"),
        Option(
            "mode",
            "choice",
            "`snapshot` reads all rows as they are at the start, once; `incremental` goes on with rows whose `by` is greater",
            "snapshot",
            ("snapshot", "incremental"),
        ),
        Option("by", "text", "incremental: the column that is greater in whatever row comes or changes later", None, example="updated_at"),
        Option("key", "list", "the columns that tell rows apart; by default those of the primary key", (), example="[id]"),
        Option(
            "settle",
            "duration",
            "incremental: how long a row is there before it is taken, so that others which commit late are not passed over",
            1.0,
            example="10s",
        ),
        Option(
            "waits_for",
            "choice",
            "incremental: which transactions a row waits for, of those that are open when it is seen: `all` of the database, or `writers`, "
            "those that have written already",
            "all",
            ("all", "writers"),
        ),
        Option(
            "on_change",
            "choice",
            "what rows do that changed after they were taken and before they were committed: `stop`, or `ignore`, which is at least once",
            "stop",
            ("stop", "ignore"),
            adds={"stop": frozenset({"replayable"})},
        ),
        Option("every", "duration", "how often the table is looked at", 1.0, example="10s", pace=True, of_streams=True),
        Option("max_rows", "int", "rows one Batch takes at most", 1_000_000, example="100000", low=1, pace=True, of_streams=True),
        Option("split", "int", "rows one task reads at most", 250_000, example="100000", low=1, pace=True),
    ),
    abilities=frozenset({"bounded", "static"}),
)

SINK = NodeType(
    type="postgres",
    role="sink",
    doc="Writes rows to a table of PostgreSQL, each record once: they are staged by tasks, and one transaction takes a whole Batch.",
    options=(
        *_SERVER,
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
            alone={"upsert": ALONE_BY_KEY, "changes": ALONE_BY_KEY},
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
        Option(
            "visible",
            "choice",
            "`batch`: a reader sees a Batch whole or not at all; `unit`: append only, each task writes its rows at once to the table, in a "
            "transaction of its own, and a reader may see a Batch in parts",
            "batch",
            ("batch", "unit"),
            adds={"unit": frozenset({"units"})},
            alone={"unit": "a Batch that goes to a group commits as a whole, at the member for which it is decided"},
        ),
        Option("staging", "text", "the schema for our own tables; made where it is not there", "scribengin", example="scribengin"),
    ),
    abilities=frozenset({"exactly_once", "append"}),
)
