"""Decodes JSON lines by the parse contract. This module defines which records are valid and which become dead letters.

Normally msgspec decodes a piece of a block in one pass. A piece with an error is decoded again, around the line at which msgspec stopped or
some lines at a time: a bad record only delays its neighbours. `rows`, `structs` and `columns` agree on every input: all check by the types
that `json_types` makes of the Schema.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from scribengin.core.types import Schema, Type
from scribengin.formats.blocks import DamageBlock, LineBlock, count_lines, parts
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows, Structs
from scribengin.formats.json_types import Mending, MisfitError, has_plain_names, holds, row_type, struct_type, to_utc
from scribengin.formats.structs import StructForm, attribute, readers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow as pa

    from scribengin.formats.contract import Block


# Divides JSON lines into pieces, decodes each in one call, and checks that each line has exactly one record.


PIECE_BYTES = 256 * 1024
"""the bytes that are decoded at a time: few enough to stay in a core's cache, and to be decoded again if a record is bad"""
_HIGH = np.uint8(0xF0)
"""a mask that maps every digit to the code of 0"""
REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
"""the errors that msgspec raises because of the data"""


def pieces(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The data in pieces of whole lines, of about PIECE_BYTES, each with the number of lines before it. One empty piece for empty data."""
    if len(data) <= 2 * PIECE_BYTES:
        yield 0, data
        return
    start = first = 0
    while start < len(data):
        end = data.find(b"\n", min(start + PIECE_BYTES, len(data)) - 1) + 1 or len(data)
        piece = data[start:end]
        yield first, piece
        start, first = end, first + count_lines(piece)


def lines_of(piece: bytes) -> list[bytes]:
    """The lines, each without its line feed."""
    lines = piece.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def decode_whole(decoder: msgspec.json.Decoder[Any], data: bytes) -> list[Any] | int | None:
    """The records of `data` if it is valid and each line has exactly one; else the index of the line at which msgspec stopped, or None if
    that is unknown."""
    if not data.isascii() and not _is_utf8(data):  # msgspec does not check texts that it skips
        return None
    try:
        records = decoder.decode_lines(data)
    except REFUSED as error:
        return _stopped_at(str(error), data)
    return records if _one_a_line(data, len(records)) else None


_RECORD = re.compile(r" - at `(?:key` in `)?\$\[(\d+)\]")
_BYTE = re.compile(r"\(byte (\d+)\)\Z")


def _stopped_at(error: str, data: bytes) -> int | None:
    """The line at which msgspec stopped, from its message: the record's index (each line before it has one record), or the line of the
    byte. None if the message has neither."""
    if found := _RECORD.search(error):
        return int(found[1])
    if found := _BYTE.search(error):
        return data.count(b"\n", 0, int(found[1]))
    return None


def _is_utf8(data: bytes) -> bool:
    """True if the data is UTF-8. Arrow's check reads some 15 GB/s, `bytes.decode` 2.5 (and creates a text that is not needed)."""
    import pyarrow as pa

    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _one_a_line(data: bytes, records: int) -> bool:
    """True if `data`, known to be `records` JSON objects with white space between, has exactly one on each line.

    No object spans a line end between `}` and `{`, because inside an object there would be a comma. So if all inner line ends are between
    these, each line has one object or more, and the count shows that it is one.
    """
    if not data:
        return True
    if not data.startswith(b"{"):
        return False
    # the common case, by comparisons alone: finding the positions of line ends takes longer
    inner = between = 0
    for part in parts(data, 2):
        ends = part[1:-1] == ord("\n")
        inner += int(np.count_nonzero(ends))
        ends &= part[:-2] == ord("}")
        ends &= part[2:] == ord("{")
        between += int(np.count_nonzero(ends))
    if inner == between == records - 1:
        return True
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    ends = ends[:-1] if data.endswith(b"\n") else ends
    if len(ends) + 1 != records or not (octets[ends + 1] == ord("{")).all():
        return False
    before = octets[ends - 1]
    return bool((np.where(before == ord("\r"), octets[ends - 2], before) == ord("}")).all())


def long_times(data: bytes) -> bool:
    """True if `data` may contain a time of more than six decimals: `:`, two characters, `.`, six more, and a digit."""
    for part in parts(data, 10):
        # a point, and seven bytes later a digit: few other pairs have the same sum
        sums = part[10:] & _HIGH
        sums += part[3:-7]
        if (sums == ord(".") + ord("0")).any():
            digits = part[10:] - np.uint8(ord("0")) < 10
            if (digits & (part[3:-7] == ord(".")) & (part[:-10] == ord(":"))).any():
                return True
    return False


# The two shapes of decoded JSON records, dicts and Structs: some lines at once, or one line alone.


class RecordShape(Protocol):
    """The shape of decoded JSON records: dicts or Structs."""

    schema: Schema
    has_two_ways: bool
    """True if the careful way accepts more than the quick one"""

    def whole(self, data: bytes) -> list[Any] | int | None:
        """The records of `data`, one per line, by the quick way. If a line is not accepted, its index, or None if that is unknown."""

    def carefully(self, data: bytes) -> list[Any] | int | None:
        """The records of `data`, like `whole`, but decoded by the careful way."""

    def line(self, line: bytes) -> Any:
        """The record of one line. Raises MisfitError and the errors of msgspec."""


class Dicts:
    """Decodes to dicts with exactly the columns of the schema."""

    def __init__(self, schema: Schema, *, truncate: bool = False) -> None:
        self.schema = schema
        self._decoder = msgspec.json.Decoder(row_type(schema))
        self._times = [field.name for field in schema.fields if field.type.name == "TIMESTAMP"]
        self._mends = _mends(schema, Mending())
        careful = Mending(careful=True, truncate=truncate)
        self._careful = msgspec.json.Decoder(row_type(schema, careful=True))
        self._careful_mends = _mends(schema, careful, times=True)
        self._mend_row = careful.object(schema.fields)
        self._has_times = _hold(schema, "TIMESTAMP")
        self.has_two_ways = _hold(schema, "TIMESTAMP", "FLOAT", "DOUBLE")

    def whole(self, data: bytes) -> list[dict[str, Any]] | int | None:
        """See `RecordShape.whole`."""
        rows = decode_whole(self._decoder, data)
        if isinstance(rows, list) and not (self._has_times and long_times(data)):
            return self._mended(rows, self._times, self._mends)
        return self.carefully(data) if isinstance(rows, list) else rows

    def carefully(self, data: bytes) -> list[dict[str, Any]] | int | None:
        """See `RecordShape.carefully`."""
        rows = decode_whole(self._careful, data)
        return self._mended(rows, [], self._careful_mends) if isinstance(rows, list) else rows

    def line(self, line: bytes) -> dict[str, Any]:
        """The row of one line."""
        return self._mend_row(self._careful.decode(line))

    def _mended(self, rows: list[dict[str, Any]], times: list[str], mends: list[tuple[str, Any]]) -> list[dict[str, Any]] | int:
        width = len(self.schema.fields)
        if sum(map(len, rows)) != width * len(rows):
            for row in rows:
                if len(row) != width:
                    for name in self.schema.names:
                        row.setdefault(name, None)
        index = 0
        try:
            for name in times:
                for row in [row for row in rows if (value := row[name]) is not None and value.tzinfo is not dt.UTC]:
                    row[name] = to_utc(row[name])
            for name, mend in mends:
                for index, row in enumerate(rows):  # noqa: B007 (where it stops)
                    row[name] = mend(row[name])
        except MisfitError:
            return index
        return rows


class FlatStructs:
    """Decodes to Structs of a schema for whose values msgspec needs no correction, except for timestamps."""

    def __init__(self, schema: Schema, *, truncate: bool = False) -> None:
        self.schema = schema
        self.form = StructForm(schema)
        self._decoder = msgspec.json.Decoder(self.form.type)
        self._careful = msgspec.json.Decoder(struct_type(schema, texts=frozenset(), careful=True))
        mends = _mends(schema, Mending(careful=True, truncate=truncate), times=True)
        self._mends = [(attribute(schema, name), name, mend) for name, mend in mends]
        self._has_times = _hold(schema, "TIMESTAMP")
        self.has_two_ways = _hold(schema, "TIMESTAMP", "FLOAT", "DOUBLE")
        times = [attribute(schema, field.name) for field in schema.fields if field.type.name == "TIMESTAMP"]
        zones = ", ".join(f"{{struct.{field}.tzinfo for struct in structs}}" for field in times)
        some = ", ".join(f"{{struct.{field}.tzinfo for struct in structs if struct.{field} is not None}}" for field in times)
        self._times = times
        self._zones: Callable[[list[Any]], set[Any]] = eval(f"lambda structs: set().union({zones})")
        self._zones_of_some: Callable[[list[Any]], set[Any]] = eval(f"lambda structs: set().union({some})")

    def whole(self, data: bytes) -> list[Any] | int | None:
        """See `RecordShape.whole`."""
        structs = decode_whole(self._decoder, data)
        if isinstance(structs, list) and not (self._has_times and long_times(data)):
            return structs if self._all_utc(structs) else self._in_utc(structs)
        return self.carefully(data) if isinstance(structs, list) else structs

    def carefully(self, data: bytes) -> list[Any] | int | None:
        """See `RecordShape.carefully`."""
        structs = decode_whole(self._careful, data)
        if not isinstance(structs, list):
            return structs
        index = 0
        try:
            for index, struct in enumerate(structs):  # noqa: B007 (where it stops)
                self._mend(struct)
        except MisfitError:
            return index
        return structs

    def line(self, line: bytes) -> Any:
        """The Struct of one line."""
        struct = self._careful.decode(line)
        self._mend(struct)
        return struct

    def _all_utc(self, structs: list[Any]) -> bool:
        try:
            return self._zones(structs) <= _UTC
        except AttributeError:  # a null
            return self._zones_of_some(structs) <= _UTC

    def _in_utc(self, structs: list[Any]) -> list[Any] | int:
        index = 0
        try:
            for index, struct in enumerate(structs):  # noqa: B007 (where it stops)
                for field in self._times:
                    value = getattr(struct, field)
                    if value is not None and value.tzinfo is not dt.UTC:
                        setattr(struct, field, to_utc(value))
        except MisfitError:
            return index
        return structs

    def _mend(self, struct: Any) -> None:
        for field, column, mend in self._mends:
            try:
                setattr(struct, field, mend(getattr(struct, field)))
            except MisfitError as misfit:
                misfit.path = (f".{column}", *misfit.path)
                raise


def _hold(schema: Schema, *names: str) -> bool:
    return any(holds(field.type, *names) for field in schema.fields)


def _mends(schema: Schema, mending: Mending, *, times: bool = False) -> list[tuple[str, Callable[[Any], Any]]]:
    """(column, the correction of its values); TIMESTAMP columns only with `times`."""
    fields = [field for field in schema.fields if times or field.type.name != "TIMESTAMP"]
    return [(field.name, mend) for field in fields if (mend := mending.field(field)) is not None]


_UTC = frozenset({dt.UTC})


# Fast decoding of flat, valid JSON records to columns: Structs, and Arrow's own parser for timestamps of the common form.


class QuickColumns:
    """Decodes flat, valid records to columns: Structs instead of dicts, and Arrow's own parser for timestamps of the common form. If it is
    uncertain it returns None, and the slow path decodes the data."""

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
        """The records as one record batch, or None."""
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
    """The timestamps of the texts, if all that are not null end with Z and have up to six decimals: Arrow reads those like msgspec, except
    for the year 0. None if a text has another form, or is not a timestamp."""
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
    """The timestamps of the texts; msgspec reads those that are not of the common form. None if a text is not a timestamp, or must be read
    by `instant`. `truncate`: times are cut to microseconds."""
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


# Converts msgspec's errors to messages of dead letters: the field, the found and the expected value.


_AT = re.compile(r"(.*?)(?: - at (`key` in )?`(.*)`)?\Z", re.DOTALL)
_GOT = re.compile(r"Expected `.*`, got `(.*)`\Z")
_LACKS = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)


