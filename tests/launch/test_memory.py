"""What tests ask of the launcher in memory: that it does, on demand, what real ones do on bad days."""

from __future__ import annotations

import pytest
from launch_benches import one

from harness.manual_clock import ManualClock
from harness.memory_launcher import MemoryCluster, MemoryLauncher
from scribengin.core.errors import EnvironmentFault, Unreachable
from scribengin.launch.contract import LaunchOrder

W = "tweets.main-1"


def order(worker: str = W, cores: int = 1) -> LaunchOrder:
    return LaunchOrder(worker, ("run",), cores=cores)


def test_a_late_worker_is_starting_until_its_time_has_come_and_may_be_stopped_before() -> None:
    clock = ManualClock()
    launcher = MemoryLauncher(clock)
    launcher.starts_after_s = 60.0
    launcher.start(order())
    launcher.start(order("tweets.main-2"))
    launcher.stop("tweets.main-2", grace_s=5.0)
    clock.advance(seconds=59)
    assert [seen.state for seen in launcher.observe()] == ["starting", "exited"]
    clock.advance(seconds=2)
    seen = one(launcher, W)
    assert seen is not None
    assert (seen.state, seen.since_s) == ("running", clock() - 1)


def test_it_refuses_as_long_as_it_is_told_to_and_when_its_cores_are_taken() -> None:
    launcher = MemoryLauncher(ManualClock(), MemoryCluster(cores=3))
    launcher.refuse_with = Unreachable("no such cluster", code="cluster-silent")
    with pytest.raises(Unreachable):
        launcher.start(order())
    launcher.refuse_with = None
    launcher.start(order(cores=2))
    with pytest.raises(EnvironmentFault, match="1 of 3 are free") as caught:
        launcher.start(order("tweets.main-2", cores=2))
    assert caught.value.code == "launcher-full"
    assert [seen.worker for seen in launcher.observe()] == [W]
    launcher.kill(W)
    launcher.start(order("tweets.main-2", cores=2))


def test_it_loses_a_worker_and_leaves_strays_until_they_are_killed() -> None:
    launcher = MemoryLauncher(ManualClock())
    launcher.start(order())
    launcher.start(order("tweets.main-2"))
    launcher.lose(W)
    launcher.end("tweets.main-2", -9, strays=(4711,))
    assert [(seen.state, seen.status, seen.is_over) for seen in launcher.observe()] == [("gone", None, True), ("exited", -9, False)]
    launcher.kill("tweets.main-2")
    assert [seen.is_over for seen in launcher.observe()] == [True, True]


def test_what_was_due_between_two_looks_happened_when_it_was_due() -> None:
    clock = ManualClock(now_s=1_000.0)
    launcher = MemoryLauncher(clock)
    launcher.starts_after_s = 2.0
    launcher.deaf = {W}
    launcher.start(order())
    launcher.stop(W, grace_s=10.0)
    clock.advance(seconds=3_600)
    (seen,) = launcher.observe()
    assert (seen.state, seen.status, seen.since_s) == ("exited", -9, 1_010.0)
