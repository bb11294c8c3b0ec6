"""The driver's part of the source: determines the next ranges of row keys to read.

The table is read in row key order; regions may split and move meanwhile. A range ends with a row. The number of its rows and a digest of
them are logged; a task that reads the range compares both.
"""

from __future__ import annotations

import datetime as dt
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.contract import Backlog, SourceStream
from scribengin.connectors.hbase.gateway_contract import ValueRow
from scribengin.connectors.hbase.scan import HBaseScan, shown
from scribengin.core.types import Field, Schema, Type, arrow_type
from scribengin.formats.blocks import LineBlock
from scribengin.formats.contract import Bad
from scribengin.formats.json import JsonDecoder
from scribengin.formats.table_blocks import TableBlock, Unfit, fitting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.contract import BatchLimits
    from scribengin.connectors.hbase.cell_names import CellNames
    from scribengin.connectors.hbase.cells import Values
    from scribengin.connectors.hbase.gateway_contract import Gateway
    from scribengin.connectors.hbase.row_keys import Template
    from scribengin.connectors.hbase.table import ExpectedTable, HBaseDigest


# Converts cells to values of columns: the inverse of `cells.values_of`.


_FIXED = {
    "BOOLEAN": ">i1",
    "TINYINT": ">i1",
    "SMALLINT": ">i2",
    "INT": ">i4",
    "BIGINT": ">i8",
    "FLOAT": ">f4",
    "DOUBLE": ">f8",
    "TIMESTAMP": ">i8",
}
_TEXTS = ("STRING", "BINARY")
_EPOCH = dt.date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000
_LEAST_MS, _BEHIND_MS = (dt.date.min.toordinal() - _EPOCH) * _DAY_MS, (dt.date.max.toordinal() - _EPOCH + 1) * _DAY_MS
_HAS_ZONE = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"


def column_of(cells: pa.Array, field: Field, form: Values, *, of_key: bool = False) -> tuple[pa.Array, Unfit]:
    """The values of a column from its cells, which are bytes, and the values that do not fit; both those and missing cells are null. An
    empty cell is null too, or the empty text if the column is NOT NULL or part of the row key.

    Args:
        cells: The cells; null if a row has none.
        field: The column.
        form: How values are encoded.
        of_key: Whether the column is part of the row key.
    """
    asked = field.type
    if not (asked.name in _TEXTS and (of_key or not field.nullable)):
        cells = pc.if_else(pc.equal(pc.binary_length(cells), 0), pa.scalar(None, pa.binary()), cells)
    if asked.name == "BINARY":
        return cells, {}
    if form == "binary" and asked.name in _FIXED:
        return _fixed(cells, asked)
    if asked.name in ("ARRAY", "MAP", "STRUCT"):
        return _nested(cells, asked)
    texts, unfit = fitting(cells, pa.string())
    if asked.name == "STRING":
        return texts, unfit
    zoned = texts
    if asked.name == "TIMESTAMP":
        zoned = pc.if_else(pc.match_substring_regex(texts, _HAS_ZONE), texts, pc.binary_join_element_wise(texts, "Z", ""))
    found, wrong = fitting(zoned, arrow_type(asked))
    rounded = _rounded(texts, found) if asked.name in ("FLOAT", "DOUBLE") else []
    if rounded:
        found = pc.if_else(pa.array(np.isin(np.arange(len(found)), rounded)), pa.scalar(None, found.type), found)
    return found, unfit | {index: texts[index].as_py() for index in (*wrong, *rounded)}


def _rounded(texts: pa.Array, found: pa.Array) -> list[int]:
    """The indexes of the integers whose value was changed by the conversion to a floating-point number."""
    long = pc.indices_nonzero(pc.match_substring_regex(texts, r"^-?\d{8,}$").fill_null(False)).to_pylist()
    return [index for index in long if found[index].is_valid and int(texts[index].as_py()) != found[index].as_py()]


