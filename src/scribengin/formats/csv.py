"""CSV by the parse contract: cells are typed by the schema, as strictly as JSON's values are.

Numbers and truth values are written as in JSON, DATE, TIMESTAMP and BINARY as the text that JSON would hold, arrays, maps and
structs as JSON. A cell in quotes is never null. Blanks around a number are no part of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from scribengin.core.types import INTEGER_BITS, arrow_schema
from scribengin.formats.blocks import DamageBlock
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows
from scribengin.formats.csv_columns import QuickCsv
from scribengin.formats.csv_records import RFC_4180, CsvBlock, split_cells, split_records
from scribengin.formats.dialect import in_utf_8, undecodable
from scribengin.formats.json_columns import times_of
from scribengin.formats.json_types import NOT_FINITE, Mending, MisfitError, fit_decimal, instant, value_type
from scribengin.formats.rows import batch_to_rows, column_to_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.core.types import Field, Schema
    from scribengin.formats.contract import Block
    from scribengin.formats.dialect import Dialect

_BARE = frozenset({"BOOLEAN", "FLOAT", "DOUBLE", *INTEGER_BITS})
_REALS = frozenset({"FLOAT", "DOUBLE"})
_TEXTS = frozenset({"DATE", "BINARY"})
EMPTY_IS_A_VALUE = frozenset({"STRING", "BINARY"})
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
_Cells = list[str | None]


class CsvDecoder:
    """Decodes `CsvBlock`s. Columns go by the block's header, or by position where it has none."""

    def __init__(self, schema: Schema, dialect: Dialect = RFC_4180, *, truncate: bool = False) -> None:
        """`truncate`: what a TIMESTAMP has behind its six decimals is cut off."""
        self.schema = schema
        self.dialect = dialect
        """how it takes records apart"""
        self._comment = None if dialect.comment is None else dialect.comment.encode()
        self._columns = [CellColumn(field, truncate=truncate) for field in schema.fields]
        for column in self._columns:
            in_quotes = "; a cell in quotes that is empty is null with quoted_null: typed"
            column.if_empty = in_quotes if "" in dialect.nulls else '; an empty cell is null too with "" in the list of null'
        self.quick: QuickCsv | None = QuickCsv(schema, self._columns, dialect, truncate=truncate)
        """reads the blocks that are in order; without it all go the long way, to the same end"""

    def rows(self, block: Block) -> DecodedRows:
        """Dicts with every column of the schema and no other."""
        quick = self._quickly(block)
        if quick is not None:
            return DecodedRows(batch_to_rows(quick.batch), quick.ordinals, quick.bad)
        values, ordinals, bad, skipped = self._decode(block)
        names = self.schema.names
        return DecodedRows([dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)], ordinals, bad, skipped)

    def columns(self, block: Block) -> DecodedColumns:
        """The same records as one Arrow batch."""
        quick = self._quickly(block)
        if quick is not None:
            return quick
        values, ordinals, bad, skipped = self._decode(block)
        form = arrow_schema(self.schema)
        arrays = [pa.array(column, field.type) for column, field in zip(values, form, strict=True)]
        return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=form), ordinals, bad, skipped)

    def decode_values(self, values: Sequence[bytes | str | None]) -> DecodedRows:
        """One record a value, for a `parse` step: columns by position. A null gives nulls, a blank is skipped."""
        width = len(self._columns)
        found = _Found()
        for ordinal, value in enumerate(values):
            if value is None:
                found.add(ordinal, [None] * width)
            else:
                self._take_value(found, ordinal, value, width)
        columns, ordinals = self._typed(found, [list(column) for column in zip(*found.cells, strict=True)] or [[] for _ in self._columns])
        names = self.schema.names
        return DecodedRows(
            [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)], ordinals, found.sorted_bad(), found.skipped
        )

    def _quickly(self, block: Block) -> DecodedColumns | None:
        return self.quick.decode(block) if self.quick is not None and isinstance(block, CsvBlock) else None

    def _decode(self, block: Block) -> tuple[list[list[Any]], Sequence[int], list[Bad], int]:
        if isinstance(block, DamageBlock):
            return [[] for _ in self._columns], [], block.bad(), 0
        assert isinstance(block, CsvBlock)
        names = self.schema.names if block.header is None else block.header
        found = _Found()
        for ordinal, line in enumerate(block.lines()):
            self._take(found, ordinal, block.end.stripped(line), len(names))
        by_position = list(zip(*found.cells, strict=True)) or [()] * len(names)
        places = {name: index for index, name in enumerate(names)}
        absent: _Cells = [None] * len(found.cells)
        texts = [list(by_position[places[column.name]]) if column.name in places else absent for column in self._columns]
        columns, ordinals = self._typed(found, texts)
        return columns, ordinals, found.sorted_bad(), found.skipped

    def _take_value(self, found: _Found, ordinal: int, value: bytes | str, width: int) -> None:
        """A value may end in a line end; what follows one would be another record."""
        value = in_utf_8(value, self.dialect.encoding) if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        record = value.removesuffix(b"\n").removesuffix(b"\r")
        if b"\n" in record and sum(1 for _ in split_records(record + b"\n", self.dialect)) > 1:
            found.bad.append(Bad(ordinal, "malformed", "the value holds more than one record; one was asked"))
            return
        self._take(found, ordinal, record, width)

    def _take(self, found: _Found, ordinal: int, line: bytes, width: int) -> None:
        """Split one record into cells."""
        if not line.strip(b" \t") or (self._comment is not None and line.startswith(self._comment)):
            found.skipped += 1
            return
        dialect = self.dialect
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            found.bad.append(Bad(ordinal, "invalid-utf8", undecodable(error, "record", dialect.encoding)))
            return
        cells: _Cells | None
        if dialect.is_plain and '"' not in text:
            null = dialect.nulls[0]
            cells = [None if cell == null else cell for cell in text.split(dialect.delimiter)]
        else:
            cells = split_cells(text, dialect)
        if cells is None:
            found.bad.append(Bad(ordinal, "malformed", self._wrong_quotes(text)))
            return
        if len(cells) > width and dialect.extra_cells != "refuse" and (dialect.extra_cells == "drop" or not any(cells[width:])):
            del cells[width:]
        if len(cells) != width:
            found.bad.append(Bad(ordinal, "ragged", self._ragged(cells, width)))
            return
        found.add(ordinal, cells)

    def _wrong_quotes(self, text: str) -> str:
        """With the option that would read it, where one does."""
        dialect, quote = self.dialect, self.dialect.quote
        problem = "a quote stands inside of a cell, or is not closed; a cell with quotes in it is written in quotes, each twice"
        if dialect.escape is None and f"\\{quote}" in text:
            return f'{problem}, or with a backslash before it: escape: "\\\\"'
        if not dialect.trim and split_cells(text, replace(dialect, trim=True)) is not None:
            return f"{problem}; blanks before and behind quotes are left out with trim: true"
        return f"{problem}; where quotes mean nothing, as in most files with tabs: quote: none"

    def _ragged(self, cells: _Cells, width: int) -> str:
        found = f"found {len(cells)} cells; expected {width}"
        if len(cells) > width and not any(cells[width:]):
            return f"{found}; those that are too many are empty: extra_cells: empty leaves such out"
        if self.dialect.quote is not None and any(cell is not None and "\n" in cell for cell in cells):
            return f"{found}; a cell in quotes goes over several lines; where quotes mean nothing: quote: none"
        return found

    def _typed(self, found: _Found, cells: list[_Cells]) -> tuple[list[list[Any]], Sequence[int]]:
        """The columns' values, without the records in which any of them does not fit."""
        if self.dialect.quoted_null == "typed":
            cells = [column.without(self.dialect.nulls, texts) for column, texts in zip(self._columns, cells, strict=True)]
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

    def __init__(self, field: Field, *, truncate: bool = False) -> None:
        self.name = field.name
        self._type = field.type
        self.nullable = field.nullable
        self.if_empty = ""
        """what is told besides where the text is empty and does not fit"""
        self._mend: Callable[[Any], Any] | None = None
        self._number = msgspec.json.Decoder(float)
        self._truncate = truncate
        if field.type.name not in ("STRING", "DECIMAL", "TIMESTAMP"):
            asked = value_type(field.type, field.name, careful=True)
            self._one = msgspec.json.Decoder(asked)
            self._many = msgspec.json.Decoder(list[asked])  # type: ignore[valid-type]
            self._mend = Mending(careful=True, truncate=truncate).value(field.type)

    def without(self, nulls: Sequence[str], texts: _Cells) -> _Cells:
        """The texts without those that are null, unless they are values of this type."""
        return texts if self._type.name in EMPTY_IS_A_VALUE else [None if text in nulls else text for text in texts]

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
            shown = f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'
            if isinstance(error, MisfitError):
                reason = "wrong-type" if error.reason == "invalid-value" else error.reason
                _, said, why = error.found.partition(", which ")
                shown += said + why
            else:
                ranged = any(word in str(error) for word in ("out of range", "<=", ">="))
                reason = "out-of-range" if ranged else "wrong-type"
            raise MisfitError(
                reason, f'column "{self.name}": found {shown}; expected {self._type}{"" if text else self.if_empty}'
            ) from None

    def _all(self, given: list[str]) -> list[Any] | None:
        if self._type.name == "STRING":
            return given
        if self._type.name == "TIMESTAMP":
            times = times_of(pa.array(given, pa.string()), truncate=self._truncate)
            return None if times is None else column_to_values(times)
        if self._type.name in _REALS:
            given = [f'"{text}"' if text in NOT_FINITE else text for text in given if '"' not in text]
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
        if self._type.name == "TIMESTAMP":
            return instant(text, truncate=self._truncate)
        if self._type.name in _REALS:
            if '"' in text:
                raise MisfitError("wrong-type", text)
            text = f'"{text}"' if text in NOT_FINITE else text
        return self._one.decode(msgspec.json.encode(text) if self._type.name in _TEXTS else text)
