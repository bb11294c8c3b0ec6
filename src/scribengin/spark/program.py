"""One Python stage as a picklable value: created by the driver, run by `stage` on the executors.

The input of a stage is the streams of sources (it reads and decodes them itself) or Arrow rows from Spark SQL steps. Its output goes to
sinks (then it is a task pipeline of the query and returns write receipts) or, as Arrow rows, to the Spark SQL steps after it.
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
"""Hidden BIGINT column: the stream and the record that a row comes from (see `row_origin`)."""
BRANCH = "_sg_branch"
"""Hidden STRING column: the output of a stage to which a row belongs, `sorts` or `sorts.odd`."""
PART = "_sg_part"
"""Hidden INT column of the input of a stage before Spark SQL steps: the partition number in the frame itself. If several readers of the
frame meet in a union, Spark runs the frame once for each, each time with other task numbers."""
MADE_OF = "_sg_made_of"
"""Hidden BIGINT column of the output of a Spark SQL step that may make several rows of one: the AT of the input row. The rows made of one
are adjacent in one task, up to the end of the Spark SQL stage."""
DEAD = "_sg_dead"
"""Hidden STRUCT<step, name, payload> column: the `require` that a row has failed; null if it failed none."""


@dataclass(frozen=True, slots=True)
class SourceRef:
    """What an executor needs to open a source. `index` is its position in the query's sorted list of sources."""

    node: str
    type: str
    place: ConnectorContext
    index: int
    evolve: Evolve = "strict"
    learned: tuple[str, ...] = ()
    """the columns that are inferred, not declared, under `evolve: add`"""


@dataclass(frozen=True, slots=True)
class PythonNode:
    """A python step. `reference` is loaded from the user's code even if the flow was written in Python with function objects: pickle would
    store an object by the name of a module that executors cannot import before the archive is on their path."""

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
    """A step of utilities; `names`, `references` and `forms` are in the order of the flow file. `learned` is what earlier Batches recorded
    of them if their order is free (see `step_ordering`)."""

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
        """The id of each utility in dead letters and in the counts of a running stage: `step.name`."""
        return tuple(f"{self.node}.{name}" for name in self.names)


PersonsNode = PythonNode | UtilitiesNode
"""nodes that run user functions"""


@dataclass(frozen=True, slots=True)
class ParseNode:
    """A parse step: `column` is decoded and removed, and its fields are added to the other columns."""

    node: str
    inputs: tuple[str, ...]
    column: str
    format: str
    fields: Schema
    schema_in: Schema
    schema_out: Schema
    options: Mapping[str, Any] = field(default_factory=dict)
    """the options of the format, such as `delimiter` of csv"""


@dataclass(frozen=True, slots=True)
class VectorNode:
    """Consecutive `filter` and `select` steps. `node` is the last of them, `run` their common name in the ledger (`known+hot`). `sieve`: as
    in ExitNode; if `decides`, the sieve alone does all that the steps do."""

    node: str
    inputs: tuple[str, ...]
    run: str
    steps: tuple[VectorStep, ...]
    schema_in: Schema
    sieve: str | None = None
    decides: bool = False

    @property
    def fallible(self) -> bool:
        """True if there may be a row whose outcome only Spark can determine."""
        return any(step.fallible for step in self.steps)


@dataclass(frozen=True, slots=True)
class UnionNode:
    """A union of inputs with the same columns, one after the other. `origin` is the column that names a row's input (`flat_name`)."""

    node: str
    inputs: tuple[str, ...]
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class UnitCommit:
    """The commit of a Batch whose task outputs commit one by one. `input_hash` and `behind`: as in UnitSink; `plan` is the plan that the
    tasks run."""

    units: int
    input_hash: str
    behind: Mapping[str, Any]
    plan: str


@dataclass(frozen=True, slots=True)
class SinkNode:
    """The write of a sink. `sink` is the connector's object; `schema` the columns it receives. `commit` is None if rows are staged."""

    node: str
    inputs: tuple[str, ...]
    sink: SinkConnector
    schema: Schema
    commit: UnitCommit | None = None


@dataclass(frozen=True, slots=True)
class ExitNode:
    """The exit of rows as Arrow; with AT if `at`. `sieve` is a test for the rows that the next steps keep; None: all rows."""

    node: str
    inputs: tuple[str, ...]
    schema: Schema
    at: bool
    sieve: str | None = None
    branch: str | None = None
    """the value of BRANCH if the stage has several outputs; None if it has one"""


StageNode = PersonsNode | ParseNode | VectorNode | UnionNode | GateNode | SinkNode | ExitNode


@dataclass(frozen=True, slots=True)
class StreamsEntry:
    """The stage reads sources itself: task i reads `units[i]`, a source and an index into `streams` of that source.

    If `units` is empty, they arrive as rows (columns `source`, `index`, `stream`): the streaming part of a stateful query. `part`: the
    ranges (end exclusive) of the unit numbers that run in this process; None: all of them. `skip` has the records that a Spark SQL step
    cannot process ((source, index) → sequence number → (node, message)): they become dead letters.
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
    """The stage reads Arrow rows of the Spark SQL node `node`, with AT and DEAD if the frame has them, and PART before Spark SQL steps.

    `native` is the name under which the Spark SQL stage before this entry is counted; empty if there is none. `made_of`: True if the rows
    have MADE_OF, by which rows that the stage has made are distinguished from rows that it has passed on. `first` and `end`: the numbers of
    its task outputs if other workers of the tier run those before and after it; `end` None: all from `first` on.
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
    """One stage. `index` is unique among the stages of a query; the task outputs of stage i are numbered from i times `UNIT_STRIDE`."""

    index: int
    entry: StreamsEntry | RowsEntry
    nodes: tuple[StageNode, ...]
    code: UserCode
    letters: LetterRules
    batch: BatchId | None = None
    """None in a streaming part: the task then asks Spark for its Batch number"""


def feeds_a_step(nodes: Sequence[StageNode], node: str) -> bool:
    """True if one of a stage's nodes reads the rows of `node` before they leave the stage."""
    steps = (other for other in nodes if not isinstance(other, SinkNode | ExitNode))
    return any(input_.partition(".")[0] == node for other in steps for input_ in other.inputs)


def last_step(nodes: Sequence[StageNode], inputs: Sequence[str]) -> str | None:
    """The Python step whose output is checked when it leaves a stage by these inputs; None if all inputs have checked types."""
    steps = {node.node: node.node for node in nodes if isinstance(node, PythonNode | ParseNode | UnionNode)}
    steps |= {node.node: node.ids[-1] for node in nodes if isinstance(node, UtilitiesNode)}
    return next((steps[name] for name in (input_.partition(".")[0] for input_ in inputs) if name in steps), None)


SPARK_PARSE = "parse: spark"
"""In DEAD, in place of a predicate's name: Spark's parser could not read the line."""
UNIT_STRIDE = 10_000
EXIT = "→"
"""Suffix of the name under which a stage counts the rows that leave it as Arrow."""
LANE = "@"
"""In such a name, the prefix of the union's input that the rows come from, if the inputs are kept in separate lanes."""
LATE = "~"
"""Prefix of the name under which a late-row counter counts the late rows and rows without a time of the stateful step after it."""
MADE_IN = "*"
"""Prefix of the name under which a stage counts, as `out`, the rows that the Spark SQL stage before it has made."""
DIED_IN = "!"
"""Prefix of the name under which a stage counts the records that a Spark SQL step after it cannot process."""
