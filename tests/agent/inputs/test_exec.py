"""Commands as inputs: real processes, their ends, and what becomes of them with the agent."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scribengin.agent.inputs import children, open_input
from scribengin.agent.inputs.exec import ExecInput
from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import birth_of
from tests.agent.inputs.lanes import lane_of, poll_records, poll_until, records_of, until


def opened(tmp_path: Path, command: list[str], config: dict[str, Any] | None = None, **options: Any) -> ExecInput:
    options = {"command": command, "restart": "always", "restart_delay": 0.05, "stderr": "log", **options}
    found = open_input(lane_of("exec", options, **(config or {})), {}, tmp_path)
    assert isinstance(found, ExecInput)
    return found


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def ended(found: ExecInput) -> Any:
    """Poll until the command has ended for good."""
    chunks = poll_until(found, lambda _: found.runs.finished)
    return [record for chunk in chunks for record in records_of(chunk)]


def test_lines_of_stdout_are_records_and_the_end_ends_the_last(tmp_path: Path) -> None:
    with closing(opened(tmp_path, shell("printf 'one\\n\\nthree'"), restart="never", config={"tags": {"site": "x"}})) as found:
        chunks = poll_until(found, lambda _: found.runs.finished)
    assert [record for chunk in chunks for record in records_of(chunk)] == [b"one", b"", b"three"]
    assert chunks[0].origin.file.startswith("sh -c 'printf")
    assert chunks[0].origin.tags == {"site": "x"}


def test_a_command_gets_its_environment_and_no_input(tmp_path: Path) -> None:
    with closing(opened(tmp_path, shell('cat; echo "$GREETING"'), restart="never", environment={"GREETING": "hello"})) as found:
        assert ended(found) == [b"hello"]


def test_much_output_arrives_whole(tmp_path: Path) -> None:
    with closing(opened(tmp_path, ["seq", "1", "500000"], restart="never")) as found:
        assert ended(found) == [b"%d" % number for number in range(1, 500_001)]


@pytest.mark.parametrize(
    ("restart", "script", "again"),
    [
        ("always", "echo run; exit 0", True),
        ("always", "echo run; exit 3", True),
        ("on_failure", "echo run; exit 3", True),
        ("on_failure", "echo run; kill -9 $$", True),
        ("on_failure", "echo run", False),
        ("never", "echo run; exit 3", False),
    ],
)
def test_a_command_is_started_again_as_its_policy_says(restart: str, script: str, again: bool, tmp_path: Path) -> None:
    with closing(opened(tmp_path, shell(script), restart=restart)) as found:
        if again:
            assert poll_records(found, 3) == [b"run"] * 3
            assert not found.runs.finished
        else:
            assert ended(found) == [b"run"]
            found.wait(0.2)
            assert found.poll(2**20) == []
            assert found.runs.runs == 1


def test_the_delay_grows_with_each_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(tmp_path, ["true"])) as found:
        delays = []
        failed = found.runs._retry.failed
        monkeypatch.setattr(found.runs._retry, "failed", lambda: delays.append(failed()) or delays[-1])
        poll_until(found, lambda _: len(delays) >= 5)
        assert delays[:5] == [0.05, 0.1, 0.2, 0.4, 0.8]
        monkeypatch.setattr(children, "STEADY_S", 0.0)  # the next run counts as a long one
        poll_until(found, lambda _: len(delays) >= 6)
        assert delays[5] == 0.05


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no disk >&2; exit 3", "the command sh ended with status 3 (no disk); it is not started again"),
        ("kill -9 $$", "the command sh was ended by SIGKILL; it is not started again"),
        ("exit 0", "the command sh ended with status 0; it is not started again"),
    ],
)
def test_how_a_command_ended_is_told(script: str, words: str, tmp_path: Path) -> None:
    with closing(opened(tmp_path, shell(script), restart="never")) as found:
        ended(found)
        assert found.report().message == words


def test_a_command_that_does_not_exist_is_told_and_started_once_it_does(tmp_path: Path) -> None:
    program = tmp_path / "later"
    with closing(opened(tmp_path, [str(program)])) as found:
        assert found.poll(2**20) == []
        assert f"the command {program} cannot be started: not found; to fix, install it, or correct `command`" in found.report().message
        program.write_text("#!/bin/sh\necho here\n")
        until(lambda: not found.poll(2**20) and "not executable" in found.report().message)
        program.chmod(0o755)
        assert poll_records(found, 1) == [b"here"]


def test_an_empty_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"flow\.source: command is empty"):
        opened(tmp_path, [])


BOTH = shell("echo out; echo err >&2; echo out2")


def test_stderr_goes_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "scribengin.agent")
    with closing(opened(tmp_path, BOTH, restart="never")) as found:
        assert ended(found) == [b"out", b"out2"]
    assert any(record.message.endswith(": err") for record in caplog.records)


def test_stderr_goes_among_the_records(tmp_path: Path) -> None:
    with closing(opened(tmp_path, BOTH, restart="never", stderr="merge")) as found:
        assert ended(found) == [b"out", b"err", b"out2"]


def test_stderr_becomes_records_of_its_own(tmp_path: Path) -> None:
    with closing(opened(tmp_path, BOTH, restart="never", stderr="separate")) as found:
        chunks = poll_until(found, lambda _: found.runs.finished)
    of = {
        stream: [record for chunk in chunks if chunk.origin.tags["stream"] == stream for record in records_of(chunk)]
        for stream in ("stdout", "stderr")
    }
    assert of == {"stdout": [b"out", b"out2"], "stderr": [b"err"]}
    assert len({chunk.origin.file for chunk in chunks}) == 2


def test_a_line_longer_than_max_record_is_one_too_long(tmp_path: Path) -> None:
    script = "echo a; head -c 3000000 /dev/zero; echo; echo b"
    with closing(opened(tmp_path, shell(script), restart="never", config={"max_record": 1000})) as found:
        chunks = poll_until(found, lambda _: found.runs.finished)
    assert [(chunk.kind, chunk.count) for chunk in chunks] == [("records", 1), ("too_long", 1), ("records", 1)]


def test_a_lane_that_does_not_poll_makes_the_command_wait(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"i=0; while [ $i -lt 500 ]; do head -c 999 /dev/zero; echo; i=$((i+1)); echo $i > {count}; done"
    with closing(opened(tmp_path, shell(script), restart="never")) as found:
        until(lambda: sum(chunk.count for chunk in found.poll(1000)) or count.exists())
        last, quiet = "", time.monotonic()
        while time.monotonic() - quiet < 1.0:
            if (now := count.read_text()) != last:
                last, quiet = now, time.monotonic()
        assert int(last) < 200  # the pipe is full
        poll_until(found, lambda _: found.runs.finished)
        assert count.read_text() == "500\n"


# Ends.


def pids_of(file: Path) -> list[int]:
    return [int(line) for line in until(lambda: file.exists() and file.read_text().endswith("\n") and file.read_text()).split()]


FAMILY = "sleep 1000 & echo $$ $! > {file}; echo ready; wait"


def gone(pids: list[int]) -> bool:
    return all(birth_of(pid) is None for pid in pids)


def test_the_command_and_what_it_started_end_with_the_input(tmp_path: Path) -> None:
    found = opened(tmp_path, shell(FAMILY.format(file=tmp_path / "pids")))
    with closing(found):
        assert poll_records(found, 1) == [b"ready"]
        pids = pids_of(tmp_path / "pids")
        assert len(pids) == 2
        assert not gone(pids)
    until(lambda: gone(pids))


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "END_S", 0.3)
    found = opened(tmp_path, shell(f"trap '' TERM; {FAMILY.format(file=tmp_path / 'pids')}"))
    with closing(found):
        assert poll_records(found, 1) == [b"ready"]
    until(lambda: gone(pids_of(tmp_path / "pids")))


def test_what_a_command_left_behind_ends_before_it_is_started_again(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! >> {tmp_path / 'pids'}; echo run"
    with closing(opened(tmp_path, shell(script))) as found:
        assert poll_records(found, 2)[:2] == [b"run", b"run"]
        until(lambda: gone(pids_of(tmp_path / "pids")[:1]))


AGENT = """
import sys
from pathlib import Path
from scribengin.agent.inputs import open_input
from scribengin.wire.protocol import LaneConfig

opened = open_input(LaneConfig("f", "s", "exec", options={"command": ["sh", "-c", sys.argv[1]]}), {}, Path("."))
while True:
    opened.poll(2**20)
    opened.wait(1.0)
"""


def test_the_command_and_what_it_started_end_when_the_agent_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    agent = subprocess.Popen([sys.executable, "-c", AGENT, FAMILY.format(file=file)], cwd=tmp_path)
    try:
        pids = pids_of(file)
        assert not gone(pids)
    finally:
        agent.send_signal(signal.SIGKILL)
        agent.wait(60)
    until(lambda: gone(pids), "the group ends")


def test_no_process_is_left_beside_a_command_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(tmp_path, shell("echo $$"), restart="never")) as found:
        (group,) = ended(found)

    def members() -> list[str]:
        stats = [each.read_text().rpartition(")")[2].split() for each in Path("/proc").glob("[0-9]*/stat") if os.access(each, os.R_OK)]
        return [stat[2] for stat in stats if stat[2] == group.decode() and stat[0] != "Z"]

    def none_left() -> bool:
        try:
            return not members()
        except (FileNotFoundError, ProcessLookupError):
            return False

    until(none_left)
