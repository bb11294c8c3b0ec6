"""The limits of a flow as its worker knows them, with its part of quotas and what those leave to it that read its sinks: read again when
they have changed, remembered while nobody answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.local.limits import FeedShare, FlowLimits, RateLimit
from scribengin.registry.records import Stored
from scribengin.registry.tree import HELD_BACK, LIMIT, SHARE
from scribengin.worker.followed import Followed
from scribengin.worker.own_log import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.registry.contract import Registry
    from scribengin.registry.kinds import Limit, Share
    from scribengin.registry.outside import HeldBackSinks
    from scribengin.worker.followed import Found

_LOOK_S = 30.0


class LiveLimits:
    """Called from any thread, it answers at once. `close` ends its thread. A record that says nothing, or may not be read, changes
    nothing."""

    def __init__(self, registry: Registry, flow: str, tell: Callable[[str], None] = tell) -> None:
        self._now = FlowLimits()
        self._followed = Followed(registry, "limits", _LOOK_S, tell)
        self._followed.add("limits stay as they were", (LIMIT(flow), SHARE(flow), HELD_BACK(flow)), self._take)

    def __call__(self) -> FlowLimits:
        """Those that hold now."""
        return self._now

    def close(self) -> None:
        """Follow no more."""
        self._followed.close()

    def _take(self, found: Sequence[Found]) -> None:
        limit, share, held = found
        now = self._now
        if limit is None or isinstance(limit, Stored):
            said = FlowLimits() if limit is None else limits_of(limit.record)
            now = replace(said, share=now.share, quota=now.quota, held=now.held)
        if share is None or isinstance(share, Stored):
            part, quota = (RateLimit(), "") if share is None else (share_of(share.record), share.record.quota)
            now = replace(now, share=part, quota=quota)
        if held is None or isinstance(held, Stored):
            now = replace(now, held={} if held is None else held_of(held.record))
        self._now = now


def limits_of(record: Limit) -> FlowLimits:
    """What a record says. Numbers that are no pace, and keys that are none, are no limit."""
    return FlowLimits(RateLimit(record.rows_per_s, record.bytes_per_s), _paces(record.sources), _paces(record.edges))


def share_of(record: Share) -> RateLimit:
    """What a flow's part of a quota is."""
    return RateLimit(record.rows_per_s)


def held_of(record: HeldBackSinks) -> dict[str, FeedShare]:
    """Sink → what its readers leave."""
    return {sink: FeedShare(hold.share, hold.why) for sink, hold in record.sinks.items()}


def _paces(given: Mapping[str, Mapping[str, float]]) -> dict[str, RateLimit]:
    return {name: RateLimit(each.get("rows_per_s"), each.get("bytes_per_s")) for name, each in given.items()}
