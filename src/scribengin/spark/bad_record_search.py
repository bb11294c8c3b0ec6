"""Finds the records with a value that makes a SQL step fail.

In ANSI mode, one bad cast fails a whole Spark job, and the error names no record. Nothing is published yet at that point. The rows that
enter the Spark SQL steps are cached in Spark, and one pass evaluates every expression with its errors caught (`failing_rows`). The Batch
then runs again with the failing records as dead letters.

If that pass does not understand the plan, or the Batch fails again, a search runs the Spark SQL steps alone: each job divides the rows into
16 chunks, one a task, and the failed tasks show which chunks to divide again. It costs about log16(records) + 1 small jobs without Python
for each bad record.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.connectors.catalog import open_source
from scribengin.core.errors import StepError
from scribengin.spark.dead_letter_writer import show_place
from scribengin.spark.failures import is_data_error, message_of
from scribengin.spark.node_schema import NodeLayout
from scribengin.spark.program import AT
from scribengin.spark.row_origin import ReplayOrigin, unpack_at
from scribengin.spark.task_report import new_reports
from scribengin.spec.model import Select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from scribengin.spark.compile import Compiler
    from scribengin.spark.compiled_query import BatchInputs, QueryParts


# Finds the rows that make the SQL steps fail, in one pass over the plan that Spark would run, with the errors of each expression caught per
# row. Spark's optimised plan shows which expressions a row meets, and in which order: filters may be pushed down and unread columns pruned.
# The plan is rebuilt with `TryEval` around every expression: a Spark-internal expression that returns null if its child raises. So exactly
# the rows are found for which Spark's ANSI mode fails. Projections, filters, unions, generators and joins with tables are supported. For
# other plans, and if a join condition fails, `Unsupported` is raised and `_Search.run` takes over.


_OWN_AT, _FAULT, _VALUE = "_sg_own_at", "_sg_fault", "_sg_value"
_REUSE = "spark.sql.subexpressionElimination.enabled"
_PASS = ("Join", "Generate")
"""plan nodes that pass AT on from one of their children"""


class Unsupported(Exception):
    """The plan has a node that is not supported; the message is the node's name."""


@dataclass(frozen=True, slots=True)
class RowFault:
    """An expression that fails for a row. `column` is the column that it computes ("" for a condition); `value` is the text it reads, if it
    reads only one column and that is a string."""

    column: str
    sql: str
    value: str | None = None

    @property
    def group(self) -> tuple[str, str]:
        """A key that is equal for all rows that fail in the same way."""
        return self.column, self.sql


def failing_rows(spark: SparkSession, frame: DataFrame) -> Mapping[int, RowFault]:
    """Find the rows that make an expression fail.

    Args:
        spark: The session; its setting for common subexpressions is changed during the call.
        frame: A frame over cached rows that have their AT value.

    Returns:
        AT value → the first expression that fails, for each failing row.

    Raises:
        Unsupported: The plan has a node that is not supported.
        Exception: An error of Spark that no expression of a row causes.
    """
    # otherwise Spark computes a subexpression that two expressions share before both, outside of their TryEval
    before = spark.conf.get(_REUSE)
    spark.conf.set(_REUSE, "false")
    try:
        walk = _Walk(spark)
        plan = frame._jdf.queryExecution().optimizedPlan()
        walk.collect_failed(walk.of(plan))
        if not walk.parts:
            return {}
        told = reduce(lambda a, b: a.unionAll(b), walk.parts).toArrow().to_pydict()
    finally:
        spark.conf.set(_REUSE, before or "true")
    found: dict[int, RowFault] = {}
    for at, index, value in zip(told[_OWN_AT], told[_FAULT], told[_VALUE], strict=True):
        column, sql = walk.faults[index]
        found.setdefault(at, RowFault(column, sql, value))
    return found


