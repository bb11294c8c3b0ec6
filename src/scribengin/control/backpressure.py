"""Back-pressure between flows: the share of time in which a flow may work while the backlog of its readers is too large. Pure functions,
like those of `local.channel_backpressure` for channels.

Above `high_water` an upstream flow is throttled, increasingly up to `capacity`; there it is paused, and resumes once the backlog is below
`low_water`. The state of the reader does not matter: the backlog of one that fails, is stopped, has never started or whose host is gone is
measured at the data, and grows by what its upstream flows write. A reader that is no longer needed should be deleted; then it throttles no
flow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.units import show_bytes, show_duration
from scribengin.registry.flow_ends import HeldBackSinks, SinkHold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.control.world import DownstreamReader, FlowSeen, SourceBacklog, World
    from scribengin.registry.flow_ends import SourceLevel, Waters
    from scribengin.registry.peers import RemoteFlow
    from scribengin.registry.records import StatusRecord


_STEP = 0.25
"""share of the range from `high_water` to `capacity`: smaller changes are not written, so that the record is not written every second"""
_ILL = ("failed", "degraded", "recovering", "pausing", "paused", "draining", "stopping", "stopped")
"""states in which a flow reads less than it could"""
_LEAST = 0.05
"""the share below which an upstream flow is paused, not throttled"""


def held_back(world: World, flow: FlowSeen) -> HeldBackSinks:
    """The present throttling of each sink of the flow. Of several readers of a sink, the one with the smallest share counts."""
    sinks: dict[str, SinkHold] = {}
    for reader in world.readers.get(flow.name, ()):
        hold = _hold(world, flow, reader)
        if hold is not None and (reader.sink not in sinks or hold.share < sinks[reader.sink].share):
            sinks[reader.sink] = hold
    return HeldBackSinks(sinks=sinks)


def is_news(before: HeldBackSinks | None, now: HeldBackSinks) -> bool:
    """True if the record must be written: a share or a reader differs. The text on the backlog, which always changes, does not count."""
    return _shares(before) != _shares(now)


def held_text(world: World, now: HeldBackSinks) -> str:
    """The first reason, for people, and which downstream flow has a problem, since when and why; empty if nothing is throttled."""
    holds = sorted(now.sinks.values(), key=lambda each: each.share)
    ill = next((text for hold in holds if (text := _ill_text(world, hold.flow, set()))), "")
    return "" if not holds else f"{holds[0].why}; {ill}" if ill else holds[0].why


def _ill_text(world: World, reader: str, passed: set[str]) -> str:
    """The flow's problem, or that of the first flow that throttles it."""
    if (remote := world.remote.get(reader)) is not None:
        return _remote_ill_text(world, reader, remote)
    flow = world.flows.get(reader)
    if flow is None or reader in passed:
        return ""
    if flow.status is not None and flow.status.state in _ILL:
        return _since_text(reader, flow.status)
    holds = () if flow.held_back is None else flow.held_back.sinks.values()
    return next((text for hold in holds if (text := _ill_text(world, hold.flow, passed | {reader}))), "")


def _remote_ill_text(world: World, name: str, flow: RemoteFlow) -> str:
    """The problem of a peer's flow; what throttles that one is reported by its peer."""
    peer = name.partition("/")[0]
    state = world.peer_states.get(peer)
    if state is not None and state.silent_since:
        return f"peer {peer} has not answered since {state.silent_since}: {state.why}"
    return _since_text(name, flow) if flow.state in _ILL else flow.reason


def _since_text(name: str, status: StatusRecord | RemoteFlow) -> str:
    return f"{name} is {status.state} since {status.since}" + (f": {status.reason}" if status.reason else "")


def _shares(held: HeldBackSinks | None) -> dict[str, tuple[str, str, float]]:
    return {} if held is None else {sink: (hold.flow, hold.source, hold.share) for sink, hold in held.sinks.items()}


def _hold(world: World, flow: FlowSeen, reader: DownstreamReader) -> SinkHold | None:
    before = None if flow.held_back is None else flow.held_back.sinks.get(reader.sink)
    if before is not None and (before.flow, before.source) != (reader.flow, reader.source):
        before = None
    waters = _waters(world, reader)
    if waters is None:
        return before if reader.flow in world.held else None
    there = world.waiting.get((reader.flow, reader.source))
    if there is None:
        return before
    share = _share(there, waters, 1.0 if before is None else before.share)
    if share >= 1.0:
        return None
    if before is not None and before.share == share:
        return before
    return SinkHold(flow=reader.flow, source=reader.source, share=share, why=_why(reader, there, waters, share))


def _waters(world: World, reader: DownstreamReader) -> Waters | None:
    """The thresholds of the reader's source; None if it has none, or the flow is unknown."""
    flow = world.remote.get(reader.flow) or world.flows.get(reader.flow)
    return None if flow is None else flow.waters.get(reader.source)


def _share(there: SourceBacklog, waters: Waters, before: float) -> float:
    """The share that the backlog leaves; 1: no limit. `before`: the present share."""
    over = -1.0
    for now, high, low, full in _measures(there, waters):
        if before == 0.0 and now > low:
            return 0.0
        over = max(over, 1.0 if now >= full else (now - high) / max(full - high, 1e-9))
    if over >= 1.0:
        return 0.0
    if over <= 0.0:
        return 1.0
    if before > 0.0 and abs((1.0 - before) - over) < _STEP:
        return before
    return max(_LEAST, round((1.0 - over) / _STEP) * _STEP)


def _measures(there: SourceBacklog, waters: Waters) -> Iterator[tuple[float, float, float, float]]:
    """(backlog, high, low, capacity) of each measure that has thresholds and a known value."""
    for name in ("rows", "bytes", "age_s"):
        now = getattr(there, name)
        high, low, full = (getattr(level, name) for level in (waters.high, waters.low, waters.capacity))
        if now is not None and high is not None and full is not None:
            yield now, high, 0.0 if low is None else low, full


def _why(reader: DownstreamReader, there: SourceBacklog, waters: Waters, share: float) -> str:
    what = f"{_shown(there.rows, there.bytes, there.age_s)} at {reader.flow}.{reader.source}, which reads {reader.sink}"
    if share == 0.0:
        return f"paused: {what}; resumes below {_level(waters.low)}"
    return f"throttled to {share:.0%}: {what} (throttled from {_level(waters.high)}, paused at {_level(waters.capacity)})"


def _level(level: SourceLevel) -> str:
    parts = [f"{level.rows:,} rows"] if level.rows is not None else []
    parts += [show_bytes(level.bytes)] if level.bytes is not None else []
    parts += [show_duration(level.age_s)] if level.age_s is not None else []
    return " or ".join(parts)


def _shown(rows: int | None, size: int | None, age_s: float | None) -> str:
    parts = [f"{rows:,} rows wait"] if rows is not None else []
    parts += [show_bytes(size) + ("" if parts else " wait")] if size is not None else []
    parts += [f"the oldest for {show_duration(age_s)}"] if age_s else []
    return ", ".join(parts) or "nothing waits"
