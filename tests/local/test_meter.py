"""The figures of a display: what waits falls as soon as a Batch is through, not when the source is looked at again."""

from types import SimpleNamespace

import pytest

from scribengin.connectors.contract import BatchId, SourceStream
from scribengin.local.meter import Meter
from scribengin.spark.commit import Committed
from scribengin.state.contract import Counts, Decision


def committed(files: int, rows: int) -> Committed:
    streams = tuple(SourceStream(f"{index}", {}, 1, 100) for index in range(files))
    counts = {"rows": Counts(rows, rows), "kept": Counts(rows, rows)}
    decision = Decision(BatchId("f", "q", "l", 0, 1), "h", "p", (), (), (), counts, "")
    return Committed(decision, {"rows": streams}, {"process": 1.5}, replayed=False)


def look(files: int):
    backlog = {"rows": {"files": files, "bytes": files * 100, "rows": None, "oldest_s": None, "more": False}}
    progress = SimpleNamespace(backlog=backlog, watermark="")
    return SimpleNamespace(state="running", message="", restarts=0, progress=progress)


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
    assert view.phases_total_s == {"process": 1.5}
    run.progress.backlog = look(files=1).progress.backlog
    assert meter.view("q", run).lag_files == 1
    now[0] = 60.0
    assert meter.view("q", run).rows_per_s == 0
    meter.end()
    now[0] = 100.0
    assert meter.seconds() == 60.0


def test_a_replayed_batch_was_counted_by_the_process_that_decided_it():
    meter = Meter(("rows",), ("kept",))
    batch = committed(files=1, rows=10)
    meter.committed(Committed(batch.decision, batch.streams, batch.phases_s, replayed=True))
    assert meter.rows == Counts()