def _fixed(cells: pa.Array, asked: Type) -> tuple[pa.Array, Unfit]:
    """Decode values that were encoded by HBase's class `Bytes`; a value of another length does not fit."""
    kind = np.dtype(_FIXED[asked.name])
    holds = pc.equal(pc.binary_length(cells), kind.itemsize).fill_null(False)
    wrong = pc.indices_nonzero(pc.and_(pc.invert(holds), cells.is_valid())).to_pylist()
    unfit = {index: f"0x{cells[index].as_py().hex()}, not {kind.itemsize} bytes" for index in wrong}
    filled = pc.if_else(holds, cells, pa.scalar(bytes(kind.itemsize), pa.binary()))
    numbers = np.frombuffer(b"".join(filled.to_pylist()), kind).astype(kind.newbyteorder("="))
    missing = ~np.asarray(holds)
    if asked.name == "BOOLEAN":
        return pa.array(numbers != 0, mask=missing), unfit
    if asked.name != "TIMESTAMP":
        return pa.array(numbers, mask=missing), unfit
    outside = ((numbers < _LEAST_MS) | (numbers >= _BEHIND_MS)) & ~missing
    unfit |= {int(index): f"{numbers[index]} milliseconds from 1970" for index in np.flatnonzero(outside)}
    found = pa.array(np.where(outside, 0, numbers), pa.int64(), mask=missing | outside)
    return pc.multiply(found, 1000).cast(arrow_type(asked)), unfit


def _nested(cells: pa.Array, asked: Type) -> tuple[pa.Array, Unfit]:
    """Decode JSON values, each as a separate line."""
    lines = [b'{"v":' + (b"null" if cell is None else cell.replace(b"\n", b" ")) + b"}" for cell in cells.to_pylist()]
    found = JsonDecoder(Schema((Field("v", asked),))).columns(LineBlock("", b"\n".join(lines) + b"\n"))
    at = np.full(len(cells), -1, np.int64)
    at[np.asarray(found.ordinals, np.int64)] = np.arange(len(found.ordinals))
    values = found.batch.column("v").take(pa.array(at, mask=at < 0))
    return values, {int(index): cell_shown(cells[int(index)].as_py()) for index in np.flatnonzero(at < 0)}


def cell_shown(cell: bytes) -> str:
    """A cell for people: as text, or its bytes in hex."""
    try:
        text = cell.decode()
    except UnicodeDecodeError:
        return f"0x{cell.hex()}"
    return text if all(char.isprintable() or char in "\t\r\n" for char in text) else f"0x{cell.hex()}"


# Converts rows of a scan to Arrow batches, column by column. A value that does not fit affects only its own row.


