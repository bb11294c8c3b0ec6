"""When alerts fire, and when they end: each rule over what was heard, and a clock."""

from __future__ import annotations

import pytest
from watched_flow import Tier, a_tier

from scribengin.spec.alerts import FORMS, parse_condition, show_condition
from scribengin.watching.alerts import AlertState, WatchedFlow, next_state
from scribengin.watching.flow_figures import figures_of


class Rule:
    """One alert of one flow, looked at each time it is asked."""

    def __init__(self, when: str, tier: Tier) -> None:
        self.when, self.tier, self.state = when, tier, AlertState()
        self.since = tier.clock()

    def looks(self) -> str:
        tiers, now = self.tier.board.tiers("tweets"), self.tier.clock()
        seen = WatchedFlow(figures_of("tweets", tiers, now), tiers, frozenset({"main"}), self.since)
        self.state = next_state(self.state, self.when, seen, now)
        return self.state.standing


def waits(tier: Tier, seconds: int, rows: int = 0, **figures: float | int) -> None:
    for _ in range(seconds):
        tier.moves(rows, **figures)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_reads_back_as_it_is_shown(form: str) -> None:
    assert parse_condition(show_condition(parse_condition(form))) == parse_condition(form)


def test_no_progress_fires_when_something_waits_and_no_batch_comes_through() -> None:
    tier = a_tier()
    rule = Rule("no progress for 1m", tier)
    waits(tier, 100)  # nothing waits: nothing is wrong
    assert rule.looks() == "quiet"
    waits(tier, 59, lag_rows=5)
    assert rule.looks() == "pending"
    waits(tier, 2)
    assert rule.looks() == "firing"
    assert rule.state.value == "no Batch of main was committed for 1m01s"
    tier.moves(10)
    assert rule.looks() == "quiet"
    waits(tier, 29)
    assert rule.looks() == "quiet"  # each Batch takes its time


def test_no_progress_fires_for_a_worker_that_falls_silent_or_never_came() -> None:
    tier = a_tier()
    rule = Rule("no progress for 1m", tier)
    tier.clock.advance(seconds=61)
    assert rule.looks() == "firing"
    assert "no worker of main has reported" in rule.state.value
    tier.tells()
    assert rule.looks() == "quiet"
    tier.clock.advance(seconds=61)
    assert rule.looks() == "firing"
    assert "no report from main" in rule.state.value


@pytest.mark.parametrize(
    ("when", "low", "high"),
    [
        ("lag over 1000 rows for 30s", {"lag_rows": 1000}, {"lag_rows": 1001}),
        ("lag over 20s for 30s", {"lag_s": 20.0}, {"lag_s": 20.5}),
    ],
)
def test_a_lag_fires_when_it_was_over_the_whole_time(when: str, low: dict[str, float], high: dict[str, float]) -> None:
    tier = a_tier()
    rule = Rule(when, tier)
    tier.moves(1, **low)
    assert rule.looks() == "quiet"
    for _ in range(2):
        tier.moves(1, **high)
        assert rule.looks() == "pending"
        waits(tier, 25, 1, **high)
        assert rule.looks() == "pending"
        tier.moves(1, **low)
        assert rule.looks() == "quiet"
    tier.moves(1, **high)
    rule.looks()
    waits(tier, 30, 1, **high)
    assert rule.looks() == "firing"
    tier.moves(1, **low)
    assert rule.looks() == "quiet"


def test_dead_letters_fire_by_their_number_within_the_time_and_end_when_it_has_passed() -> None:
    tier = a_tier()
    rule = Rule("dead letters over 10 in 1m", tier)
    tier.tells()
    waits(tier, 1, 100, dead=10)
    assert rule.looks() == "quiet"
    tier.moves(100, dead=1)
    assert rule.looks() == "firing"
    assert rule.state.value == "11 dead letters in 1m00s"
    waits(tier, 70, 100)
    assert rule.looks() == "quiet"


def test_a_loop_of_restarts_fires() -> None:
    tier = a_tier()
    rule = Rule("restarts over 3 in 10m", tier)
    tier.tells()
    for _ in range(3):
        tier.starts_again()
    assert rule.looks() == "quiet"
    tier.starts_again()
    assert rule.looks() == "firing"


def test_a_master_that_took_over_lets_a_count_fire_on_until_it_has_counted_for_as_long() -> None:
    tier = a_tier()
    rule = Rule("dead letters over 10 in 1m", tier)
    rule.state = AlertState("firing", tier.clock() - 5.0, "11 dead letters")
    for _ in range(6):
        tier.moves(10, seconds=10.0)
        assert rule.looks() == "firing"
    tier.moves(10, seconds=10.0)
    assert rule.looks() == "quiet"


def test_what_nobody_knows_changes_nothing() -> None:
    tier = a_tier()
    rule = Rule("lag over 1000 rows for 30s", tier)
    rule.state = AlertState("firing", 5.0, "before the take-over")
    assert rule.looks() == "firing"
    assert rule.state.value == "before the take-over"
