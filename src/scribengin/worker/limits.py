"""The limits of a flow as its worker knows them, and its part of quotas: read again when somebody has changed them, remembered while nobody
answers."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.core.errors import Unreachable
from scribengin.local.limits import FlowLimits, Pace
from scribengin.registry.records import Stored, read_record
from scribengin.registry.tree import LIMIT, SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.registry.contract import Registry
    from scribengin.registry.kinds import Limit, Share

_LOOK_S = 5.0
"""a watch is a hint: how long to wait for one before looking anyhow"""


class LiveLimits:
    """Called from any thread, it answers at once. `close` ends its thread. A record that says nothing changes nothing."""

    def __init__(self, registry: Registry, flow: str) -> None:
        self._registry = registry
        self._spot, self._share_spot = LIMIT(flow), SHARE(flow)
        self._now = FlowLimits()
        self._changed = threading.Event()
        self._closed = False
        self._look()
        self._watches = [registry.watch(spot.path, self._changed.set) for spot in (self._spot, self._share_spot)]
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
            self._look()
            self._changed.wait(_LOOK_S)

    def _look(self) -> None:
        try:
            found, share = read_record(self._registry, self._spot), read_record(self._registry, self._share_spot)
        except Unreachable:
            return
        before = self._now
        limits = FlowLimits() if found is None else limits_of(found.record) if isinstance(found, Stored) else before
        part, quota = (before.share, before.quota) if share is not None else (Pace(), "")
        if isinstance(share, Stored):
            part, quota = share_of(share.record), share.record.quota
        self._now = replace(limits, share=part, quota=quota)


def limits_of(record: Limit) -> FlowLimits:
    """What a record says. Numbers that are no pace, and keys that are none, are no limit."""
    return FlowLimits(Pace(record.rows_per_s, record.bytes_per_s), _paces(record.sources), _paces(record.edges))


def share_of(record: Share) -> Pace:
    """What a flow's part of a quota is."""
    return Pace(record.rows_per_s)


def _paces(given: Mapping[str, Mapping[str, float]]) -> dict[str, Pace]:
    return {name: Pace(each.get("rows_per_s"), each.get("bytes_per_s")) for name, each in given.items()}
