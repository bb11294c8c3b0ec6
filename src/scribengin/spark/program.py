"""One Python stage as a picklable value: made by the driver, run by `stage` on the executors.

A stage is entered by the streams of sources (it reads and decodes them itself) or by Arrow rows of a native part, and is left
through sinks (then it is a Query's tail and ends in receipts) or as Arrow rows for the native part behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from scribengin.spark.late_rows import GateNode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.contract import BatchId, ConnectorContext, SinkConnector, SourceStream
    from scribengin.core.types import Schema
    from scribengin.spark.dead_letter_writer import LetterRules
    from scribengin.spark.user_code import UserCode
    from scribengin.spec.model import Evolve
    from scribengin.vector.engine import VectorStep

AT = "_sg_at"
"""Hidden BIGINT column: which record of which stream a row was (see `row_origin`)."""
BRANCH = "_sg_branch"
"""Hidden STRING column: which of a stage's outputs a row belongs to, `sorts` or `sorts.odd`."""
PART = "_sg_part"
"""Hidden INT column of what enters a stage before native steps: the partition, as the frame itself numbers it. Where several readers of
the frame meet in a union Spark runs it once for each, and the task's own number is another each time."""
MADE_OF = "_sg_made_of"
"""Hidden BIGINT column of what leaves a native step that may make several rows of one: the AT of the row that each was made of. The rows
of one stand side by side in one task, up to the end of the native run."""
DEAD = "_sg_dead"
"""Hidden STRUCT<step, name, payload> column: the `require` that a row has failed; null where all held."""


@dataclass(frozen=True, slots=True)
class SourceRef:
    """The data to open a source on an executor. `index` is its place in the Query's sorted source list."""

    node: str
    type: str
    place: ConnectorContext
    index: int
    evolve: Evolve = "strict"
    learned: tuple[str, ...] = ()
    """columns that are not declared, under `evolve: add`"""


@dataclass(frozen=True, slots=True)
class PythonNode:
    """A python step. `reference` is loaded from the user's code, also where the flow was written in Python with functions as objects:
    an object would be pickled by the name of a module that executors cannot import before the archive is on their path."""

    node: str
    inputs: tuple[str, ...]
    reference: str
    form: Literal["record", "batch"]
    schema_in: Schema
    schema_out: Schema
    branches: tuple[str, ...]
    limit_s: float


@dataclass(frozen=True, slots=True)
class UtilitiesNode:
    """A step of utilities, `names`, `references` and `forms` in the written order. `learned` is what earlier Batches know of them where
    they are free (see `step_ordering`)."""

    node: str
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    references: tuple[str, ...]
    forms: tuple[Literal["record", "batch"], ...]
    free: bool
    schema_in: Schema
    schema_out: Schema
    limit_s: float
    learned: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        """What each is called in dead letters and while its stage counts: `step.name`."""
        return tuple(f"{self.node}.{name}" for name in self.names)


PersonsNode = PythonNode | UtilitiesNode
"""nodes that run user functions"""


@dataclass(frozen=True, slots=True)
class ParseNode:
    """A parse step: `column` is decoded and leaves, its fields join the others."""

    node: str
    inputs: tuple[str, ...]
    column: str
    format: str
    fields: Schema
    schema_in: Schema
    schema_out: Schema
    options: Mapping[str, Any] = field(default_factory=dict)
    """the format's, such as `delimiter` of csv"""


@dataclass(frozen=True, slots=True)
class VectorNode:
    """A run of `filter` and `select` steps: `node` is the last of them, `run` their name in the ledger (`known+hot`). `sieve` as in
    ExitNode; where it `decides` it is all that the steps do."""

    node: str
    inputs: tuple[str, ...]
    run: str
    steps: tuple[VectorStep, ...]
    schema_in: Schema
    sieve: str | None = None
    decides: bool = False

    @property
    def fallible(self) -> bool:
        """True if a row may arrive whose outcome only Spark can determine."""
        return any(step.fallible for step in self.steps)


@dataclass(frozen=True, slots=True)
class UnionNode:
    """Inputs of the same columns, one after the other. `origin` is the column that says by which input a row came (`flat_name`)."""

    node: str
    inputs: tuple[str, ...]
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class UnitCommit:
    """The Batch's units commit one by one. `input_hash` and `behind` as in UnitSink; `plan` is the one that these tasks run."""

    units: int
    input_hash: str
    behind: Mapping[str, Any]
    plan: str


