"""One shared view of the state of a flow with tiers, for all users of the backlog in this process: back-pressure, displays, releases and
the lag of queries.

`status` reads the state in the same way. It does not matter in which process the other tiers run.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import ScribenginError
from scribengin.state.channel_acks import Acks, ChannelBacklog, FlowAcks
from scribengin.state.channel_checks import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.state.channel_acks import ChannelLink, QueryKey, QueryReading, QueryTopology
    from scribengin.state.channel_checks import Mismatch


LOOK_S = 0.25
"""seconds for which the state that was read is reused"""


@dataclass(frozen=True, slots=True)
class ChannelLevel:
    """The fill level of a channel. `put_rows` is the number of rows written to it, from an arbitrary start; `decided` is the newest Batch
    of the upstream's `lineage` that is included."""

    waiting: ChannelBacklog = NOTHING
    put_rows: int = 0
    lineage: str = ""
    decided: int = -1


class Levels:
    """The progress of a flow and the fill levels of its channels. Thread-safe. What was read is reused for `LOOK_S` seconds, so that its
    cost does not depend on the number of callers."""

    def __init__(self, topology: QueryTopology, now: Callable[[], float] = time.monotonic) -> None:
        self.topology = topology
        self._acks = Acks(topology)
        self._now = now
        self._lock = threading.Lock()
        self._standing: FlowAcks | None = None
        self._looked_s = 0.0
        self._mismatches: list[Mismatch] = []
        self._links: dict[str, ChannelLink] = {link.channel: link for link in topology.links}

    def acknowledged(self, *, fresh: bool = True) -> FlowAcks:
        """The progress of the flow: read now, or, with `fresh=False`, at most `LOOK_S` seconds old. Raises what reading the state
        raises."""
        with self._lock:
            if fresh or self._standing is None or self._now() - self._looked_s >= LOOK_S:
                self._looked_s = self._now()
                self._standing = self._acks.read()
                self._mismatches += self._standing.mismatches
            return self._standing

    def mismatches(self) -> list[Mismatch]:
        """The mismatches found since the last call."""
        with self._lock:
            found, self._mismatches = self._mismatches, []
            return found

    def keep(self, key: QueryKey) -> None:
        """Record the progress of a query; see `Acks.keep`."""
        with self._lock:
            self._acks.keep(key)

    def level(self, channel: str) -> ChannelLevel:
        """The fill level of a channel; with several readers, that of the one with the largest backlog."""
        link, standing = self._links[channel], self._last()
        if standing is None:
            return ChannelLevel()
        slowest = max(standing.of(link), key=lambda each: each.waiting.rows, default=None)
        put_rows = 0 if slowest is None else slowest.put_rows
        at = standing.queries[link.writer]
        return ChannelLevel(standing.waiting(link), put_rows, at.lineage, at.decided)

    def waiting_for(self, reading: QueryReading) -> ChannelBacklog:
        """The backlog of a query in a channel."""
        standing = self._last()
        at = None if standing is None else next((each for (_, who), each in standing.links.items() if who == reading), None)
        return ChannelBacklog() if at is None else at.waiting

    def _last(self) -> FlowAcks | None:
        """The newest progress that could be read. Errors are left to the releases, which read the same state and report them."""
        try:
            return self.acknowledged(fresh=False)
        except (ScribenginError, OSError):
            return self._standing
