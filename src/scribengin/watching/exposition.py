"""The Prometheus metrics of a master: all flows, from the board. docs/metrics.md is generated from METRICS."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from scribengin.watching.flow_figures import figures_of, queries_of
from scribengin.watching.telemetry import STALE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client import Metric

    from scribengin.watching.telemetry import Board, TierSnapshot

Point = tuple[tuple[str, ...], float | None]
"""(values of the labels, value); a value of None is unknown, and left out"""
Named = tuple[str, tuple[str, ...], float | None]
"""a point with the name of the metric, without `scribengin_`"""


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of one metric. Counters are exposed as `NAME_total`."""

    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    about: str

    @property
    def shown(self) -> str:
        """The name used in queries."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_FLOW = ("flow",)
_TIER = ("flow", "tier")
_QUERY = ("flow", "tier", "query")
_SOURCE = (*_QUERY, "source")
_SINK = (*_QUERY, "sink")
_EDGE = ("flow", "edge", "from", "to")

METRICS: tuple[Declared, ...] = (
    Declared("scribengin_master_leads", "gauge", (), "1 for the leading master, 0 for a standby; a standby exposes only this metric."),
    Declared("scribengin_flow_state", "gauge", ("flow", "state"), "1 for the current state of the flow."),
    Declared("scribengin_flow_rows_in_per_second", "gauge", _FLOW, "Rows read from the flow's sources, over the last ten seconds."),
    Declared("scribengin_flow_rows_out_per_second", "gauge", _FLOW, "Rows written to the flow's sinks, over the last ten seconds."),
    Declared("scribengin_flow_lag_rows", "gauge", _FLOW, "Backlog at sources and in channels, in rows, if it can be counted."),
    Declared("scribengin_flow_lag_bytes", "gauge", _FLOW, "Backlog at sources and in channels, in bytes."),
    Declared("scribengin_flow_delay_seconds", "gauge", _FLOW, "Age of the oldest waiting entry; 0 if nothing waits."),
    Declared(
        "scribengin_flow_catch_up_seconds", "gauge", _FLOW, "Estimated time until the backlog is empty; +Inf if more arrives than is read."
    ),
    Declared("scribengin_flow_still_seconds", "gauge", _FLOW, "Time since the last committed Batch, while there is a backlog."),
    Declared("scribengin_flow_intake", "gauge", ("flow", "intake"), "1 for the flow's answer to producers: open, slow, refusing."),
    Declared("scribengin_alert_firing", "gauge", ("flow", "alert"), "1 while an alert of the flow file fires."),
    Declared(
        "scribengin_tier_heard_seconds",
        "gauge",
        _TIER,
        "Time since the last report of the tier's worker; it reports at least every ten seconds.",
    ),
    Declared("scribengin_tier_rows_in", "counter", _TIER, "Rows read in committed Batches, since this master became the leader."),
    Declared("scribengin_tier_rows_out", "counter", _TIER, "Rows written in committed Batches."),
    Declared("scribengin_tier_dead", "counter", _TIER, "Dead letters."),
    Declared("scribengin_tier_batches", "counter", _TIER, "Committed Batches."),
    Declared("scribengin_tier_restarts", "counter", _TIER, "Restarts of the tier's worker and of its queries."),
    Declared("scribengin_query_rows_per_second", "gauge", _QUERY, "Rows read, over the last ten seconds."),
    Declared("scribengin_query_lag_rows", "gauge", _QUERY, "Backlog in rows, if it can be counted."),
    Declared("scribengin_query_lag_bytes", "gauge", _QUERY, "Backlog in bytes."),
    Declared("scribengin_query_lag_seconds", "gauge", _QUERY, "Age of the oldest waiting entry."),
    Declared("scribengin_query_batch_still_seconds", "gauge", _QUERY, "Time since the last progress of the current Batch."),
    Declared("scribengin_query_batch_phase_seconds", "gauge", (*_QUERY, "phase"), "Duration of the last Batch, by phase."),
    Declared("scribengin_query_state_rows", "gauge", _QUERY, "Rows or windows in the state of its steps."),
    Declared("scribengin_query_state_bytes", "gauge", _QUERY, "Memory used by this state."),
    Declared(
        "scribengin_query_watermark_behind_seconds",
        "gauge",
        (*_QUERY, "source"),
        "How far the input that holds the watermark back is behind the next slowest input.",
    ),
    Declared(
        "scribengin_query_watermark_silent_seconds",
        "gauge",
        (*_QUERY, "source"),
        "How long the input that holds the watermark back has had no rows.",
    ),
    Declared("scribengin_source_rows_per_second", "gauge", _SOURCE, "Rows read from the source. A channel counts as a source."),
    Declared("scribengin_source_lag_rows", "gauge", _SOURCE, "Backlog of the source in rows, if it can be counted."),
    Declared("scribengin_source_lag_files", "gauge", _SOURCE, "Backlog of the source in files."),
    Declared("scribengin_source_lag_bytes", "gauge", _SOURCE, "Backlog of the source in bytes."),
    Declared("scribengin_source_lag_seconds", "gauge", _SOURCE, "Age of the oldest waiting entry of the source."),
    Declared("scribengin_sink_rows_per_second", "gauge", _SINK, "Rows written to the sink. A channel counts as a sink."),
    Declared("scribengin_edge_rows", "gauge", _EDGE, "Backlog of the edge's channel in rows."),
    Declared("scribengin_edge_bytes", "gauge", _EDGE, "Backlog of the edge's channel in bytes."),
    Declared("scribengin_edge_age_seconds", "gauge", _EDGE, "Age of the oldest waiting row in the edge's channel."),
    Declared("scribengin_edge_in_rows_per_second", "gauge", _EDGE, "Rows written to the edge's channel."),
    Declared("scribengin_edge_out_rows_per_second", "gauge", _EDGE, "Rows read from the edge's channel."),
    Declared("scribengin_edge_paused", "gauge", _EDGE, "1 while the channel is full and its upstream tier waits."),
)


@dataclass(frozen=True, slots=True)
class RegistryFlow:
    """The part of a flow's status that does not come from a worker alone: `state` comes from the registry, `intake` and `alerts` from
    both."""

    state: str
    intake: str = "open"
    alerts: tuple[tuple[str, bool], ...] = ()
    """(name, True if it fires) of each alert"""


def expose(board: Board, states: Mapping[str, RegistryFlow], *, leads: bool) -> bytes:
    """The text of a Prometheus scrape. A standby exposes only `scribengin_master_leads`.

    Args:
        board: the reports of workers.
        states: flow → its status.
        leads: this master leads.
    """
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
