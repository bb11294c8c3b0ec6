"""Utilities in flows that run: as a chain of python steps would, counted each, and free ones with what they have learned handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.plan.spread_utilities import Branches, spread, spread_text
from scribengin.plan.validate import validate_file
from scribengin.state.dead_letters import read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.contract import RunResult
    from scribengin.state.contract import DeadLetter
    from tests.conftest import FlowFolder

STEPS = """
from scribengin import batch


def even(row) -> bool:
    return row["n"] % 2 == 0


def not_eight(row) -> bool:
    if row["n"] == 8:
        raise ValueError("eight")
    return True


class Under:
    def open(self):
        self.limit = 30
        self.seen = 0

    def __call__(self, row) -> bool:
        self.seen += 1
        return row["n"] < self.limit


def twice(row):
    return [row, {**row, "word": "again"}] if row["n"] % 10 == 0 else row


def long(row):
    return {"n": row["n"], "size": len(row["word"])}


def spoils(row):
    return {**row, "n": "x"} if row["n"] == 4 else row


def low(row) -> bool:
    if row["n"] == 8:
        raise ValueError("eight")
    return row["n"] < 5


def tens(row) -> bool:
    return row["n"] % 10 == 0


@batch
def last(rows):
    return rows.slice(0, 20)
"""
FLOW = """
version: 1
name: useful
sources:
  rows: {type: files, path: data, format: json, schema: "n BIGINT, word STRING, ts TIMESTAMP", watermark: ts 1h, max_files: 1}
steps:
  u:
    from: rows
    utilities: ["steps:even", "steps:spoils", "steps:not_eight", "steps:twice", "steps:long"]
    schema: "n BIGINT, size BIGINT"
  c1:  {from: rows, python: "steps:even"}
  c2:  {from: c1, python: "steps:spoils"}
  c3:  {from: c2, python: "steps:not_eight"}
  c4:  {from: c3, python: "steps:twice"}
  c5:  {from: c4, python: "steps:long", schema: "n BIGINT, size BIGINT"}
  b:   {from: rows, utilities: ["steps:even", "steps:last"], on_error: drop}
  f:   {from: rows, utilities: ["steps:not_eight", "steps:Under", "steps:even", "steps:even"], order: free}
  m:   {from: rows, utilities: ["steps:Under", "steps:even"], order: free}
  by:  {from: m, aggregate: {window: {time: ts, size: 1h}, columns: {n: count(*)}}}
sinks:
  u_out: {from: u, type: files, path: out/u, format: json}
  c_out: {from: c5, type: files, path: out/c, format: json}
  b_out: {from: b, type: files, path: out/b, format: json}
  f_out: {from: f, type: files, path: out/f, format: json}
  by_out: {from: by, type: files, path: out/by, format: json}
