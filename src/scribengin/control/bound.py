"""Which tier is bound to which node, as the records below `physicalnodes/` say; and which of them are refused, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.control.refusals import refusal
from scribengin.registry.contract import RegistryEntry, shown
from scribengin.registry.records import Stored
from scribengin.registry.tree import HOST, HOSTED, HOSTS, MAPPED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scribengin.control.mirror import Mirror
    from scribengin.control.refusals import Refusals


@dataclass(frozen=True, slots=True)
class Bindings:
    """Flow → tier → node; flow → what is refused of it; and flow → (node, worker) of those that are shown to run there."""

    bound: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    refused: Mapping[str, Refusals] = field(default_factory=dict)
    hosted: Mapping[str, Collection[tuple[str, str]]] = field(default_factory=dict)

    def differ(self, other: Bindings) -> set[str]:
        """The flows of which they say something else."""
        return {
            flow
            for mine, theirs in ((self.bound, other.bound), (self.refused, other.refused), (self.hosted, other.hosted))
            for flow in mine.keys() | theirs.keys()
            if mine.get(flow) != theirs.get(flow)
        }


def read_bindings(mirror: Mirror, launchers: Collection[str]) -> Bindings:
    """As they are. Of several nodes that a tier is bound to, the one that was said first holds; one is known that has registered itself, or
    that a launcher of this master stands for. Names that fit nothing are left alone."""
    hosts = [host for host in mirror.children(HOSTS) if HOST.fits(host)]
    mirror.fetch([HOST(host).path for host in hosts], [f"{HOSTS}/{host}/lns" for host in hosts])
    there = [(host, node) for host in hosts for node in mirror.children(f"{HOSTS}/{host}/lns") if MAPPED.fits(host, node)]
    mirror.fetch([MAPPED(*each).path for each in there])
    hosted: dict[str, set[tuple[str, str]]] = {}
    for host in hosts:
        for worker in mirror.children(f"{HOSTS}/{host}/lns"):
            if HOSTED.fits(host, worker):
                hosted.setdefault(_flow(worker), set()).add((host, worker))
    known = sorted({*launchers, *(host for host in hosts if isinstance(mirror.read(HOST(host).path), RegistryEntry))})
    claims: list[tuple[int, str, str]] = []
    refused: dict[str, dict[str, Any]] = {}
    for host, node in there:
        spot = MAPPED(host, node)
        stored, raw = mirror.stored(spot), mirror.read(spot.path)
        if host not in known:
            names = ", ".join(known) or "none"
            why, remedy = (
                f"binds to node {host}, which has never registered; there are: {names}",
                "bind it to one of these, or start the node",
            )
        elif isinstance(stored, Stored) and raw is not None:
            claims.append((stored.entry.made, host, node))
            continue
        elif stored is None or raw is None:
            continue  # it was removed between two questions about it
        else:
            why, remedy = getattr(stored, "why", "was written by a newer Scribengin"), "write {} there, or remove it"
        refused.setdefault(_flow(node), {})[spot.path] = refusal(raw, why, remedy)
    bound: dict[str, dict[str, str]] = {}
    for _, host, node in sorted(claims):
        flow, _, tier = node.partition(".")
        first = bound.setdefault(flow, {}).setdefault(tier, host)
        if first != host:
            path = MAPPED(host, node).path
            why = f"binds {node} to {host}; it is bound to {first} already"
            refused.setdefault(flow, {})[path] = refusal(mirror.read(path), why, f"remove it, or {shown(MAPPED(first, node).path)}")
    return Bindings(bound, refused, hosted)


def _flow(node: str) -> str:
    return node.partition(".")[0]
