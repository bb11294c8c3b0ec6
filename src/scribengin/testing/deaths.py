"""Dying in the midst of a sink's work: at a crash point that it passes (`core.faults`), or at any line of its own code.

In this process that is an exception that no code expects, so that hundreds of deaths cost no child each. What cleans up behind an
exception runs, as it does not in a process that is killed: `kill` is for that.
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
    """The process is as good as dead here."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where one can die: the crash point `what`, or that line (`sqlite/sink.py:37`), when it is passed first."""

    what: str
    is_line: bool = False

    def __str__(self) -> str:
        return self.what


def sites_of(act: Callable[[], object], code: frozenset[str]) -> list[Site]:
    """What `act` passes in this thread, in its order. `code`: files in which lines count."""
    passed: dict[Site, None] = {}

    def on(site: Site) -> None:
        passed.setdefault(site)

    _traced(act, _Passing(on, code))
    return list(passed)


def died_at(site: Site, act: Callable[[], object], code: frozenset[str], *, kill: bool = False) -> None:
    """Let `act` go on until it comes there. `kill`: this process is killed, really."""
    alive = True

    def on(passed: Site) -> None:
        nonlocal alive
        if passed == site and alive:
            alive = False
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ProcessDeath

    with warnings.catch_warnings(), suppress(ProcessDeath):
        warnings.simplefilter("ignore", ResourceWarning)  # the dead close nothing
        _traced(act, _Passing(on, code))


def own_code(sink: object) -> frozenset[str]:
    """The files that lie beside those of its class and of the classes under that, but for Python's own and this suite's."""
    files: set[str] = set()
    for kind in type(sink).__mro__:
        path = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if path and kind.__module__.partition(".")[0] not in sys.stdlib_module_names:
            files.update(map(str, Path(path).parent.glob("*.py")))
    return frozenset(files - set(map(str, Path(__file__).parent.glob("conformance*.py"))) - {__file__})


class _Passing:
    """Python calls it at each call of a function, and what it returns at each line of that."""

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
    """Empty for a `try:`, where Python lets no code die: an exception that a trace raises there passes by the `with` around it."""
    text, path = linecache.getline(code.co_filename, line).strip(), Path(code.co_filename)
    return "" if text == "try:" else f"{path.parent.name}/{path.name}:{line}"


def _traced(act: Callable[[], object], passing: _Passing) -> None:
    before = sys.gettrace()
    sys.settrace(passing)
    try:
        act()
    finally:
        sys.settrace(before)
