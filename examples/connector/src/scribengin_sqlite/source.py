"""The source: a range of rowids is a stream. What was handed out is remembered with a checksum, so that a change is noticed."""

from __future__ import annotations

import json
import sqlite3
import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Backlog, BatchLimits, SourceStream
from scribengin.core.errors import SourceError
from scribengin.core.types import Field, Schema, Type
from scribengin.formats.contract import DecodedColumns, DecodedRows, RecordPlace
from scribengin.formats.rows import batch_to_rows, rows_to_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scribengin.connectors.contract import ConnectorContext
    from scribengin.formats.contract import Block, Decoder

_BLOCK_ROWS = 8192
_TYPES = {"INTEGER": "BIGINT", "INT": "BIGINT", "REAL": "DOUBLE", "TEXT": "STRING", "BLOB": "BINARY"}
"""what a column is declared as → what its values are; SQLite has no other kinds of values"""


class SqliteSource:
    """One table."""

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = place.schema
        self._node = place.node
        self._path = place.folder / Path(place.options["database"])
        self._table: str = place.options["table"]
        self._max_rows: int = place.options["max_rows"]

    def resolve_schema(self) -> Schema:
        """The flow's columns, or the table's own."""
        if self.schema is None:
            self.schema = Schema(tuple(self._field(*column) for column in self._columns()))
        odd = [field for field in self.schema.fields if field.type.name not in _TYPES.values()]
        if odd:
            raise SourceError(
                f'source "{self._node}": column {odd[0]} is asked, but SQLite holds only {", ".join(dict.fromkeys(_TYPES.values()))}',
                remedy="ask for what is there, and cast in a step",
            )
        return self.schema

    def reader(self) -> SqliteReader:
        """A fresh reader. Raises SourceError where database or table are missing."""
        self._columns()
        return SqliteReader(self)

    def decoder(self) -> Decoder:
        """Compares each value with its column's type."""
        return TableDecoder(self.resolve_schema())

    def read(self, stream: SourceStream) -> Iterator[TableBlock]:
        """The rows of the range. Raises SourceError, at its end, where they are not what was handed out."""
        first, last, crc = stream.place["first"], stream.place["last"], 0
        for block in self.blocks(first, last):
            crc = block.crc(crc)
            yield block
        if crc != stream.place["crc"]:
            raise SourceError(
                f"{self._path}: rows {first} to {last} of table {self._table} changed after they were taken",
                remedy="restore them, or begin anew: scribengin reset FLOW --outputs --yes",
            )

    def blocks(self, first: int, last: int, most: int = -1) -> Iterator[TableBlock]:
        """The rows with rowids from `first` to `last`, at most so many, in order."""
        names = self.resolve_schema().names
        columns = ", ".join(map(quoted, names))
        query = f"SELECT rowid, {columns} FROM {quoted(self._table)} WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?"
        with closing(self._open()) as database:
            try:
                cursor = database.execute(query, (first, last, most))
            except sqlite3.OperationalError as error:
                raise SourceError(f"{self._path}, table {self._table}: {error}", remedy="correct `table` or `schema`") from error
            while rows := cursor.fetchmany(_BLOCK_ROWS):
                yield TableBlock(f"{self._path.name}/{self._table}", names, rows)

    def backlog(self, after: int) -> int:
        """How many rows follow that rowid."""
        with closing(self._open()) as database:
            (rows,) = database.execute(f"SELECT count(*) FROM {quoted(self._table)} WHERE rowid > ?", (after,)).fetchone()
        return int(rows)

    @property
    def max_rows(self) -> int:
        """What one Batch takes at most."""
        return self._max_rows

    def _open(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise SourceError(f"{self._path} is not there", remedy="correct `database`: it starts at the flow file's folder")
        return sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=30)

    def _columns(self) -> list[tuple[str, str, int]]:
        """(name, declared type, NOT NULL) of the table."""
        with closing(self._open()) as database:
            found = database.execute('SELECT name, type, "notnull" FROM pragma_table_info(?)', (self._table,)).fetchall()
        if not found:
            raise SourceError(f'{self._path} has no table "{self._table}"', remedy="correct `table`")
        return found

    def _field(self, name: str, declared: str, not_null: int) -> Field:
        type_ = _TYPES.get(declared.upper())
        if type_ is None:
            raise SourceError(
                f'{self._path}: column "{name}" is declared as {declared or "nothing"}', remedy="say in `schema` what it holds"
            )
        return Field(name, Type(type_), nullable=not not_null)


class SqliteReader:
    """Hands out rowids in order. A row that appears later under a smaller rowid is never seen: the table must be append-only."""

    def __init__(self, source: SqliteSource) -> None:
        self._source = source
        self._last = 0

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Go on behind the last row that was handed out."""
        for streams in entries:
            self._last = max([self._last, *(stream.place["last"] for stream in streams)])

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002 (a row that is there is finished)
        """The next rows as one stream; reading them here once is what lets a later change be noticed."""
        most = min(self._source.max_rows, limits.max_rows or self._source.max_rows)
        first, rows, crc = self._last + 1, 0, 0
        for block in self._source.blocks(first, 2**63 - 1, most):
            rows, crc = rows + len(block), block.crc(crc)
            self._last = block.rows[-1][0]
        if not rows:
            return []
        return [SourceStream(f"rows {first} to {self._last}", {"first": first, "last": self._last, "crc": crc}, rows=rows)]

    def backlog(self) -> Backlog:
        """The rows that wait."""
        return Backlog(rows=self._source.backlog(self._last))

    def notices(self) -> list[str]:
        """Nothing to tell."""
        return []


@dataclass(slots=True)
class TableBlock:
    """Some rows: (rowid, value, …) each."""

    file: str
    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def place(self, ordinal: int) -> RecordPlace:
        """The rowid."""
        return RecordPlace(self.file, row=self.rows[ordinal][0])

    def payload(self, ordinal: int) -> bytes:
        """The row as JSON."""
        return json.dumps(dict(zip(self.names, self.rows[ordinal][1:], strict=True)), default=repr).encode()

    def crc(self, before: int) -> int:
        """A checksum over the rows, going on from `before`."""
        return zlib.crc32(repr(self.rows).encode(), before)

    def __len__(self) -> int:
        """How many rows."""
        return len(self.rows)


class TableDecoder:
    """A value of another kind than its column's, and a null where NOT NULL is asked, make the row a dead letter."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def rows(self, block: Block) -> DecodedRows:
        """The rows as dicts."""
        columns = self.columns(block)
        return DecodedRows(batch_to_rows(columns.batch), columns.ordinals, columns.bad)

    def columns(self, block: Block) -> DecodedColumns:
        """The rows as an Arrow batch."""
        assert isinstance(block, TableBlock)
        rows = [dict(zip(block.names, row[1:], strict=True)) for row in block.rows]
        batch, bad = rows_to_batch(rows, self.schema, range(len(rows)))
        failed = {each.ordinal for each in bad}
        return DecodedColumns(batch, [ordinal for ordinal in range(len(rows)) if ordinal not in failed] if bad else range(len(rows)), bad)


def quoted(name: str) -> str:
    """A name for SQLite's parser."""
    return '"' + name.replace('"', '""') + '"'
