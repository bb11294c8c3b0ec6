"""The ordered chain of gateways of each agent. It stands alone: agents of a flow file and of the registry get their chains by it, and
`describe` shows them."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.wire.protocol import GatewayMember


def chain_of(agent: str, members: Iterable[GatewayMember]) -> list[GatewayMember]:
    """The gateways of an agent, in the order in which it tries them: the lowest cost first.

    Members of equal cost are ordered by rendezvous hashing. So the agents spread evenly over them, a member that joins takes only its own
    share of the agents, and the agents of a member that leaves spread over the others.

    Args:
        agent: The agent's name.
        members: The gateways of the group, in any order.
    """
    return sorted(members, key=lambda member: (member.cost, _place(agent, member.url)))


def _place(agent: str, url: str) -> bytes:
    return blake2b(f"{agent}\0{url}".encode(), digest_size=8).digest()
