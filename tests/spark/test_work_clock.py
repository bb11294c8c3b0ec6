from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from scribengin.spark.work_clock import WorkClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how often a thread gave up its core")


def worked(seconds_of_cpu: float) -> None:
    until = time.thread_time() + seconds_of_cpu
    while time.thread_time() < until:
        pass


def test_work_and_waits_count() -> None:
    clock = WorkClock()
    begun = clock()
    worked(0.05)
    done = clock()
    assert 0.04e9 < done - begun < 0.3e9
    time.sleep(0.05)
    assert clock() - done > 0.045e9


def test_time_in_which_others_have_the_core_does_not() -> None:
    core = {min(os.sched_getaffinity(0))}
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, core)
    burn = "print(flush=True)\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()  # from then on it has the core too
        clock, wall_s = WorkClock(), time.perf_counter()
        spent_ns = 0
        while time.perf_counter() - wall_s < 1.0:
            begun = clock()
            worked(0.002)
            spent_ns += clock() - begun
        assert spent_ns < 0.7e9, "a quarter of the core was ours"
    finally:
        os.sched_setaffinity(0, before)
        for other in others:
            other.kill()
            other.communicate()
