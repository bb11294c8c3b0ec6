"""Runs one step over in-process rows, with the outcome of each row: for `preview`, which shows a flow step by step.

The same code as in a run does the work: the classes of Python stages, in this process, and the frames of `native`, over local rows. Only
the combination of steps differs: a run fuses them, here each one ends before the next begins. A stateful step sees its rows as one Batch,
without a watermark.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from scribengin.core.errors import ScribenginError, StepError
from scribengin.core.types import Field, Schema, Type, arrow_schema, in_backticks
from scribengin.formats.contract import RecordPlace
from scribengin.plan.graph import branches, flat_name
from scribengin.spark import native, spark_parse
from scribengin.spark.bad_record_search import LIMIT, short_message
from scribengin.spark.chunk import Chunk, Origin
from scribengin.spark.dead_letter_writer import DeadLetterWriter
from scribengin.spark.failures import is_data_error, message_of, step_failure
from scribengin.spark.native import NativeFrame
from scribengin.spark.node_schema import step_node
from scribengin.spark.parse_step import ParseStep
from scribengin.spark.program import AT, DEAD, SPARK_PARSE, ParseNode, PythonNode, UtilitiesNode
from scribengin.spark.python_step import BatchStep, RecordStep, instantiate
from scribengin.spark.user_code import code_line
from scribengin.spark.utilities import utilities_step
from scribengin.spark.watchdog import Watchpoint
from scribengin.spec.functions import form_of
from scribengin.spec.model import Merge, Parse, Python, Utilities
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from scribengin.spark.user_code import UserCode
    from scribengin.spark.utilities import Free, InARow
    from scribengin.spec.model import OnError, Source, Step

    Build = Callable[[list[tuple[str, NativeFrame]]], Mapping[str, NativeFrame]]


# In-process rows with their origins, and the dead letters of a step, which are kept in memory instead of written.


@dataclass(frozen=True, slots=True)
class Root:
    """The record that a row was made of: its source, its place in it, and its bytes."""

    source: str
    place: RecordPlace
    payload: bytes


@dataclass(frozen=True, slots=True)
class RowSample:
    """Rows in this process. `roots[i]` is the record that row i was made of; None if it was not made of a single record."""

    rows: pa.RecordBatch
    schema: Schema
    roots: tuple[Root | None, ...]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def taken(self, indexes: Sequence[int]) -> RowSample:
        """The rows with these indexes."""
        return RowSample(self.rows.take(pa.array(indexes, pa.int64())), self.schema, tuple(self.roots[index] for index in indexes))


def joined(samples: Sequence[RowSample], schema: Schema) -> RowSample:
    """The rows of all samples, one after the other, with the columns of `schema` by name."""
    form = arrow_schema(schema)
    table = pa.Table.from_batches([sample.rows.select(form.names).cast(form) for sample in samples], schema=form)
    return RowSample(one_batch(table), schema, tuple(root for sample in samples for root in sample.roots))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of the table as one record batch; works for an empty table too."""
    return pa.RecordBatch.from_arrays(_flat(table), schema=table.schema)


def _flat(table: pa.Table) -> list[pa.Array]:
    return [pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in table.columns]


@dataclass(frozen=True, slots=True)
class Died:
    """A row that a step could not process. `index` is its number among the input rows, `utility` the step's utility that failed, if the
    step has utilities."""

    index: int
    reason: str
    message: str
    code_line: str = ""
    utility: str = ""
    payload: str = ""
    """the row as JSON, if it failed a `require`"""


class RootsOrigin(Origin):
    """The origin of a RowSample's rows: ordinals are row indexes."""

    def __init__(self, roots: Sequence[Root | None]) -> None:
        self._roots = roots

    def place(self, ordinal: int) -> RecordPlace:
        """The place of the record that the row was made of."""
        root = self._roots[ordinal]
        return RecordPlace("") if root is None else root.place

    def payload(self, ordinal: int) -> bytes | None:
        """The bytes of the record that the row was made of."""
        root = self._roots[ordinal]
        return None if root is None else root.payload


