"""A master: contends for the lead, and while it leads observes, decides and acts, again and again. Standbys only answer requests."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.control.autoscale import size_actions
from scribengin.control.backpressure import held_back, is_news
from scribengin.control.decide import decide
from scribengin.control.executor import Actor
from scribengin.control.flow_status import CAUGHT_UP_SHARE
from scribengin.control.host_launchers import Fleet
from scribengin.control.registry_cache import Mirror
from scribengin.control.snapshot import Observer
from scribengin.control.upkeep import Upkeep
from scribengin.control.worker_lifecycle import waits
from scribengin.control.world import Kill, Note, RunId, SetAside, flow_of, said_of
from scribengin.core.errors import FencedError, Unreachable
from scribengin.core.log_once import ReportedTexts
from scribengin.core.time_text import moment_text
from scribengin.registry.contract import Conflict, shown
from scribengin.registry.lease import Election

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from scribengin.control.agent_watch import AgentWatch
    from scribengin.control.executor import Ordering, WorkerLogin
    from scribengin.control.worker_reports import WorkerWatch
    from scribengin.control.world import Action, FlowSeen, WorkerProcess, World
    from scribengin.launch.contract import Launcher
    from scribengin.registry.contract import Registry, Term
    from scribengin.registry.peers import Peer


# Selects the flows about which a master must decide now: most are unchanged, and deciding about thousands takes a second.


ROUNDS = 10
"""number of cycles in which each flow is selected once, even if nothing has changed"""


class Attention:
    """Remembers what was last observed and decided. A flow is selected if it, one of its processes or any node has changed, if something
    was decided about it last time (it may not have taken effect), and if the passing of time may change it."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        """`rounds`: the number of cycles in which each flow is selected at least once; 0: unchanged flows are not selected."""
        self._rounds = rounds
        self._round = 0
        self._last: World | None = None
        self._busy: set[str] = set()

    def select(self, world: World) -> set[str]:
        """The names of the flows of this world that are selected."""
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
        late |= {name for name in last.agents.keys() | world.agents.keys() if _agents(last, name) != _agents(world, name)}
        # a flow with `autoscale` has a record of its sizes since it was first decided about
        sized = {name for name, flow in world.flows.items() if flow.sizes is not None and any(size_actions(world, flow))}
        return (changed | turn | late | pressed | sized | self._busy | _flows_of(last.processes, world.processes)) & world.flows.keys()

    def note(self, world: World, selected: Iterable[str], actions: Iterable[Action]) -> None:
        """Record what was decided about the selected flows."""
        self._last = world
        self._busy = {flow_of(action) for action in actions}
        self._busy |= {name for name in selected if _time_matters(world.flows[name])}


def _takers(world: World) -> dict[str, bool]:
    """The nodes, and whether each is decommissioned. Their free resources change with each start, and matter only to flows that wait for a
    place: these are selected anyway."""
    return {name: node.decommissioned for name, node in world.nodes.items()}


def _time_matters(flow: FlowSeen) -> bool:
    return any(waits(tier) for tier in flow.tiers.values())


def _bands(world: World) -> dict[str, int]:
    """Flow → its delay compared with `max_delay` (0 to 2), for flows that have one; `standing` needs no more."""
    bands = {}
    for name, delay in world.delays.items():
        most_s = world.flows[name].watched.max_delay_s if name in world.flows else None
        if most_s is not None:
            bands[name] = (delay.seconds > CAUGHT_UP_SHARE * most_s) + (delay.seconds > most_s)
    return bands


def _agents(world: World, flow: str) -> str:
    """Why agents make the flow degraded; empty if they do not."""
    standing = world.agents.get(flow)
    return "" if standing is None else standing.reason


def _is_pressed(world: World, flow: FlowSeen) -> bool:
    """True if the flow's throttling differs from the recorded one."""
    return is_news(flow.held_back, held_back(world, flow))


