"""What a worker follows in the registry: its desired state, limits and groups. Records are read again after a change, and remembered while
the registry does not answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.connectors.group.health import MemberOverrides
from scribengin.core.errors import ScribenginError, Unreachable
from scribengin.core.log_once import ReportedTexts
from scribengin.local.rate_limit import FlowLimits, RateLimit, UpstreamShare
from scribengin.registry.contract import Damaged
from scribengin.registry.record_io import Newer, Stored, read_record, stored_as
from scribengin.registry.tree import GROUP, HELD_BACK, LEASE, LIMIT, RUN, SHARE, SPARE, WANTED, WORKER_ORDER
from scribengin.worker.log import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.registry.contract import Registry, RegistryWatch
    from scribengin.registry.record_io import Spot

    Found = Stored[Any] | Newer | Damaged | None
    Take = Callable[[Sequence[Found]], None]
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.control.world import RunId
    from scribengin.registry.flow_ends import HeldBackSinks
    from scribengin.registry.records import Limit, Run, Share, TierWish


# Records that a running worker follows: read again after a change, and remembered while the registry does not answer.


_AGAIN_S = 5.0
"""seconds to wait after a check that failed"""


class Followed:
    """Follows sets of records; the records of a set are read together. `close` ends its thread.

    Args:
        registry: where the records are.
        name: the name of its thread.
        every_s: seconds to wait for a watch, which is a hint, before checking anyway.
        tell: called with the reason why records cannot be read, once for each reason.
    """

    def __init__(self, registry: Registry, name: str, every_s: float, tell: Callable[[str], None]) -> None:
        self._registry = registry
        self._every_s = every_s
        self._tell = tell
        self._said = ReportedTexts()
        self._sets: list[tuple[str, Sequence[Spot[Any]], Take]] = []
        self._watches: list[RegistryWatch] = []
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._thread.start()

    def add(self, stays: str, spots: Sequence[Spot[Any]], take: Take) -> None:
        """Follow a set of records.

        Args:
            stays: what remains unchanged if the records cannot be read; the beginning of a text for `tell`.
            spots: the records.
            take: called with the records, once before this returns, and again after changes; not called while they cannot be read.
        """
        with self._lock:
            if self._closed:
                return
            self._watches += [self._registry.watch(spot.path, self._changed.set) for spot in spots]
            self._sets.append((stays, spots, take))
        if not self._read_spots(stays, spots, take):
            self._changed.set()

    def refresh(self) -> bool:
        """Read all sets now. Returns True if all could be read."""
        with self._lock:
            sets = [*self._sets]
        could = [self._read_spots(*each) for each in sets]
        return all(could)

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._closed = True
            for watch in self._watches:
                watch.close()
        self._changed.set()
        self._thread.join()

    def _follow(self) -> None:
        wait_s = self._every_s
        while not self._closed:
            self._changed.wait(wait_s)
            self._changed.clear()
            wait_s = self._every_s if self.refresh() else _AGAIN_S

    def _read_spots(self, stays: str, spots: Sequence[Spot[Any]], take: Take) -> bool:
        """Read one set. Returns True if it could be read."""
        try:
            entries = self._registry.read_many([spot.path for spot in spots])
        except Unreachable:
            return False
        except ScribenginError as error:
            if self._said.is_new(error.message):
                self._tell(f"{stays}: {error.message}")
            return False
        take([None if entry is None else stored_as(entry, spot) for entry, spot in zip(entries, spots, strict=True)])
        return True


# The settings of groups while a worker runs: read again after a change, and remembered while the registry does not answer.


_TURNS_READ_S = 5.0


class LiveTurns:
    """The settings of groups; called with a group's name, from any thread. It waits for the registry at the first call for each group. An
    invalid record, or one that may not be read, changes nothing. `close` ends its thread."""

    def __init__(self, registry: Registry, tell: Callable[[str], None] = tell) -> None:
        self._now: dict[str, MemberOverrides] = {}
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._followed = Followed(registry, "turns", _TURNS_READ_S, tell)

    def __call__(self, group: str) -> MemberOverrides:
        """The settings of a group that apply now."""
        with self._lock:
            if group not in self._known:
                self._known.add(group)
                self._followed.add(f"the settings of group {group} stay as they were", (GROUP(group),), partial(self._take, group))
        return self._now.get(group, MemberOverrides())

    def close(self) -> None:
        """Stop watching."""
        self._followed.close()

    def _take(self, group: str, found: Sequence[Found]) -> None:
        (said,) = found
        if said is None:
            self._now[group] = MemberOverrides()
        elif isinstance(said, Stored):
            self._now[group] = MemberOverrides(said.record.members, said.record.out)


_ORDER_READ_S = 10.0


class OwnOrder:
    """The order of a worker that no signal reaches, because it runs in a cluster: `stop` is called when the order asks it to end. `close`
    ends its thread.

    Args:
        registry: where the order is.
        node: the name of the node that has started the worker.
        worker: the worker's id.
        stop: called with the reason.
    """

    def __init__(self, registry: Registry, node: str, worker: str, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._followed = Followed(registry, "order", _ORDER_READ_S, tell)
        self._followed.add("the worker does not learn of a stop request", (WORKER_ORDER(node, worker),), self._take)

    def close(self) -> None:
        """Stop watching."""
        self._followed.close()

    def _take(self, found: Sequence[Found]) -> None:
        (order,) = found
        if isinstance(order, Stored) and order.record.ask != "run":
            self._stop("its node was ordered to stop it")


# A flow's limits while its worker runs, its share of quotas, and the share that downstream flows leave to its sinks: read again after a
# change, and remembered while the registry does not answer.


_LIMITS_READ_S = 30.0


class LiveLimits:
    """The limits of a flow; called from any thread, it returns at once. An invalid record, or one that may not be read, changes nothing.
    `close` ends its thread."""

    def __init__(self, registry: Registry, flow: str, tell: Callable[[str], None] = tell) -> None:
        self._now = FlowLimits()
        self._followed = Followed(registry, "limits", _LIMITS_READ_S, tell)
        self._followed.add("limits stay as they were", (LIMIT(flow), SHARE(flow), HELD_BACK(flow)), self._take)

    def __call__(self) -> FlowLimits:
        """The limits that apply now."""
        return self._now

    def close(self) -> None:
        """Stop watching."""
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
    """The limits in a record. Invalid numbers and unknown keys give no limit."""
    return FlowLimits(RateLimit(record.rows_per_s, record.bytes_per_s), _paces(record.sources), _paces(record.edges))


def share_of(record: Share) -> RateLimit:
    """A flow's share of a quota as a rate limit."""
    return RateLimit(record.rows_per_s)


