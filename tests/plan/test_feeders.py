from __future__ import annotations

from typing import TYPE_CHECKING

from flows import flow, sink, source, step, tweets

from scribengin.plan.ledger_edges import feeders
from scribengin.plan.queries import build_plan
from scribengin.spec.model import Aggregate, Dedupe, Filter, Join, Merge, Python, Route, WindowSpec

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.spec.model import Sink, Source, Step


def test_runs_of_native_steps_are_fed_by_what_their_steps_read(tmp_path: Path) -> None:
    plan = build_plan(tweets(tmp_path))
    kept = next(query for query in plan.queries if query.name == "kept")
    assert feeders(["tweets", "known+hot", "tagged", "kept"], kept, plan.flow) == {
        "known+hot": ("tweets",),
        "tagged": ("known+hot",),
        "kept": ("tagged",),
    }
    assert "kept" not in feeders(["tweets", "kept"], kept, plan.flow), "no Batch with rows for it yet"


def test_readers_of_a_branch_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def one(row):\n    return row\n")
    routed = step("r", "tweets", Route((("big", "id > 1"),)))
    plan = build_plan(
        flow(
            source(),
            step("f", "tweets", Filter("id > 0")),
            routed,
            step("p", "r.big", Python("steps:one")),
            sink("k", "p"),
            folder=tmp_path,
        )
    )
    assert feeders(["tweets", "r", "p", "k"], plan.queries[0], plan.flow) == {"r": ("tweets",), "k": ("p",)}


ONCE = Dedupe(("id",), "ts", 3600.0)
HOURS = Aggregate((), (("n", "count(*)"),), WindowSpec("ts", 3600.0, 3600.0))


def fed(folder: Path, ledger: str, *nodes: Source | Step | Sink) -> dict[str, tuple[str, ...]]:
    """The feeders in the only Query of a flow that reads tweets."""
    (folder / "steps.py").write_text("def one(row):\n    return row\n")
    plan = build_plan(flow(source(), *nodes, folder=folder))
    return feeders(ledger.split(), plan.queries[0], plan.flow)


def test_a_stream_that_a_union_takes_as_it_is_and_behind_a_dedupe_feeds_it_twice(tmp_path: Path) -> None:
    once, both = step("once", "tweets", ONCE), step("both", "tweets once", Merge("union"))
    assert fed(tmp_path, "tweets both+once out", once, both, sink("out", "both")) == {
        "both+once": ("tweets", "tweets"),
        "out": ("both+once",),
    }
    # before a second step with state the two ways are kept apart: one ends at its gate
    hours = step("hours", "both", HOURS)
    assert fed(tmp_path, "tweets both once+both+hours out", once, both, hours, sink("out", "hours")) == {
        "once+both+hours": ("tweets", "both"),
        "out": ("once+both+hours",),
    }


def test_each_way_to_a_step_with_state_is_fed_by_the_run_that_ends_at_its_gate(tmp_path: Path) -> None:
    nodes = (
        step("known", "tweets", Filter("id > 0")),
        step("once", "known", ONCE),
        step("both", "tweets known once", Merge("union")),
        step("hot", "both", Filter("retweets > 500")),
        step("hours", "hot", HOURS),
        sink("out", "hours"),
    )
    ledger = "tweets known both+hot known+both+hot once+both+hot+hours out"
    assert fed(tmp_path, ledger, *nodes)["once+both+hot+hours"] == ("known", "both+hot", "known+both+hot")


def test_behind_a_python_step_both_ways_of_a_union_are_one_where_they_enter_the_state_at_once(tmp_path: Path) -> None:
    nodes = (step("once", "tweets", ONCE), step("both", "tweets once", Merge("union")), step("same", "both", Python("steps:one")))
    end = (step("hours", "same", HOURS), sink("out", "hours"))
    assert fed(tmp_path, "tweets both once+both same hours out", *nodes, *end) == {
        "once+both": ("tweets",),
        "same": ("both", "once+both"),
        "hours": ("same",),
        "out": ("hours",),
    }
    # a filter between takes them apart, and nobody has counted which of the step's rows went which way
    end = (step("hot", "same", Filter("id > 0")), step("hours", "hot", HOURS), sink("out", "hours"))
    found = fed(tmp_path, "tweets both once+both same hot hot+hours out", *nodes, *end)
    assert found == {"once+both": ("tweets",), "same": ("both", "once+both"), "out": ("hot+hours",)}


def test_a_table_that_is_looked_up_behind_a_step_with_state_feeds_its_run(tmp_path: Path) -> None:
    table = source("people", columns="user STRING, name STRING", watermark=None, static=True)
    nodes = (
        table,
        step("once", "tweets", ONCE),
        step("named", "once people", Join(("user",), "left")),
        step("hours", "named", HOURS),
        sink("out", "hours"),
    )
    assert fed(tmp_path, "tweets people once+named+hours out", *nodes)["once+named+hours"] == ("tweets", "people")


def test_a_run_before_a_step_without_a_watermark_is_not_cut_at_a_gate(tmp_path: Path) -> None:
    nodes = (step("known", "tweets", Filter("id > 0")), step("once", "known", Dedupe(("id",), None, None)), sink("out", "once"))
    assert fed(tmp_path, "tweets known+once out", *nodes)["known+once"] == ("tweets",)
