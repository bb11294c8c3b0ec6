"""What `launch/contract.py` promises, of every launcher: in memory, on this machine, behind a registry, on a standalone cluster, in
Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from launch_benches import WITHIN_S, one

from scribengin.core.process import within
from scribengin.core.secret import Secret
from scribengin.launch.contract import LaunchOrder

if TYPE_CHECKING:
    from launch_benches import Bench

W = "tweets.main-1"


@pytest.fixture(params=["memory", "local", "host", "standalone", "kubernetes"])
def bench(request: pytest.FixtureRequest) -> Bench:
    found: Bench = request.getfixturevalue(request.param)
    return found


def test_a_worker_that_was_ordered_comes_up_and_says_by_which_order(bench: Bench) -> None:
    launcher, order = bench.launcher(), bench.order(W)
    assert launcher.observe() == []
    launcher.start(order)
    seen = bench.until(launcher, W, lambda seen: seen.state == "running")
    assert (seen.order, seen.status, seen.reason, seen.stopping, seen.strays) == (order.digest, None, "", False, ())
    assert not seen.is_over
    assert seen.since_s > 0
    assert len(launcher.logs(W)) == 1
    launcher.close()


def test_a_start_performed_twice_starts_one_also_by_another_launcher_and_after_its_end(bench: Bench) -> None:
    launcher = bench.launcher()
    for starting in (launcher, launcher, bench.launcher()):
        starting.start(bench.order(W))
    bench.until(launcher, W, lambda seen: seen.state == "running")
    launcher.start(bench.order(W, "deaf"))
    assert bench.beginnings(W) == 1
    launcher.kill(W)
    bench.until(launcher, W, lambda seen: seen.is_over)
    bench.launcher().start(bench.order(W))
    assert bench.until(launcher, W, lambda seen: seen.is_over).state == "exited"
    assert bench.beginnings(W) == 1


def test_a_worker_that_is_asked_ends_in_order(bench: Bench) -> None:
    launcher = bench.launcher()
    launcher.start(bench.order(W))
    bench.until(launcher, W, lambda seen: seen.state == "running")
    launcher.stop(W, grace_s=80.0)
    launcher.stop(W, grace_s=80.0)
    seen = bench.until(launcher, W, lambda seen: seen.state == "exited")
    assert (seen.status, seen.reason, seen.stopping) == (0, "", True)


def test_a_worker_that_does_not_heed_is_killed_when_its_grace_runs_out_and_the_earlier_end_counts(bench: Bench) -> None:
    launcher = bench.launcher()
    launcher.start(bench.order(W, "deaf"))
    bench.until(launcher, W, lambda seen: seen.state == "running")
    launcher.stop(W, grace_s=1_000.0)
    assert (seen := one(launcher, W)) is not None
    assert (seen.state, seen.stopping) == ("running", True)
    launcher.stop(W, grace_s=1.5)
    launcher.stop(W, grace_s=1_000.0)
    seen = bench.until(launcher, W, lambda seen: seen.state == "exited")
    assert seen.status == -9
    assert "did not stop" in seen.reason


def test_a_kill_strikes_at_once_and_a_second_one_nothing(bench: Bench) -> None:
    launcher = bench.launcher()
    launcher.start(bench.order(W, "deaf"))
    launcher.start(bench.order("tweets.main-2"))
    for worker in (W, "tweets.main-2"):
        bench.until(launcher, worker, lambda seen: seen.state == "running")
    launcher.kill(W)
    seen = bench.until(launcher, W, lambda seen: seen.is_over)
    assert (seen.state, seen.status, seen.reason) == ("exited", -9, "killed, as requested")
    launcher.kill(W)
    launcher.kill("tweets.nobody-9")
    launcher.stop("tweets.nobody-9", 1.0)
    assert one(launcher, W) == seen
    assert (other := one(launcher, "tweets.main-2")) is not None
    assert other.state == "running"


@pytest.mark.parametrize(("word", "status", "words"), [("exit=0", 0, ""), ("exit=7", 7, "status 7"), ("die", -9, "signal 9")])
def test_how_a_worker_ended_is_known_to_every_launcher(bench: Bench, word: str, status: int, words: str) -> None:
    bench.launcher().start(bench.order(W, word))
    seen = bench.until(bench.launcher(), W, lambda seen: seen.state == "exited")
    assert seen.status == status
    assert words in seen.reason
    assert bool(seen.reason) == bool(status)
    assert (seen.pid, seen.stopping) == (None, False)


def test_what_one_launcher_began_another_sees_stops_and_kills(bench: Bench) -> None:
    first = bench.launcher()
    for worker in ("a.main-1", "a.main-2"):
        first.start(bench.order(worker))
        bench.until(first, worker, lambda seen: seen.state == "running")
    first.close()
    second = bench.launcher()
    assert [(seen.worker, seen.state) for seen in second.observe()] == [("a.main-1", "running"), ("a.main-2", "running")]
    second.stop("a.main-1", 80.0)
    second.kill("a.main-2")
    assert bench.until(second, "a.main-1", lambda seen: seen.state == "exited").status == 0
    assert bench.until(second, "a.main-2", lambda seen: seen.state == "exited").status == -9


def test_only_what_has_ended_is_forgotten_and_then_it_may_begin_again(bench: Bench) -> None:
    launcher = bench.launcher()
    launcher.start(bench.order(W))
    bench.until(launcher, W, lambda seen: seen.state == "running")
    launcher.forget(W)
    assert one(launcher, W) is not None
    launcher.kill(W)
    bench.until(launcher, W, lambda seen: seen.state == "exited")
    launcher.forget(W)
    launcher.forget(W)
    assert launcher.observe() == []
    launcher.start(bench.order(W))
    bench.until(launcher, W, lambda seen: seen.state == "running")
    assert within(WITHIN_S, lambda: bench.beginnings(W) == 2)  # a pod may run before its program does


@pytest.mark.parametrize(
    "wrong",
    [
        {"worker": "../x-1"},
        {"worker": ""},
        {"argv": ()},
        {"argv": ("a\0b",)},
        {"cores": 0},
        {"executors": 0},
        {"memory_bytes": -1},
        {"environment": {"A=B": "c"}},
        {"environment": {"A": "c"}, "secrets": {"A": Secret("x", "r")}},
        {"argv": ("run", "--password=hunter2"), "secrets": {"A": Secret("hunter2", "r")}},
        {"argv": ("run", "hunter2"), "spark": {"spark.a": Secret("hunter2", "r")}},
    ],
)
def test_an_order_that_no_launcher_can_take_is_no_order(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        LaunchOrder(**({"worker": W, "argv": ("run",)} | wrong))  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


def test_the_digest_of_an_order_tells_its_content_and_not_its_secrets() -> None:
    def digest(**more: object) -> str:
        return LaunchOrder(W, ("run",), **more).digest  # type: ignore[arg-type]

    assert digest() == LaunchOrder("tweets.main-2", ("run",)).digest
    assert len({digest(), digest(cores=2), digest(environment={"A": "b"}), digest(secrets={"A": Secret("b", "r")})}) == 4
    assert digest(secrets={"A": Secret("b", "r")}) == digest(secrets={"A": Secret("c", "r")})
