"""Rows as Structs, for records that are mostly dropped by a filter. A third cheaper to decode than dicts, and the garbage collector does
not traverse them.

A Struct's fields are `f0`, `f1`, … in the schema's order, whatever the names of the columns. Structs are shared and never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.types import arrow_schema
from scribengin.formats.json_types import struct_type

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from scribengin.core.types import Schema


def attribute(schema: Schema, column: str) -> str:
    """The Struct field of `column`. Raises ValueError if there is none."""
    return f"f{schema.names.index(column)}"


class StructForm:
    """The Struct of a flat schema, and its conversions to dicts and Arrow."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.type = struct_type(schema, texts=frozenset())
        # Compiled: an attribute is read twice as fast by its literal name as by getattr, and a dict display is faster than dict(zip(…)).
        items = ", ".join(f"{name!r}: struct.f{index}" for index, name in enumerate(schema.names))
        self._rows: Callable[[list[Any]], list[dict[str, Any]]] = eval(f"lambda structs: [{{{items}}} for struct in structs]")
        self._columns = readers_of(schema)

    def rows(self, structs: list[Any]) -> list[dict[str, Any]]:
        """One dict per row, keys in the schema's order."""
        return self._rows(structs)

    def batch(self, structs: list[Any]) -> pa.RecordBatch:
        """The rows as Arrow, with the schema's columns."""
        import pyarrow as pa

        schema = arrow_schema(self.schema)
        arrays = [pa.array(read(structs), field.type) for read, field in zip(self._columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def readers_of(schema: Schema) -> list[Callable[[list[Any]], list[Any]]]:
    """For each column a function that returns its values from Structs."""
    return [eval(f"lambda structs: [struct.f{index} for struct in structs]") for index in range(len(schema.fields))]