class HBaseRowParser:
    """Converts the rows of one stream. `template` gives the columns that are part of the row keys; all others are cells."""

    def __init__(self, file: str, schema: Schema, names: CellNames, template: Template, values: Values) -> None:
        self._file = file
        self._schema = schema
        self._template = template
        self._values = values
        self._columns = [name for name in schema.names if name not in template.names]
        self._wanted = pa.array([names.cell(name).encode() for name in self._columns], pa.binary())
        self._rows = 0

    def block(self, rows: Sequence[ValueRow]) -> TableBlock:
        """Convert rows to a block."""
        keys = pa.array([row.key for row in rows], pa.binary())
        in_key = self._template.columns(keys) if self._template.names else {}
        cells = in_key | self._cells(rows)
        arrays, bad = [], dict[int, Bad]()
        for name in list(in_key)[:1]:
            for index in pc.indices_nonzero(in_key[name].is_null()).to_pylist():
                bad[index] = Bad(index, "type", f"the row key {shown(rows[index].key)} does not match `row`")
        for field in self._schema.fields:
            of_key = field.name in in_key
            array, unfit = column_of(cells[field.name], field, "text" if of_key else self._values, of_key=of_key)
            arrays.append(array)
            for index, value in unfit.items():
                bad.setdefault(index, Bad(index, "type", f'field "{field.name}" is {value}, which {field.type} cannot hold'))
        names = list(self._schema.names)
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        texts = self._texts(keys, cells) if bad else None
        block = TableBlock(self._file, batch, self._rows, bad=[bad[index] for index in sorted(bad)], texts=texts)
        self._rows += len(rows)
        return block

    def _cells(self, rows: Sequence[ValueRow]) -> dict[str, pa.Array]:
        """Column → its cell in each row, null if the row has none."""
        if not self._columns:
            return {}
        counts = np.fromiter((len(row.cells) for row in rows), np.int64, len(rows))
        held = pa.array([cell.column for row in rows for cell in row.cells], pa.binary())
        values = pa.array([cell.value for row in rows for cell in row.cells], pa.binary())
        codes = np.asarray(pc.index_in(held, self._wanted).fill_null(-1))
        at = np.full((len(self._columns), len(rows)), -1, np.int64)
        wanted = np.flatnonzero(codes >= 0)
        at[codes[wanted], np.repeat(np.arange(len(rows)), counts)[wanted]] = wanted
        return {name: values.take(pa.array(each, mask=each < 0)) for name, each in zip(self._columns, at, strict=True)}

    def _texts(self, keys: pa.Array, cells: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The input rows for dead letters, as texts, with the row key first."""
        given = {"row key": keys} | dict(cells)
        texts = [
            pa.array([None if each is None else cell_shown(each) for each in column.to_pylist()], pa.string()) for column in given.values()
        ]
        return pa.RecordBatch.from_arrays(texts, names=list(given))


class TableReader:
    """The reader of a source and query; used by one thread."""

    def __init__(self, cluster: Gateway, wanted: ExpectedTable, options: Mapping[str, Any]) -> None:
        self._wanted = wanted
        self._compares = options["on_change"] == "stop"
        self._max_rows: int = options["max_rows"]
        self._split: int = options["split"]
        self._scan = HBaseScan(
            cluster,
            wanted.table,
            ValueRow,
            page=options["page"],
            columns=wanted.columns,
            part="all" if self._compares and wanted.cells else "first",
        )
        self._after = b""
        self._done = False

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Continue after the restored entries."""
        for streams in entries:
            for stream in streams:
                self._after, self._done = b64decode(stream.place["upto"]), stream.place["last"]

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (nothing is waited for)
        """The next ranges. Raises SourceError if the table does not exist any more, Unreachable if the cluster is unavailable."""
        if self._done:
            return []
        streams = list(self._ranges(min(self._max_rows, limits.max_rows or self._max_rows)))
        self._done = not streams or streams[-1].place["last"]
        return streams

    def backlog(self) -> Backlog:
        """Zero after all rows were read, unknown before: HBase does not count rows."""
        return Backlog(rows=0 if self._done else None)

    def notices(self) -> list[str]:
        """Returns no notices."""
        return []

    def _ranges(self, most: int) -> Iterator[SourceStream]:
        """Ranges of at most `most` rows in total. A range is complete when the next row, or the end of the table, has been read."""
        rows, taken, last = 0, 0, self._after
        digest = self._wanted.digest()
        for page in self._scan.pages(self._after, rows=most + 1):
            at = 0
            while at < len(page):
                room = min(self._split, most - taken) - rows
                if not room:
                    yield self._range(last, rows, digest, is_last=False)
                    taken += rows
                    if taken >= most:
                        return
                    rows, digest = 0, self._wanted.digest()
                    continue
                part = page[at : at + room]
                if self._compares:
                    digest.add(part)
                rows, last, at = rows + len(part), part[-1].key, at + len(part)
        if rows:
            yield self._range(last, rows, digest, is_last=True)

    def _range(self, upto: bytes, rows: int, digest: HBaseDigest, *, is_last: bool) -> SourceStream:
        place = {
            "after": b64encode(self._after).decode(),
            "upto": b64encode(upto).decode(),
            "digest": digest.text if self._compares else None,
            "last": is_last,
        }
        label = f"{self._wanted.table}[{shown(self._after)} to {shown(upto)}]"
        self._after = upto
        return SourceStream(label, place, rows=rows)
