"""`--metrics PORT`: the figures of the display for Prometheus, only on 127.0.0.1. A scrape reads the newest RunView; Batches bear
no cost."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from scribengin.core.errors import EnvironmentFault
from scribengin.local.contract import GateView, QueryState, QueryView, RunView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

_HOST = "127.0.0.1"
_LABELS = ("flow", "query")


@contextmanager
def serve_metrics(port: int) -> Iterator[Callable[[RunView], None]]:
    """Serve metrics until the block ends. Yields a function that takes each new view, from any thread.

    Raises EnvironmentFault if the port is in use or cannot be opened.
    """
    views = _Views()
    registry = CollectorRegistry()
    registry.register(views)
    try:
        server, thread = start_http_server(port, addr=_HOST, registry=registry)
    except OSError as error:
        why = "is in use by another process" if error.errno == errno.EADDRINUSE else f"cannot be opened: {error.strerror}"
        raise EnvironmentFault(
            f"metrics: port {port} of {_HOST} {why}", remedy="pass another port: --metrics PORT", code="port-taken"
        ) from error
    try:
        yield views.take
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def declared() -> list[tuple[str, str, tuple[str, ...], str]]:
    """(name as PromQL queries have it, gauge or counter, labels, meaning) of each metric, in the order of a scrape; for the docs."""
    query = QueryView("q", "running", phases_total_s={"plan": 1.0}, lag_rows=1, lag_files=1, lag_bytes=1, lag_s=1.0, catch_up_s=1.0)
    query = replace(query, held_back_by="a", behind_s=1.0, silent_s=1.0)
    views = _Views()
    views.take(RunView("f", "running", 1.0, (query,), gates=(GateView("c", "a -> b", "q", "near", "far"),)))
    found = []
    for metric in views.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        found.append((name, metric.type, tuple(metric.samples[0].labels), metric.documentation))
    return found


class _Views(Collector):
    def __init__(self) -> None:
        self._view: RunView | None = None

    def take(self, view: RunView) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """Make all metrics from one view, so that the figures of a scrape are consistent."""
        view = self._view
        if view is None:
            return
        phase = GaugeMetricFamily("scribengin_run_phase", "1 for the current phase of the run.", labels=("flow", "phase"))
        phase.add_metric((view.flow, view.phase), 1)
        yield phase
        yield _rows(view)
        for name, text, read in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            for query in view.queries:
                counter.add_metric((view.flow, query.name), read(query))
            yield counter
        yield _phases(view)
        for name, text, of_query in _HELD_BACK:
            gauge = GaugeMetricFamily(name, text, labels=(*_LABELS, "source"))
            for query in view.queries:
                if query.held_back_by and (value := of_query(query)) is not None:
                    gauge.add_metric((view.flow, query.name, query.held_back_by), value)
            if gauge.samples:
                yield gauge
        for name, text, level in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=_LABELS)
            for query in view.queries:
                if (value := level(query)) is not None:
                    gauge.add_metric((view.flow, query.name), value)
            yield gauge
        yield _states(view)
        for name, text, of_gate in _GATES:
            gauge = GaugeMetricFamily(name, text, labels=("flow", "channel", "edges"))
            for gate in view.gates:
                gauge.add_metric((view.flow, gate.id, gate.name), of_gate(gate))
            if view.gates:
                yield gauge


_COUNTERS: tuple[tuple[str, str, Callable[[QueryView], float]], ...] = (
    ("scribengin_batches", "Committed Batches.", lambda query: query.batches),
    ("scribengin_restarts", "Restarts after a temporary failure.", lambda query: query.restarts),
    ("scribengin_lost", "Maximum number of records that were deleted before they were read.", lambda query: query.lost),
    ("scribengin_lost_unknown", "Losses with an unknown number of records.", lambda query: query.lost_unknown),
)
_GAUGES: tuple[tuple[str, str, Callable[[QueryView], float | None]], ...] = (
    ("scribengin_rows_per_second", "Rows read per second, over the last ten seconds.", lambda query: query.rows_per_s),
    ("scribengin_lag_rows", "Rows in the backlog, if they can be counted.", lambda query: query.lag_rows),
    ("scribengin_lag_files", "Files in the backlog.", lambda query: query.lag_files),
    ("scribengin_lag_bytes", "Bytes in the backlog.", lambda query: query.lag_bytes),
    ("scribengin_lag_seconds", "Age of the oldest item in the backlog.", lambda query: query.lag_s),
    ("scribengin_batch_still_seconds", "Time without progress of the current Batch.", lambda query: query.still_s),
    (
        "scribengin_catch_up_seconds",
        "Estimated time until the backlog is empty; +Inf if more arrives than is read.",
        lambda query: inf if query.falls_behind else query.catch_up_s,
    ),
)

_HELD_BACK: tuple[tuple[str, str, Callable[[QueryView], float | None]], ...] = (
    (
        "scribengin_watermark_behind_seconds",
        "How far the input that holds back the watermark is behind the next slowest input.",
        lambda query: query.behind_s,
    ),
    (
        "scribengin_watermark_silent_seconds",
        "Time without rows from the input that holds back the watermark.",
        lambda query: query.silent_s,
    ),
)


_GATES: tuple[tuple[str, str, Callable[[GateView], float]], ...] = (
    ("scribengin_channel_rows", "Rows in the backlog of the channel.", lambda gate: gate.rows),
    ("scribengin_channel_bytes", "Bytes in the backlog of the channel.", lambda gate: gate.bytes),
    ("scribengin_channel_age_seconds", "Age of the oldest row in the backlog of the channel.", lambda gate: gate.age_s),
    ("scribengin_channel_in_rows_per_second", "Rows per second written to the channel.", lambda gate: gate.in_per_s),
    ("scribengin_channel_out_rows_per_second", "Rows per second read from the channel.", lambda gate: gate.out_per_s),
    (
        "scribengin_channel_paused",
        "1 while the upstream of the channel is paused because the channel is full.",
        lambda gate: float(gate.paused),
    ),
)


def _rows(view: RunView) -> Metric:
    rows = CounterMetricFamily("scribengin_rows", "Rows of committed Batches, by outcome.", labels=(*_LABELS, "kind"))
    for query in view.queries:
        kinds = {"in": query.rows_in, "out": query.rows_out, "filtered": query.filtered, "dead": query.dead, "late": query.late}
        for kind, count in kinds.items():
            rows.add_metric((view.flow, query.name, kind), count)
    return rows


def _phases(view: RunView) -> Metric:
    seconds = CounterMetricFamily("scribengin_batch_seconds", "Duration of Batches, by phase.", labels=(*_LABELS, "phase"))
    for query in view.queries:
        for phase, spent in query.phases_total_s.items():
            seconds.add_metric((view.flow, query.name, phase), spent)
    return seconds


def _states(view: RunView) -> Metric:
    states = GaugeMetricFamily(
        "scribengin_query_state", "1 for the current state of a query, 0 for the others.", labels=(*_LABELS, "state")
    )
    for query in view.queries:
        for state in get_args(QueryState):
            states.add_metric((view.flow, query.name, state), float(query.state == state))
    return states
