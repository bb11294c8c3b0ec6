"""What a plan says of rows that come too late for their folder by event time. Apart from `dropped_rows`: these rows are in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scribengin.plan.describe import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.spec.model import Flow


def late_notes(flow: Flow) -> Iterator[str]:
    """A sentence on each sink that closes its folders by time."""
    for sink in flow.sinks.values():
        close = sink.options.get("close")
        if isinstance(close, Mapping) and "delay" in close:  # an option of somebody else's connector may have the name
            closed = f'"{sink.id}" closes a folder by time when rows {span(close["delay"])} newer than its end have come'
            if close.get("late", "dead") == "dead":
                yield f"{closed}; later rows for it are dead letters (late)"
            else:
                yield f"{closed}; later rows for it take its marker away until it is closed again"
