"""Every crash point, every kind of kill, every format, with and without partitions: nothing lost, doubled, torn or invented.

The whole table is run with SCRIBENGIN_TRIALS=all (some minutes); else each point meets one kill, format and partitioning, in turn.
"""

import itertools
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scribengin.core.errors import Refused
from scribengin.core.faults import POINTS
from scribengin.testing import campaign
from scribengin.testing.protocol import Driver, Job
from scribengin.testing.trials import Outcome, killed, out_of_room, overtaken

FOLDING = tuple(point for point in POINTS if point.startswith("fold."))
RECOVERY = tuple(point for point in POINTS if point.startswith("recovery."))
BATCH = tuple(point for point in POINTS if point not in (*FOLDING, *RECOVERY, "lease.taken"))
KINDS = list(itertools.product(("kill", "die"), ("json", "csv", "text", "parquet"), ((), ("bucket",))))
ALL = os.environ.get("SCRIBENGIN_TRIALS") == "all"


@dataclass(frozen=True)
class Cell:
    point: str
    kill: str
    format: str
    partition_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.point}:{self.kill}-{self.format}{'-partitioned' * bool(self.partition_by)}"


def table(*points: str) -> list[Cell]:
    """Each point with the next of the kinds, so that neighbours differ in all of them."""
    each = len(KINDS) if ALL else 1
    return [Cell(point, *KINDS[(5 * number + nth) % len(KINDS)]) for number, point in enumerate(points) for nth in range(each)]


def cells(*points: str) -> pytest.MarkDecorator:
    """That table, a test each."""
    return pytest.mark.parametrize("cell", table(*points), ids=str)


def job_of(place: Path, cell: Cell | None = None, **more: int) -> Job:
    kind: dict[str, Any] = {} if cell is None else {"format": cell.format, "partition_by": cell.partition_by}
    return Job(place / "state", place / "out", **kind, **more)


def assert_clean(outcome: Outcome, job: Job) -> None:
    assert outcome.clean, str(outcome)
    assert campaign.BUG not in outcome.statuses, str(outcome)
    assert campaign.audit(job) == ()


@cells("lease.taken", *(f"{point}@{nth}" for nth in (1, 2) for point in BATCH))
def test_a_driver_killed_at(cell: Cell, place: Path) -> None:
    job = job_of(place, cell)
    outcome = killed(job, [f"{cell.point}:{cell.kill}"])
    assert outcome.statuses == (-9,), "the point was not reached"
    assert_clean(outcome, job)
    assert not [path for path in job.out.rglob("_scribengin/*/staged/*/*") if path.is_file()]


@cells(*(f"{first} {then}" for first in ("decide.after@2", "publish.record.after@3", "publish.renamed@3") for then in RECOVERY))
def test_a_driver_killed_and_killed_again_in_recovery(cell: Cell, place: Path) -> None:
    job = job_of(place, cell)
    first, then = cell.point.split()
    outcome = killed(job, [f"{first}:{cell.kill}", f"{then}:{cell.kill}", f"{then}:{cell.kill}", "publish.renamed@1:kill"])
    assert outcome.statuses[:3] == (-9, -9, -9)
    assert_clean(outcome, job)


@cells(*(f"{point}@{nth}" for point in FOLDING for nth in (1, 2, 3, 4)))
def test_a_driver_killed_while_it_folds(cell: Cell, place: Path) -> None:
    job = job_of(place, cell, batches=9, rows=4, fold_every=3)
    outcome = killed(job, [f"{cell.point}:{cell.kill}", "fold.written@1:kill"])
    assert outcome.statuses[0] == -9, "the point was not reached"
    assert_clean(outcome, job)


SLEEPS = ("lease.taken", "recovery.before", "recovery.mid", *(f"{point}@2" for point in BATCH))
SUCCESSORS = ("", "batch.entry@1:die", "publish.renamed@1:die")


@pytest.mark.parametrize(
    ("cell", "successor"),
    [
        # each point with one of the successors in turn; with the others under `long`
        pytest.param(cell, successor, id=f"{successor}-{cell}", marks=[pytest.mark.long] * (number % len(SUCCESSORS) != nth))
        for number, cell in enumerate(table(*SLEEPS))
        for nth, successor in enumerate(SUCCESSORS)
    ],
)
def test_a_driver_that_sleeps_while_another_takes_over(cell: Cell, successor: str, place: Path) -> None:
    job = job_of(place, cell)
    assert_clean(overtaken(job, cell.point, successor=successor), job)


