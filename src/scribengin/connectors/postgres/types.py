"""Which types go into and come out of each column type, and which values the server would change silently.

One declaration for both directions. PostgreSQL rounds digits that do not fit into a `numeric(p,s)` or a time with fewer decimals, and
truncates blanks: such a value becomes a dead letter, like those that the server refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from scribengin.core.types import Type

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_NESTED = ("ARRAY", "MAP", "STRUCT")


@dataclass(frozen=True, slots=True)
class Kind:
    """A server type. `name` is its SQL name; `read` are the types that a flow may read it as beside STRING, the first by default; `written`
    are the flow types that can be written to it."""

    name: str
    read: tuple[str, ...]
    written: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "bool": Kind("boolean", ("BOOLEAN",), ("BOOLEAN",)),
    "int2": Kind("smallint", ("SMALLINT", "TINYINT", "INT", "BIGINT", "DECIMAL"), _INTEGERS[:2]),
    "int4": Kind("integer", ("INT", "TINYINT", "SMALLINT", "BIGINT", "DECIMAL"), _INTEGERS[:3]),
    "int8": Kind("bigint", ("BIGINT", "TINYINT", "SMALLINT", "INT", "DECIMAL"), _INTEGERS),
    "numeric": Kind("numeric", ("DECIMAL",), ("DECIMAL", *_INTEGERS)),
    "float4": Kind("real", ("FLOAT", "DOUBLE"), ("FLOAT",)),
    "float8": Kind("double precision", ("DOUBLE",), ("FLOAT", "DOUBLE")),
    "date": Kind("date", ("DATE",), ("DATE",)),
    "timestamptz": Kind("timestamp with time zone", ("TIMESTAMP",), ("TIMESTAMP", "DATE")),
    "timestamp": Kind("timestamp without time zone", ("TIMESTAMP",), ("TIMESTAMP", "DATE")),
    "bytea": Kind("bytea", ("BINARY",), ("BINARY",)),
    "json": Kind("json", (), ("STRING", *_NESTED)),
    "jsonb": Kind("jsonb", (), ("STRING", *_NESTED)),
    "text": Kind("text", (), ("STRING", *_NESTED)),
    "money": Kind("money", (), ()),
}
"""by the name in the server's catalog. Any other type is read and written as STRING, in the server's text form"""
_OTHERS = Kind("", (), ("STRING",))
_BY_NAME = {kind.name: kind for kind in KINDS.values()}
_FINEST = 6
"""decimals of a second in the server"""
_OF_DAY = ("time", "timetz", "interval")


def read_as(base: str) -> tuple[str, ...]:
    """The types, beside STRING, that a flow may read a column of the type `base` as; the first by default."""
    return KINDS.get(base, _OTHERS).read


def takes(type_: Type, there: str) -> bool:
    """Whether a column of the SQL type `there` accepts values of the flow's type, except perhaps for some."""
    return "GENERATED ALWAYS" not in there and type_.name in _BY_NAME.get(there, _OTHERS).written


def changed(column: pa.Array, base: str, modifier: int) -> pa.Array | None:
    """The values that the server would change silently, in a column of the type `base` with the server's number `modifier` for its digits
    or its length; None if it changes none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.types
    if base == "numeric" and modifier >= 0:
        return _rounded(column, digits_of(modifier)[1])
    if base in ("timestamp", "timestamptz") and 0 <= modifier < _FINEST and kinds.is_timestamp(column.type):
        step = 10 ** (_FINEST - modifier)
        micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        return pc.not_equal(pc.multiply(pc.divide(micros, step), step), micros)
    if not kinds.is_string(column.type):
        return None
    if base in _OF_DAY:
        decimals = modifier if 0 <= modifier <= _FINEST else _FINEST
        return pc.match_substring_regex(column, rf"\.\d{{{decimals}}}\d*[1-9]")
    if base == "bpchar":
        return pc.ends_with(column, " ")
    if base == "varchar" and modifier >= 0:
        # the server refuses values that are too long, except blanks at the end, which it truncates
        most = modifier - 4
        return pc.and_(pc.greater(pc.utf8_length(column), most), pc.less_equal(pc.utf8_length(pc.utf8_rtrim(column, " ")), most))
    return None


def _rounded(column: pa.Array, scale: int) -> pa.Array | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.types
    if kinds.is_decimal(column.type) and column.type.scale > scale:
        kept = column.cast(pa.decimal256(76, max(scale, 0)), safe=False).cast(pa.decimal256(76, column.type.scale))
        cut = pc.not_equal(kept, column.cast(pa.decimal256(76, column.type.scale)))
        return cut if scale >= 0 else pa.array([None if value is None else value % 10**-scale != 0 for value in column.to_pylist()])
    if kinds.is_integer(column.type) and scale < 0:
        return pa.array([None if value is None else value % 10**-scale != 0 for value in column.to_pylist()], pa.bool_())
    return None


def digits_of(modifier: int) -> tuple[int, int]:
    """(precision, scale) of a numeric column, whose scale may be negative."""
    packed = modifier - 4
    scale = packed & 0x7FF
    return packed >> 16, scale - 0x800 if scale >= 0x400 else scale