def invalid(schema: Schema, ordinal: int, error: str) -> Bad:
    """The Bad of a record that msgspec rejected with `error`."""
    what, key, path = _AT.match(error).groups()  # type: ignore[union-attr]
    path = (path or "").removeprefix("$")
    if lacks := _LACKS.match(what):
        return Bad(ordinal, "missing", misfit_message(schema, f"{path}.{lacks[1]}", "null"))
    if got := _GOT.match(what):
        found = got[1]
        if not path:
            return Bad(ordinal, "wrong-type", f"found {_article(found)}, expected an object")
        reason = "missing" if found == "null" else "wrong-type"
        return Bad(ordinal, reason, misfit_message(schema, path, "a key of the wrong type" if key else _article(found)))
    if "out of range" in what or "<=" in what or ">=" in what:
        return Bad(ordinal, "out-of-range", misfit_message(schema, path, "a number out of range"))
    return Bad(ordinal, "invalid-value", misfit_message(schema, path, what[0].lower() + what[1:]))


def malformed(ordinal: int, error: str) -> Bad:
    """The Bad of a line that is not a JSON object."""
    error = error.removeprefix("JSON is malformed: ")
    plain = "truncated JSON (or an unpaired UTF-16 surrogate)" if error == "Input data was truncated" else error
    return Bad(ordinal, "malformed", f"not a JSON object: {plain}")


