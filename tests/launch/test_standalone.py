"""Workers whose executors run on a real standalone cluster: seen there, stopped, killed, and nothing of them left behind.

Starting an application takes half a minute, several on a busy machine; so each test makes much of one.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from launch_benches import StandaloneBench, keeper_of, one, process_of

from scribengin.core.errors import EnvironmentFault, Unreachable
from scribengin.core.process import Process, within
from scribengin.embedded.server import free_ports
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.keeper import TICK_S
from scribengin.launch.marks import marked_processes
from scribengin.launch.standalone import SparkCluster, StandaloneLauncher

if TYPE_CHECKING:
    from scribengin.embedded.standalone import StandaloneCluster

W = "tweets.main-1"
SLOW_S = 600.0
ODD = "a = b\\c:#! \u00e9\U0001f600"
"""a value with all that a properties file could take for something else"""
COUNTING = Path(__file__).with_name("counting.py")


def counting(bench: StandaloneBench, *words: str) -> LaunchOrder:
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.odd": ODD}
    argv = (sys.executable, str(COUNTING), str(bench.folder / f"{W}.diary"), *words)
    return LaunchOrder(W, argv, memory_bytes=512 * 2**20, spark=settings)


def told(bench: StandaloneBench, word: str, times: int = 1) -> str:
    """What the diary says behind the word, once it says so."""

    def lines() -> list[str]:
        return [line for line in bench.diary(W) if line.startswith(f"{word} ")]

    launcher = bench.launcher()

    def is_told() -> bool:
        seen = one(launcher, W)
        assert seen is not None
        assert seen.state in ("starting", "running"), (seen, [Path(log).read_text()[-3000:] for log in launcher.logs(W)])
        return len(lines()) >= times

    assert within(SLOW_S, is_told), bench.diary(W)
    return lines()[-1].partition(" ")[2]


def executors(application: str) -> list[Process]:
    """The executors of an application, JVMs of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if application.encode() in words and b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
            found.append(process_of(int(path.parent.name)))
    return found


def is_on(cluster: StandaloneCluster, application: str) -> bool:
    return any(app["id"] == application for app in cluster.read_state()["activeapps"])


def leaves_nothing(bench: StandaloneBench, cluster: StandaloneCluster, application: str) -> None:
    assert within(SLOW_S, lambda: not marked_processes(bench.home))
    assert within(SLOW_S, lambda: not is_on(cluster, application))
    assert within(SLOW_S, lambda: not executors(application))


@pytest.mark.long
def test_a_worker_runs_on_the_cluster_survives_its_executors_is_adopted_and_stopped(
    standalone: StandaloneBench, cluster: StandaloneCluster
) -> None:
    standalone.launcher().start(counting(standalone))
    assert told(standalone, "master") == cluster.address
    assert told(standalone, "odd") == ODD
    application = told(standalone, "application")
    first = told(standalone, "counted")
    assert is_on(cluster, application)
    struck = executors(application)
    assert len(struck) == 1
    for executor in struck:
        executor.send(signal.SIGKILL)
    assert within(SLOW_S, lambda: any(line.startswith("counted") and line != f"counted {first}" for line in standalone.diary(W)))
    launcher = standalone.launcher()
    launcher.stop(W, SLOW_S)
    assert within(SLOW_S, lambda: [seen.state for seen in launcher.observe()] == ["exited"])
    (seen,) = launcher.observe()
    assert (seen.status, seen.reason) == (0, "")
    assert standalone.diary(W)[-1] == "asked and ended"
    leaves_nothing(standalone, cluster, application)


@pytest.mark.long
@pytest.mark.parametrize("struck", ["jvm", "python and keeper"])
def test_when_one_half_of_a_worker_is_killed_the_other_does_not_stay(
    standalone: StandaloneBench, cluster: StandaloneCluster, struck: str
) -> None:
    launcher = standalone.launcher()
    launcher.start(counting(standalone, "sleep"))
    python, application = int(told(standalone, "up")), told(standalone, "application")
    jvm = process_of(int(told(standalone, "jvm")))
    if struck == "jvm":
        time.sleep(3 * TICK_S)  # one that ends before its keeper has found it is the worker's own to notice
        jvm.send(signal.SIGKILL)
    else:
        jvm.send(signal.SIGSTOP)  # else it would leave by itself
        keeper = keeper_of(standalone.home / "workers" / W)
        assert keeper is not None
        keeper.send(signal.SIGKILL)
        assert keeper.gone_within(SLOW_S)
        process_of(python).send(signal.SIGKILL)
    assert within(SLOW_S, lambda: [seen.state in ("exited", "gone") for seen in launcher.observe()] == [True])
    (seen,) = standalone.launcher().observe()
    if struck == "jvm":
        assert f"Spark's JVM (process {jvm.pid}) had ended" in seen.reason
    else:
        assert jvm.pid in seen.strays  # and what it had just forked
        launcher.kill(W)
    leaves_nothing(standalone, cluster, application)


def test_a_worker_that_the_cluster_cannot_take_is_refused_with_what_is_free(standalone: StandaloneBench) -> None:
    launcher = standalone.launcher()
    with pytest.raises(EnvironmentFault, match=r"3 cores and 1024 MiB; .* has free: 2 cores and 1024 MiB") as caught:
        launcher.start(standalone.order(W, cores=3))
    assert (caught.value.code, caught.value.remedy) == ("launcher-full", "give it fewer cores, or add larger Spark workers to the cluster")
    with pytest.raises(EnvironmentFault, match="2 cores and 4096 MiB") as caught:
        launcher.start(standalone.order(W, cores=2, memory_bytes=2**32))
    assert "stop another worker" in caught.value.remedy
    assert launcher.observe() == []


def test_a_cluster_that_does_not_answer_is_told_and_what_runs_is_seen_still(standalone: StandaloneBench) -> None:
    standalone.launcher().start(standalone.order(W))
    (port,) = free_ports(1)
    launcher = StandaloneLauncher(standalone.home, SparkCluster(standalone.cluster.master, f"http://127.0.0.1:{port}"))
    with pytest.raises(Unreachable, match="does not answer") as caught:
        launcher.start(standalone.order("tweets.main-2"))
    assert caught.value.code == "cluster-silent"
    launcher.start(standalone.order(W))  # was begun already
    standalone.until(launcher, W, lambda seen: seen.state == "running")
    assert [seen.worker for seen in launcher.observe()] == [W]
