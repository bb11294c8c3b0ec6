"""The choice among gateways, with a clock that stands still."""

from __future__ import annotations

from scribengin.agent.gateways import FIRST_BACK_OFF_S, MOST_BACK_OFF_S, GatewayChain
from scribengin.wire.protocol import GatewayMember


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def chain(*members: tuple[str, float], jitter: float = 0.5) -> tuple[GatewayChain, Clock]:
    clock = Clock()
    return GatewayChain([GatewayMember(url, cost) for url, cost in members], clock=clock, jitter=lambda: jitter), clock


def test_the_lowest_cost_is_first_and_equal_costs_keep_their_order() -> None:
    made, _ = chain(("c", 2.0), ("b", 1.0), ("a", 1.0))
    assert made.urls == ("b", "a", "c")
    assert made.choose() == "b"


def test_a_failure_moves_on_at_once_and_to_the_next_cost_last() -> None:
    made, _ = chain(("a", 1.0), ("b", 1.0), ("c", 5.0))
    for url in ("a", "b", "c"):
        assert made.choose() == url
        made.failed(url)
    assert made.choose() is None
    assert made.wait_s() == FIRST_BACK_OFF_S


def test_a_failed_gateway_comes_back_by_a_single_trial() -> None:
    made, clock = chain(("a", 1.0), ("b", 2.0))
    made.failed("a")
    assert made.choose() == "b"
    clock.now += FIRST_BACK_OFF_S
    assert made.choose() == "a"
    assert made.choose() == "b"  # one request tries it; the others do not wait for that
    assert made.succeeded("a")
    assert made.choose() == "a"
    assert not made.succeeded("a")


def test_a_failed_trial_waits_longer_each_time_up_to_a_limit() -> None:
    made, clock = chain(("a", 1.0))
    delays = []
    for _ in range(12):
        assert made.choose() == "a"
        delays.append(made.failed("a"))
        assert made.choose() is None
        clock.now += delays[-1]
    assert delays[:3] == [FIRST_BACK_OFF_S, 2 * FIRST_BACK_OFF_S, 4 * FIRST_BACK_OFF_S]
    assert delays[-1] == MOST_BACK_OFF_S
    made.succeeded("a")
    assert made.failed("a") == FIRST_BACK_OFF_S


def test_waits_are_spread_by_jitter() -> None:
    assert {chain(("a", 1.0), jitter=jitter)[0].failed("a") for jitter in (0.0, 1.0)} == {0.75 * FIRST_BACK_OFF_S, 1.25 * FIRST_BACK_OFF_S}


def test_what_a_gateway_asks_for_is_the_shortest_wait() -> None:
    made, _ = chain(("a", 1.0))
    assert made.failed("a", at_least_s=20.0) == 20.0


def test_a_busy_gateway_is_left_alone_and_has_not_failed() -> None:
    made, clock = chain(("a", 1.0), ("b", 2.0))
    made.busy("a", 3.0)
    assert made.choose() == "b"
    clock.now += 3.0
    assert [made.choose(), made.choose()] == ["a", "a"]
    assert not made.succeeded("a")


def test_a_trial_that_never_ended_does_not_keep_others_from_trying() -> None:
    made, clock = chain(("a", 1.0))
    made.failed("a")
    clock.now += 1.0
    assert made.choose() == "a"
    assert made.choose() is None
    clock.now += 121.0
    assert made.choose() == "a"


def test_other_members_keep_the_health_of_those_that_stay() -> None:
    made, _ = chain(("a", 1.0), ("b", 2.0))
    made.failed("a")
    made.replace([GatewayMember("a", 1.0), GatewayMember("c", 2.0)])
    assert made.choose() == "c"
    assert made.failed("b") == 0.0  # it is not one of them any more
    made.replace([])
    assert made.choose() is None
    assert made.wait_s() > 0
