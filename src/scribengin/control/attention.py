"""Selects the flows about which a master must decide now: most are unchanged, and deciding about thousands takes a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.control.actions import flow_of
from scribengin.control.pressure import held_back, is_news
from scribengin.control.runs import waits
from scribengin.control.standing import CAUGHT_UP_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.control.actions import Action
    from scribengin.control.world import FlowSeen, RunId, WorkerProcess, World

ROUNDS = 10
"""the number of cycles in which each flow is selected once, even if nothing has changed"""


class Attention:
    """Remembers what was last seen and decided. A flow is selected if it, one of its processes or any node has changed, if something was
    decided about it last time (it may not have taken effect), and if time may change it."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        """`rounds`: 0 for none."""
        self._rounds = rounds
        self._round = 0
        self._last: World | None = None
        self._busy: set[str] = set()

    def select(self, world: World) -> set[str]:
        """The flows of this world that are selected."""
        last = self._last
        if last is None or _takers(last) != _takers(world):
            return set(world.flows)
        changed = {name for name, flow in world.flows.items() if last.flows.get(name) is not flow}
        turn = set[str]()
        if self._rounds:
            self._round = (self._round + 1) % self._rounds
            turn = {name for at, name in enumerate(world.flows) if at % self._rounds == self._round}
        pressed = {name for name in world.readers.keys() & world.flows.keys() if _is_pressed(world, world.flows[name])}
        late = {name for name, _ in _bands(last).items() ^ _bands(world).items()}
        return (changed | turn | late | pressed | self._busy | _flows_of(last.processes, world.processes)) & world.flows.keys()

    def note(self, world: World, selected: Iterable[str], actions: Iterable[Action]) -> None:
        """Record what was decided about the selected flows."""
        self._last = world
        self._busy = {flow_of(action) for action in actions}
        self._busy |= {name for name in selected if _time_matters(world.flows[name])}


def _takers(world: World) -> dict[str, bool]:
    """The nodes, and whether they take workers. Their free resources change with each start, and matter only to flows that wait for a
    place: these are selected anyway."""
    return {name: node.decommissioned for name, node in world.nodes.items()}


def _time_matters(flow: FlowSeen) -> bool:
    return any(waits(tier) for tier in flow.tiers.values())


def _bands(world: World) -> dict[str, int]:
    """Flow → its delay compared with `max_delay`, for those that have one; `standing` needs no more."""
    bands = {}
    for name, delay in world.delays.items():
        most_s = world.flows[name].watched.max_delay_s if name in world.flows else None
        if most_s is not None:
            bands[name] = (delay.seconds > CAUGHT_UP_SHARE * most_s) + (delay.seconds > most_s)
    return bands


def _is_pressed(world: World, flow: FlowSeen) -> bool:
    """Whether its throttling differs from what is written."""
    return is_news(flow.held_back, held_back(world, flow))


def _flows_of(before: Mapping[RunId, WorkerProcess], now: Mapping[RunId, WorkerProcess]) -> set[str]:
    """The flows of which a process was added, removed or changed."""
    if before == now:
        return set()
    return {id_.flow for id_ in before.keys() | now.keys() if before.get(id_) != now.get(id_)}
