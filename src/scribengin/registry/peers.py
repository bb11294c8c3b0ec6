"""Other control planes whose flows meet those here, and what their masters said of these flows last."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records

from scribengin.registry.kinds import FlowState, Goal  # noqa: TC001  the same
from scribengin.registry.outside import ExternalPlace, Outside, Waters
from scribengin.registry.records import Record


class Peer(Record):
    """Another control plane, with a registry and states of its own."""

    masters: tuple[str, ...]
    """where their APIs answer: `https://HOST:PORT`"""
    aliases: Mapping[str, str] = {}
    """server as flows there name it → as flows here name it: a server may have an address for each network"""
    by: str = ""
    at: str = ""


class PeerState(Record):
    """Whether a peer's masters answer."""

    answered_at: str = ""
    """the last answer; empty: none has come yet"""
    silent_since: str = ""
    """empty: it answers"""
    why: str = ""
    """why there is no answer"""


class RemoteSource(Record):
    """A source of a peer's flow; moments are in seconds since 1970, by the clock of the master here."""

    reads: tuple[ExternalPlace, ...] = ()
    waters: Waters | None = None
    looked_at: float | None = None
    """when this waited; None: the peer has never said it"""
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    oldest_s: float | None = None
    reckoned: bool = False
    """the peer is silent: this is its last word with what flows here have written since; for a leader that has not seen them write"""
    through: float | None = None
    """all that was there at this moment is acknowledged by all flows behind it"""
    unknown: str = ""
    """the FLOW.SOURCE that is the reason, where `through` is not known"""


class RemoteFlow(Record):
    """A peer's flow that meets one here, as the peer said last. Where the peer falls silent it stays."""

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
        """Source → how much may wait there, of those that say it."""
        return {id_: source.waters for id_, source in self.sources.items() if source.waters is not None}

    @property
    def outside(self) -> Outside:
        """Where it reads and writes."""
        return Outside(reads={id_: source.reads for id_, source in self.sources.items()}, writes=self.writes, waters=self.waters)


def remote_name(peer: str, flow: str) -> str:
    """What a peer's flow is called here; no flow of this registry has such a name."""
    return f"{peer}/{flow}"