@dataclass(frozen=True, slots=True)
class SinkNode:
    """The write of a sink. `sink` is the connector's object; `schema` what it is given. `commit` is None if rows are staged."""

    node: str
    inputs: tuple[str, ...]
    sink: SinkConnector
    schema: Schema
    commit: UnitCommit | None = None


@dataclass(frozen=True, slots=True)
class ExitNode:
    """Rows leave as Arrow; with AT where `at` (their place is known and wanted behind). `sieve` says which ones are wanted behind."""

    node: str
    inputs: tuple[str, ...]
    schema: Schema
    at: bool
    sieve: str | None = None
    branch: str | None = None
    """in BRANCH, where several outputs leave the stage; None for a stage with one"""


StageNode = PersonsNode | ParseNode | VectorNode | UnionNode | GateNode | SinkNode | ExitNode


@dataclass(frozen=True, slots=True)
class StreamsEntry:
    """The stage reads sources itself: task i reads `units[i]`, a source and an index into `streams` of that source.

    Where `units` is empty they come as rows (columns `source`, `index`, `stream`): the streaming part of a stateful Query. `part`: the
    numbers of those that run in this process, as ranges; None: all of them.
    `skip` names records that a native step cannot take ((source, index) → sequence number → (node, message)): they become
    dead letters.
    """

    sources: Mapping[str, SourceRef]
    units: tuple[tuple[str, int], ...] = ()
    streams: Mapping[str, tuple[SourceStream, ...]] = field(default_factory=dict)
    skip: Mapping[tuple[str, int], Mapping[int, tuple[str, str]]] = field(default_factory=dict)
    part: tuple[tuple[int, int], ...] | None = None

    @property
    def own(self) -> tuple[tuple[str, int], ...]:
        """The units that run in this process."""
        return self.units if self.part is None else tuple(unit for start, end in self.part for unit in self.units[start:end])


@dataclass(frozen=True, slots=True)
class RowsEntry:
    """Arrow rows of the native node `node`, with AT and DEAD columns where they were carried, and PART before native steps.

    `native` is the name under which the native run before this entry is counted; empty if there is none. `made_of`: with MADE_OF,
    by which the rows that the run has made are reported from those that it has let pass. `first` and `end`: the numbers of its units,
    where other workers of the tier run those before and behind; None: all from `first` on.
    """

    node: str
    schema: Schema
    native: str
    at: bool
    dead: bool
    made_of: bool
    sources: Mapping[str, SourceRef] = field(default_factory=dict)
    streams: Mapping[str, tuple[SourceStream, ...]] = field(default_factory=dict)
    first: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """One stage. `index` is unique among the stages of a Query; units of stage i begin at i times `UNIT_STRIDE`."""

    index: int
    entry: StreamsEntry | RowsEntry
    nodes: tuple[StageNode, ...]
    code: UserCode
    letters: LetterRules
    batch: BatchId | None = None
    """None in a streaming part: then the task's own Batch number is asked of Spark"""


def feeds_a_step(nodes: Sequence[StageNode], node: str) -> bool:
    """True if one of a stage's nodes reads the rows of `node` before they leave the stage."""
    steps = (other for other in nodes if not isinstance(other, SinkNode | ExitNode))
    return any(input_.partition(".")[0] == node for other in steps for input_ in other.inputs)


def last_step(nodes: Sequence[StageNode], inputs: Sequence[str]) -> str | None:
    """The python or parse step whose rows are checked where they leave a stage by these inputs; None if they were typed all the way."""
    steps = {node.node: node.node for node in nodes if isinstance(node, PythonNode | ParseNode | UnionNode)}
    steps |= {node.node: node.ids[-1] for node in nodes if isinstance(node, UtilitiesNode)}
    return next((steps[name] for name in (input_.partition(".")[0] for input_ in inputs) if name in steps), None)


SPARK_PARSE = "parse: spark"
"""In DEAD, instead of a predicate's name: the line that Spark's parser could not read."""
UNIT_STRIDE = 10_000
EXIT = "→"
"""Ends the name under which a stage counts what leaves it as Arrow."""
LANE = "@"
"""Stands in such a name before the input of a union that the rows came by, where these are kept apart."""
LATE = "~"
"""Begins the name under which a gate counts the late and timeless rows of the stateful step behind it."""
MADE_IN = "*"
"""Begins the name under which a stage counts, as `out`, the rows that the native run before it has made."""
DIED_IN = "!"
"""Begins the name under which a stage counts the records that a native step behind it cannot take."""
