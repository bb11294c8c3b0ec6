"""A server that is started again where it ends."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import EnvironmentFault
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.hosts.embedded_servers import kept_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def until(what: Callable[[], bool], wait_s: float = 120) -> None:
    deadline = time.monotonic() + wait_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_a_zookeeper_that_was_killed_is_up_again_and_ends_with_the_block(tmp_path: Path) -> None:
    said: list[str] = []
    with ZooKeeper(tmp_path / "zookeeper") as server:
        with kept_up(server, "ZooKeeper", said.append, look_s=0.1):
            first = server.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            until(lambda: server.pid not in (None, first) and server.answers())
        assert said == ["ZooKeeper has ended; it is restarted"]
        second = server.pid
        assert second is not None
        os.kill(second, signal.SIGKILL)
        until(lambda: server.pid is None)
        time.sleep(0.5)  # that nothing happens can only be waited for
        assert server.pid is None, "after the block nobody starts it"


class Stubborn:
    """Comes up at the third try."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.tries = 0

    def start(self) -> None:
        self.tries += 1
        if self.tries < 3:
            raise EnvironmentFault("no room", remedy="make some", code="disk-full")
        self.pid = 1

    def clear(self) -> None:
        assert self.pid is None


def test_a_server_that_does_not_come_up_is_tried_until_it_does_and_told_once() -> None:
    said: list[str] = []
    server = Stubborn()
    with kept_up(server, "it", said.append, look_s=0.01):
        until(lambda: server.pid is not None)
    assert server.tries == 3
    assert said == ["it has ended; it is restarted", "it does not start: no room"]
