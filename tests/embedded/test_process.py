"""Child processes: none outlives its starter unsaid, none of somebody else is ever struck. Small programs stand for servers."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from scribengin.core import process as core_process
from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import Process, birth_of, within
from scribengin.embedded import server as process
from scribengin.embedded.server import ServerProcess, find_server, start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FOREVER = [sys.executable, "-c", "import time\nwhile True: time.sleep(60)"]
_DEAF = [
    sys.executable,
    "-c",
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: time.sleep(60)",
]
_WITHIN_S = 60.0
_STARTER = """
import os, sys
from pathlib import Path
from scribengin.embedded.server import start_server
folder = Path(sys.argv[1])
server = start_server("server", sys.argv[3:], pid_file=folder / "pid.json", log=folder / "server.log")
if sys.argv[2] == "release":
    server.release()
print(server.process.pid, flush=True)
sys.stdin.read()
"""


def started(folder: Path, command: list[str]) -> ServerProcess:
    return start_server("server", command, pid_file=folder / "pid.json", log=folder / "server.log")


def found(folder: Path) -> ServerProcess | None:
    return find_server("server", pid_file=folder / "pid.json", log=folder / "server.log")


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of ours."""
    with subprocess.Popen(_FOREVER) as child:
        yield child
        child.kill()


@pytest.mark.parametrize("end", [ServerProcess.kill, lambda server: server.stop(_WITHIN_S)])
def test_a_server_that_was_ended_is_gone_and_so_is_its_pid_file(tmp_path: Path, end: Callable[[ServerProcess], None]) -> None:
    server = started(tmp_path, _FOREVER)
    assert server.alive()
    end(server)
    assert not server.alive()
    assert found(tmp_path) is None


def test_a_server_that_does_not_heed_sigterm_is_killed(tmp_path: Path) -> None:
    server = started(tmp_path, _DEAF)
    server.wait_ready(lambda: "deaf" in server.log.read_text(), _WITHIN_S)
    server.stop(0.2)
    assert not server.alive()


@pytest.mark.parametrize(("word", "outlives"), [("hold", False), ("release", True)])
def test_a_server_outlives_its_killed_starter_only_where_it_was_released(tmp_path: Path, word: str, outlives: bool) -> None:
    command = [sys.executable, "-c", _STARTER, str(tmp_path), word, *_FOREVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        server = found(tmp_path)
        assert server is not None
        assert server.process.pid == pid
        starter.kill()
    try:
        if outlives:
            # the shell between them has gone, and the server belongs to nobody: nothing is left that could end it
            assert server.alive()
            assert not server.process.gone_within(1.0)
        else:
            assert server.process.gone_within(_WITHIN_S)
    finally:
        server.kill()


def test_a_released_server_that_was_found_again_can_be_stopped(tmp_path: Path) -> None:
    started(tmp_path, _FOREVER).release()
    server = found(tmp_path)
    assert server is not None
    assert server.alive()
    server.stop(_WITHIN_S)
    assert not server.alive()


def test_a_process_that_was_given_the_number_of_a_dead_server_is_never_struck(tmp_path: Path, foreign: subprocess.Popen[bytes]) -> None:
    later = Process(foreign.pid, "when the dead server started")
    (tmp_path / "pid.json").write_bytes(msgspec.json.encode(later))
    server = found(tmp_path)
    assert server is not None
    assert not server.alive()
    server.ask_to_end()
    server.kill()
    assert foreign.poll() is None
    assert Process(foreign.pid, birth_of(foreign.pid) or "").alive()


@pytest.mark.parametrize("birth", [birth_of, core_process._birth_by_ps], ids=["proc", "ps"])
def test_a_zombie_is_gone_and_a_process_that_lives_keeps_its_birth(birth: Callable[[int], str | None]) -> None:
    assert birth(os.getpid())
    assert birth(os.getpid()) == birth(os.getpid()) != birth(1)
    child = subprocess.Popen([sys.executable, "-c", ""])
    assert within(_WITHIN_S, lambda: birth(child.pid) is None)  # nobody has waited for it
    child.wait()


def test_a_server_that_ends_while_it_starts_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    server = started(tmp_path, [sys.executable, "-c", "print('the port is taken'); raise SystemExit(3)"])
    with pytest.raises(EnvironmentFault, match="the port is taken") as caught:
        server.wait_ready(lambda: False, _WITHIN_S)
    assert caught.value.code == "server-ended"
    assert str(tmp_path / "server.log") in caught.value.remedy
    server.kill()


def test_a_server_that_never_answers_is_told_when_its_time_is_over(tmp_path: Path) -> None:
    server = started(tmp_path, _FOREVER)
    with pytest.raises(EnvironmentFault, match=r"does not answer after 0\.2 s"):
        server.wait_ready(lambda: False, 0.2)
    server.kill()


def test_a_ctrl_c_for_the_starter_is_none_for_the_server(tmp_path: Path) -> None:
    server = started(tmp_path, _FOREVER)
    try:
        assert os.getsid(server.process.pid) != os.getsid(0)  # a terminal strikes the processes of one session only
    finally:
        server.kill()


def test_a_log_that_has_grown_large_makes_room_for_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_LOG_BYTES", 10)
    (tmp_path / "server.log").write_text("of an earlier life")
    server = started(tmp_path, _FOREVER)
    server.kill()
    assert (tmp_path / "server.log").read_text() == ""
    assert (tmp_path / "server.log.1").read_text() == "of an earlier life"
