"""The progress of the current Batch in Spark tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tasks_under_way(spark: SparkSession, group: str) -> tuple[int, int] | None:
    """(finished tasks, all tasks) of the running jobs of a job group; None if none runs.

    A few calls to the JVM, some ms: for displays, not for every poll.
    """
    tracker = spark.sparkContext.statusTracker()
    running = set(tracker.getActiveJobsIds()).intersection(tracker.getJobIdsForGroup(group))
    infos = [info for job in running if (info := tracker.getJobInfo(job)) is not None]
    stages = [stage for info in infos for id_ in info.stageIds if (stage := tracker.getStageInfo(id_)) is not None]
    total = sum(stage.numTasks for stage in stages)
    return (sum(stage.numCompletedTasks for stage in stages), total) if total else None
