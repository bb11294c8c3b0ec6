"""Rows that come too late for their folder by event time: by what tasks judge them, and what their receipts say of time.

Used by all sinks with folders by time. `closes_us` is what sinks in stores and tables go by: up to that moment all is closed, once the rows
of a file are committed. It stands in the receipt, hence in the decision, so another `delay` changes nothing of a Batch that is decided.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.options import CLOSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scribengin.connectors.files.time_path import TimePath


class LateRows:
    """Whether folders are closed, each judged once: a Batch gives the same result whenever it is run.

    Args:
        by: How folders go by time; None where they do not.
        closed_us: A folder whose time was over by then is closed, in microseconds since 1970; None: none is.
        is_marked: Whether a folder was closed before this lineage began.
    """

    def __init__(self, by: TimePath | None, closed_us: int | None, is_marked: Callable[[str], bool]) -> None:
        self._by = by
        self._closed_us = closed_us
        self._is_marked = is_marked
        self._known: dict[str, str] = {}

    def why_closed(self, folder: str) -> str:
        """Why a folder takes no more rows; empty where it does."""
        why = self._known.get(folder)
        if why is None:
            end_us = None if self._by is None or self._closed_us is None else self._by.end_us(folder)
            if end_us is not None and self._closed_us is not None and end_us <= self._closed_us:
                why = f"{folder} is closed: rows of its time came too late for it"
            elif folder and self._is_marked(folder):
                why = f"{folder} is closed, and was before this lineage began: its rows stay, and none is added"
            self._known[folder] = why = why or ""
        return why


class NewestTime:
    """Of the rows of one file."""

    def __init__(self) -> None:
        self._us: int | None = None

    def add(self, newest_us: int | None) -> None:
        """Take the newest of some rows in; a time ahead of the clock counts as now, for it must not close what is still to come."""
        if newest_us is not None:
            newest_us = min(newest_us, round(time.time() * 1e6))
            self._us = newest_us if self._us is None else max(newest_us, self._us)

    def as_json(self, delay_us: int | None = None) -> dict[str, int]:
        """What a receipt says of it. `delay_us`: of sinks that close by what receipts say."""
        if self._us is None:
            return {}
        return {"newest_us": self._us} | ({} if delay_us is None else {"closes_us": self._us - delay_us})


def delay_us(options: Mapping[str, Any]) -> int | None:
    """How much newer the rows must be that close a folder by time, in microseconds; None of a sink that closes none."""
    close = options.get("close")
    return None if close is None else round(CLOSE.filled(close)["delay"] * 1e6)


def closed_after(before: Mapping[str, Any] | None, files: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """What a Batch's record says is closed: never less than the one before. Empty where nothing is.

    >>> closed_after({"closed_us": 7}, [{"closes_us": 5}]), closed_after(None, [{}])
    ({'closed_us': 7}, {})
    """
    moments = [file["closes_us"] for file in files if "closes_us" in file]
    moments += [before["closed_us"]] if before is not None and "closed_us" in before else []
    return {"closed_us": max(moments)} if moments else {}
