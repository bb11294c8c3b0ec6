"""JSON lines by the parse contract: the reference of what a record is, and what is dead.

One pass of msgspec over a piece of a block is the normal way. A piece in which anything is wrong is taken again some lines at a
time, and only those that fail line by line: a bad record costs its neighbours nothing but a little time. `rows` and `columns` agree
on every input: both check by the types that `json_types` makes of the Schema.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scribengin.formats.blocks import DamageBlock, LineBlock
from scribengin.formats.contract import Bad, Columns, Rows
from scribengin.formats.json_types import MisfitError, field_mender, mend_object, row_type, struct_type, to_utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from scribengin.core.types import Schema, Type
    from scribengin.formats.contract import Block

_PIECE_BYTES = 256 * 1024
"""how much of a block is decoded at a time: small enough to stay in a core's cache, and to be taken again when a record is bad"""
_LINES = 64
"""lines that are tried together after their piece failed"""
_BLANK = b" \t\r"
_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*\Z')
"""names that a Struct's field can have"""
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
_AT = re.compile(r"(.*?)(?: - at (`key` in )?`(.*)`)?\Z", re.DOTALL)
_GOT = re.compile(r"Expected `.*`, got `(.*)`\Z")
_LACKS = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)


class JsonDecoder:
    """Decodes `LineBlock`s. Build one per task; the Schema's columns must be such that JSON can hold them (ValueError)."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._rows = msgspec.json.Decoder(row_type(schema))
        self._width = len(schema.fields)
        self._times = [field.name for field in schema.fields if field.type.name == "TIMESTAMP"]
        others = [field for field in schema.fields if field.type.name != "TIMESTAMP"]
        self._mends = [(field.name, mend) for field in others if (mend := field_mender(field)) is not None]
        self._mend_row = mend_object(schema.fields)
        plain = not self._mends and all(_PLAIN_NAME.match(name) for name in schema.names)
        self._quick = _QuickColumns(schema) if plain else None

    def rows(self, block: Block) -> Rows:
        """Dicts with every column of the schema and no other."""
        if isinstance(block, DamageBlock):
            return Rows([], [], block.bad())
        assert isinstance(block, LineBlock)
        parts = [self._piece_rows(first, piece) for first, piece in _pieces(block.data)]
        return parts[0] if len(parts) == 1 else Rows([row for part in parts for row in part.rows], *_together(parts))

    def columns(self, block: Block) -> Columns:
        """The same records as `rows` gives, as one Arrow batch."""
        if self._quick is None or not isinstance(block, LineBlock):
            return self._as_columns(self.rows(block))
        import pyarrow as pa

        parts = [self._piece_columns(first, piece) for first, piece in _pieces(block.data)]
        return parts[0] if len(parts) == 1 else Columns(pa.concat_batches([part.batch for part in parts]), *_together(parts))

    def _piece_rows(self, first: int, piece: bytes) -> Rows:
        """The rows of whole lines, of which the first has the ordinal `first`."""
        rows = self._whole(piece)
        if rows is not None:
            return Rows(rows, range(first, first + len(rows)))
        return self._lines(_split(piece), first)

    def _piece_columns(self, first: int, piece: bytes) -> Columns:
        assert self._quick is not None
        batch = self._quick.decode(piece)
        if batch is not None:
            return Columns(batch, range(first, first + batch.num_rows))
        lines = _split(piece)
        decoded = self._lines(lines, first)
        batch = self._quick.decode(b"\n".join([lines[ordinal - first] for ordinal in decoded.ordinals]))
        if batch is not None:
            return Columns(batch, decoded.ordinals, decoded.bad, decoded.skipped)
        return self._as_columns(decoded)

    def decode_values(self, values: Sequence[bytes | str | None]) -> Rows:
        """One record a value, for a `parse` step; the ordinals are the values' indexes. A null gives nulls, a blank is skipped."""
        texts = [b"{}" if v is None else v.encode("utf-8", "surrogatepass") if isinstance(v, str) else bytes(v) for v in values]
        # A carriage return is to JSON what a line end is: white space between, refused inside of a text.
        return self._lines([text.replace(b"\n", b"\r") for text in texts])

    def _as_columns(self, decoded: Rows) -> Columns:
        import pyarrow as pa

        from scribengin.core.types import arrow_schema

        schema = arrow_schema(self.schema)
        arrays = [pa.array([row[field.name] for row in decoded.rows], field.type) for field in schema]
        return Columns(pa.RecordBatch.from_arrays(arrays, schema=schema), decoded.ordinals, decoded.bad, decoded.skipped)

    def _whole(self, data: bytes) -> list[dict[str, Any]] | None:
        """The rows of `data`, one a line, or None if anything at all is wrong or odd."""
        rows: list[dict[str, Any]] | None = _decode_whole(self._rows, data)
        if rows is None:
            return None
        width = self._width
        if sum(map(len, rows)) != width * len(rows):
            for row in rows:
                if len(row) != width:
                    for name in self.schema.names:
                        row.setdefault(name, None)
        try:
            for name in self._times:
                for row in [row for row in rows if (value := row[name]) is not None and value.tzinfo is not dt.UTC]:
                    row[name] = to_utc(row[name])
            for name, mend in self._mends:
                for row in rows:
                    row[name] = mend(row[name])
        except MisfitError:
            return None
        return rows

    def _lines(self, lines: Sequence[bytes], first: int = 0) -> Rows:
        """Some at a time, and where these fail line by line; the first line has the ordinal `first`."""
        found = Rows([], [])
        ordinals: list[int] = []
        for start in range(0, len(lines), _LINES):
            some = lines[start : start + _LINES]
            rows = self._whole(b"\n".join(some))
            if rows is not None and len(rows) == len(some):
                found.rows += rows
                ordinals += range(first + start, first + start + len(some))
                continue
            for ordinal, line in enumerate(some, first + start):
                if not line.strip(_BLANK):
                    found.skipped += 1
                    continue
                row = self._line(ordinal, line)
                if isinstance(row, Bad):
                    found.bad.append(row)
                else:
                    found.rows.append(row)
                    ordinals.append(ordinal)
        found.ordinals = ordinals
        return found

    def _line(self, ordinal: int, line: bytes) -> dict[str, Any] | Bad:
        try:
            line.decode()
            return self._mend_row(self._rows.decode(line))
        except MisfitError as misfit:
            path = "".join(misfit.path)
            return Bad(ordinal, misfit.reason, self._message(path, misfit.found))
        except UnicodeDecodeError as error:
            return Bad(ordinal, "invalid-utf8", f"byte {error.start} of the line is not UTF-8: {error.reason}")
        except msgspec.ValidationError as error:
            return self._invalid(ordinal, str(error))
        except RecursionError:
            return Bad(ordinal, "malformed", "nested too deeply")
        except _REFUSED as error:
            return Bad(ordinal, "malformed", f"not a JSON object: {_plain(str(error))}")

    def _invalid(self, ordinal: int, error: str) -> Bad:
        """msgspec's words in ours: which field, what was found, what is asked."""
        what, key, path = _AT.match(error).groups()  # type: ignore[union-attr]
        path = (path or "").removeprefix("$")
        if lacks := _LACKS.match(what):
            return Bad(ordinal, "missing", self._message(f"{path}.{lacks[1]}", "null"))
        if got := _GOT.match(what):
            found = got[1]
            if not path:
                return Bad(ordinal, "wrong-type", f"found {_article(found)}, asked is an object")
            reason = "missing" if found == "null" else "wrong-type"
            return Bad(ordinal, reason, self._message(path, "a key that does not fit" if key else _article(found)))
        if "out of range" in what or "<=" in what or ">=" in what:
            return Bad(ordinal, "out-of-range", self._message(path, "a number out of range"))
        return Bad(ordinal, "invalid-value", self._message(path, what[0].lower() + what[1:]))

    def _message(self, path: str, found: str) -> str:
        asked = _asked(self.schema, path)
        if found == "null":
            return f'field "{path.lstrip(".")}" is missing or null; asked is {asked} NOT NULL'
        return f'field "{path.lstrip(".")}": found {found}' + (f"; asked is {asked}" if asked else "")


