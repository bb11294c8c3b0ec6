"""Does a store keep what `KeyedStore` promises? For the tests of a store of your own; `KeyedSink` makes an exactly-once sink of it."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.connectors.keyed.contract import KeyedRows
from scribengin.connectors.keyed.versions import next_base
from scribengin.core.types import parse_schema
from scribengin.formats.json_lines import json_lines
from scribengin.testing.sentences import must

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.keyed.contract import KeyedStore

SCHEMA = parse_schema("id STRING, n BIGINT")
_RACES, _RACERS = 20, 4


def check_store(
    make_store: Callable[[], KeyedStore],
    read_back: Callable[[], Sequence[Mapping[str, Any]]],
    *,
    refused: Mapping[str, Any] | None = None,
    ties: bool = True,
) -> None:
    """`make_store` gives one for the same place, which does not exist yet, or is empty; `read_back` gives the rows that a foreign reader
    finds (`id`, `n`); `refused` is a row with these columns, and perhaps others, that the place never takes. `ties=False`: of two rows of
    one version another than the first may stand, which is no harm where equal versions have equal rows. Raises AssertionError."""
    store = make_store()
    must(store.is_empty(), "a place that is not there is empty")
    store.make(SCHEMA)
    store.make(SCHEMA)
    pickle.loads(pickle.dumps(store))
    trial = _Trial(store, read_back)
    base = next_base(None, -1)
    trial.send(base + 10, {"a": 1, "b": 2, "c": 3})
    trial.sees({"a": 1, "b": 2, "c": 3}, "rows that were sent stand there")
    must(not store.is_empty(), "a place with rows is not empty")
    trial.send(base + 10, {"a": 7 if ties else 1, "b": 2, "c": 3})
    trial.sees({"a": 1, "b": 2, "c": 3}, f"a row of the version that stands there changes nothing{', whatever it says' if ties else ''}")
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
    versions = [version for some in make_store().versions() for version in some]
    must(len(versions) == len(read_back()) and max(versions) >= base + 100, f"versions tells that of each row: {versions}")
    _check_record(make_store)
    must(store.clear() == len(versions) and not read_back() and store.is_empty(), "clear deletes all rows, and counts them")
    store.close()
    must(store.is_empty(), "a store that was closed opens again")


def _check_record(make_store: Callable[[], KeyedStore]) -> None:
    store = make_store()
    must(store.read_record() is None, "nobody writes to a new place")
    must(store.write_record({"n": 0, "text": "ü" * 50_000}, None), "the first record is written")
    must(not store.write_record({"n": 1}, None), "a record that is there is not written as the first one")
    held = make_store().read_record()
    assert held is not None
    must(held.body == {"n": 0, "text": "ü" * 50_000}, "a record comes back as it was written")
    must(store.write_record({"n": 2**62}, held), "a record is exchanged for what was read")
    must(not store.write_record({"n": 3}, held), "a record is not exchanged for what stands there no more")
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

    def sees(self, rows: Mapping[str, int], sentence: str) -> None:
        found = {row["id"]: row["n"] for row in self._read_back()}
        must(found == dict(rows), f"{sentence}; expected {dict(rows)}, found {found}")
