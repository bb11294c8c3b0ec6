"""The stored outcomes of the campaign (`outcomes.jsonl`, one life per line), and the report about all of them (`report.md`)."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from harness.faults.cells import (
    AIMS_OF,
    MEETINGS,
    PLACES_OF,
    WITHOUT_ORIGIN,
    count_open,
    count_wanted,
    latest,
    passed_meetings,
    passed_seeds,
    wanted,
    wanted_meetings,
)
from harness.faults.flows import FORMATS, KINDS
from harness.faults.kafka_flows import KAFKA_KINDS, ROUTES
from harness.faults.outcomes import Aim, Life, LifeOutcome
from harness.faults.stores import KEYED_ROUTES, ROUTES_OF, STORES
from harness.faults.tier_flows import TIER_KINDS, TIER_ROUTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MARKS = {"passed": "✓", "failed": "✗", "not reached": "–", "skipped": "skipped"}


def read_outcomes(folder: Path) -> list[LifeOutcome]:
    """All outcomes so far, oldest first."""
    file = folder / "outcomes.jsonl"
    return outcomes_in(file) if file.exists() else []


def outcomes_in(file: Path) -> list[LifeOutcome]:
    """The outcomes in a file, oldest first."""
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in file.read_bytes().splitlines() if line.endswith(b"}")]
    return [LifeOutcome(**{**line, "life": _life(line["life"])}) for line in lines]


def _life(line: dict[str, Any]) -> Life:
    return Life(**{**line, "aims": tuple(Aim(**aim) for aim in line["aims"])})


def append_outcome(folder: Path, outcome: LifeOutcome) -> None:
    """Store the outcome of a life."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "outcomes.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(asdict(outcome)) + b"\n")


def write_report(folder: Path, outcomes: Sequence[LifeOutcome]) -> Path:
    """Write `report.md`; returns its path."""
    path = folder / "report.md"
    path.write_text("\n".join([*_summary(outcomes), *_table(outcomes), *_kinds(outcomes), *_failures(outcomes), *_lives(outcomes), ""]))
    return path


def line_of(outcome: LifeOutcome) -> str:
    """The outcome of a life in one line, for the terminal."""
    what = "; ".join(outcome.wrong) or outcome.skipped
    count = f"{sum(outcome.reached)} of {len(outcome.reached)} strikes, {outcome.seconds:g} s"
    return f"{_MARKS[outcome.verdict]} seed {outcome.seed}  {outcome.life}  {count}" + (f"  {what}" if what else "")


def _summary(outcomes: Sequence[LifeOutcome]) -> list[str]:
    verdicts = {verdict: sum(outcome.verdict == verdict for outcome in outcomes) for verdict in _MARKS}
    passed = [outcome for outcome in outcomes if outcome.verdict == "passed"]
    times = sorted(outcome.recovery_s for outcome in passed)
    lines = ["# Faults", "", "Written by `make faults`; live a life again with `make faults SEED=…`.", ""]
    lines.append(
        f"{len(outcomes)} lives: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items() if count)}. "
        f"{sum(sum(outcome.reached) for outcome in outcomes):,} strikes. "
        f"Open: {count_open(outcomes)} seeds of {count_wanted()}. "
        f"{sum(outcome.rows for outcome in passed):,} rows checked; "
        f"foreign readers looked {sum(outcome.looks for outcome in passed):,} times."
    )
    if times:
        lines.append(
            f"The start that recovers, process start and remaining Batches included: median {statistics.median(times):g} s, "
            f"longest {times[-1]:g} s."
        )
    return [*lines, ""]


