"""CSV by the parse contract: cells are typed by the schema, as strictly as JSON's values are.

Numbers and truth values are written as in JSON, DATE, TIMESTAMP and BINARY as the text that JSON would hold, arrays, maps and
structs as JSON. A cell in quotes is never null. Blanks around a number are no part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from scribengin.core.types import INTEGER_BITS, arrow_schema
from scribengin.formats.blocks import DamageBlock
from scribengin.formats.contract import Bad, Columns, Rows
from scribengin.formats.csv_columns import QuickCsv
from scribengin.formats.csv_records import CsvBlock, check_delimiter, split_cells, split_records
from scribengin.formats.json_types import MisfitError, fit_decimal, mender, value_type
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.core.types import Field, Schema
    from scribengin.formats.contract import Block

_BARE = frozenset({"BOOLEAN", "FLOAT", "DOUBLE", *INTEGER_BITS})
_TEXTS = frozenset({"DATE", "TIMESTAMP", "BINARY"})
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
_Cells = list[str | None]


class CsvDecoder:
    """Decodes `CsvBlock`s. Columns go by the block's header, or by position where it has none."""

    def __init__(self, schema: Schema, *, delimiter: str = ",", null: str = "") -> None:
        check_delimiter(delimiter)
        self.schema = schema
        self._delimiter = delimiter
        self._null = null
        self._columns = [CellColumn(field) for field in schema.fields]
        self.quick: QuickCsv | None = QuickCsv(schema, self._columns, delimiter=delimiter, null=null)
        """reads the blocks that are in order; without it all go the long way, to the same end"""

    def rows(self, block: Block) -> Rows:
        """Dicts with every column of the schema and no other."""
        quick = self._quickly(block)
        if quick is not None:
            return Rows(batch_to_rows(quick.batch), quick.ordinals, quick.bad)
        values, ordinals, bad, skipped = self._decode(block)
        names = self.schema.names
        return Rows([dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)], ordinals, bad, skipped)

    def columns(self, block: Block) -> Columns:
        """The same records as one Arrow batch."""
        quick = self._quickly(block)
        if quick is not None:
            return quick
        values, ordinals, bad, skipped = self._decode(block)
        form = arrow_schema(self.schema)
        arrays = [pa.array(column, field.type) for column, field in zip(values, form, strict=True)]
        return Columns(pa.RecordBatch.from_arrays(arrays, schema=form), ordinals, bad, skipped)

    def decode_values(self, values: Sequence[bytes | str | None]) -> Rows:
        """One record a value, for a `parse` step: columns by position. A null gives nulls, a blank is skipped."""
        width = len(self._columns)
        found = _Found()
        for ordinal, value in enumerate(values):
            if value is None:
                found.add(ordinal, [None] * width)
            else:
                self._take_value(found, ordinal, value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass"), width)
        columns, ordinals = self._typed(found, [list(column) for column in zip(*found.cells, strict=True)] or [[] for _ in self._columns])
        names = self.schema.names
        return Rows([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)], ordinals, found.sorted_bad(), found.skipped)

    def _quickly(self, block: Block) -> Columns | None:
        return self.quick.decode(block) if self.quick is not None and isinstance(block, CsvBlock) else None

    def _decode(self, block: Block) -> tuple[list[list[Any]], Sequence[int], list[Bad], int]:
        if isinstance(block, DamageBlock):
            return [[] for _ in self._columns], [], block.bad(), 0
        assert isinstance(block, CsvBlock)
        names = self.schema.names if block.header is None else block.header
        found = _Found()
        for ordinal, line in enumerate(block.lines()):
            self._take(found, ordinal, line.removesuffix(b"\r"), len(names))
        by_position = list(zip(*found.cells, strict=True)) or [()] * len(names)
        places = {name: index for index, name in enumerate(names)}
        absent: _Cells = [None] * len(found.cells)
        texts = [list(by_position[places[column.name]]) if column.name in places else absent for column in self._columns]
        columns, ordinals = self._typed(found, texts)
        return columns, ordinals, found.sorted_bad(), found.skipped

    def _take_value(self, found: _Found, ordinal: int, value: bytes, width: int) -> None:
        """A value may end in a line end; what follows one would be another record."""
        record = value.removesuffix(b"\n").removesuffix(b"\r")
        if b"\n" in record and sum(1 for _ in split_records(record + b"\n", self._delimiter)) > 1:
            found.bad.append(Bad(ordinal, "malformed", "the value holds more than one record; one was asked"))
            return
        self._take(found, ordinal, record, width)

    def _take(self, found: _Found, ordinal: int, line: bytes, width: int) -> None:
        """Split one record into cells."""
        if not line.strip(b" \t"):
            found.skipped += 1
            return
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            found.bad.append(Bad(ordinal, "invalid-utf8", f"byte {error.start} of the record is not UTF-8: {error.reason}"))
            return
        cells: _Cells | None
        if '"' in text:
            cells = split_cells(text, self._delimiter, self._null)
            if cells is None:
                problem = "a quote stands inside of a cell, or is not closed; a cell with quotes in it is written in quotes, each twice"
                found.bad.append(Bad(ordinal, "malformed", problem))
                return
        else:
            null = self._null
            cells = [None if cell == null else cell for cell in text.split(self._delimiter)]
        if len(cells) != width:
            found.bad.append(Bad(ordinal, "ragged", f"found {len(cells)} cells; asked are {width}"))
            return
        found.add(ordinal, cells)

    def _typed(self, found: _Found, cells: list[_Cells]) -> tuple[list[list[Any]], Sequence[int]]:
        """The columns' values, without the records in which any of them does not fit."""
        typed = [column.values(texts) for column, texts in zip(self._columns, cells, strict=True)]
        columns = [values for values in typed if values is not None]
        if len(columns) == len(typed):
            return columns, found.ordinals
        kept: list[int] = []
        rows: list[list[Any]] = []
        for ordinal, texts in zip(found.ordinals, zip(*cells, strict=True), strict=True):
            try:
                rows.append([column.value(text) for column, text in zip(self._columns, texts, strict=True)])
                kept.append(ordinal)
            except MisfitError as misfit:
                found.bad.append(Bad(ordinal, misfit.reason, misfit.found))
        return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in self._columns], kept


