"""Reports, once, differences between data and schema: columns that are new, missing or always null, values that became null.

Nothing here costs time per record. Files of typed formats and CSV list their columns. For JSON the first record of each file is inspected,
and one in the middle of some blocks, with their objects. So a field that few records of a large file have is reported late, or never.
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
"""the most names of one kind that a task reports: data whose keys are ids must not fill the ledger"""
_EACH, _THEN = 8, 16
"""a task inspects so many blocks of JSON, and then every 16th: inspecting records of a hundred fields costs more than decoding them"""
_FEW = 8
"""records of a block whose values are inspected, after the first blocks"""
_SHARE = 100
"""at most one of so many bytes is inspected: large records are inspected less often"""
_JSON = msgspec.json.Decoder()


class Noticer:
    """Collects the notices on one source in one task."""

    def __init__(self, source: str, schema: Schema, format: str, learned: Collection[str] = ()) -> None:
        """`learned`: columns of the schema that the flow does not declare."""
        self.found: dict[tuple[str, str], FormatNotice] = {}
        self._source = source
        self._format = format if format in FORMATS else ""
        self.types = {field.name: str(field.type) for field in schema.fields}
        """column → its declared type"""
        self._known = set(self.types)
        self._inner: set[str] = set()
        """paths of fields that were reported; a column may have the same name"""
        self._objects = [(field.name, field.type) for field in schema.fields if _has_fields(field.type)]
        self._blocks = self._passed = self._looked = 0
        """for JSON: the number of blocks and bytes so far, and of inspected bytes"""
        self._kinds = Counter[str]()
        """notices of each kind in `found`, without `nulled`"""
        self._seen: object = None
        """the columns that were inspected last"""
        self._file_name = ""
        """for JSON: the current file"""
        self._nullable = [field.name for field in schema.fields if field.nullable and field.name not in learned]
        self.nulls = NullColumns(schema.names, self._nullable)
        self._renamed: dict[str, str] = {}
        """column that the first record of the file does not have → a field of that record with a similar name"""
        self._of_file = NullColumns(schema.names, ())
        """tells which of these columns are missing in all records of the file"""

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
        """Record which columns are null in all records of a decoded block."""
        self.nulls.take(found)
        if self._renamed:
            self._of_file.take(found)

    def end(self) -> None:
        """End the current file: the last block was decoded."""
        for column in self._of_file.columns if self._of_file.records else ():
            self._note(FormatNotice(self._source, column, "renamed", self._renamed[column], self._file_name, records=self._of_file.records))
        self._renamed = {}
        self._of_file = NullColumns((), ())

    def _json(self, block: Block) -> None:
        """Inspect records of a JSON block: the first record of each file always, others within the limits on cost."""
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
        """Count a value that did not fit, or `count` of them in the block, with the place of the first."""
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
        """Note a file without records, and cells of several lines in a file with tabs, in which hardly any program quotes cells."""
        if not block.data:
            self.found.setdefault(("", "empty"), FormatNotice(self._source, "", "empty", "", block.file))
        elif ("", "lines") not in self.found and (place := longer_cell(block)) is not None:
            self.found["", "lines"] = FormatNotice(self._source, "", "lines", "", place.file, place.line)

    def _record(self, block: Block, record: bytes, ordinal: int) -> dict[str, Any]:
        """Inspect a record and return it; empty if it is not a JSON object."""
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
    """Finds the columns that are null in all inspected records: in Arrow all records, since it counts nulls; of dicts and Structs those of
    the first blocks, and a few of each later block."""

    def __init__(self, names: Collection[str], columns: Iterable[str]) -> None:
        self.names = tuple(names)
        """all columns, in the order of the schema"""
        self.columns = list(columns)
        """the columns that were always null so far"""
        self.records = 0
        """the number of inspected records"""
        self._blocks = 0

    def take(self, found: DecodedRows | DecodedColumns | Structs) -> None:
        """Inspect the records of a block."""
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
    """A name in a form in which spellings are equal: `eventId`, `event_id` and `Event-ID` are the same.

    >>> _bare("eventId"), _bare("event_id")
    ('eventid', 'eventid')
    """
    return re.sub(r"[\W_]", "", name).lower()


def _has_fields(declared: Type) -> bool:
    return declared.name == "STRUCT" or (declared.name in ("ARRAY", "MAP") and _has_fields(declared.parts[-1]))


def _surplus(path: str, declared: Type, value: Any) -> Iterator[tuple[str, Any]]:
    """(`column.field`, value) for each field of objects that their type does not have; `column.{}.field` for those in a map. Of a list the
    first and the last item are inspected, of a map the first value."""
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
    """The size in bytes; an estimate if only the block's records are known."""
    return len(block.data) if isinstance(block, LineBlock) else len(block.payload(0)) * len(block) if len(block) else 0


def _some(block: Block) -> Iterable[tuple[bytes, int]]:
    """(record, its ordinal; -1 if only its block is known)"""
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
    """The notices, for a task's report. Called after the last block."""
    for noticer in found:
        noticer.end()
    return [notice for noticer in found for notice in noticer.found.values()]


class UnfilledColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a source that were null in all `records` that a task has read: name → type."""

    records: int
    columns: dict[str, str]


def nulls_of(found: Mapping[str, Noticer]) -> dict[str, UnfilledColumns]:
    """Source → its columns without a value, for a task's report."""
    read = {source: noticer for source, noticer in found.items() if noticer.nulls.records}
    return {
        source: UnfilledColumns(records=noticer.nulls.records, columns={name: noticer.types[name] for name in noticer.nulls.columns})
        for source, noticer in read.items()
    }
