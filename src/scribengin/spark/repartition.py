"""Repartitions a query's state between two runs, with Spark 4.2's offline repartition.

Spark does it as a Batch without input: it skips a Batch that had begun and was never committed, copies the state, and commits. Batches that
Spark commits without calling us get empty decisions, so that their numbers have no gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from scribengin.connectors.contract import BatchId
from scribengin.core.errors import Refused, StateError, Unreachable
from scribengin.core.time_text import now_text
from scribengin.spark.failures import message_of
from scribengin.spark.offset_log import ends_of, newest_of, partitions_of, state_partitions
from scribengin.state.contract import REPARTITION, Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import read_lineage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease


def repartition(spark: SparkSession, query: QueryFolder, partitions: int, lease: Lease) -> bool:
    """Repartition the state of a query that is not running. Idempotent: it may be interrupted at any point and repeated.

    Args:
        spark: The session.
        query: The query's folder.
        partitions: The new number of state partitions.
        lease: The query's lease, which the caller holds.

    Returns:
        True if the state was repartitioned; False if there was nothing to do.

    Raises:
        Refused: A Batch is decided and Spark has not committed it yet, or Spark cannot repartition this kind of state.
        StateError: The checkpoint and the decisions contradict each other.
        Unreachable: The JVM has ended.
    """
    if state_partitions(query) is None:
        return False
    lineage, decisions = read_lineage(query), Decisions(query.decisions)
    last = decisions.newest()
    offsets, commits = query.checkpoint / "offsets", query.checkpoint / "commits"
    committed = newest_of(commits)
    if lineage is None or last is None or committed is None:
        raise Refused(
            f'query "{query.name}" has no committed Batch and so no state yet',
            remedy="run it until it commits a Batch: scribengin resume NAME",
            code="repartition-early",
        )
    if committed < last.batch.number:
        raise Refused(
            f'query "{query.name}": Batch {last.batch.number} is decided, but Spark has not committed it yet',
            remedy="run it briefly, which completes the Batch: scribengin resume NAME",
            code="repartition-pending",
        )
    done = newest_of(offsets) == committed and partitions_of(offsets, committed) == partitions
    if done and committed == last.batch.number:
        return False
    if not done:
        lease.check()
        _ = spark.streams  # creates the coordinator of state stores, which a session has only from its first streaming query on
        try:
            # a Batch that had begun and is not decided is not visible: its input is read again
            spark._streamingCheckpointManager.repartition(str(query.checkpoint), partitions, enforce_exactly_once_sink=False)
        except Py4JNetworkError as error:
            raise Unreachable(
                "Spark's JVM ended while it repartitioned the state", remedy="another worker retries automatically"
            ) from error
        except (PySparkException, Py4JError) as error:
            raise Refused(
                f'the state of query "{query.name}" cannot be repartitioned to {partitions} partitions: {message_of(error)}',
                remedy="keep the present partitions; if the change was interrupted, repeat it to complete it",
                code="repartition-failed",
            ) from error
    newest = newest_of(commits)
    ends = {each.source: each.end for each in last.sources}
    if newest is None or ends_of(offsets, newest) != ends:
        raise StateError(
            f'query "{query.name}": the checkpoint is at {ends_of(offsets, newest or 0)}, but the last decided Batch is at {ends}',
            remedy="restore the state folder as a whole; its parts belong together",
        )
    for number in range(last.batch.number + 1, newest + 1):
        lease.check()
        batch = BatchId(last.batch.flow, last.batch.query, lineage.id, number, lease.term)
        nothing = tuple(SourceRange(each.source, each.end, each.end) for each in last.sources)
        decisions.decide(Decision(batch, REPARTITION, last.plan, nothing, (), decided_at=now_text(), times=last.times, ran=last.ran))
    return True
