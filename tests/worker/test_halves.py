"""A worker is a Python and a JVM: where one half is killed the other goes too, and another worker takes their place."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from farm import until

if TYPE_CHECKING:
    from farm import Farm

FIRST, SECOND, THIRD = "numbers.main-1", "numbers.main-2", "numbers.main-3"
GONE_WITHIN_S = 60.0
"""ten seconds are the keeper's, the rest the machine's"""


@pytest.mark.timeout(900)
def test_whichever_half_of_a_worker_is_killed_the_other_ends_and_another_worker_goes_on(farm: Farm) -> None:
    farm.adds()
    farm.plants()
    until(lambda: len(farm.finds()) == 50, "the first file's records")

    jvm = farm.jvm("a", FIRST)
    farm.driver("a", FIRST).send(signal.SIGKILL)
    until(lambda: not jvm.alive() and not farm.processes("a", FIRST), "the end of its JVM", GONE_WITHIN_S)
    farm.adds()
    until(lambda: len(farm.finds()) == 100, "the second file's records, by another worker")

    driver = farm.driver("a", SECOND)
    farm.jvm("a", SECOND).send(signal.SIGKILL)
    until(lambda: not driver.alive() and not farm.processes("a", SECOND), "the end of its Python", GONE_WITHIN_S)
    said = farm.report()
    assert said is not None
    assert (said.run, said.state, said.cause) == (2, "failed", "Spark's JVM has ended with status -9")
    assert not said.permanent
    farm.adds()
    until(lambda: len(farm.finds()) == 150, "the third file's records, by a third")
    assert farm.finds() == list(range(1, 300, 2))
    assert farm.processes("a", THIRD)
    assert not [*farm.home.state.rglob("blockmgr-*")], "Spark's scratch files go with the worker, not into the state"
