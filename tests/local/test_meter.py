"""The figures of a display: what waits falls as soon as a Batch is through, not when the source is looked at again."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from scribengin.connectors.contract import BatchId, SourceStream
from scribengin.local.contract import RunSettings
from scribengin.local.query_metrics import WINDOW_S, CatchUp, Meter
from scribengin.local.run import run_flow
from scribengin.spark.commit import CommittedBatch
from scribengin.spark.dead_letter_limit import DeadTally
from scribengin.spark.query import QueryRun
from scribengin.state.channel_acks import ChannelBacklog
from scribengin.state.clocks import Clock
from scribengin.state.contract import Counts, Decision
from scribengin.watching.wording import watermark_text


def committed(files: int, rows: int) -> CommittedBatch:
    streams = tuple(SourceStream(f"{index}", {}, 1, 100) for index in range(files))
    counts = {"rows": Counts(rows, rows), "kept": Counts(rows, rows)}
    decision = Decision(BatchId("f", "q", "l", 0, 1), "h", "p", (), (), (), counts, "")
    return CommittedBatch(decision, {"rows": streams}, {"process": 1.5}, replayed=False, seconds={"rows": 0.5, "kept": 2.0})


def look(files: int, *, oldest_s: float | None = None, more: bool = False):
    backlog = {"rows": {"files": files, "bytes": files * 100, "rows": None, "oldest_s": oldest_s, "more": more}}
    progress = SimpleNamespace(backlog=backlog, watermark="", tasks=None, gated=(), held=None, held_bytes=None, state_partitions=4)
    context = SimpleNamespace(tally=DeadTally(()))
    return SimpleNamespace(state="running", message="", restarts=0, idled=False, progress=progress, idle=None, context=context)


def test_what_waits_and_what_is_done_add_up_between_two_looks():
    now = [0.0]
    meter = Meter(("rows",), ("kept",), now=lambda: now[0])
    run = look(files=4)
    view = meter.view("q", run)
    assert (view.lag_files, view.done) == (4, 0.0)
    now[0] = 2.0
    meter.committed(committed(files=3, rows=300))
    view = meter.view("q", run)
    assert (view.lag_files, view.lag_bytes, view.done) == (1, 100, 0.75)
    assert view.eta_s == pytest.approx(2 / 3)
    assert view.rows_per_s == 150
    assert (view.phases_total_s, view.tasks_s, view.state_partitions) == ({"process": 1.5}, 2.5, 4)
    run.progress.backlog = look(files=1).progress.backlog
    assert meter.view("q", run).lag_files == 1
    now[0] = 60.0
    assert meter.view("q", run).rows_per_s == 0
    meter.end()
    now[0] = 100.0
    assert meter.seconds() == 60.0


def replayed(batch):
    return CommittedBatch(batch.decision, batch.streams, batch.phases_s, replayed=True)


def test_a_batch_that_was_through_before_this_process_is_not_counted_again():
    meter = Meter(("rows",), ("kept",), last=0)
    meter.committed(replayed(committed(files=1, rows=10)))
    assert meter.rows == Counts()


def test_a_batch_whose_publishing_failed_and_was_done_again_is_counted_once():
    meter = Meter(("rows",), ("kept",))
    meter.committed(replayed(committed(files=1, rows=10)))
    meter.committed(replayed(committed(files=1, rows=10)))
    assert (meter.batches, meter.rows.rows_in, meter.last) == (1, 10, 0)


WAITS = """\
import time
from pathlib import Path

def work(row):
    deadline = time.monotonic() + 120
    while row["id"] == 2 and not Path({seen!r}).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return row
"""


def test_a_run_shows_how_far_its_first_batch_has_come(folder):
    seen = folder.path / "seen"
    folder.steps(WAITS.format(seen=str(seen))).flow("""\