def test_a_driver_whose_recovery_is_overtaken_by_the_last_batch_of_the_older_one_goes_on_from_that(place: Path) -> None:
    job = Job(place / "state", place / "out", batches=5)
    older = campaign.start(job, f"decide.before@3:wait={place / 'wake the older'}")
    _until(place / "wake the older.waiting")
    newer = campaign.start(job, f"publish.record.after:wait={place / 'wake the newer'}", lock_removed=True)
    _until(place / "wake the newer.waiting")  # Batch 1 again, at the first of two sinks
    (place / "wake the older").touch()
    assert older.wait() == campaign.FENCED
    (place / "wake the newer").touch()
    assert newer.wait() == campaign.DONE
    assert not campaign.check(job)


def _until(file: Path) -> None:
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("point", ["decide.before@2", "publish.record.before@3", "publish.renamed@3", "fold.before@2", "fold.written@2"])
def test_a_driver_that_sleeps_through_the_folding_of_what_it_holds(point: str, place: Path) -> None:
    job = job_of(place, batches=12, rows=4, fold_every=3)
    assert_clean(overtaken(job, point), job)


@cells("stage.closed@3", "decide.before@2", "publish.renamed@3", "publish.after@2", "commit.before@1")
def test_a_machine_that_goes_dark_has_what_was_decided(cell: Cell, place: Path) -> None:
    job = job_of(place, cell)
    assert_clean(killed(job, [f"{cell.point}:{cell.kill}"], power=True), job)


@cells(*(f"{point}@2" for point in BATCH))
def test_a_disk_that_is_full_at(cell: Cell, place: Path) -> None:
    job = job_of(place, cell)
    outcome = out_of_room(job, fault=f"{cell.point}:enospc")
    assert outcome.statuses == (campaign.FAILED,)
    assert_clean(outcome, job)


@pytest.mark.parametrize("format", ["json", "parquet"])
@pytest.mark.parametrize("limit", [3000, 1500, 300])
def test_files_that_cannot_grow(format: str, limit: int, place: Path) -> None:
    """The limit strikes sinks first, then decisions, then the lineage's record."""
    job = Job(place / "state", place / "out", format, rows=60)
    outcome = out_of_room(job, file_limit=limit)
    assert outcome.statuses == (campaign.FAILED,)
    assert_clean(outcome, job)


def test_a_copy_of_the_state_folder_beside_its_original_is_refused(place: Path) -> None:
    job = job_of(place)
    assert campaign.run(job, "decide.after@2:kill") == -9
    shutil.copytree(job.state, place / "copy")
    copy = Job(place / "copy", job.out)
    assert campaign.run(copy) == campaign.REFUSED
    with pytest.raises(Refused, match="is a copy of"):
        Driver(copy).run()
    assert campaign.run(job) == campaign.DONE
    assert not campaign.check(job)


@pytest.mark.parametrize("point", ["stage.after@2", "decide.after@2", "publish.renamed@3", "commit.before@2"])
def test_a_copy_that_cannot_know_its_original_is_harmless(point: str, place: Path) -> None:
    """Copied from another machine, say: both run to the same outputs; the first to publish a Batch goes on, the other stops for good."""
    job = job_of(place)
    assert campaign.run(job, f"{point}:kill") == -9
    shutil.copytree(job.state, place / "copy")
    job.state.rename(place / "hidden")
    copy = Job(place / "copy", job.out)
    assert campaign.run(copy, "publish.after@2:kill") == -9
    (place / "hidden").rename(job.state)
    assert campaign.run(job) == campaign.FENCED
    assert campaign.run(job) == campaign.FENCED
    job.state.rename(place / "hidden")
    assert campaign.run(copy) == campaign.DONE
    assert not campaign.check(copy)


def test_killed_again_and_again_it_still_comes_to_its_end(place: Path) -> None:
    job = Job(place / "state", place / "out", "parquet", ("bucket",), batches=6)
    assert_clean(killed(job, [f"{point}:{('kill', 'die')[number % 2]}" for number, point in enumerate(BATCH)]), job)
