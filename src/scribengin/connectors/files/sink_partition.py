"""`partition_by`: the folders of rows, `country=DE/day=2026-01-01/`, named as in Hive and Spark.

Null is `__HIVE_DEFAULT_PARTITION__`, and so is an empty text, for which readers have no folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from scribengin.connectors.files.time_path import NULL, TimePath, path_fault
from scribengin.core.errors import Refused
from scribengin.core.types import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_PLAIN = ("STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIMESTAMP", "DECIMAL")


class FolderRows(NamedTuple):
    """The rows of one folder. It contains the folder's name (with its `/`), the indexes of the rows in the batch, and the newest of their
    times in microseconds since 1970, for folders by time."""

    folder: str
    rows: pa.RecordBatch
    places: Sequence[int]
    newest_us: int | None


class Partitions:
    """Splits batches of one schema by folder. `rest` are the columns that stay in the files. Raises Refused for columns that cannot name
    folders."""

    def __init__(self, schema: Schema, by: Sequence[str | TimePath]) -> None:
        columns = [part for part in by if isinstance(part, str)]
        for column in columns:
            if column not in schema:
                raise Refused(
                    f'partition_by names "{column}", which is not a column of the rows ({", ".join(schema.names)})', remedy="name a column"
                )
            if schema[column].type.name not in _PLAIN:
                raise Refused(f'partition_by names "{column}", a {schema[column].type}', remedy=f"use a column of type {', '.join(_PLAIN)}")
        self.rest = Schema(tuple(field for field in schema.fields if field.name not in columns))
        if not self.rest.fields:
            raise Refused("partition_by names every column: no column is left for the files", remedy="remove one of them")
        for part in by:
            if isinstance(part, TimePath):
                _check_time(part, schema, self.rest)
        if any(isinstance(part, TimePath) for part in by[:-1]):
            raise Refused("partition_by has a time that is not its last entry", remedy="write one time, as the last entry")
        self._by = tuple(by)
        self._time = next((part for part in by if isinstance(part, TimePath)), None)

    def split(self, batch: pa.RecordBatch) -> Iterator[FolderRows]:
        """The rows of each folder, in order and without the partition columns."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if not batch.num_rows:
            return
        parts = [
            part.folders(batch.column(part.column)) if isinstance(part, TimePath) else self._folder_names(part, batch.column(part))
            for part in self._by
        ]
        encoded = (pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0]).dictionary_encode()
        rest = batch.select(list(self.rest.names))
        times = None if self._time is None else batch.column(self._time.column)
        folders: list[str] = encoded.dictionary.to_pylist()
        if len(folders) == 1:
            yield FolderRows(folders[0], rest, range(batch.num_rows), _newest_us(times))
            return
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        grouped = rest.take(pa.array(order))
        times = None if times is None else times.take(pa.array(order))
        start = 0
        for folder, size in zip(folders, np.bincount(codes).tolist(), strict=True):
            newest_us = None if times is None else _newest_us(times.slice(start, size))
            yield FolderRows(folder, grouped.slice(start, size), order[start : start + size].tolist(), newest_us)
            start += size

    @staticmethod
    def _folder_names(column: str, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        encoded = texts_of(values).dictionary_encode(null_encoding="encode")
        names = [f"{escape(column)}={folder_of(text)}/" for text in encoded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(encoded.indices)


def _check_time(part: TimePath, schema: Schema, rest: Schema) -> None:
    if part.column not in schema or schema[part.column].type.name != "TIMESTAMP":
        found = f"a {schema[part.column].type}" if part.column in schema else "not a column of the rows"
        raise Refused(f'partition_by has the time "{part.column}", {found}', remedy="name a TIMESTAMP")
    fault = path_fault(part.path)
    if fault is not None:
        raise Refused(f'partition_by has the path "{part.path}", which {fault[0]}', remedy=fault[1])
    both = [name for name in part.names if name in rest.names]
    if both:
        raise Refused(
            f'partition_by creates folders "{both[0]}=…", but the rows have a column of that name', remedy="choose other folder names"
        )


def _newest_us(times: pa.Array | None) -> int | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    return None if times is None else pc.max(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())).as_py()


def escape(text: str) -> str:
    """The text as it may appear in a folder's name, with `%XX` for other characters; the same characters as Spark escapes.

    >>> escape("12:30/x")
    '12%3A30%2Fx'
    """
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def folder_of(text: str | None) -> str:
    """The name of a value's folder. A text that equals the name for null is escaped too, so that it is not read as null.

    >>> folder_of("__HIVE_DEFAULT_PARTITION__")
    '%5F_HIVE_DEFAULT_PARTITION__'
    """
    if text == NULL:
        return f"%{ord(NULL[0]):02X}{NULL[1:]}"
    return escape(text) if text else NULL


def texts_of(values: pa.Array) -> pa.Array:
    """The values of a column in the form of folder names, before escaping."""
    import pyarrow as pa

    from scribengin.formats.json_out import iso_texts, plain_texts

    return iso_texts(values) if pa.types.is_timestamp(values.type) else plain_texts(values)


def too_long(folder: str, *, most_name: int, most_path: int) -> str:
    """Why a folder name is not valid in any file system or store; empty if it is valid.

    Args:
        folder: The folder, with its `/`.
        most_name: The maximum size of each part, in bytes.
        most_path: The maximum size of the whole, in bytes.
    """
    longest = max(folder.split("/"), key=lambda name: len(name.encode()))
    for name, most in ((longest, most_name), (folder, most_path)):
        size = len(name.encode())
        if size > most:
            return f"the folder {name[:40]}… of the partition would have a name of {size} bytes; the maximum is {most}"
    return ""
