"""Generates docs/metrics.md with every metric. A test fails if the page is outdated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.local.metrics import declared
from scribengin.watching.exposition import METRICS
from scribengin.watching.series import BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = f"""\
# Metrics

This page lists every metric. [Monitor flows](monitor.md) describes how to watch flows and how to define alerts.

A leading master keeps samples of each tier in memory: one a second for ten minutes, one every ten seconds for six hours, one every ten
minutes for fourteen days; there are none for a time without reports. They take {BYTES // 1024} KiB for a tier, at any throughput.
`GET /v1/flows/NAME/metrics` returns them as `series`.

## Prometheus
"""
_RUN = """\
## Prometheus, for a run in a terminal

`scribengin run --metrics PORT` serves its own metrics at `/metrics` on the loopback address.
"""


def metrics_page() -> str:
    """The text of docs/metrics.md."""
    masters = _table((metric.shown, metric.kind, metric.labels, metric.about) for metric in METRICS)
    return "\n".join([_HEAD, masters, _RUN, _table(declared())])


def _table(metrics: Iterable[tuple[str, str, tuple[str, ...], str]]) -> str:
    lines = ["| name | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {kind} | {', '.join(labels)} | {about} |" for name, kind, labels, about in metrics]
    return "\n".join(lines) + "\n"