version: 1
name: slow
sources: {rows: {type: files, path: data, format: json, split: 64KiB, schema: "id BIGINT"}}
steps: {worked: {from: rows, python: "steps:work"}}
sinks: {kept: {from: worked, type: files, path: out, format: json}}
""")
    for id_ in (1, 2):
        folder.data(f"data/{id_}.jsonl", [{"id": id_, "so that each file is a task": "x" * 40_000}])
    shown = []

    def watch(view):
        for query in view.queries:
            if query.tasks == (1, 2) and not query.batches:
                shown.append(query.done)
                seen.touch()

    result = run_flow(folder.path / "flow.yaml", RunSettings(once=True), watch, spark=folder.spark)
    assert result.balanced
    assert shown
    assert shown[0] == pytest.approx(0.5, abs=0.01)


def test_the_bar_moves_inside_a_batch():
    meter = Meter(("rows",), ("kept",), now=iter(range(100)).__next__)
    run = look(files=4)
    batch = committed(files=3, rows=300)
    meter.begun(batch.streams)
    assert meter.view("q", run).done == 0.0
    run.progress.tasks = (2, 4)
    view = meter.view("q", run)
    assert (view.tasks, view.done) == ((2, 4), 150 / 400)
    assert view.eta_s is not None
    run.state = "recovering"
    assert meter.view("q", run).done == 0.0
    run.state, run.progress.tasks = "running", None
    meter.committed(batch)
    assert meter.view("q", run).done == 0.75


def test_a_batch_of_which_nothing_moves_tells_for_how_long():
    now = [0.0]
    meter = Meter(("rows",), ("kept",), now=lambda: now[0])
    run, batch = look(files=4), committed(files=3, rows=300)
    still = []

    def look_at(moment_s, tasks=None):
        now[0], run.progress.tasks = moment_s, tasks
        still.append(meter.view("q", run).still_s)

    look_at(5.0)
    meter.begun(batch.streams)
    look_at(7.0)
    look_at(8.0, (0, 4))
    look_at(50.0, (0, 4))
    look_at(51.0, (1, 4))
    look_at(60.0)
    look_at(95.0)
    meter.committed(batch)
    look_at(96.0)
    assert still == [0.0, 2.0, 0.0, 42.0, 0.0, 0.0, 35.0, 0.0]
    meter.begun(batch.streams)
    run.state = "recovering"
    look_at(200.0)
    run.state = "running"
    look_at(201.0)
    assert still[-2:] == [0.0, 0.0]


def test_the_input_that_holds_the_watermark_back_is_named():
    run = look(files=0)
    run.progress.gated = ("events", "pays")
    meter = Meter(("events", "pays"), ("kept",))
    held_back_by = []
    for newest_us in ({"events": 5}, {"pays": 3, "events": 9}, {"pays": 10, "events": 7}):
        meter.committed(replace(committed(1, 1), newest_us=newest_us))
        held_back_by.append(meter.view("q", run).held_back_by)
    # what has brought no rows holds all back; an older time moves nothing back
    assert held_back_by == ["pays", "pays", "events"]
    run.progress.gated = ("events",)
    assert meter.view("q", run).held_back_by == ""


def test_how_far_behind_and_how_long_silent_the_input_is_that_holds_back_until_it_is_idle():
    run = look(files=0)
    run.progress.gated = ("events", "pays")
    meter = Meter(("events", "pays"), ("kept",), clock=lambda: 1000.0)
    batch = committed(1, 1)
    clocks = {"events": Clock(90 * 10**6, 0, 0, 995 * 10**6), "pays": Clock(20 * 10**6, 0, 0, 400 * 10**6)}
    newest = {node: clock.newest_us for node, clock in clocks.items()}
    meter.committed(replace(batch, decision=replace(batch.decision, clocks=clocks), newest_us=newest))
    view = meter.view("q", run)
    assert (view.held_back_by, view.behind_s, view.silent_s, view.idle) == ("pays", 70.0, 600.0, ())
    assert watermark_text(view) == "none yet, held back by pays (1m10s behind, silent for 10m00s)"
    run.idle = SimpleNamespace(idle_us={"pays": 600 * 10**6})
    view = meter.view("q", run)
    assert (view.held_back_by, view.idle) == ("", ("pays",))
    assert watermark_text(replace(view, watermark="now")) == "now, without pays (idle)"


class Fed:
    """A Query whose source gets and whose Batches take as many files as said, at times that the test says."""

    def __init__(self, meter, run, waits):
        self.meter, self.run, self.waits = meter, run, waits
        self.batch = -1

    def begins(self, files, *, arrived=0, oldest_s=None):
        """A look, and a Batch that takes so many."""
        self.waits += arrived
        self.run.state = "running" if files else "waiting"
        self.run.progress.backlog = look(self.waits, oldest_s=oldest_s, more=True).progress.backlog
        view = self.meter.view("q", self.run)
        if files:
            self.taken = committed(files, files * 10)
            self.meter.begun(self.taken.streams)
            view = self.meter.view("q", self.run)
        return view

    def ends(self):
        self.batch += 1
        self.waits -= len(self.taken.streams["rows"])
        decision = replace(self.taken.decision, batch=replace(self.taken.decision.batch, number=self.batch))
        self.meter.committed(replace(self.taken, decision=decision))
        return self.meter.view("q", self.run)


def fed(now, waits):
    return Fed(Meter(("rows",), ("kept",), now=lambda: now[0]), look(0, more=True), waits)


def test_the_time_to_catch_up_is_what_waits_by_the_rate_of_reading_less_that_of_arrival():
    now = [0.0]
    query = fed(now, 100)
    assert query.begins(20).catch_up_s is None, "one look tells no rate"
    now[0] = 10.0
    query.ends()
    view = query.begins(20, arrived=10)
    # 2 files a second read, 1 a second come: 90 wait
    assert (view.catch_up_s, view.falls_behind) == (pytest.approx(90.0), False)
    now[0] = 20.0
    assert query.ends().catch_up_s == pytest.approx(70.0)
    view = query.begins(20, arrived=10)
    assert view.catch_up_s == pytest.approx(80.0)
    now[0] = 30.0
    assert query.meter.view("q", query.run).catch_up_s == pytest.approx(80.0)
    # a Batch that takes longer than those before makes the rate smaller
    now[0] = 60.0
    assert query.meter.view("q", query.run).catch_up_s == pytest.approx(80.0 * 50 / 20)


def test_a_query_that_falls_behind_never_catches_up_and_one_that_is_level_has_nothing_to_catch_up():
    now = [0.0]
    query = fed(now, 20)
    query.begins(20)
    for second in (10.0, 20.0, 30.0):
        now[0] = second
        query.ends()
        view = query.begins(20, arrived=40)
    assert (view.catch_up_s, view.falls_behind) == (None, True)
    query.run.state = "stopped"
    assert query.meter.view("q", query.run).falls_behind, "what it was is told at the end"
    now[0] = 40.0
    query.ends()
    view = query.begins(query.waits)
    assert (view.lag_files, view.catch_up_s, view.falls_behind) == (60, None, False), "the Batch takes all there is"
    query.ends()
    now[0] = 50.0
    view = query.begins(0)
    assert (view.lag_files, view.catch_up_s, view.falls_behind) == (0, None, False)
    # what waited before it was level tells nothing about the next wave
    query.begins(20, arrived=100)
    now[0] = 60.0
    query.ends()
    assert query.begins(20, arrived=0).catch_up_s == pytest.approx(40.0)


def test_records_that_wait_for_enough_others_are_no_lag_to_catch_up():
    now = [0.0]
    query = fed(now, 0)
    for second in (1.0, 2.0, 3.0):
        now[0] = second
        view = query.begins(0, arrived=1)
    assert (view.lag_files, view.catch_up_s, view.falls_behind) == (3, None, False)
    query.begins(1, arrived=10)
    now[0] = 4.0
    query.ends()
    assert query.begins(1, arrived=10).falls_behind
    query.ends()
    assert not query.begins(0).falls_behind
    query.run.state = "stopped"
    assert not query.meter.view("q", query.run).falls_behind


def test_the_age_of_what_waits_grows_between_two_looks_and_ends_with_it():
    now = [0.0]
    query = fed(now, 30)
    assert query.begins(20, oldest_s=5.0).lag_s == 5.0
    now[0] = 8.0
    assert query.ends().lag_s == 13.0
    assert query.begins(10).lag_s is None
    now[0] = 9.0
    query.ends()
    query.begins(5, arrived=5, oldest_s=1.0)
    assert query.ends().lag_s is None, "all that waited is through"


def test_a_long_history_of_looks_is_not_kept():
    catch_up = CatchUp()
    for second in range(10_000):
        catch_up.note(float(second), 20_000 - second)
    assert len(catch_up._looks) <= WINDOW_S + 1
    assert catch_up.seconds(9_999.0, 100) == pytest.approx(100.0)
    # a flood that ends is forgotten with the window
    flooded = CatchUp()
    for second in range(100):
        flooded.note(float(second), 1000 + (second * 10 if second < 70 else 1400 - second * 10))
    assert flooded.seconds(99.0, 100) == pytest.approx(10.0)
    slow = CatchUp()
    for hour in range(10):
        slow.note(hour * 3600.0, 1000 - hour)
    assert slow.seconds(9 * 3600.0, 10) == pytest.approx(36_000.0)


def test_a_batch_under_way_has_its_number_its_time_and_is_never_all_there_is_to_do():
    now = [0.0]
    meter = Meter(("rows",), ("kept",), last=6, now=lambda: now[0])
    run = look(files=2)
    assert (meter.view("q", run).batch, meter.view("q", run).batch_s) == (7, 0.0)
    batch = committed(2, 200)
    meter.begun(batch.streams)
    run.progress.tasks = (4, 4)
    now[0] = 6.0
    view = meter.view("q", run)
    assert (view.batch, view.batch_s, view.done) == (7, 6.0, 0.99)
    meter.committed(replace(batch, decision=replace(batch.decision, batch=replace(batch.decision.batch, number=7))))
    run.progress.tasks = None
    view = meter.view("q", run)
    assert (view.batch, view.batch_s, view.done, view.ready) == (8, 0.0, 1.0, True)


def test_what_waits_for_a_query_with_state_is_what_spark_told_last():
    """Spark tells it with each Batch; what was committed since the first of these tellings must not be taken off all later ones."""
    run = QueryRun(SimpleNamespace(tally=DeadTally(())), once=False)
    run.state = "running"
    now = [0.0]
    meter = Meter(("rows",), ("kept",), now=lambda: now[0])
    for number, files in enumerate((40, 60, 80)):
        now[0] = number * 10.0
        batch = committed(20, 200)
        meter.begun(batch.streams)
        decision = replace(batch.decision, batch=replace(batch.decision.batch, number=number))
        meter.committed(replace(batch, decision=decision))
        (backlog,) = look(files, more=True).progress.backlog.values()
        told = json.dumps({"source": "rows", "backlog": json.dumps(backlog), "notes": ""})
        source = SimpleNamespace(latestOffset=told)
        run._observe(SimpleNamespace(lastProgress=SimpleNamespace(batchId=number, eventTime=None, stateOperators=[], sources=[source])))
        view = meter.view("q", run)
        assert view.lag_files == files
    assert view.falls_behind


class Channelled:
    """A Query that reads channel `a`, of whose packs each holds so many rows."""

    def __init__(self, *sources, pack_rows=1000):
        self.now, self.packs, self.pack_rows, self.batch = [0.0], 0, pack_rows, -1
        self.oldest_at = "2027-01-15T08:00:00.000+00:00"
        self.meter = Meter(
            ("a", *sources), ("kept",), channels={"a": self.waiting}, now=lambda: self.now[0], clock=lambda: 1_800_000_000.0 + self.now[0]
        )
        self.run = look(0)

    def waiting(self):
        return ChannelBacklog(self.packs * self.pack_rows, self.packs * 100, 1, self.oldest_at) if self.packs else ChannelBacklog()

    def looks(self, figure, *, more=True, **others):
        """The reader counts in packs, or in files and bytes."""
        seen = {"rows": None, "files": None, "bytes": None, "oldest_s": None, "more": more}
        seen |= {"rows": self.packs} if figure == "rows" else {"files": self.packs, "bytes": self.packs * 100}
        self.run.progress.backlog = {"a": seen, **others}
        return self.meter.view("q", self.run)

    def begins(self, packs, figure="rows"):
        stream = SourceStream("s", {}, 0, 0, rows=packs) if figure == "rows" else SourceStream("s", {}, packs, packs * 100)
        self.taken = packs, stream
        self.meter.begun({"a": (stream,)})

    def ends(self):
        packs, stream = self.taken
        self.batch += 1
        self.packs -= packs
        counts = {"a": Counts(packs * self.pack_rows, packs * self.pack_rows)}
        decision = Decision(BatchId("f", "q", "l", self.batch, 1), "h", "p", (), (), (), counts, "")
        self.meter.committed(CommittedBatch(decision, {"a": (stream,)}, {"process": 1.0}, replayed=False))


@pytest.mark.parametrize("figure", ["rows", "bytes"])
def test_what_waits_in_a_channel_is_told_in_rows_however_its_reader_counts(figure):
    query = Channelled()
    query.packs, query.now[0] = 40, 30.0
    view = query.looks(figure)
    assert (view.lag_rows, view.lag_bytes, view.lag_files, view.lag_s) == (40_000, 4_000, None, 30.0)
    assert view.lag_as_json()["rows"] == 40_000
    query.begins(10, figure)
    assert query.meter.view("q", query.run).lag_rows == 40_000, "what is under way waits until it is through"
    query.ends()
    assert query.meter.view("q", query.run).lag_rows == 30_000, "taken off once"
    query.begins(30, figure)
    query.ends()
    view = query.meter.view("q", query.run)
    assert (view.lag_rows, view.lag_s) == (0, None)


@pytest.mark.parametrize("figure", ["rows", "bytes"])
def test_how_far_a_channel_is_read_and_when_it_is_level_is_told_in_rows(figure):
    query = Channelled()
    query.packs = 40
    assert query.looks(figure, more=False).done == 0.0
    query.begins(10, figure)
    query.now[0] = 10.0
    query.ends()
    view = query.looks(figure, more=False)
    assert view.done == pytest.approx(0.25)
    query.begins(10, figure)
    assert query.meter.view("q", query.run).catch_up_s == pytest.approx(30.0)
    query.run.progress.tasks = (1, 2)
    assert query.meter.view("q", query.run).done == pytest.approx(0.375)
    query.run.progress.tasks = None
    query.ends()
    query.looks(figure, more=False)
    query.begins(20, figure)
    assert query.meter.view("q", query.run).catch_up_s is None, "the Batch takes all there is"


def test_a_channel_beside_another_source_adds_its_rows_where_both_are_known():
    query = Channelled("n")
    query.packs = 2
    asked = {"rows": 5, "files": None, "bytes": None, "oldest_s": 90.0, "more": True}
    view = query.looks("rows", n=asked)
    assert (view.lag_rows, view.lag_bytes, view.lag_s) == (2_005, None, 90.0)
    view = query.looks("rows", n=asked | {"rows": None, "files": 3, "bytes": 700})
    assert (view.lag_rows, view.lag_bytes, view.lag_files) == (None, 900, 3)
