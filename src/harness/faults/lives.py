"""One life of a flow: it is struck again and again, run to its end, and checked as a whole.

Every random choice uses a `random.Random` that is seeded with the seed and the position of the strike in the life: the same life and seed
give the same schedule.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from harness.faults.brokers import Brokers
from harness.faults.drivers import Hung
from harness.faults.flows import FaultFlow
from harness.faults.kafka_flows import LONG_S, ROUTES, SHORT_S, KafkaFlow
from harness.faults.kafka_ways import STRIKING_BROKERS
from harness.faults.outcomes import Life, LifeOutcome
from harness.faults.running import RunningLife
from harness.faults.stores import GROUND_OF
from harness.faults.tier_flows import OVER_KAFKA, TIER_ROUTES, TierFlow
from harness.faults.ways import strike_all
from harness.faults.workers import WorkerCluster

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.kafka import KafkaCluster

_BATCHES = 10
"""number of Batches; smaller than the number of strikes in a life"""


def run_life(
    life: Life,
    seed: int,
    folder: Path,
    *,
    limit_s: float = 300.0,
    archive: Path | None = None,
    brokers: Brokers | None = None,
    stop: threading.Event | None = None,
    records: int = 0,
) -> LifeOutcome:
    """Run a life in a new folder, which is deleted unless the life fails, and return its outcome.

    Args:
        life: The life.
        seed: The seed of the random numbers.
        folder: The folder.
        limit_s: The time limit of each start, in seconds.
        archive: The archive of Spark's classes; None for none.
        brokers: The brokers that lives over Kafka share; None: the life starts its own.
        stop: When it is set, the life ends.
        records: The minimum number of input records of a life over a store, in Batches of a tenth.

    Raises:
        CampaignEnded: if `stop` is set. No process is left then.
    """
    outcome = LifeOutcome(life, seed, [False] * len(life.aims))
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)  # left by a life that was ended from outside
    with ExitStack() as stack:
        flow, cluster = _on_its_ground(life, folder.resolve(), brokers, stack)
        speculates = any(aim.way == "speculation" for aim in life.aims)
        workers = stack.enter_context(WorkerCluster(flow.folder / "workers")) if speculates else None
        if life.format in GROUND_OF:
            flow.batch_rows = records // _BATCHES
        else:
            records = 0
        running = RunningLife(flow, outcome, stack, limit_s, archive, stop or threading.Event(), cluster, workers, records)
        try:
            running.run(strike_all)
        except Hung as error:
            outcome.wrong.append(str(error))
    outcome.seconds = round(time.monotonic() - began, 1)
    if outcome.verdict != "failed":
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _on_its_ground(life: Life, folder: Path, brokers: Brokers | None, stack: ExitStack) -> tuple[FaultFlow, KafkaCluster | None]:
    if life.format in TIER_ROUTES:
        return _cut(life, folder, brokers, stack)
    if (ground := GROUND_OF.get(life.format)) is not None:
        return ground.make(life, folder, stack), None
    if life.format not in ROUTES:
        return FaultFlow(folder, life.kind, life.format, life.partitioned), None
    ways = {aim.way for aim in life.aims}
    if brokers is None:
        brokers = stack.enter_context(Brokers(folder / "brokers"))
    if ways & STRIKING_BROKERS:
        brokers = stack.enter_context(brokers.apart(3 if "lost" in ways else 1))
    cluster = brokers.cluster()
    flow = KafkaFlow(
        folder,
        life.kind,
        "json",
        life.partitioned,
        route=life.format,
        bootstrap=cluster.bootstrap,
        brokers=brokers.count,
        transaction_timeout_s=SHORT_S if "slow" in ways else LONG_S,
        may_repeat="lineage" in ways,
    )
    flow.make()
    stack.callback(flow.remove)
    stack.callback(brokers.mend)
    return flow, cluster


def _cut(life: Life, folder: Path, brokers: Brokers | None, stack: ExitStack) -> tuple[TierFlow, KafkaCluster | None]:
    if life.format not in OVER_KAFKA:
        return TierFlow(folder, life.kind, "json", life.partitioned, route=life.format), None
    brokers = brokers or stack.enter_context(Brokers(folder / "brokers"))
    if STRIKING_BROKERS & {aim.way for aim in life.aims}:
        brokers = stack.enter_context(brokers.apart(1))
    cluster = brokers.cluster()
    flow = TierFlow(folder, life.kind, "json", life.partitioned, route=life.format, bootstrap=cluster.bootstrap)
    stack.callback(flow.remove)
    stack.callback(brokers.mend)
    return flow, cluster