def misfit_message(schema: Schema, path: str, found: str) -> str:
    """The message for a value found at `.a.b[0]`, with the type that the schema expects there."""
    asked = _asked(schema, path)
    if found == "null":
        return f'field "{path.lstrip(".")}" is missing or null; expected {asked} NOT NULL'
    return f'field "{path.lstrip(".")}": found {found}' + (f"; expected {asked}" if asked else "")


def _asked(schema: Schema, path: str) -> str:
    """The type that the schema gives for `.a.b[0]`; empty if the schema does not have the path."""
    for field in schema.fields:
        if path == f".{field.name}" or path.startswith((f".{field.name}.", f".{field.name}[")):
            return _inside(field.type, path[1 + len(field.name) :]) or str(field.type)
    return ""


def _inside(type_: Type, path: str) -> str:
    if not path:
        return str(type_)
    if path.startswith("[") and type_.parts:
        return _inside(type_.parts[-1], path[path.find("]") + 1 :])
    for field in type_.fields:
        if path == f".{field.name}" or path.startswith((f".{field.name}.", f".{field.name}[")):
            return _inside(field.type, path[1 + len(field.name) :])
    return ""


def _article(kind: str) -> str:
    named = {"str": "a string", "int": "an integer", "float": "a number with decimals or an exponent", "bool": "true or false"}
    return named.get(kind, "null" if kind == "null" else f"an {kind}" if kind[0] in "aeio" else f"a {kind}")


