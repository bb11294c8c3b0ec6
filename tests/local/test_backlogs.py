"""What waits is measured at the place: also before the first run, and where a Batch was taken and not decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.contract import BatchId, BatchLimits
from scribengin.local.backlogs import measure_backlogs
from scribengin.local.prepare import open_sources, prepare
from scribengin.state.contract import Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """\
version: 1
name: measured
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT", max_files: 1, settle: 0s}
  counted: {type: sequence, rows: 5}
steps:
  all: {from: rows, filter: id > 0}
sinks:
  kept: {from: all, type: files, path: out, format: json}
  twice: {from: rows, type: files, path: twice, format: json}
  numbers: {from: counted, type: files, path: numbers, format: json}
"""
SIZE = len('{"id": 1}\n')


def three_files(folder: Path) -> None:
    (folder / "flow.yaml").write_text(FLOW)
    (folder / "data").mkdir()
    for id_, name in enumerate("abc", 1):
        (folder / "data" / f"{name}.jsonl").write_text(f'{{"id": {id_}}}\n')


def waits(folder: Path) -> dict[str, tuple[int | None, int | None]]:
    found = measure_backlogs(prepare(folder / "flow.yaml", state=None))
    assert all(not each.why_not for each in found.values())
    return {source: (each.backlog.files, each.backlog.bytes) for source, each in found.items() if each.backlog is not None}


def take(folder: Path, query: str, *, decide: bool) -> None:
    """The next entry of the Query's log, and a decided Batch that has taken it."""
    prepared = prepare(folder / "flow.yaml", state=None).tiers[0]
    log = SourceLog(prepared.folder.query(query).sources, "rows")
    reader = open_sources(prepared.plan.flow)["rows"].reader()
    reader.restore(log.entries())
    number = log.length()
    log.append(number, reader.split(BatchLimits(max_files=1)))
    if decide:
        ranges = (SourceRange("rows", number, number + 1),)
        Decisions(prepared.folder.query(query).decisions).decide(
            Decision(BatchId("measured", query, "lineage", number, 1), "", "", ranges, ())
        )


def test_before_the_first_run_all_waits_that_would_be_read_and_what_cannot_be_measured_is_left_out(tmp_path: Path) -> None:
    three_files(tmp_path)
    assert waits(tmp_path) == {"rows": (3, 3 * SIZE)}
    assert not (tmp_path / ".scribengin").exists()


def test_what_was_taken_waits_until_its_batch_is_decided_and_the_slower_query_counts(tmp_path: Path) -> None:
    three_files(tmp_path)
    take(tmp_path, "kept", decide=True)
    take(tmp_path, "kept", decide=False)
    assert waits(tmp_path) == {"rows": (3, 3 * SIZE)}  # for `twice`, which has read nothing
    take(tmp_path, "twice", decide=True)
    take(tmp_path, "twice", decide=True)
    assert waits(tmp_path) == {"rows": (2, 2 * SIZE)}  # for `kept`: one was taken, and is in no decided Batch


def test_a_place_that_is_not_there_is_told(tmp_path: Path) -> None:
    three_files(tmp_path)
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    found = measure_backlogs(prepare(tmp_path / "flow.yaml", state=None))
    assert found["rows"].backlog is None
    assert "data" in found["rows"].why_not
