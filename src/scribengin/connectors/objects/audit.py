"""Verification of the objects: each is complete, unchanged, and has as many rows as were written; and there are no others."""

from __future__ import annotations

import zlib
from typing import IO, TYPE_CHECKING, Any, cast

from scribengin.connectors.contract import NEXT_RUN, Published
from scribengin.connectors.objects.compaction_log import CompactionLog, is_visible, named
from scribengin.connectors.objects.manifests import Manifests, is_internal, lineages
from scribengin.connectors.objects.ranges import RangedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.connectors.contract import Decided
    from scribengin.core.store import Store


_BLOCK = 8 * 2**20
_TOLD = 20


def audit_objects(store: Store, lineage: str, decided: Iterable[Decided], *, listed: bool, since: int | None = None) -> Iterator[Published]:
    """Verify the committed objects of a lineage.

    Args:
        store: The place.
        lineage: The lineage.
        decided: The decisions, in order.
        listed: True if readers list the place: objects that no manifest names are reported then.
        since: Manifests of Batches below this number are compared only with their objects; None: the number of the first of `decided`.

    Returns:
        A Published per Batch; then, with `listed`, one with number -1 if there are objects that no manifest names.
    """
    records = dict(Manifests(store, lineage).committed())
    merged = MergedObjects(store, lineage)
    rest = iter(decided)
    first = next(rest, None)
    if since is None:
        since = first.batch.number if first is not None else (max(records, default=-1) + 1)
    for number in sorted(number for number in records if number < since):
        yield _compare(merged, number, records[number], [])
    seen: set[int] = set()
    for each in [] if first is None else [first, *rest]:
        number = each.batch.number
        seen.add(number)
        record = records.get(number)
        if record is None:
            yield Published(number, 0, (f"batch {number} is decided, but not published; {NEXT_RUN} it",))
            continue
        expected = [dict(segment) for receipt in each.receipts for segment in receipt.segments]
        same = record["hash"] == each.input_hash and expected == record["files"]
        yield _compare(merged, number, record, [] if same else [f"batch {number} was published differently from its decision"])
    for number in sorted(number for number in records if number >= since and number not in seen):
        yield Published(number, records[number]["rows"], (f"batch {number} is published, but there is no decision for it",))
    if listed:
        names = {name for each in lineages(store) for name in named(store, each)}
        strange = [entry.key for entry in store.list() if entry.key not in names and not is_internal(entry.key)]
        if strange:
            yield Published(-1, 0, tuple(f"{store}/{key}: no batch wrote it" for key in strange[:_TOLD]))


def _compare(merged: MergedObjects, number: int, record: Mapping[str, Any], wrong: list[str]) -> Published:
    rows = 0
    for file in record["files"]:
        found, text = merged.verify(file)
        rows += found
        wrong += [text] if text else []
    return Published(number, rows, tuple(wrong))


class MergedObjects:
    """Verification of the objects of a lineage, including merged ones, which are read once."""

    def __init__(self, store: Store, lineage: str) -> None:
        self._store = store
        self._turns = CompactionLog(store, lineage)
        self._seen = -1
        self._into: dict[str, Mapping[str, Any]] = {}
        """key of a segment → the object that holds its rows"""
        self._sound: dict[str, bool] = {}
        """key of such an object → whether it is unchanged"""
        self._learn()

    def verify(self, file: Mapping[str, Any]) -> tuple[int, str]:
        """(rows found, errors) for an object in a manifest, or for the object that it was merged into."""
        name = file["name"]
        if name not in self._into:
            found = read_again(self._store, file)
            if not found[1]:
                return found
            self._learn()  # it may have been merged, and deleted, in the meantime
            if name not in self._into:
                return found
        output = self._into[name]
        if output["name"] in self._sound:  # already reported with the first of its segments
            return (file["rows"] if self._sound[output["name"]] else 0), ""
        _, text = read_again(self._store, output)
        if not text and (rows := sum(rows for *_, rows in output["inputs"])) != output["rows"]:
            text = f"{self._store}/{output['name']} holds {output['rows']} rows; expected {rows}, the merged ones"
        self._sound[output["name"]] = not text
        return (0 if text else file["rows"]), text

    def _learn(self) -> None:
        for number, turn in self._turns.log.since(self._seen + 1):
            if not is_visible(self._store, turn["outputs"]):
                return  # its compactor is working on it, or was killed: the segments exist
            self._seen = number
            self._into.update((name, output) for output in turn["outputs"] for _, _, name, _ in output["inputs"])


def read_again(store: Store, said: Mapping[str, Any]) -> tuple[int, str]:
    """Read an object again and compare it with its manifest entry `said`; returns (rows found, errors)."""
    where = f"{store}/{said['name']}"
    crc = size = lines = 0
    plain = said["name"].endswith((".jsonl", ".txt"))
    there = store.head(said["name"])
    if there is None:
        return 0, f"{where} is missing: {said['rows']} rows"
    if there.size != said["bytes"]:
        return 0, f"{where} has {there.size} bytes; expected {said['bytes']} ({said['rows']} rows)"
    while size < said["bytes"]:
        block = store.range(said["name"], size, min(size + _BLOCK, said["bytes"]))
        crc = zlib.crc32(block, crc)
        size += len(block)
        lines += block.count(b"\n") if plain else 0
    if crc != said["crc"]:
        return 0, f"{where} was changed after it was written ({said['rows']} rows)"
    rows = lines if plain else _rows_of(store, said)
    if rows is not None and rows != said["rows"]:
        return rows, f"{where} holds {rows} rows; expected {said['rows']}, as counted when it was written"
    return said["rows"], ""


def _rows_of(store: Store, said: Mapping[str, Any]) -> int | None:
    """The number of rows found in the object; None if counting them requires decoding."""
    if not said["name"].endswith(".parquet"):
        return None
    import pyarrow.parquet as pq

    return int(pq.read_metadata(cast("IO[bytes]", RangedFile(store, said["name"], said["bytes"]))).num_rows)
