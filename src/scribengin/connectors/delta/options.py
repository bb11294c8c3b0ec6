"""What a flow can say of `type: delta`. Imports neither Arrow nor a client."""

from dataclasses import replace

from scribengin.connectors.files.options import CLOSE_FOR_GOOD, PARTITION_BY
from scribengin.connectors.objects.options import PLACE, at_fault
from scribengin.core.options import ALONE_BY_KEY, REQUIRED, NodeType, Option

REACHED = tuple(option for option in PLACE if option.name != "url")
"""how an object store is reached; a folder has none of it"""


def _at_fault(at: str) -> tuple[str, str] | None:
    """A folder as it is, or the address of a bucket."""
    return at_fault("delta", at) if "://" in at else None


SINK = NodeType(
    type="delta",
    role="sink",
    doc="Writes rows to a Delta table, each record once: tasks write Parquet files, and one commit of the table's log takes a whole Batch.",
    options=(
        Option(
            "path",
            "path",
            "the table's folder, or `s3://BUCKET/PREFIX`; made where it is not there",
            REQUIRED,
            example="lake/orders",
            by_member=True,
            at_check=_at_fault,
        ),
        *REACHED,
        Option(
            "mode",
            "choice",
            "`append` adds each row; `overwrite` replaces the partitions that a Batch has rows of; `upsert` replaces the row of one key",
            "append",
            ("append", "overwrite", "upsert"),
            adds={"upsert": frozenset({"update"})},
            alone={
                "overwrite": "a Batch replaces partitions at its own member, and what an earlier one wrote of them at another would stay",
                "upsert": ALONE_BY_KEY,
            },
        ),
        replace(PARTITION_BY, doc="columns by which the table's files are apart; as the last one a mapping: folders by event time"),
        replace(CLOSE_FOR_GOOD, doc="of folders by time: the table's log says up to when they are complete"),
        Option("key", "list", "upsert: the columns that tell rows apart", (), example="[id]"),
        Option(
            "version",
            "text",
            "upsert: of rows of one key the one with the greatest value here stands; without it the last one to come",
            None,
            example="updated_at",
        ),
        Option(
            "evolve",
            "choice",
            "how the columns may differ from those of the table: `strict` not at all, `add` by columns that come or go",
            "strict",
            ("strict", "add"),
        ),
        Option("segment", "bytes", "a task begins another file when one has so much", None, example="1GiB", low=1, pace=True),
        Option(
            "file_size", "bytes", "`maintain` makes of small files such of about this size", 128 * 2**20, example="256MiB", low=1, pace=True
        ),
        Option(
            "retain",
            "duration",
            "`maintain` deletes files that the table has given up for so long; older versions cannot be read then",
            7 * 86400.0,
            example="30d",
            low=0,
            pace=True,
        ),
    ),
    abilities=frozenset({"exactly_once", "append"}),
)
