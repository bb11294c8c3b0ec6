"""Hints on rows that are too late for their folder by event time. Separate from `dropped_rows`, because the ledger counts these rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scribengin.plan.describe import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.spec.model import Flow


def late_notes(flow: Flow) -> Iterator[str]:
    """One sentence for each sink that closes its folders by time."""
    for sink in flow.sinks.values():
        close = sink.options.get("close")
        if isinstance(close, Mapping) and "delay" in close:  # an option of another connector may have the same name
            closed = f'"{sink.id}" closes a folder by time when rows {span(close["delay"])} newer than its end have arrived'
            if close.get("late", "dead") == "dead":
                yield f"{closed}; later rows for it are dead letters (late)"
            else:
                yield f"{closed}; later rows for it remove its completion marker until it is closed again"
