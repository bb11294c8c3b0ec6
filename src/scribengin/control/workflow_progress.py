"""The progress of a workflow: up to when all that was there at a flow's sources has reached the ends of all downstream flows.

Within a flow, acknowledgements give it exactly (`state.channel_acks`). Between flows only time relates a Batch of one to an entry of
another. Each worker records for its sources moments T, each with the moment U when all that was there at T was seen acknowledged: by then
the flow had written it. A downstream flow that has acknowledged all that was there at U, and a little later, has acknowledged that too.
So it is computed back from the last flows to the first. It is for people: nothing is released by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.plan.flow_links import Meeting
    from scribengin.registry.records import QueryAck


CLOCKS_S = 2.0
"""seconds by which the clocks of two hosts may differ"""


@dataclass(frozen=True, slots=True)
class Reached:
    """The moment up to which a source is acknowledged, in seconds since 1970; None if unknown: `unknown` is the flow and the source that
    are the reason."""

    moment: float | None
    unknown: str = ""


def reached(
    flow: str, acks: Mapping[str, Sequence[QueryAck]], met: Sequence[Meeting], remote: Mapping[str, Mapping[str, Reached]] | None = None
) -> dict[str, Reached]:
    """Find how far the sources of a flow are through, to the ends of all flows that it feeds, by whatever way.

    Args:
        flow: The flow; nothing it feeds feeds it.
        acks: Flow → what its workers say, of all flows of its workflow.
        met: Where these meet, and where they meet flows of peers.
        remote: Flow of a peer → source → how far its peer says that it is; nothing that it feeds is looked at here.

    Returns:
        Source from outside → how far. Sources of which the flow's own workers say nothing are left out.
    """
    known: dict[str, Mapping[str, Reached]] = dict(remote or {})

    def find(name: str) -> Mapping[str, Reached]:
        if name not in known:
            limit, unknown = inf, ""
            for each in met:
                if each.feeding == name:
                    behind = find(each.reading).get(each.source, Reached(None, f"{each.reading}.{each.source}"))
                    unknown = unknown or behind.unknown
                    limit = min(limit, inf if behind.moment is None else behind.moment - CLOCKS_S)
            known[name] = _of_sources(name, acks.get(name, ()), limit, unknown)
        return known[name]

    return dict(find(flow))


def _of_sources(flow: str, acks: Sequence[QueryAck], limit: float, unknown: str) -> dict[str, Reached]:
    """`limit`: what the flow had written by then is acknowledged; `unknown`: the downstream flow that has not reported."""
    found = {}
    for source in sorted({source for ack in acks for source in ack.through}):
        newest = [_newest(ack.through[source], limit) for ack in acks if source in ack.through]
        known = [moment for moment in newest if moment is not None]
        if unknown or len(known) < len(newest):
            found[source] = Reached(None, unknown or f"{flow}.{source}")
        else:
            found[source] = Reached(min(known))
    return found


def _newest(marks: Sequence[tuple[float, float]], limit: float) -> float | None:
    """The newest moment whose data were all written by the limit."""
    return max((moment for moment, out in marks if out <= limit), default=None)
