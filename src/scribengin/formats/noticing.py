"""What data have that their schema does not say, told once: columns that are new, columns that are not there, values that became null.

Nothing here costs by the record. Files of typed formats and CSV say their columns themselves; of JSON two records of a
block are looked at, the first and one in its midst, and their objects. So a field that few records have is told late, or never.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.formats.avro_container import AvroBlock
from scribengin.formats.blocks import ArrowBlock, DamageBlock, LineBlock
from scribengin.formats.csv_records import CsvBlock, longer_cell
from scribengin.formats.guess import wide_type
from scribengin.formats.notice import Notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.core.types import Schema, Type
    from scribengin.formats.contract import Block

FORMATS = frozenset({"json", "csv", "parquet", "avro"})
MOST = 100
"""names of one kind that one task tells at most: data whose keys are ids must not fill the ledger"""
_EACH, _THEN = 8, 16
"""so many blocks of JSON a task looks at, and then every 16th: records of a hundred fields cost more to look at than to decode"""
_SHARE = 100
"""one of so many bytes that pass is looked at, at most: large records are looked at more rarely"""
_JSON = msgspec.json.Decoder()


class Noticer:
    """Of one source, in one task."""

    def __init__(self, source: str, schema: Schema, format: str) -> None:
        self.found: dict[tuple[str, str], Notice] = {}
        self._source = source
        self._format = format if format in FORMATS else ""
        self._types = {field.name: str(field.type) for field in schema.fields}
        self._known = set(self._types)
        self._inner: set[str] = set()
        """ways to fields that were told; a column may have such a name too"""
        self._objects = [(field.name, field.type) for field in schema.fields if _has_fields(field.type)]
        self._blocks = self._passed = self._looked = 0
        """of JSON: blocks and bytes that came, bytes that were looked at"""
        self._kinds = Counter[str]()
        """of `found`, without `nulled`"""
        self._seen: object = None
        """the columns that were last looked at"""

    def look(self, block: Block) -> None:
        """Notice what the block's columns are."""
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
                    from scribengin.formats.own_columns import avro_columns

                    self._seen = block.writer
                    self._file(block, ((field.name, str(field.type)) for field in avro_columns(block.writer, [])))
            case _ if self._format == "json":
                self._blocks += 1
                self._passed += _size(block)
                if (self._blocks > _EACH and self._blocks % _THEN) or self._looked * _SHARE > self._passed:
                    return
                for record, ordinal in _some(block):
                    self._looked += len(record)
                    self._record(block, record, ordinal)

    def nulled(self, column: str, block: Block, ordinal: int, count: int = 1) -> None:
        """Count a value that did not fit; or several of the block, of which the first stands there."""
        known = self.found.get((column, "nulled"))
        if known is None:
            place = block.place(ordinal)
            known = Notice(self._source, column, "nulled", self._types[column], place.file, place.line)
            self.found[column, "nulled"] = known
        known.records += count

    def _file(self, block: Block, columns: Iterable[tuple[str, str]]) -> None:
        there = dict(columns)
        file = block.place(0).file
        for name, type_ in there.items():
            if name and name not in self._types:
                self._note(Notice(self._source, name, "new", type_, file))
        for name, type_ in self._types.items():
            if name not in there:
                self._note(Notice(self._source, name, "missing", type_, file))

    def _shape(self, block: CsvBlock) -> None:
        """Whether records are there, and go over several lines in a file with tabs, of which hardly any program quotes cells."""
        if not block.data:
            self.found.setdefault(("", "empty"), Notice(self._source, "", "empty", "", block.file))
        elif ("", "lines") not in self.found and (place := longer_cell(block)) is not None:
            self.found["", "lines"] = Notice(self._source, "", "lines", "", place.file, place.line)

    def _record(self, block: Block, record: bytes, ordinal: int) -> None:
        try:
            found = _JSON.decode(record)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if not isinstance(found, dict):
            return
        new = [] if found.keys() <= self._known else [(name, "new", value) for name, value in found.items() if name not in self._known]
        for name, declared in self._objects:
            new += [(inner, "field", value) for inner, value in _surplus(name, declared, found.get(name)) if inner not in self._inner]
        for name, kind, value in new:
            type_ = None if value is None else wide_type(value)
            if type_ is not None:
                place = block.place(max(ordinal, 0))
                self._note(Notice(self._source, name, kind, str(type_), place.file, place.line if ordinal >= 0 else None))

    def _note(self, notice: Notice) -> None:
        (self._inner if notice.kind == "field" else self._known).add(notice.column)
        kind = (notice.column, notice.kind)
        if kind not in self.found and self._kinds[notice.kind] < MOST:
            self._kinds[notice.kind] += 1
            self.found[kind] = notice


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


def notices_of(found: Iterable[Noticer]) -> list[dict[str, Any]]:
    """For a task's report."""
    return [notice.as_json() for noticer in found for notice in noticer.found.values()]
