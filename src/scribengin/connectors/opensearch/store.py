"""An index as a keyed store: `_bulk` with external versions, of which the server keeps the highest.

A document is written if its version is above the stored one. Otherwise the answer is 409, and the stored document is this row or a later
one (OpenSearch's and Elasticsearch's reference, "Index API": `version_type: external`).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.keyed.contract import WriteAnswer, WriterRecord
from scribengin.connectors.keyed.http import AWAY
from scribengin.connectors.opensearch.by_time import TimeTemplate
from scribengin.connectors.opensearch.client import BLOCKED, OpenSearchCluster, reason_in
from scribengin.core.errors import SinkError
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.keyed.contract import KeyedRows
    from scribengin.core.types import Field, Schema, Type


# The body of a `_bulk` request, built column by column.


_ESCAPED = r'[\x00-\x1f"\\]'
"""characters that JSON must escape in a text"""


def bulk_body(rows: KeyedRows, indexes: pa.Array | str) -> bytes:
    """Two lines for each row: the action, with index, id and version; and the document. `indexes` is the name of the common index, or the
    index of each row (STRING)."""
    versions = pa.array(np.arange(rows.version, rows.version + len(rows), dtype=np.int64)).cast(pa.string())
    begin = b'{"index":{"_index":"'
    named = (begin + _inside(indexes),) if isinstance(indexes, str) else (begin, _insides(indexes))
    joined = pc.binary_join_element_wise(
        *named,
        b'","_id":"',
        _insides(pa.array(rows.ids, pa.string())),
        b'","version":',
        versions.cast(pa.binary()),
        b',"version_type":"external"}}\n',
        rows.columns.column(0),
        b"\n",
        b"",
    )
    _, offsets, data = joined.buffers()
    assert joined.offset == 0
    body: bytes = data[: np.frombuffer(offsets, np.int32)[len(rows)]].to_pybytes()
    return body


def _insides(texts: pa.Array) -> pa.Array:
    """Each text (BINARY) as it is written in JSON, without the quotes."""
    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return pa.array([_inside(text) for text in texts.to_pylist()], pa.binary())
    return texts.cast(pa.binary())


def _inside(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]


# The columns of a flow as a mapping of an index.


_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DECIMAL": "double",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "date",
}
_WIDER = {
    "boolean": ("keyword", "text"),
    "byte": ("short", "integer", "long", "float", "double", "scaled_float", "keyword", "text"),
    "short": ("integer", "long", "float", "double", "scaled_float", "keyword", "text"),
    "integer": ("long", "double", "scaled_float", "keyword", "text"),
    "long": ("unsigned_long", "scaled_float", "keyword", "text"),
    "float": ("double", "scaled_float", "half_float", "keyword", "text"),
    "double": ("scaled_float", "float", "keyword", "text"),
    "date": ("date_nanos", "keyword", "text"),
    "binary": ("keyword", "text"),
    "text": ("keyword", "wildcard", "match_only_text", "constant_keyword", "ip", "date", "search_as_you_type", "completion", "geo_point"),
    "object": ("nested", "flattened", "flat_object"),
}
"""default mapping of a column → other mappings that accept its values; a value that does not fit becomes a dead letter"""
_LONG_TEXT = 8191
"""maximum length of a text that can be sorted and aggregated: with four bytes per character it is below Lucene's limit of 32,766 bytes"""


def mapping_of(schema: Schema) -> dict[str, Any]:
    """The mapping of a new index, which refuses other fields."""
    return {"dynamic": "strict", "properties": _properties(schema.fields)}


def unlike(schema: Schema, mapping: Mapping[str, Any]) -> list[str]:
    """Why an existing index with this mapping does not accept rows with these columns, one sentence per reason."""
    held: Mapping[str, Any] = mapping.get("properties", {})
    found = []
    for field in schema.fields:
        if field.name not in held:
            if mapping.get("dynamic") in ("strict", "strict_allow_templates"):
                found.append(f'the index has no mapping for field "{field.name}", and accepts no unmapped fields')
            continue
        ours, there = _property(field.type).get("type", "object"), held[field.name].get("type", "object")
        if there != ours and there not in _WIDER.get(ours, ()):
            found.append(f'field "{field.name}" is {there} in the index, but {field.type} in the flow')
    return found


