"""Options that are mappings with keys of their own: `roll` and `close` of a files sink, folders by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.plan.validate import validate_file
from scribengin.spec.dump import dump_flow

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow

FLOW = """
version: 1
name: orders
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, country STRING, ts TIMESTAMP"}
sinks:
  kept: {from: orders, type: files, path: out, format: json, %s}
"""
TIME = 'partition_by: [country, {time: ts, path: "dt=%Y-%m-%d"}]'


def read(folder: Path, options: str) -> tuple[Flow | None, list[Problem]]:
    path = folder / "flow.yaml"
    path.write_text(FLOW.replace("%s", options))
    (folder / "data").mkdir(exist_ok=True)
    flow, problems = validate_file(path, {})
    return flow, list(problems)


@pytest.mark.parametrize(
    "options",
    [
        "roll: {}",
        "roll: {size: 64MiB}",
        f"{TIME}, close: {{delay: 10m, late: reopen}}, keep: 30d",
        'partition_by: {time: ts, path: "m=%Y-%m", time_zone: Europe/Berlin}',
        "partition_by: country",
    ],
)
@pytest.mark.parametrize("resolved", [False, True])
def test_what_is_written_reads_back_as_the_same(tmp_path: Path, options: str, resolved: bool) -> None:
    flow, problems = read(tmp_path, options)
    assert (problems, flow is not None) == ([], True)
    assert flow is not None
    text = dump_flow(flow, source_types=source_types(), sink_types=sink_types(), resolved=resolved)
    (tmp_path / "again.yaml").write_text(text)
    again, problems = validate_file(tmp_path / "again.yaml", {})
    assert (problems, again is not None) == ([], True)
    assert again is not None
    declared = sink_types()["files"]
    for name in ("roll", "close", "keep", "partition_by"):
        option = declared.option(name)
        assert option is not None
        first, second = (each.sinks["kept"].options.get(name) for each in (flow, again))
        if resolved and isinstance(first, dict):
            first = option.filled(first)
        if resolved and isinstance(first, tuple):
            first = tuple(option.filled(part) if isinstance(part, dict) else part for part in first)
        assert (second or None) == (first or None)


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ("roll: 5m", "wrong-kind", 'is the text "5m", not a mapping'),
        ("roll: {sise: 1MiB}", "unknown-key", 'the unknown key "sise"'),
        ("roll: {every: 5}", "bad-unit", "no unit"),
        ("roll: {size: 0B}", "out-of-range", '"size" in `roll`'),
        (f"{TIME}, close: {{}}", "missing-key", 'no "delay"'),
        (f"{TIME}, close: {{delay: 1m, late: drop}}", "bad-choice", '"late" in `close`'),
        ('partition_by: [{path: "dt=%Y"}]', "missing-key", 'item 1 of `partition_by` of sink "kept" has no "time"'),
        ('partition_by: [country, country, {time: ts, path: "dt=%Y"}]', "twice", '"country" twice'),
        ('partition_by: [{time: ts, path: "dt=%Y"}, country]', "partition-time", "not the last folder"),
        ('partition_by: [{time: id, path: "dt=%Y"}]', "partition-time", "a BIGINT"),
        ('partition_by: [{time: ts, path: "id=%Y"}]', "partition-time", "a column of that name"),
        ('partition_by: [{time: ts, path: "dt=%Y", time_zone: Berlin}]', "partition-time", "unknown time zone"),
        ("close: {delay: 1m}", "partition-no-time", "needs folders by time"),
    ],
)
def test_a_mistake_is_told_where_it_stands(tmp_path: Path, options: str, code: str, text: str) -> None:
    _, problems = read(tmp_path, options)
    (problem,) = problems
    assert problem.code == code
    assert text in problem.message
    assert problem.place.line == 7
    assert problem.place.column > 60
