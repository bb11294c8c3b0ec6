"""Finds the records with a value that makes a SQL step fail.

Spark's ANSI mode fails a whole job for one bad cast and names no record. Before anything is published the rows that enter the native
steps are kept in Spark's memory, and one pass with every expression caught (`row_safe`) tells those that fail. The Batch then runs once
more with these records as dead letters.

Where a plan is not understood, or the Batch fails again, the native steps alone run over the rows, a sixteenth a task: the task that fails
tells where to look closer. There a record costs about log16(records) + 1 small jobs without Python in them, so that this search is bounded.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.connectors.catalog import open_source
from scribengin.core.errors import StepError
from scribengin.spark.failures import is_data_error, message_of
from scribengin.spark.layout import NodeLayout
from scribengin.spark.letters import show_place
from scribengin.spark.origin import ReplayOrigin, unpack_at
from scribengin.spark.program import AT
from scribengin.spark.row_safe import RowFault, failing_rows
from scribengin.spark.task_report import new_reports
from scribengin.spec.model import Select

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from scribengin.spark.compile import Compiler
    from scribengin.spark.compiled import BatchInputs, QueryParts

LIMIT = 1_000
"""Dead letters of this kind in one Batch; beyond it the flow is wrong, not the data."""
_UNION = "spark.sql.unionOutputPartitioning"
WAYS = 16
"""parts that one job tells apart"""
_SHOWN = 120
"""characters of an expression in a message"""


def find_culprits(spark: SparkSession, parts: QueryParts, compiler: Compiler, inputs: BatchInputs, error: Exception) -> BatchInputs:
    """`inputs` with the records in `skip` that no native step can take, beside those that are there. Raises StepError if the step's
    `on_error` is `fail`, where no single record is at fault, or where the search alone finds them and there are more than LIMIT."""
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
    # the records of static sources are not searched: each of them is in every Batch, and may fail in none without a partner
    static = " or ".join(f'"{name}"' for name in sorted(parts.letters.static))
    text = f"a SQL step failed, but no single record of a streaming source causes it: {short_message(error).rstrip('.')}"
    if not static:
        return StepError(text, remedy="use try_ functions such as try_cast in the SQL steps")
    return StepError(
        f"{text}. The records of the static source {static} were not tested",
        remedy=f"repair the record in {static}, or use try_ functions such as try_cast in the SQL steps after it",
    )


def _place(parts: QueryParts, inputs: BatchInputs, at: int) -> str:
    """` at a.jsonl:38`, or nothing if the record's place cannot be known."""
    sources = {name: open_source(ref.type, ref.place) for name, ref in parts.sources.items()}
    place = ReplayOrigin(sources, {ref.index: name for name, ref in parts.sources.items()}, inputs.streams, parts.letters.folder).place(at)
    return f" at {show_place(place)}" if place.file else ""


class Suspects:
    """The rows that enter the native steps, read once and kept, and the part of them that a probe is about."""

    def __init__(self) -> None:
        self.kept: dict[str, DataFrame] = {}
        self.chunks: Sequence[tuple[int, int]] | None = None
        """first and last AT of each task's share; None for all rows as they are"""

    def narrowed(self, output: str, df: DataFrame) -> DataFrame:
        """What a probe sees of `df`, the rows of a source (or of the Python steps behind it)."""
        if output not in self.kept:
            self.kept[output] = df.persist()
        kept = self.kept[output]
        if self.chunks is None:
            return kept
        # one task a chunk, in their order: the failed task's number is the chunk's
        shares = [kept.where(f"{AT} BETWEEN {first} AND {last}").coalesce(1) for first, last in self.chunks]
        return reduce(lambda one, other: one.unionAll(other), shares)