_LINES = 64
"""the number of lines that are decoded together if a piece failed at an unknown line, or has many bad lines"""
_BAD_LINES = 8
"""bad lines of a piece around which the other lines are decoded in one pass"""
_BLANK = b" \t\r"
_SEVERAL = re.compile(rb"\}\s*\{")


class JsonDecoder:
    """Decodes `LineBlock`s. Build one per task; raises ValueError if JSON cannot represent a column of the Schema."""

    def __init__(self, schema: Schema, texts: Collection[str] = (), *, truncate: bool = False) -> None:
        """`texts` are STRING columns that keep a value of any kind as its JSON text. `truncate`: a TIMESTAMP is cut to six decimals."""
        self.schema = schema
        read = Schema(tuple(replace(field, type=Type("RAW")) if field.name in texts else field for field in schema.fields))
        self._dicts = Dicts(read, truncate=truncate)
        mended = any(Mending().field(field) is not None for field in read.fields if field.type.name != "TIMESTAMP")
        flat = not mended and has_plain_names(schema)
        self._flat = FlatStructs(schema, truncate=truncate) if flat else None
        self._quick = QuickColumns(schema, truncate=truncate) if flat else None
        self.structs = self._structs if flat else None

    def rows(self, block: Block) -> DecodedRows:
        """The records as dicts with exactly the columns of the schema."""
        return DecodedRows(*_decoded(self._dicts, block))

    def _structs(self, block: Block) -> Structs:
        """The records of `rows`, as Structs."""
        assert self._flat is not None
        return Structs(self._flat.form, *_decoded(self._flat, block))

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        if self._flat is None or self._quick is None or not isinstance(block, LineBlock):
            return self._as_columns(self.rows(block))
        import pyarrow as pa

        batches: list[pa.RecordBatch] = []
        parts: list[Decoded] = []
        for first, piece in pieces(block.data):
            batch = self._quick.decode(piece)
            if batch is None:
                parts.append(_piece(self._flat, first, piece))
                batch = self._flat.form.batch(parts[-1][0])
            else:
                parts.append(([], range(first, first + batch.num_rows), [], 0))
            batches.append(batch)
        _, ordinals, bad, skipped = _joined(parts, 0)
        block.has_lines(len(ordinals) + len(bad) + skipped)
        return DecodedColumns(batches[0] if len(batches) == 1 else pa.concat_batches(batches), ordinals, bad, skipped)

    def decode_values(self, values: Sequence[bytes | str | None]) -> DecodedRows:
        """One record per value, for a `parse` step; the ordinals are the values' indexes. A null gives nulls, a blank is skipped."""
        texts = [b"{}" if v is None else v.encode("utf-8", "surrogatepass") if isinstance(v, str) else bytes(v) for v in values]
        # In JSON a carriage return is equivalent to a line feed: white space between values, invalid in a text.
        return DecodedRows(*_some_at_a_time(self._dicts, [text.replace(b"\n", b"\r") for text in texts], 0))

    def _as_columns(self, decoded: DecodedRows) -> DecodedColumns:
        import pyarrow as pa

        from scribengin.core.types import arrow_schema

        schema = arrow_schema(self.schema)
        arrays = [pa.array([row[field.name] for row in decoded.rows], field.type) for field in schema]
        return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=schema), decoded.ordinals, decoded.bad, decoded.skipped)


