"""What a master knows of flows beyond the registry: workers' reports, and what follows from them. For the threads of its pages too.

Only the leader gets reports. It keeps them in memory only: after a failover, the new leader starts without any, and workers report to it
within ten seconds.
"""

from __future__ import annotations

import threading
import time
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.client.models import Waits
from scribengin.connectors.contract import Backlog
from scribengin.control.attempts import attempts_with_reports
from scribengin.control.autoscale import add_sample, sample_of, tier_load
from scribengin.control.flow_records import unknown_flow
from scribengin.control.masters import leader
from scribengin.control.world import Delay, RunId, SourceBacklog
from scribengin.core.errors import Refused
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.tree import LEASE
from scribengin.watching.backlogs import OLD_S, backlog_of, is_known
from scribengin.watching.exposition import RegistryFlow, expose
from scribengin.watching.flow_figures import figures_of, flow_as_json, going_text, why_text
from scribengin.watching.producer_signal import intake_of
from scribengin.watching.progress import decode
from scribengin.watching.series import TREND_STEP_S, trend_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.control.alerting import AlertDispatcher
    from scribengin.control.autoscale import LoadHistory, TierLoad
    from scribengin.control.backlog_measurement import Measuring
    from scribengin.control.world import DownstreamReader, FlowSeen, ObservedTier, World
    from scribengin.registry.contract import Registry, Term
    from scribengin.registry.peers import RemoteFlow, RemoteSource
    from scribengin.watching.producer_signal import ProducerSignal
    from scribengin.watching.telemetry import Board


_CLAIM_S = 5.0
"""seconds for which a verified claim is accepted without reading the lease again"""
_READING = ("running", "degraded")
"""states of a peer's flow in which it reads, so that its backlog is as its peer reports"""
_FRESH_S = 6.0
"""seconds for which a peer's measurement is used unchanged; after that, what upstream flows have written since is added"""
_ASKED_S = 60.0
"""seconds after a request of another control plane for which backlogs of flows here are measured for it"""
_MOST_SAMPLES = 5_000
IDLE_S = 60.0
"""seconds without reading after which a flow is idle; then other flows have most of its share of a quota"""


