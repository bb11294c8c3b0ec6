"""Columns of CSV whose records are in order: cells cut by `pyarrow.csv`, types by Arrow's kernels where these mean the same as the
parse contract.

Arrow reads more than the contract allows (`0x10`, `007`, `nan`, `TRUE`, text behind a closing quote, a line that ends in `\\r`). So the
bytes are checked before Arrow sees them, and the texts of a column before or after a kernel takes them; whatever is not sure goes the
long way: a column by `CellColumn`, a whole block by the decoder of `formats.csv`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from scribengin.core.types import INTEGER_BITS, arrow_schema
from scribengin.formats.blocks import parts
from scribengin.formats.contract import Bad, DecodedColumns
from scribengin.formats.csv_records import has_whole_cells, is_commented, is_escaped
from scribengin.formats.dialect import CR, CRLF, LF
from scribengin.formats.json_columns import times_of
from scribengin.formats.json_types import EXACT, MisfitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.core.types import Field, Schema
    from scribengin.formats.csv import CellColumn
    from scribengin.formats.csv_records import CsvBlock
    from scribengin.formats.dialect import Dialect, LineEnd

_BOM = b"\xef\xbb\xbf"
_NULL_CHARACTERS = 1000
"""a longer text for null is for the long way: Arrow bounds it"""
_NUMBER = r"^(?:0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))$"
"""a number of JSON; without `-0`, which msgspec reads as 0.0"""
_LONG = r"^-?[0-9]{16,}$"
"""a whole number that a DOUBLE may not keep"""
_YEAR_1 = -719162
"""days from 1970-01-01 to 0001-01-01: Arrow knows a year 0, the contract does not"""
_STAND_IN = b"\x1f"
"""for a delimiter of several bytes, which Arrow does not take"""
_EMPTY_IS_A_VALUE = (pa.string(), pa.binary())
_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


class QuickCsv:
    """Decodes the blocks that it is sure of to what the long way gives, dead letters included."""

    def __init__(self, schema: Schema, columns: Sequence[CellColumn], dialect: Dialect, *, truncate: bool = False) -> None:
        """`columns` are the schema's, for the texts that no kernel reads."""
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
        """The block's records; None where the long way has to decide."""
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
        """The cells of the wanted columns as texts; None where any record is not in order, or is blank."""
        data, dialect = block.data, block.dialect
        if not data or not wanted or data.startswith(_BOM) or not self._able:
            return None
        if not _has_lines(data, block.end):
            return None
        if self._quote is not None and self._quote in data:
            # Arrow may take an empty cell at the end of the data for one in quotes, and does not say which cells are
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
        # A line of blanks is no record either. With several columns it is ragged, unless blanks stand between the cells.
        if (width == 1 or self._dialect.delimiter in " \t") and _has_blank(cells.column("c0")):
            return None
        if blanks:
            trimmed = [_without(pc.utf8_trim(_one(texts), blanks), self._nulls) for texts in cells.columns]
            cells = pa.table(trimmed, names=cells.column_names)
        if dialect.escape is not None and dialect.escape.encode() in data and _hold(cells, dialect.escape):
            return None
        return cells


def _has_lines(data: bytes, end: LineEnd) -> bool:
    """True where Arrow ends the same lines, and none is empty, which it takes for a record of empty cells."""
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
    for part in parts(data, 1):  # quicker than `in`, which stops at each line end
        ends = part == ord("\n")
        if (ends[1:] & ends[:-1]).any():
            return False
    return True


def _without(texts: pa.Array, nulls: pa.Array) -> pa.Array:
    """Null where it is one of these texts."""
    return pc.if_else(pc.is_in(texts, nulls), pa.scalar(None, pa.string()), texts)


def _hold(cells: pa.Table, escape: str) -> bool:
    """True where a cell that is not null has an escape in it."""
    return any(pc.any(pc.match_substring(texts, escape)).as_py() for texts in cells.columns)


def _has_blank(texts: pa.ChunkedArray) -> bool:
    blank = pc.equal(pc.ascii_trim(texts, " \t"), "")
    return texts.null_count > 0 or bool(pc.any(blank).as_py())


def _one(texts: pa.ChunkedArray) -> pa.Array:
    return texts.chunk(0) if texts.num_chunks == 1 else texts.combine_chunks()


def _by_cells(column: CellColumn, texts: pa.Array, type_: pa.DataType, bad: dict[int, Bad]) -> pa.Array:
    """The column's values by its own parse. A record whose cell does not fit is noted in `bad`, unless a column before it was unfit."""
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
    """What makes a column of its texts; it gives None where it is not sure of any of them."""
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
    return lambda texts: None  # noqa: ARG005 (a column's own parse reads it)


def _cast(texts: pa.Array, type_: pa.DataType) -> pa.Array | None:
    try:
        return pc.cast(texts, type_)
    except _REFUSED:
        return None


def _all(truths: pa.Array) -> bool:
    """True where no element is false; a null is none."""
    return bool(pc.all(truths).as_py() is not False)


def _integers(texts: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Whole numbers. One that is written as Arrow writes it is written as JSON asks."""
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
    """True where one of these DOUBLEs may stand for a whole number that it does not keep."""
    ends = pc.min_max(numbers)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is not None and max(-low, high) >= EXACT


def _floats(texts: pa.Array) -> pa.Array | None:
    wide = _doubles(texts)
    if wide is None:
        return None
    numbers = pc.cast(wide, pa.float32(), safe=False)
    kept = pc.equal(pc.cast(numbers, pa.float64()), wide)  # a whole number has to be, of others the nearest is taken
    return numbers if _all(pc.is_finite(numbers)) and _all(pc.or_(kept, pc.match_substring_regex(texts, r"[^-0-9]"))) else None


def _dates(texts: pa.Array) -> pa.Array | None:
    if not _all(pc.equal(pc.binary_length(texts), len("2026-01-01"))):
        return None
    days = _cast(texts, pa.date32())
    return days if days is not None and _all(pc.greater_equal(pc.cast(days, pa.int32()), _YEAR_1)) else None


def _decimals(precision: int, scale: int) -> Callable[[pa.Array], pa.Array | None]:
    """Numbers of no more digits than the type has on either side of the point: of others Arrow may lose digits, and not say so."""
    whole = rf"(?:0|[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
    pattern = rf"^-?{whole}(?:\.[0-9]{{1,{scale}}})?$" if scale else rf"^-?{whole}$"
    type_ = pa.decimal128(precision, scale)
    return lambda texts: _cast(texts, type_) if _all(pc.match_substring_regex(texts, pattern)) else None
