"""The limits of a flow as its worker knows them, with its part of quotas and what those leave to it that read its sinks: read again when
they have changed, remembered while nobody answers."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.core.errors import ScribenginError, Unreachable
from scribengin.core.said import Said
from scribengin.local.limits import FlowLimits, Held, Pace
from scribengin.registry.records import Stored, stored_as
from scribengin.registry.tree import HELD_BACK, LIMIT, SHARE
from scribengin.worker.own_log import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.registry.contract import Registry
    from scribengin.registry.kinds import Limit, Share
    from scribengin.registry.outside import HeldBack

_LOOK_S, _AGAIN_S = 30.0, 5.0
"""a watch is a hint: how long to wait for one before looking anyhow; and after a look that found out nothing"""


class LiveLimits:
    """Called from any thread, it answers at once. `close` ends its thread. A record that says nothing, or may not be read, changes
    nothing."""

    def __init__(self, registry: Registry, flow: str, tell: Callable[[str], None] = tell) -> None:
        self._tell = tell
        self._said = Said()
        self._registry = registry
        self._limit, self._share, self._held = LIMIT(flow), SHARE(flow), HELD_BACK(flow)
        self._now = FlowLimits()
        self._changed = threading.Event()
        self._closed = False
        self._look()
        self._watches = [registry.watch(spot.path, self._changed.set) for spot in (self._limit, self._share, self._held)]
        self._thread = threading.Thread(target=self._follow, name="limits", daemon=True)
        self._thread.start()

    def __call__(self) -> FlowLimits:
        """Those that hold now."""
        return self._now

    def close(self) -> None:
        """Follow no more."""
        self._closed = True
        for watch in self._watches:
            watch.close()
        self._changed.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closed:
            self._changed.clear()
            self._changed.wait(self._look())

    def _look(self) -> float:
        """How long until the next one, where nothing changes."""
        try:
            entries = self._registry.read_many([spot.path for spot in (self._limit, self._share, self._held)])
        except Unreachable:
            return _AGAIN_S
        except ScribenginError as error:
            if self._said.is_new(error.message):
                self._tell(f"limits stay as they were: {error.message}")
            return _AGAIN_S
        found = None if entries[0] is None else stored_as(entries[0], self._limit)
        share = None if entries[1] is None else stored_as(entries[1], self._share)
        held = None if entries[2] is None else stored_as(entries[2], self._held)
        now = self._now
        if found is None or isinstance(found, Stored):
            said = FlowLimits() if found is None else limits_of(found.record)
            now = replace(said, share=now.share, quota=now.quota, held=now.held)
        if share is None or isinstance(share, Stored):
            part, quota = (Pace(), "") if share is None else (share_of(share.record), share.record.quota)
            now = replace(now, share=part, quota=quota)
        if held is None or isinstance(held, Stored):
            now = replace(now, held={} if held is None else held_of(held.record))
        self._now = now
        return _LOOK_S


def limits_of(record: Limit) -> FlowLimits:
    """What a record says. Numbers that are no pace, and keys that are none, are no limit."""
    return FlowLimits(Pace(record.rows_per_s, record.bytes_per_s), _paces(record.sources), _paces(record.edges))


def share_of(record: Share) -> Pace:
    """What a flow's part of a quota is."""
    return Pace(record.rows_per_s)


def held_of(record: HeldBack) -> dict[str, Held]:
    """Sink → what its readers leave."""
    return {sink: Held(hold.share, hold.why) for sink, hold in record.sinks.items()}


def _paces(given: Mapping[str, Mapping[str, float]]) -> dict[str, Pace]:
    return {name: Pace(each.get("rows_per_s"), each.get("bytes_per_s")) for name, each in given.items()}
