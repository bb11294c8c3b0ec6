"""JSON lines by the parse contract: the reference of what a record is, and what is dead.

One pass of msgspec over a piece of a block is the normal way. A piece in which anything is wrong is taken again around the line at
which msgspec stopped, or else some lines at a time: a bad record costs its neighbours nothing but a little time. `rows`, `structs` and
`columns` agree on every input: all check by the types that `json_types` makes of the Schema.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.types import Schema, Type
from scribengin.formats.blocks import DamageBlock, LineBlock
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows, Structs
from scribengin.formats.json_columns import QuickColumns
from scribengin.formats.json_pieces import REFUSED, lines_of, pieces
from scribengin.formats.json_shapes import Dicts, FlatStructs
from scribengin.formats.json_types import Mending, MisfitError, has_plain_names
from scribengin.formats.json_words import invalid, malformed, misfit_message

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scribengin.formats.contract import Block
    from scribengin.formats.json_shapes import RecordShape

_LINES = 64
"""lines that are tried together where a piece has failed for a reason without a place, or has many bad lines"""
_BAD_LINES = 8
"""bad lines of a piece around which the others are taken in one go"""
_BLANK = b" \t\r"
_SEVERAL = re.compile(rb"\}\s*\{")


class JsonDecoder:
    """Decodes `LineBlock`s. Build one per task; the Schema's columns must be such that JSON can hold them (ValueError)."""

    def __init__(self, schema: Schema, texts: Collection[str] = (), *, truncate: bool = False) -> None:
        """`texts` are STRING columns that keep a value of any kind as its JSON text. `truncate`: what a TIMESTAMP has behind its six
        decimals is cut off."""
        self.schema = schema
        read = Schema(tuple(replace(field, type=Type("RAW")) if field.name in texts else field for field in schema.fields))
        self._dicts = Dicts(read, truncate=truncate)
        mended = any(Mending().field(field) is not None for field in read.fields if field.type.name != "TIMESTAMP")
        flat = not mended and has_plain_names(schema)
        self._flat = FlatStructs(schema, truncate=truncate) if flat else None
        self._quick = QuickColumns(schema, truncate=truncate) if flat else None
        self.structs = self._structs if flat else None

    def rows(self, block: Block) -> DecodedRows:
        """Dicts with every column of the schema and no other."""
        return DecodedRows(*_decoded(self._dicts, block))

    def _structs(self, block: Block) -> Structs:
        """The same records as `rows` gives, as Structs."""
        assert self._flat is not None
        return Structs(self._flat.form, *_decoded(self._flat, block))

    def columns(self, block: Block) -> DecodedColumns:
        """The same records as `rows` gives, as one Arrow batch."""
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
        """One record a value, for a `parse` step; the ordinals are the values' indexes. A null gives nulls, a blank is skipped."""
        texts = [b"{}" if v is None else v.encode("utf-8", "surrogatepass") if isinstance(v, str) else bytes(v) for v in values]
        # A carriage return is to JSON what a line end is: white space between, refused inside of a text.
        return DecodedRows(*_some_at_a_time(self._dicts, [text.replace(b"\n", b"\r") for text in texts], 0))

    def _as_columns(self, decoded: DecodedRows) -> DecodedColumns:
        import pyarrow as pa

        from scribengin.core.types import arrow_schema

        schema = arrow_schema(self.schema)
        arrays = [pa.array([row[field.name] for row in decoded.rows], field.type) for field in schema]
        return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=schema), decoded.ordinals, decoded.bad, decoded.skipped)


Decoded = tuple[list[Any], "Sequence[int]", list[Bad], int]
"""records (none where they are columns already), their ordinals, bad records, blank lines"""


def _decoded(shape: RecordShape, block: Block) -> Decoded:
    """All of a block, piece by piece."""
    if isinstance(block, DamageBlock):
        return [], [], block.bad(), 0
    assert isinstance(block, LineBlock)
    decoded = _joined([_piece(shape, first, piece) for first, piece in pieces(block.data)], 0)
    _, ordinals, bad, skipped = decoded
    block.has_lines(len(ordinals) + len(bad) + skipped)
    return decoded


def _joined(parts: list[Decoded], first: int) -> Decoded:
    """Parts that follow each other; `first` is the ordinal of their first line."""
    if len(parts) == 1:
        return parts[0]
    records = [record for part in parts for record in part[0]]
    bad, skipped = [each for part in parts for each in part[2]], sum(part[3] for part in parts)
    if bad or skipped:
        return records, [ordinal for part in parts for ordinal in part[1]], bad, skipped
    return records, range(first, first + sum(len(part[1]) for part in parts)), bad, skipped


def _piece(shape: RecordShape, first: int, piece: bytes) -> Decoded:
    """The records of whole lines, of which the first has the ordinal `first`."""
    records = shape.whole(piece)
    if not isinstance(records, list):
        lines = lines_of(piece)
        records = _carefully(shape, piece, lines, records)
        if not isinstance(records, list):
            return _around_the_bad(shape, lines, first, records)
    return records, range(first, first + len(records)), [], 0


def _carefully(shape: RecordShape, data: bytes, lines: Sequence[bytes], stopped: int | None) -> list[Any] | int | None:
    """The careful way, unless the line at which the quick one has stopped is one that it does not read either: to learn that, all of the
    data need not be read again."""
    if not shape.has_two_ways:
        return stopped
    if stopped is not None and stopped < len(lines):
        try:
            shape.line(lines[stopped])
        except REFUSED:
            return stopped
    return shape.carefully(data)


def _around_the_bad(shape: RecordShape, lines: Sequence[bytes], first: int, bad: int | None) -> Decoded:
    """The lines before and behind line `bad` each in one go, and that line alone; where there are many such, some at a time."""
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
    """Some lines together, and where these fail line by line; the first line has the ordinal `first`."""
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
    """All lines together, each of which must hold one record; else as `RecordShape.whole`."""
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
            bad = Bad(ordinal, bad.reason, f"{bad.message}; several objects on one line are read with json: {{shape: concatenated}}")
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
