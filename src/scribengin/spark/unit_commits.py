"""Decides whether a Batch's task outputs commit one by one on the executors, or the Batch as a whole from what they staged.

Commits one by one need a sink that supports them and is alone in its query, and task outputs that are the same whenever the Batch runs: no
state; in the executed plan each task has one stream and keeps its rows; no random step before Spark SQL steps (its second run would give
the task pipeline other rows than the report says that was committed with the first run); no expression in the vector engine that may need
Spark to evaluate it. Once a task output is committed, it must not change whether the vector engine or Spark runs the SQL steps: if Spark
does, the steps before them are counted by separate stages, otherwise with the task outputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scribengin.connectors.abilities import chains_batches, commits_units
from scribengin.connectors.group.contract import chooses
from scribengin.core.errors import Refused, StateError
from scribengin.spark.program import RowsEntry, SinkNode, StreamsEntry, UnitCommit, VectorNode
from scribengin.state.decisions import input_hash
from scribengin.state.intents import Intent, Intents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pyspark.sql import DataFrame

    from scribengin.connectors.contract import BatchId, SourceStream, UnitSink
    from scribengin.spark.compiled_query import Compiled, QueryParts, Tail
    from scribengin.spark.task_report import TaskReport
    from scribengin.state.contract import SourceRange
    from scribengin.state.decisions import Decisions

_OPERATOR = re.compile(r"^[\s:+-]*(?:\*\(\d+\) )?(\w+)", re.MULTILINE)
_NARROW = frozenset({"Project", "Filter", "Generate", "MapInArrow", "Range"})
"""Spark's operators that leave each row in the task of its stream. Joins are not listed: which side Spark reads first depends on the sizes
of the sides, and Spark regards ours as small."""
_ROWS_A_UNIT = 10_000
_BYTES_A_ROW = 200
"""an estimate, for streams that have only a byte count"""


class OtherIntent(Exception):
    """Raised if another driver has begun the Batch over other input; `sources` is the input that it reads."""

    def __init__(self, sources: tuple[SourceRange, ...]) -> None:
        super().__init__("another driver has started this batch")
        self.sources = sources


@dataclass(slots=True)
class UnitCommits:
    """Task output commits of one query whose sink supports them. `cores` is the number of tasks that run at once."""

    parts: QueryParts
    intents: Intents
    decisions: Decisions
    cores: int
    sink: UnitSink

    @staticmethod
    def of(parts: QueryParts, intents: Intents, decisions: Decisions, cores: int) -> UnitCommits | None:
        """None if the query's Batches always commit as a whole. Raises Refused if the next Batch has begun to commit its task outputs one
        by one."""
        sinks = list(parts.sinks.values())
        if len(sinks) == 1 and not parts.query.stateful and commits_units(sinks[0]):
            return UnitCommits(parts, intents, decisions, cores, sinks[0])
        newest = decisions.newest()
        begun = intents.read(0 if newest is None else newest.batch.number + 1)
        if begun is not None and begun.units:
            raise _begun(parts.query.name, begun.number)
        return None

    def begun(self, number: int) -> tuple[SourceRange, ...] | None:
        """The input of the Batch if a driver has already begun it, else None."""
        intent = self.intents.read(number)
        return None if intent is None else intent.sources

    def in_tail(self, number: int) -> bool | None:
        """Whether the SQL steps of the Batch must run in the task pipeline, since task outputs of it may be committed; None if both are
        allowed."""
        intent = self.intents.read(number)
        return intent.in_tail if intent is not None and intent.units else None

    def agreed(
        self,
        compiled: Compiled,
        batch: BatchId,
        ranges: tuple[SourceRange, ...],
        streams: Mapping[str, tuple[SourceStream, ...]],
        *,
        lost: bool = False,
    ) -> Intent:
        """Agree on how this Batch commits, durably for all drivers of the lineage.

        Args:
            compiled: The Batch's frames.
            batch: The Batch.
            ranges: Its input.
            streams: The streams of its input.
            lost: True if input was gone before it was read, so that streams may have less than when the Batch began; a committed task
                output keeps all that it had.

        Returns:
            The stored intent: this one, or that of the driver that wrote it first.

        Raises:
            OtherIntent: Another driver has begun the Batch over other input, or with its SQL steps elsewhere.
            StateError: Another driver has decided the Batch, or committed task outputs do not match its streams.
            Refused: Task outputs have begun to commit one by one, and the flow was changed so that they cannot continue.
        """
        hash_ = input_hash(batch, ranges, streams, "")
        units = sum(len(each) for each in streams.values())
        can = self._can(compiled, units, len(streams))
        order = _order(compiled) if can else ()
        in_tail = bool(_vector_nodes(compiled))
        one_by_one = units if can and self._pays(units, streams) else 0
        mine = Intent(batch.number, ranges, one_by_one, hash_, self.parts.query.fingerprint, order, in_tail)
        stored = self.intents.put(mine)
        if self.decisions.read(batch.number) is not None:
            raise StateError(
                f"batch {batch.number} of {batch.query} was decided by another driver in the meantime",
                remedy="stop this driver; restart the flow, which continues from the last decided batch",
            )
        elsewhere = stored.units > 0 and stored.in_tail != in_tail
        if stored.sources != ranges or (elsewhere and self.parts.query.in_tail):
            raise OtherIntent(stored.sources)
        if stored.units and stored.input_hash != hash_ and not (lost and stored.units == units):
            raise StateError(
                (
                    f"batch {batch.number} of {batch.query} has committed some task outputs with streams that "
                    "differ from the present source logs"
                ),
                remedy="if the state folder was restored, restore it as a whole; if a stream was skipped (offsets skip), continue in "
                "a new lineage (offsets set): committed task outputs are written again",
            )
        if stored.units and (not can or stored.order != order or elsewhere):
            raise _begun(batch.query, batch.number)
        return stored

    def drop(self, number: int) -> None:
        """Delete the intents of Batches before Batch `number`, which is decided."""
        self.intents.drop(number)

    def _can(self, compiled: Compiled, units: int, sources: int) -> bool:
        if len(compiled.tails) != 1 or compiled.python_before_native or not 0 < units <= self.sink.units:
            return False
        if any(node.fallible for node in _vector_nodes(compiled)):
            return False
        tail = compiled.tails[0]
        return not isinstance(tail.program.entry, RowsEntry) or (sources == 1 and _stays_in_its_task(tail.frame))

    def _pays(self, units: int, streams: Mapping[str, tuple[SourceStream, ...]]) -> bool:
        """True if commits by task output are faster: fencing each of many small task outputs costs more than one pass over the disk."""
        rows = sum(each.rows if each.rows is not None else each.bytes // _BYTES_A_ROW for listed in streams.values() for each in listed)
        return units <= 2 * self.cores or rows >= units * _ROWS_A_UNIT


def _begun(query: str, number: int) -> Refused:
    return Refused(
        f"query {query}: batch {number} has started to commit its task outputs one by one, and the changed flow no longer has these: "
        f"part of the batch may be visible",
        remedy="run the previous flow once (run --once), then change it",
        code="batch-begun",
    )


def plan_of(fingerprint: str, intent: Intent | None, reports: Iterable[TaskReport] = ()) -> str:
    """The plan that a decision records for its Batch: all plans under which it ran, joined by `+`, if the flow was changed after some task
    outputs were committed. `reports` are those of the task outputs."""
    if intent is None or not intent.units:
        return fingerprint
    ran = (report.plan for report in reports if isinstance(report.plan, str))
    return "+".join(dict.fromkeys((intent.plan, *ran, fingerprint)))


def with_unit_commits(compiled: Compiled, intent: Intent, behind: Mapping[str, Any], plan: str) -> Compiled:
    """The same frames with a sink whose task outputs commit one by one, under the plan `plan`."""
    (tail,) = compiled.tails
    commit = UnitCommit(intent.units, intent.input_hash, behind, plan)
    nodes = tuple(replace(node, commit=commit) if isinstance(node, SinkNode) else node for node in tail.program.nodes)
    tails: tuple[Tail, ...] = (replace(tail, program=replace(tail.program, nodes=nodes)),)
    return replace(compiled, tails=tails)


def behind_of(parts: QueryParts, units: int) -> dict[str, Mapping[str, Any]]:
    """Sink → the state of its destination before a Batch runs, for sinks that check it. `units` is passed to the sinks."""
    return {id_: sink.behind(units) for id_, sink in parts.sinks.items() if chains_batches(sink)}


def at_members(compiled: Compiled, parts: QueryParts, behind: Mapping[str, Mapping[str, Any]]) -> Compiled:
    """The same frames, in which a sink to a group stages with the sink of the chosen member."""
    chosen = {id_: sink.chosen(behind[id_]) for id_, sink in parts.sinks.items() if chooses(sink)}
    if not chosen:
        return compiled
    tails = []
    for tail in compiled.tails:
        nodes = [
            replace(node, sink=chosen[node.node]) if isinstance(node, SinkNode) and node.node in chosen else node
            for node in tail.program.nodes
        ]
        tails.append(replace(tail, program=replace(tail.program, nodes=tuple(nodes))))
    return replace(compiled, tails=tuple(tails))


def blame_members(parts: QueryParts, behind: Mapping[str, Mapping[str, Any]], error: Exception) -> None:
    """Raise Unreachable if a Batch failed because the group member that it was to be written to is unavailable."""
    for id_, sink in parts.sinks.items():
        if chooses(sink):
            sink.blame(behind[id_], error)


def _stays_in_its_task(frame: DataFrame) -> bool:
    """True if the executed plan keeps each row in its task, has one task for each stream, and gives the same rows each time."""
    operators = _operators(frame)
    deterministic = bool(frame._jdf.queryExecution().analyzed().deterministic())
    return deterministic and set(operators) <= _NARROW and operators.count("Range") == 1


def is_narrow(frame: DataFrame) -> bool:
    """True if the executed plan keeps each row in its task, and processes the rows of each stream separately."""
    return set(_operators(frame)) <= {*_NARROW, "Union"}


def _operators(frame: DataFrame) -> list[str]:
    """The operators of the executed plan."""
    return _OPERATOR.findall(frame._jdf.queryExecution().executedPlan().toString())


def _vector_nodes(compiled: Compiled) -> list[VectorNode]:
    return [node for tail in compiled.tails for node in tail.program.nodes if isinstance(node, VectorNode)]


def _order(compiled: Compiled) -> tuple[str, ...]:
    """The sources in the order in which task outputs are numbered; empty if there is only one."""
    entry = compiled.tails[0].program.entry
    order = tuple(dict.fromkeys(source for source, _ in entry.units)) if isinstance(entry, StreamsEntry) else ()
    return order if len(order) > 1 else ()
