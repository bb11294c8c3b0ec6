"""Sinks that close their folders by time: what a plan says of late rows, and what is refused where it cannot be promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.plan.queries import build_plan
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow

FLOW = """version: 1
name: hourly
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP"}
sinks:
  kept:
    from: orders
    SINK
    partition_by: [BY]
    close: {delay: 10m, late: LATE}
"""
SINKS = {
    "files": "{type: files, path: out, format: json}",
    "objects": "{type: objects, url: s3://shop/out, format: json}",
    "hdfs": "{type: hdfs, url: hdfs://namenode:8020/out, format: json}",
    "delta": "{type: delta, path: lake}",
    "upsert": "{type: delta, path: lake, mode: upsert, key: [id]}",
}
TIME = '{time: ts, path: "dt=%Y-%m-%d"}'


def checked(tmp_path: Path, sink: str, *, late: str = "dead", by: str = TIME) -> tuple[Flow | None, list[Problem]]:
    (tmp_path / "data").mkdir(exist_ok=True)
    options = SINKS[sink].strip("{}").replace(", ", "\n    ")
    (tmp_path / "flow.yaml").write_text(FLOW.replace("SINK", options).replace("BY", by).replace("LATE", late))
    return validate_file(tmp_path / "flow.yaml", {})


@pytest.mark.parametrize("sink", ["files", "objects", "hdfs", "delta"])
def test_a_plan_says_which_rows_come_too_late_and_what_becomes_of_them(tmp_path: Path, sink: str) -> None:
    flow, problems = checked(tmp_path, sink)
    assert problems == []
    assert flow is not None
    (hint,) = build_plan(flow).hints
    assert hint == '"kept" closes a folder by time when rows 10m newer than its end have arrived; later rows for it are dead letters (late)'


def test_a_plan_says_that_late_rows_open_a_folder_again(tmp_path: Path) -> None:
    flow, _ = checked(tmp_path, "files", late="reopen")
    assert flow is not None
    (hint,) = build_plan(flow).hints
    assert hint.endswith("later rows for it remove its completion marker until it is closed again")


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        ("objects", "a completion marker cannot be removed"),
        ("hdfs", "a completion marker cannot be removed"),
        ("delta", "marks as complete"),
    ],
)
def test_what_is_said_to_be_complete_there_cannot_be_opened_again(tmp_path: Path, sink: str, why: str) -> None:
    _, (problem,) = checked(tmp_path, sink, late="reopen")
    assert problem.code == "close-reopen"
    assert why in problem.message
    assert (tmp_path / "flow.yaml").read_text().splitlines()[problem.place.line - 1][problem.place.column - 1 :].startswith("late: reopen")


@pytest.mark.parametrize("sink", ["files", "objects", "hdfs", "delta"])
def test_only_folders_by_time_are_closed(tmp_path: Path, sink: str) -> None:
    _, (problem,) = checked(tmp_path, sink, by="id")
    assert problem.code == "partition-no-time"


def test_a_row_that_is_replaced_is_of_no_folder_by_time(tmp_path: Path) -> None:
    _, (problem,) = checked(tmp_path, "upsert")
    assert problem.code == "partition-time"
    assert "mode: upsert" in problem.message


@pytest.mark.parametrize("sink", ["objects", "hdfs", "delta"])
def test_who_keeps_folders_for_how_long_is_told(tmp_path: Path, sink: str) -> None:
    checked(tmp_path, sink)
    path = tmp_path / "flow.yaml"
    path.write_text(path.read_text() + "    keep: 30d\n")
    _, problems = validate_file(path, {})
    (problem,) = problems
    assert '"keep" belongs to a sink of type files' in problem.remedy