def held_of(record: HeldBackSinks) -> dict[str, UpstreamShare]:
    """Sink → the share that its readers leave."""
    return {sink: UpstreamShare(hold.share, hold.why) for sink, hold in record.sinks.items()}


def _paces(given: Mapping[str, Mapping[str, float]]) -> dict[str, RateLimit]:
    return {name: RateLimit(each.get("rows_per_s"), each.get("bytes_per_s")) for name, each in given.items()}


_LOOK_S = 5.0
"""seconds to wait for a watch before checking anyway: a watch is a hint"""


@dataclass(frozen=True, slots=True)
class Orders:
    """A worker's desired state. `wish` is None if the worker is no longer needed: its tier has no desired state, or another worker serves
    it."""

    wish: TierWish | None
    spare: bool = False
    """this worker is the standby: it takes over the tier when the lease is free"""
    why: str = ""
    """if `wish` is None: the reason from the registry"""


class DesiredState:
    """Follows the desired state of one worker. For one thread, besides the watch. An invalid record changes nothing: the previous desired
    state stays."""

    def __init__(self, registry: Registry, id_: RunId) -> None:
        self._registry = registry
        self._number = id_.number
        self._run, self._spare, self._wish = RUN(id_.flow, id_.tier), SPARE(id_.flow, id_.tier), WANTED(id_.flow, id_.tier)
        self._changed = threading.Event()
        self._changed.set()
        self._watches = [
            # the lease too, so that a worker that waits for it need not poll
            registry.watch(path, self._changed.set)
            for path in (self._wish.path, self._run.path, self._spare.path, LEASE(id_.flow, id_.tier).path)
        ]
        self._last: Orders | None = None

    def read(self) -> Orders:
        """The desired state. While the registry does not answer, the last one. Raises Unreachable if there was none yet."""
        if self._changed.is_set() or self._last is None:
            self._changed.clear()
            try:
                self._last = self._read()
            except Unreachable:
                self._changed.set()
                if self._last is None:
                    raise
        return self._last

    def wait(self, timeout_s: float = _LOOK_S) -> None:
        """Wait until the desired state may have changed, or `timeout_s` seconds have passed."""
        if not self._changed.wait(timeout_s):
            self._changed.set()

    def close(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.close()

    def _read(self) -> Orders:
        run, spare, wish = (read_record(self._registry, spot) for spot in (self._run, self._spare, self._wish))
        if self._last is not None and any(isinstance(found, Damaged | Newer) for found in (run, spare, wish)):
            return self._last
        wanted, nothing = (wish.record, "") if isinstance(wish, Stored) else (None, "its tier has no desired state")
        if self._is_mine(run):
            return Orders(wanted, why=nothing)
        # a standby with a lower number than the run is outdated
        newer = isinstance(run, Stored) and isinstance(spare, Stored) and run.record.number > spare.record.number
        if self._is_mine(spare) and not newer:
            return Orders(wanted, spare=True, why=nothing)
        return Orders(None, why=self._said_of(run))

    def _said_of(self, run: Stored[Run] | Damaged | Newer | None) -> str:
        if not isinstance(run, Stored):
            return "the registry names no worker of its tier"
        by = f"its tier's worker is number {run.record.number}"
        return by if run.record.number != self._number else f"its end was recorded{f': {run.record.cause}' if run.record.cause else ''}"

    def _is_mine(self, found: Stored[Run] | Damaged | Newer | None) -> bool:
        return isinstance(found, Stored) and found.record.number == self._number and found.record.ended_at is None
