"""Flows with a store as sink: the same queries, records and checks as for files."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from harness.faults.flows import FaultFlow
from harness.faults.reader import Sight, start_reader_program, told_to_end, whole_key
from scribengin.testing.checker import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.faults.flows import FlowKind
    from harness.faults.reader import ReaderProcess
    from scribengin.embedded.server import LoneServer
    from scribengin.testing.records import RecordKey

_KEYS = {"aggregate": "at, bucket", "join": "part, seq", "dedupe": "part, seq"}
_LOOK_S, _REST = 0.1, 19
"""pause between two readings; the reading of a large table takes a twentieth of the time at most"""


@dataclass(kw_only=True)
class StoreFlow(FaultFlow):
    """A flow into a store. `route` is one of its Ground's; if it ends in `by-key`, rows with the same key replace each other."""

    route: str

    @property
    def ordered(self) -> bool:
        """False: a store has no order."""
        return False

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The rows that an independent reader finds at the sink's place; empty if it does not exist."""
        raise NotImplementedError

    def watch_program(self, sink: str) -> Sequence[str]:
        """The module whose `main` reads the sink's place, and its arguments."""
        raise NotImplementedError

    def watch(self, out: Path) -> ReaderProcess:
        """Start an independent reader of the sink's place."""
        return start_reader_program(*self.watch_program(out.name), *(["records"] if self.has_records else []))

    @property
    def key(self) -> str:
        """The key columns if rows replace each other; else empty."""
        return _KEYS.get(self.kind, "run, part, seq") if self.route.endswith("by-key") else ""

    def _rows_at_sinks(self, out: Path, torn: list[str]) -> list[Found]:  # noqa: ARG002 (nothing can be torn)
        return [Found(sink, row) for sink in self.sinks for row in self.rows_of(sink)]

    @property
    def _kind(self) -> FlowKind:
        """The same as for files, but no part of a key is null."""
        return _without_null(super()._kind)


@cache
def _without_null(kind: FlowKind) -> FlowKind:
    return replace(kind, steps=kind.steps.replace("AS at, bucket,", "AS at, coalesce(bucket, '') AS bucket,"))


@dataclass(kw_only=True)
class ServedFlow(StoreFlow):
    """A flow into a store with a server that may be struck."""

    server: LoneServer


class RowWatch:
    """Reads one place repeatedly. A record that was seen must stay, and must exist once; with `twice`, at least once."""

    def __init__(self, *, records: bool, twice: bool = False) -> None:
        self.sight = Sight()
        self._records, self._twice = records, twice
        self._seen: set[RecordKey] = set()
        self._rows = 0

    def read_all(self, rows: Sequence[dict[str, Any]]) -> None:
        """Check the rows of one reading."""
        self.sight.looks += 1
        self.sight.rows = max(self.sight.rows, len(rows))
        if len(rows) < self._rows:
            self.sight.complain(f"{len(rows)} rows, it was {self._rows} before")
        self._rows = len(rows)
        if not self._records:
            return
        keys: set[RecordKey] = set()
        for row in rows:
            try:
                key = whole_key(row)
            except ValueError as error:
                self.sight.complain(str(error))
                continue
            if key in keys and not self._twice:
                self.sight.complain(f"{key} stands there twice")
            keys.add(key)
        if gone := self._seen - keys:
            self.sight.complain(f"gone: {sorted(gone)[:5]}")
        self._seen |= keys


def look_until_told(read: Callable[[], Sequence[dict[str, Any]]], away: type[Exception] | tuple[()], flags: Sequence[str]) -> None:
    """Read until the standard input closes, then print one Sight. While the server is unavailable, `read` raises `away`, and this waits.

    Args:
        read: Reads all rows of the place.
        away: The errors of an unavailable server.
        flags: `records` and `twice`; see RowWatch.
    """
    watch = RowWatch(records="records" in flags, twice="twice" in flags)
    last, took_s = False, 0.0
    while not last:
        last = told_to_end(max(_LOOK_S, _REST * took_s))
        began = time.monotonic()
        try:
            watch.read_all(read())
            took_s = time.monotonic() - began
        except away:
            last = False  # the server comes back: the final contents must still be read
            time.sleep(_LOOK_S)
    os.write(1, msgspec.json.encode(asdict(watch.sight)))