class WorkerWatch:
    """The reports of workers, for a master."""

    def __init__(
        self,
        registry: Registry,
        board: Board,
        dispatcher: AlertDispatcher,
        leads: Callable[[], bool] = lambda: True,
        measuring: Measuring | None = None,
    ) -> None:
        """Create it without reports.

        Args:
            registry: the registry, for checking leases.
            board: where reports are kept.
            dispatcher: the alert dispatcher.
            leads: returns True if this master leads now.
            measuring: measures backlogs; None if they are only taken from workers' reports.
        """
        self.board = board
        self._measuring = measuring
        self._dispatcher = dispatcher
        self.leads = leads
        self._registry = registry
        self._flows: Mapping[str, FlowSeen] = {}
        self._remote: Mapping[str, RemoteFlow] = {}
        self._readers: Mapping[str, tuple[DownstreamReader, ...]] | None = None
        self._reading: set[str] = set()
        """flows that may throttle others"""
        self._asked_at = -inf
        """when another control plane last requested the backlogs here"""
        self._term: Term | None = None
        self._loads: dict[tuple[str, str], LoadHistory] = {}
        """(flow, tier) → its samples, for tiers with `autoscale`"""
        self._claims: dict[tuple[str, str], tuple[str, float]] = {}
        self._lock = threading.Lock()

    # --- for the master's own thread ---

    def seen(self, world: World, term: Term) -> None:
        """Called after each observation of the leading master. Raises FencedError, Unreachable."""
        if self._term not in (None, term):  # it led before: its reports are outdated, since workers reported to another leader
            self.board.retain(())
            self._loads = {}
        self._flows, self._term = world.flows, term
        self.board.retain(world.flows.keys() | world.held.keys() | world.remote.keys())
        self._remote = world.remote
        self._look_at_readers(world)
        for name, remote in world.remote.items():
            known = self.board.waits(name)
            for id_, source in remote.sources.items():
                if source.looked_at is not None and not (source.reckoned and id_ in known):
                    self.board.measure(name, {id_: _backlog(source)}, source.looked_at)
        for name in self.board.flows():
            flow = world.flows.get(name)
            for tier in flow.tiers.values() if flow is not None else ():
                if (run := tier.run) is not None and run.ended_at is not None:
                    worker = str(RunId(name, tier.tier, run.number))
                    self.board.end(name, tier.tier, worker, run.ended_at, run.cause, run.remedy)
                    if flow is not None and flow.wanted_tiers is not None and tier.tier not in flow.wanted_tiers:
                        self.board.drop(name, tier.tier)
        self._dispatcher.evaluate(world.flows, term)

    def _look_at_readers(self, world: World) -> None:
        """Start measuring the backlog of flows that may throttle others, or must keep a `max_delay`, if their workers have not reported it
        for long."""
        if world.readers is not self._readers:  # it stays the same object until flows are connected otherwise
            feeders: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
            for feeding, readers in world.readers.items():
                for reader in readers:
                    at = (reader.flow, reader.source)
                    feeders[at] = (*feeders.get(at, ()), (feeding, reader.sink))
            self.board.meet(feeders)
            self._readers, self._reading = world.readers, {flow for flow, _ in feeders}
        if self._measuring is None:
            return
        wanted = []
        for name, flow in world.flows.items():
            reads = name in self._reading or (bool(flow.waters) and self.board.now() - self._asked_at < _ASKED_S)
            if reads or (flow.watched.max_delay_s is not None and flow.wish.goal not in ("stopped", "drained")):
                sources = flow.waters.keys() if reads else self.board.waits(name).keys()
                looked_s = [self.board.unreported_s(name, source) for source in sources]
                if not looked_s or any(each is None or each > OLD_S for each in looked_s):
                    wanted.append(name)
        self._measuring.want(wanted)

    def delays(self) -> dict[str, Delay]:
        """Flow → the age of its oldest waiting entry, for flows with a `max_delay`; flows without a report are left out."""
        now = self.board.now()
        found = {}
        for name, flow in self._flows.items():
            if flow.watched.max_delay_s is not None and (figures := figures_of(name, self.board.tiers(name), now)) is not None:
                found[name] = Delay(figures.delay_s or 0.0, figures.bottleneck)
        return found

    def idle(self) -> dict[str, bool]:
        """Flow → True if it has read nothing for IDLE_S. Only flows that have a share of a quota, and whose workers have all reported for
        that long; and those that read, however short the reports."""
        shared = (name for name, flow in self._flows.items() if flow.share is not None and flow.share.quota)
        return {name: rests for name in shared if (rests := self.board.is_idle(name, IDLE_S)) is not None}

    def waiting(self) -> dict[tuple[str, str], SourceBacklog]:
        """(flow, source) → its backlog, for sources with thresholds."""
        waters = {name: flow.waters for flows in (self._flows, self._remote) for name, flow in flows.items() if flow.waters}
        return {
            (name, source): SourceBacklog(there.rows, there.bytes, there.seconds)
            for name, sources in waters.items()
            for source, there in self.waits(name).items()
            if source in sources
        }

    def loads(self) -> dict[tuple[str, str], TierLoad]:
        """(flow, tier) → its load, for tiers with `autoscale`; those without enough reports are left out."""
        now = self.board.now()
        histories: dict[tuple[str, str], LoadHistory] = {}
        found = {}
        for name, flow in self._flows.items():
            for tier, there in self.board.tiers(name).items() if flow.sizes is not None else ():
                scale = flow.tiers[tier].autoscale if tier in flow.tiers else None
                if scale is None:
                    continue
                history, sample = self._loads.get((name, tier), ()), sample_of(there.progress, there.heard)
                histories[name, tier] = history = history if sample is None else add_sample(history, sample)
                if (load := tier_load(history, now, scale.lag_s)) is not None:
                    found[name, tier] = load
        self._loads = histories
        return found

    # --- for its pages ---

    def leader(self) -> str:
        """The address of the leading master's API; see `masters.leader`."""
        return leader(self._registry)

    def take(self, flow: str, tier: str, claim: str, data: bytes) -> None:
        """Accept a worker's report on its tier.

        Args:
            flow: the flow.
            tier: the tier.
            claim: the claim in the tier's lease.
            data: the report.

        Raises:
            Refused: the worker does not hold the lease, or the report is invalid.
            Unreachable: the registry does not answer.
        """
        self._check(flow, tier, claim)
        progress = decode(data)
        if (progress.flow, progress.tier) != (flow, tier):
            raise Refused(f"this is progress of {progress.flow}.{progress.tier}, not of {flow}.{tier}", code="bad-progress")
        self.board.take(progress)

    def metrics(self, flow: str, since: float | None = None, step_s: int = 1) -> dict[str, Any]:
        """All data on a flow now, and the samples of its tiers.

        Args:
            flow: the flow.
            since: of the samples, in seconds since the epoch; None: ten minutes ago.
            step_s: the least seconds that a sample covers.

        Raises:
            Refused: there is no such flow.
        """
        seen = self._flow(flow)
        state = seen.status
        now = self.board.now()
        # a request may contain nan and infinity
        begin = now - 600 if since is None or not isfinite(since) else min(max(since, 0.0), now)
        tiers = self.board.tiers(flow)
        with self.board.reading:
            series = {name: _samples(tier.series.read(begin, now, min(step_s, 86400))) for name, tier in tiers.items()}
        ends = {name: end for name, tier in seen.tiers.items() if (end := _last_end(tier)) is not None}
        told = flow_as_json(flow, tiers, now)
        name = None if state is None else state.state
        going = going_text(name or "created", told["now"])
        return {"at": now, "state": name, **told, "going": going, "last_ends": ends, "series": series}

    def last_report(self, flow: str) -> dict[str, Any] | None:
        """The last reports of workers on a flow's tiers; None if there is none."""
        tiers = self.board.tiers(flow)
        return flow_as_json(flow, tiers, self.board.now()) if tiers else None

    def attempts(self, flow: str) -> list[dict[str, Any]]:
        """The processes that served the flow's tiers, newest first: where each ran, what it did, what failed in it, and why it ended.
        Raises Refused if there is no such flow."""
        self._flow(flow)
        told = flow_as_json(flow, self.board.tiers(flow), self.board.now())["tiers"]
        return attempts_with_reports(
            self._registry, flow, [{"tier": tier["tier"], **attempt} for tier in told for attempt in tier["attempts"]]
        )

    def intake(self, flow: str) -> ProducerSignal:
        """The flow's answer to its producers. Raises Refused if there is no such flow."""
        return self._intake(flow, self._flow(flow))

    def alerts(self, flow: str) -> list[dict[str, Any]]:
        """The flow's alerts and their states. Raises Refused if there is no such flow."""
        self._flow(flow)
        return self._dispatcher.standing(flow)

    def test_alerts(self, flow: str, alert: str | None = None) -> list[dict[str, Any]]:
        """Send test notices of a flow's alerts; see `AlertDispatcher.test`. It takes as long as the targets do. Raises Refused if there is
        no such flow or alert."""
        self._flow(flow)
        return self._dispatcher.test(flow, alert)

    def overview(self) -> list[dict[str, Any]]:
        """The rates, state and firing alerts of every flow, for `top`."""
        now = self.board.now()
        rows = []
        for name, flow in self._flows.items():
            figures = figures_of(name, self.board.tiers(name), now)
            status = flow.status
            state = {"state": "created", "reason": ""} if status is None else {"state": status.state, "reason": status.reason}
            firing = [alert for alert, fires in self._dispatcher.firing(name) if fires]
            why = why_text(state["state"], state["reason"], figures, firing)
            rows.append({"flow": name, **state, "why": why, "now": None if figures is None else figures.as_json(), "alerts": firing})
        return rows

    def trends(self, samples: int) -> dict[str, Any]:
        """The backlog of each flow over its last samples, oldest first: of its rows if they are known, otherwise of its bytes; null for
        times without reports. Flows without a backlog in all that time are left out."""
        now = self.board.now()
        found: dict[str, list[float | None]] = {}
        for name in self._flows:
            tiers = self.board.tiers(name)
            figures = figures_of(name, tiers, now)
            if figures is None:
                continue
            column = "lag_bytes" if figures.lag_rows is None else "lag_rows"
            with self.board.reading:
                lags = trend_of([tier.series for tier in tiers.values()], column, now, samples)
            if any(lags):
                found[name] = lags
        return {"at": now, "step_s": TREND_STEP_S, "flows": found}

    def waits(self, flow: str) -> dict[str, Waits]:
        """Source → its backlog, as last reported by the flow's workers or measured since; unknown ones are left out."""
        found = dict[str, Backlog]()
        for seen in self.board.tiers(flow).values():
            for query in seen.progress.queries:
                for source, end in query.sources.items():
                    if not end.channel and is_known(waits := backlog_of(end)):
                        found[source] = waits.most(found.get(source, Backlog()))
        if (remote := self._remote.get(flow)) is not None and remote.state in _READING:
            since = self.board.now() - _FRESH_S
            for id_, there in remote.sources.items():
                if there.looked_at is not None and not there.reckoned and there.looked_at > since:
                    found[id_] = _backlog(there)
        known = {source: waits for source, (_, waits) in self.board.waits(flow).items()} | found
        return {source: _waits(waits) for source, waits in known.items()}

    def looks(self, flow: str) -> dict[str, tuple[float, Waits]]:
        """The backlogs of a flow for another control plane: source → (age of the measurement in seconds, its backlog). While one polls,
        flows with thresholds are measured if their workers do not report."""
        self._asked_at = self.board.now()
        return {source: (age_s, _waits(there)) for source, (age_s, there) in self.board.waits(flow).items()}

    def exposition(self) -> bytes:
        """The text of a Prometheus scrape."""
        states = {}
        for name, flow in self._flows.items():
            state = "created" if flow.status is None else flow.status.state
            states[name] = RegistryFlow(state, self._intake(name, flow).intake, self._dispatcher.firing(name))
        return expose(self.board, states, leads=self.leads())

    def _intake(self, name: str, flow: FlowSeen) -> ProducerSignal:
        figures = figures_of(name, self.board.tiers(name), self.board.now())
        state, reason = ("created", "") if flow.status is None else (flow.status.state, flow.status.reason)
        ages = [waits.oldest_s for _, waits in self.board.waits(name).values() if waits.oldest_s is not None]
        return intake_of(name, state, reason, figures, flow.watched.max_delay_s, measured_s=max(ages, default=None))

    def _flow(self, name: str) -> FlowSeen:
        if name not in self._flows:
            raise unknown_flow(name, sorted(self._flows))
        return self._flows[name]

    def _check(self, flow: str, tier: str, claim: str) -> None:
        key, now = (flow, tier), time.monotonic()
        with self._lock:
            known, until = self._claims.get(key, ("", 0.0))
        if claim and claim == known and now < until:
            return
        try:
            there = self._registry.read(LEASE(flow, tier).path)
        except ValueError:
            there = None
        if not claim or not isinstance(there, RegistryEntry) or not there.session or there.value.get("claim") != claim:
            raise Refused(
                f"the caller does not hold the lease of {flow}.{tier}", remedy="wait until the worker holds it", code="claim-wrong"
            )
        with self._lock:
            self._claims[key] = (claim, now + _CLAIM_S)


def _waits(there: Backlog) -> Waits:
    return Waits(there.rows, there.files, there.bytes, there.oldest_s)


def _backlog(source: RemoteSource) -> Backlog:
    return Backlog(source.files, source.bytes, source.rows, source.oldest_s)


def _last_end(tier: ObservedTier) -> dict[str, Any] | None:
    """How the tier's worker last ended, from the registry: the end of its present run, or of the run before if that was restarted."""
    run = tier.run
    if run is None or not (run.cause or run.ended_at):
        return None
    return {
        "run": run.number,
        "at": run.ended_at,
        "failures": run.failures,
        "cause": run.cause,
        "remedy": run.remedy,
        "permanent": run.permanent,
    }


def _samples(samples: list[Any]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(sample) for sample in samples[-_MOST_SAMPLES:]]
