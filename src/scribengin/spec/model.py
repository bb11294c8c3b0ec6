"""The declared Flow: frozen values, equal if they have the same meaning. Independent of Spark and connectors.

`parse` (YAML) and `build` (Python) both make these; `dump` writes them back: `parse(dump(flow)) == flow`. The places of the text are kept
separately (`Places`), so that moving a line changes no plan.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.zones import UTC_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.core.problems import Place
    from scribengin.core.types import Schema
    from scribengin.spec.flow_tests import FlowTest


# The alerts of a Flow, as values.


Measure = Literal["progress", "lag_rows", "lag_s", "dead", "restarts"]


@dataclass(frozen=True, slots=True)
class Condition:
    """When an alert fires: if `measure` is above `over` for `span_s` seconds (lags), or counts more than `over` within them (dead letters,
    restarts). For `progress`: if no Batch was committed for `span_s` seconds although there is unread input."""

    measure: Measure
    over: float
    span_s: float


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: its condition, and who receives it. Every alert is also written to the master's log."""

    id: str
    when: Condition
    webhook: str = ""
    command: tuple[str, ...] = ()


# The properties of edges between tiers in a flow file: channels, back-pressure limits, and how rows are sent.


Codec = Literal["none", "gzip", "lz4", "snappy", "zstd"]
Durability = Literal["end_to_end", "store_on_failure", "best_effort"]
Ordering = Literal["key", "none"]
ChannelKind = Literal["kafka", "folder"]


@dataclass(frozen=True, slots=True)
class Channel:
    """The channel of an edge. The planner chooses fields that are None: Kafka if the flow knows exactly one cluster, else a folder."""

    type: ChannelKind | None = None
    topic: str | None = None
    path: str | None = None
    bootstrap: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    partitions: int | None = None
    replication: int | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """The limits of one pack: rows, and bytes before compression; a Batch waits up to `linger_s` seconds to fill it."""

    rows: int | None = None
    bytes: int | None = None
    linger_s: float | None = None


@dataclass(frozen=True, slots=True)
class Encryption:
    """AES-GCM encryption. Either `keyring`, the path of a file with one line `ID BASE64` per key, of which the last encrypts; or `keys` (id
    → BASE64), of which `use` encrypts. `none` turns off the encryption of `defaults.edge`."""

    keyring: str | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    use: str | None = None
    none: bool = False


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: rows and bytes per second."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Depth:
    """A limit on the unread content of a channel: rows, bytes, seconds since the oldest row was written. None: no limit."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class EdgeProperties:
    """Properties of an edge between two tiers. Fields that are None come from `defaults.edge`, then from the planner."""

    channel: Channel | None = None
    compression: Codec | None = None
    encryption: Encryption | None = None
    pack: Pack | None = None
    ordering: Ordering | None = None
    key: tuple[str, ...] = ()
    """the columns whose equal values keep their order, with `ordering: key`"""
    retention_s: float | None = None
    """the minimum time, in seconds, the channel keeps rows that its readers have read"""
    limit: Rate | None = None
    high_water: Depth | None = None
    low_water: Depth | None = None
    capacity: Depth | None = None
    """the limit at which the writing tier pauses"""
    durability: Durability | None = None
    spill: int | None = None
    """the maximum number of bytes that `store_on_failure` stores locally"""
    to: str | None = None
    """a group, or `group.member`"""


Delivery = Literal["exactly_once", "at_least_once"]
OnError = Literal["fail", "drop", "dead_letter"]
Late = Literal["dead_letter", "drop", "error"]
Emit = Literal["append", "update", "complete"]
Evolve = Literal["strict", "add", "lenient"]


@dataclass(frozen=True, slots=True)
class Watermark:
    """A watermark such as `ts 10m`: rows are late if their `column` is more than `delay_s` seconds behind the newest seen."""

    column: str
    delay_s: float
    ahead_s: float | None = None
    """how far, in seconds, a row may be ahead of the clock; a row further ahead becomes a dead letter and does not move the watermark"""
    idle_s: float | None = None
    """the time without rows, in seconds, after which it no longer holds back the watermarks of other streams; None: it always does"""


@dataclass(frozen=True, slots=True)
class SchemaSpec:
    """The columns of a source or step. `evolve` sets what happens to columns that are not declared."""

    fields: Schema
    evolve: Evolve = "strict"
    learned: tuple[str, ...] = field(default=(), compare=False)
    """the columns of `fields` that the flow does not declare and the data had, with `evolve: add`"""


Standby = Literal["none", "warm"]
"""`warm`: on a control plane, a standby worker with a running Spark takes over when the worker of the tier is lost"""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of a tier."""

    cores: int | None = None
    memory: int | None = None
    """bytes"""
    executors: int | None = None
    """only with Spark on a cluster: the number of executors, each with these cores and this memory"""
    spark: Mapping[str, str] = field(default_factory=dict)
    """settings of its Spark session, which override Scribengin's own"""
    standby: Standby | None = None
    """None: the value in `defaults`"""


