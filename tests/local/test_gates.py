"""Back-pressure: what a channel holds decides how fast its feeder may go. Over decisions that are made by hand, with a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from scribengin.cli.display import gate_text, plain_line, slowest_text
from scribengin.connectors.contract import BatchId, Limits, Receipt, SourceStream
from scribengin.local.contract import GateView, QueryView, RunView
from scribengin.local.gates import Gate, Pressure
from scribengin.plan.channels import PlannedChannel
from scribengin.spec.model import Channel, Depth, Edge, Pack, Rate
from scribengin.state.contract import Counts, Decision
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Ends:
    """A channel between two Queries, whose Batches are decided here."""

    feeder: QueryFolder
    reader: QueryFolder
    clock: Clock
    edge: Edge
    written: int = 0
    read: int = 0
    pressure: Any = None
    gate: Any = None
    limits: dict[str, Limits] = field(default_factory=lambda: {"n": Limits(max_rows=1000)})

    def open(self) -> Ends:
        channel = PlannedChannel("a_to_far", "a", "near", "far", ("b",), self.edge)
        self.gate = Gate.of(channel, self.feeder, [(self.reader, "a")])
        self.gate.now = self.clock
        self.pressure = Pressure([self.gate], self.limits, self.clock)
        return self

    def feed(self, rows: int, *, took_s: float = 1.0, row_bytes: int = 10) -> Any:
        self.pressure.begun()
        self.clock.seconds += took_s
        receipt = Receipt("a_to_far", 0, rows, rows * row_bytes)
        decision = Decision(BatchId("f", "a_to_far", "l", self.written, 1), "", "", (), (receipt,), counts={"a_to_far": Counts(rows, rows)})
        Decisions(self.feeder.decisions).decide(decision)
        self.written += 1
        self.pressure.committed(Committed(decision, {"n": (SourceStream("n", {}, rows=rows),)}))
        return self.admit()

    def take(self, rows: int, *, took_s: float = 1.0) -> Any:
        self.clock.seconds += took_s
        decision = Decision(BatchId("f", "b", "l", self.read, 1), "", "", (), (), counts={"a": Counts(rows, rows)})
        Decisions(self.reader.decisions).decide(decision)
        self.read += 1
        return self.admit()

    def admit(self) -> Any:
        self.clock.seconds += 1.0  # a look is believed for a moment
        return self.pressure.admit()


@dataclass
class Committed:
    decision: Decision
    streams: Any


EDGE = Edge(
    channel=Channel("folder"),
    high_water=Depth(rows=2000),
    low_water=Depth(rows=1000),
    capacity=Depth(rows=5000),
    limit=Rate(),
    durability="end_to_end",
)


@pytest.fixture
def ends(tmp_path: Any) -> Ends:
    return Ends(QueryFolder(tmp_path / "near"), QueryFolder(tmp_path / "far"), Clock(), EDGE).open()


def test_below_high_water_nothing_holds_the_feeder_back(ends: Ends) -> None:
    admitted = ends.feed(1000)
    assert (admitted.wait_s, admitted.paused, admitted.why) == (0.0, False, "")


def test_past_high_water_the_feeder_waits_longer_the_more_there_is(ends: Ends) -> None:
    waits = []
    for _ in range(4):
        admitted = ends.feed(1000, took_s=10.0)
        waits.append(admitted.wait_s)
    assert waits[0] == waits[1] == 0.0
    assert 0.0 < waits[2] < waits[3]
    assert "slowed to" in admitted.why
    assert "4,000 rows wait" in admitted.why
    assert "a -> b" in admitted.why


def test_at_the_limit_it_pauses_and_goes_on_only_below_low_water(ends: Ends) -> None:
    for _ in range(5):
        admitted = ends.feed(1000)
    assert admitted.paused
    assert "is full: 5,000 rows wait" in admitted.why
    assert "goes on below 1,000 rows" in admitted.why
    assert "nothing reads it now (far)" in admitted.why
    assert ends.take(3000).paused
    admitted = ends.take(500)
    assert admitted.paused
    assert "in about" in admitted.why
    assert not ends.take(600).paused


def test_a_batch_takes_no_more_than_the_channel_has_room_for(ends: Ends) -> None:
    ends.feed(1000)
    for rows in (1000, 1000, 1000):
        ends.feed(rows)
    ends.take(0)
    admitted = ends.feed(400)
    assert admitted.share == pytest.approx(0.6)


def test_a_channel_smaller_than_the_first_batch_shrinks_that_too(ends: Ends) -> None:
    ends.edge = Edge(EDGE.channel, capacity=Depth(rows=100), high_water=Depth(rows=50), low_water=Depth(rows=10), limit=Rate())
    assert ends.open().admit().share == pytest.approx(0.1)


def test_the_age_of_the_oldest_row_counts_as_well(ends: Ends) -> None:
    ends.edge = Edge(EDGE.channel, high_water=Depth(age_s=60.0), low_water=Depth(age_s=30.0), capacity=Depth(age_s=300.0), limit=Rate())
    ends.open()
    ends.feed(10)
    ends.clock.seconds += 400.0
    assert ends.admit().paused
    assert not ends.take(10).paused


def test_a_limit_keeps_the_rate_of_rows_and_of_bytes(ends: Ends) -> None:
    for limit in (Rate(rows=100), Rate(bytes=1000)):
        ends.edge = Edge(EDGE.channel, limit=limit, capacity=Depth(), high_water=Depth(), low_water=Depth())
        ends.open()
        admitted = ends.feed(1000, took_s=1.0)
        assert admitted.wait_s == pytest.approx(8.0)
        assert admitted.share == pytest.approx(0.1)


def test_a_batch_waits_for_rows_that_fill_a_pack(ends: Ends) -> None:
    ends.edge = Edge(EDGE.channel, pack=Pack(500, 10**6, 9.0), limit=Rate(), capacity=Depth(), high_water=Depth(), low_water=Depth())
    ends.open()
    assert ends.feed(10, took_s=1.0).wait_s == pytest.approx(7.0)
    ends.clock.seconds += 10.0
    assert ends.feed(500, took_s=1.0).wait_s == 0.0


def test_best_effort_holds_nobody_back(ends: Ends) -> None:
    ends.edge = Edge(**{**{name: getattr(EDGE, name) for name in EDGE.__slots__}, "durability": "best_effort"})
    ends.open()
    for _ in range(7):
        admitted = ends.feed(1000)
    assert (admitted.wait_s, admitted.paused) == (0.0, False)
    assert "full" in ends.gate.full_text()


def test_what_was_dropped_does_not_wait_in_the_channel(ends: Ends) -> None:
    for _ in range(7):
        ends.feed(1000)
    assert "full" in ends.gate.full_text()
    ends.gate.dropped = lambda: 4000
    ends.clock.seconds += 1.0
    assert ends.gate.look().rows == 3000
    assert ends.gate.full_text() == ""


def test_a_gate_tells_depth_age_and_rates(ends: Ends) -> None:
    ends.gate.look()
    ends.feed(1000)
    ends.feed(1000)
    view = ends.gate.look()
    assert (view.rows, view.bytes) == (2000, 20_000)
    assert view.in_per_s > view.out_per_s == 0.0
    assert view.age_s > 0.0
    ends.take(2000)
    assert ends.gate.look().rows == 0


def test_words_for_a_chain_whose_middle_is_too_slow() -> None:
    gate = GateView("a_to_far", "hot -> enrich", "a_to_far", "near", "far", 720_000, 10**8, 60.0, 8000.0, 5000.0)
    view = RunView("f", "running", 1.0, (QueryView("kept", "running", tier="far", slowest=("enrich", 0.81)),), gates=(gate,))
    said = "enrich takes 81% of the Batch; hot -> enrich grows by 3,000 rows/s; at twice the rate it would catch up in 6m00s"
    assert slowest_text(view) == said
    assert said in plain_line(view)
    assert gate_text(gate) == "720,000 rows wait 95.4 MiB 1m00s, in 8,000/s, out 5,000/s"
