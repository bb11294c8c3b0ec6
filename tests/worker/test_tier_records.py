"""What a worker writes of its tier beside its report: once for each change, under its lease, never per Batch."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from scribengin.connectors.contract import BatchId, Receipt, SourceStream
from scribengin.control import flow_records, flow_requests
from scribengin.control.event_history import read_happened
from scribengin.control.world import RunId
from scribengin.core.errors import FencedError
from scribengin.local.contract import EndView, QueryView, RunView
from scribengin.registry.lease import RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import ColumnsRecord, Desired, Ends, QueryAck, Spec, TierSpec
from scribengin.registry.tree import ACK, COLUMNS, DESIRED, LEASE, NODE_SINK, NODE_SOURCE, NODE_STATE, SPEC, TASK
from scribengin.state.contract import Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.source_log import SourceLog
from scribengin.worker.tier_records import MOST_TASKS, Through, TierRecords
from tests.state.flow_states import INPUT, Chain, at, file_entry

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.registry.records import Task
    from scribengin.state.channel_acks import QueryTopology

ID = RunId("tweets", "core", 4)


class Bench:
    def __init__(self, path: Path) -> None:
        self.store = MemoryStore()
        self.registry = self.store.client()
        self.lease = RegistryLease(self.registry, LEASE("tweets", "core").path, {"run": 4})
        assert self.lease.acquire()
        self.folder = StateFolder(path, "tweets", "core")
        self.topology: QueryTopology | None = None
        self.records = TierRecords(self.registry, ID, self.lease, self.folder, "h1", topology=lambda: self.topology)

    def decide(self, query: str, number: int, streams: int, units: int) -> None:
        folder = self.folder.query(query)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.lineage.write_text("{}")
        log = SourceLog(folder.sources, "tweets")
        log.append(number, [SourceStream(f"tweets-{n}[{number}]", {"n": n}) for n in range(streams)])
        receipts = tuple(Receipt("kept", unit, 10 + unit, 100) for unit in range(units))
        decision = Decision(
            BatchId("tweets", query, "lineage", number, 1), "hash", "plan", (SourceRange("tweets", number, number + 1),), receipts
        )
        Decisions(folder.decisions).decide(decision)

    def tasks(self) -> list[Task]:
        found = [read_record(self.registry, TASK("tweets", "core", str(number))) for number in range(200)]
        return [each.record for each in found if isinstance(each, Stored)]

    def record(self, spot: Any) -> Any:
        found = read_record(self.registry, spot)
        return found.record if isinstance(found, Stored) else None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_is_acknowledged_to_the_end_of_the_flow_is_written_where_it_has_changed(bench: Bench, tmp_path: Path) -> None:
    chain = Chain(tmp_path / "chain", "abc")
    lease = RegistryLease(bench.registry, LEASE("tweets", "a").path, {"run": 1})
    assert lease.acquire()
    records = TierRecords(bench.registry, RunId("tweets", "a", 1), lease, bench.folder, "h1", topology=lambda: bench.topology)

    def said() -> QueryAck:
        records.write_acks()
        (query,) = bench.record(ACK("tweets", "a")).queries.values()
        assert isinstance(query, QueryAck)
        return query

    records.write_acks()
    bench.topology = chain.topology()
    records.write_acks()
    assert bench.record(ACK("tweets", "a")) is None, "nothing of it ever ran"
    for number in range(3):
        chain["a"].batch({INPUT: file_entry(f"{number}.jsonl")})
    chain.pass_on("b", 0, 1)
    assert (said().decided, said().acknowledged, said().released, said().channels) == (2, -1, {}, {"a_b": -1})
    chain.pass_on("c", 0)
    now = said()
    assert (now.acknowledged, now.acknowledged_at, now.read, now.released) == (1, at(1), {INPUT: 3}, {INPUT: 2})
    assert now.channels == {"a_b": 1}
    before = bench.store.revision
    assert said() == now
    assert bench.store.revision == before, "no news, no write"
    # planned anew, by another worker: it goes on from there
    bench.topology = chain.topology()
    chain.pass_on("b", 2)
    chain.pass_on("c", 1)
    assert (said().acknowledged, said().released) == (2, {INPUT: 3})


def test_moments_of_a_source_are_through_when_the_entries_that_were_there_then_are_acknowledged(bench: Bench, tmp_path: Path) -> None:
    through = Through()
    through.released("one", 0, 5.0)
    through.clear(10.0, lambda: 2)
    through.clear(10.0, lambda: 9)
    through.clear(20.0, lambda: 3)
    through.clear(15.0, lambda: 3)
    through.released("one", 1, 30.0)
    assert through.marks() == ()
    through.released("one", 2, 31.0)
    assert through.marks() == ((10.0, 31.0),)
    through.clear(25.0, lambda: 3)
    through.released("one", 3, 32.0)
    assert through.marks() == ((10.0, 31.0), (25.0, 32.0)), "of several at a time the newest"
    for moment in range(100, 400):
        through.clear(float(moment), lambda: 3)
        through.released("one", 3, moment + 0.5)
    marks = through.marks()
    assert marks[-1] == (399.0, 399.5)
    assert marks == tuple(sorted(marks))
    assert len(marks) <= 40
    assert marks[0][0] < 150.0, "old ones stay, with gaps: who is behind by an hour finds one"
    through.clear(500.0, lambda: 3)
    through.released("two", 3, 501.0)
    assert through.marks() == (), "in another lineage what was through is read again"


def test_that_nothing_has_come_since_is_written_more_seldom(bench: Bench, tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab")
    lease = RegistryLease(bench.registry, LEASE("tweets", "a").path, {"run": 1})
    assert lease.acquire()
    topology = chain.topology()
    folder: Any = SimpleNamespace(query=lambda name: chain[name].folder)

    def worker() -> TierRecords:
        return TierRecords(bench.registry, RunId("tweets", "a", 1), lease, folder, "h1", topology=lambda: topology)

    records = worker()

    def said(clear_at: float) -> Any:
        query = QueryView("a", "running", sources={INPUT: EndView(clear_at=clear_at), "b": EndView(channel=True)})
        records.show(RunView("tweets", "running", 1.0, (query,)))
        records.write_acks()
        return bench.record(ACK("tweets", "a")).queries["a"].through.get(INPUT, ())

    chain["a"].batch({INPUT: file_entry("x")})
    assert said(10.0) == ()
    chain.pass_on("b", 0)
    ((moment, _),) = said(11.0)
    assert moment == 11.0
    before = bench.store.revision
    said(12.0)
    assert bench.store.revision == before
    records._acked_at -= 60.0
    assert [moment for moment, _ in said(13.0)] == [11.0, 12.0, 13.0]
    records = worker()
    assert [moment for moment, _ in said(14.0)] == [11.0, 12.0, 13.0, 14.0], "the next worker goes on from there"


def test_each_task_says_what_it_reads_and_writes_and_how_far_it_is(bench: Bench) -> None:
    bench.records.write_tasks()
    assert bench.tasks() == []
    bench.decide("counts", 0, streams=2, units=1)
    bench.decide("kept", 0, streams=1, units=3)
    bench.records.write_tasks()
    tasks = bench.tasks()
    assert [task.query for task in tasks] == ["counts", "counts", "kept", "kept", "kept"]
    assert tasks[0].sources == {"tweets": ["tweets-0[0]"]}
    assert tasks[1].sources == {"tweets": ["tweets-1[0]"]}
    assert tasks[1].sinks == {}
    assert tasks[4].sinks == {"kept": {"unit": 2, "rows": 12, "bytes": 100}}
    assert {task.owner for task in tasks} == {"tweets.core-4"}
    assert {tuple(task.position.items()) for task in tasks} == {(("tweets", 1),)}
    person = bench.store.client()
    person.commit(flow_requests.DESIRED("tweets").create(Desired(state="running", version=1)))
    said = flow_records.read_tasks(person, "tweets")
    assert [(each.tier, each.task, each.batch) for each in said] == [("core", number, 0) for number in range(5)]


def test_nothing_is_written_where_nothing_is_new_and_tasks_that_are_fewer_go(bench: Bench) -> None:
    bench.decide("kept", 0, streams=12, units=12)
    bench.records.write_tasks()
    before = bench.store.revision
    bench.records.write_tasks()
    assert bench.store.revision == before
    bench.decide("kept", 1, streams=2, units=2)
    bench.records.write_tasks()
    assert [task.batch for task in bench.tasks()] == [1, 1]
    assert bench.store.revision == before + 1


def test_many_tasks_are_told_up_to_a_bound(bench: Bench) -> None:
    bench.decide("kept", 0, streams=300, units=1)
    bench.records.write_tasks()
    assert len(bench.tasks()) == MOST_TASKS


def test_ends_and_state_are_written_once_for_each_change(bench: Bench) -> None:
    bench.records.write()
    assert bench.record(NODE_STATE("tweets.core")).state == "starting"
    query = QueryView("kept", "running", sources={"hot_kept": EndView()}, sinks={"kept": EndView(), "counts": EndView()})
    bench.records.show(RunView("tweets", "running", 1.0, (query,)))
    bench.records.write()
    assert bench.record(NODE_SOURCE("tweets.core")) == Ends(nodes=("hot_kept",))
    assert bench.record(NODE_SINK("tweets.core")) == Ends(nodes=("counts", "kept"))
    state = bench.record(NODE_STATE("tweets.core"))
    assert (state.state, state.host) == ("running", "h1")
    before = bench.store.revision
    bench.records.write()
    assert bench.store.revision == before
    bench.records.show(RunView("tweets", "ended", 2.0, (query,)))
    bench.records.write()
    assert bench.record(NODE_STATE("tweets.core")).state == "paused"


def test_the_state_goes_with_its_worker_and_is_taken_over_by_the_next(bench: Bench) -> None:
    bench.records.write()
    bench.store.expire(bench.registry)
    assert bench.record(NODE_STATE("tweets.core")) is None
    with pytest.raises(FencedError):
        bench.records.write()
    assert bench.lease.acquire()
    bench.records.write()
    assert bench.record(NODE_STATE("tweets.core")).host == "h1"
    stranger = bench.store.client()
    other = RegistryLease(stranger, LEASE("tweets", "core").path, {"run": 5})
    bench.lease.release()
    assert other.acquire()
    successor = TierRecords(stranger, RunId("tweets", "core", 5), other, bench.folder, "h2")
    successor.write()
    assert bench.record(NODE_STATE("tweets.core")).host == "h2"


def noticed(column: str, at: str, **more: Any) -> dict[str, Any]:
    known = {"source": "tweets", "kind": "new", "type": "STRING", "file": "a.jsonl", "line": 1, "batch": 3, "records": 0, "now": "dropped"}
    return {**known, "column": column, "at": at, **more}


def test_what_data_have_that_schemas_have_not_is_told_in_the_tree_and_becomes_an_event(bench: Bench) -> None:
    def shown(*rows: dict[str, Any]) -> RunView:
        return RunView("tweets", "running", 1.0, (QueryView("kept", "running"),), noticed=rows)

    person = bench.store.client()
    person.commit(flow_requests.DESIRED("tweets").create(Desired(state="running", version=1)))
    counted = noticed("amount", "2026-01-02T00:00:00Z", kind="nulled", records=2, now="null", type="DOUBLE")
    bench.records.show(shown(noticed("more", "2026-01-01T00:00:00Z"), counted))
    bench.records.write_columns(counts=False)
    told = [each for each in read_happened(person, "tweets") if each.what == "columns"]
    assert [(each.at, each.says) for each in told] == [
        ("2026-01-02T00:00:00Z", 'source tweets: column "amount": 2 values are not of type DOUBLE, first in a.jsonl:1: null'),
        ("2026-01-01T00:00:00Z", 'source tweets: column "more" (STRING) is new, first in a.jsonl:1: dropped'),
    ]
    assert [(row["tier"], row["column"]) for row in flow_records.describe(person, "tweets")["noticed"]] == [
        ("core", "more"),
        ("core", "amount"),
    ]

    # counts alone are no news, but for the half-minute's look, and for the last one
    before = bench.store.revision
    bench.records.show(shown(noticed("more", "2026-01-01T00:00:00Z"), {**counted, "records": 7}))
    bench.records.write_columns(counts=False)
    assert bench.store.revision == before
    bench.records.end()
    assert bench.record(COLUMNS("tweets", "core")).noticed[1]["records"] == 7

    # the next worker knows nothing before its Queries are open, and leaves what is there
    successor = TierRecords(bench.registry, ID, bench.lease, bench.folder, "h1")
    successor.show(RunView("tweets", "checking", 0.0))
    successor.write_columns()
    assert len(bench.record(COLUMNS("tweets", "core")).noticed) == 2
    before = bench.store.revision
    successor.show(shown(noticed("more", "2026-01-01T00:00:00Z"), {**counted, "records": 7}))
    successor.write_columns(counts=False)
    assert bench.store.revision == before
    successor.show(shown())
    successor.write_columns(counts=False)
    assert bench.record(COLUMNS("tweets", "core")).noticed == ()


def test_columns_without_end_and_what_a_hand_wrote_do_no_harm(bench: Bench) -> None:
    person = bench.store.client()
    person.commit(flow_requests.DESIRED("tweets").create(Desired(state="running", version=1)))
    rows = tuple(noticed(f"c{index}", f"2026-01-01T00:00:{index:04}Z", type="S" * 10_000) for index in range(300))
    bench.records.show(RunView("tweets", "running", 1.0, (QueryView("kept", "running"),), noticed=rows))
    bench.records.write_columns()
    found = flow_records.read_noticed(person, "tweets")
    assert (len(found), found[-1]["column"], len(found[0]["type"])) == (100, "c299", 501)
    person.commit(put(person, COLUMNS("tweets", "core"), ColumnsRecord(noticed=({"source": 7}, {}))))
    assert read_happened(person, "tweets") == ()
    assert flow_records.read_noticed(person, "tweets") == []


def test_columns_of_a_tier_that_the_flow_has_no_more_are_told_by_the_one_that_has_its_nodes(bench: Bench) -> None:
    person = bench.store.client()
    spec = Spec(package="p", path="f", base="/b", state="/s", tiers={"core": TierSpec(), "edge": TierSpec()})
    person.commit(
        SPEC("tweets", "1").create(spec),
        SPEC("tweets", "2").create(replace(spec, tiers={"edge": TierSpec()})),
        DESIRED("tweets").create(Desired(state="running", version=1)),
    )
    accepted = {"sink": "kept", "columns": "id BIGINT", "instead": (), "readers": "", "at": "2026-01-01T00:00:00Z", "by": "ann"}
    record = ColumnsRecord(noticed=(noticed("note", "2026-01-01T00:00:00Z"),), accepted=(accepted,))
    person.commit(COLUMNS("tweets", "core").create(record), COLUMNS("tweets", "edge").create(record))

    def told() -> list[list[str]]:
        return [
            [row["tier"] for row in rows]
            for rows in (flow_records.read_noticed(person, "tweets"), flow_records.read_accepted(person, "tweets"))
        ]

    assert told() == [["core", "edge"]] * 2
    person.commit(put(person, DESIRED("tweets"), Desired(state="running", version=2)))
    assert told() == [["edge"]] * 2
    assert [each.what for each in read_happened(person, "tweets")].count("columns") == 2


def test_a_worker_without_its_lease_writes_nothing(bench: Bench) -> None:
    bench.decide("kept", 0, streams=1, units=1)
    bench.lease.release()
    before = bench.store.revision
    for write in (bench.records.write, bench.records.write_tasks):
        with pytest.raises(FencedError):
            write()
    assert bench.store.revision == before


def test_it_writes_by_itself_until_it_is_closed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.worker.tier_records.LOOK_S", 0.01)
    bench.decide("kept", 0, streams=1, units=1)
    bench.records.start()
    deadline = time.monotonic() + 120
    while not bench.tasks():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    bench.records.close()  # which waits no longer than until its next look
    bench.records._thread.join(120)
    assert not bench.records._thread.is_alive()