@dataclass(frozen=True, slots=True)
class Autoscale:
    """How the number of executors of a tier follows its lag, on a control plane."""

    lag_s: float
    """the lag above which it needs more executors"""
    max: int
    min: int = 1
    mode: Literal["advise", "act"] = "advise"
    """`advise`: `status` shows what would be done; `act`: it is done"""


@dataclass(frozen=True, slots=True)
class Tier:
    """A part of the graph that runs separately. `steps` are ids of nodes; the planner assigns the others."""

    id: str
    steps: tuple[str, ...]
    group: str | None = None
    resources: Resources = field(default_factory=Resources)
    trigger_s: float | None = None
    acknowledge: Literal["checkpoint", "state"] = "checkpoint"
    """when a row that is kept as state counts as processed: when it is in the checkpoint, or when it has left the state"""
    workers: int | Literal["each"] = 1
    """on a control plane: the number of workers that stage its Batches, or one on each host of its group; one of them decides each Batch"""
    autoscale: Autoscale | None = None
    """None: the number of executors stays"""


@dataclass(frozen=True, slots=True)
class AgentTier:
    """A part of the graph that agents run: sources `type: agents`."""

    id: str
    agents: str
    """the group of agents, as they name it themselves"""
    gateways: str | None = None
    """the group of gateways that the agents use; None: all"""
    steps: tuple[str, ...] = ()
    """the ids of its sources; empty: all that no other such tier names"""


@dataclass(frozen=True, slots=True)
class Member:
    """One of several interchangeable members: a host, or the address of an endpoint. The member with the lowest cost is used first."""

    at: str
    name: str
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class Group:
    """Equivalent members, in the file's order."""

    id: str
    members: tuple[Member, ...]


Profile = Literal["throughput", "balanced", "latency"]
PROFILE_TRIGGER_S: Mapping[Profile, float] = {"throughput": 5.0, "balanced": 0.0, "latency": 0.0}


