"""Other control planes whose flows are connected to those here, and the last reports of their masters on these flows."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records

from scribengin.registry.flow_ends import ExternalPlace, Outside, Waters
from scribengin.registry.record_io import Record
from scribengin.registry.records import FlowState, Goal  # noqa: TC001  the same


class Peer(Record):
    """Another control plane, with a registry and states of its own."""

    masters: tuple[str, ...]
    """the addresses of their APIs: `https://HOST:PORT`"""
    aliases: Mapping[str, str] = {}
    """server as named by flows there → as named by flows here: a server may have an address for each network"""
    by: str = ""
    at: str = ""


class PeerState(Record):
    """Whether a peer's masters answer."""

    answered_at: str = ""
    """the last answer; empty: there was none yet"""
    silent_since: str = ""
    """since when it has not answered; empty: it answers"""
    why: str = ""
    """why it does not answer"""


class RemoteSource(Record):
    """A source of a peer's flow; moments are in seconds since 1970, by the clock of the master here."""

    reads: tuple[ExternalPlace, ...] = ()
    waters: Waters | None = None
    looked_at: float | None = None
    """when the backlog was reported; None: the peer has never reported it"""
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    oldest_s: float | None = None
    reckoned: bool = False
    """the peer is silent: this is its last report with what flows here have written since; for a leader that has not seen them write"""
    through: float | None = None
    """all that was there at this moment is acknowledged by all downstream flows"""
    unknown: str = ""
    """the FLOW.SOURCE that is the reason, if `through` is unknown"""


class RemoteFlow(Record):
    """A peer's flow that is connected to one here, as the peer last reported it. If the peer falls silent it stays."""

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
        """Source → its thresholds, of those that have some."""
        return {id_: source.waters for id_, source in self.sources.items() if source.waters is not None}

    @property
    def outside(self) -> Outside:
        """The places where it reads and writes."""
        return Outside(reads={id_: source.reads for id_, source in self.sources.items()}, writes=self.writes, waters=self.waters)


def remote_name(peer: str, flow: str) -> str:
    """The name of a peer's flow here; no flow of this registry has such a name."""
    return f"{peer}/{flow}"
