"""Each ten seconds a line says what is being done; a failing test says which command runs it alone."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

EACH_S = 10.0
_SHOWN = 4
_NAME_SHOWN = 70


class Progress:
    """Of the process in front of the terminal."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._terminal = None if config.getoption("numprocesses", None) else os.fdopen(os.dup(1), "w")
        """where tests run in this process, what goes to the reporter meanwhile is captured as theirs"""
        self._began = time.monotonic()
        self._ending = threading.Event()
        self._running: dict[str, None] = {}
        self._ended = 0
        self._total = 0
        self._said = 0
        self._last = ""
        self._scratch = tempfile.TemporaryDirectory(prefix="scribengin-tests-")
        self.folder = Path(self._scratch.name)
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def line(self) -> str:
        """What is being done now."""
        at = f"t={time.monotonic() - self._began:.0f}s"
        if not self._total or not (self._ended or self._running):
            last = f" (last: {self._last})" if self._last else ""
            return f"{at} collecting, and having the servers of the chosen tests there{last}"
        names = [_short(nodeid) for nodeid in list(self._running)[:_SHOWN]]
        return f"{at} {self._ended:,} of {self._total:,} tests, running: {', '.join(names) or 'none'}"

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = max(self._total, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["provision"] = str(self.folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._total = len(ids)
        faults = self.folder / "faults.json"
        if node.gateway.id == "gw0" and faults.exists() and json.loads(faults.read_text()) and os.environ.get("CI"):
            self._tell_said()
            pytest.exit("what a test cannot have fails the run where CI is set", 3)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._ended += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._scratch.cleanup()
        if self._terminal is not None:
            self._terminal.close()

    def _tick(self) -> None:
        due = time.monotonic() + EACH_S
        while not self._ending.wait(1):
            if self._tell_said():
                due = time.monotonic() + EACH_S
            elif time.monotonic() >= due:
                due += EACH_S
                self._show(self.line())

    def _tell_said(self) -> bool:
        """What the process that provides has said since."""
        file = self.folder / "said"
        lines = file.read_text().splitlines() if file.exists() else []
        new, self._said = lines[self._said :], len(lines)
        for self._last in new:
            self._show(self._last)
        return bool(new)

    def _show(self, text: str) -> None:
        if self._terminal is not None:
            print(f"\n{text}", file=self._terminal, flush=True)
            return
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(text)
        reporter.flush()


def _short(nodeid: str) -> str:
    name = nodeid.rpartition("/")[2]
    return name if len(name) <= _NAME_SHOWN else name[: _NAME_SHOWN - 1] + "…"


def alone(nodeid: str) -> str:
    """The command that runs a test alone, in the checkout; for a shell."""
    return f".venv/bin/python -m pytest -n0 -m '' {shlex.quote(nodeid)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield
    if report.failed:
        report.sections.append(("alone", alone(item.nodeid)))
    return report


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(Progress(config))
