"""A worker that slept past its session while another took its place: what it does when it is woken has no effect."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from farm import Farm, until

from scribengin.control import worker_lifecycle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEPER, SUCCESSOR = "numbers.main-1", "numbers.main-2"


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with Farm(tmp_path, ("a", "b")) as farm:
        yield farm


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("stage.after", id="before it looks at its lease", marks=pytest.mark.long),
        pytest.param("decide.before", id="between that look and its decision", marks=pytest.mark.long),
        pytest.param("publish.record.before", id="between its decision and the sink's record"),
    ],
)
def test_a_worker_that_is_woken_after_another_took_over_loses_and_doubles_nothing(
    farm: Farm, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_lifecycle, "REGAIN_S", 2.0)  # the master of the farm lives here; how long it waits is of no account
    gate = farm.folder / "gate"
    farm.launchers["b"].away = True
    farm.environment = {"SCRIBENGIN_FAULT": f"{point}@2:wait={gate}"}
    farm.adds()
    farm.plants()
    until(lambda: len(farm.finds()) == 50, "the first Batch")
    farm.adds()
    until((farm.folder / "gate.waiting").exists, "the sleeper in the middle of the second Batch")
    before, sleeping = farm.finds(), farm.holder()

    # its machine sleeps, and is cut off: nobody can kill it
    farm.sends("a", SLEEPER, signal.SIGSTOP)
    farm.launchers["a"].away, farm.launchers["b"].away = True, False
    farm.environment = {}
    until(lambda: (run := farm.run()) is not None and run.number == 2, "a successor")
    farm.adds()
    until(lambda: len(farm.finds()) == 150, "the Batches of the successor")
    until(lambda: farm.holder() is not None, "its lease")
    assert before == farm.finds()[: len(before)]

    # woken, it goes on where it was: between two lines of a Batch's commit
    gate.touch()
    farm.sends("a", SLEEPER, signal.SIGCONT)
    until(lambda: not farm.processes("a", SLEEPER), "the sleeper's end")
    farm.adds()
    until(lambda: len(farm.finds()) == 200, "a further Batch of the successor")
    assert farm.finds() == list(range(1, 400, 2))
    # on a busy machine the successor may have had a successor itself; only the sleeper must not have come back
    until(lambda: (report := farm.report()) is not None and report.run >= 2 and report.state == "running", "a report of the successor")
    assert farm.holder() != sleeping
    farm.wishes("stopped")
    until(lambda: farm.describes()["status"]["state"] == "stopped", "stopped")
    assert farm.audits() == ()
