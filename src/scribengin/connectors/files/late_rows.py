"""Rows that arrive too late for their folder by event time: how tasks detect them, and what their write receipts record about time.

Used by all sinks with folders by time. Sinks in stores and tables use `closes_us`: the time up to which all folders are closed once the
rows of a file are committed. It is stored in the write receipt, and so in the decision: changing `delay` does not affect a decided Batch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.options import CLOSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scribengin.connectors.files.time_path import TimePath


class LateRows:
    """Determines which folders are closed. Each folder is checked once, so that a Batch gives the same result whenever it is run.

    Args:
        by: The time settings of the folders; None if there are no folders by time.
        closed_us: A folder whose time ended by then is closed, in microseconds since 1970; None: no folder is closed.
        is_marked: Returns True if a folder was closed before this lineage began.
    """

    def __init__(self, by: TimePath | None, closed_us: int | None, is_marked: Callable[[str], bool]) -> None:
        self._by = by
        self._closed_us = closed_us
        self._is_marked = is_marked
        self._known: dict[str, str] = {}

    def why_closed(self, folder: str) -> str:
        """Why a folder accepts no more rows; empty if it does."""
        why = self._known.get(folder)
        if why is None:
            end_us = None if self._by is None or self._closed_us is None else self._by.end_us(folder)
            if end_us is not None and self._closed_us is not None and end_us <= self._closed_us:
                why = f"{folder} is closed: these rows arrived too late for it"
            elif folder and self._is_marked(folder):
                why = f"{folder} was closed before this lineage began: its rows stay, and no row is added"
            self._known[folder] = why = why or ""
        return why


class NewestTime:
    """The newest event time of the rows of one file."""

    def __init__(self) -> None:
        self._us: int | None = None

    def add(self, newest_us: int | None) -> None:
        """Update the newest time with these rows. A time in the future counts as now, because it must not close current folders."""
        if newest_us is not None:
            newest_us = min(newest_us, round(time.time() * 1e6))
            self._us = newest_us if self._us is None else max(newest_us, self._us)

    def as_json(self, delay_us: int | None = None) -> dict[str, int]:
        """The entries for a write receipt. `delay_us`: the delay of sinks that close folders by write receipts; None for others."""
        if self._us is None:
            return {}
        return {"newest_us": self._us} | ({} if delay_us is None else {"closes_us": self._us - delay_us})


def delay_us(options: Mapping[str, Any]) -> int | None:
    """How much newer than a folder's end rows must be to close the folder, in microseconds; None for a sink that closes no folders."""
    close = options.get("close")
    return None if close is None else round(CLOSE.filled(close)["delay"] * 1e6)


def closed_after(before: Mapping[str, Any] | None, files: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The closing time for a Batch's record: never less than that of the Batch before. Empty if no folder is closed.

    >>> closed_after({"closed_us": 7}, [{"closes_us": 5}]), closed_after(None, [{}])
    ({'closed_us': 7}, {})
    """
    moments = [file["closes_us"] for file in files if "closes_us" in file]
    moments += [before["closed_us"]] if before is not None and "closed_us" in before else []
    return {"closed_us": max(moments)} if moments else {}