"""


def test_utilities_are_what_python_steps_are_and_each_is_counted(folder: FlowFolder) -> None:
    folder.flow(FLOW).steps(STEPS)
    for number in range(2):
        rows = [{"n": n, "word": "w" * n, "ts": f"2026-01-01T0{3 * number}:00:00Z"} for n in range(40)]
        folder.data(f"data/{number}.jsonl", rows)
    result = ran(folder)
    assert folder.read("out/u") == folder.read("out/c") != []
    assert len(folder.read("out/b")) == 40
    assert sorted({row["n"] for row in folder.read("out/f")}) == [n for n in range(0, 30, 2) if n != 8]
    assert [row["n"] for row in folder.read("out/by")] == [15]  # the later hour waits for its watermark

    counts = {name: counts for query in result.queries for name, counts in query.nodes.items()}
    parts = counts["u"].parts
    assert {name: (part.rows_in, part.out, part.filtered, part.dead, part.made) for name, part in parts.items()} == {
        "even": (80, 40, 40, 0, 0),
        "spoils": (40, 38, 0, 2, 0),
        "not_eight": (38, 36, 0, 2, 0),
        "twice": (36, 44, 0, 0, 8),
        "long": (44, 44, 0, 0, 0),
    }
    for name, chained in zip(("even", "spoils", "not_eight", "twice", "long"), ("c1", "c2", "c3", "c4", "c5"), strict=True):
        assert parts[name] == counts[chained]
    assert (counts["u"].rows_in, counts["u"].out, counts["u"].dead) == (80, 44, 4)
    assert sum(part.dead for part in counts["f"].parts.values()) == counts["f"].dead == 2
    assert set(counts["f"].parts) == {"not_eight", "under", "even", "even_2"}
    assert counts["m"].parts["under"].rows_in + counts["m"].parts["even"].rows_in > 80

    dead = {
        query: [(letter.step, letter.line, letter.code_line) for letter in letters(folder, "useful", query)] for query in ("u_out", "c_out")
    }
    assert [step for step, _, _ in dead["u_out"]] == ["u.not_eight"] * 2 + ["u.spoils"] * 2
    assert [rest for _, *rest in dead["u_out"]] == [rest for _, *rest in sorted(dead["c_out"], key=lambda each: each[0] != "c3")]
    assert {letter.step for letter in letters(folder, "useful", "f_out")} == {"f.not_eight"}

    orders = [
        decision.orders for decision in Decisions(StateFolder(folder.path / ".scribengin", "useful").query("f_out").decisions).since()
    ]
    assert len(orders) == 2
    assert all(sorted(each["f"]["order"]) == ["even", "even_2", "not_eight", "under"] for each in orders)
    asked = [each["f"]["known"]["evidence"]["masks"] for each in orders]
    assert sum(asked[1].values()) > sum(asked[0].values())  # the second Batch goes on from what the first one has seen


WHOLE = """
version: 1
name: whole
sources:
  rows: {type: files, path: data, format: json, schema: "n BIGINT NOT NULL, ts TIMESTAMP NOT NULL", watermark: ts 1h}
steps:
  u: {from: rows, utilities: ["steps:not_eight", "steps:Under", "steps:even"], order: free}
sinks:
  out: {from: u, type: files, path: out, format: json}
"""


@pytest.mark.parametrize("branches", [None, Branches(("n",), "ts", 60.0)], ids=["in a row", "as branches"])
def test_spread_over_tiers_they_give_what_they_give_in_one_piece(folder: FlowFolder, branches: Branches | None) -> None:
    folder.flow(WHOLE).steps(STEPS).data("data/a.jsonl", [{"n": n, "ts": f"2026-01-01T00:00:{n:02}Z"} for n in range(40)])
    result = run_spread(folder, 9, branches)
    assert len(result.queries) == (3 if branches is None else 4)
    # one piece: 8 is even and under 30, so nobody but the one that raises keeps it out
    assert sorted(row["n"] for row in folder.read("out")) == [n for n in range(0, 30, 2) if n != 8]
    dead = [letter.step for query in result.queries for tier in ("u_1", "u_2") for letter in letters_of(folder, tier, query.name)]
    assert dead == ["u_not_eight.not_eight"]


@pytest.mark.parametrize("tiers", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_union_of_branches_has_what_any_test_keeps_once_in_any_number_of_tiers(folder: FlowFolder, tiers: int) -> None:
    whole = WHOLE.replace('["steps:not_eight", "steps:Under", "steps:even"]', '["steps:low", "steps:tens"]')
    folder.flow(whole).steps(STEPS).data("data/a.jsonl", [{"n": n, "ts": f"2026-01-01T00:00:{n:02}Z"} for n in range(40)])
    result = run_spread(folder, tiers, Branches(("n",), "ts", 60.0, "union"))
    assert len(result.queries) == tiers
    assert sorted(row["n"] for row in folder.read("out")) == [0, 1, 2, 3, 4, 10, 20, 30]  # 0 by both
    counts = {name: counts for query in result.queries for name, counts in query.nodes.items()}
    assert (counts["u"].rows_in, counts["u"].out) == (9, 8)
    dead = sum(query.nodes["u_low"].dead for query in result.queries if "u_low" in query.nodes)
    assert dead == 1, "8, which the other test drops: branches do not ask each other"


AROUND = """
version: 1
name: around
sources:
  rows: {type: files, path: data, format: json, schema: "n BIGINT, word STRING"}
  more: {type: files, path: more, format: json, schema: "n BIGINT, word STRING"}
  names: {type: files, path: names, format: json, schema: "n BIGINT, name STRING", static: true}
