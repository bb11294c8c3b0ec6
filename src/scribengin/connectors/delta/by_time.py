"""Folders by event time in a table: its partition columns, and the time up to which all of them are closed.

The folder names become STRING columns, as `country=DE` becomes one. The closing time is stored in the table's log, as the version of the
application `scribengin.closed`: microseconds since 1970; if it is missing or not above 0, no folder is closed. It is part of the commit
that adds the rows which closed the folders, so any version of the table shows its readers what is complete in it. It only increases, except
after a reset.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.time_path import TimePath
from scribengin.connectors.objects.retention import check_folders
from scribengin.core.records import seal, unseal
from scribengin.core.types import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import deltalake

    from scribengin.connectors.delta.places import TablePlace, TableWriter

CLOSED = "scribengin.closed"
_KIND, _FORMAT = "closing", 1


def parts_of(options: Mapping[str, Any]) -> tuple[str | TimePath, ...]:
    """The parts of `partition_by`, with its time as a TimePath."""
    return tuple(part if isinstance(part, str) else TimePath.of(part) for part in options["partition_by"])


def columns_of(parts: Sequence[str | TimePath]) -> tuple[str, ...]:
    """The partition columns, including those that the time creates."""
    return tuple(name for part in parts for name in ((part,) if isinstance(part, str) else part.names))


def with_time(schema: Schema, parts: Sequence[str | TimePath]) -> Schema:
    """The columns of the table for rows with the columns `schema`: with those that the time creates."""
    made = (name for part in parts if isinstance(part, TimePath) for name in part.names)
    return Schema((*schema.fields, *(Field(name, Type("STRING")) for name in made)))


def closed_of(table: deltalake.DeltaTable | None) -> int | None:
    """The time up to which all folders of a table are closed, in microseconds since 1970; None: no folder is closed."""
    stands = None if table is None else table.transaction_version(CLOSED)
    return stands if stands is not None and stands > 0 else None


def closed_before(lineage: TableWriter, number: int, closed_us: int | None) -> int | None:
    """The time up to which folders are closed for a Batch: by the Batches before it, and by the table when it was claimed.

    Args:
        lineage: The lineage of the Batch.
        number: The number of the Batch.
        closed_us: The table's closing time when it was claimed.

    Returns:
        Microseconds since 1970; None: no folder is closed.
    """
    before = lineage.commits.newest_below(number)
    moments = (closed_us, None if before is None else before[1].get("closed_us"))
    return max((each for each in moments if each is not None), default=None)


def pin(place: TablePlace, lineage: TableWriter, parts: Sequence[str | TimePath], *, closes: bool) -> None:
    """Record how a lineage that closes its folders names them.

    Args:
        place: The place of the table.
        lineage: The lineage.
        parts: The parts of `partition_by`.
        closes: True if the sink closes its folders.

    Raises:
        Refused: The lineage named its folders differently at its start.
    """
    by = next((part for part in parts if isinstance(part, TimePath)), None)
    name = f"{lineage.path.parent.name}/{lineage.path.name}/closing.json"
    data = place.read(name)
    if by is not None and data is None and closes:
        place.put(name, seal(_KIND, _FORMAT, by.as_json()))
    elif by is not None and data is not None:
        stands = TimePath.of(unseal(data, _KIND, _FORMAT, Path(str(place), name)))
        check_folders(stands, by, sink=place.node, where=str(place))
