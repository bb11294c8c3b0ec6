"""What a sink, or the source of a channel, must additionally support to be a member of a group, and the interface of a group's sink for the
engine.

A Batch's member is stored in its decision record, and never changes: the Batch is published there and nowhere else. So the sink of a group
names the member of a Batch *before* the Batch runs (`ChainedSink.behind`), and the executors stage with that member's own sink: staged data
need not fit another member, and executors need not know about groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from scribengin.connectors.contract import ChainedSink, SinkConnector, SourceConnector, SourceReader, StagingSink
from scribengin.core.errors import EnvironmentFault, SinkError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scribengin.connectors.contract import Decided, Published
    from scribengin.connectors.group.health import MemberOverrides, MemberSeen

DOWN = (Unreachable, EnvironmentFault, SinkError, OSError)
"""errors of a place that cannot accept writes now; any other error means data at risk, or a mistake"""


class MemberSink(StagingSink, Protocol):
    """A sink that can be a member: it supports gaps in the numbers of its Batches. It may also be an `OfferingSink`, a `ComparingSink`, a
    `CountingSink` or a `BufferingSink`."""

    def check_ready(self, *, claimed: bool) -> None:
        """Driver side, before each Batch: raises one of DOWN if the place would not accept one now. Takes at most seconds. `claimed`: this
        flow's claim must exist there; otherwise the place is not the same as before (a disk that is not mounted)."""

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """Like `SinkConnector.audit`. `since`: the Batch from which on `decided` names all Batches of this member; None as in
        `SinkConnector`."""


class MemberSource(SourceConnector, Protocol):
    """A channel's source that can be a member."""

    def check_ready(self, *, begun: bool) -> None:
        """Raises Unreachable or EnvironmentFault if the place is unavailable now. `begun`: rows were read there before."""


class FinishingReader(SourceReader, Protocol):
    """A reader that, with `final`, may find less than the existing data."""

    def finish(self) -> None:
        """All that it found is complete: raises Unreachable if that is not all of the existing data."""


class ChoosingSink(ChainedSink, Protocol):
    """The sink of a group. `behind` names the member of a Batch: `{"member", "cost", "why", "behind": the member's own value}`."""

    turns: Callable[[], MemberOverrides]
    """settings of the group that operators change while it runs, read before each Batch"""

    def members(self) -> tuple[MemberSeen, ...]:
        """The state of each member; thread-safe."""

    def chosen(self, behind: Mapping[str, Any]) -> StagingSink:
        """The sink with which the Batch is staged."""

    def blame(self, behind: Mapping[str, Any], error: Exception) -> None:
        """A Batch for the member failed with `error`: raises Unreachable, from it, if the member does not answer any more."""


def finishes(reader: SourceReader) -> TypeGuard[FinishingReader]:
    """True for a FinishingReader."""
    return hasattr(reader, "finish")


def makes_streams(sink: SinkConnector) -> TypeGuard[StagingSink]:
    """False for a ChoosingSink."""
    return hasattr(sink, "stream")


def chooses(sink: SinkConnector) -> TypeGuard[ChoosingSink]:
    """True for a ChoosingSink."""
    return hasattr(sink, "chosen")
