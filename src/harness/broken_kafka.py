"""Kafka sinks that are wrong on purpose, each in one way of which `kafka_model` shows what comes of it. The checker must catch every one.

Each is a function that makes a `Driver` for a `KafkaJob`; `BROKEN` names them as the model's mutants are named. Of those four have no
sink: `fence_overtakes_commit` and `old_epoch_accepted` are the broker's affair, `fenced_fences_again` neither loses nor doubles, and with
`one_session` nothing can be broken here: librdkafka lets no producer begin anew behind a commit that was not answered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from harness.kafka_protocol import KafkaJob
from harness.unit_protocol import UnitsDriver
from scribengin.connectors.kafka.client import SILENT, settings
from scribengin.connectors.kafka.markers import MarkerTopic
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.connectors.kafka.transaction import Transaction
from scribengin.core import faults
from scribengin.core.errors import Unreachable
from scribengin.testing.protocol import Driver, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.connectors.contract import ConnectorContext, Decided
    from scribengin.connectors.kafka.markers import Marker
    from scribengin.connectors.kafka.outgoing import Outgoing


class _Exchanged(KafkaSink):
    """A sink with other parts."""

    transactions: type[Transaction] = Transaction
    markers: type[MarkerTopic] = MarkerTopic

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        self._markers = self.markers(self.node, self._options, self._markers.name)

    def _transaction(self, slot: int) -> Transaction:
        return self.transactions(self.node, self._options, f"{self._markers.name}-{slot}")


class _LateFence(Transaction):
    """Fences when there is something to write: "the marker may say that there is nothing to do"."""

    _fenced = False

    def fence(self) -> None:
        """Not yet."""

    def send(self, messages: Outgoing) -> None:
        """As ever, behind the fence."""
        self._fence_now()
        super().send(messages)

    def commit(self, topic: str, slot: int, marker: Marker) -> None:
        """As ever, behind the fence."""
        self._fence_now()
        super().commit(topic, slot, marker)

    def _fence_now(self) -> None:
        if not self._fenced:
            self._fenced = True
            super().fence()


class _MarkerApart(Transaction):
    """Keeps the marker out of the transaction: "one topic of ours need not wait for their topics"."""

    def _commit_rows(self) -> None:
        faults.reached("transaction.commit.before")
        if self._open:
            self._until(self._producer.commit_transaction, self._transaction_s)
        self._open = False
        faults.reached("transaction.commit.after")

    def _write_alone(self, topic: str, slot: int, marker: Marker) -> None:
        producer = self._kafka.Producer(settings(self._options), logger=SILENT)
        producer.produce(topic, marker.encoded(), f"{slot}".encode(), slot)
        assert producer.flush(30) == 0


class _MarkerFirst(_MarkerApart):
    """Marker, then rows."""

    def commit(self, topic: str, slot: int, marker: Marker) -> None:
        """Commit the rows behind a marker that says that they are."""
        self._write_alone(topic, slot, marker)
        self._commit_rows()


class _MarkerLast(_MarkerApart):
    """Rows, then marker."""

    def commit(self, topic: str, slot: int, marker: Marker) -> None:
        """Commit the rows, and say so later."""
        self._commit_rows()
        self._write_alone(topic, slot, marker)


class _IdOfTheAttempt(Transaction):
    """An id for every attempt, so that attempts "cannot disturb one another"."""

    def __init__(self, node: str, options: Mapping[str, Any], transactional_id: str, **more: int) -> None:
        super().__init__(node, options, f"{transactional_id}-{uuid4().hex}", **more)


class _UpToTheEnd(MarkerTopic):
    """Reads what stands there, without waiting for anyone's transaction."""

    _own_reader: Any = None

    def _reader(self, kafka: Any) -> Any:
        if self._own_reader is None:
            own = {"group.id": "scribengin", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 5}
            self._own_reader = kafka.Consumer(settings(self._options) | own | {"isolation.level": "read_uncommitted"}, logger=SILENT)
        return self._own_reader


