"""CSV by the parse contract: the schema gives the types of cells, as strictly as for JSON's values.

Numbers and booleans are written as in JSON, DATE, TIMESTAMP and BINARY as the text of the JSON string, arrays, maps and structs as JSON. A
cell in quotes is never null. Blanks around a number are ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from scribengin.core.types import INTEGER_BITS, arrow_schema
from scribengin.formats.blocks import DamageBlock, parts
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows
from scribengin.formats.csv_records import RFC_4180, CsvBlock, has_whole_cells, is_commented, is_escaped, split_cells, split_records
from scribengin.formats.dialect import CR, CRLF, LF, in_utf_8, undecodable
from scribengin.formats.json import times_of
from scribengin.formats.json_types import EXACT, NOT_FINITE, Mending, MisfitError, fit_decimal, instant, value_type
from scribengin.formats.rows import batch_to_rows, column_to_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.core.types import Field, Schema
    from scribengin.formats.contract import Block
    from scribengin.formats.dialect import Dialect, LineEnd


# Decodes columns of CSV whose records are regular: cells are split by `pyarrow.csv`, and converted by Arrow's kernels if these follow the
# parse contract. Arrow accepts more than the contract (`0x10`, `007`, `nan`, `TRUE`, text after a closing quote, a line that ends in `\r`).
# So the bytes are checked before Arrow reads them, and the texts of a column before or after a kernel converts them. Uncertain data use the
# slow path: a column by `CellColumn`, a whole block by `CsvDecoder`.


_BOM = b"\xef\xbb\xbf"
_NULL_CHARACTERS = 1000
"""a longer text for null uses the slow path, because Arrow limits its length"""
_NUMBER = r"^(?:0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))$"
"""a number of JSON; without `-0`, which msgspec reads as 0.0"""
_LONG = r"^-?[0-9]{16,}$"
"""a whole number that a DOUBLE may not represent exactly"""
_YEAR_1 = -719162
"""days from 1970-01-01 to 0001-01-01: Arrow has a year 0, the contract does not"""
_STAND_IN = b"\x1f"
"""replaces a delimiter of several bytes, which Arrow does not support"""
_EMPTY_IS_A_VALUE = (pa.string(), pa.binary())
_ARROW_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


class QuickCsv:
    """Decodes regular blocks with the same result as the slow path, dead letters included."""

    def __init__(self, schema: Schema, columns: Sequence[CellColumn], dialect: Dialect, *, truncate: bool = False) -> None:
        """`columns` are the schema's, for texts that no kernel converts."""
        self._schema = arrow_schema(schema)
        self._names = schema.names
        self._columns = columns
        self._kernels = [_kernel(field, truncate=truncate) for field in schema.fields]
        self._dialect = dialect
        self._delimiter = dialect.delimiter.encode()
        self._null_values = sorted(dialect.raw_nulls)
        self._nulls = pa.array(self._null_values, pa.string())
        self._able = all(len(null) <= _NULL_CHARACTERS for null in self._null_values)
        self._quote = None if dialect.quote is None else dialect.quote.encode()
        self._parse = pa.csv.ParseOptions(
            delimiter=dialect.delimiter if len(self._delimiter) == 1 else _STAND_IN.decode(),
            quote_char=dialect.quote or False,
            newlines_in_values=True,
            ignore_empty_lines=False,
        )

    def decode(self, block: CsvBlock) -> DecodedColumns | None:
        """The block's records; None if the slow path must decode it."""
        names = self._names if block.header is None else block.header
        places = {name: f"c{index}" for index, name in enumerate(names)}
        cells = self._cells(block, len(names), [places[name] for name in self._names if name in places])
        if cells is None:
            return None
        size = cells.num_rows
        arrays: list[pa.Array] = []
        bad: dict[int, Bad] = {}
        for column, kernel, arrow in zip(self._columns, self._kernels, self._schema, strict=True):
            place = places.get(column.name)
            texts = pa.nulls(size, pa.string()) if place is None else _one(cells.column(place))
            if self._dialect.quoted_null == "typed" and arrow.type not in _EMPTY_IS_A_VALUE:
                texts = _without(texts, self._nulls)
            array = None if texts.null_count and not column.nullable else kernel(texts)
            arrays.append(_by_cells(column, texts, arrow.type, bad) if array is None else array)
        block.has_lines(size)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if not bad:
            return DecodedColumns(batch, range(size))
        good = [ordinal for ordinal in range(size) if ordinal not in bad]
        return DecodedColumns(batch.take(pa.array(good, pa.int64())), good, [bad[ordinal] for ordinal in sorted(bad)])

    def _cells(self, block: CsvBlock, width: int, wanted: list[str]) -> pa.Table | None:
        """The cells of the wanted columns as texts; None if a record is irregular or blank."""
        data, dialect = block.data, block.dialect
        if not data or not wanted or data.startswith(_BOM) or not self._able:
            return None
        if not _has_lines(data, block.end):
            return None
        if self._quote is not None and self._quote in data:
            # at the end of the data Arrow may read an empty cell as one in quotes, and does not report which cells are
            if dialect.trim or not has_whole_cells(data, dialect) or data.endswith(self._delimiter):
                return None
        elif len(self._delimiter) > 1:
            if _STAND_IN in data:
                return None
            data = data.replace(self._delimiter, _STAND_IN)
        if is_commented(data, dialect) or is_escaped(data, dialect):
            return None
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError:
                return None
        if self._dialect.delimiter in " \t" and "c0" not in wanted:
            wanted = ["c0", *wanted]
        blanks = dialect.blanks if dialect.trim and any(blank in data for blank in (b" ", b"\t")) else ""
        try:
            cells = pa.csv.read_csv(
                pa.BufferReader(data),
                read_options=pa.csv.ReadOptions(
                    use_threads=False, block_size=len(data) + 1, column_names=[f"c{index}" for index in range(width)]
                ),
                parse_options=self._parse,
                convert_options=pa.csv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(wanted, pa.string()),
                    include_columns=list(dict.fromkeys(wanted)),
                    null_values=self._null_values,
                    strings_can_be_null=not blanks,
                    quoted_strings_can_be_null=dialect.quoted_null == "always",
                ),
            )
        except pa.ArrowInvalid:  # ragged
            return None
        # A line of blanks is not a record either. With several columns it is ragged, unless there are blanks between the cells.
        if (width == 1 or self._dialect.delimiter in " \t") and _has_blank(cells.column("c0")):
            return None
        if blanks:
            trimmed = [_without(pc.utf8_trim(_one(texts), blanks), self._nulls) for texts in cells.columns]
            cells = pa.table(trimmed, names=cells.column_names)
        if dialect.escape is not None and dialect.escape.encode() in data and _hold(cells, dialect.escape):
            return None
        return cells


