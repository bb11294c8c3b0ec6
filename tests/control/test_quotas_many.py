"""Quotas of many flows: what a look costs, and how many hear of it when one of them changes. Nothing is timed: things are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.control.quotas import IDLE_PART, Taken, admit, divide
from scribengin.control.world import Allowance, FlowSeen, ObservedTier, Wish, WorkerNode, World
from scribengin.registry.records import Run

if TYPE_CHECKING:
    import pytest

SEARCH = "team=search"
LABELS = {"team": "search"}


def runs(name: str, cores: int = 1) -> FlowSeen:
    return FlowSeen(
        name,
        Wish(1, "running", 1),
        {"main": ObservedTier("main", cores=cores, run=Run(number=1, node="a", asked_at=0.0, generation=1))},
        labels=LABELS,
    )


def waits(name: str, generation: int = 2) -> FlowSeen:
    return FlowSeen(name, Wish(1, "running", generation), {"main": ObservedTier("main")}, labels=LABELS)


def world(flows: list[FlowSeen], **bounds: float) -> World:
    return World(
        0.0, {flow.name: flow for flow in flows}, nodes={"a": WorkerNode()}, quotas={SEARCH: Allowance("team", "search", **bounds)}
    )


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
    assert before["w0"].reason == "waits for quota team=search: it needs 1 core; in use: 2 of 2"
    assert admit(world([runs("clicks"), runs("visits"), *those], cores=2)).waits == before


def shared(seen: World) -> tuple[World, int]:
    """The world with its rows divided, and how many parts were written for it."""
    parts = divide(seen, {})
    news = [name for name, part in parts.items() if part != seen.flows[name].share]
    assert sum(part.rows_per_s or 0.0 for part in parts.values()) <= (seen.quotas[SEARCH].rows_per_s or 0.0) * (1 + 1e-9)
    return replace(seen, flows={name: replace(flow, share=parts.get(name)) for name, flow in seen.flows.items()}), len(news)


def test_of_many_flows_one_that_falls_idle_or_comes_or_goes_is_written_alone() -> None:
    seen, written = shared(world([runs(f"f{at}") for at in range(200)], rows_per_s=1000.0))
    assert written == 200
    for idle in (True, False, True):
        seen, written = shared(replace(seen, idle={"f7": idle}))
        assert written == 1
    seen, written = shared(replace(seen, flows={**seen.flows, "new": runs("new")}))
    assert written == 1
    seen, written = shared(replace(seen, flows={name: flow for name, flow in seen.flows.items() if name != "f9"}))
    assert written == 0


HAPPENINGS = st.lists(
    st.tuples(st.sampled_from(["idle", "busy", "add", "remove", "rate"]), st.integers(0, 79), st.integers(1, 20)), max_size=30
)


@settings(max_examples=60, deadline=None)
@given(st.integers(35, 60), HAPPENINGS)
def test_parts_are_never_more_than_the_rate_and_none_is_much_less_than_its_own(flows: int, happenings: list[tuple[str, int, int]]) -> None:
    seen, _ = shared(world([runs(f"f{at}") for at in range(flows)], rows_per_s=1000.0))
    for what, first, number in happenings:
        names = [f"f{at % 80}" for at in range(first, first + number)]
        there = dict(seen.flows)
        match what:
            case "idle" | "busy":
                seen = replace(seen, idle={**seen.idle, **dict.fromkeys(names, what == "idle")})
            case "add":
                seen = replace(seen, flows={**{name: runs(name) for name in names}, **there})
            case "remove":
                seen = replace(seen, flows={name: flow for name, flow in there.items() if name not in names})
            case _:
                seen = replace(seen, quotas={SEARCH: Allowance("team", "search", rows_per_s=1000.0 + number - first)})
        seen, _ = shared(seen)
        assert shared(seen)[1] == 0, "what has been written stays, while nothing changes"
        shares = [flow.share for flow in seen.flows.values() if flow.share is not None]
        busy = sum(not share.idle for share in shares)
        if busy:
            equal = (seen.quotas[SEARCH].rows_per_s or 0.0) / len(shares)
            assert all((share.rows_per_s or 0.0) >= 0.95 * equal * (IDLE_PART if share.idle else 1) * (1 - 1e-9) for share in shares)