Decoded = tuple[list[Any], "Sequence[int]", list[Bad], int]
"""records (empty if they are columns already), their ordinals, bad records, number of blank lines"""


def _decoded(shape: RecordShape, block: Block) -> Decoded:
    """Decode a block, piece by piece."""
    if isinstance(block, DamageBlock):
        return [], [], block.bad(), 0
    assert isinstance(block, LineBlock)
    decoded = _joined([_piece(shape, first, piece) for first, piece in pieces(block.data)], 0)
    _, ordinals, bad, skipped = decoded
    block.has_lines(len(ordinals) + len(bad) + skipped)
    return decoded


def _joined(parts: list[Decoded], first: int) -> Decoded:
    """Join parts that follow each other; `first` is the ordinal of their first line."""
    if len(parts) == 1:
        return parts[0]
    records = [record for part in parts for record in part[0]]
    bad, skipped = [each for part in parts for each in part[2]], sum(part[3] for part in parts)
    if bad or skipped:
        return records, [ordinal for part in parts for ordinal in part[1]], bad, skipped
    return records, range(first, first + sum(len(part[1]) for part in parts)), bad, skipped


def _piece(shape: RecordShape, first: int, piece: bytes) -> Decoded:
    """Decode whole lines, the first of which has the ordinal `first`."""
    records = shape.whole(piece)
    if not isinstance(records, list):
        lines = lines_of(piece)
        records = _carefully(shape, piece, lines, records)
        if not isinstance(records, list):
            return _around_the_bad(shape, lines, first, records)
    return records, range(first, first + len(records)), [], 0