class _Found:
    """Records in cells."""

    def __init__(self) -> None:
        self.cells: list[_Cells] = []
        self.ordinals: list[int] = []
        self.bad: list[Bad] = []
        self.skipped = 0

    def add(self, ordinal: int, cells: _Cells) -> None:
        self.cells.append(cells)
        self.ordinals.append(ordinal)

    def sorted_bad(self) -> list[Bad]:
        return sorted(self.bad, key=lambda bad: bad.ordinal)


class CellColumn:
    """Turns the texts of one column into values: all at once by msgspec, or one by one to find the culprit."""

    def __init__(self, field: Field) -> None:
        self.name = field.name
        self._type = field.type
        self.nullable = field.nullable
        self._mend: Callable[[Any], Any] | None = None
        self._number = msgspec.json.Decoder(float)
        if field.type.name not in ("STRING", "DECIMAL"):
            asked = value_type(field.type, field.name)
            self._one = msgspec.json.Decoder(asked)
            self._many = msgspec.json.Decoder(list[asked])  # type: ignore[valid-type]
            self._mend = mender(field.type)

    def values(self, texts: _Cells) -> list[Any] | None:
        """The values, or None where any text does not fit."""
        given = [text for text in texts if text is not None]
        if len(given) < len(texts) and not self.nullable:
            return None
        try:
            values = self._all(given)
            if values is None or len(values) != len(given):
                return None
            if self._mend is not None:
                values = [self._mend(value) for value in values]
        except _REFUSED:  # MisfitError is a ValueError
            return None
        if len(given) == len(texts):
            return values
        following = iter(values)
        return [None if text is None else next(following) for text in texts]

    def value(self, text: str | None) -> Any:
        """The value of one text. Raises MisfitError."""
        if text is None:
            if self.nullable:
                return None
            raise MisfitError("missing", f'column "{self.name}" is null and NOT NULL')
        try:
            value = self._each(text)
            return value if self._mend is None else self._mend(value)
        except _REFUSED as error:
            if isinstance(error, MisfitError):
                reason = error.reason
            else:
                ranged = any(word in str(error) for word in ("out of range", "<=", ">="))
                reason = "out-of-range" if ranged else "wrong-type"
            shown = text if len(text) <= 60 else text[:57] + "..."
            raise MisfitError(reason, f'column "{self.name}": found "{shown}"; asked is {self._type}') from None

    def _all(self, given: list[str]) -> list[Any] | None:
        if self._type.name == "STRING":
            return given
        if self._type.name in _BARE:
            # A number or truth value goes over no comma: so many values as texts means one from each.
            many: list[Any] = self._many.decode(f"[{','.join(given)}]")
            return many
        if self._type.name in _TEXTS:
            joined = "".join(given)
            if '"' in joined or "\\" in joined:
                return None
            texts: list[Any] = self._many.decode('["' + '","'.join(given) + '"]' if given else "[]")
            return texts
        return [self._each(text) for text in given]

    def _each(self, text: str) -> Any:
        if self._type.name == "STRING":
            return text
        if self._type.name == "DECIMAL":
            self._number.decode(text)  # what a number is, JSON says
            return fit_decimal(text.strip(), self._type)
        return self._one.decode(msgspec.json.encode(text) if self._type.name in _TEXTS else text)