def _table(outcomes: Sequence[LifeOutcome]) -> list[str]:
    passed = passed_seeds(outcomes)
    failed = {(aim, outcome.life.format) for outcome in latest(outcomes).values() if outcome.wrong for aim in outcome.life.aims}

    def mark(aim: Aim, formats: Sequence[str]) -> str:
        formats = [format for format in formats if aim in AIMS_OF[format]]
        if not formats:
            return ""
        found = sum(len(passed[aim, format]) for format in formats)
        told = f"{found}/{sum(wanted(aim, format) for format in formats)}" if found else "open"
        return told + (" ✗" if any((aim, format) in failed for format in formats) else "")

    lines = ["## Covered and open", "", "Seeds that passed of those wanted; ✗ where a life fails that was to strike there.", ""]
    files, kafka, tiers = ({format: (format,) for format in formats} for formats in (FORMATS, ROUTES, TIER_ROUTES))
    for columns in (files, kafka, ROUTES_OF, tiers):
        lines += [f"| way | point | {' | '.join(columns)} |", f"|---|---|{'---|' * len(columns)}"]
        aims = dict.fromkeys(aim for formats in columns.values() for format in formats for aim in AIMS_OF[format])
        for way in dict.fromkeys(aim.way for aim in aims):
            rows = [aim for aim in aims if aim.way == way]
            lines += [f"| {way} | {aim.point} | {' | '.join(mark(aim, formats) for formats in columns.values())} |" for aim in rows]
        lines.append("")
    return lines


def _kinds(outcomes: Sequence[LifeOutcome]) -> list[str]:
    lines = ["## Kinds of query", "", "Strikes in lives that passed."]
    for title, formats, kinds in (
        ("files", FORMATS, KINDS),
        ("Kafka", ROUTES, KAFKA_KINDS),
        *((ground.title, ground.routes, ground.kinds) for ground in STORES),
        ("tiers", TIER_ROUTES, TIER_KINDS),
    ):
        ways = list(dict.fromkeys(way for format in formats for way in PLACES_OF[format]))
        lines += ["", f"| {title} | {' | '.join(ways)} |", f"|---|{'---|' * len(ways)}"]
        for kind in kinds:
            covered = [outcome.covered for outcome in outcomes if outcome.life.kind == kind and outcome.life.format in formats]
            counts = Counter(aim.way for aims in covered for aim in aims)
            lines.append(f"| {kind} | {' | '.join(str(counts[way]) for way in ways)} |")
    return [*lines, "", "Into keyed stores, of those wanted:", "", *meetings_table(outcomes), ""]


def meetings_table(outcomes: Sequence[LifeOutcome]) -> list[str]:
    """A table of the strikes on aggregations and on joins that passed, of those that are needed, on each keyed route."""
    passed, asked = passed_meetings(outcomes), wanted_meetings()

    def mark(kind: str, route: str, way: str) -> str:
        meeting = kind, route, way
        return f"{passed[meeting]}/{asked[meeting]}" if passed[meeting] else "open" if meeting in asked else ""

    ways = [(kind, way) for kind in WITHOUT_ORIGIN for way in MEETINGS]
    lines = [f"| route | {' | '.join(f'{kind}: {way}' for kind, way in ways)} |", f"|---|{'---|' * len(ways)}"]
    return lines + [f"| {route} | {' | '.join(mark(kind, route, way) for kind, way in ways)} |" for route in KEYED_ROUTES]


def _failures(outcomes: Sequence[LifeOutcome]) -> list[str]:
    failed = [outcome for outcome in latest(outcomes).values() if outcome.verdict == "failed"]
    if not failed:
        return ["## Failing seeds", "", "None.", ""]
    lines = ["## Failing seeds", ""]
    for outcome in failed:
        lines += [f"- seed {outcome.seed}, {outcome.life}: {_short('; '.join(outcome.wrong))}"]
        lines += [f"  - {_short(step)}" for step in outcome.schedule]
    return [*lines, ""]


def _lives(outcomes: Sequence[LifeOutcome]) -> list[str]:
    lines = ["## Lives", "", "| seed | life | verdict | strikes | rows | looks | recovery s | seconds | schedule |", f"|{'---|' * 9}"]
    for outcome in outcomes:
        schedule = "; ".join(_short(step) for step in outcome.schedule).replace("|", "/")
        figures = f"{outcome.rows} | {outcome.looks} | {outcome.recovery_s:g} | {outcome.seconds:g}"
        lines.append(f"| {outcome.seed} | {outcome.life} | {outcome.verdict} | {sum(outcome.reached)} | {figures} | {schedule} |")
    return lines


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:300] + " …"
