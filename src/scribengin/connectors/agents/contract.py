"""The channel behind gateways: what both its ends share. Gateways write it through a `ChannelWriter`; a source `type: agents` reads it.

A channel holds *runs*: frames of one incarnation of one agent, with numbers that follow one another. An index names the runs in the order
in which they became durable. A gateway writes the frames, then their index entry, and answers only after both are durable.

A run may be stored twice, by two gateways, if an agent fails over before it was answered. So readers compare numbers: `RunPositions` takes
each record once, and waits for a run whose predecessor is not there yet. Nothing else decides what is read, and gateways need no lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from scribengin.wire.frames import BadFrame, find_frames, payload_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

AgentKey = tuple[str, str]
"""(agent, incarnation)"""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Frames of one agent that a gateway has received and checked: whole ones, whose numbers follow one another from `sequence` on.
    `committed` is the number up to which the agent knows its records to be committed."""

    agent: str
    incarnation: str
    committed: int
    frames: bytes
    sequence: int
    next: int


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of frames in a channel. `place` is where its bytes are, in terms of the kind of channel."""

    agent: str
    incarnation: str
    sequence: int
    next: int
    committed: int
    """what the agent knew to be committed when it sent the run"""
    bytes: int
    time_ms: int
    """when it was stored, in milliseconds since 1970, by the gateway's clock"""
    lost: int
    """the number of records that exist no more; `why` is the first reason"""
    why: str
    gateway: str
    place: tuple[Any, ...]

    @property
    def key(self) -> AgentKey:
        """Whose records they are."""
        return self.agent, self.incarnation

    def as_json(self) -> list[Any]:
        """The form in an index."""
        lost = [self.lost, self.why] if self.lost else [0, ""]
        return [
            self.agent,
            self.incarnation,
            self.sequence,
            self.next,
            self.committed,
            self.bytes,
            self.time_ms,
            *lost,
            self.gateway,
            *self.place,
        ]

    @staticmethod
    def from_json(form: Sequence[Any]) -> StoredRun:
        """The run of the form that `as_json` made."""
        agent, incarnation, sequence, next_, committed, size, time_ms, lost, why, gateway = form[:10]
        return StoredRun(agent, incarnation, sequence, next_, committed, size, time_ms, lost, why, gateway, tuple(form[10:]))

    @staticmethod
    def of(arrival: Arrival, time_ms: int, gateway: str, place: tuple[Any, ...]) -> StoredRun:
        """The run of an arrival that a gateway has stored at `place`."""
        lost, why = 0, ""
        for found in find_frames(arrival.frames):
            if found.head is not None and found.head.kind == "lost":
                lost += found.head.count
                why = why or _reason(arrival.frames, found)
        numbers = (arrival.sequence, arrival.next, arrival.committed, len(arrival.frames), time_ms)
        return StoredRun(arrival.agent, arrival.incarnation, *numbers, lost, why, gateway, place)


def _reason(frames: bytes, found: Any) -> str:
    try:
        return payload_of(frames, found).decode(errors="replace")[:200]
    except BadFrame as error:
        return str(error)


class ChannelWriter(Protocol):
    """The writing end of one lane's channel, in one gateway. Used by one thread."""

    def append(self, arrivals: Sequence[Arrival]) -> None:
        """Store the arrivals; they are durable when it returns. Those of one agent are in order.

        Raises:
            Unreachable: The channel cannot be written now. Some of the arrivals may be stored.
        """

    def stored(self) -> Mapping[AgentKey, int]:
        """The number of the next record of each agent that the channel holds, as far as it is known here: what other gateways have stored
        too. Reads what is new. Raises Unreachable."""

    def committed(self) -> Mapping[AgentKey, int]:
        """The number up to which the last tiers have committed each agent's records. Reads what is new. Raises Unreachable."""

    def waiting_bytes(self) -> int:
        """The bytes that are stored and not committed, as of the last `stored` and `committed`."""

    def close(self) -> None:
        """Release files and connections. Never raises."""


class CommitReport(msgspec.Struct):
    """What a reading tier writes to the channel: agent → incarnation → the number up to which its records are committed."""

    reader: str
    """`FLOW.TIER`"""
    committed: dict[str, dict[str, int]] = {}


def least_committed(reports: Iterable[CommitReport]) -> dict[AgentKey, int]:
    """What all readers have committed: for each agent the least of them; nothing for an agent that one of them has not met."""
    found: dict[AgentKey, int] | None = None
    for report in reports:
        own = {(agent, incarnation): next_ for agent, each in report.committed.items() for incarnation, next_ in each.items()}
        found = own if found is None else {key: min(found[key], own[key]) for key in found.keys() & own.keys()}
    return found or {}


class RunPositions:
    """Which records of each agent a reader has taken: the number of the next one. A value of it is part of the reader's log.

    >>> positions = RunPositions()
    >>> positions.from_number("web1", "a", 0, committed=0), positions.from_number("web1", "a", 5, committed=0)
    (0, None)
    """

    def __init__(self) -> None:
        self.next: dict[AgentKey, int] = {}

    def from_number(self, agent: str, incarnation: str, sequence: int, *, committed: int) -> int | None:
        """The number from which on a run that begins at `sequence` is to be read: its records below it were taken. None if records before
        it are missing, unless the agent says that they are committed."""
        taken = self.next.get((agent, incarnation), 0)
        if sequence > max(taken, committed):
            return None
        return max(taken, sequence)

    def restore(self, place: Mapping[str, Any]) -> None:
        """Apply what the place of a logged stream says was taken."""
        for agent, incarnation, next_ in place.get("taken", ()):
            key = (agent, incarnation)
            self.next[key] = max(next_, self.next.get(key, 0))

    def take(self, run: StoredRun) -> None:
        """Record that a run was taken."""
        self.next[run.key] = max(self.next.get(run.key, 0), run.next)

    def is_taken(self, run: StoredRun) -> bool:
        """True if all records of a run were taken before."""
        return run.next <= self.next.get(run.key, 0)


class WaitingBytes:
    """The bytes of runs that are stored and not committed. A run that is stored twice counts once."""

    def __init__(self) -> None:
        self.stored: dict[AgentKey, int] = {}
        self._open: dict[AgentKey, list[tuple[int, int]]] = {}
        self.bytes = 0

    def put(self, run: StoredRun) -> None:
        """Count a stored run."""
        if run.next <= self.stored.get(run.key, 0):
            return
        self.stored[run.key] = run.next
        self._open.setdefault(run.key, []).append((run.next, run.bytes))
        self.bytes += run.bytes

    def settle(self, committed: Mapping[AgentKey, int]) -> None:
        """Stop counting runs whose records are all committed."""
        for key, through in committed.items():
            left = self._open.get(key)
            if left and left[0][0] <= through:
                kept = [each for each in left if each[0] > through]
                self.bytes -= sum(size for next_, size in left if next_ <= through)
                if kept:
                    self._open[key] = kept
                else:
                    del self._open[key]
