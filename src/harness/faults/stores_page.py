"""Writes the part of docs/faults.md about lives over stores, from their outcomes: `python -m harness.faults.stores_page LEDGER PAGE`."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.faults.cells import (
    AIMS_OF,
    MEETINGS,
    PLACES_OF,
    is_asked_for,
    latest,
    open_meetings,
    passed_seeds,
    wanted,
    wanted_meetings,
)
from harness.faults.report import meetings_table, outcomes_in
from harness.faults.stores import ROUTES_OF, STORES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.faults.outcomes import Aim, LifeOutcome

_BEGIN, _END = "<!-- stores -->\n", "<!-- /stores -->"
_ROUTES = tuple(route for ground in STORES for route in ground.routes)


def page_with(page: str, outcomes: Sequence[LifeOutcome]) -> str:
    """The page with a new text between its two marks."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    return "".join((before, begin, "".join(f"{line}\n" for line in told_of_stores(outcomes)), end, after))


def told_of_stores(outcomes: Sequence[LifeOutcome]) -> list[str]:
    """The text: counts; seeds by way, point and sink; kinds without an origin by keyed route; all routes."""
    return [*_counts(outcomes), "", *_points(outcomes), "", *meetings_table(outcomes), "", *_routes(outcomes)]


def _counts(outcomes: Sequence[LifeOutcome]) -> list[str]:
    passed = [outcome for outcome in outcomes if outcome.verdict == "passed"]
    failed = sum(outcome.verdict == "failed" for outcome in latest(outcomes).values())
    also = f", {failed} failed" if failed else ""
    seeds = passed_seeds(outcomes)

    def count(*, asked: bool) -> tuple[int, int]:
        targets = [(aim, route) for route in _ROUTES for aim in AIMS_OF[route] if is_asked_for(aim) == asked]
        return sum(min(wanted(*target), len(seeds[target])) for target in targets), sum(wanted(*target) for target in targets)

    (asked, of_asked), (others, of_others) = count(asked=True), count(asked=False)
    missing = f", {of_asked - asked:,} are open" if asked < of_asked else ""
    asked_for, unmet = wanted_meetings(), open_meetings(outcomes)
    times = sorted(outcome.recovery_s for outcome in passed) or [0.0]
    return [
        f"{len(outcomes)} lives: {len(passed)} passed{also}. "
        f"{sum(sum(outcome.reached) for outcome in outcomes):,} strikes. "
        f"{asked:,} of the {of_asked:,} seeds that are asked for (a kill, a worker's death, a sleep, the server's death) have passed"
        f"{missing}; {others:,} of the {of_others:,} others. "
        f"Of the {asked_for.total()} strikes on aggregations and joins into keyed stores {unmet.total()} are open. "
        f"{sum(outcome.rows for outcome in passed):,} rows that came out were checked; "
        f"foreign readers looked {sum(outcome.looks for outcome in passed):,} times. "
        f"The start that recovers: median {statistics.median(times):g} s, longest {times[-1]:g} s."
    ]


def _points(outcomes: Sequence[LifeOutcome]) -> list[str]:
    seeds = passed_seeds(outcomes)
    failed = {(aim, outcome.life.format) for outcome in latest(outcomes).values() if outcome.wrong for aim in outcome.life.aims}

    def mark(aim: Aim, routes: Sequence[str]) -> str:
        routes = [route for route in routes if aim in AIMS_OF[route]]
        found, asked = sum(len(seeds[aim, route]) for route in routes), sum(wanted(aim, route) for route in routes)
        told = f"{found}/{asked}" if found else "open" if asked else ""
        return told + (" ✗" if any((aim, route) in failed for route in routes) else "")

    lines = [f"| way | point | {' | '.join(ROUTES_OF)} |", f"|---|---|{'---|' * len(ROUTES_OF)}"]
    aims = dict.fromkeys(aim for route in _ROUTES for aim in AIMS_OF[route] if is_asked_for(aim))
    for way in dict.fromkeys(way for route in _ROUTES for way in PLACES_OF[route] if way in MEETINGS):
        rows = [aim for aim in aims if aim.way == way]
        lines += [f"| {way} | {aim.point} | {' | '.join(mark(aim, routes) for routes in ROUTES_OF.values())} |" for aim in rows]
    return lines


def _routes(outcomes: Sequence[LifeOutcome]) -> list[str]:
    lines = ["| route | lives | strikes | kinds |", "|---|---|---|---|"]
    for route in _ROUTES:
        here = [outcome for outcome in outcomes if outcome.life.format == route]
        kinds = ", ".join(sorted({outcome.life.kind for outcome in here}))
        lines.append(f"| {route} | {len(here)} | {sum(sum(outcome.reached) for outcome in here)} | {kinds} |")
    return lines


def main(ledger: str, page: str) -> None:
    """Rewrite the page."""
    file = Path(page)
    file.write_text(page_with(file.read_text(), outcomes_in(Path(ledger))))


if __name__ == "__main__":
    main(*sys.argv[1:])