class _Remembering(MarkerTopic):
    """Can be told to go on saying what it has said."""

    last: Marker | None = None
    asks = True

    def newest(self, slot: int) -> Marker | None:
        """The newest marker, or what was."""
        if self.asks:
            self.last = super().newest(slot)
        return self.last


class _Impatient(_Exchanged):
    """Without an answer to its commit it writes the Batch again at once; where it `looks`, unless the marker says that it is there."""

    markers = _Remembering
    looks = False

    def publish(self, decided: Decided) -> None:
        """At the second try without asking what became of the first."""
        memory = cast("_Remembering", self._markers)
        try:
            super().publish(decided)
        except Unreachable:
            if self.looks:
                memory.newest(0)
            memory.asks = False
            super().publish(decided)
        finally:
            memory.asks = True


class _Looking(_Impatient):
    """Fences only then: a marker that is not there yet may come."""

    looks = True


class _NumberOnly(KafkaSink):
    """Of a marker it looks at the Batch's number only."""

    def _continues(self, decided: Decided, newest: Marker | None) -> Marker:
        if newest is not None:
            newest = replace(newest, owner=self._owner, lineage=decided.batch.lineage, hash=decided.input_hash, term=decided.batch.term)
        return super()._continues(decided, newest)


class _ForeignIsNone(KafkaSink):
    """Goes on over another lineage's marker: "that is not about us"."""

    def _continues(self, decided: Decided, newest: Marker | None) -> Marker:
        batch = decided.batch
        if newest is not None and not newest.same_place(self._owner, batch.lineage):
            newest = replace(newest, owner=self._owner, lineage=batch.lineage, number=batch.number - 1, hash="", term=batch.term)
        return super()._continues(decided, newest)


def _of(make: Callable[[ConnectorContext], KafkaSink], job: Job) -> Driver:
    assert isinstance(job, KafkaJob)
    place = job.place
    kind = UnitsDriver if job.one_by_one else Driver
    return kind(job, lambda _, node: make(place(node)))


def _with(job: Job, *, transactions: type[Transaction] = Transaction, markers: type[MarkerTopic] = MarkerTopic) -> Driver:
    return _of(type("Exchanged", (_Exchanged,), {"transactions": transactions, "markers": markers}), job)


def read_before_fence(job: Job) -> Driver:
    """What is committed between the two comes again."""
    return _with(job, transactions=_LateFence)


def marker_before_transaction(job: Job) -> Driver:
    """The marker of rows that are aborted."""
    return _with(job, transactions=_MarkerFirst)


def marker_after_transaction(job: Job) -> Driver:
    """Rows without their marker come again."""
    return _with(job, transactions=_MarkerLast)


def id_names_attempt(job: Job) -> Driver:
    """The fence meets nobody."""
    return _with(job, transactions=_IdOfTheAttempt)


def high_watermark(job: Job) -> Driver:
    """The marker of rows that are aborted is believed."""
    return _with(job, markers=_UpToTheEnd)


def lost_answer_is_no_commit(job: Job) -> Driver:
    """Rows that are committed come again."""
    return _of(_Impatient, job)


def readback_without_fence(job: Job) -> Driver:
    """Rows whose commit is about to be seen come again."""
    return _of(_Looking, job)


def number_only(job: Job) -> Driver:
    """Another lineage's rows count for one's own."""
    return _of(_NumberOnly, job)


def foreign_marker_is_none(job: Job) -> Driver:
    """What another lineage commits comes again."""
    return _of(_ForeignIsNone, job)


BROKEN = {
    make.__name__: make
    for make in (
        read_before_fence,
        marker_before_transaction,
        marker_after_transaction,
        id_names_attempt,
        high_watermark,
        lost_answer_is_no_commit,
        readback_without_fence,
        number_only,
        foreign_marker_is_none,
    )
}
