"""Which Queries several workers can share, and what is said where they cannot."""

from __future__ import annotations

import pytest
from flows import flow, sink, source, step

from scribengin import frame
from scribengin.plan.queries import build_plan
from scribengin.plan.workers import why_alone, why_whole
from scribengin.spec.model import Action, Dedupe, Filter, Join, Python

SOME = Filter("id > 5")
TABLE = source("names", columns="id BIGINT, name STRING", watermark=None, static=True)


@pytest.mark.parametrize(
    ("action", "inputs", "why"),
    [
        (SOME, "some", ""),
        (Dedupe(("id",), "ts", 600.0), "some", "step last keeps state, which only one worker can hold"),
        (Join(("id",)), "some names", "source names is static; each worker would read and count all of it"),
        (Python("frames:f", function=frame(lambda rows: rows)), "some", "step last is a @frame function, which may combine several rows"),
    ],
    ids=["filter", "state", "table", "frame"],
)
def test_why_a_query_is_run_whole(action: Action, inputs: str, why: str) -> None:
    tables = [TABLE] if "names" in inputs else []
    plan = build_plan(flow(source(), *tables, step("some", "tweets", SOME), step("last", inputs, action), sink("kept", "last")))
    assert (why_whole(plan, plan.queries[0]), why_alone(plan)) == (why, why)


def test_workers_are_of_use_where_they_share_one_query_at_least() -> None:
    state = step("once", "some", Dedupe(("id",), "ts", 600.0))
    plan = build_plan(flow(source(), step("some", "tweets", SOME), state, sink("all", "some"), sink("kept", "once")))
    assert sorted(bool(why_whole(plan, query)) for query in plan.queries) == [False, True]
    assert why_alone(plan) == ""
