"""The values of acknowledgements: what a flow's Queries and channels are, and how they stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.state.checksums import Mismatch
    from scribengin.state.folder import QueryFolder


class QueryKey(NamedTuple):
    """A Query of a flow."""

    tier: str
    query: str


class QueryReading(NamedTuple):
    """A Query that reads a channel, as its source of that id."""

    query: QueryKey
    source: str

    def __str__(self) -> str:
        return f"{self.query.tier}/{self.query.query}/{self.source}"


@dataclass(frozen=True, slots=True)
class ChannelLink:
    """A channel: the sink `channel` of `writer`. Where it does not hold, its writer waits for nobody behind it."""

    channel: str
    writer: QueryKey
    readers: tuple[QueryReading, ...]
    kind: Literal["kafka", "folder"]
    holds: bool = True
    drops: bool = False
    """whether rows may be dropped before the channel takes them"""


@dataclass(frozen=True, slots=True)
class QueryTopology:
    """The Queries of a flow, feeders first, each with its folder, and its channels. A Query in `by_state` acknowledges rows only when they
    have left its state."""

    queries: Mapping[QueryKey, QueryFolder]
    links: tuple[ChannelLink, ...] = ()
    by_state: frozenset[QueryKey] = frozenset()
    left: tuple[QueryFolder, ...] = ()
    """Queries that are no part of the flow any more: they may have fed a channel before others did"""


@dataclass(frozen=True, slots=True)
class QueryStanding:
    """Batch numbers, -1 for none; positions (source → entries that are behind) of all decided Batches and of the acknowledged ones."""

    lineage: str = ""
    decided: int = -1
    decided_at: str = ""
    published: int = -1
    acknowledged: int = -1
    read: Mapping[str, int] = field(default_factory=dict)
    released: Mapping[str, int] = field(default_factory=dict)
    acknowledged_at: str = ""
    """when the newest acknowledged Batch was decided"""


@dataclass(frozen=True, slots=True)
class ChannelBacklog:
    """What lies in a channel and is not yet taken; `oldest_at` says when the oldest Batch of it was decided, empty where nothing waits."""

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    oldest_at: str = ""

    def __add__(self, other: ChannelBacklog) -> ChannelBacklog:
        oldest = min((each for each in (self.oldest_at, other.oldest_at) if each), default="")
        return ChannelBacklog(self.rows + other.rows, self.bytes + other.bytes, self.batches + other.batches, oldest)


NOTHING = ChannelBacklog()


@dataclass(frozen=True, slots=True)
class LinkStanding:
    """Of one reader of a channel. `taken` and `committed`: the newest Batch of the writer that the reader has decided on, and that the end
    of the chain has committed, with all before. What waits is not yet taken; `open_rows` are not yet committed. All of it is of the
    writer's present lineage, but for `earlier`, what waits of those before it, and `earlier_open`, what of them is not yet committed."""

    taken: int
    committed: int
    waiting_rows: int
    waiting_bytes: int
    waiting_batches: int
    oldest_at: str
    open_rows: int
    put_rows: int = 0
    """that were ever put in, as far as this process has met them"""
    earlier: ChannelBacklog = NOTHING
    earlier_open: ChannelBacklog | None = None
    """None where nobody could tell yet"""

    @property
    def waiting(self) -> ChannelBacklog:
        """All that the reader has before it."""
        return ChannelBacklog(self.waiting_rows, self.waiting_bytes, self.waiting_batches, self.oldest_at) + self.earlier


@dataclass(frozen=True, slots=True)
class FlowAcks:
    """How a flow stands; a reader by the channel's id and itself."""

    queries: Mapping[QueryKey, QueryStanding]
    links: Mapping[tuple[str, QueryReading], LinkStanding]
    mismatches: tuple[Mismatch, ...] = ()
    """Batches that did not come out of a channel as they went in, found at this look"""

    def of(self, link: ChannelLink) -> tuple[LinkStanding, ...]:
        """A channel's readers, as far as its writer ever ran."""
        return tuple(self.links[link.channel, reading] for reading in link.readers if (link.channel, reading) in self.links)

    def waiting(self, link: ChannelLink) -> ChannelBacklog:
        """What waits in a channel: of several readers those figures count that are worst."""
        each = [at.waiting for at in self.of(link)]
        return ChannelBacklog(
            max((at.rows for at in each), default=0),
            max((at.bytes for at in each), default=0),
            max((at.batches for at in each), default=0),
            min((at.oldest_at for at in each if at.oldest_at), default=""),
        )
