"""Other control planes whose flows are connected to those here, and the last reports of their masters on these flows."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations of records

from scribengin.registry.flow_ends import ExternalPlace, Outside, Waters
from scribengin.registry.record_io import Record
from scribengin.registry.records import FlowState, Goal  # noqa: TC001  the same


class Peer(Record):
    """Another control plane, with a registry and states of its own."""

    masters: tuple[str, ...]
    """the addresses of their APIs: `https://HOST:PORT`"""
    aliases: Mapping[str, str] = {}
    """server as named by flows there → as named by flows here: a server may have one address for each network"""
    by: str = ""
    at: str = ""


class PeerState(Record):
    """Whether a peer's masters answer, and since when."""

    answered_at: str = ""
    """the time of the last answer; empty: none yet"""
    silent_since: str = ""
    """the time since which it has not answered; empty: it answers"""
    why: str = ""
    """why it does not answer"""


class RemoteSource(Record):
    """A source of a peer's flow. Times are in seconds since the epoch, by the clock of the master here."""

    reads: tuple[ExternalPlace, ...] = ()
    waters: Waters | None = None
    looked_at: float | None = None
    """when the backlog was measured; None: the peer has never reported it"""
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    oldest_s: float | None = None
    reckoned: bool = False
    """the peer is silent: the backlog is its last report plus what flows here have written since; a new leader starts with it"""
    through: float | None = None
    """all entries that existed at this time are acknowledged by all downstream flows"""
    unknown: str = ""
    """the FLOW.SOURCE that is the reason, if `through` is unknown"""


class RemoteFlow(Record):
    """A peer's flow that is connected to one here, as the peer last reported it. The record stays while the peer is silent."""

    state: FlowState = "created"
    wanted: Goal = "running"
    version: int = 0
    since: str = ""
    reason: str = ""
    next: str = ""
    sources: Mapping[str, RemoteSource] = {}
    writes: Mapping[str, tuple[ExternalPlace, ...]] = {}
    """sink → places"""

    @property
    def waters(self) -> Mapping[str, Waters]:
        """Source → its thresholds, for sources that have some."""
        return {id_: source.waters for id_, source in self.sources.items() if source.waters is not None}

    @property
    def outside(self) -> Outside:
        """The places where the flow reads and writes."""
        return Outside(reads={id_: source.reads for id_, source in self.sources.items()}, writes=self.writes, waters=self.waters)


def remote_name(peer: str, flow: str) -> str:
    """The name of a peer's flow here. No flow of this registry has such a name."""
    return f"{peer}/{flow}"
