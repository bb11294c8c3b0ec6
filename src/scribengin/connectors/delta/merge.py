"""Upsert: the newest row of each key in a Batch replaces the table's row with that key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.errors import StateError
from scribengin.core.remedies import start_over
from scribengin.core.types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import deltalake
    import pyarrow as pa

    from scribengin.core.types import Schema

    Opened = Callable[[Mapping[str, Any]], tuple[str, Any]]
    """a file of a record → its name for messages, and the source from which Arrow reads it"""

_PLACE, _VALID = "_scribengin_place", "_scribengin_valid"
_HELD, _COMING = "held", "coming"


def merge_rows(
    table: deltalake.DeltaTable,
    files: Sequence[Mapping[str, Any]],
    opened: Opened,
    schema: Schema,
    key: Sequence[str],
    version: str | None,
    properties: Any,
) -> None:
    """Merge the staged files into the table, in one commit with `properties`; without a commit if nothing changes. All rows of the Batch
    are in memory at once; files of the table that contain one of the keys are rewritten as a stream."""
    rows = newest_rows(staged_rows(files, opened, schema), key, version)
    same = " AND ".join(f"{_HELD}.{quoted(name)} = {_COMING}.{quoted(name)}" for name in key)
    older = None
    if version is not None:
        held, coming = f"{_HELD}.{quoted(version)}", f"{_COMING}.{quoted(version)}"
        older = f"{held} IS NULL OR {held} <= {coming}"
    merger = table.merge(rows, same, source_alias=_COMING, target_alias=_HELD, commit_properties=properties)
    sets = {quoted(name): f"{_COMING}.{quoted(name)}" for name in schema.names}
    rest = {name: value for name, value in sets.items() if name not in {quoted(each) for each in key}}
    if rest:
        merger = merger.when_matched_update(rest, predicate=older)
    merger.when_not_matched_insert(sets).execute()


def staged_rows(files: Sequence[Mapping[str, Any]], opened: Opened, schema: Schema) -> pa.Table:
    """The rows of staged files in their original order. Raises StateError if a file differs from its decision."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    form = arrow_schema(schema)
    parts = []
    for file in files:
        path, source = opened(file)
        try:
            found = pq.read_table(source, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise StateError(
                f"{path} does not match its decision ({file['rows']} rows): {error}",
                remedy=f"restore it from a backup, or {start_over()}",
            ) from error
        if found.num_rows != file["rows"]:
            raise StateError(
                f"{path} has {found.num_rows} rows; expected {file['rows']}, by its decision",
                remedy=f"restore it from a backup, or {start_over()}",
            )
        parts.append(found.select(form.names).cast(form))
    return pa.concat_tables(parts)


def newest_rows(rows: pa.Table, key: Sequence[str], version: str | None) -> pa.Table:
    """The row of each key that is kept: the one with the greatest version, and of equal ones the last."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    place = pa.array(np.arange(rows.num_rows))
    order = place
    if version is not None:
        held = rows.column(version)  # one that is null is older than any
        names = (_VALID, version, _PLACE)
        order = pc.sort_indices(pa.table([held.is_valid(), held, place], names), [(name, "ascending") for name in names])
    ranked = rows.take(order).append_column(_PLACE, place)
    newest = ranked.select([*key, _PLACE]).group_by(list(key)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return ranked.drop_columns([_PLACE]).take(newest)


def quoted(name: str) -> str:
    """A name quoted for the client's parser.

    >>> quoted('odd"one')
    '"odd""one"'
    """
    return '"' + name.replace('"', '""') + '"'
