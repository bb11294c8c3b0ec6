"""Which sinks can go to a group: those that declare it, and these have all that a member needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors import catalog
from scribengin.core.errors import InputError
from scribengin.local.prepare import open_sinks, prepare

if TYPE_CHECKING:
    from pathlib import Path

TYPES = sorted(catalog.sink_types())
ABLE = [type_ for type_ in TYPES if catalog.sink_types()[type_].by_member is not None]
FLOW = """
version: 1
name: grouped
sources: {rows: {type: sequence}}
sinks:
  kept: {from: rows, delivery: DELIVERY, type: TYPE, to: places, OPTIONS}
groups: {places: {members: [{at: AT}]}}
"""


def flow(tmp_path: Path, type_: str, *, at: str = "b1:9092", **beside: str) -> Path:
    declared = catalog.sink_types()[type_]
    named = declared.by_member
    own = {o.name: o.example for o in declared.options if o.required and (o is not named or o.kind == "path")}
    own |= {"topic": "t"} if type_ == "kafka" else {}
    options = ", ".join(f"{name}: {value}" for name, value in (own | beside).items())
    delivery = "exactly_once" if "exactly_once" in declared.abilities else "at_least_once"
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW.replace("TYPE", type_).replace("OPTIONS", options).replace("DELIVERY", delivery).replace("AT", at))
    return path


def problems(path: Path) -> list[Any]:
    with pytest.raises(InputError) as told:
        prepare(path, state=None)
    return [problem for problem in told.value.problems if problem.code.startswith("group-")]


def test_some_can_and_most_cannot() -> None:
    assert ABLE == ["files", "kafka"]


@pytest.mark.parametrize("type_", [type_ for type_ in TYPES if type_ not in ABLE])
def test_a_sink_that_cannot_is_refused_at_its_line_with_what_can(tmp_path: Path, type_: str) -> None:
    (problem,) = problems(flow(tmp_path, type_))
    assert (problem.code, problem.place.line) == ("group-sink", 6)
    assert f"a sink of type {type_} cannot go to a group" in problem.message
    assert "take `to` out" in problem.remedy
    assert "files, kafka" in problem.remedy


@pytest.mark.parametrize("type_", ABLE)
def test_a_sink_that_can_has_all_that_a_group_asks_of_a_member(tmp_path: Path, type_: str) -> None:
    prepared = prepare(flow(tmp_path, type_), state=None)
    sink: Any = open_sinks(prepared.plan.tiers[0].flow)["kept"]
    for member in sink._sinks.values():
        for needed in ("look", "prepare", "recover", "publish", "audit", "stream"):
            assert callable(getattr(member, needed, None)), needed


def test_brokers_of_members_are_looked_at_as_a_bootstrap_is(tmp_path: Path) -> None:
    (problem,) = problems(flow(tmp_path, "kafka", at="/mnt/a"))
    assert (problem.code, problem.place.line) == ("group-place", 7)
    assert 'member "m1" of group "places", whose `at` is the bootstrap of sink "kept", has "/mnt/a"' in problem.message


def test_a_bootstrap_beside_a_group_is_said_to_have_no_effect(tmp_path: Path) -> None:
    path = flow(tmp_path, "kafka", bootstrap="b0:9092")
    (warning,) = [problem for problem in prepare(path, state=None).warnings if problem.code == "group-option"]
    assert (warning.place.line, warning.severity) == (6, "warning")