class _Search:
    def __init__(self, spark: SparkSession, parts: QueryParts, compiler: Compiler, inputs: BatchInputs) -> None:
        self._spark = spark
        self._parts = parts
        self._compiler = compiler
        self._suspects = Suspects()
        self._tells = True
        """whether failed tasks identify their chunk; not after a shuffle"""
        self._inputs = replace(inputs, suspects=self._suspects)
        # else Spark makes one task of a union of single partitions
        spark.conf.set(_UNION, "false")

    def release(self) -> None:
        """Release the cached rows."""
        self._spark.conf.unset(_UNION)
        for frame in self._suspects.kept.values():
            frame.unpersist()

    def at_once(self) -> list[tuple[int, str, str]]:
        """As `run`, in one pass; empty if that tells nothing."""
        compiled = self._compiler.compile(self._inputs, new_reports(self._spark))
        try:
            failing = [fault for tail in compiled.tails for fault in failing_rows(self._spark, tail.frame).items()]
            faults = dict(reversed(failing))
            natives, blamed = self._natives(), dict[int, tuple[str, RowFault]]()
            for node, id_ in natives if len({node for node, _ in natives}) > 1 else ():
                if len(blamed) < len(faults) and id_ in compiled.frames:
                    raised = failing_rows(self._spark, compiled.frames[id_].df)
                    blamed |= {at: (node, fault) for at, fault in raised.items() if at in faults and at not in blamed}
        except Exception:  # Unsupported, and what another version of Spark's optimiser may say: the search tells as much, record by record
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
        """The expression in the words of the flow, where it has one for the column."""
        step = self._parts.plan.flow.steps.get(node)
        return dict(step.action.columns).get(fault.column, fault.sql) if step and isinstance(step.action, Select) else fault.sql

    def _example(self, at: int, fault: RowFault) -> tuple[str, str]:
        """What Spark says of a record that fails so, and the value in it that others of its kind have in its place; or "" for that."""
        error, _ = self._probe([[at]])
        text = "it cannot be computed" if error is None else short_message(error)
        value = fault.value or ""
        return text, value if value and text.count(f"'{value}'") == 1 else ""

    def run(self) -> Iterator[tuple[int, str, str]]:
        """(AT, step, message) of every record at fault."""
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
            # a task that failed accuses its chunk, one that came through clears it; of the others nothing is known yet
            unknown = [at for chunk, fate in zip(chunks, fates, strict=True) if fate not in ("FAILED", "SUCCESS") for at in chunk]
            waiting += [[*unknown]] if unknown else []
            waiting += [chunk for chunk, fate in zip(chunks, fates, strict=True) if fate == "FAILED"][::-1]

    def _probe(self, chunks: Sequence[Sequence[int]], until: str | None = None) -> tuple[Exception | None, list[str]]:
        """The data error that the native steps raise over these records, or None; and each chunk's fate as Spark's tasks tell it,
        empty if they cannot. Other errors are raised."""
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
                # what came through here may fail in the next tail
                return error, fates if len(frames) == 1 else [fate if fate == "FAILED" else "" for fate in fates]
            finally:
                context.removeJobTag(tag)
        return None, []

    def _fates(self, tag: str, tasks: int) -> list[str]:
        """SUCCESS, FAILED or KILLED for each task of the tagged job that failed; empty if its tasks are not the chunks."""
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
        """The first step, in the plan's order, that fails on the record, and Spark's message."""
        natives = self._natives()
        if len({node for node, _ in natives}) == 1:
            return natives[0][0], short_message(error)
        for node, id_ in natives:
            raised, _ = self._probe([[at]], until=id_)
            if raised is not None:
                return node, short_message(raised)
        return natives[-1][0], short_message(error)

    def _natives(self) -> list[tuple[str, str]]:
        """(step, it or one of its branches), in the plan's order."""
        layout, nodes = NodeLayout(self._parts.plan, self._parts.query), self._parts.query.nodes
        natives = [node.id for node in nodes if node.stage == "native" or layout.requires(node.id)]
        return [
            (node, id_) for node in natives for id_ in (node, *(i for other in nodes for i in other.inputs if i.startswith(f"{node}.")))
        ]


def short_message(error: Exception) -> str:
    """What Spark says of a value that it cannot take, from its condition on, in a line."""
    text = message_of(error)
    start = text.find("[")
    return text[max(0, start) :].split(" SQLSTATE")[0].split("\n")[0].strip()[:300]
