"""Reports, once, differences between data and schema: columns that are new, missing or always null, values that became
null.

Nothing here costs by the record. Files of typed formats and CSV say their columns themselves; of JSON the first record of each file is
looked at, of a block one in its midst too, and their objects. So a field that few records of a large file have is reported late, or never.
"""

from __future__ import annotations

import re
from collections import Counter
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.formats.avro_container import AvroBlock
from scribengin.formats.blocks import ArrowBlock, DamageBlock, LineBlock
from scribengin.formats.contract import DecodedColumns, Structs
from scribengin.formats.csv_records import CsvBlock, longer_cell
from scribengin.formats.notice import FormatNotice
from scribengin.formats.type_inference import wide_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from scribengin.core.types import Schema, Type
    from scribengin.formats.contract import Block, DecodedRows


FORMATS = frozenset({"json", "csv", "parquet", "avro"})
MOST = 100
"""maximum number of names of one kind that a task reports: data whose keys are ids must not fill the ledger"""
_EACH, _THEN = 8, 16
"""so many blocks of JSON a task looks at, and then every 16th: records of a hundred fields cost more to look at than to decode"""
_FEW = 8
"""records of a block of which the values are looked at, behind the first blocks"""
_SHARE = 100
"""one of so many bytes that pass is looked at, at most: large records are looked at more rarely"""
_JSON = msgspec.json.Decoder()