@dataclass
class _Walk:
    spark: SparkSession
    faults: list[tuple[str, str]] = field(default_factory=list)
    """(column, expression), by number"""
    parts: list[DataFrame] = field(default_factory=list)
    """the AT, fault and value of the rows that have failed"""

    def __post_init__(self) -> None:
        jvm: Any = self.spark._jvm
        self._jvm = jvm
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._to_column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
        self._name = getattr(getattr(self._expressions, "Literal$"), "MODULE$").apply("value")
        self._of_rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows

    def of(self, plan: Any) -> DataFrame:
        """A frame with the plan's output, failing rows included, and the columns AT, fault and value."""
        match _kind(plan):
            case "Project":
                return self._project(plan)
            case "Filter":
                return self._filter(plan)
            case "Union":
                return reduce(lambda a, b: a.unionAll(b), [self.of(child) for child in _each(plan.children())])
            case kind if kind in _PASS:
                return self._passed(plan)
        if any(attribute.name() == AT for attribute in _each(plan.output())) and not plan.children().size():
            return self._begun(self._frame(plan))
        raise Unsupported(_kind(plan))

    def collect_failed(self, df: DataFrame) -> None:
        """Remove the failed rows from the output of a plan."""
        self.parts.append(df.where(f"{_FAULT} IS NOT NULL").select(_OWN_AT, _FAULT, _VALUE))

    def _begun(self, df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sql

        none = [sql.expr(f"CAST(NULL AS {type_})").alias(name) for name, type_ in ((_FAULT, "INT"), (_VALUE, "STRING"))]
        # a copy: the plan may drop its own AT column in a later projection
        return df.select("*", sql.col(AT).alias(_OWN_AT), *none)

    def _project(self, plan: Any) -> DataFrame:
        from pyspark.sql import functions as sql

        df = self.of(plan.child())
        made, fault, value = [], sql.col(_FAULT), sql.col(_VALUE)
        for expression in _each(plan.projectList()):
            if _kind(expression) != "Alias" or _is_sure(expression.child()):
                made.append(self._column(expression))
                continue
            inner = expression.child()
            made.append(self._aliased(expression, sql.when(sql.col(_FAULT).isNull(), self._tried(inner))))
            failed = sql.col(_FAULT).isNull() & self._raises(inner)
            fault, value = self._noted(fault, value, failed, expression.name(), inner)
        return df.select(*made, sql.col(_OWN_AT), fault.alias(_FAULT), value.alias(_VALUE))

    def _filter(self, plan: Any) -> DataFrame:
        from pyspark.sql import functions as sql

        df = self.of(plan.child())
        fault, value, keeps = sql.col(_FAULT), sql.col(_VALUE), sql.lit(True)
        for condition in _in_order(_conjuncts(plan.condition())):
            # a condition counts only for rows that neither failed nor were filtered out by an earlier one
            asked = fault.isNull() & keeps
            if not _is_sure(condition):
                failed = sql.when(asked, self._raises(condition)).otherwise(sql.lit(False))
                fault, value = self._noted(fault, value, failed, "", condition)
            held = sql.when(asked, self._tried(condition))
            keeps = sql.when(asked, sql.coalesce(held, sql.lit(False))).otherwise(keeps)
        others = [self._column(attribute) for attribute in _each(plan.output())]
        marked = df.select(*others, sql.col(_OWN_AT), fault.alias(_FAULT), value.alias(_VALUE), keeps.alias("_sg_keeps"))
        return marked.where(f"{_FAULT} IS NOT NULL OR _sg_keeps").drop("_sg_keeps")

    def _passed(self, plan: Any) -> DataFrame:
        children = list(_each(plan.children()))
        rows = [index for index, child in enumerate(children) if _has_at(child)]
        if len(rows) != 1:
            raise Unsupported(_kind(plan))
        df = self.of(children[rows[0]])
        self.collect_failed(df)
        children[rows[0]] = df.where(f"{_FAULT} IS NULL")._jdf.queryExecution().analyzed()
        return self._frame(plan.withNewChildren(self._seq(children)))

    def _noted(self, fault: Any, value: Any, failed: Any, column: str, expression: Any) -> tuple[Any, Any]:
        from pyspark.sql import functions as sql

        self.faults.append((column, expression.sql()))
        read = list(_each(expression.references().toSeq()))
        text = self._column(read[0]) if len(read) == 1 and read[0].dataType().simpleString() == "string" else sql.lit(None).cast("string")
        first = fault.isNull() & failed
        return sql.when(first, sql.lit(len(self.faults) - 1)).otherwise(fault), sql.when(first, sql.substring(text, 1, 200)).otherwise(
            value
        )

    def _raises(self, expression: Any) -> Any:
        """A column that is true if the expression raises. The expression is wrapped in a struct, which is never null by itself."""
        held = self._expressions.CreateNamedStruct(self._seq([self._name, expression]))
        return self._column(self._expressions.TryEval(held)).isNull()

    def _tried(self, expression: Any) -> Any:
        return self._column(self._expressions.TryEval(expression))

    def _aliased(self, alias: Any, column: Any) -> Any:
        """`column` with the name and the id of `alias`, to which the nodes above refer."""
        inner = self._jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)
        return self._column(alias.withNewChildren(self._seq([inner])))

    def _column(self, expression: Any) -> Any:
        from pyspark.sql.classic.column import Column

        return Column(self._to_column(expression))

    def _frame(self, plan: Any) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        return ClassicDataFrame(self._of_rows(self.spark._jsparkSession, plan), self.spark)

    def _seq(self, values: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(values)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _has_at(plan: Any) -> bool:
    return any(attribute.name() == AT for leaf in _each(plan.collectLeaves()) for attribute in _each(leaf.output()))


def _is_sure(expression: Any) -> bool:
    """True if the expression cannot raise: a column, a constant, or a null check of a column."""
    kind = _kind(expression)
    return kind in ("AttributeReference", "Literal") or (
        kind in ("IsNotNull", "IsNull") and _kind(expression.child()) == "AttributeReference"
    )


def _conjuncts(condition: Any) -> list[Any]:
    if _kind(condition) == "And":
        return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]
    return [condition]


