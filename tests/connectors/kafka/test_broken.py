"""The checker must catch Kafka sinks that are wrong on purpose; the right one must come through the same trials clean."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest

from harness.broken_kafka import BROKEN
from harness.kafka_model import MUTANTS
from harness.kafka_protocol import KafkaJob, kafka_driver, lineage_lost, unanswered
from scribengin.testing import campaign
from scribengin.testing.trials import Outcome, killed, overtaken

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.testing.campaign import MakeDriver
    from tests.connectors.kafka.guarded import Guarded

    Trial = Callable[[Guarded, KafkaJob, MakeDriver], Outcome]

_numbers = count()


def killed_at(point: str) -> Trial:
    def trial(guarded: Guarded, job: KafkaJob, make_driver: MakeDriver) -> Outcome:
        outcome = killed(job, [f"{point}:kill"], make_driver)
        assert outcome.statuses == (-9,), "the point was not reached"
        return outcome

    return trial


def overtaken_at(point: str, successor: str = "") -> Trial:
    def trial(guarded: Guarded, job: KafkaJob, make_driver: MakeDriver) -> Outcome:
        outcome = overtaken(job, point, make_driver, successor=successor)
        assert outcome.statuses[0] == (-9 if successor else 0), "the successor has not met its end"
        return outcome

    return trial


def without_answer(guarded: Guarded, job: KafkaJob, make_driver: MakeDriver, *, incomplete: bool) -> Outcome:
    through = replace(job, bootstrap=guarded.proxied, transaction_timeout_s=2.0)
    for _ in range(10):
        with suppress(AssertionError):  # the machine was too slow: the transaction has ended before its commit was sent
            return unanswered(through, guarded.proxy, make_driver, incomplete=incomplete)
        through = replace(through, state=through.state.parent / f"{next(_numbers)}", topic=f"trial-{next(_numbers)}")
        through.make_topics()
    raise AssertionError("no commit has gone unanswered")


def with_lost_lineage(guarded: Guarded, job: KafkaJob, make_driver: MakeDriver) -> Outcome:
    # the same records in other Batches: who takes the older lineage's first one for his own has too much, or too little
    again = replace(job, state=job.state.parent / "again", batches=2 * job.batches, rows=job.rows // 2, adopt=True)
    return lineage_lost(job, again, "publish.record.after:kill", make_driver)


SUCCESSOR = "transaction.commit.after:kill"
"""before it has cleared away what it has sent: else the one that wakes finds nothing to send, and is right by luck"""

# of the third publication (the second Batch's heads), where the fences count the two of the claims, too
CATCHES: dict[str, tuple[Trial, set[str]]] = {
    "read_before_fence": (overtaken_at("fence.before@5", SUCCESSOR), {"doubled"}),
    "marker_before_transaction": (killed_at("transaction.commit.before@5"), {"lost"}),
    "marker_after_transaction": (killed_at("transaction.commit.after@5"), {"doubled"}),
    "id_names_attempt": (overtaken_at("publish.record.before@3", SUCCESSOR), {"doubled"}),
    "high_watermark": (overtaken_at("transaction.commit.before@5"), {"lost"}),
    "lost_answer_is_no_commit": (partial(without_answer, incomplete=False), {"doubled"}),
    "readback_without_fence": (partial(without_answer, incomplete=True), {"doubled"}),
    "number_only": (with_lost_lineage, {"lost"}),
    "foreign_marker_is_none": (with_lost_lineage, {"doubled"}),
}
# of the second Batch's first unit; before it come the claims of both sinks, two units, and the first Batch of the sink that gets nothing
UNITS: dict[str, tuple[Trial, set[str]]] = {
    "read_before_fence": (overtaken_at("fence.before@6", SUCCESSOR), {"doubled"}),
    "marker_before_transaction": (killed_at("transaction.commit.before@6"), {"lost"}),
    "marker_after_transaction": (killed_at("transaction.commit.after@6"), {"doubled"}),
    "id_names_attempt": (overtaken_at("marker.read@3", SUCCESSOR), {"doubled"}),
    "high_watermark": (overtaken_at("transaction.commit.before@6"), {"lost"}),
}
BY_UNITS, BY_BATCHES = {"read_before_fence", "marker_before_transaction"}, {"marker_after_transaction", "high_watermark"}
"""trials with the same point in units and in whole Batches: the right sink comes through each in one way, and under `long` in the other"""
BROKEN_SETTLE_S = 5.0
"""a broken sink may have left a transaction open, whose rows are none; what it has committed is seen by then, or is found missing"""
WITHOUT_SINK = {"fence_overtakes_commit", "old_epoch_accepted", "fenced_fences_again", "one_session"}


@pytest.fixture
def job(guarded: Guarded, tmp_path: Path) -> KafkaJob:
    made = KafkaJob(tmp_path / "state", tmp_path / "out", bootstrap=guarded.bootstrap, topic=f"trial-{next(_numbers)}", rows=40)
    made.make_topics()
    return made


def test_every_mutant_of_the_model_has_a_sink_and_a_trial_or_a_reason() -> None:
    assert set(CATCHES) == set(BROKEN)
    assert set(BROKEN) | WITHOUT_SINK == set(MUTANTS)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in UNITS)) for name in CATCHES])
def test_the_checker_catches(name: str, guarded: Guarded, job: KafkaJob) -> None:
    trial, kinds = CATCHES[name]
    outcome = trial(guarded, replace(job, settled_s=BROKEN_SETTLE_S), BROKEN[name])
    assert kinds <= set(outcome.findings.kinds()), str(outcome)


@pytest.mark.parametrize(
    "name",
    # that of foreign_marker_is_none is the trial of number_only
    [pytest.param(name, marks=[pytest.mark.long] * (name in BY_UNITS)) for name in CATCHES if name != "foreign_marker_is_none"],
)
def test_the_right_sink_outlives_the_trial_of(name: str, guarded: Guarded, job: KafkaJob) -> None:
    trial, _ = CATCHES[name]
    outcome = trial(guarded, job, kafka_driver)
    assert outcome.clean, str(outcome)
    assert campaign.BUG not in outcome.statuses, str(outcome)
    if trial is not with_lost_lineage:
        assert campaign.audit(job, kafka_driver) == ()


@pytest.mark.parametrize("name", UNITS)
def test_the_checker_catches_in_units_that_commit_one_by_one(name: str, guarded: Guarded, job: KafkaJob) -> None:
    trial, kinds = UNITS[name]
    outcome = trial(guarded, replace(job, one_by_one=True, settled_s=BROKEN_SETTLE_S), BROKEN[name])
    assert kinds <= set(outcome.findings.kinds()), str(outcome)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in BY_BATCHES)) for name in UNITS])
def test_units_that_commit_one_by_one_outlive_the_trial_of(name: str, guarded: Guarded, job: KafkaJob) -> None:
    trial, _ = UNITS[name]
    job = replace(job, one_by_one=True, transaction_timeout_s=10.0)
    outcome = trial(guarded, job, kafka_driver)
    assert outcome.clean, str(outcome)
    assert campaign.BUG not in outcome.statuses, str(outcome)
    assert campaign.audit(job, kafka_driver) == ()
