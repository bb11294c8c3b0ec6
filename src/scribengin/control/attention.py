"""Which flows a master must decide about now: most stand as they stood, and deciding of thousands costs a second."""

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
"""in so many looks each flow has its turn, though nothing says that it needs one"""


class Attention:
    """Remembers what was seen and decided last. A flow needs attention where it, one of its processes or any node has changed, where
    something was decided about it last time (it may not have come about), and where time may change it."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        """`rounds`: 0 for none."""
        self._rounds = rounds
        self._round = 0
        self._last: World | None = None
        self._busy: set[str] = set()

    def select(self, world: World) -> set[str]:
        """The flows of this world that need it."""
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
        """What was decided of the selected flows."""
        self._last = world
        self._busy = {flow_of(action) for action in actions}
        self._busy |= {name for name in selected if _time_matters(world.flows[name])}


def _takers(world: World) -> dict[str, bool]:
    """The nodes, and whether they take workers. What room they have changes with each start, and matters to those who wait for a place:
    they are looked at anyway."""
    return {name: node.decommissioned for name, node in world.nodes.items()}


def _time_matters(flow: FlowSeen) -> bool:
    return any(waits(tier) for tier in flow.tiers.values())


def _bands(world: World) -> dict[str, int]:
    """Flow → where its delay stands to what it allows, of those that say what they allow; `standing` looks at no more."""
    bands = {}
    for name, delay in world.delays.items():
        most_s = world.flows[name].watched.max_delay_s if name in world.flows else None
        if most_s is not None:
            bands[name] = (delay.seconds > CAUGHT_UP_SHARE * most_s) + (delay.seconds > most_s)
    return bands


def _is_pressed(world: World, flow: FlowSeen) -> bool:
    """Whether what holds it back is another than is written."""
    return is_news(flow.held_back, held_back(world, flow))


def _flows_of(before: Mapping[RunId, WorkerProcess], now: Mapping[RunId, WorkerProcess]) -> set[str]:
    """The flows of which a process has come, gone or changed."""
    if before == now:
        return set()
    return {id_.flow for id_ in before.keys() | now.keys() if before.get(id_) != now.get(id_)}
