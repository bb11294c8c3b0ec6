"""`partition_by`: rows to folders, `country=DE/day=2026-01-01/`, as Hive and Spark name them.

Null is `__HIVE_DEFAULT_PARTITION__`, and so is an empty text, for which readers know no folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scribengin.core.errors import Refused
from scribengin.core.types import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_PLAIN = ("STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIMESTAMP", "DECIMAL")


class Partitions:
    """Splits batches of one schema. `rest` is what stays in the files. Raises Refused for columns that cannot name folders."""

    def __init__(self, schema: Schema, columns: tuple[str, ...]) -> None:
        for column in columns:
            if column not in schema:
                raise Refused(
                    f'partition_by names "{column}", which is no column of the rows ({", ".join(schema.names)})', remedy="name a column"
                )
            if schema[column].type.name not in _PLAIN:
                raise Refused(f'partition_by names "{column}", a {schema[column].type}', remedy=f"folders are named by {', '.join(_PLAIN)}")
        self.rest = Schema(tuple(field for field in schema.fields if field.name not in columns))
        if not self.rest.fields:
            raise Refused("partition_by names every column: nothing is left for the files", remedy="leave one out")
        self._columns = columns

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(folder with its `/`, rows in their order, without the partition columns)."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if not batch.num_rows:
            return
        parts = [self._folder_names(column, batch.column(column)) for column in self._columns]
        encoded = (pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0]).dictionary_encode()
        rest = batch.select(list(self.rest.names))
        folders: list[str] = encoded.dictionary.to_pylist()
        if len(folders) == 1:
            yield folders[0], rest
            return
        codes = encoded.indices.to_numpy()
        grouped = rest.take(pa.array(np.argsort(codes, kind="stable")))
        start = 0
        for folder, size in zip(folders, np.bincount(codes).tolist(), strict=True):
            yield folder, grouped.slice(start, size)
            start += size

    @staticmethod
    def _folder_names(column: str, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        encoded = _texts(values).dictionary_encode(null_encoding="encode")
        names = [f"{escape(column)}={escape(text) if text else NULL}/" for text in encoded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(encoded.indices)


def escape(text: str) -> str:
    """What may stand in a folder's name, `%XX` for what may not; the characters are those that Spark escapes.

    >>> escape("12:30/x")
    '12%3A30%2Fx'
    """
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _texts(values: pa.Array) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        from scribengin.formats.json_lines import iso_texts

        return iso_texts(values)
    return values if pa.types.is_string(values.type) else values.cast(pa.string())
