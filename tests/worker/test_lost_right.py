"""A right that is gone for a moment ends an attempt; it is no failure for which a person is needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.control.world import RunId
from scribengin.core.errors import FencedError, StateError
from scribengin.worker.attempt import TierAttempt
from scribengin.worker.service import AttemptOutcome
from scribengin.worker.status_page import Glance

if TYPE_CHECKING:
    from scribengin.local.contract import RunResult


class Right:
    """Held or not, as the test says."""

    path = "flows/f/tiers/t/lease"
    held = True

    def check(self) -> None:
        if not self.held:
            raise FencedError("the right is not held any more")


class Committing(TierAttempt):
    """Looks at its right as a Batch does before it commits, and then meets something else that may fail."""

    then: Exception | None = None

    def _run(self, **_: Any) -> RunResult:
        self._right.check()
        assert self.then is not None
        raise self.then


def attempt(right: Right) -> Committing:
    none: Any = None
    return Committing(none, RunId("f", "t", 1), none, right, none, Glance(none, RunId("f", "t", 1), none, 1))


def outcome(attempt: Committing) -> AttemptOutcome:
    return attempt(once=False, stop=threading.Event(), tell=lambda _standing: pytest.fail("nothing is to be told"))


def test_an_attempt_whose_right_was_gone_is_stopped_not_failed_and_the_next_one_is_judged_anew() -> None:
    right = Right()
    attempted = attempt(right)
    right.held = False
    assert outcome(attempted) == AttemptOutcome("stopped")
    right.held = True  # the session has lived on
    attempted.then = StateError("something else")
    failed = outcome(attempted)
    assert (failed.state, failed.cause, failed.permanent) == ("failed", "something else", True)


def test_to_be_fenced_by_another_driver_while_the_right_is_held_is_a_failure() -> None:
    attempted = attempt(Right())
    attempted.then = FencedError("batch 3 was decided under term 5")
    assert outcome(attempted).permanent
