"""The log of a run, for operators: starts, stops, restarts and failures. Nothing is written while a run is healthy and steady.

One line for each event, `time level event key=value …`; the traceback of an unexpected error follows its line.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

_BYTES = 4 * 2**20
_OLD_FILES = 3


class _Handler(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the base class's)
        """A log that cannot be written (a full disk) must not disturb the run that it describes."""


@contextmanager
def open_run_log(path: Path) -> Iterator[FilteringBoundLogger]:
    """Append to `path`. At 4 MiB it is renamed to `path.1`; three old files are kept. Several threads may write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _Handler(path, maxBytes=_BYTES, backupCount=_OLD_FILES, encoding="utf-8")
    lines = logging.Logger("scribengin.run")
    lines.addHandler(handler)
    try:
        yield structlog.wrap_logger(
            lines,
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            processors=[
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                _line,
            ],
        )
    finally:
        handler.close()


def _line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    trace = event.pop("exception", "")
    head = f"{event.pop('time')} {event.pop('level'):<7} {event.pop('event')}"
    fields = "".join(f" {key}={_value(value)}" for key, value in event.items())
    below = "".join(f"\n    {line}" for line in str(trace).splitlines())
    return head + fields + below


def _value(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if text and not any(char in text for char in ' "\n=') else repr(text)