def _properties(fields: Iterable[Field]) -> dict[str, Any]:
    return {field.name: _property(field.type) for field in fields}


def _property(type_: Type) -> dict[str, Any]:
    match type_.name:
        case "STRING":
            return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _LONG_TEXT}}}
        case "ARRAY":
            return _property(type_.parts[0])
        case "MAP":
            return {"type": "object", "enabled": False}  # its keys are data: each would become a field
        case "STRUCT":
            return {"type": "object", "properties": _properties(type_.fields)}
    return {"type": _TYPES[type_.name]}


_BRIEFLY = "filter_path=errors,items.*.error.type,items.*.error.reason"
"""the query of a request whose answer contains only the rows that were not accepted: a full answer costs up to a tenth of the write
itself"""
_IN_FULL = "filter_path=errors,items.*._index,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
_IN_DETAIL = 16
"""number of requests with full answers after a row was refused"""
_CURRENT = re.compile(r"current version \[(\d+)\]")
_SOME = 5_000
_UNKNOWN, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_LARGE, _OVERLOADED = 401, 403, 404, 409, 413, 429
_CONFLICTS = "version_conflict_engine_exception"
_CLOSED = "index_closed_exception"
_LOOK_S = 1.0
"""seconds between two checks that the index is still the same: a write to a deleted index would create another one, without our mapping"""
_TEMPLATE = "scribengin-"
"""prefix of the names of our index templates"""


