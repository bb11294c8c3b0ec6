"""Runs one random flow whole and divided into tiers, and compares the results."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from harness.cuts.data import FAR, FIRST_CLOSER, STEPS, write_data
from scribengin.core.errors import InputError
from scribengin.local.audit import audit_flow
from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow
from scribengin.plan.validate import validate_file
from scribengin.state.dead_letters import read_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from harness.cuts.flows import Case
    from scribengin.local.contract import RunResult, RunView

WHOLE, CUT = "whole", "cut"
"""the folders of the two flows"""
_SHOWN = 4
_STREAM = re.compile(r"(?P<source>\w+)/(?P<first>part-\d+\.jsonl)(?: … (?P<last>part-\d+\.jsonl) \(\d+ files\))?$")
"""the label of a stream of whole files, of which small ones are combined, in the coordinates of records"""


@dataclass(slots=True)
class CutDifference:
    """The differences and faults that were found; empty lists are good."""

    wrong: list[str] = field(default_factory=list)
    rows: int = 0
    """number of rows of the whole flow, without closers"""
    letters: int = 0
    stopped: bool = False
    """True if the divided flow was stopped and continued"""


def write_case(case: Case, folder: Path) -> None:
    """Write both flows with their steps, keys and data, so that each can be run by hand. `folder` must be empty or must not exist."""
    for name in (WHOLE, CUT):
        home = folder / name
        home.mkdir(parents=True)
        (home / "flow.yaml").write_text(yaml.safe_dump(case.document(cut=name == CUT), sort_keys=False, allow_unicode=True, width=140))
        (home / "steps.py").write_text(STEPS)
        key = base64.b64encode(bytes(range(32))).decode()
        (home / "channel.keys").write_text(f"k1 {key}\n")
        (home / "channel.keys").chmod(0o600)
        write_data(home, case.sources, random.Random(case.data_seed), levels=2 if case.stops_at else 1)


def refusals(folder: Path) -> list[str]:
    """Why the checks refuse one of the two flows; empty if both may run."""
    told = []
    for name in (WHOLE, CUT):
        flow, problems = validate_file(folder / name / "flow.yaml", os.environ, execute=True)
        told += [f"{name}: {problem.code}: {problem.message}" for problem in problems if problem.severity == "error"]
        if flow is None and not told:
            told.append(f"{name}: no flow")
    return told


def compare(case: Case, folder: Path, spark: SparkSession) -> CutDifference:
    """Run both flows in a folder that `write_case` has written, and compare them. Faults of the flows are part of the result, not
    raised."""
    found = CutDifference()
    try:
        whole = _run(folder / WHOLE, spark)
        first = _first_run(folder / CUT, spark, case) if case.stops_at else None
        found.stopped = first is not None and first.state == "stopped"
        if first is not None and first.state == "failed":
            found.wrong.append(f"the first run of the cut flow failed: {_error_messages(first)}")
        cut = _run(folder / CUT, spark)
    except InputError as error:
        found.wrong.append(f"Spark refuses what the checks have taken: {[problem.message for problem in error.problems]}")
        return found
    for name, result in ((WHOLE, whole), (CUT, cut)):
        if result.state != "finished":
            found.wrong.append(f"the {name} flow {result.state}: {_error_messages(result)}")
        if not result.balanced:
            found.wrong.append(f"the ledger of the {name} flow: {list(result.violations)}")
        prepared = prepare(folder / name / "flow.yaml", state=None)
        violations = [violation for report in audit_flow(prepared).reports for violation in report.violations]
        if violations:
            found.wrong.append(f"the audit of the {name} flow: {violations}")
    for sink in case.sinks.values():
        wanted, there = (_rows(folder / name / sink["path"]) for name in (WHOLE, CUT))
        found.rows += sum(wanted.values())
        found.wrong += _unlike(f"{sink['path']}", wanted, there)
    ways, cut_ways = (_letters(folder / name) for name in (WHOLE, CUT))
    found.letters = len(ways)
    # a step that several queries run buries a record in each of them: the number depends on the tiers
    found.wrong += _unlike("dead letters", Counter(ways.keys()), Counter(cut_ways.keys()))
    return found


def _first_run(home: Path, spark: SparkSession, case: Case) -> RunResult:
    """The run that is stopped. Its last closers are written afterwards: Spark closes windows in a Batch after the rows that moved the
    watermark, and if the stop prevents that Batch, the windows wait for the next rows."""
    held = [max((home / "data" / id_).glob("part-*")) for id_, source in case.sources.items() if not source.get("static")]
    for path in held:
        path.rename(home / f"{path.parent.name}-{path.name}")
    result = _run(home, spark, stops_at=case.stops_at)
    for path in held:
        (home / f"{path.parent.name}-{path.name}").rename(path)
    return result


def _run(home: Path, spark: SparkSession, *, stops_at: int = 0) -> RunResult:
    settings = RunSettings(once=True)

    def watch(view: RunView) -> None:
        if stops_at and sum(query.batches for query in view.queries) >= stops_at:
            settings.stop.set()

    return run_flow(home / "flow.yaml", settings, watch, spark=spark)


def _error_messages(result: RunResult) -> list[str]:
    # a trial may consist mainly of records that become dead letters
    return [problem.message for problem in result.problems if problem.severity == "error" and problem.code != "mostly-dead"]


def _unlike(what: str, wanted: Counter[str], there: Counter[str]) -> list[str]:
    missing, surplus = wanted - there, there - wanted
    told = []
    for word, rows in (("is missing from the cut flow", missing), ("is too many in the cut flow", surplus)):
        if rows:
            told.append(f"{what}: {sum(rows.values())} {word}: {'; '.join(sorted(rows)[:_SHOWN])}")
    return told


def _rows(folder: Path) -> Counter[str]:
    """Every row of a sink as JSON, without closers."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("part-*")):
        if path.suffix == ".parquet":
            rows += pq.ParquetFile(path).read().to_pylist()
        else:
            rows += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return Counter(json.dumps(row, sort_keys=True, default=str, ensure_ascii=False) for row in rows if not _is_closer(row))