def _in_order(conditions: list[Any]) -> list[Any]:
    """The conditions in the order in which Spark's generated code evaluates them: before each condition the not-null checks of its columns;
    the remaining checks last."""
    checks = {each.child().exprId().id(): each for each in conditions if _kind(each) == "IsNotNull" and _is_sure(each)}
    order = []
    for condition in conditions:
        if _kind(condition) == "IsNotNull" and _is_sure(condition):
            continue
        ids = [attribute.exprId().id() for attribute in _each(condition.references().toSeq())]
        order += [checks.pop(id_) for id_ in ids if id_ in checks]
        order.append(condition)
    return [*order, *checks.values()]


LIMIT = 1_000
"""The most dead letters of this kind in one Batch. With more, the flow is wrong, not the data."""
_UNION = "spark.sql.unionOutputPartitioning"
WAYS = 16
"""chunks into which one job divides the rows"""
_SHOWN = 120
"""characters of an expression in a message"""


def find_culprits(spark: SparkSession, parts: QueryParts, compiler: Compiler, inputs: BatchInputs, error: Exception) -> BatchInputs:
    """Find the records that a Spark SQL step cannot process.

    Args:
        spark: The session that runs the searches.
        parts: The query.
        compiler: Compiles the frames that the searches run.
        inputs: The inputs of the Batch that failed.
        error: The error of the Batch.

    Returns:
        `inputs` with these records added to `skip`.

    Raises:
        StepError: The step's `on_error` is `fail`; or no single record causes the error; or the search record by record finds more than
            LIMIT records.
    """
    names = {ref.index: name for name, ref in parts.sources.items()}
    found: dict[tuple[str, int], dict[int, tuple[str, str]]] = {unit: dict(records) for unit, records in inputs.skip.items()}
    before = sum(map(len, found.values()))
    with ExitStack() as stack:
        search = _Search(spark, parts, compiler, inputs)
        stack.callback(search.release)
        at_once = [] if inputs.skip else search.at_once()
        for count, (at, node, message) in enumerate(at_once or search.run(), 1):
            if parts.letters.on_error.get(node) == "fail":
                raise StepError(
                    f'step "{node}" failed on a record{_place(parts, inputs, at)}: {message}',
                    remedy="repair the record, use try_ functions such as try_cast, or set on_error: dead_letter",
                    node=node,
                ) from error
            if count > LIMIT and not at_once:
                raise StepError(
                    f'step "{node}": more than {LIMIT} records of one batch fail in it; first error: {message}',
                    remedy="use try_ functions such as try_cast, or filter such rows before the step",
                    node=node,
                ) from error
            source, index, sequence = unpack_at(at)
            found.setdefault((names[source], index), {})[sequence] = (node, message)
    if sum(map(len, found.values())) == before:
        raise _no_record(parts, error) from error
    return replace(inputs, skip=found)


def _no_record(parts: QueryParts, error: Exception) -> StepError:
    # records of static sources are not searched: every Batch reads each of them, and they may fail only together with a matching row
    static = " or ".join(f'"{name}"' for name in sorted(parts.letters.static))
    text = f"a SQL step failed, but no single record of a streaming source causes it: {short_message(error).rstrip('.')}"
    if not static:
        return StepError(text, remedy="use try_ functions such as try_cast in the SQL steps")
    return StepError(
        f"{text}. The records of the static source {static} were not tested",
        remedy=f"repair the record in {static}, or use try_ functions such as try_cast in the SQL steps after it",
    )