class _QuickColumns:
    """Columns of flat records where nothing is wrong: a Struct without dicts, and Arrow's own parser for timestamps of the
    common form. Gives None where it is not sure, and the long way decides."""

    def __init__(self, schema: Schema) -> None:
        from scribengin.core.types import arrow_schema

        self._schema = arrow_schema(schema)
        times = frozenset(field.name for field in schema.fields if field.type.name == "TIMESTAMP")
        self._decoder = msgspec.json.Decoder(struct_type(schema, texts=times))
        self._arrays: list[Callable[[list[Any]], pa.Array | None]] = [
            _times if field.name in times else _maker(arrow.type) for field, arrow in zip(schema.fields, self._schema, strict=True)
        ]
        # One comprehension per column, compiled: an attribute by its literal name is read twice as fast as by getattr.
        self._columns: list[Callable[[list[Any]], list[Any]]] = [
            eval(f"lambda records: [record.f{index} for record in records]") for index in range(len(schema.fields))
        ]

    def decode(self, data: bytes) -> pa.RecordBatch | None:
        """The block's batch, or None."""
        import pyarrow as pa

        records = _decode_whole(self._decoder, data)
        if records is None:
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


def _times(values: list[str | None]) -> pa.Array | None:
    """Timestamps. Of texts that end with Z and have up to six decimals Arrow reads the same ones the same way as msgspec, the
    year 0 aside; texts of other forms msgspec reads. None where any is no timestamp."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.array(values, pa.string())
    lengths = pc.min_max(pc.binary_length(texts)).as_py()
    type_ = pa.timestamp("us", tz="UTC")
    if lengths["min"] is None:
        return pa.nulls(len(values), type_)
    if lengths["min"] >= _SHORTEST and lengths["max"] <= _LONGEST and pc.all(pc.ends_with(texts, "Z")).as_py():
        try:
            times = pc.cast(texts, type_)
        except pa.ArrowInvalid:
            return None
        return times if pc.min(times).value >= _YEAR_1 else None
    try:
        read = _TIMES.decode(msgspec.json.encode(values))
        return pa.array([None if time is None else to_utc(time) for time in read], type_)
    except _REFUSED:
        return None


_TIMES = msgspec.json.Decoder(list[dt.datetime | None])
_SHORTEST = len("2026-01-01T00:00:00Z")
_LONGEST = len("2026-01-01T00:00:00.000000Z")
_YEAR_1 = -62135596800 * 10**6


def _pieces(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Whole lines of about _PIECE_BYTES, each with the number of lines before it. One piece of no bytes for no bytes."""
    if len(data) <= _PIECE_BYTES:
        yield 0, data
        return
    start = first = 0
    while start < len(data):
        end = data.find(b"\n", min(start + _PIECE_BYTES, len(data)) - 1) + 1 or len(data)
        piece = data[start:end]
        yield first, piece
        start, first = end, first + piece.count(b"\n")