def _is_closer(row: dict[str, Any]) -> bool:
    times = (str(row.get(name) or "") for name in ("ts", "at", "window_start"))
    return int(row.get("id") or 0) >= FIRST_CLOSER or any(time[:10] >= FAR.date().isoformat() for time in times)


def _letters(home: Path) -> dict[str, int]:
    """Each dead letter, by the values that must be equal in both flows: step, reason, message, and the record's first coordinates."""
    found: Counter[str] = Counter()
    for tier in prepare(home / "flow.yaml", state=None).tiers:
        for query in tier.folder.queries():
            for letter in read_letters(query):
                place = _first(home, letter.source, letter.file, letter.line, letter.row)
                found[json.dumps([letter.step, letter.reason, _meaning(letter.payload), place], ensure_ascii=False)] += 1
    return found


def _first(home: Path, source: str, file: str, line: int | None, row: int | None) -> str:
    """The origin of a dead letter, such as `a/part-0.jsonl:7`, from its file and line at the source, or after a channel from its stream and
    record number. Empty for a row without a single origin record."""
    if line is not None:
        return f"{source}/{Path(file).name}:{line}"
    if row is None or (stream := _STREAM.match(file)) is None:
        return ""
    folder = home / "data" / stream["source"]
    for path in sorted(folder.iterdir()):
        if stream["first"] <= path.name <= (stream["last"] or stream["first"]):
            records = len(path.read_bytes().splitlines())
            if row < records:
                return f"{stream['source']}/{path.name}:{row + 1}"
            row -= records
    return f"{file} has no record {row}"


def _meaning(payload: bytes) -> Any:
    """The id of a record, or the whole record if it has none. After a channel, it is the row at that place, not the line that was read."""
    try:
        row = json.loads(payload)
    except ValueError:
        return payload.decode("utf-8", "replace")
    return row["id"] if isinstance(row, dict) and "id" in row else row


def remove(folder: Path) -> None:
    """Delete a folder that `write_case` has written."""
    shutil.rmtree(folder, ignore_errors=True)
