"""Fast decoding of flat, valid JSON records to columns: Structs, and Arrow's own parser for timestamps of the common form."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.formats.json_pieces import REFUSED, decode_whole
from scribengin.formats.json_types import struct_type, to_utc
from scribengin.formats.structs import readers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from scribengin.core.types import Schema


class QuickColumns:
    """Decodes flat, valid records to columns: a Struct without dicts, and Arrow's own parser for timestamps of the
    common form. Returns None if it is uncertain; then the slow path decides."""

    def __init__(self, schema: Schema, *, truncate: bool = False) -> None:
        from scribengin.core.types import arrow_schema

        self._schema = arrow_schema(schema)
        times = frozenset(field.name for field in schema.fields if field.type.name == "TIMESTAMP")
        self._decoder = msgspec.json.Decoder(struct_type(schema, texts=times))
        self._arrays: list[Callable[[list[Any]], pa.Array | None]] = [
            _times_maker(truncate=truncate) if field.name in times else _maker(arrow.type)
            for field, arrow in zip(schema.fields, self._schema, strict=True)
        ]
        self._columns = readers_of(schema)

    def decode(self, data: bytes) -> pa.RecordBatch | None:
        """The block's batch, or None."""
        import pyarrow as pa

        records = decode_whole(self._decoder, data)
        if not isinstance(records, list):
            return None
        arrays = []
        for column, array in zip(self._columns, self._arrays, strict=True):
            made = array(column(records))
            if made is None:
                return None
            arrays.append(made)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _maker(type_: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    import pyarrow as pa

    return lambda values: pa.array(values, type_)


def common_times(texts: pa.Array) -> pa.Array | None:
    """Timestamps of the texts, where all that are not null end with Z and have up to six decimals: those Arrow reads the same way as
    msgspec, the year 0 aside. None where any is of another form, or no timestamp."""
    import pyarrow as pa
    import pyarrow.compute as pc

    type_ = pa.timestamp("us", tz="UTC")
    lengths = pc.min_max(pc.binary_length(texts)).as_py()
    if lengths["min"] is None:
        return pa.nulls(len(texts), type_)
    if lengths["min"] < _SHORTEST or lengths["max"] > _LONGEST or not pc.all(pc.ends_with(texts, "Z")).as_py():
        return None
    try:
        times = pc.cast(texts, type_)
    except pa.ArrowInvalid:
        return None
    return times if pc.min(times).value >= _YEAR_1 else None


def _times_maker(*, truncate: bool) -> Callable[[list[str | None]], pa.Array | None]:
    import pyarrow as pa

    return lambda values: times_of(pa.array(values, pa.string()), truncate=truncate)


def times_of(texts: pa.Array, *, truncate: bool) -> pa.Array | None:
    """Timestamps of the texts; what is not of the common form msgspec reads. None where any is no timestamp, or must be read one by one
    (`instant`). `truncate`: what is finer than microseconds is cut off."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = common_times(texts)
    if times is not None:
        return times
    if truncate:
        texts = pc.replace_substring_regex(texts, r"(:\d\d\.\d{6})\d+", r"\1")
        if (times := common_times(texts)) is not None:
            return times
    elif pc.any(pc.match_substring_regex(texts, r"\.\d{6}\d*[1-9]")).as_py():
        return None
    try:
        read = _TIMES.decode(msgspec.json.encode(texts.to_pylist()))
        return pa.array([None if time is None else to_utc(time) for time in read], pa.timestamp("us", tz="UTC"))
    except REFUSED:
        return None


_TIMES = msgspec.json.Decoder(list[dt.datetime | None])
_SHORTEST = len("2026-01-01T00:00:00Z")
_LONGEST = len("2026-01-01T00:00:00.000000Z")
_YEAR_1 = -62135596800 * 10**6
