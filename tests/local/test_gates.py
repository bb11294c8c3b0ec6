"""Back-pressure: what a channel holds decides how fast its feeder may go. Over decisions that are made by hand, with a clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from scribengin.cli.display import plain_line
from scribengin.connectors.contract import BatchId, BatchLimits, Receipt, SourceStream
from scribengin.core.numbered_log import NumberedLog
from scribengin.local.backlog_view import Levels
from scribengin.local.channel_backpressure import ChannelThrottle, QueryBackPressure
from scribengin.local.contract import GateView, QueryView, RunView
from scribengin.plan.channels import PlannedChannel
from scribengin.spec.model import Channel, Depth, EdgeProperties, Pack, Rate
from scribengin.state.channel_acks import ChannelLink, QueryKey, QueryReading, QueryTopology
from scribengin.state.contract import Counts, Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder
from scribengin.state.lineage import open_lineage, read_lineage, rewind
from scribengin.state.source_log import SourceLog
from scribengin.watching.wording import gate_text, slowest_text

CHANNEL, READ_AS = "a_to_far", "a"
FILE_ROWS = 100
BEGUN_S = 1_800_000_000.0


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def since_1970(self) -> float:
        return BEGUN_S + self.seconds


@dataclass
class Ends:
    """A channel between two Queries, whose Batches are decided here. A file holds FILE_ROWS rows, or what is left."""

    feeder: QueryFolder
    reader: QueryFolder
    clock: Clock
    edge: EdgeProperties
    left: tuple[QueryFolder, ...] = ()
    """Queries that fed the channel before"""
    files: deque[tuple[str, int]] = field(default_factory=deque)
    """(name, rows) of what lies in the channel"""
    pressure: Any = None
    gate: Any = None
    limits: dict[str, BatchLimits] = field(default_factory=lambda: {"n": BatchLimits(max_rows=1000)})

    def open(self) -> Ends:
        """As a run that begins."""
        channel = PlannedChannel(CHANNEL, READ_AS, "near", "far", ("b",), self.edge)
        writer, reading = QueryKey("near", CHANNEL), QueryReading(QueryKey("far", "b"), READ_AS)
        loose = self.edge.durability == "best_effort"
        link = ChannelLink(CHANNEL, writer, (reading,), "folder", holds=not loose, drops=loose)
        topology = QueryTopology({writer: self.feeder, reading.query: self.reader}, (link,), frozenset(), self.left)
        self.levels = Levels(topology, self.clock)
        self.reading = reading
        self.gate = ChannelThrottle(channel, CHANNEL, lambda: self.levels.level(CHANNEL), self.clock, self.clock.since_1970)
        self.pressure = QueryBackPressure([self.gate], self.limits, self.clock)
        return self

    def feed(self, rows: int, *, took_s: float = 1.0, row_bytes: int = 10, dropped: bool = False) -> Any:
        """The feeder puts in a Batch."""
        self.pressure.begun()
        self.clock.seconds += took_s
        lineage, number = self._next(self.feeder, CHANNEL, ("n",))
        sizes = [min(FILE_ROWS, rows - begun) for begun in range(0, rows, FILE_ROWS)]
        names = [f"part-{number:010d}-{unit:05d}-000{lineage[:8]}.packs" for unit in range(len(sizes))]
        segments = [{"name": name, "rows": size, "bytes": size * row_bytes} for name, size in zip(names, sizes, strict=True)]
        receipt = Receipt(CHANNEL, 0, rows, rows * row_bytes, tuple(segments))
        taken = (SourceRange("n", number, number + 1),)
        decision = self._decided(self.feeder, BatchId("f", CHANNEL, lineage, number, 1), taken, (receipt,), {CHANNEL: Counts(rows, rows)})
        if dropped:
            log = NumberedLog(self.feeder.work(CHANNEL) / lineage / "outbox" / "dropped", "dropped")
            newest = log.newest()
            log.put(0 if newest is None else newest + 1, {"number": number, "rows": rows, "bytes": 0, "why": "away"})
        else:
            self.files += zip(names, sizes, strict=True)
        self._through(self.feeder, number)
        self.pressure.committed(Committed(decision, {"n": (SourceStream("n", {}, rows=rows),)}))
        return self.admit()

    def take(self, rows: int, *, took_s: float = 1.0) -> Any:
        """The reader takes whole files, in order."""
        self.clock.seconds += took_s
        taken: list[tuple[str, int]] = []
        while self.files and sum(rows for _, rows in taken) + self.files[0][1] <= rows:
            taken.append(self.files.popleft())
        lineage, number = self._next(self.reader, "b", (READ_AS,))
        pieces = [[name, 1, 1, 1, 0, 1, 1] for name, _ in taken]
        SourceLog(self.reader.sources, READ_AS).append(number, [SourceStream("f", {"root": "packs", "pieces": pieces})])
        counts = {READ_AS: Counts(rows, rows)}
        self._decided(self.reader, BatchId("f", "b", lineage, number, 1), (SourceRange(READ_AS, number, number + 1),), (), counts)
        self._through(self.reader, number)
        return self.admit()

    def admit(self) -> Any:
        """A look later."""
        self.clock.seconds += 1.0
        return self.pressure.admit()

    def _next(self, folder: QueryFolder, query: str, sources: tuple[str, ...]) -> tuple[str, int]:
        parts = dict.fromkeys((*sources, query), "p")
        lineage = open_lineage(folder, owner="me", fingerprint="f", state_fingerprint="", sources=sources, parts=parts)
        newest = Decisions(folder.decisions).newest()
        return lineage.id, 0 if newest is None else newest.batch.number + 1

    def _decided(self, folder: QueryFolder, batch: BatchId, taken: Any, receipts: Any, counts: Any) -> Decision:
        at = datetime.fromtimestamp(self.clock.since_1970(), UTC).isoformat(timespec="milliseconds")
        return Decisions(folder.decisions).decide(Decision(batch, "", "", taken, receipts, (), counts, at))

    def _through(self, folder: QueryFolder, number: int) -> None:
        commits = folder.checkpoint / "commits"
        commits.mkdir(parents=True, exist_ok=True)
        (commits / str(number)).touch()


@dataclass
class Committed:
    decision: Decision
    streams: Any


EDGE = EdgeProperties(
    channel=Channel("folder"),
    high_water=Depth(rows=2000),
    low_water=Depth(rows=1000),
    capacity=Depth(rows=5000),
    limit=Rate(),
    durability="end_to_end",
)


@pytest.fixture
def ends(tmp_path: Any) -> Ends:
    return Ends(QueryFolder(tmp_path / "near" / CHANNEL), QueryFolder(tmp_path / "far" / "b"), Clock(), EDGE).open()


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
    assert "throttled to" in admitted.why
    assert "4,000 rows wait" in admitted.why
    assert "a -> b" in admitted.why


def test_at_the_limit_it_pauses_and_goes_on_only_below_low_water(ends: Ends) -> None:
    for _ in range(5):
        admitted = ends.feed(1000)
    assert admitted.paused
    assert "is full: 5,000 rows wait" in admitted.why
    assert "resumes below 1,000 rows" in admitted.why
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
    ends.edge = EdgeProperties(EDGE.channel, capacity=Depth(rows=100), high_water=Depth(rows=50), low_water=Depth(rows=10), limit=Rate())
    assert ends.open().admit().share == pytest.approx(0.1)


def test_the_age_of_the_oldest_row_counts_as_well(ends: Ends) -> None:
    ends.edge = EdgeProperties(
        EDGE.channel, high_water=Depth(age_s=60.0), low_water=Depth(age_s=30.0), capacity=Depth(age_s=300.0), limit=Rate()
    )
    ends.open()
    ends.feed(10)
    ends.clock.seconds += 400.0
    assert ends.admit().paused
    assert not ends.take(10).paused


def test_a_limit_keeps_the_rate_of_rows_and_of_bytes(ends: Ends) -> None:
    for limit in (Rate(rows=100), Rate(bytes=1000)):
        ends.edge = EdgeProperties(EDGE.channel, limit=limit, capacity=Depth(), high_water=Depth(), low_water=Depth())
        ends.open()
        admitted = ends.feed(1000, took_s=1.0)
        assert admitted.wait_s == pytest.approx(8.0)
        assert admitted.share == pytest.approx(0.1)


def test_a_batch_waits_for_rows_that_fill_a_pack(ends: Ends) -> None:
    ends.edge = EdgeProperties(
        EDGE.channel, pack=Pack(500, 10**6, 9.0), limit=Rate(), capacity=Depth(), high_water=Depth(), low_water=Depth()
    )
    ends.open()
    assert ends.feed(10, took_s=1.0).wait_s == pytest.approx(7.0)
    ends.clock.seconds += 10.0
    assert ends.feed(500, took_s=1.0).wait_s == 0.0


def test_best_effort_holds_nobody_back(ends: Ends) -> None:
    ends.edge = EdgeProperties(**{**{name: getattr(EDGE, name) for name in EDGE.__slots__}, "durability": "best_effort"})
    ends.open()
    for _ in range(7):
        admitted = ends.feed(1000)
    assert (admitted.wait_s, admitted.paused) == (0.0, False)
    assert "full" in ends.gate.full_text()


def test_what_was_dropped_does_not_wait_in_the_channel(ends: Ends) -> None:
    ends.edge = EdgeProperties(**{**{name: getattr(EDGE, name) for name in EDGE.__slots__}, "durability": "best_effort"})
    ends.open()
    for _ in range(3):
        ends.feed(1000)
        ends.gate.view()
    for _ in range(4):
        ends.feed(1000, dropped=True)
    assert ends.gate.view().rows == 3000
    assert ends.gate.full_text() == ""


def test_a_gate_tells_depth_age_and_rates(ends: Ends) -> None:
    ends.gate.view()
    ends.feed(1000)
    ends.feed(1000)
    view = ends.gate.view()
    assert (view.rows, view.bytes) == (2000, 20_000)
    assert view.in_per_s > view.out_per_s == 0.0
    assert view.age_s > 0.0
    ends.take(2000)
    assert ends.gate.view().rows == 0


def test_words_for_a_chain_whose_middle_is_too_slow() -> None:
    gate = GateView("a_to_far", "hot -> enrich", "a_to_far", "near", "far", 720_000, 10**8, 60.0, 8000.0, 5000.0)
    view = RunView("f", "running", 1.0, (QueryView("kept", "running", tier="far", slowest=("enrich", 0.81)),), gates=(gate,))
    said = "enrich takes 81% of the Batch; hot -> enrich grows by 3,000 rows/s; at twice the rate it would catch up in 6m00s"
    assert slowest_text(view) == said
    assert said in plain_line(view)
    assert gate_text(gate) == "720,000 rows wait 95.4 MiB 1m00s, in 8,000/s, out 5,000/s"


def test_what_waits_from_before_a_rewind_of_the_feeder_holds_it_as_any_other_row(ends: Ends) -> None:
    for _ in range(5):
        ends.feed(1000)
    ends.take(1000)
    rewind(ends.feeder, {"n": 1})
    for looking in (ends, ends.open()):
        admitted = looking.admit()
        assert ends.gate.view().rows == 4000
        assert admitted.share == pytest.approx(1.0)
        assert "4,000 rows wait" in admitted.why
    admitted = ends.feed(1000)
    assert admitted.paused
    assert "is full: 5,000 rows wait" in admitted.why
    assert ends.levels.waiting_for(ends.reading).rows == 5000
    assert ends.take(3000).paused
    assert not ends.take(1500).paused
    assert ends.gate.view().rows == 500
    ends.take(500)
    assert ends.gate.view().rows == 0


def test_the_display_tells_rows_and_time_of_what_waits_from_before_a_rewind(ends: Ends) -> None:
    ends.feed(1000)
    rewind(ends.feeder, {"n": 0})
    ends.open().clock.seconds += 90.0
    view = ends.gate.view()
    assert (view.rows, view.bytes) == (1000, 10_000)
    assert gate_text(view) == "1,000 rows wait 9.8 KiB 1m31s"


def test_what_waits_from_before_a_move_of_the_feeder_holds_the_one_that_goes_on(ends: Ends, tmp_path: Any) -> None:
    for _ in range(5):
        ends.feed(1000)
    ends.take(1000)
    ends.left = (ends.feeder,)
    ends.feeder = QueryFolder(tmp_path / "other" / CHANNEL)
    ends.open()
    ends.feed(100)
    assert ends.gate.view().rows == 4100
    assert ends.feed(900).paused
    # the old feeder's own record tells from where it waits
    for key in ends.levels.topology.queries:
        ends.levels.keep(key)
    ends.open()
    assert ends.admit().paused
    assert ends.gate.view().rows == 5000
    assert not ends.take(4500).paused
    assert ends.gate.view().rows == 500


def test_a_reader_that_goes_back_has_before_it_what_an_earlier_feeder_put_in(ends: Ends) -> None:
    for _ in range(3):
        ends.feed(1000)
    ends.take(2000)
    rewind(ends.feeder, {"n": 3})
    ends.feed(1000)
    ends.take(1000)
    assert ends.gate.view().rows == 1000
    for key in ends.levels.topology.queries:
        ends.levels.keep(key)
    rewind(ends.reader, {READ_AS: 0})
    for looking in (ends, ends.open()):
        looking.admit()
        assert ends.gate.view().rows == 4000


def test_a_batch_counts_as_soon_as_it_is_committed_and_once(ends: Ends) -> None:
    """The clock stands still: the look at the state is believed, and what the feeder has put in since is known all the same."""
    ends.admit()
    feeding = ends.pressure
    ends.feed(1000, took_s=0.0)
    before_s = ends.clock.seconds
    for rows in (2000, 3000):
        ends.clock.seconds = before_s
        feeding.begun()
        ends.feed(1000, took_s=0.0)
        ends.clock.seconds = before_s
        assert ends.gate.view().rows == rows
    ends.clock.seconds += 10.0
    assert ends.gate.view().rows == 3000


def test_a_lineage_that_is_gone_into_three_rewinds_is_counted_from_what_was_kept(ends: Ends) -> None:
    waiting = 0
    for position in range(3):
        for _ in range(2):
            ends.feed(100)
        ends.take(100)
        waiting += 100
        for key in ends.levels.topology.queries:
            ends.levels.keep(key)
        rewind(ends.feeder, {"n": position})
        ends.open().admit()
        assert ends.gate.view().rows == waiting
    assert read_lineage(ends.feeder) is not None
