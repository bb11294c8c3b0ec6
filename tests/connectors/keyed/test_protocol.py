"""Every crash point of a sink whose place says behind the decision what it refuses: nothing lost, doubled or invented, no letter twice."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.broken_keyed import BROKEN
from harness.keyed_protocol import KeyedJob, keyed_driver
from scribengin.core.faults import OFFER_POINTS, POINTS
from scribengin.testing import campaign
from scribengin.testing.trials import Outcome, killed, overtaken

RECOVERY = tuple(point for point in POINTS if point.startswith("recovery."))
NEVER = ("publish.renamed", "fold.before", "fold.written", "fold.after", "lease.taken", *RECOVERY)
BATCH = tuple(point for point in (*POINTS, *OFFER_POINTS) if point not in NEVER)


def job_of(place: Path, **more: int) -> KeyedJob:
    return KeyedJob(place / "state", place / "out", **more)


def assert_clean(outcome: Outcome, job: KeyedJob) -> None:
    assert outcome.clean, str(outcome)
    assert campaign.BUG not in outcome.statuses, str(outcome)
    assert campaign.audit(job, keyed_driver) == ()


def test_refused_rows_are_letters_and_counted(place: Path) -> None:
    job = job_of(place)
    assert_clean(killed(job, [], keyed_driver), job)


def in_turn(points: Sequence[str], others: Sequence[str]) -> list[Any]:
    """Each point with one of the others in turn; with the rest of them under `long`."""
    return [
        pytest.param(point, other, marks=[pytest.mark.long] * (number % len(others) != nth))
        for number, point in enumerate(points)
        for nth, other in enumerate(others)
    ]


@pytest.mark.parametrize(("point", "batch"), in_turn(BATCH, ("@1", "@2")))
def test_a_driver_killed_at(point: str, batch: str, place: Path) -> None:
    job = job_of(place)
    outcome = killed(job, [f"{point}{batch}:kill"], keyed_driver)
    assert outcome.statuses == (-9,), "the point was not reached"
    assert_clean(outcome, job)
    assert not [path for path in (job.state).rglob("work/*/*/*/*") if path.is_file()], "what was staged is gone"


@pytest.mark.parametrize(("then", "first"), in_turn((*RECOVERY, *OFFER_POINTS), ("decide.after@2", "settle.offered@3")))
def test_a_driver_killed_and_killed_again_in_recovery(then: str, first: str, place: Path) -> None:
    job = job_of(place)
    outcome = killed(job, [f"{first}:kill", f"{then}:kill", f"{then}:kill"], keyed_driver)
    assert outcome.statuses == (-9, -9, -9)
    assert_clean(outcome, job)


@pytest.mark.parametrize("point", BATCH)
def test_a_driver_that_sleeps_and_wakes_after_its_successor_changes_nothing(point: str, place: Path) -> None:
    job = job_of(place)
    assert_clean(overtaken(job, f"{point}@2", keyed_driver), job)


@pytest.mark.parametrize("point", ["offer.sent@3", "settle.before@2", "settle.after@2"])
def test_a_successor_is_killed_too_while_another_sleeps(point: str, place: Path) -> None:
    job = job_of(place)
    assert_clean(overtaken(job, point, keyed_driver, successor="settle.offered@1:kill"), job)


def test_what_was_refused_is_folded_with_its_decision(place: Path) -> None:
    job = job_of(place, batches=9, rows=8, fold_every=3)
    outcome = killed(job, ["fold.written@1:kill", "fold.after@1:kill"], keyed_driver)
    assert_clean(outcome, job)
    assert list((job.query.decisions / "folded").glob("*.json.gz"))
    assert len(list(job.query.decisions.glob("*.beside.json"))) == len(list(job.query.decisions.glob("??????????.json")))


TRIALS = {
    # one sleeps before its decision, the other is killed before its own
    "staging_shared": partial(overtaken, point="decide.before@2", successor="decide.before@1:kill"),
    "marker_first": partial(killed, faults=["offer.sent@2:kill"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_checker_catches(name: str, place: Path) -> None:
    outcome = TRIALS[name](job_of(place, rows=60), make_driver=BROKEN[name])
    assert outcome.findings.lost, str(outcome)
    right = job_of(place / "right", rows=60)
    assert_clean(TRIALS[name](right, make_driver=keyed_driver), right)
