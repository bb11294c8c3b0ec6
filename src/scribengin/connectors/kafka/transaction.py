"""One transaction of one new producer: fence, messages, commit marker, commit. The protocol (`harness.kafka_model`) defines the order of
the steps and the consequences of a failure."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scribengin.connectors.kafka.client import LOGIN, SILENT, client, code_of, fault, settings
from scribengin.core import faults
from scribengin.core.errors import ScribenginError, SinkError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.connectors.kafka.markers import Marker
    from scribengin.connectors.kafka.outgoing import Outgoing

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_CONSEQUENCES = ("_PURGE_QUEUE", "_STATE", "_FATAL")
"""errors that only report that an earlier error occurred"""
_TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
_QUEUE = 200_000
_QUEUE_KIB = 64 * 1024
_BATCH_BYTES = 1_000_000
_BATCH_HEAD_BYTES = 512
"""overhead of a batch in addition to its messages, with a margin"""

_AT_ONCE = {"enable.sparse.connections": False}
"""librdkafka connects on demand, once in 50 ms, and looks for the transaction coordinator every 500 ms, so a fence takes 60 ms, and
sometimes 510. With all brokers connected from the start it takes 10 ms. For a cluster with very many brokers, `config` can change it."""


class Superseded(Exception):
    """A newer producer uses the same transactional.id, so brokers refuse anything that this one still sends. With `overdue`, the
    transaction has exceeded its time limit, which brokers refuse in the same way, and which is the more likely cause."""

    def __init__(self, text: str, *, overdue: bool) -> None:
        super().__init__(text)
        self.overdue = overdue


class Transaction:
    """A transaction. Its `transactional_id` depends only on the slot. Methods raise Superseded if a newer producer has started, Unreachable
    for an error that a retry may solve, SinkError for any other error."""

    def __init__(self, node: str, options: Mapping[str, Any], transactional_id: str, *, max_bytes: int = _BATCH_BYTES) -> None:
        self._kafka = client()
        self._node = node
        self._options = options
        self._id = transactional_id
        self._timeout_s = float(options["timeout"])
        self._transaction_s = float(options["transaction_timeout"])
        self._open = False
        self._begun_s = 0.0
        self._told: Any = None
        self._failed: Any = None
        self._ends: dict[tuple[str, int], list[int]] = {}
        self._rows: dict[tuple[str, int], int] = {}
        own = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": round(self._transaction_s * 1000),
            "linger.ms": round(options["linger"] * 1000),
            "compression.type": options["compression"],
            "queue.buffering.max.messages": _QUEUE,
            "queue.buffering.max.kbytes": _QUEUE_KIB,
            "message.max.bytes": max(max_bytes, 1000),
            "batch.size": max(min(max_bytes - _BATCH_HEAD_BYTES, _BATCH_BYTES), 1),
            "retry.backoff.ms": 20,
            "error_cb": self._hear,
        }
        try:
            self._producer = self._kafka.Producer(_AT_ONCE | settings(options) | own, logger=SILENT)
        except self._kafka.KafkaException as error:
            raise self._explained(error) from error

    def fence(self) -> None:
        """Fence older producers with this id: from now on they are refused, their committed transactions are complete, and an open one is
        aborted."""
        faults.reached("fence.before")
        self._until(self._producer.init_transactions, max(4 * self._timeout_s, 20.0))
        faults.reached("fence.after")

    def send(self, messages: Outgoing) -> None:
        """Pass messages to the client, which sends them in the background."""
        self._begin()
        self._send(messages)

    def _begin(self) -> None:
        if not self._open:
            self._serve(self._producer.begin_transaction)
            self._open = True
            self._begun_s = time.monotonic()

    def _send(self, messages: Outgoing) -> None:
        produce: Callable[..., None] = self._producer.produce
        spread = messages.spread()
        ends = {index: self._delivered for first, last, _ in spread.values() for index in (first, last)}
        for message in messages.rows(ends):
            try:
                produce(*message)
            except BufferError:
                self._make_room(*message)
            except self._kafka.KafkaException as error:
                raise self._explained(error) from error
        for place, (_, _, rows) in spread.items():
            self._rows[place] = self._rows.get(place, 0) + rows
        self._serve(self._producer.poll, 0)
        self._check()
        faults.reached("transaction.sent")

    def _make_room(self, *message: Any) -> None:
        """Wait until the brokers have accepted some messages, because the client's queue is full; then add this one."""
        give_up_s = time.monotonic() + self._transaction_s
        while time.monotonic() < give_up_s:
            self._serve(self._producer.poll, 0.05)
            self._check()
            try:
                self._serve(self._producer.produce, *message)
                return
            except BufferError:
                continue
        raise self._slow("accept messages")

    def flush(self) -> list[dict[str, Any]]:
        """Wait until the brokers have acknowledged all messages; returns their ranges: topic, partition, first and last offset, rows.

        The first offset is at most that of the first message. Messages of other writers may lie in the range.
        """
        give_up_s = time.monotonic() + self._transaction_s
        while self._serve(self._producer.flush, 0.5):
            self._check()
            if time.monotonic() > give_up_s:
                raise self._slow("acknowledge messages")
        self._check()
        return [
            {"topic": topic, "partition": partition, "first": min(ends), "last": max(ends), "rows": self._rows[topic, partition]}
            for (topic, partition), ends in sorted(self._ends.items())
        ]

    def commit(self, topic: str, slot: int, marker: Marker) -> None:
        """Write the commit marker, and commit it together with the messages.

        An error that leaves the outcome unknown is also Unreachable: the next fence and the commit marker then show the outcome.

        Args:
            topic: The topic of commit markers.
            slot: The slot, which is the partition of that topic.
            marker: The commit marker.
        """
        self._begin()
        self._serve(self._producer.produce, topic, marker.encoded(), f"{slot}".encode(), slot)
        faults.reached("transaction.commit.before")
        self._until(self._producer.commit_transaction, self._transaction_s)
        self._open = False
        faults.reached("transaction.commit.after")

    def abort(self) -> None:
        """Abort the transaction if possible; otherwise the next fence, or the time limit at the brokers, aborts it. Never raises."""
        try:
            self._producer.purge()
            if self._open:
                self._producer.abort_transaction(self._timeout_s)
        except (self._kafka.KafkaException, SystemError, ScribenginError):
            pass
        self._open = False

    def _until(self, act: Callable[[float], Any], limit_s: float) -> None:
        """Run `act`, which the same producer may repeat, until it succeeds or `limit_s` seconds have passed."""
        begun_s = time.monotonic()
        while True:
            passed_s = time.monotonic() - begun_s
            try:
                act(max(0.1, min(limit_s - passed_s, self._timeout_s)))
                return
            except (self._kafka.KafkaException, SystemError) as error:
                found = self._of_client(error)
                with suppress(self._kafka.KafkaException, SystemError):
                    self._producer.poll(0)  # the client reports pending errors only in `poll`
                refused = self._told is not None and self._told.name() in LOGIN
                if refused or not found.args[0].retriable() or time.monotonic() - begun_s > limit_s:
                    raise self._explained(found) from error

    def _serve(self, act: Callable[..., Any], *given: Any) -> Any:
        """Run `act`, in which the client may call back, and convert its errors."""
        try:
            return act(*given)
        except (self._kafka.KafkaException, SystemError) as error:
            raise self._explained(self._of_client(error)) from error

    def _of_client(self, error: Exception) -> Any:
        """The cause of an error of the client. The client raises a fatal error from the call that serves it; if a delivery callback runs in
        the same call, Python replaces the exception by a SystemError, with or without the cause."""
        if not isinstance(error, SystemError):
            return error
        reason = self._reason()
        if reason is None:
            raise error
        return reason

    def _reason(self) -> Any | None:
        """The reason why the transaction cannot continue; None if it can. The client has no call for that, but refuses to begin another
        transaction with it."""
        try:
            self._producer.begin_transaction()
        except self._kafka.KafkaException as told:
            return None if code_of(told) in ("_STATE", "_CONFLICT", "_PREV_IN_PROGRESS") else told
        return None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed = self._failed or error
            return
        self._ends.setdefault((message.topic(), message.partition()), []).append(message.offset())

    def _hear(self, error: Any) -> None:
        if self._told is None or (error.name() in LOGIN and not self._told.fatal()):
            self._told = error

    def _check(self) -> None:
        """Raise the client's error if a message was not delivered."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise self._explained(self._kafka.KafkaException(failed))

    def _explained(self, error: Exception) -> Exception:
        if code_of(error) in _CONSEQUENCES:
            error = self._reason() or error
        if error.args and hasattr(error.args[0], "fatal") and error.args[0].fatal():
            self._told = error.args[0]
        codes = {code_of(error)} | ({self._told.name()} if self._told is not None else set())
        if codes & set(_FENCED):
            overdue = self._open and time.monotonic() - self._begun_s >= self._transaction_s
            return Superseded(f"{self._id}: {error}", overdue=overdue)
        if codes & set(_TOO_LARGE):
            return SinkError(
                f'sink "{self._node}": a message is larger than its topic allows, although it was not when the topic was checked: {error}',
                remedy="raise max.message.bytes of the topic; the Batch is retried at the next start",
                code="kafka-too-large",
                node=self._node,
            )
        if code_of(error) in (*_CONSEQUENCES, "_TIMED_OUT") and self._told is not None:
            error = self._kafka.KafkaException(self._told)
        return fault(self._node, str(self._options["bootstrap"]), error, self._timeout_s, "sink")

    def _slow(self, what: str) -> Unreachable:
        told = "" if self._told is None else f" ({self._told.str()})"
        return Unreachable(
            (
                f'sink "{self._node}": the brokers did not {what} within {self._transaction_s:g} s{told}; no row is visible, and the batch '
                "is retried"
            ),
            remedy="check the load of the brokers; or raise the limit: transaction_timeout: 5m",
            node=self._node,
        )
