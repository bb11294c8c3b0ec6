"""The current contents of a table: its files, from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from scribengin.connectors.files.sink_partition import texts_of

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa


class HeldFile(NamedTuple):
    """A file of the table. `rows` is None if the log does not record the number; `partition` is in the log's form."""

    path: str
    bytes: int
    rows: int | None
    partition: dict[str, str | None]


def files_of(table: deltalake.DeltaTable) -> list[HeldFile]:
    """All files of the table's version that was read."""
    actions = _actions(table)
    parted = list(table.metadata().partition_columns)
    columns = [_texts(actions.column(f"partition.{name}")) for name in parted]
    paths = [unquote(path) for path in actions.column("path").to_pylist()]
    sizes, rows = (actions.column(name).to_pylist() for name in ("size_bytes", "num_records"))
    values = list(zip(*columns, strict=True)) if parted else [()] * len(paths)
    return [
        HeldFile(path, size, count, dict(zip(parted, given, strict=True)))
        for path, size, count, given in zip(paths, sizes, rows, values, strict=True)
    ]


def rows_of(table: deltalake.DeltaTable) -> int:
    """The number of rows in the table."""
    return int(table.count())


def _actions(table: deltalake.DeltaTable) -> pa.Table:
    import pyarrow as pa

    return pa.table(table.get_add_actions(flatten=True))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    texts: list[str | None] = texts_of(column.combine_chunks()).to_pylist()
    return texts
