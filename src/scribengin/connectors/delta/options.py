"""The options of `type: delta`. Imports neither Arrow nor a client."""

from dataclasses import replace

from scribengin.connectors.addresses import store_url_fault
from scribengin.connectors.files.options import BY_TIME_CHECKS, CLOSE_FOR_GOOD, PARTITION_BY
from scribengin.connectors.objects.options import PLACE, PLACE_CHECK, WRITER_CHECK
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option, StoreUrl

REACHED = tuple(option for option in PLACE if option.name != "url")
"""the options for access to an object store; a table in a folder has none of them"""


_URL = StoreUrl(
    "path", ("s3",), "write s3://BUCKET/PREFIX, and the server as `endpoint`; or a plain path for a folder of this machine", or_folder=True
)


def _at_fault(at: str) -> tuple[str, str] | None:
    """What is wrong with the option `path`, and the remedy; None for a folder and for a valid address."""
    return store_url_fault(at, _URL) if _URL.names_store(at) else None


SINK = NodeType(
    type="delta",
    role="sink",
    doc="Writes rows to a Delta table, each record once: tasks write Parquet files, and one commit to the table's log adds a whole Batch.",
    options=(
        Option(
            "path",
            "path",
            "the table's folder, or `s3://BUCKET/PREFIX`; created if it does not exist",
            REQUIRED,
            example="lake/orders",
            by_member=True,
            at_check=_at_fault,
        ),
        *REACHED,
        Option(
            "mode",
            "choice",
            (
                "`append` adds each row; `overwrite` replaces the partitions that a Batch has rows for; `upsert` replaces the row with the "
                "same key"
            ),
            "append",
            ("append", "overwrite", "upsert"),
            adds={"upsert": frozenset({"update"})},
            alone={
                "overwrite": (
                    "a Batch replaces partitions only at its own member; rows that an earlier Batch wrote to them at another member "
                    "would stay"
                ),
                "upsert": ALONE_BY_KEY,
            },
        ),
        replace(PARTITION_BY, doc="columns that the table is partitioned by; the last one may be a mapping: folders by event time"),
        replace(CLOSE_FOR_GOOD, doc="for folders by time: the table's log records the time up to which they are complete"),
        Option("key", "list", "upsert: the columns that identify a row", (), example="[id]"),
        Option(
            "version",
            "text",
            "upsert: of rows with the same key, the one with the greatest value in this column is kept; by default the last one",
            None,
            example="updated_at",
        ),
        Option(
            "evolve",
            "choice",
            "how the columns may differ from those of the table: `strict`: not at all; `add`: by added or missing columns",
            "strict",
            ("strict", "add"),
        ),
        Option("segment", "bytes", "a task starts another file when one reaches this size", None, example="1GiB", low=1, pace=True),
        Option("file_size", "bytes", "`maintain` merges small files to about this size", 128 * 2**20, example="256MiB", low=1, pace=True),
        Option(
            "retain",
            "duration",
            "`maintain` deletes files that the table has not used for this time; older versions cannot be read afterwards",
            7 * 86400.0,
            example="30d",
            low=0,
            pace=True,
        ),
    ),
    maintained_as="table",
    abilities=frozenset({"exactly_once", "append", "table", "compares_columns", "finds_unaccounted", "checks_place", "checks_local_place"}),
    store_url=_URL,
    closed_for_good="a partition that the table's log marks as complete cannot be reopened",
    checks=(PLACE_CHECK, "scribengin.connectors.delta.checks:folders_need_no_address", WRITER_CHECK, *BY_TIME_CHECKS),
)
