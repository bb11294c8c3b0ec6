"""The progress of a workflow: up to which time the entries at a flow's sources have reached the ends of all downstream flows.

Within a flow, acknowledgements give it exactly (`state.channel_acks`). Between flows only time relates a Batch of one to an entry of
another. Each worker records for its sources times T, each with the time U at which all entries that existed at T were observed as
acknowledged: by U the flow had written them. A downstream flow that has acknowledged all entries that existed at U, and a little later, has
acknowledged those too. So the progress is computed backwards, from the last flows to the first. It is for people: nothing is released by
it.
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
    """The time up to which a source is acknowledged, in seconds since the epoch. None if unknown: then `unknown` is the flow and source
    that are the reason."""

    moment: float | None
    unknown: str = ""


def reached(
    flow: str, acks: Mapping[str, Sequence[QueryAck]], met: Sequence[Meeting], remote: Mapping[str, Mapping[str, Reached]] | None = None
) -> dict[str, Reached]:
    """Returns how far the sources of a flow are acknowledged by all flows downstream of it, directly or indirectly.

    Args:
        flow: the flow; it must not be downstream of itself.
        acks: flow → the acknowledgements that its workers report, for all flows of its workflow.
        met: the connections of these flows with each other, and with flows of peers.
        remote: flow of a peer → source → its progress as its peer reports it; what is downstream of that is not considered here.

    Returns:
        External source → its progress. Sources on which the flow's own workers do not report are left out.
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
    """The progress of the flow's sources. `limit`: what the flow had written by then is acknowledged downstream; `unknown`: the downstream
    flow that has not reported."""
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
    """The newest time whose entries were all written by the limit; None if there is none."""
    return max((moment for moment, out in marks if out <= limit), default=None)
