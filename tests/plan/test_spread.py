"""Utilities in tiers: what runs where, that nothing of the flow is lost by it, and what cannot be spread."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import Refused
from scribengin.plan.spread_utilities import Branches, read_branches, spread, spread_text
from scribengin.plan.tier_flows import plan_flow
from scribengin.plan.validate import validate_file
from scribengin.spec.model import Dedupe, Merge, Utilities

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.spec.model import Flow

STEPS = "".join(f"def {name}(row) -> bool:\n    return True\n\n\n" for name in "abcde")
BRANCHES = Branches(("id",), "ts", 600.0)


def declared(folder: Path, utilities: str = "abcde", order: str = "free", schema: str = "NOT NULL") -> Flow:
    (folder / "steps.py").write_text(STEPS)
    listed = ", ".join(f'"steps:{name}"' for name in utilities)
    (folder / "data").mkdir(exist_ok=True)
    (folder / "shop.yaml").write_text(f"""version: 1
name: shop
sources:
  n: {{type: files, path: data, format: json, schema: "id BIGINT {schema}, ts TIMESTAMP {schema}", watermark: ts 1m}}
  bare: {{type: files, path: data, format: json, schema: "id BIGINT NOT NULL, ts TIMESTAMP NOT NULL"}}
steps:
  before: {{from: n, filter: id > 1}}
  u: {{from: before, utilities: [{listed}], order: {order}, on_error: drop}}
  behind: {{from: u, filter: id > 3}}
  aside: {{from: bare, filter: id > 3}}
sinks:
  kept: {{from: behind, type: console}}
  seen: {{from: aside, type: console}}