class IndexStore:
    """A KeyedStore in an index or, if the index name contains a time of the row, in one index for each time. One record names the writer of
    all of them."""

    form: Literal["json", "columns"] = "json"
    most_id_bytes = 512

    def __init__(self, node: str, options: Mapping[str, Any]) -> None:
        self._node = node
        self._cluster = OpenSearchCluster(node, options["server"], options["config"])
        self._index: str = options["index"]
        try:
            self.by_time = TimeTemplate.of(self._index)
        except ValueError as error:
            raise self._error(f"has {error}", "correct `index`", "search-index") from error
        self._gzipped: bool = options["compression"] == "gzip"
        self._schema: Schema | None = None
        self._made: set[str] = set()
        self._uuid = ""
        """the id of the single index, since it was created or found"""
        self._looked = 0.0
        self._in_detail = 0
        """number of further requests with full answers"""
        self._repeats = False
        """True if the last request changed nothing: its rows may have been sent before"""
        self._record = f"/{quote(options['records'], safe='')}/_doc/{quote(self._index, safe='')}"

    def __str__(self) -> str:
        return f"index {self._index} at {self._cluster}"

    def read_record(self) -> WriterRecord | None:
        """Read the record by its id, which is never stale."""
        answer = self._cluster.ask("GET", self._record, also=[_NOT_FOUND])
        if answer.status_code == _NOT_FOUND:
            return None
        found = answer.json()
        # the record is stored as one text, because its numbers would be mapped as fields, and could be too large for that
        return WriterRecord(
            msgspec.json.decode(found["_source"]["record"]), f"if_seq_no={found['_seq_no']}&if_primary_term={found['_primary_term']}"
        )

    def write_record(self, body: Mapping[str, Any], held: WriterRecord | None) -> bool:
        """Replace the record if it still has the sequence number that was read."""
        condition = "op_type=create" if held is None else held.tag
        document = {"record": msgspec.json.encode(body).decode()}
        answer = self._cluster.ask("PUT", f"{self._record}?{condition}&refresh=true", json=document, also=[_CONFLICT])
        return answer.status_code != _CONFLICT

    def make(self, schema: Schema) -> None:
        """Create the index with a mapping of the columns; an existing one is not changed. For indexes by time, create only their template:
        each is created with its first row. Raises SinkError if the index could lose acknowledged rows."""
        self._schema = schema
        if self.by_time is None:
            self._make(self._index)
        else:
            self._put_template(self.by_time, mapping_of(schema))

    def unlike(self, schema: Schema) -> list[str]:
        """Why the existing indexes do not accept these columns, one sentence per reason."""
        answer = self._cluster.ask("GET", f"{self._all}/_mapping", also=[_NOT_FOUND])
        if answer.status_code == _NOT_FOUND:
            return []
        found: dict[str, list[str]] = {}
        for name, each in answer.json().items():
            if self._is_ours(name):
                for text in unlike(schema, each["mappings"]):
                    found.setdefault(text, []).append(name)
        if self.by_time is None:
            return list(found)
        return [f"{text} (of {min(names)}{f' and {len(names) - 1} more' if names[1:] else ''})" for text, names in found.items()]

    def is_there(self) -> bool:
        """True if the index exists. Always True for indexes by time, which may all have been deleted because of their age."""
        return self.by_time is not None or self._cluster.ask("HEAD", _path(self._index), also=[_NOT_FOUND]).status_code != _NOT_FOUND

    def is_empty(self) -> bool:
        """True if all indexes are empty, counted after a refresh."""
        return all(map(self._has_none, self._names()))

    def send(self, rows: KeyedRows) -> WriteAnswer:
        """Write the rows, normally in one request. If the last request changed nothing, the stored versions are compared first."""
        self._check_index()
        if self._repeats and (above := self._all_stand(rows)):
            return WriteAnswer(above=above)
        self._repeats = False
        body = bulk_body(rows, self._index if self.by_time is None else self._parts(rows))
        if not self._in_detail:
            answer = self._ask_bulk(rows, body, _BRIEFLY)
            if isinstance(answer, WriteAnswer):
                return answer
            errors = [item["index"]["error"] for item in answer]
            if all(error["type"] == _CONFLICTS for error in errors):
                self._repeats = len(errors) == len(rows)
                if errors:
                    self._flush(self._names_of(rows))
                return WriteAnswer(above=max(map(_version_there, errors), default=0))
            # the short answer does not name the refused rows: the request is repeated, which does not write accepted rows again
            self._in_detail = _IN_DETAIL
        answer = self._ask_bulk(rows, body, _IN_FULL)
        return answer if isinstance(answer, WriteAnswer) else self._judged(rows, answer)

    def _ask_bulk(self, rows: KeyedRows, body: bytes, asked: str) -> WriteAnswer | list[dict[str, Any]]:
        """Send the rows. Returns the complete result, or the items of the answer if some rows were not accepted."""
        passing = [_TOO_LARGE, _OVERLOADED]
        answer = self._cluster.ask("POST", f"/_bulk?{asked}", content=body, also=passing, gzipped=self._gzipped)
        if answer.status_code == _TOO_LARGE:
            return WriteAnswer(too_large=True)
        if answer.status_code == _OVERLOADED:
            return WriteAnswer(again=range(len(rows)), why=reason_in(answer))
        said = msgspec.json.decode(answer.content)
        if not said["errors"]:
            return WriteAnswer()
        items: list[dict[str, Any]] = said["items"]
        return items

    def _judged(self, rows: KeyedRows, items: list[dict[str, Any]]) -> WriteAnswer:
        """Classify the items of a full answer. A refused row counts as accepted if it is stored already, from an earlier attempt."""
        again: list[int] = []
        refused: list[tuple[int, str, str]] = []
        above, why = 0, ""
        for index, item in enumerate(items):
            outcome = item["index"]
            status = outcome["status"]
            if status < 300:
                continue
            error = outcome["error"]
            if status == _CONFLICT:
                above = max(above, _version_there(error))
            elif status in AWAY or error["type"] == BLOCKED:
                again.append(index)
                why = why or f"{error['type']}: {error['reason']}"
            elif status in (_UNKNOWN, _FORBIDDEN):
                raise self._cluster.not_allowed(f"rejected writes to {outcome['_index']}: {error['type']}: {error['reason']}")
            elif error["type"] == _CLOSED:
                raise self._error(f"is closed ({outcome['_index']})", "open it: POST /INDEX/_open", "search-index")
            elif status == _NOT_FOUND and self.by_time is not None:
                self._made.clear()  # an old index that was deleted meanwhile
                again.append(index)
            elif status == _NOT_FOUND:
                raise self._gone()
            else:
                caused = error.get("caused_by", {}).get("reason")
                refused.append(
                    (
                        index,
                        "refused",
                        f"{outcome['_index']} rejected the document: {error['type']}: {error['reason']}"
                        + (f" ({caused})" if caused else ""),
                    )
                )
        if not refused and not again:
            self._in_detail = max(0, self._in_detail - 1)
        if above:
            self._flush(self._names_of(rows))
        return WriteAnswer(self._not_there(rows, refused) if refused else (), again, above=above, why=why)

    def _all_stand(self, rows: KeyedRows) -> int:
        """The highest stored version of these documents if none is below the version of its row; else 0. The documents are made durable
        first."""
        asked: dict[str, Any]
        if self.by_time is None:
            path, asked = f"{_path(self._index)}/_mget", {"ids": list(rows.ids)}
        else:
            named = zip(rows.columns.column(1).to_pylist(), rows.ids, strict=True)
            path, asked = "/_mget", {"docs": [{"_index": name, "_id": id_} for name, id_ in named]}
        answer = self._cluster.ask("POST", f"{path}?_source=false&filter_path=docs._version", json=asked, also=[_FORBIDDEN, _NOT_FOUND])
        if answer.status_code != 200:
            return 0
        there: list[int] = [doc["_version"] for doc in msgspec.json.decode(answer.content).get("docs", ())]
        if len(there) < len(rows) or any(version < ours for ours, version in enumerate(there, rows.version)):
            return 0
        return max(there) if self._flush(self._names_of(rows)) else 0

    def _flush(self, names: Iterable[str]) -> bool:
        """Write the contents of these indexes to the disks of all copies; returns whether that succeeded. A write request does so only for
        its own rows: those of an earlier request may be only in the memory of a node, if the driver was killed before it got the answer."""
        asked = [self._cluster.ask("POST", f"{_path(name)}/_flush", also=[_FORBIDDEN, _NOT_FOUND]) for name in names]
        return all(answer.status_code == 200 and not answer.json()["_shards"]["failed"] for answer in asked)

    def versions(self) -> Iterator[Sequence[int]]:
        """The versions of all documents, read by a scroll."""
        for hits in self._hits():
            yield [hit["_version"] for hit in hits]

    def clear(self) -> int:
        """Delete document by document, which needs no extra module on the server; the index is kept."""
        deleted = 0
        while not self.is_empty():
            for hits in self._hits():
                named = [msgspec.json.encode({"_index": hit["_index"], "_id": hit["_id"]}) for hit in hits]
                asked = b"".join(b'{"delete":%s}\n' % each for each in named)
                said = self._cluster.ask("POST", "/_bulk?filter_path=items.*.result", content=asked).json()
                deleted += sum(item["delete"].get("result") == "deleted" for item in said["items"])
        return deleted

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _hits(self) -> Iterator[list[dict[str, Any]]]:
        for name in self._names():
            if not self._has_none(name):
                yield from self._hits_of(name)

    def _hits_of(self, name: str) -> Iterator[list[dict[str, Any]]]:
        asked = {"size": _SOME, "_source": False, "version": True, "sort": ["_doc"]}
        found = self._cluster.ask("POST", f"{_path(name)}/_search?scroll=2m", json=asked).json()
        try:
            while hits := found["hits"]["hits"]:
                yield hits
                found = self._cluster.ask("POST", "/_search/scroll", json={"scroll": "2m", "scroll_id": found["_scroll_id"]}).json()
        finally:
            self._cluster.ask("DELETE", "/_search/scroll", json={"scroll_id": found["_scroll_id"]}, also=[_NOT_FOUND])

    # --- its indexes ---

    @property
    def _all(self) -> str:
        """The path of all existing indexes of the sink, and perhaps of others."""
        return _path(self._index if self.by_time is None else self.by_time.wildcard)

    def _is_ours(self, name: str) -> bool:
        return self.by_time is None or self.by_time.fits(name)

    def _names(self) -> list[str]:
        """The names of the existing indexes by time, or the name of the single index."""
        if self.by_time is None:
            return [self._index]
        found = self._cluster.ask("GET", f"{self._all}/_settings/index.uuid?expand_wildcards=open,hidden").json()
        return sorted(filter(self._is_ours, found))

    def _has_none(self, name: str) -> bool:
        if self._cluster.ask("POST", f"{_path(name)}/_refresh", also=[_NOT_FOUND]).status_code == _NOT_FOUND:
            return True
        return not self._cluster.ask("GET", f"{_path(name)}/_count").json()["count"]

    def _names_of(self, rows: KeyedRows) -> Sequence[str]:
        """The names of the indexes of the rows."""
        if self.by_time is None:
            return (self._index,)
        names: list[str] = rows.columns.column(1).unique().to_pylist()
        return names

    def _parts(self, rows: KeyedRows) -> pa.Array:
        """The index name of each row; missing indexes are created."""
        named = rows.columns.column(1)
        for name in named.unique().to_pylist():
            if name not in self._made:
                self._make(name)
        return named

    def _make(self, name: str) -> None:
        assert self._schema is not None, "a place must be created before rows are sent"
        answer = self._cluster.ask("PUT", _path(name), json={"mappings": mapping_of(self._schema)}, also=[400])
        if answer.status_code == 400 and answer.json()["error"]["type"] != "resource_already_exists_exception":
            raise self._error(f"cannot be created: {reason_in(answer)}", "correct `index`, or the settings of the cluster", "search-index")
        asked = f"{_path(name)}/_settings/index.uuid,index.translog.durability?flat_settings=true"
        settings = [each["settings"] for each in self._cluster.ask("GET", asked).json().values()]
        if any(each.get("index.translog.durability") == "async" for each in settings):
            raise self._error(
                f"has index.translog.durability: async ({name}): acknowledged rows are lost if a node fails",
                "set it to request",
                "search-durability",
            )
        self._made.add(name)
        self._uuid = "" if self.by_time is not None else settings[0]["index.uuid"]

    def _check_index(self) -> None:
        """Check, at most once a second, that the single index is still the same. Raises SinkError if not. Indexes by time are not checked,
        because old ones are usually deleted."""
        if not self._uuid or time.monotonic() - self._looked < _LOOK_S:
            return
        answer = self._cluster.ask("GET", f"{_path(self._index)}/_settings/index.uuid?flat_settings=true", also=[_FORBIDDEN, _NOT_FOUND])
        if answer.status_code == _FORBIDDEN:
            return
        if answer.status_code == _NOT_FOUND or any(each["settings"]["index.uuid"] != self._uuid for each in answer.json().values()):
            raise self._gone()
        self._looked = time.monotonic()

    def _put_template(self, by_time: TimeTemplate, mapping: Mapping[str, Any]) -> None:
        """Create the template, so that new indexes always get our mapping. A server applies only one of several templates: if another
        writer's template matches, it is kept, and only the indexes that we create have our mapping."""
        own = f"{_TEMPLATE}{by_time.title}"
        sample = by_time.wildcard.replace("*", "0")
        found = self._cluster.ask("GET", "/_index_template?filter_path=index_templates.name,index_templates.index_template.index_patterns")
        for each in found.json().get("index_templates", ()):
            if each["name"] != own and any(_matches(pattern, sample) for pattern in each["index_template"]["index_patterns"]):
                return
        body = {"index_patterns": [by_time.wildcard], "template": {"mappings": mapping}}
        answer = self._cluster.ask("PUT", f"/_index_template/{quote(own, safe='')}", json=body, also=[400])
        if answer.status_code == 400:
            raise self._error(f"cannot have an index template: {reason_in(answer)}", "correct `index`, or that template", "search-index")

    def _not_there(self, rows: KeyedRows, refused: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
        part = rows.columns.column(1) if self.by_time is not None else None
        asked = [
            {"_index": self._index if part is None else part[index].as_py(), "_id": rows.ids[index], "_source": False}
            for index, _, _ in refused
        ]
        found = self._cluster.ask("POST", "/_mget", json={"docs": asked}).json()["docs"]
        there = [
            doc.get("found", False) and doc["_version"] == rows.version + index for doc, (index, _, _) in zip(found, refused, strict=True)
        ]
        return [each for each, stands in zip(refused, there, strict=True) if not stands]

    def _gone(self) -> SinkError:
        remedy = f"restore it, with its documents; or {start_over()}"
        return self._error("does not exist any more, nor do the documents that were written", remedy, "search-index")

    def _error(self, what: str, remedy: str, code: str) -> SinkError:
        return SinkError(f'sink "{self._node}": {self} {what}', remedy=remedy, code=code, node=self._node)


def _version_there(error: Mapping[str, Any]) -> int:
    """The stored version of a document in conflict; 0 if the server does not report it."""
    found = _CURRENT.search(error["reason"])
    return int(found[1]) if found else 0


def _path(name: str) -> str:
    return f"/{quote(name, safe='*')}"


def _matches(pattern: str, name: str) -> bool:
    """True if a name matches a pattern of the server, in which only `*` is special."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
