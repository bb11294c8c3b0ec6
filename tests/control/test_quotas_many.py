"""Quotas of many flows: what a look costs, and how many hear of it when one of them changes. Nothing is timed: things are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.control.quotas import Taken, admit
from scribengin.control.world import Allowance, FlowSeen, Node, TierSeen, Wish, World
from scribengin.registry.kinds import Run

if TYPE_CHECKING:
    import pytest

SEARCH = "team=search"
LABELS = {"team": "search"}


def runs(name: str, cores: int = 1) -> FlowSeen:
    return FlowSeen(
        name,
        Wish(1, "running", 1),
        {"main": TierSeen("main", cores=cores, run=Run(number=1, node="a", asked_at=0.0, generation=1))},
        labels=LABELS,
    )


def waits(name: str, generation: int = 2) -> FlowSeen:
    return FlowSeen(name, Wish(1, "running", generation), {"main": TierSeen("main")}, labels=LABELS)


def world(flows: list[FlowSeen], **bounds: float) -> World:
    return World(0.0, {flow.name: flow for flow in flows}, nodes={"a": Node()}, quotas={SEARCH: Allowance("team", "search", **bounds)})


def test_what_an_admission_costs_grows_with_the_flows_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    added, plus = [0], Taken.plus

    def counted(self: Taken, other: Taken) -> Taken:
        added[0] += 1
        return plus(self, other)

    monkeypatch.setattr(Taken, "plus", counted)

    def cost(flows: int) -> int:
        added[0] = 0
        found = admit(world([*(runs(f"r{at}") for at in range(flows)), *(waits(f"w{at}", at + 2) for at in range(flows))], cores=flows))
        assert len(found.waits) == flows
        return added[0]

    assert cost(200) <= 2.2 * cost(100)


def test_who_waits_hears_nothing_of_takers_that_change_at_the_same_total() -> None:
    those = [waits(f"w{at}", at + 2) for at in range(3)]
    before = admit(world([runs("orders", 2), *those], cores=2)).waits
    assert before["w0"].reason == "waits for quota team=search: it needs 1 core; taken: 2 of 2"
    assert admit(world([runs("clicks"), runs("visits"), *those], cores=2)).waits == before
