"""Which member is taken, as transcripts: what happens at which second, and what is answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.group.health import FIRST_S, MOST_S, GroupHealth, MemberOverrides


def play(costs: dict[str, float], transcript: str) -> None:
    """Lines `SECOND EVENT`: `take -> MEMBER` (`MEMBER?` a probe, `none`), `MEMBER fails`, `MEMBER answers`, `out MEMBER SECONDS …`."""
    health = GroupHealth(costs)
    for line in filter(None, map(str.strip, transcript.splitlines())):
        second, _, event = line.partition(" ")
        now_s = float(second)
        match event.split():
            case ["take", "->", expected]:
                choice = health.choose(now_s)
                found = "none" if choice is None else choice.member + "?" * choice.probe
                assert found == expected, line
            case [member, "fails"]:
                health.failed(member, now_s, "it is off")
            case [member, "answers"]:
                health.succeeded(member)
            case ["out", *told]:
                assert told == [text for each in health.out(now_s) for text in (each.member, f"{each.again_s:g}")], line
            case _:
                pytest.fail(line)


def test_the_lowest_cost_is_taken_as_long_as_it_answers() -> None:
    play({"far": 2, "near": 1}, "0 take -> near\n1 take -> near\n2 take -> near")


def test_equal_members_are_taken_in_turn_and_a_dearer_one_is_not() -> None:
    play({"a": 1, "b": 1, "c": 1, "d": 2}, "0 take -> a\n1 take -> b\n2 take -> c\n3 take -> a")


def test_a_member_that_failed_is_left_out_and_the_next_cost_is_taken_until_a_probe_finds_it_back() -> None:
    play(
        {"near": 1, "far": 2},
        """
        0 take -> near
        0 near fails
        0 out near 1
        0 take -> far
        0.5 take -> far
        1 take -> near?
        1 near answers
        1 out
        1 take -> near
        """,
    )


def test_each_probe_that_fails_doubles_the_time_until_the_next_one() -> None:
    play(
        {"near": 1, "far": 2},
        """
        0 near fails
        1 take -> near?
        1 near fails
        1 out near 2
        2.9 take -> far
        3 take -> near?
        3 near fails
        6.9 take -> far
        7 take -> near?
        7 near fails
        7 out near 8
        """,
    )


def test_while_a_probe_is_under_way_nobody_else_is_sent_there() -> None:
    play({"near": 1, "far": 2}, "0 near fails\n1 take -> near?\n1 take -> far\n1.9 take -> far\n1.9 near answers\n2 take -> near")


def test_a_probe_of_which_nothing_is_heard_is_offered_again_after_as_long_a_while() -> None:
    play({"near": 1, "far": 2}, "0 near fails\n1 take -> near?\n1.9 take -> far\n2 take -> near?")


def test_a_member_that_fails_while_it_is_left_out_is_not_left_out_for_longer() -> None:
    play({"a": 1}, "0 a fails\n0.5 a fails\n0.9 a fails\n0.9 take -> none\n1 take -> a?")


def test_none_is_taken_while_all_are_left_out_and_each_is_told_with_its_time() -> None:
    play({"a": 1, "b": 2}, "0 a fails\n0.25 b fails\n0.5 take -> none\n0.5 out a 0.5 b 0.75\n1 take -> a?\n1 a fails\n1.25 take -> b?")


def test_a_dearer_member_is_not_probed_while_a_cheaper_one_answers() -> None:
    play({"near": 1, "far": 2}, "0 far fails\n100 take -> near\n100 near fails\n100 take -> far?")


def test_one_of_equal_members_that_is_out_leaves_its_turn_to_the_others() -> None:
    play({"a": 1, "b": 1, "c": 1}, "0 take -> a\n0 b fails\n0 take -> c\n0 take -> a\n0 take -> c\n1 take -> a\n1 take -> b?\n1 take -> c")


def test_after_a_restart_the_turn_goes_on_behind_the_member_that_was_taken_last() -> None:
    health = GroupHealth({"a": 1, "b": 1})
    health.took("a")
    choice = health.choose(0)
    assert choice is not None
    assert choice.member == "b"


def test_the_reason_of_a_choice_names_who_is_out_and_why() -> None:
    health = GroupHealth({"near": 1, "far": 2})
    assert (choice := health.choose(0))
    assert choice.why == "the lowest cost"
    health.failed("near", 0, "no broker answers")
    assert (choice := health.choose(0))
    assert (choice.member, choice.cost, choice.why) == ("far", 2, "near is unavailable: no broker answers")


@given(st.lists(st.booleans(), max_size=60), st.floats(0, 10_000))
def test_however_it_goes_a_member_is_left_out_for_a_second_to_a_minute(answers: list[bool], start_s: float) -> None:
    health, now_s = GroupHealth({"a": 1}), start_s
    for answer in answers:
        choice = health.choose(now_s)
        assert choice is not None
        if answer:
            health.succeeded("a")
        else:
            health.failed("a", now_s, "off")
            (out,) = health.out(now_s)
            assert FIRST_S - 1e-6 <= out.again_s <= MOST_S + 1e-6
            assert health.choose(now_s) is None
            now_s += out.again_s + 1e-6


def test_a_member_that_was_taken_out_gets_nothing_until_it_is_let_back_and_costs_may_change() -> None:
    health = GroupHealth({"near": 1, "far": 2})
    health.heed(MemberOverrides(out={"near": "disk is swapped"}))
    choice = health.choose(0.0)
    assert choice is not None
    assert (choice.member, choice.why) == ("far", "near is unavailable: disk is swapped")
    health.failed("far", 0.0, "it is off")
    assert health.choose(0.5) is None, "what was taken out is not taken for want of others"
    assert [(seen.member, seen.state, seen.reason, seen.again_s) for seen in health.seen(0.5, {})] == [
        ("near", "out", "disk is swapped", 0.0),
        ("far", "failed", "it is off", 0.5),
    ]
    health.heed(MemberOverrides())
    assert [choice.member for choice in [health.choose(0.5)] if choice] == ["near"]
    health.succeeded("far")
    health.heed(MemberOverrides(costs={"far": 0.5, "near": float("nan"), "other": 1}))
    assert [choice.member for choice in [health.choose(1.0)] if choice] == ["far"]
    health.heed(MemberOverrides(out={"near": "", "far": ""}))
    assert [choice.member for choice in [health.choose(1.0)] if choice] == ["near"], "where all are out, none is"
