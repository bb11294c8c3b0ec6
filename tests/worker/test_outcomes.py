"""What a run that failed means for its worker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scribengin.core.problems import Place, Problem
from scribengin.local.contract import QueryResult, QueryView, RunResult, RunView
from scribengin.state.contract import Counts
from scribengin.worker.attempt import _outcome, standing_of
from scribengin.worker.service import AttemptStatus


@pytest.mark.parametrize(("code", "permanent"), [("fenced", False), ("channel-columns", False), ("python-error", True)])
def test_a_query_that_failed_needs_a_person_unless_the_next_process_goes_on(code: str, permanent: bool) -> None:
    query = QueryResult("kept", "failed", 1, 1.0, Counts(), Counts(), {}, error="the right is not held any more")
    result = RunResult("tweets", "failed", "", (query,), balanced=True, problems=(Problem(code, Place(""), "x"),))
    outcome = _outcome(result)
    assert (outcome.state, outcome.permanent) == ("failed", permanent)
    assert outcome.cause == "query kept: the right is not held any more"


def view(*queries: QueryView) -> RunView:
    return RunView("tweets", "running", 1.0, queries)


KEPT = QueryView("kept", "running", batches=1, ready=True)
DEAD = replace(KEPT, name="counts", dead_cause="more than half of the records of this run are dead letters")


def test_a_tier_is_ready_once_each_of_its_queries_is() -> None:
    for other, ready in ((KEPT, True), (replace(KEPT, ready=False, batches=0), False)):
        standing = standing_of(view(KEPT, other))
        assert standing is not None
        assert (standing.state, standing.ready) == ("running", ready)


def test_too_many_dead_letters_are_reported_and_degrade_where_the_flow_says_so() -> None:
    assert standing_of(view(KEPT, DEAD)) == AttemptStatus("running", 2, f"query counts: {DEAD.dead_cause}", ready=True)
    degraded = replace(DEAD, name="late", degraded=True, dead_cause="more than max_dead allows")
    assert standing_of(view(DEAD, degraded)) == AttemptStatus("degraded", 2, "query late: more than max_dead allows", ready=True)
    failed = replace(KEPT, state="failed", message="no such id")
    assert standing_of(view(degraded, failed)) == AttemptStatus("degraded", 2, "query kept: no such id", ready=True)
