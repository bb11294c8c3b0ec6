"""The settings of a run, its views while it runs, and its result. Does not need Spark."""

from __future__ import annotations

import threading
from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of views: workers send them to masters
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from scribengin.connectors.group.health import MemberOverrides, MemberSeen  # noqa: TC001  so does it at these
from scribengin.state.utility_orders import orders_as_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.local.ledger import LedgerLine
    from scribengin.local.rate_limit import FlowLimits
    from scribengin.spark.portions import Helpers
    from scribengin.state.columns import ColumnsAcceptance
    from scribengin.state.contract import Counts
    from scribengin.state.lease import Right

QueryState = Literal["starting", "running", "waiting", "paused", "recovering", "stopping", "stopped", "finished", "failed"]
"""`waiting`: nothing new to read. `paused`: a channel that it writes is full. `recovering`: failed temporarily, will restart. `finished`:
`--once` is complete."""
SLOW_S = 30.0
"""a Batch without a finished task for this many seconds is reported as slow; it continues and has not failed"""


@dataclass(slots=True)
class RunSettings:
    """The settings of a run. `stop` requests the end after the current Batches; it may be set from any thread or signal handler."""

    once: bool = False
    state: Path | None = None
    """the state folder; `.scribengin` in the base by default"""
    here: Path | None = None
    """where this machine keeps logs if the state is elsewhere; beside the code by default"""
    base: Path | None = None
    """the folder to which the paths of the flow's data are relative; that of the flow file by default. The code of the flow is always in
    the latter"""
    metrics_port: int | None = None
    fail_fast: bool = False
    strict: bool = False
    append_new_lineage: bool = False
    tier: str | None = None
    """the only tier that runs; None for all of them"""
    right: Right | None = None
    """the registry lease under which the tier's lease is taken; None: the first process gets the lease"""
    master: str = ""
    """Spark's master; `local[N,3]` over all cores by default"""
    memory: str = ""
    """the driver's heap (`2g`); Spark's default by default"""
    spark_conf: dict[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    limits: Callable[[], FlowLimits] | None = None
    """returns the rate limits, and is called before each Batch; None: those of the flow file, for the whole run"""
    turns: Callable[[str], MemberOverrides] | None = None
    """returns the settings of a group, given its name, and is called before each Batch; None: those of the flow file"""
    word: ColumnsAcceptance | None = None
    """the acceptance of columns that differ from those in the sinks' folders, or from those that the flow declares for sources; it applies
    only to the start for which it was given"""
    kept_elsewhere: frozenset[str] = frozenset()
    """folders of sinks that a maintenance owner maintains instead of the writer"""
    helpers: Helpers | None = None
    """the other workers of the tier, which stage a part of its Batches; None if there are none"""


@dataclass(frozen=True, slots=True)
class EndView:
    """One source or sink of a query now. Rows are those of this process, the rate is that of the last seconds, and the backlog of a source
    is as of its last check."""

    rows: int = 0
    rows_per_s: float = 0.0
    lag_rows: int | None = None
    lag_files: int | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    channel: bool = False
    """for a source: True if another tier of the flow writes it"""
    looked_s: float | None = None
    """for a source: seconds since it was checked last; None if it never was, or if that is not known"""
    clear_at: float | None = None
    """for a source: all data that existed at that time, in seconds since 1970, is assigned to Batches; None if that is not known"""
    bytes: int | None = None
    """for a sink: bytes of the committed Batches of this process, as its place stores them; None for a source"""


@dataclass(frozen=True, slots=True)
class QueryView:
    """One query now. Rows are those of this process. Rates decay when nothing arrives."""

    name: str
    state: QueryState
    tier: str = ""
    """empty if the flow has one tier"""
    batches: int = 0
    batch: int | None = None
    """the number of the current Batch, or of the next one; None if an earlier release does not report it"""
    ready: bool = False
    """True if it has committed a Batch, found nothing to read, or waits for room in a channel that it writes"""
    seconds: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    filtered: int = 0
    dead: int = 0
    late: int = 0
    lost: int = 0
    """the greatest possible number of records that were deleted before they were read; `lost_unknown`: the number of losses of
    unknown size"""
    lost_unknown: int = 0
    rows_per_s: float = 0.0
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """of the last Batch: plan, process, decide, publish"""
    phases_total_s: Mapping[str, float] = field(default_factory=dict)
    """the same, summed over this process's Batches"""
    tasks_s: float = 0.0
    """seconds that tasks spent in nodes, summed over all tasks of this process's Batches"""
    tasks: tuple[int, int] | None = None
    """(finished tasks, all tasks) of the current Batch"""
    batch_s: float = 0.0
    """seconds since the current Batch began; 0 if there is none"""
    still_s: float = 0.0
    """seconds since the current Batch began or a task of it ended, whichever is later; 0 if there is none"""
    restarts: int = 0
    lag_rows: int | None = None
    lag_files: int | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    """age of the oldest item in the backlog, in seconds"""
    catch_up_s: float | None = None
    """estimated seconds until the backlog is empty; None if the current Batch takes all there is, or if that is not known yet"""
    falls_behind: bool = False
    """True if more arrives than is read, so that the backlog never becomes empty"""
    done: float | None = None
    """the share that is done, 0 to 1; None if the end is not known"""
    eta_s: float | None = None
    watermark: str = ""
    held_back_by: str = ""
    """the slowest of several inputs with a watermark, which determines the watermark"""
    behind_s: float | None = None
    """how far that input is behind the next slowest one; None if one of the two has had no rows"""
    silent_s: float | None = None
    """how long that input has had no rows"""
    idle: tuple[str, ...] = ()
    """inputs that no longer hold back the watermark, because they have had no rows for as long as their `idle` allows"""
    message: str = ""
    """why it waits, stops, recovers or has failed"""
    dead_cause: str = ""
    """why the number of dead letters counts as a failure; empty if there are few"""
    degraded: bool = False
    """True if the flow is degraded for that reason, by its `max_dead`"""
    slowest: tuple[str, float] | None = None
    """the node in which tasks spent most of their time in the last Batch, and its share of that time, 0 to 1"""
    sources: Mapping[str, EndView] = field(default_factory=dict)
    sinks: Mapping[str, EndView] = field(default_factory=dict)
    """includes channels, by their ids"""
    state_rows: int | None = None
    """rows or windows in the state of its steps; None if they keep no state"""
    state_bytes: int | None = None
    """the memory that the state takes"""
    state_partitions: int | None = None
    """the number of partitions of that state, of the step with the most; no more tasks than that work on it at the same time"""
    members: Mapping[str, tuple[MemberSeen, ...]] = field(default_factory=dict)
    """sink that writes to a group → the status of its members"""
    orders: tuple[str, ...] = ()
    """how its utilities run, a line for each step"""

    @property
    def is_slow(self) -> bool:
        """True if the current Batch has made no progress for `SLOW_S` seconds."""
        return self.still_s >= SLOW_S

    def lag_as_json(self) -> dict[str, Any]:
        """The backlog: `lag` of `run --json`."""
        return {
            "rows": self.lag_rows,
            "files": self.lag_files,
            "bytes": self.lag_bytes,
            "seconds": None if self.lag_s is None else round(self.lag_s, 3),
            "catch_up_s": None if self.catch_up_s is None else round(self.catch_up_s, 3),
            "falls_behind": self.falls_behind,
        }


@dataclass(frozen=True, slots=True)
class GateView:
    """One channel now: its backlog, and its rates in and out (rows/s over the last seconds)."""

    id: str
    name: str
    """the names of its edges, as in the flow"""
    query: str
    """the query that writes it"""
    feeding: str
    reading: str
    rows: int = 0
    bytes: int = 0
    age_s: float = 0.0
    """the age of the oldest row"""
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    paused: bool = False
    """True if it is full, so that its upstream waits"""

    @property
    def grows_per_s(self) -> float:
        """Growth of the channel in rows/s."""
        return self.in_per_s - self.out_per_s

    @property
    def empty_in_s(self) -> float | None:
        """Estimated seconds until the backlog is empty; None if it does not shrink, or is empty."""
        return self.rows / -self.grows_per_s if self.rows and self.grows_per_s < 0 else None

    def as_json(self) -> dict[str, Any]:
        """One object of `gates` of `run --json`."""
        return {
            "channel": self.id,
            "edges": self.name,
            "from": self.feeding,
            "to": self.reading,
            "rows": self.rows,
            "bytes": self.bytes,
            "age_s": round(self.age_s, 3),
            "in_per_s": round(self.in_per_s, 1),
            "out_per_s": round(self.out_per_s, 1),
            "paused": self.paused,
        }


@dataclass(frozen=True, slots=True)
class RunView:
    """What a display shows; made about four times a second, and at every change of phase."""

    flow: str
    phase: Literal["checking", "starting spark", "checking with spark", "running", "degraded", "stopping", "ended"]
    """`degraded`: a query has failed, the others continue"""
    seconds: float
    queries: tuple[QueryView, ...] = ()
    notices: tuple[str, ...] = ()
    """new sentences since the last view, each shown once"""
    gates: tuple[GateView, ...] = ()
    noticed: tuple[Mapping[str, object], ...] = ()
    """differences between the data and the schemas: rows as `status` shows them, kept while queries are shown"""
    accepted: tuple[Mapping[str, object], ...] = ()
    """accepted columns of its sinks, in the same form"""
    spark_page: str = ""
    """the address of Spark's page; empty if the session has none"""


@dataclass(frozen=True, slots=True)
class SinkResult:
    """What one sink has received from this lineage."""

    sink: str
    rows: int
    place: str
    guarantee: str = ""
    """the weakest guarantee of its paths, as the plan shows it"""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of one query. `nodes` and `rows` are the totals of the lineage, `this_run` is the share of this process."""

    name: str
    state: QueryState
    batches: int
    seconds: float
    rows: Counts
    this_run: Counts
    nodes: Mapping[str, Counts]
    sinks: tuple[SinkResult, ...] = ()
    error: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()
    """such as: 3 windows stay open in "hourly" until …"""
    view: QueryView | None = None
    """its figures at the end; None if there are none"""
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """the order and cost of utilities; see `Decision.orders`"""
    lines: tuple[LedgerLine, ...] = ()
    """the ledger of all runs, for people"""
    lines_of_run: tuple[LedgerLine, ...] = ()
    """the ledger of this process, for people; its counts of state are those of now"""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run. `balanced` refers to the whole lineage of every query, and to its nodes that keep no state: an audit checks the
    others."""

    flow: str
    state: Literal["finished", "stopped", "failed"]
    folder: str
    queries: tuple[QueryResult, ...]
    balanced: bool
    violations: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    """warnings, and the causes of failures"""
    summaries: tuple[Mapping[str, Any], ...] = ()
    """the tables of summary sinks, as `summary --json` prints them"""

    def as_json(self) -> dict[str, Any]:
        """The value of `result` in `run --json`."""
        return {
            "flow": self.flow,
            "state": self.state,
            "folder": self.folder,
            "queries": [
                {
                    "name": query.name,
                    "state": query.state,
                    "batches": query.batches,
                    "seconds": round(query.seconds, 3),
                    "rows": query.rows.as_json(),
                    "this_run": query.this_run.as_json(),
                    "nodes": {node: counts.as_json() for node, counts in query.nodes.items()},
                    "sinks": [
                        {"sink": sink.sink, "rows": sink.rows, "place": sink.place, "guarantee": sink.guarantee} for sink in query.sinks
                    ],
                    "lag": (query.view or QueryView(query.name, query.state)).lag_as_json(),
                    "error": query.error,
                    "remedy": query.remedy,
                    "notes": list(query.notes),
                }
                | ({"orders": orders_as_json(query.orders)} if query.orders else {})
                for query in self.queries
            ],
            "ledger": {"balanced": self.balanced, "violations": list(self.violations)},
        } | ({"summaries": [dict(each) for each in self.summaries]} if self.summaries else {})
