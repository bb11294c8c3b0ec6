"""Tables as sources: what their mode needs, what the plan promises of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.plan.tier_flows import plan_flow
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """version: 1
name: copy
sources:
  orders: {{type: postgres, server: "{server}", table: orders{options}}}
sinks:
  kept: {{from: orders, type: files, path: out, format: json{sink}}}
"""


def told(folder: Path, options: str, *, sink: str = "", server: str = "postgresql://etl@db1/shop") -> list[tuple[str, str]]:
    path = folder / "flow.yaml"
    path.write_text(FLOW.format(server=server, options=options, sink=sink))
    _, problems = validate_file(path, {})
    return [(problem.code, problem.message) for problem in problems]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (", mode: incremental", "has mode: incremental but no `by`"),
        (", by: at", 'has "by", which mode: snapshot does not use'),
        (", settle: 2s", 'has "settle", which mode: snapshot does not use'),
        (", waits_for: writers", 'has "waits_for", which mode: snapshot does not use'),
        (", static: true, mode: incremental, by: at", "is static and has mode: incremental; a static source is read completely"),
    ],
)
def test_what_a_mode_needs_and_does_not_look_at(tmp_path: Path, options: str, said: str) -> None:
    found = [message for code, message in told(tmp_path, options) if code == "table-mode"]
    assert len(found) == 1
    assert said in found[0]


def test_a_flow_that_is_right_has_no_problem(tmp_path: Path) -> None:
    assert told(tmp_path, "") == []
    assert told(tmp_path, ", mode: incremental, by: at, key: [id], settle: 2s, waits_for: writers") == []


def test_a_password_in_the_address_is_told_and_not_shown(tmp_path: Path) -> None:
    found = told(tmp_path, "", server="postgresql://etl:hunter2@db1/shop")
    assert [code for code, _ in found] == ["secret-in-plain"]
    assert "hunter2" not in found[0][1]


def test_a_table_that_is_taken_as_it_is_then_lowers_the_guarantee_and_the_sink_must_agree(tmp_path: Path) -> None:
    ((code, message),) = told(tmp_path, ", on_change: ignore")
    assert code == "delivery-unsupported"
    assert "postgres with on_change: ignore" in message
    for options, sink, guarantee in (
        ("", "", "exactly once"),
        (", on_change: ignore", ", delivery: at_least_once", "at least once"),
    ):
        assert told(tmp_path, options, sink=sink) == []
        flow, _ = validate_file(tmp_path / "flow.yaml", {})
        assert flow is not None
        (tier,) = plan_flow(flow).tiers
        (path,) = [path for query in tier.queries for path in query.guarantees]
        assert path.guarantee == guarantee
    assert path.reason == "postgres with on_change: ignore cannot be re-read identically"


def test_units_that_commit_by_themselves_only_add_rows(tmp_path: Path) -> None:
    sink = "type: postgres, server: 'postgresql://etl@db1/shop', table: copy, visible: unit"
    path = tmp_path / "flow.yaml"
    flow = FLOW.replace("type: files, path: out, format: json", sink)
    path.write_text(flow.format(server="postgresql://etl@db1/shop", options="", sink=""))
    checked, problems = validate_file(path, {})
    assert checked is not None
    assert not problems
    (guarantee,) = [path for query in plan_flow(checked).tiers[0].queries for path in query.guarantees]
    assert (guarantee.guarantee, "postgres commits each task output of a Batch once" in guarantee.reason) == ("exactly once", True)
    path.write_text(flow.format(server="postgresql://etl@db1/shop", options="", sink=", mode: upsert, key: [id]"))
    (problem,) = validate_file(path, {})[1]
    assert (problem.code, problem.place.line) == ("table-mode", 6)
    assert "has visible: unit and mode: upsert" in problem.message