def _place(parts: QueryParts, inputs: BatchInputs, at: int) -> str:
    """` at a.jsonl:38`; empty if the record's place is unknown."""
    sources = {name: open_source(ref.type, ref.place) for name, ref in parts.sources.items()}
    place = ReplayOrigin(sources, {ref.index: name for name, ref in parts.sources.items()}, inputs.streams, parts.letters.folder).place(at)
    return f" at {show_place(place)}" if place.file else ""


class Suspects:
    """The rows that enter the Spark SQL steps, read once and cached, and the chunks of them that a probe runs over."""

    def __init__(self) -> None:
        self.kept: dict[str, DataFrame] = {}
        self.chunks: Sequence[tuple[int, int]] | None = None
        """the first and last AT value of each task's chunk; None: all rows, with their own partitions"""

    def narrowed(self, output: str, df: DataFrame) -> DataFrame:
        """The rows of `df` that a probe runs over. `df` has the rows of a source, or of the Python steps after it. Caches `df`."""
        if output not in self.kept:
            self.kept[output] = df.persist()
        kept = self.kept[output]
        if self.chunks is None:
            return kept
        # one task for each chunk, in their order: the number of a failed task is that of its chunk
        shares = [kept.where(f"{AT} BETWEEN {first} AND {last}").coalesce(1) for first, last in self.chunks]
        return reduce(lambda one, other: one.unionAll(other), shares)