class HeldLetters(DeadLetterWriter):
    """Keeps dead letters in memory and writes none, whatever the node's `on_error`. For steps, which only call `bury`."""

    def __init__(self) -> None:
        self.died: list[Died] = []

    def bury(
        self,
        node: str,
        chunk: Chunk,
        index: int,
        reason: str,
        message: str,
        *,
        error: BaseException | None = None,
        came: Schema | None = None,  # noqa: ARG002 (a preview has no replay)
        arrived: pa.RecordBatch | None = None,  # noqa: ARG002
        arrived_at: int | None = None,  # noqa: ARG002
        fate: OnError | None = None,  # noqa: ARG002
        remedy: str = "",  # noqa: ARG002
    ) -> None:
        """Record the dead letter. Raises KeyboardInterrupt if `error` is one: unlike an executor, this process receives the user's
        Ctrl-C."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        ordinal = chunk.ordinal(index)
        assert ordinal is not None, "in-process rows are numbered"
        line = code_line(error) if error is not None else ""
        self.died.append(Died(ordinal, reason, message, line, node.partition(".")[2]))


@dataclass(frozen=True, slots=True)
class StepRows:
    """Rows that a step returned. `of[i]` is the number of the input row (counted over all inputs) from which row i was made; `of` is None
    if the rows do not come from single input rows."""

    sample: RowSample
    of: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The result of a step: its own rows under "", those of branches under their names."""

    outs: Mapping[str, StepRows]
    died: tuple[Died, ...]