""")
    flow, problems = validate_file(folder / "shop.yaml", os.environ)
    assert flow is not None
    assert [problem for problem in problems if problem.severity == "error"] == []
    return flow


@pytest.mark.parametrize(
    ("tiers", "runs"),
    [
        (1, {}),
        (2, {"u_1": "abc", "u_2": "de"}),
        (3, {"u_1": "ab", "u_2": "cd", "u_3": "e"}),
        (5, {"u_1": "a", "u_2": "b", "u_3": "c", "u_4": "d", "u_5": "e"}),
        (9, {"u_1": "a", "u_2": "b", "u_3": "c", "u_4": "d", "u_5": "e"}),
    ],
)
def test_each_tier_has_its_run_and_all_runs_are_the_whole_in_order(tmp_path: Path, tiers: int, runs: dict[str, str]) -> None:
    flow = declared(tmp_path)
    made = spread(flow, tiers)
    assert {tier: "".join(names) for tier, names in made.runs.items()} == runs
    actions = [step.action for step in made.flow.steps.values() if isinstance(step.action, Utilities)]
    assert [reference for action in actions for reference in action.references] == [f"steps:{name}" for name in "abcde"]
    assert {step.on_error for step in made.flow.steps.values() if isinstance(step.action, Utilities)} == {"drop"}
    _, problems = spread_text(made, "shop.yaml (spread)")
    assert [str(problem) for problem in problems if problem.severity == "error"] == []
    if runs:
        planned = plan_flow(made.flow)
        assert [plan.tier for plan in planned.tiers] == list(runs)
        where = {node.id: plan.tier for plan in planned.tiers for query in plan.queries for node in query.nodes if node.id in flow.steps}
        last = list(runs)[-1]
        assert where == {"before": "u_1", "u": last, "behind": last, "aside": "u_1"}


def test_long_names_are_cut_and_stay_names(tmp_path: Path) -> None:
    flow = declared(tmp_path)
    long = "u" * 63
    steps = {name: replace(step, inputs=tuple(long if each == "u" else each for each in step.inputs)) for name, step in flow.steps.items()}
    steps[long] = replace(steps.pop("u"), id=long)
    made = spread(replace(flow, steps=steps), 3)
    assert [*made.runs] == [f"{'u' * 61}_{number}" for number in (1, 2, 3)]
    assert [name for name in made.flow.steps if name not in flow.steps] == [f"{'u' * 61}_a", f"{'u' * 61}_c", long]
    _, problems = spread_text(made, "shop.yaml (spread)")
    assert [str(problem) for problem in problems if problem.severity == "error"] == []


def test_branches_have_all_rows_and_meet_two_by_two_in_the_last_tier(tmp_path: Path) -> None:
    made = spread(declared(tmp_path, "abc"), 9, BRANCHES)
    assert made.lines() == ["tier u_1: a", "tier u_2: b", "tier u_3: c", "tier u_4: rows that all of them keep"]
    steps = made.flow.steps
    assert [steps[id_].inputs for id_ in ("u_a", "u_b", "u_c")] == [("before",)] * 3
    assert (steps["u_meet_1"].inputs, steps["u"].inputs) == (("u_a", "u_b"), ("u_meet_1", "u_c"))
    assert steps["u"].action == Merge("intersect", ("id",), "ts", 600.0)
    _, problems = spread_text(made, "shop.yaml (spread)")
    assert [str(problem) for problem in problems if problem.severity == "error"] == []


@pytest.mark.parametrize(
    ("tiers", "lines"),
    [
        (1, ["the utilities of step u are not split: only one tier is available; the output is rows that any of them keeps"]),
        (2, ["tier u_1: a, b, c", "tier u_2: rows that any of them keeps"]),
        (3, ["tier u_1: a, b", "tier u_2: c", "tier u_3: rows that any of them keeps"]),
        (9, ["tier u_1: a", "tier u_2: b", "tier u_3: c", "tier u_4: rows that any of them keeps"]),
    ],
)
def test_a_union_means_the_same_in_any_number_of_tiers_each_test_a_branch(tmp_path: Path, tiers: int, lines: list[str]) -> None:
    made = spread(declared(tmp_path, "abc"), tiers, replace(BRANCHES, how="union"))
    assert made.lines() == lines
    steps = made.flow.steps
    assert [(steps[id_].inputs, steps[id_].action) for id_ in ("u_a", "u_b", "u_c")] == [
        (("before",), Utilities((f"steps:{name}",), "free")) for name in "abc"
    ]
    assert (steps["u_together"].inputs, steps["u_together"].action) == (("u_a", "u_b", "u_c"), Merge())
    assert (steps["u"].inputs, steps["u"].action) == (("u_together",), Dedupe(("id",), "ts", 600.0))
    _, problems = spread_text(made, "shop.yaml (spread)")
    assert [str(problem) for problem in problems if problem.severity == "error"] == []


@pytest.mark.parametrize(
    ("tiers", "utilities", "why"), [(2, "abc", "branches need three tiers"), (1, "abc", "one tier"), (9, "a", "only one utility")]
)
def test_what_stays_in_one_piece_says_why(tmp_path: Path, tiers: int, utilities: str, why: str) -> None:
    flow = declared(tmp_path, utilities)
    made = spread(flow, tiers, BRANCHES)
    assert (made.flow, made.runs) == (flow, {})
    assert why in made.lines()[0]


def test_parts_take_names_that_nobody_has(tmp_path: Path) -> None:
    """Of nodes, of each other, and of what brings branches together; and names of functions need not be those of steps."""
    flow = declared(tmp_path, "abc")
    called = replace(flow.steps["u"], action=Utilities(("steps:a", "more:meet_1", "steps:Gr\u00f6\u00dfe", "steps:u"), "free"))
    taken = replace(flow, steps={**flow.steps, "u": called, "u_a": replace(flow.steps["aside"], id="u_a")})
    assert [id_ for id_ in spread(taken, 9).flow.steps if id_ not in taken.steps] == ["u_a_2", "u_meet_1", "u_gr__e"]
    branched = spread(taken, 9, BRANCHES)
    new = {id_: step.inputs for id_, step in branched.flow.steps.items() if id_ not in taken.steps}
    assert [*new] == ["u_a_2", "u_meet_1", "u_gr__e", "u_u", "u_meet_1_2", "u_meet_2"]
    assert (new["u_meet_1_2"], new["u_meet_2"], branched.flow.steps["u"].inputs) == (
        ("u_a_2", "u_meet_1"),
        ("u_meet_1_2", "u_gr__e"),
        ("u_meet_2", "u_u"),
    )


def test_a_step_above_may_have_the_watermark_by_which_branches_meet(tmp_path: Path) -> None:
    flow = declared(tmp_path, "abc")
    source = flow.sources["n"]
    bare = replace(flow, sources={**flow.sources, "n": replace(source, watermark=None)})
    with pytest.raises(Refused, match='source "n" has no watermark'):
        spread(bare, 4, BRANCHES)
    marked = replace(bare, steps={**flow.steps, "before": replace(flow.steps["before"], watermark=source.watermark)})
    assert spread(marked, 4, BRANCHES).consolidates == "u_4"


def test_tests_stay_with_the_flow_whose_utilities_they_name(tmp_path: Path) -> None:
    declared(tmp_path)
    test = "{name: t, given: {n: [{id: 2, ts: 2026-01-01}]}, expect: {dead: {u.a: {count: 1}}}}"
    with (tmp_path / "shop.yaml").open("a") as file:
        file.write(f"tests: [{test}, other.test.yaml]\n")
    (tmp_path / "other.test.yaml").write_text(f"tests: [{test.replace('name: t', 'name: o')}]\n")
    flow, problems = validate_file(tmp_path / "shop.yaml", os.environ)
    assert flow is not None
    assert [str(problem) for problem in problems if problem.severity == "error"] == []
    assert (len(flow.tests), len(flow.test_files)) == (1, 1)
    for branches in (None, BRANCHES):
        _, problems = spread_text(spread(flow, 3, branches), "shop.yaml (spread)")
        assert [str(problem) for problem in problems if problem.severity == "error"] == []


def test_what_cannot_be_spread_is_told(tmp_path: Path) -> None:
    flow = declared(tmp_path)
    two = replace(flow, steps={**flow.steps, "v": replace(flow.steps["u"], id="v")})
    none = replace(flow, steps={id_: step for id_, step in flow.steps.items() if id_ != "u"})
    for made, told in ((two, "2 steps of utilities: u, v"), (none, "no step of utilities")):
        with pytest.raises(Refused, match=told):
            spread(made, 2)


@pytest.mark.parametrize(
    ("order", "schema", "branches", "told"),
    [
        ("fixed", "NOT NULL", "id ts 10m", "may depend on the utility before it"),
        ("free", "", "id ts 10m", 'column "id" may be null'),
        ("free", "NOT NULL", "ids ts 10m", 'reads no column "ids"'),
        ("free", "NOT NULL", "id ts", "is not a valid value of --branches"),
        ("free", "NOT NULL", "id ts 10", '"10" has no unit'),
        ("free", "NOT NULL", "id ts 10m both", '"both" is neither union nor intersect'),
        ("free", "NOT NULL", "id+ ts 10m", 'the key "id+" has an empty column name'),
    ],
)
def test_branches_that_could_not_meet_are_refused(tmp_path: Path, order: str, schema: str, branches: str, told: str) -> None:
    flow = declared(tmp_path, order=order, schema=schema)
    with pytest.raises(Refused) as raised:
        spread(flow, 3, read_branches(branches))
    assert told in raised.value.message


def test_a_flow_that_is_cut_already_stays_as_it_is_cut(tmp_path: Path) -> None:
    made = spread(declared(tmp_path), 2)
    with pytest.raises(Refused):
        spread(made.flow, 3)