class _Search:
    def __init__(self, spark: SparkSession, parts: QueryParts, compiler: Compiler, inputs: BatchInputs) -> None:
        self._spark = spark
        self._parts = parts
        self._compiler = compiler
        self._suspects = Suspects()
        self._tells = True
        """True while failed tasks identify their chunk; after a shuffle they do not"""
        self._inputs = replace(inputs, suspects=self._suspects)
        # otherwise Spark makes one task of a union of single partitions
        spark.conf.set(_UNION, "false")

    def release(self) -> None:
        """Release the cached rows."""
        self._spark.conf.unset(_UNION)
        for frame in self._suspects.kept.values():
            frame.unpersist()

    def at_once(self) -> list[tuple[int, str, str]]:
        """Find the failing records in one pass; same result as `run`. Empty if the pass cannot find them."""
        compiled = self._compiler.compile(self._inputs, new_reports(self._spark))
        try:
            failing = [fault for tail in compiled.tails for fault in failing_rows(self._spark, tail.frame).items()]
            faults = dict(reversed(failing))
            natives, blamed = self._natives(), dict[int, tuple[str, RowFault]]()
            for node, id_ in natives if len({node for node, _ in natives}) > 1 else ():
                if len(blamed) < len(faults) and id_ in compiled.frames:
                    raised = failing_rows(self._spark, compiled.frames[id_].df)
                    blamed |= {at: (node, fault) for at, fault in raised.items() if at in faults and at not in blamed}
        except Exception:  # Unsupported, or an error from another version of Spark's optimiser; `run` finds the same, record by record
            return []
        says: dict[tuple[str, str, str], tuple[str, str]] = {}
        told = []
        for at, fault in sorted(faults.items()):
            node, own = blamed.get(at, (natives[-1][0], fault))
            group = (node, *own.group)
            if group not in says:
                says[group] = self._example(at, own)
            text, value = says[group]
            if own.value is not None and value:
                text = text.replace(f"'{value}'", f"'{own.value}'")
            where = f'column "{own.column}"' if own.column else "the condition"
            told.append((at, node, f"{text} ({where}: {self._written(node, own)[:_SHOWN]})"))
        return told

    def _written(self, node: str, fault: RowFault) -> str:
        """The expression as the flow file has it, if the step is a `select` that computes this column; otherwise Spark's text."""
        step = self._parts.plan.flow.steps.get(node)
        return dict(step.action.columns).get(fault.column, fault.sql) if step and isinstance(step.action, Select) else fault.sql

    def _example(self, at: int, fault: RowFault) -> tuple[str, str]:
        """(Spark's message for this record, the value in the message to replace for other records that fail in the same way; "" if there is
        none)."""
        error, _ = self._probe([[at]])
        text = "it cannot be computed" if error is None else short_message(error)
        value = fault.value or ""
        return text, value if value and text.count(f"'{value}'") == 1 else ""

    def run(self) -> Iterator[tuple[int, str, str]]:
        """Search record by record; yields (AT, step, message) for every failing record."""
        self._compiler.compile(self._inputs, new_reports(self._spark))
        ats = sorted({at for frame in self._suspects.kept.values() for at in frame.select(AT).toArrow().column(0).to_pylist()} - {None})
        waiting = [ats] if ats else []
        while waiting:
            group = waiting.pop()
            ways = WAYS if self._tells else 2
            size = -(-len(group) // ways)
            chunks = [group[first : first + size] for first in range(0, len(group), size)]
            error, fates = self._probe(chunks)
            if error is None:
                continue
            if len(group) == 1:
                yield group[0], *self._blame(group[0], error)
                continue
            if "FAILED" not in fates:
                self._tells = False
                waiting += reversed(chunks)
                continue
            # a failed task's chunk has a bad record, a successful task's chunk has none; the others are unknown
            unknown = [at for chunk, fate in zip(chunks, fates, strict=True) if fate not in ("FAILED", "SUCCESS") for at in chunk]
            waiting += [[*unknown]] if unknown else []
            waiting += [chunk for chunk, fate in zip(chunks, fates, strict=True) if fate == "FAILED"][::-1]

    def _probe(self, chunks: Sequence[Sequence[int]], until: str | None = None) -> tuple[Exception | None, list[str]]:
        """Run the Spark SQL steps over chunks of records.

        Args:
            chunks: AT values, ascending; the rows from the first to the last of each chunk are read.
            until: Run only the frame with this id; None: all task pipelines.

        Returns:
            The data error that was raised, or None; and the status of each chunk's task, empty if tasks do not match chunks.

        Raises:
            Exception: An error that is not a data error.
        """
        self._suspects.chunks = [(chunk[0], chunk[-1]) for chunk in chunks]
        compiled = self._compiler.compile(self._inputs, new_reports(self._spark))
        frames = [frame.df for id_, frame in compiled.frames.items() if id_ == until] if until else [tail.frame for tail in compiled.tails]
        context = self._spark.sparkContext
        for frame in frames:
            tag = f"culprits-{uuid4().hex}"
            context.addJobTag(tag)
            try:
                frame.write.format("noop").mode("overwrite").save()
            except Exception as error:
                if not is_data_error(error):
                    raise
                fates = self._fates(tag, len(chunks))
                # a chunk that succeeded in this frame may fail in the next one
                return error, fates if len(frames) == 1 else [fate if fate == "FAILED" else "" for fate in fates]
            finally:
                context.removeJobTag(tag)
        return None, []

    def _fates(self, tag: str, tasks: int) -> list[str]:
        """SUCCESS, FAILED or KILLED for each task of the tagged job that failed; empty if its tasks do not match the chunks."""
        context: Any = self._spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        tracker = context.statusTracker()
        for job in tracker.getJobIdsForTag(tag):
            for stage in tracker.getJobInfo(job).get().stageIds():
                told = context.statusStore().taskList(stage, 0, tasks * 8)
                fates = dict.fromkeys(range(tasks), "")
                for index in range(told.size()):
                    task = told.apply(index)
                    fates[task.index()] = "FAILED" if "FAILED" in (task.status(), fates.get(task.index())) else str(task.status())
                if "FAILED" in fates.values() and len(fates) == tasks:
                    return list(fates.values())
        return []

    def _blame(self, at: int, error: Exception) -> tuple[str, str]:
        """(the first step in the plan's order that fails on the record, Spark's message)."""
        natives = self._natives()
        if len({node for node, _ in natives}) == 1:
            return natives[0][0], short_message(error)
        for node, id_ in natives:
            raised, _ = self._probe([[at]], until=id_)
            if raised is not None:
                return node, short_message(raised)
        return natives[-1][0], short_message(error)

    def _natives(self) -> list[tuple[str, str]]:
        """(step, the step's id or that of one of its branches) for each Spark SQL step, in the plan's order."""
        layout, nodes = NodeLayout(self._parts.plan, self._parts.query), self._parts.query.nodes
        natives = [node.id for node in nodes if node.stage == "native" or layout.requires(node.id)]
        return [
            (node, id_) for node in natives for id_ in (node, *(i for other in nodes for i in other.inputs if i.startswith(f"{node}.")))
        ]


def short_message(error: Exception) -> str:
    """Spark's message for a bad value in one line, from its error condition on, at most 300 characters."""
    text = message_of(error)
    start = text.find("[")
    return text[max(0, start) :].split(" SQLSTATE")[0].split("\n")[0].strip()[:300]
