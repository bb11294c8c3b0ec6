"""A warm process: the same answers as without it, changed code seen, nobody else served, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scribengin.cli import warm
from scribengin.core.process import Process, birth_of, within

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere commands run without it")

FLOW = """version: 1
name: small
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE"}
steps:
  twice: {from: orders, sql: "SELECT id, amount * 2 AS amount FROM orders"}
  some: {from: twice, python: {function: "steps:some", time_limit: 20m}}
sinks:
  kept: {from: some, type: files, path: out, format: json}
tests:
  - {name: right, given: {orders: [{id: 1, amount: 1}]}, expect: {kept: [{id: 1, amount: 20}]}}
"""
STEPS = """def some(row):
    if row["id"] == 2:
        raise ValueError("two")
    return row | {"amount": row["amount"] * 10}
"""
END_S = 600
_PATIENT = (
    "import os, sys; sys.path[0] = os.getcwd(); from scribengin.cli import main, warm; "
    f"warm._TAKEN_S = warm._FIRST_TAKEN_S = warm._BUSY_S = {END_S}; main.main()"
)
"""The command, which waits for the warm process however busy the machine is; users get a cold run after seconds."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch):
    """A flow's folder, and a cache of its own; what was kept warm for it has ended when the test has."""
    monkeypatch.setenv("SCRIBENGIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SCRIBENGIN_WARM", "true")
    monkeypatch.setenv("SCRIBENGIN_WARM_IDLE", "1h")
    place = tmp_path / "flow"
    (place / "data").mkdir(parents=True)
    (place / "data" / "a.jsonl").write_text("".join(json.dumps({"id": n, "amount": float(n)}) + "\n" for n in range(4)))
    (place / "steps.py").write_text(STEPS)
    (place / "flow.yaml").write_text(FLOW)
    yield place
    for each in warm.warm_processes():
        process = Process(each.pid, birth_of(each.pid) or "")
        process.send(signal.SIGTERM)
        if not process.gone_within(END_S):
            process.send(signal.SIGKILL)


