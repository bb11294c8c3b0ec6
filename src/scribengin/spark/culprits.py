"""When a native step cannot take a value: which records hold it.

Spark's ANSI mode fails a whole job for one bad cast. Before anything is published the Batch's input is read again in halves,
native steps only, until the records are found; the Batch then runs once more with them as dead letters. A record costs about
log2(records) small jobs, so the search is bounded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.connectors.catalog import open_source
from scribengin.core.errors import StepError
from scribengin.spark.accumulate import new_reports
from scribengin.spark.failures import is_data_error, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from scribengin.spark.compile import Compiler
    from scribengin.spark.compiled import BatchInputs, QueryParts

LIMIT = 1_000
"""Dead letters of this kind in one Batch; beyond it the flow is wrong, not the data."""

Unit = tuple[str, int]


def find_culprits(spark: SparkSession, parts: QueryParts, compiler: Compiler, inputs: BatchInputs, error: Exception) -> BatchInputs:
    """`inputs` with the records in `skip` that no native step can take. Raises StepError where the step's `on_error` is
    `fail`, where no single record is at fault, or where there are more than LIMIT."""
    search = _Search(spark, parts, compiler, inputs)
    found: dict[Unit, dict[int, tuple[str, str]]] = {}
    for count, (unit, sequence, node, message) in enumerate(search.run(), 1):
        if parts.letters.on_error.get(node) == "fail":
            raise StepError(
                f'step "{node}": {message}', remedy="repair the record or use try_cast and its like, or set on_error: dead_letter"
            ) from error
        found.setdefault(unit, {})[sequence] = (node, message)
        if count > LIMIT:
            raise StepError(
                f'step "{node}": more than {LIMIT} records of one batch fail in it, such as: {message}',
                remedy="use try_cast and its like, or filter such rows before",
            ) from error
    if not found:
        raise StepError(f"a native step failed, and no single record makes it fail: {message_of(error)[:300]}") from error
    return replace(inputs, skip=found)


class _Search:
    def __init__(self, spark: SparkSession, parts: QueryParts, compiler: Compiler, inputs: BatchInputs) -> None:
        self._spark = spark
        self._parts = parts
        self._compiler = compiler
        self._inputs = inputs

    def run(self) -> Iterator[tuple[Unit, int, str, str]]:
        """(unit, sequence number, step, message) of every record at fault."""
        decoded = [node.id for node in self._parts.query.nodes if node.stage == "decode" and node.id in self._parts.query.sources]
        for source in decoded:
            ref = self._parts.sources[source]
            opened = open_source(ref.type, ref.place)
            for index, stream in enumerate(self._inputs.streams[source]):
                records = sum(len(block) for block in opened.read(stream))
                yield from self._halve((source, index), 0, records)

    def _halve(self, unit: Unit, first: int, last: int) -> Iterator[tuple[Unit, int, str, str]]:
        error = self._probe(unit, first, last)
        if error is None:
            return
        if last - first == 1:
            node, message = self._blame(unit, first, error)
            yield unit, first, node, message
            return
        middle = (first + last) // 2
        yield from self._halve(unit, first, middle)
        yield from self._halve(unit, middle, last)

    def _narrowed(self, unit: Unit, first: int, last: int) -> BatchInputs:
        # all other units read nothing: their range is empty
        others = {
            (source, index): (0, 0)
            for source, streams in self._inputs.streams.items()
            for index in range(len(streams))
            if source in self._parts.query.sources
        }
        return replace(self._inputs, only=others | {unit: (first, last)})

    def _probe(self, unit: Unit, first: int, last: int, until: str | None = None) -> Exception | None:
        """The data error that the native steps raise over these records, or None. Other errors are raised."""
        compiled = self._compiler.compile(self._narrowed(unit, first, last), new_reports(self._spark))
        frames = [frame.df for id_, frame in compiled.frames.items() if id_ == until] if until else [tail.frame for tail in compiled.tails]
        for frame in frames:
            try:
                frame.write.format("noop").mode("overwrite").save()
            except Exception as error:
                if is_data_error(error):
                    return error
                raise
        return None

    def _blame(self, unit: Unit, sequence: int, error: Exception) -> tuple[str, str]:
        """The first step, in the plan's order, that the record breaks."""
        natives = [node.id for node in self._parts.query.nodes if node.stage == "native"]
        for node in natives:
            for id_ in [node, *[i for other in self._parts.query.nodes for i in other.inputs if i.startswith(f"{node}.")]]:
                raised = self._probe(unit, sequence, sequence + 1, until=id_)
                if raised is not None:
                    return node, _short(raised)
        return natives[-1] if natives else unit[0], _short(error)


def _short(error: Exception) -> str:
    text = message_of(error)
    start = text.find("[")
    return text[max(0, start) :].split(" SQLSTATE")[0].split("\n")[0].strip()[:300]