steps:
  all: {from: [rows, more], merge: {origin: came_by}}
  u:
    from: all
    utilities: ["steps:even", "steps:spoils", "steps:not_eight", "steps:twice", "steps:Under", "steps:long"]
    schema: "n BIGINT, size BIGINT"
    require: {small: size < 9}
    on_error: drop
  named: {from: [u, names], join: {key: n}}
  per: {from: u, route: {big: size > 3, otherwise: small}}
sinks:
  u_out: {from: u, type: files, path: out/u, format: json}
  named_out: {from: named, type: files, path: out/named, format: json}
  big_out: {from: per.big, type: files, path: out/big, format: json}
  all_out: {from: [all], type: files, path: out/all, format: json}
  more_out: {from: more, type: files, path: out/more, format: json}
"""


def test_a_flow_around_them_is_the_same_in_tiers(folder: FlowFolder, flow_folder: type[FlowFolder], tmp_path: Path) -> None:
    """Several sources, readers and sinks; a class that keeps something; rows that are dropped where they fail, or break a requirement."""
    whole = flow_folder(tmp_path / "whole", folder.spark)
    whole.path.mkdir()
    for each in (folder, whole):
        each.flow(AROUND).steps(STEPS).data("data/a.jsonl", [{"n": n, "word": "w" * n} for n in range(20)])
        each.data("more/a.jsonl", [{"n": n, "word": "w"} for n in range(20, 50)])
        each.data("names/a.jsonl", [{"n": n, "name": f"name {n}"} for n in range(0, 40, 4)])
    ran(whole)
    run_spread(folder, 4)
    for sink in ("u", "named", "big", "all", "more"):
        rows = [sorted(map(str, each.read(f"out/{sink}"))) for each in (whole, folder)]
        assert rows[0] == rows[1] != []


def run_spread(folder: FlowFolder, tiers: int, branches: Branches | None = None) -> RunResult:
    """Of the flow there."""
    declared, problems = validate_file(folder.path / "flow.yaml", {})
    assert declared is not None
    assert [str(problem) for problem in problems if problem.severity == "error"] == []
    text, problems = spread_text(spread(declared, tiers, branches), "flow.yaml")
    assert [str(problem) for problem in problems if problem.severity == "error"] == []
    return ran(folder.flow(text))


def letters_of(folder: FlowFolder, tier: str, query: str) -> list[DeadLetter]:
    return list(read_letters(StateFolder(folder.path / ".scribengin", "whole", tier).query(query)))


def test_a_step_that_has_no_utilities_any_more_is_not_said_to_run_them(folder: FlowFolder) -> None:
    flow = """
version: 1
name: was
sources: {rows: {type: files, path: data, format: json, schema: "n BIGINT, word STRING", max_files: 1}}
steps: {some: {from: rows, HOW}}
sinks: {kept: {from: some, type: files, path: out, format: json}}
"""
    folder.steps(STEPS).data("data/a.jsonl", [{"n": n, "word": "w"} for n in range(8)])
    folder.flow(flow.replace("HOW", 'utilities: ["steps:even", "steps:not_eight"], order: free'))
    (query,) = ran(folder).queries
    assert set(query.orders) == {"some"}
    folder.data("data/b.jsonl", [{"n": 1, "word": "w"}]).flow(flow.replace("HOW", 'python: "steps:even"'))
    (query,) = ran(folder).queries
    assert query.orders == {}
    # nor is it said to have lost what it dropped when it had none; and there and back again
    folder.data("data/c.jsonl", [{"n": 2, "word": "w"}]).flow(flow.replace("HOW", 'utilities: ["steps:even", "steps:not_eight"]'))
    assert set(ran(folder).queries[0].orders) == {"some"}