def _ran(folder: Path, *words: str, patient: bool = True) -> tuple[int, str, str]:
    command = [sys.executable, *(["-c", _PATIENT] if patient else ["-m", "scribengin.cli"]), *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=END_S, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def _same(text: str) -> str:
    """Without times."""
    return re.sub(r'\b[\d.]+(?: s|s|m\d+s)\b|"seconds": [\d.e-]+', "TIME", text)


def _server() -> int:
    (one,) = warm.warm_processes()
    return one.pid


def test_answers_are_those_of_a_cold_command_and_changes_are_seen(folder):
    def status(*command: str) -> int:
        """Of both."""
        kept, cold = _ran(folder, *command), _ran(folder, *command, "--no-warm")
        assert [kept[0], *map(_same, kept[1:])] == [cold[0], *map(_same, cold[1:])], command
        return kept[0]

    assert [status("test", "flow.yaml"), status("preview", "flow.yaml", "--json"), status("plan", "--deep", "flow.yaml")] == [0, 0, 0]
    pid = _server()
    (folder / "steps.py").write_text(STEPS.replace("* 10", "* 11"))
    assert status("test", "flow.yaml", "--json") == 1
    (folder / "steps.py").write_text("def some(row):\n    return 1 / 0\n")
    assert "steps.py:2" in _ran(folder, "preview", "flow.yaml")[1]
    (folder / "flow.yaml").write_text(FLOW.replace("amount * 2", "no_such * 2"))
    assert _ran(folder, "plan", "--deep", "flow.yaml")[0] == 2
    assert _server() == pid


def test_a_process_that_is_killed_or_that_has_another_environment_is_replaced(folder, monkeypatch):
    assert _ran(folder, "preview", "flow.yaml")[0] == 0
    first = _server()
    os.kill(first, signal.SIGKILL)
    assert _ran(folder, "preview", "flow.yaml")[0] == 0
    second = _server()
    monkeypatch.setenv("MEANT_FOR_A_STEP", "a-secret")
    assert _ran(folder, "preview", "flow.yaml")[0] == 0
    third = _server()
    assert len({first, second, third}) == 3
    assert b"a-secret" not in Path(f"/proc/{third}/cmdline").read_bytes()
    assert not any(b"a-secret" in file.read_bytes() for file in warm.warm_folder().rglob("*") if file.is_file())
    assert _ran(folder, "warm", "--stop")[0] == 0
    assert within(END_S, lambda: not warm.warm_processes())


def test_it_ends_when_it_is_idle(folder, monkeypatch):
    monkeypatch.setenv("SCRIBENGIN_WARM_IDLE", "1s")
    assert _ran(folder, "preview", "flow.yaml")[0] == 0
    assert within(END_S, lambda: not warm.warm_processes())


def test_a_second_command_runs_without_it_and_ctrl_c_ends_the_first_alone(folder):
    (folder / "steps.py").write_text(
        "import time\nfrom pathlib import Path\n\ndef some(row):\n"
        f"    if Path({str(folder / 'slow')!r}).exists():\n        Path({str(folder / 'begun')!r}).touch()\n        time.sleep(600)\n"
        "    return row\n"
    )
    assert _ran(folder, "preview", "flow.yaml")[0] == 0
    pid = _server()
    (folder / "slow").touch()
    command = [sys.executable, "-m", "scribengin.cli", "preview", "flow.yaml"]
    slow = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert within(END_S, (folder / "begun").exists)
        (folder / "slow").unlink()
        status, _, told = _ran(folder, "preview", "flow.yaml", patient=False)
        assert (status, "runs another command" in told) == (0, True)
        slow.send_signal(signal.SIGINT)
        assert slow.wait(END_S) == 130
    finally:
        slow.kill()
        slow.wait()
    assert within(END_S, lambda: "runs another" not in _ran(folder, "preview", "flow.yaml")[2])
    assert _server() == pid


def test_a_process_that_hangs_is_not_waited_for(folder):
    assert _ran(folder, "preview", "flow.yaml")[0] == 0
    pid = _server()
    os.kill(pid, signal.SIGSTOP)
    try:
        status, _, told = _ran(folder, "preview", "flow.yaml", patient=False)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (status, "does not answer" in told) == (0, True)


def test_where_java_dies_under_a_command_it_runs_again_without_it(folder):
    (folder / "flow.yaml").write_text(
        FLOW.replace("sinks:", "  more: {from: some, sql: 'SELECT id + 1 AS id, amount FROM some'}\nsinks:")
        .replace("from: some, type", "from: more, type")
        .partition("tests:")[0]
    )
    (folder / "steps.py").write_text(
        "import time\nfrom pathlib import Path\n\ndef some(row):\n"
        f"    while Path({str(folder / 'slow')!r}).exists():\n        Path({str(folder / 'begun')!r}).touch()\n        time.sleep(0.1)\n"
        "    return row\n"
    )
    right = _ran(folder, "preview", "flow.yaml", "--json")
    assert right[0] == 0
    server = _server()
    (folder / "slow").touch()
    command = [sys.executable, "-m", "scribengin.cli", "preview", "flow.yaml", "--json"]
    cut = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert within(END_S, (folder / "begun").exists)
        (java,) = (each for each in psutil.process_iter(["name"]) if each.info["name"] == "java" and _session(each.pid) == server)
        died = Process(java.pid, birth_of(java.pid) or "")
        java.kill()
        assert died.gone_within(END_S)
        (folder / "slow").unlink()
        out, told = cut.communicate(timeout=END_S)
    finally:
        cut.kill()
        cut.wait()
    assert (cut.returncode, "the warm process has ended" in told) == (0, True)
    assert _same(out) == _same(right[1])
    assert within(END_S, lambda: "runs another" not in _ran(folder, "preview", "flow.yaml")[2])
    assert _server() == server


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_in_a_folder_of_another_user_a_command_keeps_nothing_warm(folder, tmp_path):
    assert _ran(folder, "preview", "flow.yaml")[0] == 0
    assert _ran(folder, "warm", "--stop")[0] == 0
    assert within(END_S, lambda: not warm.warm_processes())
    os.chown(warm.warm_folder(), 65534, 65534)
    status, _, told = _ran(folder, "preview", "flow.yaml")
    assert (status, "warm" in told) == (0, False)
    assert not warm.warm_processes()


def test_another_user_is_refused(monkeypatch, tmp_path):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert warm.is_own(ours)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert not warm.is_own(ours)
        with pytest.raises(PermissionError):
            warm.make_own_folder(tmp_path / "place")