def _split(piece: bytes) -> list[bytes]:
    lines = piece.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _together(parts: Sequence[Rows | Columns]) -> tuple[Sequence[int], list[Bad], int]:
    """Ordinals, bad records and blank lines of all parts."""
    bad, skipped = [each for part in parts for each in part.bad], sum(part.skipped for part in parts)
    total = sum(len(part.ordinals) for part in parts)
    if not bad and not skipped:
        return range(total), bad, skipped
    return [ordinal for part in parts for ordinal in part.ordinals], bad, skipped


def _is_utf8(data: bytes) -> bool:
    """Arrow's check reads some 15 GB/s, `bytes.decode` 2.5 (and makes a text that nobody wants)."""
    import pyarrow as pa

    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decode_whole(decoder: msgspec.json.Decoder[Any], data: bytes) -> list[Any] | None:
    """The records of `data` if all is well and each line holds exactly one; else None."""
    if not data.isascii() and not _is_utf8(data):  # msgspec does not look into what it drops
        return None
    try:
        records = decoder.decode_lines(data)
    except _REFUSED:
        return None
    return records if _one_a_line(data, len(records)) else None


def _one_a_line(data: bytes, records: int) -> bool:
    """True if `data`, known to be `records` JSON objects with white space between, has exactly one on each line.

    No object goes over a line end that stands between `}` and `{`, for inside of an object a comma would have to stand there;
    so where all inner line ends do, each line has one object or more, and the count says that it is one.
    """
    if not data:
        return True
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    inner = ends[:-1] if data.endswith(b"\n") else ends
    if len(inner) + 1 != records or not data.startswith(b"{") or not (octets[inner + 1] == ord("{")).all():
        return False
    before = octets[inner - 1]
    if (before == ord("}")).all():
        return True
    return bool((np.where(before == ord("\r"), octets[inner - 2], before) == ord("}")).all())


def _asked(schema: Schema, path: str) -> str:
    """The type that the schema gives for `.a.b[0]`, with its NOT NULL; empty where the path is no path of it."""
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


def _plain(error: str) -> str:
    error = error.removeprefix("JSON is malformed: ")
    return "the line ends too early, or has half a surrogate pair" if error == "Input data was truncated" else error
