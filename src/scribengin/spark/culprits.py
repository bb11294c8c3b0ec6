"""When a native step cannot take a value: which records hold it.

Spark's ANSI mode fails a whole job for one bad cast and names no record, only the task that failed. Before anything is published
the rows that enter the native steps are kept in Spark's memory, and the native steps alone run over them again, a sixteenth a
task: the task that fails tells where to look closer. The Batch then runs once more with the records found as dead letters. A
record costs about log16(records) + 1 small jobs without Python in them, so the search is bounded.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.connectors.catalog import open_source
from scribengin.core.errors import StepError
from scribengin.spark.accumulate import new_reports
from scribengin.spark.failures import is_data_error, message_of
from scribengin.spark.layout import Layout
from scribengin.spark.letters import show_place
from scribengin.spark.origin import ReplayOrigin, unpack_at
from scribengin.spark.program import AT

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


def find_culprits(spark: SparkSession, parts: QueryParts, compiler: Compiler, inputs: BatchInputs, error: Exception) -> BatchInputs:
    """`inputs` with the records in `skip` that no native step can take. Raises StepError where the step's `on_error` is
    `fail`, where no single record is at fault, or where there are more than LIMIT."""
    names = {ref.index: name for name, ref in parts.sources.items()}
    found: dict[tuple[str, int], dict[int, tuple[str, str]]] = {}
    with ExitStack() as stack:
        search = _Search(spark, parts, compiler, inputs)
        stack.callback(search.release)
        for count, (at, node, message) in enumerate(search.run(), 1):
            if parts.letters.on_error.get(node) == "fail":
                raise StepError(
                    f'step "{node}" failed on a record{_place(parts, inputs, at)}: {message}',
                    remedy="repair the record or use try_cast and its like, or set on_error: dead_letter",
                    node=node,
                ) from error
            if count > LIMIT:
                raise StepError(
                    f'step "{node}": more than {LIMIT} records of one batch fail in it, such as: {message}',
                    remedy="use try_cast and its like, or filter such rows before",
                    node=node,
                ) from error
            source, index, sequence = unpack_at(at)
            found.setdefault((names[source], index), {})[sequence] = (node, message)
    if not found:
        raise StepError(f"a native step failed, and no single record makes it fail: {message_of(error)[:300]}") from error
    return replace(inputs, skip=found)


def _place(parts: QueryParts, inputs: BatchInputs, at: int) -> str:
    """` at a.jsonl:38`, or nothing where the record's place cannot be known."""
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
        """do failed tasks name their chunk? Not where a shuffle stands between"""
        self._inputs = replace(inputs, suspects=self._suspects)
        # else Spark makes one task of a union of single partitions
        spark.conf.set(_UNION, "false")

    def release(self) -> None:
        """Give back the memory."""
        self._spark.conf.unset(_UNION)
        for frame in self._suspects.kept.values():
            frame.unpersist()

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
        empty where they cannot. Other errors are raised."""
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
        """SUCCESS, FAILED or KILLED for each task of the tagged job that failed; empty where its tasks are not the chunks."""
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
        """The first step, in the plan's order, that the record breaks, and what Spark says."""
        layout = Layout(self._parts.plan, self._parts.query)
        natives = [node.id for node in self._parts.query.nodes if node.stage == "native" or layout.requires(node.id)]
        if len(natives) == 1:
            return natives[0], short_message(error)
        for node in natives:
            for id_ in [node, *[i for other in self._parts.query.nodes for i in other.inputs if i.startswith(f"{node}.")]]:
                raised, _ = self._probe([[at]], until=id_)
                if raised is not None:
                    return node, short_message(raised)
        return natives[-1], short_message(error)


def short_message(error: Exception) -> str:
    """What Spark says of a value that it cannot take, from its condition on, in a line."""
    text = message_of(error)
    start = text.find("[")
    return text[max(0, start) :].split(" SQLSTATE")[0].split("\n")[0].strip()[:300]