def _has_lines(data: bytes, end: LineEnd) -> bool:
    """True if Arrow finds the same line ends, and no line is empty: Arrow would read an empty line as a record of empty cells."""
    mark = end.mark
    if end == CR:
        return b"\n" not in data and not data.startswith(mark) and b"\r\r" not in data
    returns = data.count(b"\r")
    if returns and (end == LF or returns != data.count(b"\r\n") or b"\n\r\n" in data):
        return False
    if end == CRLF and returns != data.count(b"\n"):
        return False
    if data.startswith((b"\n", b"\r\n")):
        return False
    for part in parts(data, 1):  # faster than `in`, which stops at each line end
        ends = part == ord("\n")
        if (ends[1:] & ends[:-1]).any():
            return False
    return True


def _without(texts: pa.Array, nulls: pa.Array) -> pa.Array:
    """Replace these texts by null."""
    return pc.if_else(pc.is_in(texts, nulls), pa.scalar(None, pa.string()), texts)


def _hold(cells: pa.Table, escape: str) -> bool:
    """True if a cell that is not null contains an escape."""
    return any(pc.any(pc.match_substring(texts, escape)).as_py() for texts in cells.columns)


def _has_blank(texts: pa.ChunkedArray) -> bool:
    blank = pc.equal(pc.ascii_trim(texts, " \t"), "")
    return texts.null_count > 0 or bool(pc.any(blank).as_py())


def _one(texts: pa.ChunkedArray) -> pa.Array:
    return texts.chunk(0) if texts.num_chunks == 1 else texts.combine_chunks()


def _by_cells(column: CellColumn, texts: pa.Array, type_: pa.DataType, bad: dict[int, Bad]) -> pa.Array:
    """The column's values, converted by `CellColumn`. A record whose cell does not fit is added to `bad`, unless an earlier column has
    added it."""
    given = texts.to_pylist()
    values = column.values(given)
    if values is None:
        values = []
        for ordinal, text in enumerate(given):
            try:
                values.append(column.value(text))
            except MisfitError as misfit:
                values.append(None)
                bad.setdefault(ordinal, Bad(ordinal, misfit.reason, misfit.found))
    return pa.array(values, type_)