class LoneSteps:
    """Runs steps one at a time. `session` is called only if a step needs Spark; record functions do not."""

    def __init__(self, code: UserCode, session: Callable[[], SparkSession]) -> None:
        self._code = code
        self._session = session

    def run(self, step: Step, inputs: Inputs, *, stateful: bool) -> StepOutcome:
        """Run the step over the inputs. Raises StepError, with its node, if the step itself is wrong: it cannot be loaded, or Spark cannot
        analyse it."""
        try:
            match step.action:
                case Python() as action if form_of(action.function or self._code.load(action.reference)) == "frame":
                    outcome = self._in_spark(step, inputs, lambda frames: self._frame_function(action, frames))
                case Python() | Utilities() | Parse() | Merge(how="union"):
                    outcome = self._in_python(step, inputs)
                case _:
                    return self._in_spark(step, inputs, lambda frames: native.apply(self._session(), step, frames, stateful=stateful))
            return self._required(step, outcome) if step.require else outcome
        except StepError as error:
            error.node = error.node or step.id
            raise

    def parsed_by_spark(self, source: Source, lines: RowSample, schema: Schema) -> StepOutcome:
        """The records of a source with `parse: spark`, parsed from its lines."""
        return self._in_spark(source, [(source.id, lines)], lambda frames: {"": spark_parse.parsed(frames[0][1], source, schema)})

    # --- Python ---

    def _in_python(self, step: Step, inputs: Inputs) -> StepOutcome:
        schemas = {id_: sample.schema for id_, sample in inputs}
        schemas[step.id] = _schema_given(step, inputs)
        if isinstance(step.action, Merge):
            return _union(step.action, inputs, schemas[step.id])
        node = step_node(step, step.inputs, self._code, schemas.__getitem__, {})
        together = joined([sample for _, sample in inputs], inputs[0][1].schema)
        letters, counts = HeldLetters(), Counts()
        chunk = Chunk(RootsOrigin(together.roots), range(len(together)), batch=together.rows)
        outs: Iterable[tuple[str, Chunk]]
        if isinstance(node, ParseNode):
            outs = [("", ParseStep(node, counts, letters)(chunk))]
        else:
            assert isinstance(node, PythonNode | UtilitiesNode)
            outs = self._python(node, counts, letters)(chunk)
        made = {branch: _Gathered(together, schemas[step.id]) for branch in ("", *branches(step))}
        for branch, out in outs:
            batch, bad = out.batch(schemas[step.id])
            for each in bad:
                letters.bury(step.id, out, each.ordinal, each.reason, each.message)
            lost = {each.ordinal for each in bad}
            kept = None if out.ordinals is None else [ordinal for index, ordinal in enumerate(out.ordinals) if index not in lost]
            made[branch].add(batch, kept)
        return StepOutcome({branch: gathered.made() for branch, gathered in made.items()}, tuple(letters.died))

    def _python(self, node: PythonNode | UtilitiesNode, counts: Counts, letters: HeldLetters) -> RecordStep | BatchStep | InARow | Free:
        if isinstance(node, UtilitiesNode):
            points = [Watchpoint(id_, node.limit_s) for id_ in node.ids]
            return utilities_step(node, self._code, [Counts() for _ in points], letters, points, settle=True)
        function = instantiate(self._code.load(node.reference), node.node)
        hangs = Watchpoint(node.node, node.limit_s)
        if node.form == "batch":
            return BatchStep(
                node.node, function, schema_in=node.schema_in, schema_out=node.schema_out, counts=counts, letters=letters, hangs=hangs
            )
        return RecordStep(node, function, None, counts=counts, letters=letters, hangs=hangs, settle=True)

    # --- Spark ---

    def _frame_function(self, action: Python, frames: list[tuple[str, NativeFrame]]) -> dict[str, NativeFrame]:
        function = action.function or self._code.load(action.reference)
        # in a run, the workers have the modules from their other stages
        self._session().sparkContext.addPyFile(self._code.archive)
        return {"": NativeFrame(function(frames[0][1].visible()))}

    def _required(self, step: Step, outcome: StepOutcome) -> StepOutcome:
        """The outcome without the rows of a Python step that fail its `require`; these are dead letters."""
        outs, died = dict(outcome.outs), list(outcome.died)
        for branch, made in outcome.outs.items():
            checked = self._in_spark(step, [(step.id, made.sample)], lambda frames: {"": native.required(frames[0][1], step)})
            kept = checked.outs[""]
            at = made.of or ()
            of = None if made.of is None or kept.of is None else tuple(at[index] for index in kept.of)
            outs[branch] = StepRows(kept.sample, of)
            died += [replace(each, index=at[each.index] if at else _NOWHERE) for each in checked.died]
        return StepOutcome(outs, tuple(died))

    def _in_spark(self, node: Step | Source, inputs: Inputs, build: Build) -> StepOutcome:
        """Run `build`, which makes frames from the inputs' frames. Rows that make it fail are found and become dead letters."""
        try:
            return self._collected(node.id, inputs, build)
        except ScribenginError:
            raise
        except Exception as error:
            if not is_data_error(error):
                raise step_failure(node.id, error) from error
            dead = self._culprits(node.id, inputs, build)
            if not dead:
                text = message_of(error)[:300]
                raise StepError(f'step "{node.id}" failed, but no single record causes it: {text}', node=node.id) from error
        lost = {each.index for each in dead}
        left, first = [], 0
        numbers: list[int] = []
        for id_, sample in inputs:
            keep = [index for index in range(len(sample)) if first + index not in lost]
            numbers += [first + index for index in keep]
            left.append((id_, sample.taken(keep)))
            first += len(sample)
        outcome = self._collected(node.id, left, build)
        outs = {
            branch: StepRows(made.sample, None if made.of is None else tuple(numbers[index] for index in made.of))
            for branch, made in outcome.outs.items()
        }
        died = [replace(each, index=numbers[each.index]) if each.index >= 0 else each for each in outcome.died]
        return StepOutcome(outs, (*dead, *died))

    def _collected(self, node: str, inputs: Inputs, build: Build) -> StepOutcome:
        roots = tuple(chain.from_iterable(sample.roots for _, sample in inputs))
        frames, first = [], 0
        for id_, sample in inputs:
            frames.append((id_, self._frame(sample, first)))
            first += len(sample)
        outs, died = {}, list[Died]()
        for branch, frame in build(frames).items():
            schema = native.schema_of(frame.df, node)
            # its parts: Arrow refuses a null among structs whose parts may not be null
            dead = (frame.df[DEAD]["name"].alias(DEAD), frame.df[DEAD]["payload"].alias(_PAYLOAD)) if frame.dead else ()
            batch = one_batch(frame.df.select(*(in_backticks(name) for name in frame.df.columns if name != DEAD), *dead).toArrow())
            at: list[int] | None = batch.column(AT).to_pylist() if frame.at else None
            keep = list(range(batch.num_rows))
            if frame.dead:
                failed, payloads = batch.column(DEAD).to_pylist(), batch.column(_PAYLOAD).to_pylist()
                keep = [index for index in keep if failed[index] is None]
                died += [
                    _failed(name, _NOWHERE if at is None else at[index], payloads[index])
                    for index, name in enumerate(failed)
                    if name is not None
                ]
            form = arrow_schema(schema)
            rows = batch.select(form.names).take(pa.array(keep, pa.int64())).cast(form)
            of = None if at is None else tuple(at[index] for index in keep)
            outs[branch] = StepRows(RowSample(rows, schema, (None,) * len(keep) if of is None else tuple(roots[index] for index in of)), of)
        return StepOutcome(outs, tuple(died))

    def _frame(self, sample: RowSample, first: int) -> NativeFrame:
        numbers = pa.array(range(first, first + len(sample)), pa.int64())
        columns = [*sample.rows.columns, numbers]
        table = pa.Table.from_arrays(columns, schema=arrow_schema(sample.schema).append(pa.field(AT, pa.int64(), nullable=False)))
        return NativeFrame(self._session().createDataFrame(table), at=True)

    def _culprits(self, node: str, inputs: Inputs, build: Build) -> list[Died]:
        """Find the rows that make the step fail by themselves, by bisection."""
        bounds, total = [], 0
        for _, sample in inputs:
            bounds.append((total, total + len(sample)))
            total += len(sample)
        found: list[Died] = []
        waiting = [range(total)]
        while waiting:
            group = waiting.pop()
            part = [
                (id_, sample.taken([index - low for index in group if low <= index < high]))
                for (id_, sample), (low, high) in zip(inputs, bounds, strict=True)
            ]
            try:
                self._collected(node, part, build)
            except Exception as error:
                if not is_data_error(error):
                    raise
                if len(group) == 1:
                    found.append(Died(group[0], "sql-error", short_message(error)))
                else:
                    middle = len(group) // 2
                    waiting += [group[middle:], group[:middle]]
            if len(found) > LIMIT:
                raise StepError(
                    f'step "{node}": more than {LIMIT} records fail in it; first error: {found[0].message}',
                    remedy="use try_ functions such as try_cast, or filter such rows before the step",
                    node=node,
                )
        return sorted(found, key=lambda each: each.index)


