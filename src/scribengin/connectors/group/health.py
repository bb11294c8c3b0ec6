"""Selects a member of a group: among the available members one with the lowest cost, equal ones in rotation.

A failed member is left out for a while, which doubles with every failure; then it is *half-open*: it is used once, and the result decides
whether it is healthy. No I/O, no clock: the caller passes the time, in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (msgspec reads the annotations of workers' reports)
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

FIRST_S = 1.0
MOST_S = 60.0


@dataclass(frozen=True, slots=True)
class MemberOverrides:
    """The settings of a group that operators change while it runs. `costs`: member → its new cost; `out`: member → the reason for which it
    is disabled."""

    costs: Mapping[str, float] = field(default_factory=dict)
    out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """The state of a member as its sink reports it. `state`: `failed`: it does not answer, is left out, and is retried in `again_s`
    seconds; `out`: an operator disabled it. `reason` explains either. `batches` is the number of Batches that this process sent there."""

    member: str
    cost: float
    state: Literal["healthy", "failed", "out"] = "healthy"
    reason: str = ""
    again_s: float = 0.0
    batches: int = 0
    group: str = ""
    """its name in the flow file, if known"""
    place: str = ""
    """its place, for people, if known: `server postgresql://db1/shop`"""


@dataclass(frozen=True, slots=True)
class Choice:
    """A selected member. `probe`: the member is half-open; `why`: the reason, for people and for the decision record."""

    member: str
    cost: float
    why: str
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Out:
    """A member that is left out for another `again_s` seconds; 0 if it may be tried now."""

    member: str
    reason: str
    again_s: float


@dataclass(slots=True)
class _State:
    cost: float
    reason: str = ""
    """the reason of its failure; empty while it is healthy"""
    wait_s: float = 0.0
    until_s: float = 0.0
    probed: bool = False
    """True while the half-open member is in use"""
    out: str = ""
    """the reason for which it is disabled; empty while it is enabled"""


class GroupHealth:
    """The health of the members of one group, in the order of the file. `costs`: member → cost."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._states = {member: _State(cost) for member, cost in costs.items()}
        self._costs = dict(costs)
        self._last = ""

    def heed(self, turns: MemberOverrides) -> None:
        """Apply the operators' settings. Invalid costs and unknown members are ignored; if all members are disabled, none is."""
        for member, state in self._states.items():
            cost = turns.costs.get(member, 0.0)
            state.cost = cost if isfinite(cost) and cost > 0 else self._costs[member]
        whole = all(member in turns.out for member in self._states)
        for member, state in self._states.items():
            state.out = "" if whole or member not in turns.out else turns.out[member] or "it was disabled by an operator"

    def choose(self, now_s: float) -> Choice | None:
        """Select the member for the next Batch; None if all are left out. The result of a probe must be reported: otherwise the member is
        offered again only after the same time as before."""
        order = self._in_turn()
        open_ = [member for member in order if not self._states[member].out and self.is_open(member, now_s)]
        if not open_:
            return None
        member = min(open_, key=lambda each: self._states[each].cost)  # the first of equal ones
        state = self._states[member]
        probe = bool(state.reason)
        choice = Choice(member, state.cost, self._why(member, now_s), probe)
        if probe:
            state.probed, state.until_s = True, now_s + state.wait_s
        self._last = member
        return choice

    def is_open(self, member: str, now_s: float) -> bool:
        """True for a healthy member, and for a half-open one that is not being probed."""
        state = self._states[member]
        return not state.reason or now_s >= state.until_s

    def is_healthy(self, member: str) -> bool:
        """True unless the member has failed since its last success."""
        return not self._states[member].reason

    def cost(self, member: str) -> float:
        """The member's current cost; 0 for an unknown member."""
        return self._states[member].cost if member in self._states else 0.0

    def has_turn(self, member: str) -> bool:
        """True for a known member that is not disabled."""
        return member in self._states and not self._states[member].out

    def seen(self, now_s: float, batches: Mapping[str, int]) -> tuple[MemberSeen, ...]:
        """The state of each member."""
        found = []
        for member, state in self._states.items():
            again_s = round(max(0.0, state.until_s - now_s), 1) if state.reason else 0.0
            how: Literal["healthy", "failed", "out"] = "out" if state.out else "failed" if state.reason else "healthy"
            found.append(MemberSeen(member, state.cost, how, state.out or state.reason, again_s, batches.get(member, 0)))
        return tuple(found)

    def succeeded(self, member: str) -> None:
        """Mark the member as healthy."""
        state = self._states[member]
        state.reason, state.wait_s, state.until_s, state.probed = "", 0.0, 0.0, False

    def failed(self, member: str, now_s: float, reason: str) -> None:
        """Leave the member out: for FIRST_S, after a failed probe for twice as long as before, at most for MOST_S. The time of a member
        that is already left out is not extended.

        Args:
            member: The member.
            now_s: The current time, in seconds.
            reason: The reason of the failure, for people.
        """
        state = self._states[member]
        if not state.reason or state.probed or now_s >= state.until_s:
            state.wait_s = min(2 * state.wait_s, MOST_S) if state.wait_s else FIRST_S
            state.until_s = now_s + state.wait_s
        state.reason, state.probed = reason or "it failed", False

    def took(self, member: str) -> None:
        """Record that the member was the last one used before this process started: the rotation continues after it."""
        if member in self._states:
            self._last = member

    def out(self, now_s: float) -> list[Out]:
        """The members that are not healthy."""
        return [Out(member, state.reason, max(0.0, state.until_s - now_s)) for member, state in self._states.items() if state.reason]

    def _in_turn(self) -> list[str]:
        """All members, starting after the last used one."""
        members = list(self._states)
        start = members.index(self._last) + 1 if self._last in self._states else 0
        return members[start:] + members[:start]

    def _why(self, member: str, now_s: float) -> str:
        state = self._states[member]
        if len(self._states) == 1:
            return "the only member"
        cheaper = [other for other, each in self._states.items() if each.cost < state.cost]
        if state.reason:
            return f"retried after {state.wait_s:g} s"
        if cheaper:
            return "; ".join(f"{other} is unavailable: {self._states[other].out or self._states[other].reason}" for other in cheaper)
        equal = [other for other, each in self._states.items() if each.cost == state.cost]
        if len(equal) == 1:
            return "the lowest cost"
        healthy = sum(self.is_open(other, now_s) and not self._states[other].out for other in equal)
        return f"next in rotation: {healthy} of {len(equal)} members with cost {state.cost:g} are healthy"
