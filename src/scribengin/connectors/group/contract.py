"""The requirements for members of a group, beyond those for sinks and for sources of a channel, and the interface between a group's sink
and the engine.

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
"""errors of a place that cannot accept writes now; any other error means that data is at risk, or a mistake"""


class MemberSink(StagingSink, Protocol):
    """A sink that can be a member: it supports gaps in the numbers of its Batches. It may also be an `OfferingSink`, a `ComparingSink`, a
    `CountingSink` or a `BufferingSink`."""

    def check_ready(self, *, claimed: bool) -> None:
        """Check that the place would accept a Batch now. Runs in the driver before each Batch, and takes at most seconds. Raises one of
        DOWN.

        Args:
            claimed: The flow's claim must exist there; otherwise it is another place than before, such as a disk that is not mounted.
        """

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """Like `SinkConnector.audit`.

        Args:
            lineage: The lineage.
            decided: The decisions for this member, in order.
            since: The Batch from which on `decided` contains all Batches of this member; None: as in `SinkConnector`.
        """


class MemberSource(SourceConnector, Protocol):
    """A channel's source that can be a member."""

    def check_ready(self, *, begun: bool) -> None:
        """Check that the place is available now. Raises Unreachable or EnvironmentFault.

        Args:
            begun: Rows were read there before.
        """


class FinishingReader(SourceReader, Protocol):
    """A reader that may return less than the existing data even with `final`."""

    def finish(self) -> None:
        """Called at the end of a run with `final`: raises Unreachable if not all of the existing data was returned."""


class ChoosingSink(ChainedSink, Protocol):
    """The sink of a group. `behind` names the member of a Batch: `{"member", "cost", "why", "behind": the member's own value}`."""

    turns: Callable[[], MemberOverrides]
    """returns the settings of the group that operators change while it runs; read before each Batch"""

    def members(self) -> tuple[MemberSeen, ...]:
        """The state of each member; thread-safe."""

    def chosen(self, behind: Mapping[str, Any]) -> StagingSink:
        """The sink that stages the Batch."""

    def blame(self, behind: Mapping[str, Any], error: Exception) -> None:
        """A Batch for the member failed with `error`: raise Unreachable, caused by it, if the member does not answer any more."""


def finishes(reader: SourceReader) -> TypeGuard[FinishingReader]:
    """True for a FinishingReader."""
    return hasattr(reader, "finish")


def makes_streams(sink: SinkConnector) -> TypeGuard[StagingSink]:
    """False for a ChoosingSink."""
    return hasattr(sink, "stream")


def chooses(sink: SinkConnector) -> TypeGuard[ChoosingSink]:
    """True for a ChoosingSink."""
    return hasattr(sink, "chosen")