Engine = Literal["auto", "spark"]
"""`auto`: SQL steps run in the vector engine of the Python worker if it gives the same result as Spark"""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Default values for all nodes."""

    delivery: Delivery = "exactly_once"
    on_error: OnError = "dead_letter"
    trigger_s: float = 0.0
    retain_s: float | None = None
    """how long, in seconds, dead letters are kept; None: no limit"""
    retain_bytes: int | None = None
    """how many bytes of dead letters a query keeps; None: no limit"""
    profile: Profile = "balanced"
    """selects the defaults of options for batch sizes and intervals"""
    edge: EdgeProperties = field(default_factory=EdgeProperties)
    trace: float = 0.0
    """the fraction of records to trace, 0 to 1; dead letters are always traced"""
    standby: Standby = "none"
    engine: Engine = "auto"
    late: Late = "dead_letter"


@dataclass(frozen=True, slots=True)
class Source:
    """A source. `options` has typed values of the connector's declared options (only those given), without `type` and the keys below."""

    id: str
    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: SchemaSpec | None = None
    watermark: Watermark | None = None
    static: bool = False
    on_error: OnError | None = None
    high_water: Depth | None = None
    low_water: Depth | None = None
    capacity: Depth | None = None
    """back-pressure thresholds: flows that write its data are throttled above the first, run freely below the second, and pause at the
    third"""


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink. `together` names the query that it shares with other sinks; `trigger_s` overrides the default."""

    id: str
    inputs: tuple[str, ...]
    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    together: str | None = None
    trigger_s: float | None = None
    delivery: Delivery | None = None
    to: str | None = None
    """a group, or `group.member`"""

    @property
    def place(self) -> str:
        """The location of its rows, for messages: a path, or `topic kept`; its type if it has neither."""
        if "path" in self.options:
            return str(self.options["path"])
        return f"topic {self.options['topic']}" if "topic" in self.options else self.type


# The actions of a step: one class per kind.


@dataclass(frozen=True, slots=True)
class Filter:
    """The action `filter: PREDICATE`."""

    predicate: str


@dataclass(frozen=True, slots=True)
class Select:
    """The action `select: {name: expression}`, or a list of expressions (`id`, `upper(user) AS who`)."""

    columns: tuple[tuple[str, str], ...]
    """(output name, expression)"""


@dataclass(frozen=True, slots=True)
class Sql:
    """The action `sql: SELECT …`."""

    text: str


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Time windows. `slide_s` equals `size_s` for tumbling windows. The columns of a window are `window_start` and `window_end`.

    A window begins where the local clock of `time_zone` shows a multiple of the size since the beginning of 1970: a window of a day at
    local midnight.
    """

    time: str
    size_s: float
    slide_s: float
    time_zone: str = UTC_NAME


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The action `aggregate: {by, window, emit, columns}`."""

    by: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    window: WindowSpec | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """The action `join: {key, how, time, within}`: exactly two inputs, the first is the left one."""

    key: tuple[str, ...]
    how: Literal["inner", "left", "right", "full", "semi"] = "inner"
    time: tuple[tuple[str, str], ...] = ()
    """(input id, its time column)"""
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Parse:
    """The action `parse: {column, format, schema}`: the parsed fields replace `column`. The fields below are for csv."""

    column: str
    format: str
    schema: Schema
    delimiter: str = ","
    null: str | tuple[str, ...] = ""
    cells: tuple[tuple[str, Any], ...] | None = None
    """(option, value) of further csv options, in the order of their names; None if none is set"""
    time: Literal["exact", "truncate"] = "exact"


@dataclass(frozen=True, slots=True)
class Route:
    """The action `route: {branch: predicate, …, otherwise: branch}`; branches are read as `step.branch`."""

    cases: tuple[tuple[str, str], ...]
    """(branch, predicate); the first true predicate decides"""
    otherwise: str | None = None


@dataclass(frozen=True, slots=True)
class Python:
    """The action `python: "module:name"`.

    `function` is set only by the Python form; equality ignores it, `reference` names it.
    """

    reference: str
    branches: tuple[str, ...] = ()
    """names that `to("branch", row)` may use; read as step.branch"""
    time_limit_s: float = 30.0
    function: Callable[..., Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Dedupe:
    """The action `dedupe: {key, time, within}`."""

    key: tuple[str, ...]
    time: str | None = None
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """The action `merge: {how: union | intersect, key, time, within, origin}`. A bare `from: [a, b]` is a union by name."""

    how: Literal["union", "intersect"] = "union"
    key: tuple[str, ...] = ()
    time: str | None = None
    within_s: float | None = None
    origin: str | None = None
    """for a union: the STRING column, last and never null, with the input of a row: `a`, or `r_big` for a branch `r.big`"""


@dataclass(frozen=True, slots=True)
class Utilities:
    """The action `utilities: ["module:f", "module:g"]`, with `order` beside it: a sequence of Python functions as one step.

    `functions` is set only by the Python form: one per reference, or none at all. Equality ignores it.
    """

    references: tuple[str, ...]
    order: Literal["fixed", "free"] = "fixed"
    """`free`: tests run in the cheapest order"""
    functions: tuple[Callable[..., Any] | None, ...] = field(default=(), compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each utility, which follows the step's dot: the function's name, with a number if the name occurs twice.

        >>> Utilities(("steps:Near", "steps:f", "more:f")).names
        ('near', 'f', 'f_2')
        """
        names: list[str] = []
        for reference in self.references:
            name = reference.rpartition(":")[2].rpartition(".")[2].lower()
            others = sum(re.fullmatch(rf"{name}(_\d+)?", other) is not None for other in names)
            names.append(name if name not in names else f"{name}_{others + 1}")
        return tuple(names)

    def function(self, index: int) -> Callable[..., Any] | None:
        """The function object of a utility if the flow was built in Python, else None."""
        return self.functions[index] if self.functions else None


