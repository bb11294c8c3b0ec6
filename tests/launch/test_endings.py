"""The end of a worker is heard of at once, not at the next look."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from launch_benches import WITHIN_S

from scribengin.core.process import Process, birth_of, within
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.local import LocalLauncher
from scribengin.launch.process_launcher import Endings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no handles of processes")


def test_a_worker_that_is_killed_wakes_who_listens(tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path / "workers")
    heard = threading.Event()
    launcher.on_end(heard.set)
    try:
        launcher.start(LaunchOrder("tweets.main-1", ("sleep", "600")))
        assert within(WITHIN_S, lambda: launcher.observe()[0].state == "running")
        (seen,) = launcher.observe()
        assert seen.pid is not None
        assert not heard.is_set()
        Process(seen.pid, birth_of(seen.pid) or "").send(signal.SIGKILL)
        assert heard.wait(WITHIN_S)
        assert within(WITHIN_S, lambda: launcher.observe()[0].is_over)
    finally:
        launcher.kill("tweets.main-1")
        launcher.close()


def test_one_that_is_followed_twice_wakes_once_and_one_that_has_ended_before_never() -> None:
    woken: list[int] = []
    endings = Endings(lambda: woken.append(1))
    child = subprocess.Popen(["sleep", "600"])
    try:
        process = Process(child.pid, birth_of(child.pid) or "")
        endings.follow(process)
        endings.follow(process)
        child.kill()
        child.wait()
        assert within(WITHIN_S, lambda: woken == [1])
        endings.follow(process)
    finally:
        child.kill()
        child.wait()
        endings.close()
    endings.close()
    assert woken == [1]
