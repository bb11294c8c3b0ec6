"""The conformance suite of `KeyedStore`, for the tests of your own store. `KeyedSink` makes an exactly-once sink of a store that passes."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.keyed.contract import KeyedRows, WriterRecord
from scribengin.connectors.keyed.sink import KeyedSink, next_base
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.formats.json_out import json_lines
from scribengin.testing.conformance import must

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from scribengin.connectors.contract import RefusedRow
    from scribengin.connectors.keyed.contract import KeyedStore, WriteAnswer

SCHEMA = parse_schema("id STRING, n BIGINT")
_RACES, _RACERS = 20, 4
_LATE = 4
"""how often a busy place refuses a row for now"""


def check_store(
    make_store: Callable[[], KeyedStore],
    read_back: Callable[[], Sequence[Mapping[str, Any]]],
    *,
    refused: Mapping[str, Any] | None = None,
    ties: bool = True,
    busy: Callable[[Collection[str]], object] | None = None,
) -> None:
    """Check a store. Raises AssertionError with the sentence of the contract that is broken.

    Args:
        make_store: Creates a new store for the same place, which does not exist yet or is empty.
        read_back: Returns the rows that an independent reader finds, with the columns `id` and `n`.
        refused: A row with these columns, and perhaps others, that the place never accepts.
        ties: False if the place may replace a row by another one of the same version. This is harmless if equal versions have equal rows.
        busy: Makes the place temporarily refuse the rows with these ids, and no others, until the next call.
    """
    store = make_store()
    must(store.is_empty(), "a place that is not there is empty")
    store.make(SCHEMA)
    store.make(SCHEMA)
    pickle.loads(pickle.dumps(store))
    trial = _Trial(store, read_back)
    base = next_base(None, -1)
    trial.send(base + 10, {"a": 1, "b": 2, "c": 3})
    trial.sees({"a": 1, "b": 2, "c": 3}, "rows that were sent are there")
    must(not store.is_empty(), "a place with rows is not empty")
    trial.send(base + 10, {"a": 7 if ties else 1, "b": 2, "c": 3})
    trial.sees({"a": 1, "b": 2, "c": 3}, f"a row of the stored version changes nothing{', whatever it says' if ties else ''}")
    trial.send(base, {"a": 8, "b": 9, "c": 9})
    trial.sees({"a": 1, "b": 2, "c": 3}, "an older version changes nothing")
    trial.send(base + 9, {"b": 9, "d": 4, "c": 9})
    trial.sees({"a": 1, "b": 2, "c": 3, "d": 4}, "of one request each row is taken or not by itself")
    trial.send(base + 100, {"c": 5, "a": 6})
    trial.sees({"a": 6, "b": 2, "c": 5, "d": 4}, "a newer version takes the place of what stood there")
    if refused is not None:
        answer = trial.ask(base + 200, [{"id": "e", "n": 5}, dict(refused), {"id": "f", "n": 6}])
        must([index for index, _, _ in answer.refused] == [1], "of one request the row that does not fit is refused, and no other")
        must(all(reason and message for _, reason, message in answer.refused), "a refusal has a reason and a message")
        trial.sees({"a": 6, "b": 2, "c": 5, "d": 4, "e": 5, "f": 6}, "rows beside a refused one are taken")
    if busy is not None:
        _check_busy_rows(trial, base + 300, busy)
    versions = [version for some in make_store().versions() for version in some]
    must(len(versions) == len(read_back()) and max(versions) >= base + 100, f"versions tells that of each row: {versions}")
    _check_record(make_store)
    must(store.clear() == len(versions) and not read_back() and store.is_empty(), "clear deletes all rows, and counts them")
    if busy is not None:
        _check_busy_sink(make_store, read_back, busy)
        store.clear()
    store.close()
    must(store.is_empty(), "a store that was closed opens again")


def _check_busy_rows(trial: _Trial, version: int, busy: Callable[[Collection[str]], object]) -> None:
    rows = [{"id": f"busy-{n}", "n": n} for n in range(4)]
    busy(("busy-1", "busy-2"))
    answer = trial.ask(version, rows)
    must(
        sorted(answer.again) == [1, 2] and not answer.refused and not answer.too_large,
        f"of one request those rows are asked for again that the place does not take for now, and no others: {answer}",
    )
    trial.has(
        {"busy-0": 0, "busy-3": 3}, without=("busy-1", "busy-2"), sentence="rows beside one that the place does not take for now are taken"
    )
    busy(())
    answer = trial.ask(version + 1, rows[1:3])
    must(not answer.again and not answer.refused, f"a row that the place did not take for a while is taken later: {answer}")
    trial.has({f"busy-{n}": n for n in range(4)}, sentence="a row that the place refused for a while is there once it was taken")


def _check_busy_sink(
    make_store: Callable[[], KeyedStore],
    read_back: Callable[[], Sequence[Mapping[str, Any]]],
    busy: Callable[[Collection[str]], object],
) -> None:
    ids = [f"sent-{n}" for n in range(6)]
    late = (ids[1], ids[4])
    counted = _Counted(make_store(), late, busy)
    busy(late)
    with TemporaryDirectory() as folder:
        sink = KeyedSink(
            ConnectorContext("out", Path(folder), flow="flow", work=Path(folder)), cast("KeyedStore", counted), key=("id",), connections=2
        )
        sink.prepare(owner="conformance", lineage="lineage-1")
        batch = BatchId("flow", "query", "lineage-1", 0, 1)
        stream = sink.stream(batch, 0, "attempt", SCHEMA)
        stream.write(pa.RecordBatch.from_pylist([{"id": id_, "n": n} for n, id_ in enumerate(ids)], arrow_schema(SCHEMA)), ids)
        decided = Decided(batch, "hash", (stream.close(),))
        refused: list[RefusedRow] = []
        sink.offer(decided, refused.append)
        sink.publish(decided)
    must(not refused, f"a row that the place does not take for now is not refused: {refused}")
    found = sorted((row["id"], row["n"]) for row in read_back())
    must(found == [(id_, n) for n, id_ in enumerate(ids)], f"each row is there once, even if it was sent twice: {found}")
    often = {id_: len(counted.came[id_]) for id_ in ids}
    must(often == {id_: _LATE + 1 if id_ in late else 1 for id_ in ids}, f"only rows that are asked for again are sent again: {often}")
    for id_ in late:
        waits = [after - before for before, after in pairwise(counted.came[id_])]
        must(waits[-1] > 1.5 * min(waits), f"a row that is asked for again and again is sent at longer and longer intervals: {waits}")


class _Counted:
    """A store in front of another one that records when each row was sent. It stops refusing a row of `late` once that was sent often
    enough. It has a writer record of its own, because that of the place was checked before."""

    def __init__(self, store: KeyedStore, late: Collection[str], busy: Callable[[Collection[str]], object]) -> None:
        self.form = store.form
        self.most_id_bytes = store.most_id_bytes
        self.came: dict[str, list[float]] = {}
        self.make, self.is_empty = store.make, store.is_empty
        self._store = store
        self._counting = threading.Lock()
        self._late = late
        self._busy = busy
        self._record: WriterRecord | None = None

    def read_record(self) -> WriterRecord | None:
        return self._record

    def write_record(self, body: Mapping[str, Any], held: WriterRecord | None) -> bool:
        if held is not self._record:
            return False
        self._record = WriterRecord(body)
        return True

    def send(self, rows: KeyedRows) -> WriteAnswer:
        with self._counting:
            for id_ in rows.ids:
                self.came.setdefault(id_, []).append(time.monotonic())
            self._busy([id_ for id_ in self._late if len(self.came.get(id_, ())) <= _LATE])
        return self._store.send(rows)


def _check_record(make_store: Callable[[], KeyedStore]) -> None:
    store = make_store()
    must(store.read_record() is None, "a new place has no writer")
    must(store.write_record({"n": 0, "text": "ü" * 50_000}, None), "the first record is written")
    must(not store.write_record({"n": 1}, None), "a record that is there is not written as the first one")
    held = make_store().read_record()
    assert held is not None
    must(held.body == {"n": 0, "text": "ü" * 50_000}, "a record comes back as it was written")
    must(store.write_record({"n": 2**62}, held), "a record is exchanged for what was read")
    must(not store.write_record({"n": 3}, held), "a record is not exchanged for one that was replaced")
    stores = [make_store() for _ in range(_RACERS)]
    with ThreadPoolExecutor(_RACERS) as pool:
        for race in range(_RACES):
            held = store.read_record()
            won = list(pool.map(lambda racer, held=held, race=race: racer.write_record({"race": race}, held), stores))
            must(sum(won) == 1, f"of several that exchange the record at once one does: {won}")


class _Trial:
    def __init__(self, store: KeyedStore, read_back: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._store = store
        self._read_back = read_back

    def ask(self, version: int, rows: list[dict[str, Any]]) -> Any:
        ids = [row["id"] for row in rows]
        if self._store.form == "json":
            docs = [json_lines(pa.RecordBatch.from_pylist([row])).rstrip(b"\n") for row in rows]
            columns = pa.RecordBatch.from_arrays([pa.array(docs, pa.binary())], names=["doc"])
        else:
            columns = pa.RecordBatch.from_pylist(rows)
        return self._store.send(KeyedRows(ids, ids, version, columns))

    def send(self, version: int, rows: Mapping[str, int]) -> None:
        answer = self.ask(version, [{"id": id_, "n": n} for id_, n in rows.items()])
        must(not answer.refused and not answer.again and not answer.too_large, f"rows that fit are taken: {answer}")

    def has(self, rows: Mapping[str, int], *, without: Collection[str] = (), sentence: str) -> None:
        found = {row["id"]: row["n"] for row in self._read_back()}
        must(rows.items() <= found.items() and not found.keys() & set(without), f"{sentence}; expected {dict(rows)}, found {found}")

    def sees(self, rows: Mapping[str, int], sentence: str) -> None:
        found = {row["id"]: row["n"] for row in self._read_back()}
        must(found == dict(rows), f"{sentence}; expected {dict(rows)}, found {found}")
