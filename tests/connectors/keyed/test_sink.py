"""The sink over a keyed store: what it writes, who may write, and what the conformance suite says of stores and sinks that are wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest

from harness.broken_keyed import AllAgainStore, BlindStore, BulkStore, ImpatientStore, QuietStore, SharedStaging
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, RefusedRow, Unaccounted
from scribengin.connectors.keyed.contract import KeyedRows
from scribengin.connectors.keyed.sink import KeyedSink, version_of
from scribengin.core.errors import FencedError, Refused, SinkError, StateError
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from scribengin.testing.conformance_keyed import check_store
from scribengin.testing.records import SCHEMA as RECORD
from scribengin.testing.records import Records
from scribengin.testing.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SCHEMA = parse_schema("id STRING, n BIGINT")
ROWS = Records("conformance", parts=1, rows=6).of(0)
REFUSED = {"id": "x", "n": 666}


class Writer:
    """A sink, and what a Query does with it."""

    def __init__(self, folder: Path, *, kind: type[KeyedSink] = KeyedSink, key: tuple[str, ...] = ("id",), lineage: str = "one") -> None:
        self.store = SqliteStore(folder / "store.db", b"666")
        self.lineage = lineage
        self.sink = kind(ConnectorContext("out", folder, flow="flow", work=folder / "work"), self.store, key=key, connections=2)

    def decide(self, number: int, rows: list[dict[str, Any]], *, term: int = 1) -> Decided:
        batch = BatchId("flow", "query", self.lineage, number, term)
        stream = self.sink.stream(batch, 0, uuid4().hex, SCHEMA)
        self.bad = stream.write(pa.RecordBatch.from_pylist(rows, arrow_schema(SCHEMA)), [f"s/a+{number}.{at}" for at in range(len(rows))])
        return Decided(batch, f"hash-{number}", (stream.close(),))

    def write(self, number: int, rows: list[dict[str, Any]], *, term: int = 1) -> list[RefusedRow]:
        refused: list[RefusedRow] = []
        decided = self.decide(number, rows, term=term)
        self.sink.offer(decided, refused.append)
        self.sink.publish(decided)
        return refused


def held(writer: Writer) -> Any:
    record = writer.store.read_record()
    assert record is not None
    return SimpleNamespace(**record.body)


def test_a_place_that_is_gone_with_rows_is_not_made_anew(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.sink.prepare(owner="me", lineage="one")
    writer.sink.check_place()  # nothing was written yet
    writer.write(0, [{"id": "a", "n": 1}])
    writer.store.drop()
    again = Writer(tmp_path)
    for looks in (again.sink.check_place, lambda: again.sink.prepare(owner="me", lineage="one"), lambda: again.write(1, [{"id": "b"}])):
        again.sink._owner = "me"  # a run that was prepared before it went
        with pytest.raises(SinkError, match="does not exist any more; 1 row had been written to it") as told:
            looks()
        assert told.value.code == "table-gone"
    assert not writer.store.is_there()
    writer.store.make(SCHEMA)  # somebody has brought it back
    again.sink.check_place()


def test_a_driver_that_slept_does_not_write_an_older_row_over_a_newer(tmp_path: Path) -> None:
    one, two = Writer(tmp_path), Writer(tmp_path)
    one.sink.prepare(owner="me", lineage="one")
    two.sink.prepare(owner="me", lineage="one")
    late = one.decide(0, [{"id": "a", "n": 1}])
    two.write(0, [{"id": "a", "n": 1}])
    two.write(1, [{"id": "a", "n": 2}])
    with pytest.raises(FencedError, match="batch 1 already exists"):
        one.sink.offer(late, lambda _: None)
    # it looked before it slept, and had the rows in its hands
    late_rows = KeyedRows(["a"], ["a"], version_of(held(one).base, 0, 0), pa.RecordBatch.from_pydict({"doc": [b'{"id":"a","n":1}']}))
    assert one.store.send(late_rows).above == version_of(held(one).base, 1, 0)
    assert one.store.documents() == [{"id": "a", "n": 2}]


def test_of_rows_with_one_key_the_last_one_stands_and_a_null_is_no_key(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.sink.prepare(owner="me", lineage="one")
    writer.write(0, [{"id": "a", "n": 1}, {"id": "b", "n": 1}, {"id": "a", "n": 2}, {"id": None, "n": 3}, {"id": "long" * 200, "n": 4}])
    assert writer.store.documents() == [{"id": "b", "n": 1}, {"id": "a", "n": 2}]
    assert [(bad.ordinal, bad.reason) for bad in writer.bad] == [(3, "null-key"), (4, "too-large")]


def test_without_a_key_rows_of_one_record_are_told_apart_wherever_they_are_in_the_batch(tmp_path: Path) -> None:
    writer = Writer(tmp_path, key=())
    writer.sink.prepare(owner="me", lineage="one")
    one, two = ({"id": "a", "n": n} for n in (1, 2))
    batch = BatchId("flow", "query", "one", 0, 1)
    receipts = []
    for unit, ids in enumerate((["s/a+1", "s/a+2"], ["s/a+2", "s/a+1", "s/a+1"])):
        stream = writer.sink.stream(batch, unit, uuid4().hex, SCHEMA)
        for id_ in ids:
            stream.write(pa.RecordBatch.from_pylist([one if unit else two], arrow_schema(SCHEMA)), [id_])
        receipts.append(stream.close())
    decided = Decided(batch, "hash", tuple(receipts))
    writer.sink.offer(decided, lambda _: None)
    writer.sink.publish(decided)
    assert len(writer.store.documents()) == 5
    with writer.store._open() as connection:
        ids = [id_ for (id_,) in connection.execute("SELECT id FROM documents ORDER BY version")]
    assert ids == ["s/a+1", "s/a+2", "s/a+2~~1", "s/a+1~~1", "s/a+1~~2"]


@pytest.mark.parametrize("key", [("id",), ()])
def test_rows_of_before_the_lineage_are_counted_by_their_versions(
    tmp_path: Path, key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Writer(tmp_path, key=key)
    first.store.make(SCHEMA)
    with first.store._open() as other:
        other.execute("INSERT INTO documents VALUES ('theirs', 7, '{}')")
    first.sink.prepare(owner="me", lineage="one", adopt=True)
    decided = first.decide(0, [{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    first.sink.offer(decided, lambda _: None)
    first.sink.publish(decided)
    assert first.sink.unaccounted({"one"}) == [Unaccounted("other writers, before this flow wrote there", 1)]
    second = Writer(tmp_path, key=key, lineage="two")
    second.sink.prepare(owner="me", lineage="two", adopt=True)
    row = second.decide(0, [{"id": "c", "n": 1}])
    second.sink.offer(row, lambda _: None)
    second.sink.publish(row)
    scans: list[object] = []
    versions = SqliteStore.versions

    def scanned(store: SqliteStore) -> Iterator[Sequence[int]]:
        scans.append(store)
        return versions(store)

    monkeypatch.setattr(SqliteStore, "versions", scanned)
    assert [each.violations for each in second.sink.audit(lineage="two", decided=[row])] == [()]
    # without a key the one row replaces that of the same record
    rows = 3 if key else 2
    assert second.sink.unaccounted({"two"}) == [Unaccounted("lineage one or other writers, before this flow wrote there", rows)]
    assert len(scans) == 1, "the audit has read them already"


def test_rows_of_lineages_that_the_state_knows_are_accounted_for(tmp_path: Path) -> None:
    for lineage, id_ in (("one", "a"), ("two", "b"), ("three", "c")):
        writer = Writer(tmp_path, lineage=lineage)
        writer.sink.prepare(owner="me", lineage=lineage, adopt=True)
        writer.write(0, [{"id": id_, "n": 1}])
    assert writer.sink.unaccounted({"one", "two", "three"}) == []
    assert writer.sink.unaccounted({"one", "three"}) == [Unaccounted("lineage two or lineages before it", 2)]


def test_a_row_of_somebody_else_that_would_hide_ours_is_an_error(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.sink.prepare(owner="me", lineage="one")
    writer.write(0, [{"id": "a", "n": 1}])
    with writer.store._open() as other:
        other.execute("INSERT INTO documents VALUES ('b', ?, '{}')", (2**62,))
    with pytest.raises(SinkError, match=f"holds a row with version {2**62}, which is newer than any of this flow") as told:
        writer.write(1, [{"id": "b", "n": 1}])
    assert told.value.code == "foreign-writer"


def test_a_lineage_that_adopts_writes_above_our_own_and_above_all_that_others_have_written(tmp_path: Path) -> None:
    """Their versions may be a time that is still to come: of two rows of one key the store keeps the higher, and would not say so."""
    first = Writer(tmp_path)
    first.store.make(SCHEMA)
    with first.store._open() as other:
        other.executemany("INSERT INTO documents VALUES (?, ?, '{}')", [("a", 5), ("b", version_of(2**61, 0, 0))])
    with pytest.raises(Refused, match="it holds rows that this lineage did not write"):
        first.sink.prepare(owner="me", lineage="one")
    first.sink.prepare(owner="me", lineage="one", adopt=True)
    first.write(0, [{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    assert first.store.documents() == [{"id": "a", "n": 1}, {"id": "b", "n": 1}]
    second = Writer(tmp_path, lineage="two")
    second.sink.prepare(owner="me", lineage="two", adopt=True)
    second.write(0, [{"id": "a", "n": 2}, {"id": "b", "n": 2}])
    assert second.store.documents() == [{"id": "a", "n": 2}, {"id": "b", "n": 2}]
    again = Writer(tmp_path, lineage="two")
    again.sink.prepare(owner="me", lineage="two")
    again.write(1, [{"id": "b", "n": 3}])
    assert again.store.documents() == [{"id": "a", "n": 2}, {"id": "b", "n": 3}]


@pytest.mark.parametrize(
    ("owner", "flow", "wrong", "remedy"),
    [
        ("me", "other", 'it holds rows of the flow "flow"', 'if this is the same flow under a new name, rename it back to "flow"'),
        ("you", "flow", "another installation has written there", "scribengin run FLOW --append-new-lineage"),
    ],
)
def test_a_place_that_no_reset_clears_is_refused_without_one(tmp_path: Path, owner: str, flow: str, wrong: str, remedy: str) -> None:
    Writer(tmp_path).sink.prepare(owner="me", lineage="one")
    other = KeyedSink(
        ConnectorContext("out", tmp_path, flow=flow, work=tmp_path / "other"),
        SqliteStore(tmp_path / "store.db", b"666"),
        key=("id",),
        connections=2,
    )
    for asks in (lambda: other.prepare(owner=owner, lineage="two"), lambda: other.clear(owner=owner, flow=flow)):
        with pytest.raises(Refused, match=wrong) as caught:
            asks()
        assert "give the sink another place, or delete the existing one" in caught.value.remedy
        assert caught.value.remedy.endswith(remedy)


def test_a_place_whose_rows_leave_no_version_above_them_is_refused(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.store.make(SCHEMA)
    with writer.store._open() as other:
        other.execute("INSERT INTO documents VALUES ('a', ?, '{}')", (2**63 - 2,))
    with pytest.raises(Refused, match="rows with versions that always win") as told:
        writer.sink.prepare(owner="me", lineage="one", adopt=True)
    assert (told.value.code, told.value.remedy) == ("foreign-writer", "choose another place for this flow, or delete these rows")


@pytest.mark.parametrize("key", [(), ("id",)])
def test_an_audit_tells_rows_that_would_hide_ours(tmp_path: Path, key: tuple[str, ...]) -> None:
    writer = Writer(tmp_path, key=key)
    writer.sink.prepare(owner="me", lineage="one")
    decided = writer.decide(0, [{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    writer.sink.offer(decided, lambda _: None)
    (sent,) = writer.sink.audit(lineage="one", decided=[decided])
    assert sent.violations == ("batch 0 is decided, but not published; the next run publishes it",)
    (staged,) = (tmp_path / "work" / "one" / "0000000000").iterdir()
    kept = staged.rename(tmp_path / "aside")
    (lost,) = writer.sink.audit(lineage="one", decided=[decided])
    assert lost.violations == (
        (
            'batch 0 is decided, but not published, and no run can do it: sink "out": '
            f"{staged}, which holds staged rows of a decided batch, is missing"
        ),
    )
    kept.rename(staged)
    writer.sink.publish(decided)
    assert [(each.rows, each.violations) for each in writer.sink.audit(lineage="one", decided=[decided])] == [(2, ())]
    with writer.store._open() as other:
        other.execute("INSERT INTO documents VALUES ('c', ?, '{}')", (version_of(held(writer).base, 1, 0),))
    own, told = writer.sink.audit(lineage="one", decided=[decided])
    assert own.violations == ()
    assert (told.rows, told.violations) == (0, (f"1 rows in {writer.store} belong to no batch",))


@pytest.mark.parametrize("change", ["a byte", "cut off", "gone"])
def test_staged_rows_that_were_changed_are_not_sent(tmp_path: Path, change: str) -> None:
    writer = Writer(tmp_path)
    writer.sink.prepare(owner="me", lineage="one")
    decided = writer.decide(0, [{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    (file,) = (path for path in (tmp_path / "work").rglob("*") if path.is_file())
    right = file.read_bytes()
    at = right.index(b'{"id":"b"')
    wrong = {"a byte": right.replace(b'"n":2', b'"n":3'), "cut off": right[:at], "gone": b""}[change]
    file.unlink() if change == "gone" else file.write_bytes(wrong)
    with pytest.raises(StateError, match=r"was changed|is missing"):
        writer.sink.offer(decided, lambda _: None)
    assert writer.store.documents() == []
    assert held(writer).number == -1
    file.write_bytes(right)
    writer.sink.offer(decided, lambda _: None)
    assert writer.store.documents() == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_who_writes_after_a_reset_is_above_what_was_deleted(tmp_path: Path) -> None:
    """Stores remember for a while what was deleted: a row of a lower version is taken for an older one."""
    writer = Writer(tmp_path)
    writer.sink.prepare(owner="me", lineage="one")
    for number in range(9):
        writer.write(number, [{"id": "a", "n": number}])
    highest = max(max(some) for some in writer.store.versions())
    assert writer.sink.clear(owner="me", flow="flow", dry_run=True) == 1
    assert writer.sink.clear(owner="me", flow="flow") == 1
    assert writer.sink.clear(owner="me", flow="flow") == 0
    again = Writer(tmp_path, lineage="two")
    again.sink.prepare(owner="another", lineage="two")
    again.write(0, [{"id": "a", "n": 1}])
    assert min(min(some) for some in again.store.versions()) > highest
    with pytest.raises(Refused, match="a newer lineage has taken it over"):
        writer.sink.prepare(owner="me", lineage="one", adopt=True)


def test_the_reference_store_keeps_the_contract(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", b"666")
    check_store(lambda: store, store.documents, refused=REFUSED, busy=store.be_busy)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (BlindStore, "a row of the stored version changes nothing"),
        (BulkStore, "of one request the row that does not fit is refused, and no other"),
        (QuietStore, "of one request the row that does not fit is refused, and no other"),
        (AllAgainStore, "of one request those rows are asked for again that the place does not take for now, and no others"),
        (ImpatientStore, "of one request those rows are asked for again that the place does not take for now, and no others"),
    ],
)
def test_a_store_that_breaks_the_contract_is_told_how(kind: type[SqliteStore], sentence: str, tmp_path: Path) -> None:
    store = kind(tmp_path / "store.db", b"666")
    with pytest.raises(AssertionError, match=sentence):
        check_store(lambda: store, store.documents, refused=REFUSED, busy=store.be_busy)


def check(kind: type[KeyedSink], folder: Path) -> None:
    store = SqliteStore(folder / "store.db")
    place = ConnectorContext("out", folder, flow="flow", work=folder / "work")
    check_sink(lambda: kind(place, store, key=(), connections=2), store.documents, schema=parse_schema(RECORD), rows=ROWS)


def test_the_sink_keeps_the_contract(tmp_path: Path) -> None:
    check(KeyedSink, tmp_path)


def test_a_sink_that_breaks_the_contract_is_told_how(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="attempts leave alone what another one has staged"):
        check(SharedStaging, tmp_path)
