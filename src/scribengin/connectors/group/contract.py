"""What a sink, or the source of a channel, has besides to be a member of a group; and what the engine asks of a group's sink.

A Batch's member stands in its decision record, and never changes: it is published there and nowhere else. So the sink of a group says
which member a Batch goes to *before* the Batch runs (`ChainedSink.behind`), and the executors stage with that member's own sink: what is
staged need not fit another one, and no executor needs to know that there is a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from scribengin.connectors.contract import ChainedSink, SinkConnector, SourceConnector, SourceReader, StagingSink
from scribengin.core.errors import EnvironmentFault, ScribenginError, SinkError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scribengin.connectors.contract import Decided, Published
    from scribengin.connectors.group.health import MemberOverrides, MemberSeen

DOWN = (Unreachable, EnvironmentFault, SinkError, OSError)
"""what a place that does not take writes now raises; all else stands for data at risk, or a mistake"""


class MemberSink(StagingSink, Protocol):
    """A sink that can be a member: it goes on where the numbers of its Batches have gaps. It may be an `OfferingSink`, a
    `ComparingSink`, a `CountingSink` or a `KeptSink` too."""

    def look(self, *, claimed: bool) -> None:
        """Driver side, before each Batch: raises one of DOWN where the place would not take one now. Takes seconds at most.
        `claimed`: this flow's claim must stand there; where it does not, the place is another than it was (a disk not mounted)."""

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """As `SinkConnector.audit`. `since`: from which Batch on `decided` names all that went to this member;
        None as in `SinkConnector`."""


class MemberSource(SourceConnector, Protocol):
    """A channel's source that can be a member."""

    def look(self, *, begun: bool) -> None:
        """Raises Unreachable or EnvironmentFault where the place is not there now. `begun`: something was read there before."""


class FinishingReader(SourceReader, Protocol):
    """A reader that may find, `final`, less than what is there."""

    def finish(self) -> None:
        """All that it found is through: raises Unreachable where that is not all that was there."""


class ChoosingSink(ChainedSink, Protocol):
    """The sink of a group. `behind` says which member a Batch goes to: `{"member", "cost", "why", "behind": what that member says}`."""

    turns: Callable[[], MemberOverrides]
    """what somebody says of the group while it runs, asked before each Batch"""

    def members(self) -> tuple[MemberSeen, ...]:
        """How each member stands; may be asked by any thread."""

    def chosen(self, behind: Mapping[str, Any]) -> StagingSink:
        """The sink with which the Batch is staged."""

    def blame(self, behind: Mapping[str, Any], error: Exception) -> None:
        """A Batch that was to go there failed with `error`: raises Unreachable, from it, where the member does not answer any more."""


def finishes(reader: SourceReader) -> TypeGuard[FinishingReader]:
    """True for a FinishingReader."""
    return hasattr(reader, "finish")


def chooses(sink: SinkConnector) -> TypeGuard[ChoosingSink]:
    """True for a ChoosingSink."""
    return hasattr(sink, "chosen")


def said(error: Exception) -> str:
    """What it says, for people; without the remedy, which another one will stand behind."""
    return error.message if isinstance(error, ScribenginError) else str(error)
