"""Which member of a group is taken: of those that answer the one with the lowest cost, equal ones in turn.

One that failed is left out for a while, which doubles with every failure; then it is *half-open*: it is taken once, and what becomes of
that says whether it is healthy. No I/O, no clock: the caller hands in the time, in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of what workers tell
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

FIRST_S = 1.0
MOST_S = 60.0


@dataclass(frozen=True, slots=True)
class MemberOverrides:
    """What somebody says of a group while it runs: member → its cost from now on; member → why it gets no Batch from now on."""

    costs: Mapping[str, float] = field(default_factory=dict)
    out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member as its sink sees it. `failed`: it does not answer, is left out, and tried again in `again_s` seconds; `out`: somebody took
    it out. `reason` says why. `batches` are those that went there in this process."""

    member: str
    cost: float
    state: Literal["healthy", "failed", "out"] = "healthy"
    reason: str = ""
    again_s: float = 0.0
    batches: int = 0
    group: str = ""
    """its name in the flow file, where that is known"""
    place: str = ""
    """where it is, for people, where that is known: `server postgresql://db1/shop`"""


@dataclass(frozen=True, slots=True)
class Choice:
    """`probe`: the member is half-open; `why`: for people, and for the record."""

    member: str
    cost: float
    why: str
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Out:
    """A member that is left out for another `again_s` seconds; 0 where it may be tried."""

    member: str
    reason: str
    again_s: float


@dataclass(slots=True)
class _State:
    cost: float
    reason: str = ""
    """why it failed; empty while it is healthy"""
    wait_s: float = 0.0
    until_s: float = 0.0
    probed: bool = False
    """half-open, and taken"""
    out: str = ""
    """why it was taken out; empty while it has its turn"""


class GroupHealth:
    """Of the members of one group, in the file's order. `costs`: member → cost."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._states = {member: _State(cost) for member, cost in costs.items()}
        self._costs = dict(costs)
        self._last = ""

    def heed(self, turns: MemberOverrides) -> None:
        """From now on it is so. Costs that are none, and members that there are not, are passed over; where all are taken out, none is."""
        for member, state in self._states.items():
            cost = turns.costs.get(member, 0.0)
            state.cost = cost if isfinite(cost) and cost > 0 else self._costs[member]
        whole = all(member in turns.out for member in self._states)
        for member, state in self._states.items():
            state.out = "" if whole or member not in turns.out else turns.out[member] or "somebody took it out"

    def choose(self, now_s: float) -> Choice | None:
        """The member for what comes next; None where all are left out. Of a probe the outcome must be told, or it is offered again
        only after as long a while as before."""
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
        """True for a healthy one, and for a half-open one that nobody is trying."""
        state = self._states[member]
        return not state.reason or now_s >= state.until_s

    def is_healthy(self, member: str) -> bool:
        """False from a failure on until a success."""
        return not self._states[member].reason

    def cost(self, member: str) -> float:
        """What it costs now; 0 of one that there is not."""
        return self._states[member].cost if member in self._states else 0.0

    def has_turn(self, member: str) -> bool:
        """False of one that was taken out, or is not there."""
        return member in self._states and not self._states[member].out

    def seen(self, now_s: float, batches: Mapping[str, int]) -> tuple[MemberSeen, ...]:
        """How each member stands."""
        found = []
        for member, state in self._states.items():
            again_s = round(max(0.0, state.until_s - now_s), 1) if state.reason else 0.0
            how: Literal["healthy", "failed", "out"] = "out" if state.out else "failed" if state.reason else "healthy"
            found.append(MemberSeen(member, state.cost, how, state.out or state.reason, again_s, batches.get(member, 0)))
        return tuple(found)

    def succeeded(self, member: str) -> None:
        """It is healthy."""
        state = self._states[member]
        state.reason, state.wait_s, state.until_s, state.probed = "", 0.0, 0.0, False

    def failed(self, member: str, now_s: float, reason: str) -> None:
        """Leave it out: for FIRST_S, for twice as long as before after a probe, for at most MOST_S. One that is left out already stays so
        for no longer."""
        state = self._states[member]
        if not state.reason or state.probed or now_s >= state.until_s:
            state.wait_s = min(2 * state.wait_s, MOST_S) if state.wait_s else FIRST_S
            state.until_s = now_s + state.wait_s
        state.reason, state.probed = reason or "it failed", False

    def took(self, member: str) -> None:
        """It was taken last, in an earlier life of this process: another one is next in turn."""
        if member in self._states:
            self._last = member

    def out(self, now_s: float) -> list[Out]:
        """The members that are not healthy."""
        return [Out(member, state.reason, max(0.0, state.until_s - now_s)) for member, state in self._states.items() if state.reason]

    def _in_turn(self) -> list[str]:
        """All members, those behind the last one first."""
        members = list(self._states)
        start = members.index(self._last) + 1 if self._last in self._states else 0
        return members[start:] + members[:start]

    def _why(self, member: str, now_s: float) -> str:
        state = self._states[member]
        if len(self._states) == 1:
            return "the only member"
        cheaper = [other for other, each in self._states.items() if each.cost < state.cost]
        if state.reason:
            return f"tried again after {state.wait_s:g} s"
        if cheaper:
            return "; ".join(f"{other} is out: {self._states[other].out or self._states[other].reason}" for other in cheaper)
        equal = [other for other, each in self._states.items() if each.cost == state.cost]
        if len(equal) == 1:
            return "the lowest cost"
        healthy = sum(self.is_open(other, now_s) and not self._states[other].out for other in equal)
        return f"its turn: {healthy} of {len(equal)} of cost {state.cost:g} are healthy"
