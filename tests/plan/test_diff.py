from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from flows import flow, sink, source, step, tweets

from scribengin.plan.diff import StoredQuery, diff_plans
from scribengin.plan.queries import build_plan
from scribengin.spec.model import Filter, Flow, Merge, Sql

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.plan.model import Plan


def stored(plan: Plan, last_batch: int | None = 7) -> dict[str, StoredQuery]:
    """What the state folder tells after that plan ran."""
    return {
        query.name: StoredQuery(
            query.name, "l1", query.fingerprint, query.state_fingerprint, dict.fromkeys(query.sources, 4), last_batch, query.parts
        )
        for query in plan.queries
    }


@pytest.fixture
def made(tmp_path: Path) -> Flow:
    return tweets(tmp_path)


def changed(flow: Flow, **steps: object) -> Plan:
    return build_plan(replace(flow, steps={**flow.steps, **steps}))  # type: ignore[dict-item]


def test_a_first_run_starts_everything(made: Flow) -> None:
    changes = diff_plans({}, build_plan(made))
    assert [change.fate for change in changes.queries] == ["new", "new"]
    assert "tweets from the start" in changes.queries[0].says


def test_the_same_flow_goes_on(made: Flow) -> None:
    plan = build_plan(made)
    changes = diff_plans(stored(plan), plan)
    assert [change.fate for change in changes.queries] == ["unchanged", "unchanged"]
    assert "after Batch 7; nothing is re-read" in changes.queries[0].says


def test_a_changed_filter_keeps_the_state_and_is_named(made: Flow) -> None:
    after = changed(made, hot=step("hot", "known", Filter("retweets > 5")))
    changes = diff_plans(stored(build_plan(made)), after)
    assert [(change.fate, change.changed) for change in changes.queries] == [("kept", ("hot",)), ("kept", ("hot",))]
    assert not changes.refused


def test_a_sink_of_another_type_is_refused_once_a_batch_was_decided_for_it(made: Flow) -> None:
    plan = build_plan(made)
    sink = plan.queries[0].sinks[0]
    before = {name: replace(query, types={sink: "console"}, fingerprint="other") for name, query in stored(plan).items()}
    refused = next(change for change in diff_plans(before, plan).queries if change.fate == "refused")
    assert refused.name == plan.queries[0].name
    assert refused.says == f"the type of sink {sink} changed from console to files: its committed Batches do not apply to the new type"
    assert f'give sink "{sink}" another id' in refused.remedy
    assert not diff_plans({name: replace(query, last_batch=None, sources={}) for name, query in before.items()}, plan).refused


def test_a_changed_grouping_is_refused_with_what_to_do(made: Flow) -> None:
    text = "SELECT window(ts, '1 day').start AS hour, count(*) AS n FROM tagged GROUP BY window(ts, '1 day')"
    changes = diff_plans(stored(build_plan(made)), changed(made, by_hour=step("by_hour", "tagged", Sql(text))))
    kept, counts = changes.queries
    assert (kept.fate, counts.fate, counts.changed) == ("unchanged", "refused", ("by_hour",))
    assert changes.refused
    assert counts.remedy.endswith("start over: scribengin reset FLOW --outputs")


def test_a_query_may_change_freely_before_its_first_batch(made: Flow) -> None:
    before = {name: replace(query, sources={}) for name, query in stored(build_plan(made), last_batch=None).items()}
    text = "SELECT window(ts, '1 day').start AS hour, count(*) AS n FROM tagged GROUP BY window(ts, '1 day')"
    changes = diff_plans(before, changed(made, by_hour=step("by_hour", "tagged", Sql(text))))
    assert changes.queries[1].fate == "kept"


def test_a_query_that_begins_or_ceases_to_keep_state_needs_a_new_checkpoint() -> None:
    plain = build_plan(flow(source(), step("a", "tweets", Filter("id > 1")), sink("k", "a")))
    distinct = build_plan(flow(source(), step("a", "tweets", Sql("SELECT DISTINCT ts FROM tweets")), sink("k", "a")))
    assert "would keep state" in diff_plans(stored(plain), distinct).queries[0].says
    assert "no longer keeps state" in diff_plans(stored(distinct), plain).queries[0].says


def test_sources_that_come_and_go_are_told() -> None:
    one = build_plan(flow(source(), step("m", "tweets", Filter("id > 1")), sink("k", "m")))
    two = build_plan(flow(source(), source("b"), step("m", "tweets b", Merge()), sink("k", "m")))
    assert "reads b from the start" in diff_plans(stored(one), two).queries[0].says
    assert "no longer reads b" in diff_plans(stored(two), one).queries[0].says


def test_a_query_that_is_gone_is_told_last(made: Flow) -> None:
    plan = build_plan(made)
    fewer = build_plan(replace(made, sinks={"kept": made.sinks["kept"]}))
    assert [(change.name, change.fate) for change in diff_plans(stored(plan), fewer).queries] == [("kept", "unchanged"), ("counts", "gone")]
