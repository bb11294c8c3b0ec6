"""How far the inputs of a Query have come, which of them rules, and which is left out because it is idle."""

from __future__ import annotations

from scribengin.state.clocks import Clock, WatermarkHolder, clocks_after, idle_nodes, slowest, watermark_holder, watermark_without_idle

_S = 10**6


def test_a_clock_follows_its_newest_row_and_the_time_of_its_last_one() -> None:
    first = clocks_after({}, {"a": (100, 7)}, ["a", "b"], 0, 5 * _S)
    assert first == {"a": Clock(100, 0, 7, 5 * _S), "b": Clock(None, -1, None, 5 * _S)}
    # an older row is a sign of life, and moves nothing; no row is none
    second = clocks_after(first, {"a": (90, 3)}, ["a", "b"], 1, 9 * _S)
    assert second == {"a": Clock(100, 0, 7, 9 * _S), "b": Clock(None, -1, None, 5 * _S)}
    assert clocks_after(second, {}, ["a"], 2, 11 * _S) == {"a": Clock(100, 0, 7, 9 * _S)}


def test_idle_is_who_says_so_and_has_brought_nothing_for_as_long() -> None:
    clocks = {"a": Clock(900, 3, 0, 60 * _S), "b": Clock(100, 0, 0, 10 * _S), "c": Clock(500, 1, 0, 20 * _S)}
    assert idle_nodes(clocks, {"b": 50 * _S}, 60 * _S - 1) == frozenset()
    assert idle_nodes(clocks, {"b": 50 * _S, "a": 50 * _S}, 60 * _S) == {"b"}
    assert watermark_without_idle(clocks, {"b": 50 * _S}, 60 * _S - 1) is None
    assert watermark_without_idle(clocks, {"b": 50 * _S}, 60 * _S) == 500
    assert watermark_without_idle(clocks, dict.fromkeys("bc", _S), 60 * _S) == 900
    # nothing says where to go: all are idle, or one that is not has brought nothing yet
    assert watermark_without_idle(clocks, dict.fromkeys("abc", _S), 70 * _S) is None
    assert watermark_without_idle({**clocks, "d": Clock(None, -1, None, 59 * _S)}, {"b": 50 * _S}, 60 * _S) is None


def test_the_slowest_holds_the_others_back_until_it_is_idle() -> None:
    clocks = {"a": Clock(900, 3, 0, 60 * _S), "b": Clock(100, 0, 0, 10 * _S), "c": Clock(500, 1, 0, 20 * _S)}
    assert slowest(clocks) == "b"
    assert watermark_holder(clocks) == WatermarkHolder("b", 400, 10 * _S)
    assert watermark_holder(clocks, frozenset("b")) == WatermarkHolder("c", 400, 20 * _S)
    assert watermark_holder(clocks, frozenset("bc")) is None
    assert watermark_holder({**clocks, "d": Clock(None, -1, None, 5 * _S)}) == WatermarkHolder("d", None, 5 * _S)
    assert watermark_holder({"a": clocks["a"]}) is None