def _kernel(field: Field, *, truncate: bool) -> Callable[[pa.Array], pa.Array | None]:
    """The conversion of texts to a column; it returns None if any of them is uncertain."""
    name = field.type.name
    if name in INTEGER_BITS:
        type_ = pa.from_numpy_dtype(f"int{INTEGER_BITS[name]}")
        return lambda texts: _integers(texts, type_)
    match name:
        case "STRING":
            return lambda texts: texts
        case "BOOLEAN":
            return _truths
        case "DOUBLE":
            return _doubles
        case "FLOAT":
            return _floats
        case "DATE":
            return _dates
        case "TIMESTAMP":
            return lambda texts: times_of(texts, truncate=truncate)
        case "DECIMAL":
            return _decimals(field.type.precision, field.type.scale)
    return lambda texts: None  # noqa: ARG005 (`CellColumn` converts it)


def _cast(texts: pa.Array, type_: pa.DataType) -> pa.Array | None:
    try:
        return pc.cast(texts, type_)
    except _ARROW_REFUSED:
        return None


def _all(truths: pa.Array) -> bool:
    """True if no element is false; a null does not count."""
    return bool(pc.all(truths).as_py() is not False)


def _integers(texts: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Whole numbers. A text that is equal to Arrow's text of its number has the form that JSON requires."""
    numbers = _cast(texts, type_)
    return numbers if numbers is not None and _all(pc.equal(pc.cast(numbers, pa.string()), texts)) else None


def _truths(texts: pa.Array) -> pa.Array | None:
    truths = pc.equal(texts, "true")
    return truths if _all(pc.or_(truths, pc.equal(texts, "false"))) else None


def _doubles(texts: pa.Array) -> pa.Array | None:
    if not _all(pc.match_substring_regex(texts, _NUMBER)):
        return None
    numbers = _cast(texts, pa.float64())
    if numbers is None or not _all(pc.is_finite(numbers)):
        return None
    rounded = _beyond_exact(numbers) and pc.any(pc.match_substring_regex(texts, _LONG)).as_py()
    return None if rounded else numbers


def _beyond_exact(numbers: pa.Array) -> bool:
    """True if one of these DOUBLEs may come from a whole number that it does not represent exactly."""
    ends = pc.min_max(numbers)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is not None and max(-low, high) >= EXACT


def _floats(texts: pa.Array) -> pa.Array | None:
    wide = _doubles(texts)
    if wide is None:
        return None
    numbers = pc.cast(wide, pa.float32(), safe=False)
    kept = pc.equal(pc.cast(numbers, pa.float64()), wide)  # a whole number must be represented exactly; other numbers are rounded
    return numbers if _all(pc.is_finite(numbers)) and _all(pc.or_(kept, pc.match_substring_regex(texts, r"[^-0-9]"))) else None


def _dates(texts: pa.Array) -> pa.Array | None:
    if not _all(pc.equal(pc.binary_length(texts), len("2026-01-01"))):
        return None
    days = _cast(texts, pa.date32())
    return days if days is not None and _all(pc.greater_equal(pc.cast(days, pa.int32()), _YEAR_1)) else None


def _decimals(precision: int, scale: int) -> Callable[[pa.Array], pa.Array | None]:
    """Numbers with no more digits than the type has on either side of the point; with more, Arrow may lose digits silently."""
    whole = rf"(?:0|[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
    pattern = rf"^-?{whole}(?:\.[0-9]{{1,{scale}}})?$" if scale else rf"^-?{whole}$"
    type_ = pa.decimal128(precision, scale)
    return lambda texts: _cast(texts, type_) if _all(pc.match_substring_regex(texts, pattern)) else None


_BARE = frozenset({"BOOLEAN", "FLOAT", "DOUBLE", *INTEGER_BITS})
_REALS = frozenset({"FLOAT", "DOUBLE"})
_TEXTS = frozenset({"DATE", "BINARY"})
EMPTY_IS_A_VALUE = frozenset({"STRING", "BINARY"})
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
_Cells = list[str | None]


class CsvDecoder:
    """Decodes `CsvBlock`s. Columns are matched by the block's header, or by position if it has none."""

    def __init__(self, schema: Schema, dialect: Dialect = RFC_4180, *, truncate: bool = False) -> None:
        """`truncate`: a TIMESTAMP is cut to six decimals."""
        self.schema = schema
        self.dialect = dialect
        """the dialect of the records"""
        self._comment = None if dialect.comment is None else dialect.comment.encode()
        self._columns = [CellColumn(field, truncate=truncate) for field in schema.fields]
        for column in self._columns:
            in_quotes = "; to read an empty cell in quotes as null, set quoted_null: typed"
            column.if_empty = in_quotes if "" in dialect.nulls else '; to read an empty cell as null, add "" to the list of null'
        self.quick: QuickCsv | None = QuickCsv(schema, self._columns, dialect, truncate=truncate)
        """the fast decoder of regular blocks; without it all blocks use the slow path, with the same result"""

    def rows(self, block: Block) -> DecodedRows:
        """The records as dicts with exactly the columns of the schema."""
        quick = self._quickly(block)
        if quick is not None:
            return DecodedRows(batch_to_rows(quick.batch), quick.ordinals, quick.bad)
        values, ordinals, bad, skipped = self._decode(block)
        names = self.schema.names
        return DecodedRows([dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)], ordinals, bad, skipped)

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        quick = self._quickly(block)
        if quick is not None:
            return quick
        values, ordinals, bad, skipped = self._decode(block)
        form = arrow_schema(self.schema)
        arrays = [pa.array(column, field.type) for column, field in zip(values, form, strict=True)]
        return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=form), ordinals, bad, skipped)

    def decode_values(self, values: Sequence[bytes | str | None]) -> DecodedRows:
        """One record per value, for a `parse` step: columns by position. A null gives nulls, a blank is skipped."""
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
        """Add the record of a value, which may end in a line end. More than one record is an error."""
        value = in_utf_8(value, self.dialect.encoding) if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        record = value.removesuffix(b"\n").removesuffix(b"\r")
        if b"\n" in record and sum(1 for _ in split_records(record + b"\n", self.dialect)) > 1:
            found.bad.append(Bad(ordinal, "malformed", "expected one record, found more than one"))
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
        """The message for a bad record, with the option that would read it, if there is one."""
        dialect, quote = self.dialect, self.dialect.quote
        problem = "a quote is inside a cell, or is not closed; put a cell that contains quotes in quotes, and double each quote"
        if dialect.escape is None and f"\\{quote}" in text:
            return f'{problem}; if quotes are escaped by a backslash, set escape: "\\\\"'
        if not dialect.trim and split_cells(text, replace(dialect, trim=True)) is not None:
            return f"{problem}; to ignore blanks around quotes, set trim: true"
        return f"{problem}; if quotes have no special meaning, as in most files with tabs, set quote: none"

    def _ragged(self, cells: _Cells, width: int) -> str:
        found = f"found {len(cells)} cells; expected {width}"
        if len(cells) > width and not any(cells[width:]):
            return f"{found}; the surplus cells are empty: to ignore them, set extra_cells: empty"
        if self.dialect.quote is not None and any(cell is not None and "\n" in cell for cell in cells):
            return f"{found}; a cell in quotes spans several lines; if quotes have no special meaning, set quote: none"
        return found

    def _typed(self, found: _Found, cells: list[_Cells]) -> tuple[list[list[Any]], Sequence[int]]:
        """(the columns' values, the ordinals), without the records in which a value does not fit."""
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
    """The records of a block, split into cells."""

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
    """Converts the texts of one column to values: all at once with msgspec, or one by one to find the one that does not fit."""

    def __init__(self, field: Field, *, truncate: bool = False) -> None:
        self.name = field.name
        self._type = field.type
        self.nullable = field.nullable
        self.if_empty = ""
        """addition to the message if the text is empty and does not fit"""
        self._mend: Callable[[Any], Any] | None = None
        self._number = msgspec.json.Decoder(float)
        self._truncate = truncate
        if field.type.name not in ("STRING", "DECIMAL", "TIMESTAMP"):
            asked = value_type(field.type, field.name, careful=True)
            self._one = msgspec.json.Decoder(asked)
            self._many = msgspec.json.Decoder(list[asked])  # type: ignore[valid-type]
            self._mend = Mending(careful=True, truncate=truncate).value(field.type)

    def without(self, nulls: Sequence[str], texts: _Cells) -> _Cells:
        """The texts with null in place of those that mean null, unless these are values of this type."""
        return texts if self._type.name in EMPTY_IS_A_VALUE else [None if text in nulls else text for text in texts]

    def values(self, texts: _Cells) -> list[Any] | None:
        """The values, or None if any text does not fit."""
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
            raise MisfitError("missing", f'column "{self.name}" is null; expected NOT NULL')
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
            # A number or boolean contains no comma: as many values as texts means one value per text.
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
            self._number.decode(text)  # raises if the text is not a number of JSON
            return fit_decimal(text.strip(), self._type)
        if self._type.name == "TIMESTAMP":
            return instant(text, truncate=self._truncate)
        if self._type.name in _REALS:
            if '"' in text:
                raise MisfitError("wrong-type", text)
            text = f'"{text}"' if text in NOT_FINITE else text
        return self._one.decode(msgspec.json.encode(text) if self._type.name in _TEXTS else text)
