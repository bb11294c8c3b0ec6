"""Generates docs/metrics.md: how flows are watched, and every metric. A test fails if the page is outdated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.local.metrics import declared
from scribengin.watching.exposition import METRICS
from scribengin.watching.series import BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = f"""\
# Watching flows

This page is about flows that a [control plane](control.md) runs. A worker reports to the leading master: about once a second while there is
progress (less often with more than a hundred tiers), and at least every ten seconds. ZooKeeper stores none of these reports. A master that
does not answer blocks no worker: a report that could not be sent is replaced by the next one.

| | |
|---|---|
| `scribengin top [NAME…]` | all flows, or some, refreshed every second; `--once`, `--json` |
| `scribengin status NAME` | one flow, with its rates, backlog and bottleneck |
| `scribengin alerts list NAME` | its alerts and their states; `scribengin alerts test NAME [ALERT]` sends a test |
| `GET /v1/metrics` | what `top` shows |
| `GET /v1/flows/NAME/metrics` | a flow and all its parts now, and its tiers over time: `?since=SECONDS` (since 1970), `?step=SECONDS` |
| `GET /v1/flows/NAME/attempts` | the last ten processes of each tier: where they ran, since when, and why they ended |
| `GET /v1/flows/NAME/intake` | whether producers may send more |
| `GET /v1/flows/NAME/alerts` | its alerts |
| `GET /metrics` | for Prometheus |

The leading master keeps metrics in memory only. A standby redirects requests to the leader (307). After a failover the counts (`_total`,
dead letters, restarts) start from zero, and within ten seconds every worker has reported to the new leader. Earlier metrics are lost,
except for the attempts, which are stored in the registry. To keep metrics, scrape them with Prometheus.

A worker proves its lease instead of sending a token; a master rejects reports from a process that does not hold the lease.

## One flow

`now` in `metrics` describes the whole flow. `delay_s` is the age of the oldest waiting entry, at a source or in a channel; while a worker
is silent, it grows. `bottleneck` names what limits the flow: the channel that grows or is full, with the step that takes most of a Batch
downstream of it; or the Query that reads less than arrives; or a Batch of ten seconds or more, with the number of its tasks that are done.
`orders` shows how [utilities](utilities.md) run, with figures. Below are `tiers` with their `queries` (rows, rates, lag, phases of the last
Batch, state, watermark, the node that took most), each with its `sources` and `sinks`; `attempts`, the processes that served the tier, the
newest first, with what failed in them down to the line; `edges`, the channels.

`series` has samples of each tier: one a second for ten minutes, one every ten seconds for six hours, one every ten minutes for fourteen
days; there are none for a time without reports. They take {BYTES // 1024} KiB for a tier, at any throughput.

## Intake

`max_delay` in the [flow file](flow-file.md#delay-and-alerts) limits the age of the oldest waiting entry. `intake` answers

| `intake` | |
|---|---|
| `open` | send |
| `slow` | the backlog is older than half of `max_delay`: send less |
| `refusing` | the backlog is older than `max_delay`, or the flow has stopped or failed: wait for `Retry-After` at least |

with `delay_s`, `catch_up_s` (the estimated time until the backlog is empty) and the reason. Beyond `max_delay` the flow is `degraded`, with
its bottleneck, until the delay is below nine tenths of it. It keeps reading as fast as it can: nothing is dropped. Without `max_delay` the
answer is `open` for as long as the flow has not stopped or failed.

## Alerts

Alerts are defined by `alerts` in the [flow file](flow-file.md#delay-and-alerts). The leading master checks them every two seconds while the
flow's desired state is running. An alert is `quiet`, `pending` (its condition holds, but not yet long enough; for progress, for half of the
time) or `firing`. When it starts and when it stops firing, each target is notified:

- the master's log, always;
- `webhook`: POST of `{{"flow", "alert", "state", "when", "value", "at"}}`, `state` being `firing`, `resolved` or `test`; 10 s for an
  answer, three tries within 15 s;
- `command`: a program on the leading master's host, started as the master's user, without a shell; `SCRIBENGIN_ALERT_FLOW`, `_NAME`,
  `_STATE`, `_WHEN`, `_VALUE`, `_AT` in its environment, none of the master's secrets; after 30 s it is killed.

A target that fails or hangs is logged by the master, and blocks neither the master nor other alerts. Firing alerts are recorded in the
registry (`flows/NAME/alerts`) after all targets were notified, so the next master does not send them again; if a master ends between
sending and writing, the next one may send once more. After a failover the time that a condition must hold is counted from zero.

## Prometheus

A dashboard and alert rules to start with: [examples/monitoring](../examples/monitoring/README.md). Scrape every master, with the token of a
viewer if they require one (`authorization: {{credentials_file: …}}`); a standby exposes only `scribengin_master_leads`. The last report of
a silent worker is not shown as current.
"""
_RUN = """\
## Prometheus, for a run in a terminal

`scribengin run --metrics PORT` serves its own metrics at `/metrics` on the loopback address.
"""


def metrics_page() -> str:
    """docs/metrics.md."""
    masters = _table((metric.shown, metric.kind, metric.labels, metric.about) for metric in METRICS)
    return "\n".join([_HEAD, masters, _RUN, _table(declared())])


def _table(metrics: Iterable[tuple[str, str, tuple[str, ...], str]]) -> str:
    lines = ["| name | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {kind} | {', '.join(labels)} | {about} |" for name, kind, labels, about in metrics]
    return "\n".join(lines) + "\n"
