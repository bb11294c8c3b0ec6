"""Makes docs/metrics.md: how flows are watched, and every metric. A test tells when the page is old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.local.metrics import declared
from scribengin.watching.exposition import METRICS
from scribengin.watching.series import BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = f"""\
# Watching flows

Of flows that a [control plane](control.md) runs. A worker tells the leading master how its tier goes: about once a second while something
moves (less often where there are more than a hundred tiers), every ten seconds in any case. ZooKeeper holds none of it. A master that does
not answer holds no worker up: what could not be told is replaced by what is newer.

| | |
|---|---|
| `scribengin top [NAME…]` | all flows, or some, drawn over every second; `--once`, `--json` |
| `scribengin status NAME` | one flow, with its rates, what waits, and what holds it up |
| `scribengin alerts NAME` | its alerts, and how each stands; `scribengin alerts test NAME [ALERT]` sends a test |
| `GET /v1/metrics` | what `top` shows |
| `GET /v1/flows/NAME/metrics` | a flow and all its parts now, and how its tiers went: `?since=SECONDS` (since 1970), `?step=SECONDS` |
| `GET /v1/flows/NAME/attempts` | the processes that served it, where, since when, and why they ended; the last ten of a tier |
| `GET /v1/flows/NAME/intake` | whether producers may go on |
| `GET /v1/flows/NAME/alerts` | its alerts |
| `GET /metrics` | for Prometheus |

What is told lies in the memory of the master that leads. A standby sends who asks to it (307). The next one that comes to lead begins
anew: within ten seconds every worker has told it how it stands; counts (`_total`, dead letters, restarts) begin at nothing then,
and what was before is gone, but for the attempts, which are a record. Who wants to keep it lets Prometheus scrape.

A worker names the claim of its lease in place of a token; a master takes nothing of who does not hold the lease.

## One flow

`now` in `metrics` is what the whole flow does. `delay_s` is the age of the oldest thing that waits, at a source or in a channel; where
a worker is silent it grows. `bottleneck` says in words what holds it up: the channel that grows or is full and the step that takes most of
a Batch behind it, or the Query that reads less than arrives, or a Batch of ten seconds and more with how many of its tasks are
through. `orders` says how [utilities](utilities.md) run, with figures. Below
stand `tiers` with their `queries` (rows, rates, lag, phases of the last Batch, state, watermark, the node that took most), each with
its `sources` and `sinks`; `attempts`, the processes that served the tier, the newest first, with what failed in them down to the line;
`edges`, the channels.

`series` has samples of each tier: one a second for ten minutes, one every ten seconds for six hours, one every ten minutes for fourteen
days; for a time of which nothing was heard there is none. They take {BYTES // 1024} KiB for a tier, however much it moves.

## Intake

`max_delay` in the [flow file](flow-file.md#delay-and-alerts) says how old the oldest thing that waits may be. `intake` answers

| `intake` | |
|---|---|
| `open` | go on |
| `slow` | more than half of `max_delay` waits: send less |
| `refusing` | more than `max_delay`, or the flow has stopped or failed: wait; `Retry-After` says how long at least |

with `delay_s`, `catch_up_s` (until nothing waits, as things go) and the reason. Beyond `max_delay` the flow is `degraded`, with what holds
it up, until the delay is below nine tenths of it. It goes on reading as fast as it can: nothing is dropped. Without `max_delay` the answer
is `open` for as long as the flow has not stopped or failed.

## Alerts

`alerts` in the [flow file](flow-file.md#delay-and-alerts). The leading master looks every two seconds, while the flow is wanted running.
An alert is `quiet`, `pending` (it holds, not yet for so long; of progress, for half of it) or `firing`; when it begins to fire and when
it ends each target is told:

- the master's log, always;
- `webhook`: POST of `{{"flow", "alert", "state", "when", "value", "at"}}`, `state` being `firing`, `resolved` or `test`; 10 s for an
  answer, three tries within 15 s;
- `command`: a program of the leading master's host, started by its user, without a shell; `SCRIBENGIN_ALERT_FLOW`, `_NAME`, `_STATE`,
  `_WHEN`, `_VALUE`, `_AT` in its environment, none of the master's secrets; after 30 s it is killed.

A target that fails or hangs is told in the master's log, and holds up neither the master nor other alerts. Which alerts fire stands in the
registry (`flows/NAME/alerts`) once everybody was told, so the next master sends nothing again; where a master ends between sending and
writing, the next one may send once more. How long something must have been so counts anew from a take-over.

## Prometheus

A dashboard and alert rules to begin with: [examples/monitoring](../examples/monitoring/README.md). Scrape every master, with the token of a
viewer where they ask for one (`authorization: {{credentials_file: …}}`); one that stands by tells only that. What a silent worker said last
is not shown as if it were now.
"""
_RUN = """\
## Prometheus, of a run in a terminal

`scribengin run --metrics PORT` serves its own at `/metrics` on the loopback.
"""


def metrics_page() -> str:
    """docs/metrics.md."""
    masters = _table((metric.shown, metric.kind, metric.labels, metric.about) for metric in METRICS)
    return "\n".join([_HEAD, masters, _RUN, _table(declared())])


def _table(metrics: Iterable[tuple[str, str, tuple[str, ...], str]]) -> str:
    lines = ["| name | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {kind} | {', '.join(labels)} | {about} |" for name, kind, labels, about in metrics]
    return "\n".join(lines) + "\n"
