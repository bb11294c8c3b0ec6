from __future__ import annotations

from collections import Counter

import pytest

from scribengin.gateway.chains import chain_of
from scribengin.wire.protocol import GatewayMember

AGENTS = [f"web{n:04}" for n in range(4000)]


def members(*names: str, cost: float = 1.0) -> list[GatewayMember]:
    return [GatewayMember(f"https://{name}:7443", cost) for name in names]


def test_the_lowest_cost_comes_first() -> None:
    far, near = members("far1", "far2", cost=5), members("near1", "near2")
    for agent in AGENTS[:50]:
        chain = chain_of(agent, far + near)
        assert [member.cost for member in chain] == [1, 1, 5, 5]


def test_a_chain_has_each_member_once_and_does_not_depend_on_the_order_of_the_list() -> None:
    group = members("a", "b", "c", "d")
    for agent in AGENTS[:50]:
        chain = chain_of(agent, group)
        assert sorted(member.url for member in chain) == [member.url for member in group]
        assert chain_of(agent, reversed(group)) == chain


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_agents_spread_evenly_over_members_of_equal_cost(count: int) -> None:
    group = members(*(f"g{n}" for n in range(count)))
    for place in range(count):
        loads = Counter(chain_of(agent, group)[place].url for agent in AGENTS)
        assert all(0.8 <= loads[member.url] * count / len(AGENTS) <= 1.2 for member in group)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_a_member_that_joins_moves_only_its_own_share_of_agents(count: int) -> None:
    before = members(*(f"g{n}" for n in range(count)))
    after = [*before, *members("new")]
    moved = [agent for agent in AGENTS if chain_of(agent, before)[0] != chain_of(agent, after)[0]]
    assert len(moved) <= 1.3 / (count + 1) * len(AGENTS)
    assert {chain_of(agent, after)[0].url for agent in moved} == {"https://new:7443"}


def test_the_agents_of_a_member_that_leaves_spread_over_all_others() -> None:
    before = members("g0", "g1", "g2", "g3")
    orphans = [agent for agent in AGENTS if chain_of(agent, before)[0].url == "https://g0:7443"]
    loads = Counter(chain_of(agent, before[1:])[0].url for agent in orphans)
    assert len(loads) == 3
    assert max(loads.values()) <= 1.3 * min(loads.values())
    others = [agent for agent in AGENTS if agent not in orphans]
    assert all(chain_of(agent, before)[0] == chain_of(agent, before[1:])[0] for agent in others)
