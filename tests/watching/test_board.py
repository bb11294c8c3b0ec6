"""The board: what workers say, kept by tier, over worker and master."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from watched_flow import a_tier

from scribengin.core.errors import Refused
from scribengin.local.contract import EndView, GateView, QueryView, RunView
from scribengin.watching.flow_figures import figures_of, flow_as_json
from scribengin.watching.producer_signal import BEHIND, intake_of
from scribengin.watching.progress import ProgressBuilder, decode, encode, is_news
from scribengin.watching.telemetry import STALE_S, Board
from scribengin.watching.wording import bottleneck_text


def figures(tier, flow="tweets"):
    found = figures_of(flow, tier.board.tiers(flow), tier.clock())
    assert found is not None
    return found


def test_what_a_worker_says_comes_over_the_wire_whole_and_words_of_a_newer_one_are_passed_over() -> None:
    query = QueryView("kept", "running", slowest=("enrich", 0.8), lag_s=3.0, sources={"a": EndView(5, 1.0, 2)}, watermark="2026")
    gate = GateView("hot_core", "hot -> core", "kept", "main", "core", 5, 10, 1.0, 2.0, 3.0, paused=True)
    told = ProgressBuilder("tweets", "main", 3, 2).build(RunView("tweets", "running", 9.0, (query,), gates=(gate,)), 77.0)
    assert decode(encode(told)) == told
    newer = msgspec.json.decode(encode(told)) | {"moon": "full"}
    newer["queries"][0]["moon"] = 1
    assert decode(msgspec.json.encode(newer)) == told
    with pytest.raises(Refused, match="not a valid progress report of a tier"):
        decode(b'{"flow": 1}')


def test_time_alone_is_no_news() -> None:
    build = ProgressBuilder("tweets", "main", 1, 1).build
    query = QueryView("kept", "waiting", lag_s=1.0, still_s=1.0)
    before = build(RunView("tweets", "running", 1.0, (query,)), 1.0)
    assert not is_news(before, build(RunView("tweets", "running", 2.0, (replace(query, lag_s=2.0, still_s=2.0),)), 2.0))
    assert is_news(before, build(RunView("tweets", "running", 2.0, (QueryView("kept", "waiting", batches=1),)), 2.0))
    assert is_news(None, before)


def test_a_failure_between_two_reports_is_told_once_with_the_users_line() -> None:
    builder = ProgressBuilder("tweets", "main", 1, 1)
    ill = QueryView("kept", "recovering", restarts=1, message="steps.py:12: KeyError; starts again at once")
    for view in (ill, ill, QueryView("kept", "running", restarts=1)):
        builder.note(RunView("tweets", "running", 1.0, (view,)), 5.0)
    told = builder.build(RunView("tweets", "running", 2.0, ()), 6.0)
    assert [(failure.query, failure.permanent) for failure in told.failures] == [("kept", False)]
    assert "steps.py:12" in told.failures[0].cause


def test_a_run_that_has_ended_moves_no_more_and_what_waited_waits_on() -> None:
    end = EndView(5, 100.0, 7, None, None, 3.0)
    query = QueryView("kept", "stopped", rows_per_s=100.0, lag_s=3.0, still_s=2.0, sources={"a": end}, sinks={"kept": end})
    query = replace(query, falls_behind=True, catch_up_s=5.0)
    gate = GateView("c", "hot -> core", "kept", "main", "core", 5, 50, 2.0, 3.0, 4.0)
    told = ProgressBuilder("tweets", "main", 1, 1).build(RunView("tweets", "ended", 9.0, (query,), gates=(gate,)), 50.0, 40.0)
    (rested,) = told.queries
    assert bottleneck_text(told.queries, told.gates) == ""
    assert (told.gates[0].rows, told.gates[0].age_s, rested.catch_up_s) == (5, 42.0, None)
    assert (rested.rows_per_s, rested.lag_s, rested.still_s) == (0.0, 43.0, 0.0)
    assert (rested.sources["a"].rows_per_s, rested.sources["a"].lag_s, rested.sinks["kept"].rows_per_s) == (0.0, 43.0, 0.0)


def test_counts_go_on_over_a_worker_that_was_replaced_and_its_start_is_one() -> None:
    tier = a_tier()
    tier.tells()
    tier.moves(100, dead=2)
    tier.starts_again()
    tier.moves(50)
    (seen,) = tier.board.tiers("tweets").values()
    assert seen.totals == {"rows_in": 150.0, "rows_out": 148.0, "dead": 2.0, "batches": 2.0, "restarts": 1.0}
    assert [attempt.worker for attempt in seen.attempts] == ["tweets.main-1", "tweets.main-2"]
    assert figures(tier).restarts == 1


def test_an_attempt_says_why_its_process_ended_also_of_one_that_never_spoke() -> None:
    tier = a_tier()
    tier.tells()
    for _ in range(2):
        tier.board.end("tweets", "main", "tweets.main-1", 9.0, "steps.py:12: KeyError: 'id'", "mend it")
    tier.board.end("tweets", "main", "tweets.main-2", 10.0, "killed", "")
    tier.board.end("tweets", "other", "tweets.other-1", 10.0, "killed", "")
    told = flow_as_json("tweets", tier.board.tiers("tweets"), tier.clock())["tiers"]
    assert [(each["worker"], each["cause"]) for each in told[0]["attempts"]] == [
        ("tweets.main-2", "killed"),
        ("tweets.main-1", "steps.py:12: KeyError: 'id'"),
    ]
    assert len(told) == 1


def test_a_board_that_is_new_counts_nothing_that_was_before_it() -> None:
    tier = a_tier()
    tier.tells()
    tier.moves(1000, dead=5)
    tier.board = Board(tier.clock)  # a take-over
    tier.tells()
    assert (figures(tier).dead, figures(tier).restarts) == (0, 0)
    tier.moves(10, dead=1)
    assert figures(tier).dead == 1


def test_the_word_of_a_worker_that_was_replaced_changes_nothing() -> None:
    tier = a_tier()
    old = tier.builder.build(RunView("tweets", "running", 1.0, (QueryView("kept", "failed"),)), 0.0)
    tier.starts_again()
    tier.board.take(old)
    assert tier.board.tiers("tweets")["main"].progress.worker == "tweets.main-2"


def test_a_silent_worker_has_no_rate_and_what_waits_grows_older() -> None:
    tier = a_tier()
    tier.tells()
    tier.moves(100, lag_s=4.0, lag_rows=10)
    assert (figures(tier).rows_in_per_s, figures(tier).delay_s) == (100.0, 4.0)
    tier.clock.advance(seconds=STALE_S + 1)
    now = figures(tier)
    assert (now.silent, now.rows_in_per_s, now.delay_s) == (("main",), 0.0, 4.0 + STALE_S + 1)


def test_rows_of_channels_are_counted_neither_as_read_nor_as_written() -> None:
    first = a_tier(tier="near")
    gate = GateView("hot_core", "hot -> core", "hot", "near", "core", 500, 5_000, 30.0, 100.0, 10.0)
    first.gates = (gate,)
    first.query = QueryView(
        "hot",
        "running",
        sources={"tweets": EndView(5, 100.0, 7)},
        sinks={"hot_core": EndView(5, 100.0)},
        lag_s=1.0,
        catch_up_s=3.0,
        orders=("hot asks f", "g runs h"),
    )
    first.tells()
    second = a_tier(tier="core", board=first.board, clock=first.clock)
    reading = {"hot": EndView(5, 10.0, 500, channel=True)}
    second.query = QueryView(
        "kept", "running", sources=reading, sinks={"kept": EndView(5, 9.0)}, slowest=("enrich", 0.81), orders=("hot asks f",)
    )
    second.gates = (gate,)  # who reads sees it too, and is not asked
    second.tells()
    now = figures(first)
    assert (now.rows_in_per_s, now.rows_out_per_s, now.lag_rows, now.delay_s) == (100.0, 9.0, 507, 30.0)
    assert now.bottleneck == "enrich takes 81% of the Batch; hot -> core grows by 90 rows/s"
    assert sorted(now.orders) == ["g runs h", "hot asks f"], "each once"
    assert now.catch_up_s is None, "what reads the sources may be level soon: the flow is not"
    told = flow_as_json("tweets", first.board.tiers("tweets"), first.clock())
    assert [edge["edges"] for edge in told["edges"]] == ["hot -> core"]
    assert [tier["tier"] for tier in told["tiers"]] == ["core", "near"]


def test_what_holds_a_flow_up_is_a_full_channel_or_a_query_that_reads_less_than_arrives() -> None:
    slow = QueryView("kept", "running", tier="core", slowest=("enrich", 0.9), falls_behind=True)
    full = GateView("c", "hot -> core", "hot", "near", "core", rows=9, paused=True)
    assert bottleneck_text([slow], [full]) == "enrich takes 90% of the Batch; hot -> core is full"
    for waits in ({"lag_s": 11.0}, {"lag_rows": 1_000, "rows_per_s": 99.0}):
        assert bottleneck_text([replace(slow, **waits)], []) == "enrich takes 90% of the Batch; more arrives than kept reads"
    for waits in ({}, {"lag_s": 2.0}, {"lag_rows": 106, "rows_per_s": 200.0}):  # a source always has something new
        assert bottleneck_text([replace(slow, **waits)], []) == ""
    assert bottleneck_text([QueryView("kept", "running", slowest=("enrich", 0.9))], []) == ""
    long = QueryView("kept", "running", batch=4, batch_s=100.0, tasks=(3, 8))
    assert bottleneck_text([long, replace(long, name="other", batch_s=20.0)], []) == "query kept, Batch 4: 3 of 8 tasks, for 1m40s"
    assert bottleneck_text([replace(long, batch_s=9.0)], []) == ""


def test_where_there_are_many_workers_each_is_to_speak_less_often() -> None:
    tier = a_tier()
    tier.tells()
    assert tier.board.pace_s() == 1.0
    for number in range(449):
        a_tier(f"f{number}", board=tier.board, clock=tier.clock).tells()
    assert tier.board.pace_s() == 4.5
    for number in range(2_000):
        a_tier(f"f{number}", board=tier.board, clock=tier.clock).tells()
    assert tier.board.pace_s() == 10.0


def test_flows_that_are_gone_are_forgotten() -> None:
    tier = a_tier()
    tier.tells()
    a_tier("other", board=tier.board, clock=tier.clock).tells()
    tier.board.retain({"other"})
    assert tier.board.flows() == ("other",)


@pytest.mark.parametrize(
    ("delay_s", "answer"), [(None, "open"), (100.0, "open"), (150.0, "open"), (151.0, "slow"), (300.0, "slow"), (301.0, "refusing")]
)
def test_intake_follows_the_delay(delay_s: float | None, answer: str) -> None:
    tier = a_tier()
    tier.query = QueryView("kept", "running", lag_s=delay_s, catch_up_s=40.0)
    tier.tells()
    said = intake_of("tweets", "running", "", figures(tier), 300.0)
    assert (said.intake, said.catch_up_s) == (answer, 40.0)
    assert (said.retry_s > 0) == (answer != "open")
    assert intake_of("tweets", "running", "", figures(tier), None).intake == "open"


def test_a_flow_that_has_ended_refuses_and_one_that_was_behind_at_a_take_over_does_too() -> None:
    assert intake_of("tweets", "failed", "no such column", None, None).reason == "the flow is failed: no such column"
    assert intake_of("tweets", "stopped", "", None, 300.0).intake == "refusing"
    assert intake_of("tweets", "degraded", f"{BEHIND}so much", None, 300.0).intake == "refusing"
    assert intake_of("tweets", "degraded", "tier main: it failed", None, 300.0).intake == "open"
    assert intake_of("tweets", "running", "", None, 300.0).intake == "open"
