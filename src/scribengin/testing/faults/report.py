"""What the campaign remembers (`outcomes.jsonl`, a case a line) and tells (`report.md`, written anew from all of it)."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.testing.faults.cases import Cell, Outcome
from scribengin.testing.faults.cells import PLACES, wanted
from scribengin.testing.faults.flows import FORMATS, KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MARKS = {"passed": "✓", "failed": "✗", "not reached": "–", "skipped": "skipped"}


def read_outcomes(folder: Path) -> list[Outcome]:
    """All cases so far, oldest first."""
    file = folder / "outcomes.jsonl"
    if not file.exists():
        return []
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in file.read_bytes().splitlines() if line.endswith(b"}")]
    return [Outcome(**{**line, "cell": Cell(**line["cell"])}) for line in lines]


def append_outcome(folder: Path, outcome: Outcome) -> None:
    """Remember one case."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "outcomes.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(asdict(outcome)) + b"\n")


def write_report(folder: Path, outcomes: Sequence[Outcome]) -> Path:
    """Write `report.md`; returns its path."""
    path = folder / "report.md"
    path.write_text("\n".join([*_summary(outcomes), *_table(outcomes), *_kinds(outcomes), *_failures(outcomes), *_cases(outcomes), ""]))
    return path


def count_open(outcomes: Sequence[Outcome]) -> int:
    """Seeds that are still to pass, over all ways, points and formats."""
    passed = _passed(outcomes)
    return sum(
        max(0, wanted(way, point) - len(passed[way, point, format]))
        for way, points in PLACES.items()
        for point in points
        for format in FORMATS
    )


def line_of(outcome: Outcome) -> str:
    """A case in one line, for the terminal."""
    what = "; ".join(outcome.wrong) or outcome.skipped
    return f"{_MARKS[outcome.verdict]} seed {outcome.seed}  {outcome.cell}  {outcome.seconds:g} s" + (f"  {what}" if what else "")


def _summary(outcomes: Sequence[Outcome]) -> list[str]:
    verdicts = {verdict: sum(outcome.verdict == verdict for outcome in outcomes) for verdict in _MARKS}
    passed = [outcome for outcome in outcomes if outcome.verdict == "passed"]
    times = sorted(outcome.recovery_s for outcome in passed)
    lines = ["# Faults", "", "Written by `make faults`; run a case again with `make faults SEED=…`.", ""]
    lines.append(
        f"{len(outcomes)} cases: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items() if count)}. "
        f"Open: {count_open(outcomes)} seeds. {sum(outcome.rows for outcome in passed):,} rows checked; "
        f"foreign readers looked {sum(outcome.looks for outcome in passed):,} times."
    )
    if times:
        lines.append(
            f"The start that recovers, process start and remaining Batches included: median {statistics.median(times):g} s, "
            f"longest {times[-1]:g} s."
        )
    return [*lines, ""]


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    passed, failed = _passed(outcomes), _failed(outcomes)
    lines = ["## Covered and open", "", "Seeds that passed of those wanted; ✗ where one fails.", ""]
    lines += [f"| way | point | {' | '.join(FORMATS)} |", f"|---|---|{'---|' * len(FORMATS)}"]
    for way, points in PLACES.items():
        for point in points:
            marks = []
            for format in FORMATS:
                found = len(passed[way, point, format])
                text = f"{found}/{wanted(way, point)}" if found else "open"
                marks.append(text + (" ✗" if failed[way, point, format] else ""))
            lines.append(f"| {way} | {point} | {' | '.join(marks)} |")
    return [*lines, ""]


def _kinds(outcomes: Sequence[Outcome]) -> list[str]:
    lines = ["## Kinds of Query", "", "Cases that passed.", "", f"| | {' | '.join(PLACES)} |", f"|---|{'---|' * len(PLACES)}"]
    for kind in KINDS:
        counts = [sum(o.verdict == "passed" and o.cell.kind == kind and o.cell.way == way for o in outcomes) for way in PLACES]
        lines.append(f"| {kind} | {' | '.join(map(str, counts))} |")
    return [*lines, ""]


def _failures(outcomes: Sequence[Outcome]) -> list[str]:
    failed = [outcome for outcome in latest(outcomes).values() if outcome.verdict == "failed"]
    if not failed:
        return ["## Failing seeds", "", "None.", ""]
    lines = ["## Failing seeds", ""]
    for outcome in failed:
        lines += [f"- seed {outcome.seed}, {outcome.cell}: {_short('; '.join(outcome.wrong))}"]
        lines += [f"  - {_short(step)}" for step in outcome.schedule]
    return [*lines, ""]


def _cases(outcomes: Sequence[Outcome]) -> list[str]:
    lines = ["## Cases", "", "| seed | cell | verdict | rows | looks | recovery s | schedule |", "|---|---|---|---|---|---|---|"]
    for outcome in outcomes:
        schedule = "; ".join(_short(step) for step in outcome.schedule).replace("|", "/")
        figures = f"{outcome.rows} | {outcome.looks} | {outcome.recovery_s:g}"
        lines.append(f"| {outcome.seed} | {outcome.cell} | {outcome.verdict} | {figures} | {schedule} |")
    return lines


def latest(outcomes: Sequence[Outcome]) -> dict[tuple[Cell, int], Outcome]:
    """The last outcome of each cell and seed: one that was mended counts no more as failing."""
    return {(outcome.cell, outcome.seed): outcome for outcome in outcomes}


def _passed(outcomes: Sequence[Outcome]) -> defaultdict[tuple[str, str, str], set[int]]:
    return _seeds(outcomes, "passed")


def _failed(outcomes: Sequence[Outcome]) -> defaultdict[tuple[str, str, str], set[int]]:
    return _seeds(outcomes, "failed")


def _seeds(outcomes: Sequence[Outcome], verdict: str) -> defaultdict[tuple[str, str, str], set[int]]:
    seeds: defaultdict[tuple[str, str, str], set[int]] = defaultdict(set)
    for outcome in latest(outcomes).values():
        if outcome.verdict == verdict:
            seeds[outcome.cell.way, outcome.cell.point, outcome.cell.format].add(outcome.seed)
    return seeds


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:300] + " …"
