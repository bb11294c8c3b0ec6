"""What a run that failed means for its worker."""

from __future__ import annotations

import pytest

from scribengin.core.problems import Place, Problem
from scribengin.local.contract import QueryResult, RunResult
from scribengin.state.contract import Counts
from scribengin.worker.attempt import _outcome


@pytest.mark.parametrize(("code", "permanent"), [("fenced", False), ("python-error", True)])
def test_a_query_that_failed_waits_for_a_person_unless_it_was_fenced(code: str, permanent: bool) -> None:
    query = QueryResult("kept", "failed", 1, 1.0, Counts(), Counts(), {}, error="the right is not held any more")
    result = RunResult("tweets", "failed", "", (query,), balanced=True, problems=(Problem(code, Place(""), "x"),))
    outcome = _outcome(result)
    assert (outcome.state, outcome.permanent) == ("failed", permanent)
    assert outcome.cause == "query kept: the right is not held any more"
