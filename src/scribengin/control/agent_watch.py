"""Whether the agents of flows report: the leading master checks it every few seconds in a thread of its own, from the records that
gateways write.

An agent is away if its record has not changed for the time of three reports, by the master's own clock, so that clocks of gateways that
differ do not matter.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.control.agents import MISSED_REPORTS, rolled_version
from scribengin.control.registry_cache import Mirror
from scribengin.control.world import AWAY, TAKEN_BACK, AgentsStanding
from scribengin.core.errors import FencedError, ScribenginError, Unreachable
from scribengin.core.time_text import moment_text
from scribengin.registry.contract import Conflict, Delete, RegistryEntry
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import NodeState
from scribengin.registry.tree import AGENT, DECOMMISSIONED, HOSTS, MAPPED, NODE_STATE, ROLL_OUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from scribengin.control.world import FlowSeen
    from scribengin.registry.contract import Registry, Term
    from scribengin.registry.records import AgentRecord, AgentTierSpec, FlowState, RollOutRecord

_CYCLE_S = 2.0
_NAMED = 3
"""agents that a reason names; the others are counted"""
_KEPT = 20
"""agents that the record of a logical node names"""


@dataclass(frozen=True, slots=True)
class _Heard:
    """When an agent's record last changed: which revision it was, and the time by the master's clock."""

    revision: int
    at_s: float


class AgentWatch:
    """Watches the agents of flows, for a master. `standings` is for the master's thread, the other methods for any."""

    def __init__(
        self,
        registry: Registry,
        log: FilteringBoundLogger,
        term: Callable[[], Term | None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create it; `start` starts the thread.

        Args:
            registry: The registry.
            log: The log of the master.
            term: Returns the Term under which this master leads; None if it does not.
            clock: The time in seconds since 1970.
        """
        self._registry = registry
        self._log = log
        self._term = term
        self._clock = clock
        self._mirror = Mirror(registry, HOSTS)
        self._lock = threading.Lock()
        self._flows: dict[str, FlowSeen] = {}
        self._standings: dict[str, AgentsStanding] = {}
        self._heard: dict[str, _Heard] = {}
        self._written: dict[str, NodeState] = {}
        self._led = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)

    def start(self) -> None:
        """Start checking."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._mirror.close()

    def standings(self, flows: Mapping[str, FlowSeen]) -> dict[str, AgentsStanding]:
        """Name the flows of the present observation. Returns flow → what its agents mean for it, as of the last check."""
        collecting = {name: flow for name, flow in flows.items() if flow.agents}
        with self._lock:
            self._flows = collecting
            return {name: each for name, each in self._standings.items() if name in collecting}

    def away(self, flow: str) -> Mapping[str, float] | None:
        """Agent → since when it is away, in seconds since 1970; None if that is not known yet."""
        with self._lock:
            standing = self._standings.get(flow)
        return None if standing is None else standing.away

    def check(self) -> None:
        """Check once, and write the states of logical nodes that have changed. Raises Unreachable, FencedError."""
        term = self._term()
        with self._lock:
            flows = dict(self._flows)
        if term is None or not flows:
            self._led = term is not None
            with self._lock:
                self._standings = {}
            self._heard.clear()
            return
        if not self._led:
            self._written.clear()
            self._led = True
        now_s = self._clock()
        agents = self._read(now_s)
        standings, states = {}, dict[str, NodeState]()
        for name, flow in flows.items():
            standings[name], of_flow = self._judge(flow, agents, now_s)
            states |= of_flow
        with self._lock:
            self._standings = standings
        self._write(states, term)

    def _run(self) -> None:
        told = ""
        while not self._ended.wait(_CYCLE_S):
            try:
                self.check()
                told = ""
            except FencedError:
                continue
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                if text != told and not isinstance(error, Unreachable):
                    self._log.warning("agents", message=text)
                told = text

    def _read(self, now_s: float) -> dict[str, AgentRecord]:
        """The records of all agents that are not decommissioned; when each was last heard is noted."""
        mirror = self._mirror
        mirror.refresh()
        names = [name for name in mirror.children(HOSTS) if AGENT.fits(name)]
        mirror.fetch([AGENT(name).path for name in names])
        found = {}
        for name in names:
            stored = mirror.stored(AGENT(name))
            if not isinstance(stored, Stored):
                continue
            found[name] = stored.record
            known = self._heard.get(name)
            if known is None:  # what happened before this master led is known by the clock of the gateway only
                self._heard[name] = _Heard(stored.entry.changed, min(now_s, stored.record.reported_at))
            elif known.revision != stored.entry.changed:
                self._heard[name] = _Heard(stored.entry.changed, now_s)
        for name in self._heard.keys() - found.keys():
            del self._heard[name]
        mirror.fetch([DECOMMISSIONED(name).path for name in found], [f"{HOSTS}/{name}/lns" for name in found])
        return {name: record for name, record in found.items() if mirror.read(DECOMMISSIONED(name).path) is None}

    def _judge(self, flow: FlowSeen, agents: Mapping[str, AgentRecord], now_s: float) -> tuple[AgentsStanding, dict[str, NodeState]]:
        """What its agents mean for a flow, and the states of its logical nodes."""
        away: dict[str, float] = {}
        states = {}
        parts, back = list[str](), ""
        for tier, spec in sorted(flow.agents.items()):
            node = f"{flow.name}.{tier}"
            own = [name for name, record in agents.items() if self._runs(name, record, node, spec)]
            silent = {name: since for name in own if (since := self._silent_since(name, agents[name], now_s)) is not None}
            away |= silent
            if silent:
                parts.append(f"{_named(silent)} of tier {tier} ({len(own) - len(silent)} of {len(own)} report)")
            record = self._roll_out(flow.name, tier)
            if record is not None and record.stage == "back" and record.version == flow.wish.version:
                back = back or f"{TAKEN_BACK}{record.reason}; tier {tier} runs version {rolled_version(record, '')}"
            state: FlowState = "running" if not silent and not back else "degraded"
            if flow.wish.goal != "running":
                state = "paused" if flow.wish.goal == "paused" else "stopped"
            states[node] = NodeState(state=state, agents=len(own), away=tuple(sorted(silent))[:_KEPT])
        if flow.wish.goal != "running":
            return AgentsStanding(), states
        if parts:
            first = min(away)
            then = f"see: scribengin agent describe {first}; if its host is gone: scribengin agent remove {first}"
            return AgentsStanding(away, AWAY + "; ".join(parts), then), states
        if back:
            return AgentsStanding(away, back, "fix the flow, and apply it again: scribengin apply FILE"), states
        return AgentsStanding(), states

    def _runs(self, agent: str, record: AgentRecord, node: str, spec: AgentTierSpec) -> bool:
        if record.group in spec.lanes.values():
            return True
        if node not in self._mirror.children(f"{HOSTS}/{agent}/lns"):
            return False
        mapped = self._mirror.stored(MAPPED(agent, node))
        return isinstance(mapped, Stored) and mapped.record.group is None

    def _silent_since(self, agent: str, record: AgentRecord, now_s: float) -> float | None:
        """Since when an agent is away; None if it is not."""
        away_s = self._heard[agent].at_s + MISSED_REPORTS * record.report_s
        return away_s if now_s > away_s else None

    def _roll_out(self, flow: str, tier: str) -> RollOutRecord | None:
        found = read_record(self._registry, ROLL_OUT(flow, tier))
        return found.record if isinstance(found, Stored) else None

    def _write(self, states: Mapping[str, NodeState], term: Term) -> None:
        """Write the states that have changed, under the Term."""
        for node, state in states.items():
            known = self._written.get(node)
            if known is not None and (known.state, known.agents, known.away) == (state.state, state.agents, state.away):
                continue
            since = known.since if known is not None and known.state == state.state else moment_text(self._clock())
            made = NodeState(state=state.state, agents=state.agents, away=state.away, since=since)
            spot = NODE_STATE(node)
            with suppress(Conflict):
                there = self._registry.read(spot.path)
                mine = there is not None and there.session == self._registry.session().id
                if isinstance(there, RegistryEntry) and mine:
                    self._registry.commit(spot.put(there, made), term=term)
                else:
                    if there is not None:
                        self._registry.commit(Delete(spot.path, there.version), term=term)
                    self._registry.commit(spot.create(made, ephemeral=True), term=term)
                self._written[node] = made
        for node in self._written.keys() - states.keys():
            del self._written[node]
            with suppress(ScribenginError):
                there = self._registry.read(NODE_STATE(node).path)
                if there is not None and there.session == self._registry.session().id:
                    self._registry.commit(Delete(NODE_STATE(node).path, there.version), term=term)


def _named(agents: Mapping[str, float]) -> str:
    names = sorted(agents)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
