"""A warm standby, as real processes: it takes over with its Spark up, with a master or without, and nothing is lost or doubled."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from farm import FLOW, until

if TYPE_CHECKING:
    from farm import Farm

WARM = FLOW.replace("name: numbers", "name: numbers\ndefaults: {standby: warm}")
FIRST, SECOND, THIRD = "numbers.main-1", "numbers.main-2", "numbers.main-3"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_standby_takes_over_from_a_worker_that_is_killed_or_asleep(farm: Farm) -> None:
    farm.adds()
    farm.plants(WARM)
    until(lambda: len(farm.finds()) == 50, "the first file's records")
    until(lambda: farm.standby() == {"worker": SECOND, "node": "a", "state": "standby"}, "the standby")
    assert not (farm.home.state / "numbers" / "main" / "terms" / "0000000002.json").exists(), "it has opened nothing"
    jvm = farm.jvm("a", SECOND)

    # killed: the standby is the worker now, with the JVM that it had
    for process in farm.processes("a", FIRST):
        process.send(signal.SIGKILL)
    farm.adds()
    until(lambda: len(farm.finds()) == 100, "the second file's records, by the standby")
    assert jvm.alive()
    until(lambda: (run := farm.run()) is not None and run.number == 2, "its name as the worker")
    until(lambda: farm.standby() == {"worker": THIRD, "node": "a", "state": "standby"}, "the next standby")

    # asleep past its session: woken, it finds another in its place, and ends
    farm.sends("a", SECOND, signal.SIGSTOP)
    farm.adds()
    until(lambda: len(farm.finds()) == 150, "the third file's records, by the next standby")
    farm.sends("a", SECOND, signal.SIGCONT)
    until(lambda: not farm.processes("a", SECOND), "its end")

    # stopped: the one that waits ends as well
    farm.wishes("stopped")
    until(lambda: farm.describes()["status"]["state"] == "stopped", "stopped")
    until(lambda: not any(farm.processes("a", f"numbers.main-{number}") for number in range(1, 6)), "the end of all")
    assert farm.finds() == list(range(1, 300, 2))
    assert farm.audits() == ()