class Noticer:
    """Of one source, in one task."""

    def __init__(self, source: str, schema: Schema, format: str, learned: Collection[str] = ()) -> None:
        """`learned`: columns of the schema that the flow does not declare."""
        self.found: dict[tuple[str, str], FormatNotice] = {}
        self._source = source
        self._format = format if format in FORMATS else ""
        self.types = {field.name: str(field.type) for field in schema.fields}
        """of the columns, as they are declared"""
        self._known = set(self.types)
        self._inner: set[str] = set()
        """paths of fields that were reported; a column may have such a name too"""
        self._objects = [(field.name, field.type) for field in schema.fields if _has_fields(field.type)]
        self._blocks = self._passed = self._looked = 0
        """of JSON: blocks and bytes that came, bytes that were looked at"""
        self._kinds = Counter[str]()
        """of `found`, without `nulled`"""
        self._seen: object = None
        """the columns that were last looked at"""
        self._file_name = ""
        """of JSON, the file that is read"""
        self._nullable = [field.name for field in schema.fields if field.nullable and field.name not in learned]
        self.nulls = NullColumns(schema.names, self._nullable)
        self._renamed: dict[str, str] = {}
        """column that the first record of the file lacks → a field of that record with nearly its name"""
        self._of_file = NullColumns(schema.names, ())
        """of these columns, what the file has"""

    def inspect(self, block: Block) -> None:
        """Compare the columns of the block with the schema."""
        match block:
            case DamageBlock():
                return
            case CsvBlock():
                if block.header is not None and block.header is not self._seen:
                    self._seen = block.header
                    self._file(block, ((name, "STRING") for name in block.header))
                self._shape(block)
            case ArrowBlock():
                if block.columns is not None and block.columns is not self._seen:
                    self._seen = block.columns
                    self._file(block, block.columns)
                for column, count in block.unfit.items():
                    self.nulled(column, block, 0, count)
            case AvroBlock():
                if block.writer is not self._seen:
                    from scribengin.formats.file_columns import avro_columns

                    self._seen = block.writer
                    self._file(block, ((field.name, str(field.type)) for field in avro_columns(block.writer, [])))
            case _ if self._format == "json":
                self._json(block)

    def decoded(self, found: DecodedRows | DecodedColumns | Structs) -> None:
        """Notice which columns of a block that was looked at have no value at all."""
        self.nulls.take(found)
        if self._renamed:
            self._of_file.take(found)

    def end(self) -> None:
        """The last block was decoded."""
        for column in self._of_file.columns if self._of_file.records else ():
            self._note(FormatNotice(self._source, column, "renamed", self._renamed[column], self._file_name, records=self._of_file.records))
        self._renamed = {}
        self._of_file = NullColumns((), ())

    def _json(self, block: Block) -> None:
        """The first record of a file is looked at, whatever was before it; others as far as they may cost."""
        self._blocks += 1
        self._passed += _size(block)
        enough = (self._blocks > _EACH and self._blocks % _THEN > 0) or self._looked * _SHARE > self._passed
        file = block.file if isinstance(block, LineBlock) else ""
        begins = file not in ("", self._file_name)
        for record, ordinal in _some(block) if begins or not enough else ():
            self._looked += len(record)
            found = self._record(block, record, ordinal)
            if begins and ordinal == 0:
                self._begin_file(file, found)
            if enough:
                break

    def _begin_file(self, file: str, record: dict[str, Any]) -> None:
        self.end()
        self._file_name = file
        absent = [name for name in self._nullable if record and name not in record and (name, "renamed") not in self.found]
        others = {_bare(name): name for name in record if name not in self.types} if absent else {}
        self._renamed = {name: others[_bare(name)] for name in absent if _bare(name) in others}
        self._of_file = NullColumns(self.nulls.names, self._renamed)

    def nulled(self, column: str, block: Block, ordinal: int, count: int = 1) -> None:
        """Count a value that did not fit; or several of the block, with the place of the first."""
        known = self.found.get((column, "nulled"))
        if known is None:
            place = block.place(ordinal)
            known = FormatNotice(self._source, column, "nulled", self.types[column], place.file, place.line)
            self.found[column, "nulled"] = known
        known.records += count

    def _file(self, block: Block, columns: Iterable[tuple[str, str]]) -> None:
        there = dict(columns)
        file = block.place(0).file
        for name, type_ in there.items():
            if name and name not in self.types:
                self._note(FormatNotice(self._source, name, "new", type_, file))
        for name, type_ in self.types.items():
            if name not in there:
                self._note(FormatNotice(self._source, name, "missing", type_, file))

    def _shape(self, block: CsvBlock) -> None:
        """Whether records are there, and go over several lines in a file with tabs, of which hardly any program quotes cells."""
        if not block.data:
            self.found.setdefault(("", "empty"), FormatNotice(self._source, "", "empty", "", block.file))
        elif ("", "lines") not in self.found and (place := longer_cell(block)) is not None:
            self.found["", "lines"] = FormatNotice(self._source, "", "lines", "", place.file, place.line)

    def _record(self, block: Block, record: bytes, ordinal: int) -> dict[str, Any]:
        """The record; empty where it is none."""
        try:
            found = _JSON.decode(record)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        new = [] if found.keys() <= self._known else [(name, "new", value) for name, value in found.items() if name not in self._known]
        for name, declared in self._objects:
            new += [(inner, "field", value) for inner, value in _surplus(name, declared, found.get(name)) if inner not in self._inner]
        for name, kind, value in new:
            type_ = None if value is None else wide_type(value)
            if type_ is not None:
                place = block.place(max(ordinal, 0))
                self._note(FormatNotice(self._source, name, kind, str(type_), place.file, place.line if ordinal >= 0 else None))
        return found

    def _note(self, notice: FormatNotice) -> None:
        (self._inner if notice.kind == "field" else self._known).add(notice.column)
        kind = (notice.column, notice.kind)
        if kind not in self.found and self._kinds[notice.kind] < MOST:
            self._kinds[notice.kind] += 1
            self.found[kind] = notice


