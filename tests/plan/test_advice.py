"""What `plan` says of cuts from the counts of earlier runs, and what it keeps to itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flows import flow, sink, source, step

from scribengin.plan.advice import cut_advice
from scribengin.plan.tier_flows import plan_flow
from scribengin.spec.model import Dedupe, Filter, Group, Member, Tier
from scribengin.state.contract import Counts
from scribengin.state.totals import SinkTotals, Totals

if TYPE_CHECKING:
    from scribengin.spec.model import Flow


def cut(**groups: str) -> Flow:
    """tweets → a | hot → kept; `groups`: tier → group."""
    steps = [step("a", "tweets", Filter("id > 1")), step("hot", "a", Filter("id > 2"))]
    tiers = {"x": ("a",), "y": ("hot", "kept")}
    return replace(
        flow(source(), *steps, sink("kept", "hot")),
        tiers={name: Tier(name, ids, groups.get(name)) for name, ids in tiers.items()},
        groups={"h": Group("h", (Member("here", "m1"),))},
    )


def counted(taken: int, dropped: int) -> dict[tuple[str, str], Totals]:
    rows = Counts(rows_in=taken, out=taken)
    return {
        ("x", "a_to_y"): Totals(1, {"tweets": rows, "a": rows}, {"a_to_y": SinkTotals(taken, 2**20, 1)}),
        ("y", "kept"): Totals(1, {"a": rows, "hot": Counts(rows_in=taken, out=taken - dropped, filtered=dropped)}),
    }


def advice(made: Flow, counts: dict[tuple[str, str], Totals]) -> list[str]:
    return list(cut_advice(plan_flow(made), counts))


def test_a_filter_behind_a_cut_that_drops_most_of_what_is_carried_is_to_be_moved_before_it() -> None:
    assert advice(cut(), counted(1000, 970)) == [
        "move `hot` into the tier before the channel: 97 % of the rows of a_to_y are dropped by its first step"
    ]


def test_nothing_is_said_of_a_filter_that_keeps_most_nor_of_a_handful_of_rows_nor_before_the_first_run() -> None:
    assert advice(cut(), counted(1000, 400)) == []
    assert advice(cut(), counted(50, 49)) == []
    assert advice(cut(), {}) == []


def test_nothing_is_said_where_another_reader_needs_the_rows() -> None:
    made = cut()
    made = replace(made, sinks=made.sinks | {"all": sink("all", "a")}, tiers=made.tiers | {"y": Tier("y", ("hot", "kept", "all"))})
    counts = counted(1000, 970)
    counts["y", "all"] = Totals(1, {"a": Counts(rows_in=1000, out=1000), "all": Counts(rows_in=1000, out=1000)})
    assert advice(made, counts) == []


def test_nothing_is_said_of_a_step_that_keeps_state() -> None:
    made = cut()
    made = replace(made, steps=made.steps | {"hot": step("hot", "a", Dedupe(("id",)))})
    assert advice(made, counted(1000, 970)) == []


def test_almost_all_is_not_all() -> None:
    assert "99.9 %" in advice(cut(), counted(100_000, 99_999))[0]
    assert "100 %" in advice(cut(), counted(1000, 1000))[0]


def test_a_tier_that_passes_on_every_row_is_named() -> None:
    steps = [step("a", "tweets", Filter("id > 1")), step("b", "a", Filter("id > 0")), step("c", "b", Filter("id > 2"))]
    made = flow(source(), *steps, sink("kept", "c"))
    made = replace(made, tiers={name: Tier(name, ids) for name, ids in {"x": ("a",), "y": ("b",), "z": ("c", "kept")}.items()})
    rows = Counts(rows_in=500, out=500)
    passing = {("y", "b_to_z"): Totals(1, {"a": rows, "b": rows, "b_to_z": rows})}
    assert advice(made, passing) == [
        "tier y passes on all of the 500 rows that it receives: merge it with a neighbouring tier to save one channel"
    ]
    dropping = {("y", "b_to_z"): Totals(1, {"a": rows, "b": Counts(rows_in=500, out=499, filtered=1)})}
    assert advice(made, dropping) == []


def test_two_tiers_on_one_named_group_are_told_what_lies_between_them() -> None:
    (said,) = advice(cut(x="h", y="h"), counted(1000, 0))
    assert (
        said
        == "tiers x and y run on the same group, h: a_to_y has carried 1,000 rows, 1.0 MiB; merged into one tier they would need no channel"
    )
    assert advice(cut(x="h"), counted(1000, 0)) == []
