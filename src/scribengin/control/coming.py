"""What comes when a tier's worker is lost, as JSON: when the next one starts, and who waits to take over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.control.runs import needs_worker, next_start_at
from scribengin.control.world import ObservedTier
from scribengin.core.moments import moment_text

if TYPE_CHECKING:
    from scribengin.registry.kinds import Report, Run, TierWish


def described_spare(flow: str, tier: str, spare: Run, report: Report | None) -> dict[str, Any]:
    """Who waits, where, and whether it is ready."""
    mine = report if report is not None and report.run == spare.number else None
    return {
        "worker": f"{flow}.{tier}-{spare.number}",
        "node": spare.node,
        "state": "starting" if mine is None else mine.state,
        "http": "" if mine is None else mine.http,
    }


def next_start(run: Run | None, wish: TierWish | None, report: Report | None) -> str | None:
    """When the successor of a worker that has ended starts, ISO 8601; None where none does by itself."""
    tier = ObservedTier("", wish=wish, run=run, report=report)
    if run is None or wish is None or run.ended_at is None or not needs_worker(tier):
        return None
    at = next_start_at(tier, wish)
    return None if at is None else moment_text(at or run.ended_at)
