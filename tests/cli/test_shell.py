"""The shell: lines to commands, what is completed, scripts, and a real terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from scribengin.cli.shell_session import completions, read_script
from scribengin.core.errors import InputError
from scribengin.core.process import within

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHELL = [sys.executable, "-m", "scribengin.cli", "shell"]
DEADLINE_S = 120.0


def shell(home: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHELL, "--home", str(home), *words], input=stdin, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )


def test_a_script_has_comments_continued_lines_and_several_commands_a_line() -> None:
    text = "# first\nlist; status 'a;b' # both\n\nstop \\\n  orders\nversion\\"
    assert read_script(text, "s") == [(2, ["list"]), (2, ["status", "a;b"]), (4, ["stop", "orders"]), (6, ["version"])]


def test_every_line_that_cannot_be_read_is_told_before_anything_runs() -> None:
    with pytest.raises(InputError) as caught:
        read_script("list\nstatus 'a\nstop \"b\n", "s")
    assert [problem.place.line for problem in caught.value.problems] == [2, 3]


@pytest.mark.parametrize(
    ("line", "found"),
    [("roll", ["rollback "]), ("list; his", ["history "]), ("list --js", ["--json "]), ("list;", None), ("status 'a", [])],
)
def test_what_is_completed(line: str, found: list[str] | None) -> None:
    given = completions(line, len(line))
    assert len(given) > 20 if found is None else given == found


def test_files_are_completed_where_a_file_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flow.yaml").touch()
    (tmp_path / ".hidden").touch()
    monkeypatch.chdir(tmp_path)
    assert completions("apply fl", 8) == ["flow.yaml ", "flows/"]
    assert completions(f"apply {tmp_path}/flow.", len(f"apply {tmp_path}/flow.")) == [f"{tmp_path}/flow.yaml "]


def test_a_script_ends_at_the_first_command_that_fails_with_its_line_and_status(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("version\n\nlist\nversion\n")
    ended = shell(tmp_path / "home", "-f", str(script))
    assert ended.returncode == 2
    assert ended.stdout.count("scribengin ") == 1
    assert "[not-up]" in ended.stderr
    assert f"{script}:3:1" in ended.stderr
    assert "[shell-failed]" in ended.stderr


def test_a_script_that_keeps_going_does_all_and_fails_with_the_first(tmp_path: Path) -> None:
    ended = shell(tmp_path, "-c", "list\nversion; scribengin version", "--keep-going", "--json")
    assert ended.returncode == 2
    answer = json.loads(ended.stdout)
    assert [each["exit"] for each in answer["result"]] == [2, 0, 0]
    assert [problem["line"] for problem in answer["problems"]] == [1]


def test_a_quote_that_is_not_closed_lets_nothing_run(tmp_path: Path) -> None:
    ended = shell(tmp_path, "-f", "-", stdin="version\nstatus 'a\n")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "-:2:1" in ended.stderr


def test_commands_come_from_a_pipe_and_a_shell_in_a_shell_is_refused(tmp_path: Path) -> None:
    ended = shell(tmp_path, stdin="version\nshell\nexit\nversion\n")
    assert ended.returncode == 0
    assert ended.stdout.count("pyspark") == 1
    assert "already the shell" in ended.stderr


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, home: Path) -> None:
        self.pid, self.place = pty.fork()
        if self.pid == 0:  # in the child
            os.environ["TERM"] = "dumb"
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests in the background lets it be ignored
            os.execv(sys.executable, [*SHELL, "--home", str(home)])
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.place, text.encode())

    def until(self, text: str, wait_s: float = DEADLINE_S) -> bool:
        """Whether it came; what was seen up to there is done with."""
        ends_at = time.monotonic() + wait_s
        while text not in self.seen and (left_s := ends_at - time.monotonic()) > 0:
            if select.select([self.place], [], [], left_s)[0]:
                with suppress(OSError):  # it has ended
                    self.seen += os.read(self.place, 4096).decode()
        found = text in self.seen
        self.seen = self.seen.partition(text)[2] if found else self.seen
        return found

    def interrupted(self, prompt: str) -> bool:
        """Whether a Ctrl-C was heard: Python does not see one that comes just before it waits for the next key, until that comes."""
        self.type("\x03")
        return self.until(prompt, 5.0)

    def ended(self) -> bool:
        self.until("nothing that is ever written", 0.05)
        return os.waitpid(self.pid, os.WNOHANG) != (0, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(terminal.pid, signal.SIGKILL)
        os.waitpid(terminal.pid, 0)
    os.close(terminal.place)


def test_in_a_terminal_there_is_history_and_a_ctrl_c_ends_the_line_and_not_the_shell(tmp_path: Path, terminal: Terminal) -> None:
    assert terminal.until("scribengin> ")
    terminal.type("ver\tx\x7f\n")
    assert terminal.until("pyspark")
    assert terminal.until("scribengin> ")
    terminal.type("shell -f -\n")
    assert terminal.until("already the shell")
    assert terminal.until("scribengin [2]> ")
    terminal.type("half a line")
    assert terminal.until("half a line")
    assert any(terminal.interrupted("scribengin [2]> ") for _ in range(10))
    terminal.type("exit\n")
    assert within(DEADLINE_S, terminal.ended)
    history = tmp_path / "shell.history"
    assert "version" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
