"""Lets a sink die during its work: at a crash point that it passes (see `core.faults`), or at any line of its own code.

In this process a death is an exception that no code expects, so that hundreds of deaths need no child process. Cleanup code for exceptions
runs then, which it does not in a process that is killed; use `kill` for that.
"""

from __future__ import annotations

import linecache
import os
import signal
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core import faults

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

_POINT = faults.reached.__code__


class ProcessDeath(BaseException):
    """Simulates the death of the process."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place at which a process can die, when it is passed for the first time: the crash point `what`, or a line (`sqlite/sink.py:37`)."""

    what: str
    is_line: bool = False

    def __str__(self) -> str:
        return self.what


def sites_of(act: Callable[[], object], code: frozenset[str]) -> list[Site]:
    """Run `act` and return the sites that it passes in this thread, in order. `code` contains the files whose lines count."""
    passed: dict[Site, None] = {}

    def on(site: Site) -> None:
        passed.setdefault(site)

    _traced(act, _Passing(on, code))
    return list(passed)


def died_at(site: Site, act: Callable[[], object], code: frozenset[str], *, kill: bool = False) -> None:
    """Run `act` until it reaches the site, where it dies.

    Args:
        site: The site.
        act: The call.
        code: The files whose lines count as sites.
        kill: Kill this process with SIGKILL, instead of raising an exception.
    """
    alive = True

    def on(passed: Site) -> None:
        nonlocal alive
        if passed == site and alive:
            alive = False
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ProcessDeath

    with warnings.catch_warnings(), suppress(ProcessDeath):
        warnings.simplefilter("ignore", ResourceWarning)  # a dead process does not close its files
        _traced(act, _Passing(on, code))


def own_code(sink: object) -> frozenset[str]:
    """The Python files in the folders of the sink's class and its base classes, without the standard library and this suite."""
    files: set[str] = set()
    for kind in type(sink).__mro__:
        path = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if path and kind.__module__.partition(".")[0] not in sys.stdlib_module_names:
            files.update(map(str, Path(path).parent.glob("*.py")))
    return frozenset(files - set(map(str, Path(__file__).parent.glob("conformance*.py"))) - {__file__})


class _Passing:
    """A trace function: Python calls it for each function call, and the function that it returns for each line."""

    def __init__(self, on: Callable[[Site], None], code: frozenset[str]) -> None:
        self._on = on
        self._code = code
        self._names: dict[tuple[CodeType, int], str] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG002 (Python's)
        code = frame.f_code
        if code is _POINT:
            self._on(Site(frame.f_locals["point"]))
            return None
        return self._line if code.co_filename in self._code else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG002 (Python's)
        if event == "line":
            line = (frame.f_code, frame.f_lineno)
            if line not in self._names:
                self._names[line] = _name(*line)
            if self._names[line]:
                self._on(Site(self._names[line], is_line=True))
        return self._line


def _name(code: CodeType, line: int) -> str:
    """The name of a line; empty for `try:`, where an exception of a trace function is raised outside of the surrounding `with` block, which
    cannot happen to real code."""
    text, path = linecache.getline(code.co_filename, line).strip(), Path(code.co_filename)
    return "" if text == "try:" else f"{path.parent.name}/{path.name}:{line}"


def _traced(act: Callable[[], object], passing: _Passing) -> None:
    before = sys.gettrace()
    sys.settrace(passing)
    try:
        act()
    finally:
        sys.settrace(before)
