"""The options of `type: postgres`. Imports neither Arrow nor a client."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scribengin.connectors.addresses import DataLocation, database_fault, split_url
from scribengin.connectors.sql.contract import SQL_ABILITIES, SQL_UNIT_ABILITIES
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
        "additional settings of the connection (libpq), such as `sslmode`; secrets as `${secret:env/NAME}`",
        {},
        example="{sslmode: verify-full, sslrootcert: /etc/ssl/ca.pem}",
        secret=True,
        pace=True,
    ),
)


def table_of(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """The same whoever logs in."""
    url = split_url(str(options.get("server", "")))
    if url is not None:
        host = url.netloc.rpartition("@")[2].lower()
        port = "" if re.search(r":\d+$", host) else ":5432"
        yield DataLocation("table", f"{host}{port}/{url.path.strip('/')}", str(options.get("table", "")).removeprefix("public."))


SOURCE = NodeType(
    type="postgres",
    role="source",
    doc="Reads a PostgreSQL table, split by its key: either once as it is now, or continuously by an increasing column.",
    options=(
        *_SERVER,
        Option("table", "text", "the table, with its schema unless that is `public`", REQUIRED, example="sales.orders"),
        Option(
            "mode",
            "choice",
            "`snapshot` reads all rows once, as they are at the start; `incremental` continues with rows whose `by` is greater",
            "snapshot",
            ("snapshot", "incremental"),
        ),
        Option("by", "text", "incremental: the column that increases with each new or changed row", None, example="updated_at"),
        Option("key", "list", "the columns that identify a row; by default those of the primary key", (), example="[id]"),
        Option(
            "settle",
            "duration",
            "incremental: minimum age of a row before it is read, so that rows committed late are not skipped",
            1.0,
            example="10s",
        ),
        Option(
            "waits_for",
            "choice",
            "incremental: which open transactions a row waits for: `all` of the database, or `writers`, those that have already written",
            "all",
            ("all", "writers"),
        ),
        Option(
            "on_change",
            "choice",
            "if rows change after they were assigned to a Batch and before it is committed: `stop`, or `ignore`, which is at least once",
            "stop",
            ("stop", "ignore"),
            adds={"stop": frozenset({"replayable"})},
        ),
        Option("every", "duration", "interval between polls of the table", 1.0, example="10s", pace=True, of_streams=True),
        Option("max_rows", "int", "maximum rows of one Batch", 1_000_000, example="100000", low=1, pace=True, of_streams=True),
        Option("split", "int", "maximum rows that one task reads", 250_000, example="100000", low=1, pace=True),
    ),
    abilities=frozenset({"bounded", "static", "table", "user_in_server", "measures_backlog"}),
    locations=table_of,
    checks=("scribengin.connectors.postgres.checks:tables_that_grow_say_by_what",),
)

SINK = NodeType(
    type="postgres",
    role="sink",
    doc="Writes rows to a PostgreSQL table, each record once: tasks stage the rows, and one transaction commits a whole Batch.",
    options=(
        *_SERVER,
        Option(
            "table",
            "text",
            "the table, with its schema unless that is `public`; created if it does not exist",
            REQUIRED,
            example="sales.orders",
        ),
        Option(
            "mode",
            "choice",
            "`append` adds each row; `upsert` replaces the row with the same key; `changes` applies the operation in the column `change`",
            "append",
            ("append", "upsert", "changes"),
            adds={"upsert": _KEYED, "changes": _KEYED},
            alone={"upsert": ALONE_BY_KEY, "changes": ALONE_BY_KEY},
        ),
        Option("key", "list", "upsert, changes: the columns that identify a row", (), example="[id]"),
        Option(
            "version",
            "text",
            "upsert, changes: of rows with the same key, the one with the greatest value in this column is kept; by default the last one",
            None,
            example="updated_at",
        ),
        Option(
            "change",
            "text",
            "changes: the column that contains `insert`, `update` or `delete`; it is not written to the table",
            None,
            example="op",
        ),
        Option(
            "visible",
            "choice",
            "`batch`: a reader sees a Batch whole or not at all; `unit`: append only, each task writes its rows directly to the table in "
            "its own transaction, and a reader may see part of a Batch",
            "batch",
            ("batch", "unit"),
            adds={"unit": SQL_UNIT_ABILITIES},
            alone={"unit": "a Batch for a group commits as a whole, at the member that it is decided for"},
        ),
        Option(
            "staging", "text", "the schema for Scribengin's own tables; created if it does not exist", "scribengin", example="scribengin"
        ),
    ),
    abilities=SQL_ABILITIES | {"table", "user_in_server"},
    locations=table_of,
)
