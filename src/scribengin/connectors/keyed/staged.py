"""Rows of one task output in a file of the state folder, with their ids at the place: an Arrow stream with a checksum."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa

from scribengin.connectors.keyed.brief import brief_ids
from scribengin.connectors.keyed.contract import KeyedRows, Texts
from scribengin.connectors.staged_file import StagedFile, open_staged
from scribengin.core import faults
from scribengin.core.storage import explained, names_in, remove_tree
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.formats.contract import Bad
from scribengin.formats.json_lines import json_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import Receipt
    from scribengin.connectors.keyed.contract import PartitionedPlace
    from scribengin.core.types import Schema

_ID, _OF, _DOC, _PART = "id", "of", "doc", "part"
_FORM = pa.schema([(_ID, pa.string()), (_OF, pa.string())])
"""columns before the row's own: the id at the place, and the origin of the row if that differs"""
_COLUMNS = b"columns"
"""metadata of the file: the flow's columns as DDL"""


@dataclass(frozen=True, slots=True)
class StagedForm:
    """The form of staged rows: as JSON or in columns, and the source of their ids."""

    json: bool
    key: tuple[str, ...]
    """empty: a row's id is its origin"""
    most_id_bytes: int
    parts: PartitionedPlace | None = None
    """with `json` only"""


class StagedStream:
    """See the contract. No file is created before the first row."""

    wants_ids = True

    def __init__(self, sink: str, folder: Path, unit: int, attempt: str, schema: Schema, form: StagedForm) -> None:
        needs = form.key if form.parts is None else tuple(dict.fromkeys((*form.key, form.parts.column)))
        self._needs = needs
        self.json_needs: tuple[str, ...] | None = needs if form.json else None
        self._sink = sink
        self._folder = folder
        self._form = form
        self._arrow = arrow_schema(schema)
        rest = pa.schema([(_DOC, pa.binary())]) if form.json else self._arrow
        if form.parts is not None:
            rest = rest.append(pa.field(_PART, pa.string()))
        self._schema = pa.schema([*_FORM, *rest], {_COLUMNS: str(schema)})
        self._file = StagedFile(folder, unit, attempt, self._schema)

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Stage the rows; rows whose key is not a valid id, and those without a part of the place, are refused."""
        if not batch.num_rows:
            return ()
        docs = [pa.array(json_lines(batch).splitlines(), pa.binary())] if self._form.json else batch.columns
        return self._stage(docs, {name: batch.column(name) for name in self._needs}, ids)

    def write_json(self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Stage rows that are JSON."""
        return self._stage([pa.array(lines.splitlines(), pa.binary())], columns, ids) if rows else ()

    def close(self) -> Receipt:
        """Make the file durable."""
        with explained(self._doing):
            return self._file.close(self._sink)

    def abort(self) -> None:
        """Delete the file."""
        self._file.abort()

    @property
    def _doing(self) -> str:
        return f'sink "{self._sink}" cannot stage in {self._folder}; no row of the batch is visible, and the batch is run again'

    def _stage(self, rest: Sequence[pa.Array], columns: Mapping[str, pa.Array], made_of: Sequence[str] | None) -> Sequence[Bad]:
        assert made_of is not None, "a keyed sink requires ids"
        refused: list[Bad] = []
        ids: list[str | None]
        if self._form.key:
            ids = list(self._key_ids([columns[name] for name in self._form.key], refused))
        else:
            ids = [id_ if len(id_) * 4 <= self._form.most_id_bytes else self._short(id_) for id_ in made_of]
        if (parts := self._form.parts) is not None:
            part, without = parts.of_rows(columns[parts.column])
            rest = [*rest, part]
            refused += [Bad(ordinal, "no-part", why) for ordinal, why in without.items() if ids[ordinal] is not None]
            for ordinal in without:
                ids[ordinal] = None
        arrays = [pa.array(ids, pa.string()), pa.array(made_of if self._form.key else [None] * len(ids), pa.string()), *rest]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if refused:
            batch = batch.filter(pa.compute.is_valid(batch.column(0)))
        if batch.num_rows:
            with explained(self._doing):
                self._file.write(batch)
        faults.reached("stage.mid_write")
        return refused

    def _key_ids(self, columns: Sequence[pa.Array], refused: list[Bad]) -> Iterator[str | None]:
        alone = len(columns) == 1 and pa.types.is_string(columns[0].type)
        for ordinal, values in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            if None in values:
                name = self._form.key[values.index(None)]
                refused.append(Bad(ordinal, "null-key", f'the key column "{name}" is null: the row has no id'))
                yield None
                continue
            id_ = values[0] if alone else msgspec.json.encode(values, enc_hook=str).decode()
            if len(id_.encode()) > self._form.most_id_bytes:
                size = len(id_.encode())
                refused.append(Bad(ordinal, "too-large", f"the key has {size} bytes; the maximum of an id is {self._form.most_id_bytes}"))
                yield None
                continue
            yield id_

    def _short(self, id_: str) -> str:
        """The id itself, or its digest if it is too long."""
        return id_ if len(id_.encode()) <= self._form.most_id_bytes else blake2b(id_.encode(), digest_size=24).hexdigest()


def read_staged(folder: Path, segment: Mapping[str, Any], version: int, sink: str, *, brief: bool = False) -> Iterator[KeyedRows]:
    """The rows of a segment, in the order of staging; `version` is that of the first. `brief`: their origins are shortened to ids. Raises
    StateError if the file is missing, truncated or changed."""
    with open_staged(folder, segment, sink) as reader:
        for batch in reader:
            made_of = Texts(batch.column(0 if batch.column(1).null_count else 1))
            ids = (brief_ids(batch.column(0)) if brief else batch.column(0)).to_pylist()
            columns = pa.RecordBatch.from_arrays(batch.columns[2:], names=batch.schema.names[2:])
            yield KeyedRows(ids, made_of, version, columns)
            version += len(ids)


def staged_schema(folder: Path, segment: Mapping[str, Any], sink: str) -> Schema:
    """The flow's columns when the rows were staged. Raises as `read_staged`."""
    with open_staged(folder, segment, sink) as reader:
        return parse_schema(reader.schema.metadata[_COLUMNS].decode())


def as_json(form: Literal["json", "columns"], columns: pa.RecordBatch, index: int) -> bytes:
    """Row `index` as a JSON object."""
    if form == "json":
        doc: bytes = columns.column(0)[index].as_py()
        return doc
    return json_lines(columns.slice(index, 1)).rstrip(b"\n")


def batch_folder(work: Path, lineage: str, batch: int) -> Path:
    """The folder in which tasks stage the rows of a Batch."""
    return work / lineage / f"{batch:010d}"


def drop_staged(work: Path, lineage: str, batches: Iterable[int]) -> None:
    """Delete the staged rows of those Batches."""
    for batch in batches:
        remove_tree(batch_folder(work, lineage, batch))


def staged_batches(work: Path, lineage: str) -> list[int]:
    """The Batches with staged rows."""
    return sorted(int(name) for name in names_in(work / lineage) if name.isdigit())
