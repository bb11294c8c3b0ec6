"""What Prometheus reads of a master: all flows, from the board. docs/metrics.md is made from METRICS."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from scribengin.watching.board import STALE_S
from scribengin.watching.figures import figures_of, queries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client import Metric

    from scribengin.watching.board import Board, TierSnapshot

Point = tuple[tuple[str, ...], float | None]
"""(values of the labels, value); None: unknown, and left out"""
Named = tuple[str, tuple[str, ...], float | None]
"""the same, behind the name of the metric without `scribengin_`"""


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric. Counters are shown as `NAME_total`."""

    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    about: str

    @property
    def shown(self) -> str:
        """As queries name it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_FLOW = ("flow",)
_TIER = ("flow", "tier")
_QUERY = ("flow", "tier", "query")
_SOURCE = (*_QUERY, "source")
_SINK = (*_QUERY, "sink")
_EDGE = ("flow", "edge", "from", "to")

METRICS: tuple[Declared, ...] = (
    Declared("scribengin_master_leads", "gauge", (), "1 at the master that leads; the others show nothing else."),
    Declared("scribengin_flow_state", "gauge", ("flow", "state"), "1 for the state that the flow is in."),
    Declared("scribengin_flow_rows_in_per_second", "gauge", _FLOW, "Rows read from the flow's sources, over the last ten seconds."),
    Declared("scribengin_flow_rows_out_per_second", "gauge", _FLOW, "Rows put into the flow's sinks, over the last ten seconds."),
    Declared("scribengin_flow_lag_rows", "gauge", _FLOW, "Rows that wait at sources and in channels, where they can be counted."),
    Declared("scribengin_flow_lag_bytes", "gauge", _FLOW, "Bytes that wait at sources and in channels."),
    Declared("scribengin_flow_delay_seconds", "gauge", _FLOW, "Age of the oldest thing that waits; 0 where nothing does."),
    Declared("scribengin_flow_catch_up_seconds", "gauge", _FLOW, "Time until nothing waits; +Inf where more arrives than is read."),
    Declared("scribengin_flow_still_seconds", "gauge", _FLOW, "Time since a Batch came through, while something waits."),
    Declared("scribengin_flow_intake", "gauge", ("flow", "intake"), "1 for what the flow says to producers: open, slow, refusing."),
    Declared("scribengin_alert_firing", "gauge", ("flow", "alert"), "1 while an alert of the flow file fires."),
    Declared("scribengin_tier_heard_seconds", "gauge", _TIER, "Time since the tier's worker said something; it does every ten seconds."),
    Declared("scribengin_tier_rows_in", "counter", _TIER, "Rows read in committed Batches, since this master watches."),
    Declared("scribengin_tier_rows_out", "counter", _TIER, "Rows put out in committed Batches."),
    Declared("scribengin_tier_dead", "counter", _TIER, "Dead letters."),
    Declared("scribengin_tier_batches", "counter", _TIER, "Batches that were committed."),
    Declared("scribengin_tier_restarts", "counter", _TIER, "Starts of its worker, and of Queries in it, after the first."),
    Declared("scribengin_query_rows_per_second", "gauge", _QUERY, "Rows read, over the last ten seconds."),
    Declared("scribengin_query_lag_rows", "gauge", _QUERY, "Rows that wait, where they can be counted."),
    Declared("scribengin_query_lag_bytes", "gauge", _QUERY, "Bytes that wait."),
    Declared("scribengin_query_lag_seconds", "gauge", _QUERY, "Age of the oldest thing that waits."),
    Declared("scribengin_query_batch_still_seconds", "gauge", _QUERY, "Time in which nothing of the Batch under way has moved."),
    Declared("scribengin_query_batch_phase_seconds", "gauge", (*_QUERY, "phase"), "What the last Batch took, by phase."),
    Declared("scribengin_query_state_rows", "gauge", _QUERY, "Rows or windows that its steps keep."),
    Declared("scribengin_query_state_bytes", "gauge", _QUERY, "Memory that they take."),
    Declared(
        "scribengin_query_watermark_behind_seconds",
        "gauge",
        (*_QUERY, "source"),
        "By how much the input that holds the watermark back is behind the next slowest.",
    ),
    Declared(
        "scribengin_query_watermark_silent_seconds",
        "gauge",
        (*_QUERY, "source"),
        "How long the input that holds it back has brought no rows.",
    ),
    Declared("scribengin_source_rows_per_second", "gauge", _SOURCE, "Rows read from the source; a channel is a source too."),
    Declared("scribengin_source_lag_rows", "gauge", _SOURCE, "Rows that wait at it, where they can be counted."),
    Declared("scribengin_source_lag_files", "gauge", _SOURCE, "Files that wait at it."),
    Declared("scribengin_source_lag_bytes", "gauge", _SOURCE, "Bytes that wait at it."),
    Declared("scribengin_source_lag_seconds", "gauge", _SOURCE, "Age of the oldest thing that waits at it."),
    Declared("scribengin_sink_rows_per_second", "gauge", _SINK, "Rows put into the sink; a channel is a sink too."),
    Declared("scribengin_edge_rows", "gauge", _EDGE, "Rows that wait in the channel of the edge."),
    Declared("scribengin_edge_bytes", "gauge", _EDGE, "Bytes that wait in it."),
    Declared("scribengin_edge_age_seconds", "gauge", _EDGE, "Age of the oldest row that waits in it."),
    Declared("scribengin_edge_in_rows_per_second", "gauge", _EDGE, "Rows that come into it."),
    Declared("scribengin_edge_out_rows_per_second", "gauge", _EDGE, "Rows that are read from it."),
    Declared("scribengin_edge_paused", "gauge", _EDGE, "1 while what feeds it waits because it is full."),
)


@dataclass(frozen=True, slots=True)
class RegistryFlow:
    """What the registry, not a worker, says of a flow: `intake` and `firing` are made of both."""

    state: str
    intake: str = "open"
    alerts: tuple[tuple[str, bool], ...] = ()
    """(name, whether it fires)"""


def expose(board: Board, states: Mapping[str, RegistryFlow], *, leads: bool) -> bytes:
    """The text of a scrape. A master that does not lead says only that."""
    registry = CollectorRegistry()
    registry.register(_Figures(board, states, leads))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, board: Board, states: Mapping[str, RegistryFlow], leads: bool) -> None:
        self._board, self._states, self._leads = board, states, leads

    def collect(self) -> Iterator[Metric]:
        found: dict[str, list[Point]] = {declared.name: [] for declared in METRICS}
        found["scribengin_master_leads"].append(((), float(self._leads)))
        if self._leads:
            for flow, state in self._states.items():
                _add(found, _of_state(flow, state))
            for flow in self._board.flows():
                tiers = self._board.tiers(flow)
                now = self._board.now()
                _add(found, _of_flow(flow, tiers, now))
                for tier, seen in tiers.items():
                    _add(found, _of_tier(flow, tier, seen, now))
                    if now - seen.heard <= STALE_S:
                        _add(found, _of_queries(flow, tier, tiers))
        for declared in METRICS:
            points = [(labels, value) for labels, value in found[declared.name] if value is not None]
            if points:
                family = CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily
                metric = family(declared.name, declared.about, labels=declared.labels)
                for labels, value in points:
                    metric.add_metric(labels, value)
                yield metric


def _add(found: dict[str, list[Point]], points: Iterable[Named]) -> None:
    for name, labels, value in points:
        found[f"scribengin_{name}"].append((labels, value))


def _of_state(flow: str, state: RegistryFlow) -> Iterator[Named]:
    yield "flow_state", (flow, state.state), 1.0
    yield "flow_intake", (flow, state.intake), 1.0
    for alert, fires in state.alerts:
        yield "alert_firing", (flow, alert), float(fires)


def _of_flow(flow: str, tiers: Mapping[str, TierSnapshot], now: float) -> Iterator[Named]:
    figures = figures_of(flow, tiers, now)
    if figures is None:
        return
    at = (flow,)
    yield "flow_rows_in_per_second", at, figures.rows_in_per_s
    yield "flow_rows_out_per_second", at, figures.rows_out_per_s
    yield "flow_lag_rows", at, figures.lag_rows
    yield "flow_lag_bytes", at, figures.lag_bytes
    yield "flow_delay_seconds", at, figures.delay_s or 0.0
    yield "flow_catch_up_seconds", at, inf if figures.falls_behind else figures.catch_up_s
    yield "flow_still_seconds", at, figures.still_s


def _of_tier(flow: str, tier: str, seen: TierSnapshot, now: float) -> Iterator[Named]:
    at = (flow, tier)
    yield "tier_heard_seconds", at, now - seen.heard
    for name, total in seen.totals.items():
        yield f"tier_{name}", at, total
    for gate in seen.progress.gates:
        edge = (flow, gate.name, gate.feeding, gate.reading)
        yield "edge_rows", edge, gate.rows
        yield "edge_bytes", edge, gate.bytes
        yield "edge_age_seconds", edge, gate.age_s
        yield "edge_in_rows_per_second", edge, gate.in_per_s
        yield "edge_out_rows_per_second", edge, gate.out_per_s
        yield "edge_paused", edge, float(gate.paused)


def _of_queries(flow: str, tier: str, tiers: Mapping[str, TierSnapshot]) -> Iterator[Named]:
    for query in queries_of(tiers, tier):
        at = (flow, tier, query.name)
        yield "query_rows_per_second", at, query.rows_per_s
        yield "query_lag_rows", at, query.lag_rows
        yield "query_lag_bytes", at, query.lag_bytes
        yield "query_lag_seconds", at, query.lag_s
        yield "query_batch_still_seconds", at, query.still_s
        yield "query_state_rows", at, query.state_rows
        yield "query_state_bytes", at, query.state_bytes
        if query.held_back_by:
            yield "query_watermark_behind_seconds", (*at, query.held_back_by), query.behind_s
            yield "query_watermark_silent_seconds", (*at, query.held_back_by), query.silent_s
        for phase, seconds in query.phases_s.items():
            yield "query_batch_phase_seconds", (*at, phase), seconds
        for source, end in query.sources.items():
            yield "source_rows_per_second", (*at, source), end.rows_per_s
            yield "source_lag_rows", (*at, source), end.lag_rows
            yield "source_lag_files", (*at, source), end.lag_files
            yield "source_lag_bytes", (*at, source), end.lag_bytes
            yield "source_lag_seconds", (*at, source), end.lag_s
        for sink, end in query.sinks.items():
            yield "sink_rows_per_second", (*at, sink), end.rows_per_s