def _flows_of(before: Mapping[RunId, WorkerProcess], now: Mapping[RunId, WorkerProcess]) -> set[str]:
    """The flows of which a process was added, removed or changed."""
    if before == now:
        return set()
    return {id_.flow for id_ in before.keys() | now.keys() if before.get(id_) != now.get(id_)}


_LOOK_S = 1.0
"""seconds between two cycles if no watch reports a change, and no launcher the end of a worker"""
_BUG_S = 2.0
_WAIT_S = 5.0
"""seconds to contend for the lead before checking whether to stop"""

_DECIDED = 20
"""the number of last decisions kept, for the master's page"""


@dataclass(frozen=True, slots=True)
class CycleReport:
    """A completed cycle: its time, its duration including decisions, the number of flows, of selected flows, and of decisions."""

    at: str
    took_s: float
    flows: int
    selected: int
    decided: int


class Master:
    """One master. `run` blocks; `stop` ends it from any thread. `about` is what other masters and clients read of it (id, url)."""

    def __init__(
        self,
        registry: Registry,
        launchers: Mapping[str, Launcher],
        order: Ordering,
        about: Mapping[str, Any],
        *,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.time,
        watch: WorkerWatch | None = None,
        worker_login: WorkerLogin = lambda _flow, _tier: None,
        takes: Callable[[Mapping[str, int], Term], None] = lambda _files, _term: None,
        asks: Callable[[Mapping[str, Peer], Term], None] = lambda _peers, _term: None,
        decides: Callable[[World, Collection[str] | None], list[Action]] = decide,
        agents: AgentWatch | None = None,
    ) -> None:
        """Prepare a master; `run` starts it.

        Args:
            registry: the registry.
            launchers: the launchers of this process; those of registered hosts are added automatically.
            order: makes the launcher's order for a run.
            about: what other masters and clients read of it (id, url).
            log: its log.
            clock: the time in seconds since the epoch.
            watch: the reports of workers; None without them.
            worker_login: the login of a tier's workers; None if there are no logins.
            takes: receives the flow files that are to be applied (`World.files`).
            asks: receives the peers that are to be polled.
            decides: `decide`; a simulation records what it returns.
            agents: whether the agents of flows report; None if that is not watched.
        """
        self._registry = registry
        self._log = log
        self._clock = clock
        self._watch = watch
        self._takes = takes
        self._asks = asks
        self._decides = decides
        self._agents = agents
        self._election = Election(registry, about)
        self._mirror = Mirror(registry)
        fleet = Fleet(registry, self._mirror, lambda: self._election.term, launchers)
        self._observer = Observer(self._mirror, fleet)
        self._attention = Attention()
        self._upkeep = Upkeep(registry, self._mirror)
        self._actor = Actor(registry, self._mirror, fleet, order, worker_login)
        self._stopped = threading.Event()
        self._said = ReportedTexts()
        self._led: int | None = None
        """the Term under which it last led, until it has logged that it no longer does"""
        self.last_cycle: CycleReport | None = None
        """None before the first cycle; for a standby, the last cycle of when it led"""
        self._decided: deque[dict[str, str]] = deque(maxlen=_DECIDED)
        self._is_warm = False
        """it has read, as a standby, what a leader needs"""

    @property
    def leads(self) -> bool:
        """True if it certainly leads now."""
        return self._election.held()

    @property
    def term(self) -> int | None:
        """The Term under which it leads; None if it does not."""
        return self._election.term.number if self._election.held() else None

    @property
    def lead(self) -> Term | None:
        """The Term under which it leads, for writes outside its cycles; None if it does not lead."""
        return self._election.term if self._election.held() else None

    def decided(self) -> list[dict[str, str]]:
        """Its last decisions, newest first: `at`, `flow`, `what`. For any thread."""
        return list(reversed(self._decided.copy()))

    @property
    def problems(self) -> Mapping[str, str]:
        """The invalid records of the last observation: path → why."""
        return self._observer.problems

    def contend(self, wait_s: float = 0.0) -> bool:
        """True if it leads now, or has become the leader within `wait_s` seconds."""
        return self._election.acquire(wait_s=wait_s)

    def run(self) -> None:
        """Run until `stop` is called."""
        try:
            while not self._stopped.is_set():
                try:
                    with suppress(Unreachable):
                        self._serve_once()
                except Exception:  # a bug, or access rights were withdrawn: it is logged, and another master may lead meanwhile
                    self._log.exception("master")
                    self._election.release()
                    self._stopped.wait(_BUG_S)
        finally:
            self._election.close()
            self._mirror.close()

    def _serve_once(self) -> None:
        leads = self.contend(_WAIT_S if self._is_warm else 0.0)
        self._tell_lead(self._election.term.number if leads else None)
        if leads:
            self._lead()
        else:
            self._stand_by()

    def stop(self) -> None:
        """End after the current cycle. The lead is released, so that the next leader need not wait for the session to expire."""
        self._stopped.set()
        self._mirror.changed.set()

    def cycle(self) -> World:
        """Observe, decide, act: once. Raises FencedError if this master no longer leads, Unreachable if the registry does not answer."""
        self._election.check()
        began = self._clock()
        world = self._observer.observe(self._clock())
        self._say(f"{shown(path)} {why}" for path, why in self.problems.items())
        if self._watch is not None:
            self._watch.seen(world, self._election.term)
            world = replace(
                world,
                delays=self._watch.delays(),
                idle=self._watch.idle(),
                waiting=self._watch.waiting(),
                loads=self._watch.loads(),
            )
        if self._agents is not None:
            world = replace(world, agents=self._agents.standings(world.flows))
        selected = self._attention.select(world)
        actions = self._decides(world, selected)
        self._attention.note(world, selected, actions)
        self._say(f"{shown(action.spot.path)} is set aside" for action in actions if isinstance(action, SetAside))
        self._say(f"{action.run} is killed on {action.node}: {action.why}" for action in actions if isinstance(action, Kill))
        for action in actions:
            if isinstance(action, Note) and action.run.ended_at is not None:
                worker = str(RunId(action.flow, action.tier, action.run.number))
                self._log.info("worker ended", worker=worker, cause=action.run.cause or "in order", failures=action.run.failures)
        for error in self._actor.perform_all(actions, self._election.term, self._election.check):
            if isinstance(error, Conflict):
                self._mirror.changed.set()  # another client has changed it meanwhile: observe again
            else:
                self._say([error.message])
        self._say(self._upkeep.place_owners(world, self._election.term))
        self._takes(world.files, self._election.term)
        self._asks(world.peers, self._election.term)
        self._remember(began, len(world.flows), len(selected), actions)
        return world

    def _remember(self, began: float, flows: int, selected: int, actions: Sequence[Action]) -> None:
        at = moment_text(began)
        self.last_cycle = CycleReport(at, round(self._clock() - began, 3), flows, selected, len(actions))
        for action in actions[-_DECIDED:]:
            self._decided.append({"at": at, "flow": flow_of(action), "what": said_of(action)})

    def _lead(self) -> None:
        with suppress(FencedError):
            while not self._stopped.is_set():
                self.cycle()
                self._mirror.changed.wait(_LOOK_S)

    def _stand_by(self) -> None:
        """Observe without acting: what is read now need not be read when this master becomes the leader."""
        self._observer.observe(self._clock())
        self._is_warm = True

    def _tell_lead(self, term: int | None) -> None:
        if term != self._led:
            if self._led is not None:
                self._log.warning("leadership lost", term=self._led)
            if term is not None:
                self._log.info("leadership won", term=term)
            self._led = term

    def _say(self, texts: Iterable[str]) -> None:
        for text in texts:
            if self._said.is_new(text):
                self._log.warning("control", message=text)