_PAYLOAD = "_sg_payload"
_NOWHERE = -1
"""the index of a dead letter that was not made of a single input row"""


class _Gathered:
    """Collects the rows of one branch, in order of arrival."""

    def __init__(self, came: RowSample, schema: Schema) -> None:
        self._came = came
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._of: list[int] | None = []

    def add(self, batch: pa.RecordBatch, ordinals: Sequence[int] | None) -> None:
        self._batches.append(batch)
        if ordinals is None or self._of is None:
            self._of = None
        else:
            self._of += ordinals

    def made(self) -> StepRows:
        form = arrow_schema(self._schema)
        rows = one_batch(pa.Table.from_batches([batch.select(form.names).cast(form) for batch in self._batches], schema=form))
        of = None if self._of is None else tuple(self._of)
        roots = (None,) * rows.num_rows if of is None else tuple(self._came.roots[index] for index in of)
        return StepRows(RowSample(rows, self._schema, roots), of)


def _failed(name: str, index: int, payload: str) -> Died:
    """The dead letter of a row. `name` (the predicate) and `payload`: as in DEAD."""
    if name == SPARK_PARSE:
        return Died(index, "malformed", "Spark's parser cannot read it", payload=payload)
    return Died(index, "require", f'"{name}" does not hold', payload=payload)


def _union(action: Merge, inputs: Inputs, schema: Schema) -> StepOutcome:
    samples = []
    for id_, sample in inputs:
        rows = sample.rows
        if action.origin is not None:
            column = pa.repeat(pa.scalar(flat_name(id_), pa.string()), len(sample))
            rows = rows.append_column(pa.field(action.origin, pa.string(), nullable=False), column)
        samples.append(RowSample(rows, schema, sample.roots))
    together = joined(samples, schema)
    return StepOutcome({"": StepRows(together, tuple(range(len(together))))}, ())


def _schema_given(step: Step, inputs: Inputs) -> Schema:
    """The output columns of a Python step."""
    if step.schema is not None:
        return step.schema.fields
    first = inputs[0][1].schema
    match step.action:
        case Merge(origin=origin):
            together = native.union_schema(step.id, [(id_, sample.schema) for id_, sample in inputs])
            return together if origin is None else Schema((*together.fields, Field(origin, Type("STRING"), nullable=False)))
        case Parse(column, _, schema):
            return Schema((*(field for field in first.fields if field.name != column), *schema.fields))
    return first


def outputs_by_input(outcome: StepOutcome, rows: int) -> dict[int, list[tuple[str, int]]] | None:
    """Input row → (branch, index) of the rows that were made of it; None if this is not known for all rows."""
    ways: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for branch, made in outcome.outs.items():
        if made.of is None:
            return None
        for index, of in enumerate(cast("Sequence[int]", made.of)):
            ways[of].append((branch, index))
    return {index: ways.get(index, []) for index in range(rows)}


if TYPE_CHECKING:
    Inputs = Sequence[tuple[str, RowSample]]
