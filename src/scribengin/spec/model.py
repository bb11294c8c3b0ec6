"""The declared Flow: frozen values, equal when they mean the same. Spark-free, connector-free.

`parse` (YAML) and `build` (Python) both make these; `dump` writes them back: `parse(dump(flow)) == flow`.
Places of the text are kept beside the model (`Located`), never in it, so that moving a line changes no plan.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.zones import UTC
from scribengin.spec.edge_model import Depth, EdgeProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.core.problems import Place
    from scribengin.core.types import Schema
    from scribengin.spec.alert_model import Alert
    from scribengin.spec.flow_tests import FlowTest


Delivery = Literal["exactly_once", "at_least_once"]
OnError = Literal["fail", "drop", "dead_letter"]
Late = Literal["dead_letter", "drop", "error"]
Emit = Literal["append", "update", "complete"]
Evolve = Literal["strict", "add", "lenient"]


@dataclass(frozen=True, slots=True)
class Watermark:
    """`ts 10m`: rows of `column` more than `delay_s` seconds behind the newest seen are late."""

    column: str
    delay_s: float
    ahead_s: float | None = None
    """how far a row may be ahead of the clock; beyond it is a dead letter and moves nothing"""
    idle_s: float | None = None
    """after how long without rows it no longer holds the watermarks of others back; None: it always does"""


@dataclass(frozen=True, slots=True)
class SchemaSpec:
    """The columns that a source or step gives. `evolve` says what becomes of data that have others."""

    fields: Schema
    evolve: Evolve = "strict"
    learned: tuple[str, ...] = field(default=(), compare=False)
    """those of `fields` that nobody declared: the data had them, under `evolve: add`"""


Standby = Literal["none", "warm"]
"""`warm`: where flows are managed, a spare process with Spark up takes over when the one that runs the tier is lost"""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a tier gets where it runs."""

    cores: int | None = None
    memory: int | None = None
    """bytes"""
    executors: int | None = None
    """where Spark runs on a cluster: each has so many cores and so much memory"""
    spark: Mapping[str, str] = field(default_factory=dict)
    """settings of its session, over Scribengin's own"""
    standby: Standby | None = None
    """None: as `defaults` says"""


@dataclass(frozen=True, slots=True)
class Tier:
    """A part of the graph that runs by itself. `steps` are ids of nodes; the planner places the others."""

    id: str
    steps: tuple[str, ...]
    group: str | None = None
    resources: Resources = field(default_factory=Resources)
    trigger_s: float | None = None
    acknowledge: Literal["checkpoint", "state"] = "checkpoint"
    """when what a stateful step has taken counts as through: once the checkpoint holds it, or once it has left the state"""
    workers: int | Literal["each"] = 1
    """where flows are managed: how many processes stage its Batches, or one on each host of its group; one of them decides each"""


@dataclass(frozen=True, slots=True)
class Member:
    """One of several that can stand for each other: a host, or the place of an endpoint. The lowest cost is taken first."""

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
"""`auto`: SQL steps that mean the same there run in the tail's vector engine"""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for every node that says nothing else."""

    delivery: Delivery = "exactly_once"
    on_error: OnError = "dead_letter"
    trigger_s: float = 0.0
    retain_s: float | None = None
    """how long dead letters are kept; None: for ever"""
    retain_bytes: int | None = None
    """how many bytes of them a Query keeps; None: any"""
    profile: Profile = "balanced"
    """names defaults of everything that says only how much at once or how fast"""
    edge: EdgeProperties = field(default_factory=EdgeProperties)
    trace: float = 0.0
    """the share of records, 0 to 1, whose way is kept; that of dead letters always is"""
    standby: Standby = "none"
    engine: Engine = "auto"
    late: Late = "dead_letter"


@dataclass(frozen=True, slots=True)
class Source:
    """`options` hold typed values of the connector's declared options (given ones only), `type` and the keys below aside."""

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
    """how much may wait at it before flows that feed it slow down, go on as before, and pause; where flows are managed"""


@dataclass(frozen=True, slots=True)
class Sink:
    """`together` names the Query that this sink shares; `trigger_s` overrides the default."""

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
        """Where its rows stand, for people: a path, `topic kept`; its type where it has neither."""
        if "path" in self.options:
            return str(self.options["path"])
        return f"topic {self.options['topic']}" if "topic" in self.options else self.type


# What a step does: one class per kind.


@dataclass(frozen=True, slots=True)
class Filter:
    """`filter: PREDICATE`."""

    predicate: str


@dataclass(frozen=True, slots=True)
class Select:
    """`select: {name: expression}`, or a list of expressions (`id`, `upper(user) AS who`)."""

    columns: tuple[tuple[str, str], ...]
    """(output name, expression)"""


@dataclass(frozen=True, slots=True)
class Sql:
    """`sql: SELECT …`."""

    text: str


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """`slide_s` equals `size_s` for tumbling windows. The window's columns are `window_start` and `window_end`.

    Windows begin where the clock of `time_zone` shows a multiple of the size since the beginning of 1970: a day's at local midnight.
    """

    time: str
    size_s: float
    slide_s: float
    time_zone: str = UTC


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`aggregate: {by, window, emit, columns}`."""

    by: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    window: WindowSpec | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """`join: {key, how, time, within}`: exactly two inputs, the first is the left one."""

    key: tuple[str, ...]
    how: Literal["inner", "left", "right", "full", "semi"] = "inner"
    time: tuple[tuple[str, str], ...] = ()
    """(input id, its time column)"""
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Parse:
    """`parse: {column, format, schema}`: the parsed fields join the other columns, `column` leaves. What is below is csv's."""

    column: str
    format: str
    schema: Schema
    delimiter: str = ","
    null: str | tuple[str, ...] = ""
    cells: tuple[tuple[str, Any], ...] | None = None
    """(option, value) of the others, in the order of their names; None where none is given"""
    time: Literal["exact", "truncate"] = "exact"