def _carefully(shape: RecordShape, data: bytes, lines: Sequence[bytes], stopped: int | None) -> list[Any] | int | None:
    """Decode by the careful way. If it does not accept the line at which the quick one stopped either, the data need not be read again, and
    `stopped` is returned."""
    if not shape.has_two_ways:
        return stopped
    if stopped is not None and stopped < len(lines):
        try:
            shape.line(lines[stopped])
        except REFUSED:
            return stopped
    return shape.carefully(data)


def _around_the_bad(shape: RecordShape, lines: Sequence[bytes], first: int, bad: int | None) -> Decoded:
    """Decode the lines before and after line `bad` in one pass each, and that line alone; with many bad lines, some lines at a time."""
    parts: list[Decoded] = []
    start = 0
    while bad is not None and start + bad < len(lines) and len(parts) < 2 * _BAD_LINES:
        before = _in_one_go(shape, lines[start : start + bad], first + start)
        parts.append(before if isinstance(before, tuple) else _some_at_a_time(shape, lines[start : start + bad], first + start))
        parts.append(_alone(shape, lines[start + bad], first + start + bad))
        start += bad + 1
        rest = _in_one_go(shape, lines[start:], first + start)
        if isinstance(rest, tuple):
            return _joined([*parts, rest], first)
        bad = rest
    return _joined([*parts, _some_at_a_time(shape, lines[start:], first + start)], first)


def _some_at_a_time(shape: RecordShape, lines: Sequence[bytes], first: int) -> Decoded:
    """Decode some lines together, and if they fail, line by line; the first line has the ordinal `first`."""
    parts: list[Decoded] = [([], range(first, first), [], 0)]
    for start in range(0, len(lines), _LINES):
        some = lines[start : start + _LINES]
        together = _in_one_go(shape, some, first + start)
        if isinstance(together, tuple):
            parts.append(together)
        else:
            parts += [_alone(shape, line, ordinal) for ordinal, line in enumerate(some, first + start)]
    return _joined(parts, first)


def _in_one_go(shape: RecordShape, lines: Sequence[bytes], first: int) -> Decoded | int | None:
    """Decode all lines together, each of which must have one record; if that fails, see `RecordShape.whole`."""
    data = b"\n".join(lines)
    records = shape.whole(data)
    if not isinstance(records, list):
        records = _carefully(shape, data, lines, records)
    if not isinstance(records, list):
        return records
    return (records, range(first, first + len(lines)), [], 0) if len(records) == len(lines) else None


def _alone(shape: RecordShape, line: bytes, ordinal: int) -> Decoded:
    if not line.strip(_BLANK):
        return [], [], [], 1
    try:
        line.decode()
        return [shape.line(line)], [ordinal], [], 0
    except REFUSED as error:
        bad = _bad(shape.schema, ordinal, error)
        if bad.reason == "malformed" and _SEVERAL.search(line):
            bad = Bad(ordinal, bad.reason, f"{bad.message}; to read several objects on one line, set json: {{shape: concatenated}}")
        return [], [], [bad], 0


def _bad(schema: Schema, ordinal: int, error: Exception) -> Bad:
    match error:
        case MisfitError():
            return Bad(ordinal, error.reason, misfit_message(schema, "".join(error.path), error.found))
        case UnicodeDecodeError():
            return Bad(ordinal, "invalid-utf8", f"byte {error.start} of the line is not UTF-8: {error.reason}")
        case msgspec.ValidationError():
            return invalid(schema, ordinal, str(error))
        case RecursionError():
            return Bad(ordinal, "malformed", "nested too deeply")
    return malformed(ordinal, str(error))