class NullColumns:
    """Which of some columns were null in all records that were looked at: all of them as Arrow, which knows its nulls; of dicts and Structs
    those of the first blocks, and a few of each block behind."""

    def __init__(self, names: Collection[str], columns: Iterable[str]) -> None:
        self.names = tuple(names)
        """of all columns, in the order of the schema"""
        self.columns = list(columns)
        """those that were always null"""
        self.records = 0
        """that were looked at"""
        self._blocks = 0

    def take(self, found: DecodedRows | DecodedColumns | Structs) -> None:
        """The records of a block."""
        if isinstance(found, DecodedColumns):
            self.records += (count := found.batch.num_rows)
            if count and self.columns:
                batch, names = found.batch, self.names
                self.columns = [name for name in self.columns if batch.column(names.index(name)).null_count == count]
            return
        records = found.structs if isinstance(found, Structs) else found.rows
        if len(records) > _FEW and self._blocks >= _EACH:
            records = records[:: len(records) // _FEW]
        self._blocks += 1
        self.records += len(records)
        if not records or not self.columns:
            return
        if isinstance(found, Structs):
            getters: dict[str, Callable[[Any], Any]] = {name: attrgetter(f"f{self.names.index(name)}") for name in self.columns}
        else:
            getters = {name: itemgetter(name) for name in self.columns}
        # most columns have a value in the first record
        self.columns = [name for name in self.columns if getters[name](records[0]) is None]
        self.columns = [name for name in self.columns if [*map(getters[name], records)].count(None) == len(records)]


def _bare(name: str) -> str:
    """What stays of a name when it is written another way: `eventId`, `event_id` and `Event-ID` are the same.

    >>> _bare("eventId"), _bare("event_id")
    ('eventid', 'eventid')
    """
    return re.sub(r"[\W_]", "", name).lower()


def _has_fields(declared: Type) -> bool:
    return declared.name == "STRUCT" or (declared.name in ("ARRAY", "MAP") and _has_fields(declared.parts[-1]))


def _surplus(path: str, declared: Type, value: Any) -> Iterator[tuple[str, Any]]:
    """(`column.field`, value) of what objects have that their type has not, `column.{}.field` of those in a map. Of a list the first item
    and the last are looked at, of a map the first value."""
    if declared.name == "ARRAY":
        if isinstance(value, list) and value and _has_fields(declared.parts[0]):
            for item in value[:1] + value[1:][-1:]:
                yield from _surplus(path, declared.parts[0], item)
    elif declared.name == "MAP":
        if isinstance(value, dict) and value and _has_fields(declared.parts[1]):
            yield from _surplus(f"{path}.{{}}", declared.parts[1], next(iter(value.values())))
    elif declared.name == "STRUCT" and isinstance(value, dict):
        types = {field.name: field.type for field in declared.fields}
        for name, part in value.items():
            if name not in types:
                yield f"{path}.{name}", part
            else:
                yield from _surplus(f"{path}.{name}", types[name], part)


def _size(block: Block) -> int:
    """In bytes; about, where only its records are known."""
    return len(block.data) if isinstance(block, LineBlock) else len(block.payload(0)) * len(block) if len(block) else 0


def _some(block: Block) -> Iterable[tuple[bytes, int]]:
    """(record, ordinal, -1 where only its block is known)"""
    if not isinstance(block, LineBlock):
        if len(block):
            yield block.payload(0), 0
        return
    data = block.data
    yield data[: data.find(b"\n") + 1 or len(data)], 0
    begin = data.rfind(b"\n", 0, len(data) // 2) + 1
    if begin:
        yield data[begin : data.find(b"\n", begin) + 1 or len(data)], -1


def notices_of(found: Iterable[Noticer]) -> list[FormatNotice]:
    """For a task's report, behind its last block."""
    for noticer in found:
        noticer.end()
    return [notice for noticer in found for notice in noticer.found.values()]


class UnfilledColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a source that were null in all `records` that a task has read: name → type."""

    records: int
    columns: dict[str, str]


def nulls_of(found: Mapping[str, Noticer]) -> dict[str, UnfilledColumns]:
    """For a task's report, by source."""
    read = {source: noticer for source, noticer in found.items() if noticer.nulls.records}
    return {
        source: UnfilledColumns(records=noticer.nulls.records, columns={name: noticer.types[name] for name in noticer.nulls.columns})
        for source, noticer in read.items()
    }
