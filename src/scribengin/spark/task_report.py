"""What tasks report to the driver: the typed report of each task output, its transport, and the sums over a Batch's reports.

A stage that writes returns its reports as rows (`StageReport`). A stage before Spark SQL steps adds them to an accumulator of (Batch
number, stage, key) → report: a partition that ran twice reports the same key twice, and the last report counts.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.accumulators import AccumulatorParam

from scribengin.formats.column_notices import UnfilledColumns  # noqa: TC001  msgspec looks at the annotations of reports
from scribengin.formats.notice import FormatNotice  # noqa: TC001  msgspec looks at the annotations of reports
from scribengin.state.contract import LineSegment  # noqa: TC001  the same

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

    Reports = Accumulator[dict[tuple[int, int, str], "TaskReport"]]

NOWHERE = 2**63
"""greater than all AT values"""


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one task output for the driver.

    Its JSON form is stored with task outputs that commit one by one (`UnitStream.commit`), so its keys are part of the stored formats.
    """

    receipts: list[dict[str, Any]] = []
    """the write receipt of each sink, in the form of `Receipt.as_json`"""
    dead: LineSegment | None = None
    counts: dict[str, dict[str, Any]] = {}
    """node → `Counts.as_json`"""
    trails: LineSegment | None = None
    leaves: int = 0
    """microseconds since 1970: the highest watermark after which rows of this task leave a stateful step"""
    seconds: dict[str, float] = {}
    """node → seconds spent in it"""
    noticed: list[FormatNotice] = []
    nulls: dict[str, UnfilledColumns] = {}
    """source → its columns without a value"""
    taken: dict[str, dict[str, Any]] = {}
    """source that is a channel → what the task read of it, see `state.channel_digests`"""
    orders: dict[str, dict[str, Any]] = {}
    """step of utilities → its figures, see `step_ordering`"""
    newest: dict[str, tuple[int, int | None]] = {}
    """node with a watermark → the newest time in microseconds since 1970, and the AT value of its record"""
    lookups: list[str] = []
    """marks of failed records of static sources, see `state.lookups`"""
    again: dict[str, int] = {}
    """node → records of static sources that had become dead letters before"""
    plan: str | msgspec.UnsetType = msgspec.UNSET
    """the plan under which the task output committed by itself"""

    def as_json(self) -> dict[str, Any]:
        """The stored form."""
        form: dict[str, Any] = msgspec.to_builtins(self)
        return form


class StageReport(msgspec.Struct, frozen=True):
    """The report of a task output of a stage that writes; `key` identifies the task output in the stage."""

    stage: int
    key: str
    task: TaskReport


def report_of(stored: Mapping[str, Any]) -> TaskReport:
    """Read a report in its stored form."""
    return msgspec.convert(stored, TaskReport)


class _Merge(AccumulatorParam[dict[Any, Any]]):
    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: dict[Any, Any], value2: dict[Any, Any]) -> dict[Any, Any]:  # noqa: N802
        value1.update(value2)
        return value1


def new_reports(spark: SparkSession) -> Reports:
    """A new, empty accumulator. The driver may read its value after the job that adds to it has ended."""
    return spark.sparkContext.accumulator({}, _Merge())


def repeated_dead_letters(reports: Iterable[TaskReport]) -> dict[str, int]:
    """Node → records of static sources that had become dead letters before; see `DeadLetterWriter.again`."""
    again: Counter[str] = Counter()
    for report in reports:
        again.update(report.again)
    return dict(again)


def seconds_of(reports: Iterable[TaskReport]) -> dict[str, float]:
    """Node → seconds, summed over all tasks; a task output that had committed before reports the seconds of that time."""
    seconds: dict[str, float] = {}
    for report in reports:
        for node, spent in report.seconds.items():
            seconds[node] = seconds.get(node, 0.0) + spent
    return seconds


def newest_times(reports: Iterable[TaskReport]) -> dict[str, tuple[int, int | None]]:
    """Node with a watermark → (its newest time over all tasks, the AT value); for equal times the first record."""
    newest: dict[str, tuple[int, int | None]] = {}
    for report in reports:
        for origin, (us, at) in report.newest.items():
            best = newest.get(origin)
            if best is None or (us, -NOWHERE if at is None else -at) > (best[0], -NOWHERE if best[1] is None else -best[1]):
                newest[origin] = (us, at)
    return newest
