"""Limits: said by people, taken up by workers. No Spark, no processes."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.contract import BatchLimits
from scribengin.connectors.group.health import MemberOverrides
from scribengin.control.rate_limits import RateLimits, find_limited, read_limits, set_limit
from scribengin.core.errors import Refused
from scribengin.local.rate_limit import FlowLimits, Paced, RateLimit, UpstreamShare
from scribengin.registry.contract import ANYONE, Create, Delete, Grant, May, RegistryEntry
from scribengin.registry.flow_ends import HeldBackSinks, SinkHold
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import GroupRecord, Limit, Share, WorkerOrder
from scribengin.registry.tree import GROUP, HELD_BACK, LIMIT, SHARE, WORKER_ORDER
from scribengin.worker.registry_watch import LiveLimits, LiveTurns, OwnOrder
from tests.control.test_topology import Person

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIERED = """\
version: 1
name: tiered
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT"}
steps:
  big: {from: rows, filter: id > 10}
  odd: {from: big, filter: id % 2 = 1}
sinks:
  kept: {from: odd, type: files, path: out, format: json}
tiers:
  edge: {steps: [big]}
  core: {steps: [odd]}
"""


def limited(person: Person, flow: str, target: str = "", **pace: float) -> RateLimits:
    return set_limit(person.registry, flow, *find_limited(person.registry, person.packages, flow, target), **pace)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = Person(tmp_path / "flows")
    person.applies(person.writes("tiered.yaml", TIERED))
    return person


def test_a_limit_is_set_changed_and_taken_off_and_what_others_keep_there_stays(person: Person) -> None:
    assert limited(person, "tiered", rows_per_s=10).of == {"": {"rows_per_s": 10}}
    assert limited(person, "tiered", "rows", bytes_per_s=5).of == {"": {"rows_per_s": 10}, "rows": {"bytes_per_s": 5}}
    edges = limited(person, "tiered", "big -> odd", rows_per_s=7).of
    assert list(edges.values())[-1] == {"rows_per_s": 7}
    assert limited(person, "tiered", "big->odd").of == {"": {"rows_per_s": 10}, "rows": {"bytes_per_s": 5}}
    limited(person, "tiered", "rows")
    assert limited(person, "tiered").of == {}
    assert person.registry.read(LIMIT("tiered").path) is None, "no limit, no record"
    person.registry.commit(Create(LIMIT("tiered").path, {"format": 1, "rows_per_s": 3, "note": "by hand"}))
    assert limited(person, "tiered").of == {}
    there = person.registry.read(LIMIT("tiered").path)
    assert isinstance(there, RegistryEntry)
    assert there.value["note"] == "by hand"


def test_what_is_no_limit_is_refused(person: Person) -> None:
    for flow, target, pace, code in (
        ("other", "", {"rows_per_s": 1}, "flow-unknown"),
        ("tiered", "row", {"rows_per_s": 1}, "limit-unknown"),
        ("tiered", "", {"rows_per_s": 0}, "limit-value"),
        ("tiered", "rows", {"bytes_per_s": -5}, "limit-value"),
    ):
        with pytest.raises(Refused) as refused:
            limited(person, flow, target, **pace)  # type: ignore[arg-type]
        assert refused.value.code == code
    assert read_limits(person.registry, "tiered").of == {}


def test_a_worker_hears_of_a_change_at_once_and_keeps_what_it_knew(person: Person) -> None:
    live = LiveLimits(person.store.client(), "tiered")
    try:
        assert live() == FlowLimits()
        person.registry.commit(LIMIT("tiered").create(Limit(rows_per_s=5, edges={"c": {"bytes_per_s": 9.0}})))
        until(lambda: live() != FlowLimits())
        assert live() == FlowLimits(RateLimit(rows_per_s=5), {}, {"c": RateLimit(bytes_per_s=9.0)})
        person.store.write_raw(LIMIT("tiered").path, b"{")
        live._followed.refresh()
        assert live().flow == RateLimit(rows_per_s=5)
        stored = read_record(person.registry, LIMIT("tiered"))
        assert not isinstance(stored, Stored)
    finally:
        live.close()


def test_what_a_worker_may_not_read_changes_nothing_and_is_told_once() -> None:
    masters = "digest:masters"
    store, told = MemoryStore(grants=(Grant(masters, May.ALL),)), list[str]()
    master, readable = store.client(masters), (Grant(ANYONE, May.READ),)
    master.commit(LIMIT("tiered").create(Limit(rows_per_s=5), grants=readable))
    master.commit(GROUP("disks").create(GroupRecord(members={"a": 1})))
    live, turns = LiveLimits(store.client(), "tiered", told.append), LiveTurns(store.client(), told.append)
    try:
        assert turns("disks") == MemberOverrides(), "no reason for a Batch to fail"
        master.commit(SHARE("tiered").create(Share(rows_per_s=3)))
        until(lambda: len(told) == 2)
        for _ in range(3):
            live._followed.refresh()
            turns._followed.refresh()
        assert live() == FlowLimits(RateLimit(rows_per_s=5))
        assert sorted(text.partition(":")[0] for text in told) == [
            "limits stay as they were",
            "the settings of group disks stay as they were",
        ]
        master.commit(Delete(GROUP("disks").path), Delete(SHARE("tiered").path))
        master.commit(
            SHARE("tiered").create(Share(rows_per_s=4), grants=readable),
            GROUP("disks").create(GroupRecord(members={"a": 3}), grants=readable),
        )
        until(lambda: live().share == RateLimit(rows_per_s=4) and turns("disks") == MemberOverrides({"a": 3.0}, {}))
    finally:
        live.close()
        turns.close()


def test_a_worker_that_no_signal_reaches_reads_in_its_order_that_it_is_to_end() -> None:
    store, told = MemoryStore(), list[str]()
    master, order = store.client(), WORKER_ORDER("yarn", "tweets.main-1")
    master.commit(order.create(WorkerOrder(ask="run")))
    own = OwnOrder(store.client(), "yarn", "tweets.main-1", told.append)
    try:
        assert told == []
        master.commit(put(master, order, WorkerOrder(ask="stop", grace_s=5.0)))
        until(lambda: told != [])
        assert told[0] == "its node was ordered to stop it"
    finally:
        own.close()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_edge_is_held_by_what_goes_over_it_and_a_flow_by_equal_parts(person: Person) -> None:
    from scribengin.control.offsets import prepared_flow

    prepared, _ = prepared_flow(person.registry, person.packages, "tiered")
    plan = prepared.plan
    (channel,) = plan.channels
    feeder, reader = plan.feeder(channel), plan.readers(channel)[0]
    clock, limits = [100.0], [FlowLimits(edges={channel.names[0]: RateLimit(rows_per_s=10)})]

    def paced(query: Any, tier: str) -> Paced:
        batch = {source: BatchLimits(max_bytes=1000) for source in query.sources}
        return Paced(query, plan, tier, batch, lambda: limits[0], now=lambda: clock[0])

    def through(held: Paced, query: Any, rows: int, size: int) -> None:
        held.begun()
        receipts = [SimpleNamespace(sink=sink, rows=rows, bytes=size) for sink in query.sinks]
        counts = {source: SimpleNamespace(rows_in=2 * rows) for source in query.sources}
        streams = {source: (SimpleNamespace(bytes=500),) for source in query.sources}
        held.committed(SimpleNamespace(decision=SimpleNamespace(counts=counts, receipts=receipts), streams=streams))  # type: ignore[arg-type]

    front, back = paced(feeder, "edge"), paced(reader, "core")
    assert front.admit().wait_s == 0.0
    through(front, feeder, 30, 300)
    assert front.admit().wait_s == pytest.approx(3.0)
    assert front.admit().share == pytest.approx(1 / 6), "a full Batch would be 60 rows, 10 of which come in a second"
    limits[0] = FlowLimits(edges={channel.names[0]: RateLimit(rows_per_s=30)})
    assert front.admit().wait_s == pytest.approx(1.0), "another limit holds at once"
    limits[0] = FlowLimits(flow=RateLimit(rows_per_s=20))
    assert front.admit().wait_s == pytest.approx(3.0), "60 rows were read, and it is the only Query that reads from outside"
    through(back, reader, 30, 300)
    assert back.admit().wait_s == 0.0, "what comes by a channel was counted where it came in"
    clock[0] += 2.5
    assert front.admit().wait_s == pytest.approx(0.5)
    limits[0] = FlowLimits()
    assert front.admit().wait_s == 0.0


def test_a_query_works_for_the_share_of_its_time_that_readers_of_its_sinks_leave_and_no_other_does(person: Person) -> None:
    from scribengin.control.offsets import prepared_flow

    plan = prepared_flow(person.registry, person.packages, "tiered")[0].plan
    (channel,) = plan.channels
    feeder, reader = plan.feeder(channel), plan.readers(channel)[0]
    clock, limits = [100.0], [FlowLimits()]

    def paced(query: Any, tier: str) -> Paced:
        return Paced(query, plan, tier, {}, lambda: limits[0], now=lambda: clock[0])

    front, back = paced(feeder, "edge"), paced(reader, "core")
    for held in (front, back):
        held.begun()
        clock[0] += 3.0
        held.committed(SimpleNamespace(decision=SimpleNamespace(counts={}, receipts=[]), streams={}))  # type: ignore[arg-type]
    limits[0] = FlowLimits(held={"kept": UpstreamShare(0.25, "throttled to 25%: much waits")})
    assert (back.admit().wait_s, back.admit().why) == (pytest.approx(9.0), "throttled to 25%: much waits")
    assert (front.admit().wait_s, front.admit().why) == (0.0, ""), "it feeds a channel, which has its own levels"
    clock[0] += 9.0
    assert back.admit().wait_s == 0.0
    limits[0] = FlowLimits(held={"kept": UpstreamShare(0.0, "paused: too much waits")})
    assert back.admit().paused
    limits[0] = FlowLimits()
    assert not back.admit().paused


def test_a_worker_hears_that_a_reader_holds_it_back_beside_its_limits(person: Person) -> None:
    live = LiveLimits(person.store.client(), "tiered")
    try:
        hold = SinkHold(flow="other", source="in", share=0.5, why="much waits")
        person.registry.commit(LIMIT("tiered").create(Limit(rows_per_s=5)), HELD_BACK("tiered").create(HeldBackSinks(sinks={"kept": hold})))
        live._followed.refresh()
        assert live() == FlowLimits(RateLimit(rows_per_s=5), held={"kept": UpstreamShare(0.5, "much waits")})
        person.store.write_raw(HELD_BACK("tiered").path, b"{")
        live._followed.refresh()
        assert live().held == {"kept": UpstreamShare(0.5, "much waits")}, "what says nothing changes nothing"
    finally:
        live.close()
