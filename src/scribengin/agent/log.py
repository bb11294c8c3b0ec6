"""The log of an agent: lines on stderr, plain or JSON. A text that repeats within a minute is counted instead of written, so that a lasting
condition cannot fill a disk, not even if the agent tails the file that its own log goes to."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_REPEAT_S = 60.0
_REMEMBERED = 500
_MOST_TEXT = 4_000


class InputLogHandler(logging.Handler):
    """Passes on what inputs log, with Python's logger `scribengin.agent`."""

    def __init__(self, log: AgentLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record at its level."""
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            text += f": {type(error).__name__}: {error}"
        if record.levelno >= logging.ERROR:
            self._log.error(text)
        elif record.levelno >= logging.WARNING:
            self._log.warning(text)
        else:
            self._log.info(text)


class AgentLog:
    """Writes log lines; any thread may."""

    def __init__(
        self, *, form: str = "plain", level: str = "info", out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._json = form == "json"
        self._least = _LEVELS[level]
        self._out = out
        self._clock = clock
        self._lock = Lock()
        self._written: dict[str, list[float]] = {}
        """text → when it was written, and how often it was left out since"""

    def debug(self, text: str, **fields: object) -> None:
        """For people who look for a fault of the agent itself."""
        self._write("debug", text, fields)

    def info(self, text: str, **fields: object) -> None:
        """What happens in the normal course."""
        self._write("info", text, fields)

    def warning(self, text: str, **fields: object) -> None:
        """What keeps records waiting, or will."""
        self._write("warning", text, fields)

    def error(self, text: str, **fields: object) -> None:
        """What a person must mend."""
        self._write("error", text, fields)

    def _write(self, level: str, text: str, fields: dict[str, object]) -> None:
        if _LEVELS[level] < self._least:
            return
        with self._lock:
            now = self._clock()
            last = self._written.get(text)
            if last is not None and now - last[0] < _REPEAT_S:
                last[1] += 1
                return
            if last is None and len(self._written) >= _REMEMBERED:
                self._written.clear()
            if last is not None and last[1]:
                fields = {**fields, "repeated": int(last[1])}
            self._written[text] = [now, 0]
            with suppress(OSError, ValueError):  # a log that cannot be written must not stop the records
                out = self._out or sys.stderr
                out.write(self._line(level, text[:_MOST_TEXT], fields))
                out.flush()

    def _line(self, level: str, text: str, fields: dict[str, object]) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if self._json:
            return msgspec.json.encode({"time": moment, "level": level, "text": text, **fields}, enc_hook=str).decode() + "\n"
        tail = "".join(f" {name}={value}" for name, value in fields.items())
        return f"{moment} {level:<7} {' '.join(text.splitlines())}{tail}\n"
