"""Which time counts is decided by what the system says, so the test says it: on a busy machine any real thread may lose its core."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

from scribengin.spark.utilities import WorkClock

if TYPE_CHECKING:
    from collections.abc import Sequence

Look = tuple[int, int, int]
"""ns of wall time, ns of the thread's CPU time, how often it gave up its core"""


def spent(monkeypatch: pytest.MonkeyPatch, looks: Sequence[Look]) -> list[int]:
    left = iter(looks)
    monkeypatch.setattr(WorkClock, "_clocks", lambda _self: next(left))
    clock = WorkClock()
    return [clock() for _ in looks[1:]]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([(100, 10, 3), (150, 60, 3)], [50], id="it worked all the time"),
        pytest.param([(100, 10, 3), (300, 60, 3)], [50], id="somebody else had the core"),
        pytest.param([(100, 10, 3), (300, 60, 4)], [200], id="it waited by itself"),
        pytest.param([(100, 10, 3), (300, 60, 4), (400, 70, 4), (420, 90, 4)], [200, 210, 230], id="each look counts from the one before"),
    ],
)
def test_time_in_which_others_have_the_core_is_not_counted(monkeypatch: pytest.MonkeyPatch, looks: list[Look], expected: list[int]) -> None:
    assert spent(monkeypatch, looks) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how often a thread gave up its core")
def test_work_and_waits_of_a_real_thread_count() -> None:
    clock = WorkClock()
    begun, cpu_s = clock(), time.thread_time()
    while time.thread_time() < cpu_s + 0.05:
        pass
    done = clock()
    assert done - begun >= 0.05e9
    time.sleep(0.05)
    assert clock() - done >= 0.05e9
