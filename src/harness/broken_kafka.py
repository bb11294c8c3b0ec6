"""Kafka sinks that are wrong on purpose, each with one fault whose consequence `kafka_model` shows. The checker must detect every one.

Each is a function that creates a `Driver` for a `KafkaJob`; the names in `BROKEN` are those of the model's mutants. Four mutants have no
sink here: `fence_overtakes_commit` and `old_epoch_accepted` are faults of a broker; `fenced_fences_again` neither loses nor duplicates
rows; and `one_session` cannot be broken here, because librdkafka lets no producer begin another transaction while the answer to a commit is
missing.
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
    """A sink with other classes for its transactions and its commit markers."""

    transactions: type[Transaction] = Transaction
    markers: type[MarkerTopic] = MarkerTopic

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        self._markers = self.markers(self.node, self._options, self._markers.name)

    def _transaction(self, slot: int) -> Transaction:
        return self.transactions(self.node, self._options, f"{self._markers.name}-{slot}")


class _LateFence(Transaction):
    """Fences only when there is something to write, because "the marker may say that there is nothing to do"."""

    _fenced = False

    def fence(self) -> None:
        """Does nothing yet."""

    def send(self, messages: Outgoing) -> None:
        """Fence, then send."""
        self._fence_now()
        super().send(messages)

    def commit(self, topic: str, slot: int, marker: Marker) -> None:
        """Fence, then commit."""
        self._fence_now()
        super().commit(topic, slot, marker)

    def _fence_now(self) -> None:
        if not self._fenced:
            self._fenced = True
            super().fence()


class _MarkerApart(Transaction):
    """Writes the commit marker outside of the transaction."""

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
    """Writes the commit marker first, then the rows."""

    def commit(self, topic: str, slot: int, marker: Marker) -> None:
        """Write the commit marker, then commit the rows."""
        self._write_alone(topic, slot, marker)
        self._commit_rows()


class _MarkerLast(_MarkerApart):
    """Commits the rows first, then writes the commit marker."""

    def commit(self, topic: str, slot: int, marker: Marker) -> None:
        """Commit the rows, then write the commit marker."""
        self._commit_rows()
        self._write_alone(topic, slot, marker)


class _IdOfTheAttempt(Transaction):
    """Uses another transactional id for each attempt, so that attempts "cannot disturb one another"."""

    def __init__(self, node: str, options: Mapping[str, Any], transactional_id: str, **more: int) -> None:
        super().__init__(node, options, f"{transactional_id}-{uuid4().hex}", **more)


class _UpToTheEnd(MarkerTopic):
    """Reads commit markers of open and aborted transactions too."""

    _own_reader: Any = None

    def _reader(self, kafka: Any) -> Any:
        if self._own_reader is None:
            own = {"group.id": "scribengin", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 5}
            self._own_reader = kafka.Consumer(settings(self._options) | own | {"isolation.level": "read_uncommitted"}, logger=SILENT)
        return self._own_reader


class _Remembering(MarkerTopic):
    """Returns the marker of its last request again while `asks` is False."""

    last: Marker | None = None
    asks = True

    def newest(self, slot: int) -> Marker | None:
        """The newest commit marker, or that of the last request."""
        if self.asks:
            self.last = super().newest(slot)
        return self.last


class _Impatient(_Exchanged):
    """Writes the Batch again at once if its commit is not answered. With `looks`, it reads the commit marker first."""

    markers = _Remembering
    looks = False

    def publish(self, decided: Decided) -> None:
        """Publish the Batch. If the commit is not answered, publish it again, without checking the outcome."""
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
    """Reads the commit marker before the fence: the marker may become readable only later."""

    looks = True


class _NumberOnly(KafkaSink):
    """Compares only the number of the Batch in a commit marker."""

    def _continues(self, decided: Decided, newest: Marker | None) -> Marker:
        if newest is not None:
            newest = replace(newest, owner=self._owner, lineage=decided.batch.lineage, hash=decided.input_hash, term=decided.batch.term)
        return super()._continues(decided, newest)


class _ForeignIsNone(KafkaSink):
    """Ignores the commit marker of another lineage."""

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
    """Rows that are committed between the reading and the fence are written again."""
    return _with(job, transactions=_LateFence)


def marker_before_transaction(job: Job) -> Driver:
    """The commit marker exists for rows that are aborted."""
    return _with(job, transactions=_MarkerFirst)


def marker_after_transaction(job: Job) -> Driver:
    """Rows without their commit marker are written again."""
    return _with(job, transactions=_MarkerLast)


def id_names_attempt(job: Job) -> Driver:
    """The fence affects no other attempt."""
    return _with(job, transactions=_IdOfTheAttempt)


def high_watermark(job: Job) -> Driver:
    """The commit marker of an aborted transaction is believed."""
    return _with(job, markers=_UpToTheEnd)


def lost_answer_is_no_commit(job: Job) -> Driver:
    """Committed rows are written again."""
    return _of(_Impatient, job)


def readback_without_fence(job: Job) -> Driver:
    """Rows whose commit becomes visible a moment later are written again."""
    return _of(_Looking, job)


def number_only(job: Job) -> Driver:
    """The rows of another lineage are taken for the sink's own."""
    return _of(_NumberOnly, job)


def foreign_marker_is_none(job: Job) -> Driver:
    """Rows that another lineage commits are written again."""
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