@dataclass(frozen=True, slots=True)
class Route:
    """`route: {branch: predicate, …, otherwise: branch}`: read as `step.branch`."""

    cases: tuple[tuple[str, str], ...]
    """(branch, predicate), the first that holds"""
    otherwise: str | None = None


@dataclass(frozen=True, slots=True)
class Python:
    """`python: "module:name"`."""

    """`function` is set only by the Python form; equality ignores it, `reference` names it."""

    reference: str
    branches: tuple[str, ...] = ()
    """names that `to("branch", row)` may use; read as step.branch"""
    time_limit_s: float = 30.0
    function: Callable[..., Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Dedupe:
    """`dedupe: {key, time, within}`."""

    key: tuple[str, ...]
    time: str | None = None
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """`merge: {how: union | intersect, key, time, within, origin}`: a bare `from: [a, b]` is a union by name."""

    how: Literal["union", "intersect"] = "union"
    key: tuple[str, ...] = ()
    time: str | None = None
    within_s: float | None = None
    origin: str | None = None
    """of a union: the STRING column, last and never null, that names the input of a row: `a`, and `r_big` of a branch `r.big`"""


@dataclass(frozen=True, slots=True)
class Utilities:
    """`utilities: ["module:f", "module:g"]`, with `order` beside it: Python steps in a row that are one step.

    `functions` is set only by the Python form, one per reference or none at all; equality ignores it.
    """

    references: tuple[str, ...]
    order: Literal["fixed", "free"] = "fixed"
    """`free`: tests that run in the order that costs least"""
    functions: tuple[Callable[..., Any] | None, ...] = field(default=(), compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What each is called behind the step's dot: its function's name, with a number where that stands twice.

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
        """The object itself, where the flow was built in Python."""
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
    """what a step that keeps state does with rows behind its watermark"""


Node = Source | Step | Sink


@dataclass(frozen=True, slots=True)
class RecordBound:
    """`1%` or `100`: at most so many of some records. One of the two is set."""

    percent: float | None = None
    """0 to 100"""
    records: int | None = None

    def text(self) -> str:
        """As a flow file writes it.

        >>> RecordBound(percent=0.5).text(), RecordBound(records=100).text()
        ('0.5%', '100')
        """
        if self.percent is None:
            return str(self.records)
        return f"{Decimal(repr(self.percent)).normalize():f}%"

    def allows(self, records: int, of: int) -> bool:
        """Whether so many of so many are within it. A percentage of no records allows any number, and so does 100 %: a step may make
        several rows of a record, and each may die."""
        if self.percent is not None:
            return of == 0 or self.percent >= 100 or records * 100 <= self.percent * of
        return records <= (self.records or 0)


BeyondMaxDead = Literal["fail", "degrade"]


@dataclass(frozen=True, slots=True)
class MaxDead:
    """How many of the records that a Query reads may become dead letters, in a Batch and in a run. What is None is not bounded."""

    batch: RecordBound | None = None
    run: RecordBound | None = None
    then: BeyondMaxDead = "fail"


@dataclass(frozen=True, slots=True)
class Flow:
    """What a person declares. The mappings keep the file's order; `folder` is where the paths of its data start."""

    name: str
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
    about: str = ""
    defaults: Defaults = field(default_factory=Defaults)
    tiers: Mapping[str, Tier] = field(default_factory=dict)
    edges: Mapping[str, EdgeProperties] = field(default_factory=dict)
    """`a -> b` (`r.branch -> b`), written so → its properties"""
    groups: Mapping[str, Group] = field(default_factory=dict)
    max_delay_s: float | None = None
    """how old the oldest thing that waits may be before the flow is degraded"""
    max_dead: MaxDead | None = None
    alerts: Mapping[str, Alert] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """by which verbs, and rights, choose flows"""
    tests: tuple[FlowTest, ...] = ()
    test_files: tuple[str, ...] = ()
    """paths and globs of files that hold further tests, from the flow's folder"""
    version: int = 1
    folder: Path = field(default=Path(), compare=False)
    code: Path | None = field(default=None, compare=False)
    """where its modules and schema files start, where they lie apart from its data: an unpacked package; None: `folder`"""
    calls: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    """of the Python form: id → where its node was made; empty for a flow that was read from YAML"""

    @property
    def code_folder(self) -> Path:
        """Where its modules and schema files start."""
        return self.folder if self.code is None else self.code

    def node(self, id_: str) -> Node:
        """The node of that id, or of the id before the dot of `step.branch`. KeyError where there is none."""
        name = id_.partition(".")[0]
        for nodes in (self.sources, self.steps, self.sinks):
            if name in nodes:
                return nodes[name]
        raise KeyError(id_)

    def on_error(self, node: Source | Step) -> OnError:
        """What `node` does with a record that it cannot handle."""
        return node.on_error or self.defaults.on_error

    def late(self, step: Step) -> Late:
        """What `step` does with a row that its watermark has passed."""
        return step.late or self.defaults.late