Action = Filter | Select | Sql | Aggregate | Join | Parse | Route | Python | Dedupe | Merge | Utilities


@dataclass(frozen=True, slots=True)
class Step:
    """An operation between nodes. `inputs` are ids, or `step.branch` of a route or of a python step with branches."""

    id: str
    inputs: tuple[str, ...]
    action: Action
    require: tuple[tuple[str, str], ...] = ()
    """(name, predicate), checked on the step's output; null fails"""
    on_error: OnError | None = None
    emit: Emit = "append"
    watermark: Watermark | None = None
    schema: SchemaSpec | None = None
    late: Late | None = None
    """what a stateful step does with rows behind its watermark"""


Node = Source | Step | Sink


@dataclass(frozen=True, slots=True)
class RecordBound:
    """A limit on dead letters: a share (`1%`) or a number (`100`) of records. Exactly one of the two is set."""

    percent: float | None = None
    """0 to 100"""
    records: int | None = None

    def text(self) -> str:
        """The limit as a flow file has it.

        >>> RecordBound(percent=0.5).text(), RecordBound(records=100).text()
        ('0.5%', '100')
        """
        if self.percent is None:
            return str(self.records)
        return f"{Decimal(repr(self.percent)).normalize():f}%"

    def allows(self, records: int, of: int) -> bool:
        """True if `records` of `of` are within the limit. A percentage of no records allows any number, and so does 100 %: a step may make
        several rows from a record, and each may become a dead letter."""
        if self.percent is not None:
            return of == 0 or self.percent >= 100 or records * 100 <= self.percent * of
        return records <= (self.records or 0)


BeyondMaxDead = Literal["fail", "degrade"]


@dataclass(frozen=True, slots=True)
class MaxDead:
    """How many of the records that a query reads may become dead letters, in a Batch and in a run. None: no limit."""

    batch: RecordBound | None = None
    run: RecordBound | None = None
    then: BeyondMaxDead = "fail"


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow as the user declares it. The mappings are in the file's order; paths of data are relative to `folder`."""

    name: str
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
    about: str = ""
    defaults: Defaults = field(default_factory=Defaults)
    tiers: Mapping[str, Tier] = field(default_factory=dict)
    agent_tiers: Mapping[str, AgentTier] = field(default_factory=dict)
    """the tiers with `agents`, which are in the file's `tiers` too"""
    edges: Mapping[str, EdgeProperties] = field(default_factory=dict)
    """`a -> b` (`r.branch -> b`), in this spelling → its properties"""
    groups: Mapping[str, Group] = field(default_factory=dict)
    max_delay_s: float | None = None
    """the maximum age, in seconds, of the oldest unread input; above it the flow is degraded"""
    max_dead: MaxDead | None = None
    alerts: Mapping[str, Alert] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """labels by which commands and permissions select flows"""
    tests: tuple[FlowTest, ...] = ()
    test_files: tuple[str, ...] = ()
    """paths and globs of files with further tests, relative to the flow's folder"""
    version: int = 1
    folder: Path = field(default=Path(), compare=False)
    code: Path | None = field(default=None, compare=False)
    """the folder of its modules and schema files, if it differs from that of its data, as in an unpacked package; None: `folder`"""
    calls: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    """Python form: id → the place of the call that made the node; empty for a flow read from YAML"""

    @property
    def code_folder(self) -> Path:
        """The folder of its modules and schema files."""
        return self.folder if self.code is None else self.code

    def node(self, id_: str) -> Node:
        """The node with that id, or with the id before the dot of `step.branch`. Raises KeyError if there is none."""
        name = id_.partition(".")[0]
        for nodes in (self.sources, self.steps, self.sinks):
            if name in nodes:
                return nodes[name]
        raise KeyError(id_)

    def on_error(self, node: Source | Step) -> OnError:
        """What `node` does with a record that it cannot process."""
        return node.on_error or self.defaults.on_error

    def late(self, step: Step) -> Late:
        """What `step` does with a row behind its watermark."""
        return step.late or self.defaults.late
