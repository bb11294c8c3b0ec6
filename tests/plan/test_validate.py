from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scribengin.plan.queries import build_plan
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """\
version: 1
name: tweets
defaults: {trigger: 1s}

sources:
  tweets:
    type: files
    path: data
    format: json
    schema: id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP
    watermark: ts 10m

steps:
  known:   {from: tweets, filter: followers > 5000, require: {dated: ts IS NOT NULL}}
  hot:     {from: known, filter: retweets > 500}
  tagged:  {from: hot, python: "steps:has_tag"}
  by_hour:
    from: tagged
    sql: |
      SELECT window(ts, '1 hour').start AS hour, count(*) AS n
      FROM tagged
      GROUP BY window(ts, '1 hour')

sinks:
  kept:   {from: tagged, type: files, path: out/kept, format: parquet}
  counts: {from: by_hour, type: files, path: out/counts, format: json}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "steps.py").write_text("from scribengin import record\n\n\n@record\ndef has_tag(row):\n    return True\n")
    return tmp_path


def problems(folder: Path, *changes: tuple[str, str]) -> list[str]:
    """`line:column code` of each problem, after changing the flow's text."""
    text = FLOW
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    (folder / "flow.yaml").write_text(text)
    _, found = validate_file(folder / "flow.yaml", {})
    return [f"{problem.place.line}:{problem.place.column} {problem.code}" for problem in found]


def test_a_good_file_gives_a_flow_that_can_be_planned(folder: Path) -> None:
    assert problems(folder) == []
    flow, _ = validate_file(folder / "flow.yaml", {})
    assert flow is not None
    assert [query.name for query in build_plan(flow).queries] == ["kept", "counts"]


def test_places_are_exact_down_into_sql_and_in_file_order(folder: Path) -> None:
    changes = [
        ("followers > 5000", "folowers > 5000"),
        ('has_tag"', 'has_tagg"'),
        ("      FROM tagged\n", "      FROM taged\n"),
        ("out/counts", "out/kept/x"),
    ]
    assert problems(folder, *changes) == [
        "14:35 column-unknown",
        "16:32 python-name-missing",
        "21:12 sql-input-unknown",
        "26:46 folder-two-writers",
    ]


def test_mistakes_of_the_parser_and_of_the_graph_come_together_without_followers(folder: Path) -> None:
    changes = [("type: files\n", "type: filez\n"), ("retweets > 500", "retweets >")]
    assert [code.split()[1] for code in problems(folder, *changes)] == ["unknown-type", "sql-syntax"]


def test_what_hangs_on_a_broken_step_is_not_told_of_it(folder: Path) -> None:
    assert [code.split()[1] for code in problems(folder, ("filter: retweets > 500", "fitler: retweets > 500"))] in (
        ["unknown-key"],
        ["operation-missing", "unknown-key"],
        ["unknown-key", "operation-missing"],
    )


def test_a_meant_step_is_not_told_unread(folder: Path) -> None:
    assert problems(folder, ("{from: hot,", "{from: hott,")) == ["16:19 input-unknown"]


def test_a_file_that_is_no_text_or_not_there_is_told(folder: Path) -> None:
    (folder / "flow.yaml").write_bytes(b"version: 1\nname: \xff")
    flow, (problem,) = validate_file(folder / "flow.yaml", {})
    assert flow is None
    assert (problem.code, problem.place.line, problem.place.column) == ("flow-file-missing", 2, 7)
    assert validate_file(folder / "absent.yaml", {})[1][0].code == "flow-file-missing"


def test_a_python_flow_runs_only_when_asked(folder: Path) -> None:
    file = folder / "made.py"
    text = (
        "from scribengin import Flow, source\n"
        "ticks = source('ticks', 'sequence')\n"
        "flow = Flow('made', ticks.filter('idd > 3').to('shown', 'console'))\n"
    )
    file.write_text("raise SystemExit('executed')\n" + text)
    flow, problems = validate_file(file, {})
    assert (flow, [problem.code for problem in problems]) == (None, ["not-executed"])


def test_no_user_code_runs_and_neither_spark_nor_arrow_is_loaded(folder: Path) -> None:
    (folder / "steps.py").write_text("raise SystemExit('imported')\ndef has_tag(row): return row\n")
    (folder / "flow.yaml").write_text(FLOW)
    program = (
        "import sys; from pathlib import Path; from scribengin.plan.validate import validate_file\n"
        "from scribengin.plan.queries import build_plan\n"
        "flow, found = validate_file(Path(sys.argv[1]), {}); assert not found, found; build_plan(flow)\n"
        "print([name for name in ('pyspark', 'pyarrow', 'duckdb', 'rich', 'steps') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder / "flow.yaml")], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_flow_without_sql_loads_no_sql_parser(folder: Path) -> None:
    (folder / "flow.yaml").write_text(
        "version: 1\nname: n\nsources: {n: {type: sequence}}\n"
        'steps: {a: {from: n, python: "steps:has_tag"}}\nsinks: {k: {from: a, type: console}}\n'
    )
    program = (
        "import sys; from pathlib import Path; from scribengin.plan.validate import validate_file\n"
        "flow, found = validate_file(Path(sys.argv[1]), {}); assert not found, found; print('sqlglot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder / "flow.yaml")], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
