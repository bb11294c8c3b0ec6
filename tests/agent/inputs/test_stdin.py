"""The standard input of a process, until it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from scribengin.agent.inputs.stdin import StdinInput
from tests.agent.inputs.lanes import lane_of, poll_records, poll_until, records_of

if TYPE_CHECKING:
    from pathlib import Path

PROCESS = """
import sys
from pathlib import Path
from scribengin.agent.inputs import open_input
from scribengin.wire.protocol import LaneConfig

opened = open_input(LaneConfig("f", "s", "stdin"), {}, Path("."))
while not opened.finished:
    opened.wait(1.0)
    for chunk in opened.poll(2**20):
        sys.stdout.buffer.write(chunk.payload)
print("end", opened.report())
"""


def run(**how: object) -> bytes:
    return subprocess.run([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, check=True, timeout=120, **how).stdout  # type: ignore[call-overload, no-any-return]


def test_lines_of_a_pipe_arrive_whole_and_the_end_is_told() -> None:
    lines = b"".join(b"%d\n" % number for number in range(300_000))
    out = run(input=lines + b"last")
    assert out.startswith(lines + b"last\nend ")


def test_a_file_may_be_the_standard_input(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    with (tmp_path / "lines").open("rb") as file:
        assert run(stdin=file).startswith(b"one\ntwo\nend ")


def test_no_standard_input_is_told() -> None:
    command = f'exec {sys.executable} -c "$SCRIPT" <&-'
    out = run_shell(command)
    assert out.startswith(b"end ")
    assert b"the agent has no standard input; to fix, start it behind a pipe" in out


def run_shell(command: str) -> bytes:
    return subprocess.run(
        ["sh", "-c", command], stdout=subprocess.PIPE, check=True, timeout=120, env={**os.environ, "SCRIPT": PROCESS}
    ).stdout


def test_lines_arrive_while_the_pipe_is_open_and_a_long_one_is_too_long() -> None:
    reading, writing = os.pipe()
    found = StdinInput(lane_of("stdin", max_record=10), reading)
    try:
        os.write(writing, b"one\ntw")
        assert poll_records(found, 1) == [b"one"]
        os.write(writing, b"o\n" + b"x" * 20 + b"\nthree")
        os.close(writing)
        chunks = poll_until(found, lambda _: found.finished)
        assert [(chunk.kind, records_of(chunk)) for chunk in chunks] == [
            ("records", [b"two"]),
            ("too_long", [b"x" * 10]),
            ("records", [b"three"]),
        ]
        assert found.poll(100) == []
    finally:
        os.close(reading)
