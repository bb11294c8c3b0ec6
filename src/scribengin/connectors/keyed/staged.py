"""Rows of one task output in a file of the state folder, with their ids: an Arrow stream with a checksum."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.connectors.keyed.contract import KeyedRows, Texts
from scribengin.connectors.staged_file import StagedFile, open_staged
from scribengin.core import faults
from scribengin.core.storage import explained, names_in, remove_tree
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.formats.contract import Bad
from scribengin.formats.json_out import json_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import Receipt
    from scribengin.connectors.keyed.contract import PartitionedPlace
    from scribengin.core.types import Schema


# Short ids for rows whose id is their origin, if that is long: 24 characters, made from the stream and the number of the row in it.
#
# The label of a stream of several files contains their names. Each row would send it to the store, where it costs several times its size: a
# search index keeps the ids of a segment in memory, on disk and in its log, and looks up each new id among them. It stores Base64 ids as
# bytes, 18 for these; they increase with the number, so one comparison shows that a segment contains none of the new ids.


_MOST_BYTES = 24
"""maximum length of the part before the number; `tweets/topic-0@` and `orders/orders.jsonl+` are not shortened"""
_DIGEST_BYTES, _NUMBER_BYTES = 12, 6
"""digest size: among a hundred million streams two have the same digest with a probability of 10 ** -13"""
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_SHIFTS = np.arange(8 * _NUMBER_BYTES - 6, -1, -6)
_DIGITS = "0123456789."


def brief_ids(ids: pa.Array) -> pa.Array:
    """Shorten each long id, always to the same value and independently of the others (STRING); different ids remain different.

    >>> brief_ids(pa.array(["orders/orders.jsonl+17", "tweets/a.parquet[0:-1] … d.parquet[0:-1] (4 files)+17"])).to_pylist()
    ['orders/orders.jsonl+17', 'zCuASAY_87qwWLG1AAAAAAAR']
    """
    if len(ids):
        begin = _begin(ids[0].as_py())
        if pc.all(pc.starts_with(ids, begin)).as_py() and (found := _numbered(begin, ids)) is not None:
            return found
    return pa.array([_brief(id_) for id_ in ids.to_pylist()], pa.string())


def _numbered(begin: str, ids: pa.Array) -> pa.Array | None:
    """The short ids of ids that all begin with `begin`; None if one of them does not continue with a number."""
    rest = pc.binary_replace_slice(ids, 0, len(begin.encode()), "")
    try:
        numbers = rest.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    # 017 is not the number 17; -17 would have another beginning
    if not numbers.cast(pa.string()).equals(rest) or pc.min(numbers).as_py() < 0 or pc.max(numbers).as_py() >> 8 * _NUMBER_BYTES:
        return None
    if (digest := _digest(begin)) is None:
        return ids
    spelt = np.empty((len(ids), len(digest) + len(_SHIFTS)), np.uint8)
    spelt[:, : len(digest)] = np.frombuffer(digest.encode(), np.uint8)
    spelt[:, len(digest) :] = _LETTERS[(numbers.to_numpy()[:, None] >> _SHIFTS) & 63]
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * spelt.shape[1]
    return pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(spelt)])


def _brief(id_: str) -> str:
    begin = _begin(id_)
    rest = id_[len(begin) :]
    digest = _digest(begin)
    if digest is None:
        return id_
    if rest.isdigit() and rest == str(number := int(rest)) and not number >> 8 * _NUMBER_BYTES:
        return digest + urlsafe_b64encode(number.to_bytes(_NUMBER_BYTES, "big")).decode()
    return f"{digest}+{rest}"


def _begin(id_: str) -> str:
    return id_.rstrip(_DIGITS)


@lru_cache(1024)
def _digest(begin: str) -> str | None:
    """The digest of the part before a number; None if that part is short."""
    spelt = begin.encode()
    if len(spelt) <= _MOST_BYTES:
        return None
    return urlsafe_b64encode(blake2b(spelt, digest_size=_DIGEST_BYTES).digest()).decode()


_ID, _OF, _DOC, _PART = "id", "of", "doc", "part"
_FORM = pa.schema([(_ID, pa.string()), (_OF, pa.string())])
"""the columns before the row's own: the id, and the origin of the row if that differs"""
_COLUMNS = b"columns"
"""metadata of the file: the flow's columns as DDL"""


@dataclass(frozen=True, slots=True)
class StagedForm:
    """How rows are staged: as JSON or in columns, and where their ids come from."""

    json: bool
    key: tuple[str, ...]
    """the columns that form the id; empty: a row's id is its origin"""
    most_id_bytes: int
    parts: PartitionedPlace | None = None
    """only with `json`"""


class StagedStream:
    """A stream that stages rows; see the contract. No file is created before the first row."""

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
        """Stage the rows. Rows whose key is not a valid id, and rows without a part of the place, are refused."""
        if not batch.num_rows:
            return ()
        docs = [pa.array(json_lines(batch).splitlines(), pa.binary())] if self._form.json else batch.columns
        return self._stage(docs, {name: batch.column(name) for name in self._needs}, ids)

    def write_json(self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Stage rows in JSON form."""
        return self._stage([pa.array(lines.splitlines(), pa.binary())], columns, ids) if rows else ()

    def close(self) -> Receipt:
        """Make the file durable, and return the write receipt."""
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
        """The id itself, or its digest if it is too long for the store."""
        return id_ if len(id_.encode()) <= self._form.most_id_bytes else blake2b(id_.encode(), digest_size=24).hexdigest()


def read_staged(folder: Path, segment: Mapping[str, Any], version: int, sink: str, *, brief: bool = False) -> Iterator[KeyedRows]:
    """The rows of a segment, in the order of staging. Raises StateError if the file is missing, truncated or changed.

    Args:
        folder: The folder of the Batch.
        segment: The segment, from a write receipt.
        version: The version of the first row.
        sink: The id of the sink, for messages.
        brief: Shorten the ids with `brief_ids`.
    """
    with open_staged(folder, segment, sink) as reader:
        for batch in reader:
            made_of = Texts(batch.column(0 if batch.column(1).null_count else 1))
            ids = (brief_ids(batch.column(0)) if brief else batch.column(0)).to_pylist()
            columns = pa.RecordBatch.from_arrays(batch.columns[2:], names=batch.schema.names[2:])
            yield KeyedRows(ids, made_of, version, columns)
            version += len(ids)


def staged_schema(folder: Path, segment: Mapping[str, Any], sink: str) -> Schema:
    """The flow's columns at the time when the rows were staged. Raises as `read_staged`.

    Args:
        folder: The folder of the Batch.
        segment: The segment, from a write receipt.
        sink: The id of the sink, for messages.
    """
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
    """Delete the staged rows of these Batches."""
    for batch in batches:
        remove_tree(batch_folder(work, lineage, batch))


def staged_batches(work: Path, lineage: str) -> list[int]:
    """The numbers of the Batches with staged rows, in order."""
    return sorted(int(name) for name in names_in(work / lineage) if name.isdigit())
