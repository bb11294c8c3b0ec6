"""The nodes of a query as the compiler visits them: which node reads which, and which nodes share one Python stage."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.errors import StepError
from scribengin.core.types import Field, Schema, Type
from scribengin.plan.graph import Graph, base
from scribengin.plan.python_functions import tests_object
from scribengin.plan.resolve import resolve, slowest
from scribengin.plan.sql.shape import shape_of
from scribengin.plan.stages import portable
from scribengin.spark import native
from scribengin.spark.late_rows import NEVER_US, window_grid
from scribengin.spark.predicate_pushdown import deciding_sieve
from scribengin.spark.program import ParseNode, PythonNode, UnionNode, UtilitiesNode, VectorNode
from scribengin.spec.functions import form_of
from scribengin.spec.model import Dedupe, Filter, Join, Merge, Parse, Python, Select, Sql, Step, Utilities
from scribengin.vector.engine import VectorStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scribengin.plan.model import Plan, PlannedNode, QueryPlan
    from scribengin.plan.resolve import Inherited, Resolved
    from scribengin.spark.program import StageNode
    from scribengin.spark.user_code import UserCode
    from scribengin.spec.model import Action, Node


# A step of a flow as a node of a Python stage.


def step_node(
    step: Step, inputs: tuple[str, ...], code: UserCode, schema_of: Callable[[str], Schema], orders: Mapping[str, Mapping[str, Any]]
) -> StageNode:
    """A step as a node of a Python stage.

    Args:
        step: The step.
        inputs: The inputs that the stage has.
        code: The user's code.
        schema_of: Id → its columns.
        orders: See `BatchInputs.orders`.

    Raises:
        StepError: The step can run only in Spark SQL; or a utility is a @frame function, or cannot run in free order.
    """
    schema_in = schema_of(step.inputs[0])
    match step.action:
        case Python() as action:
            form = form_of(action.function or code.load(action.reference))
            return PythonNode(
                step.id,
                inputs,
                action.reference,
                "batch" if form == "batch" else "record",
                schema_in,
                schema_of(step.id),
                action.branches,
                action.time_limit_s,
            )
        case Utilities() as action:
            return _utilities(step.id, action, inputs, code, (schema_in, schema_of(step.id)), orders.get(step.id, {}))
        case Parse(column, format_, fields, delimiter, null, cells, time):
            options = {"delimiter": delimiter, "null": null, "time": time} | dict(cells or ())
            return ParseNode(step.id, inputs, column, format_, fields, schema_in, schema_of(step.id), options)
        case Merge(origin=origin):
            return UnionNode(step.id, inputs, origin)
    raise StepError(f'step "{step.id}" cannot run in a Python stage: {type(step.action).__name__}')


def _utilities(
    step: str, action: Utilities, inputs: tuple[str, ...], code: UserCode, schemas: tuple[Schema, Schema], learned: Mapping[str, Any]
) -> UtilitiesNode:
    free = action.order == "free"
    forms: list[Literal["record", "batch"]] = []
    for index, reference in enumerate(action.references):
        function = action.function(index) or code.load(reference)
        form = form_of(function)
        if form == "frame":
            raise StepError(f'step "{step}": {reference} is a @frame function, which runs only in Spark', node=step)
        if free and (form != "record" or not tests_object(function)):
            raise StepError(
                f'step "{step}": {reference} is not annotated -> bool; `order: free` reorders only tests',
                remedy="annotate it if it only decides whether a record is kept, or set order: fixed",
                node=step,
            )
        forms.append(form)
    return UtilitiesNode(
        step, inputs, action.names, action.references, tuple(forms), free, *schemas, Python("").time_limit_s, learned if free else {}
    )


def vector_node(steps: Sequence[Step], schema_of: Callable[[str], Schema]) -> VectorNode | None:
    """Consecutive steps as one node for the vector engine; None if there are none."""
    if not steps:
        return None
    given = schema_of(steps[0].inputs[0])
    sieve, decides = deciding_sieve(steps, given)
    made = tuple(_vector_step(step, schema_of) for step in steps)
    return VectorNode(steps[-1].id, steps[0].inputs, "+".join(step.id for step in steps), made, given, sieve, decides)


def _vector_step(step: Step, schema_of: Callable[[str], Schema]) -> VectorStep:
    given, made = schema_of(step.inputs[0]), schema_of(step.id)
    require = tuple((name, portable(sql, made, test=True)) for name, sql in step.require)
    match step.action:
        case Filter(predicate):
            return VectorStep(step.id, made, portable(predicate, given, test=True), require=require)
        case Select(columns):
            return VectorStep(step.id, made, None, tuple((name, portable(sql, given, test=False)) for name, sql in columns), require)
    raise StepError(f'step "{step.id}" cannot run in the vector engine: {type(step.action).__name__}')


def declared_schema(node: Node, schema_of: Callable[[str], Schema]) -> Schema:
    """The columns of a step outside of Spark SQL, from its declaration or its inputs."""
    assert isinstance(node, Step)
    if node.schema is not None:
        return node.schema.fields
    if isinstance(node.action, Merge):
        together = native.union_schema(node.id, [(id_, schema_of(id_)) for id_ in node.inputs])
        origin = node.action.origin
        return together if origin is None else Schema((*together.fields, Field(origin, Type("STRING"), nullable=False)))
    inherited = schema_of(node.inputs[0])
    if isinstance(node.action, Parse):
        others = tuple(f for f in inherited.fields if f.name != node.action.column)
        return Schema((*others, *node.action.schema.fields))
    return inherited


_IN_TAIL = ("tail", "sink", "vector")


class NodeLayout:
    """The graph of a query's nodes. Created once per query. Ids may be `step.branch`."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._flow = plan.flow
        self._order = query.nodes
        self._nodes = {node.id: node for node in query.nodes}
        self._readers: dict[str, list[PlannedNode]] = {}
        for node in query.nodes:
            for input_ in node.inputs:
                self._readers.setdefault(input_, []).append(node)

    @cached_property
    def _resolved(self) -> Resolved:
        return resolve(Graph(self._flow))

    def step(self, id_: str) -> Step:
        """The step with that id. Any other id is a bug (AssertionError)."""
        step = self._flow.node(id_)
        assert isinstance(step, Step), id_
        return step

    def readers(self, id_: str) -> list[PlannedNode]:
        """The nodes of the query that read `id_`, in the plan's order."""
        return self._readers.get(id_, [])

    def outputs(self, node: PlannedNode) -> list[str]:
        """The outputs of `node` that other nodes read: its id, its branches."""
        return [id_ for id_ in self._readers if base(id_) == node.id]

    def feeds_tail(self, id_: str) -> bool:
        """True if a node of the task pipeline reads `id_`."""
        return any(reader.stage in _IN_TAIL for reader in self.readers(id_))

    def native_steps_behind(self, output: str) -> list[Step]:
        """The Spark SQL steps that follow a Python stage one after the other, each the only reader of the one before."""
        steps: list[Step] = []
        while len(readers := self.readers(output)) == 1 and readers[0].stage == "native" and not self.requires(base(output)):
            output = readers[0].id
            steps.append(self.step(output))
        return steps

    def vector_run(self, node: PlannedNode) -> list[str]:
        """The ids of the consecutive vector steps that end in `node`, first to last; empty if the next step is a vector step too."""
        if any(reader.stage == "vector" for reader in self.readers(node.id)):
            return []
        run = [node]
        while (before := self._nodes[base(run[0].inputs[0])]).stage == "vector":
            run.insert(0, before)
        return [step.id for step in run]

    def reading_stages(self, id_: str) -> int:
        """How many stages read `id_`; the task pipeline counts as one."""
        return sum(reader.stage not in _IN_TAIL for reader in self.readers(id_)) + self.feeds_tail(id_)

    def in_tail(self, id_: str) -> bool:
        """True if the rows of `id_` are made in the task pipeline."""
        return self._nodes[base(id_)].stage in ("tail", "read", "vector")

    def requires(self, id_: str) -> bool:
        """True if the step has a `require`."""
        node = self._flow.node(id_)
        return isinstance(node, Step) and bool(node.require)

    def looks_up(self, step: Step) -> bool:
        """True for a join of a stream, on its left, with a lookup table in which a row may match several rows."""
        if not isinstance(step.action, Join) or step.action.how == "semi":
            return False
        return [base(input_) in self._resolved.static for input_ in step.inputs] == [False, True]

    def may_drop(self, run: Iterable[str]) -> bool:
        """True if the Spark SQL stage of these nodes may drop rows."""
        nodes = [self._flow.node(id_) for id_ in run]
        return any(not isinstance(node, Step) or native.may_drop(node.action) for node in nodes)

    def is_exit(self, node: PlannedNode) -> bool:
        """True if rows leave the Python stage after `node`."""
        return any(not self.absorbed(node, reader) for output in self.outputs(node) for reader in self.readers(output))

    def absorbed(self, node: PlannedNode, reader: PlannedNode) -> bool:
        """True if `reader` runs in the same stage as `node`: both are Python, `node` has one reader, and `reader` has one input."""
        alone = sum(len(self.readers(output)) for output in self.outputs(node)) == 1
        both = node.stage in ("python", "decode") and reader.stage == "python"
        return both and alone and len(reader.inputs) == 1 and not self.requires(node.id)

    def chain(self, node: PlannedNode) -> list[PlannedNode]:
        """The nodes of the Python stage that ends in `node`, first to last."""
        chain = [node]
        while len(chain[0].inputs) == 1:
            before = self._nodes[base(chain[0].inputs[0])]
            if not self.absorbed(before, chain[0]):
                break
            chain.insert(0, before)
        return chain

    def tail_behind(self, ids: Iterable[str]) -> list[PlannedNode]:
        """The nodes of the task pipeline that rows of `ids` reach, in the plan's order."""
        found: set[str] = set()
        waiting = list(ids)
        while waiting:
            for reader in self.readers(waiting.pop()):
                if reader.stage in _IN_TAIL and reader.id not in found:
                    found.add(reader.id)
                    waiting += self.outputs(reader)
        return [node for node in self._order if node.id in found]

    def watermark(self, id_: str, schema: Schema, along: str | None = None) -> Inherited | None:
        """The watermark that `id_` declares or inherits, if its column is in `schema`; the slowest if there are several.

        Args:
            id_: The node.
            schema: The columns of `id_`.
            along: Only watermarks that this node, which precedes `id_`, has too; None: all.
        """
        marks = self._resolved.watermarks
        origins = {mark.origin for mark in marks.get(base(along or id_), ())}
        return slowest(tuple(mark for mark in marks.get(base(id_), ()) if mark.column in schema and mark.origin in origins))

    def lag_us(self, id_: str) -> int:
        """How far the watermark of a step is behind that of the query, in µs: a join before it may still give rows that are so much older.

        Spark's bound is one millisecond below the join's time span, since the span includes its ends.
        """
        return max((self._lag_behind_us(input_) for input_ in self._nodes[base(id_)].inputs), default=0)

    def has_known_lag(self, id_: str) -> bool:
        """False if a join that is written in SQL precedes the step: its time span is unknown."""
        return all(self._spans_known(input_) for input_ in self._nodes[base(id_)].inputs)

    def _spans_known(self, id_: str) -> bool:
        node = self._flow.node(id_)
        if not isinstance(node, Step):
            return True
        joins = isinstance(node.action, Sql) and shape_of(node.action.text, frozenset(node.inputs)).joins is not None
        return not (self._nodes[node.id].stateful and joins) and self.has_known_lag(id_)

    def holds_us(self, id_: str) -> int:
        """How long at most the query keeps a row, or rows made from it, in µs: after the end of its last window before `id_`, or after
        its time if it has no window. NEVER_US if a step keeps it for ever."""
        total = self.lag_us(id_) + 1_000  # Spark's watermarks are whole milliseconds
        for node in self._order:
            if node.stateful:
                action = self.step(node.id).action
                grid = window_grid(action)
                own = 0 if node.id == id_ and grid is not None and not grid.session else _span_us(action)
                if own is None:
                    return NEVER_US
                total += own
        return total

    def _lag_behind_us(self, id_: str) -> int:
        node = self._flow.node(id_)
        if not isinstance(node, Step):
            return 0
        own = 0
        if self._nodes[node.id].stateful and isinstance(node.action, Join | Merge) and node.action.within_s is not None:
            own = round(node.action.within_s * 1e6) + 1_000
        return self.lag_us(id_) + own


def _span_us(action: Action) -> int | None:
    """How long a stateful step keeps a row after its time, in µs; None: for ever."""
    grid = window_grid(action)
    if grid is not None:
        return None if grid.session else grid.size_us  # other rows may prolong a session
    if isinstance(action, Join | Merge | Dedupe) and action.within_s is not None:
        return round(action.within_s * 1e6)
    return 0 if isinstance(action, Dedupe) and action.time is not None else None
