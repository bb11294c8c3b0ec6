"""What the sink's protocol rests on, and its worst moments, at a real broker whose messages a proxy holds back when a test wants it."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from confluent_kafka import KafkaException

from harness.broker_proxy import ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID, PRODUCE, WRITE_TXN_MARKERS, Rule
from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.kafka.client import code_of
from scribengin.connectors.kafka.markers import Marker, MarkerTopic
from scribengin.connectors.kafka.options import SINK
from scribengin.connectors.kafka.outgoing import Outgoing
from scribengin.connectors.kafka.sink import KafkaSink
from scribengin.connectors.kafka.transaction import Superseded, Transaction
from scribengin.core.errors import FencedError, SinkError, Unreachable
from tests.connectors.kafka.guarded import Beside
from tests.connectors.kafka.test_sink import ROWS, claimed, decided, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.connectors.kafka.guarded import Guarded

_numbers = count()


@dataclass
class Unit:
    """A transactional.id of its own, with a topic for rows and one for markers, each of one partition."""

    guarded: Guarded
    name: str
    begun: list[Transaction] = field(default_factory=list)

    @property
    def markers(self) -> str:
        return f"{self.name}-markers"

    def options(self, **more: Any) -> dict[str, Any]:
        given = {"bootstrap": self.guarded.bootstrap, "topic": self.name, "format": "json", "timeout": 20.0, "markers": self.markers}
        return SINK.filled({**given, **more})

    def transaction(self, **more: Any) -> Transaction:
        self.begun.append(Transaction("out", self.options(**more), f"{self.markers}-0"))
        return self.begun[-1]

    def rule(self, act: Any, kind: int, until: int | None = None) -> Rule:
        return self.guarded.proxy.add(Rule(act, kind, self.name.encode(), until))

    def messages(self, *ids: int) -> Outgoing:
        number = len(ids)
        values: list[bytes | None] = [b"%d" % id_ for id_ in ids]
        return Outgoing([self.name] * number, np.zeros(number, np.int32), [None] * number, values, [0] * number, None, {})

    def commit(self, transaction: Transaction, number: int) -> None:
        transaction.commit(self.markers, 0, Marker("o", "f", "out", "l", number, f"h{number}", 1))

    def newest(self) -> int | None:
        """The number of the newest marker."""
        found = MarkerTopic("out", self.options(), self.markers).newest(0)
        return None if found is None else found.number

    def rows(self) -> list[int]:
        return [int(message.value()) for message in read(self.guarded.topics, self.name)]


@pytest.fixture
def unit(guarded: Guarded) -> Iterator[Unit]:
    made = new_unit(guarded)
    yield made
    end(made)


@pytest.fixture
def sink(guarded: Guarded, unit: Unit, tmp_path: Path) -> Callable[..., KafkaSink]:
    def make(**options: Any) -> KafkaSink:
        given = {"bootstrap": guarded.bootstrap, "topic": unit.name, "format": "json", "timeout": 20.0, "markers": f"{unit.name}-of-sink"}
        return claimed(
            KafkaSink(ConnectorContext("out", tmp_path, {**given, **options}, flow="f", version="0123456789", work=tmp_path / "work"))
        )

    return make


def new_unit(guarded: Guarded) -> Unit:
    made = Unit(guarded, f"unit{next(_numbers)}x")
    for name in (made.name, made.markers):
        guarded.topics.make(name=name)
    return made


def end(unit: Unit) -> None:
    unit.guarded.proxy.lift_all()
    for each in unit.begun:
        each.abort()


# --- what the broker must do ---


def test_a_fence_waits_until_the_commit_before_it_is_complete(unit: Unit, guarded: Guarded) -> None:
    older, newer = unit.transaction(), unit.transaction(bootstrap=guarded.proxied)
    older.fence()
    older.send(unit.messages(1))
    older.flush()
    held = unit.rule("hold", WRITE_TXN_MARKERS)
    unit.commit(older, 0)
    assert guarded.proxy.struck(held)
    assert unit.newest() is None, "the commit is not complete: nobody may see it yet"
    asked = unit.rule("note", INIT_PRODUCER_ID)
    fence = Beside(newer.fence)
    # the broker turns it away, so that it comes again and again
    assert guarded.proxy.struck(asked, 3)
    assert not fence.found
    guarded.proxy.lift(held)
    assert fence.result() is None
    assert unit.newest() == 0
    assert unit.rows() == [1]


def test_rows_that_arrive_behind_the_fence_are_refused(unit: Unit, guarded: Guarded) -> None:
    older, newer = unit.transaction(bootstrap=guarded.proxied), unit.transaction()
    older.fence()
    late = unit.rule("hold", PRODUCE)
    older.send(unit.messages(1))
    assert guarded.proxy.struck(late)
    newer.fence()
    newer.send(unit.messages(2))
    newer.flush()
    guarded.proxy.lift(late)
    with pytest.raises(Superseded):
        older.flush()
    unit.commit(newer, 0)
    unit.transaction().fence()
    assert unit.rows() == [2]
    assert guarded.end(unit.name) == 3, "the older one's abort, a row, its commit, and nothing that was late"


def test_a_producer_whose_commit_was_not_answered_can_begin_nothing_else(
    unit: Unit, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why `broken_kafka` has no sink with one session for all attempts: the library does not let it go wrong."""
    kept = unit.transaction(bootstrap=guarded.proxied)
    kept.fence()
    kept.send(unit.messages(1))
    kept.flush()
    unanswered = unit.rule("mute", END_TXN)
    until_over = kept._until

    def until_unanswered(act: Callable[[float], Any], _limit_s: float) -> None:
        """Gives up once the commit has gone unanswered, however long it took to get there."""
        for _ in range(600):
            if unanswered.struck:
                until_over(act, 0.2)
            with suppress(KafkaException):
                act(0.1)

    monkeypatch.setattr(kept, "_until", until_unanswered)
    with pytest.raises(Unreachable):
        unit.commit(kept, 0)
    assert unanswered.struck
    for again in (kept._producer.begin_transaction, lambda: kept._producer.produce(unit.name, b"2", partition=0)):
        with pytest.raises(KafkaException) as caught:
            again()
        assert code_of(caught.value) in ("_STATE", "_CONFLICT")
    guarded.proxy.lift(unanswered)
    unit.transaction().fence()
    assert (unit.newest(), unit.rows()) == (0, [1])


# --- the coordinator's time-out ---


def test_a_transaction_that_timed_out_is_refused_and_says_that_it_was_overdue(unit: Unit) -> None:
    slow = short_lived(unit)
    until(lambda: settled(unit))
    with pytest.raises(Superseded) as caught:
        unit.commit(slow, 0)
    assert caught.value.overdue
    unit.transaction().fence()
    assert (unit.newest(), unit.rows()) == (None, [])


def test_a_batch_whose_transaction_timed_out_is_tried_again_and_no_rival_is_blamed(
    unit: Unit, guarded: Guarded, sink: Callable[..., KafkaSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = sink(transaction_timeout=1.0)
    batch = decided(out, 0, ROWS)
    flush = Transaction.flush

    def slow_flush(transaction: Transaction) -> list[dict[str, Any]]:
        acknowledged = flush(transaction)
        until(lambda: guarded.end(unit.name) > len(ROWS))
        return acknowledged

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "flush", slow_flush)  # where the first second was not enough for the rows, it says the same
        with pytest.raises(Unreachable, match="brokers aborted the transaction of batch 0, which took longer than 1 s") as caught:
            out.publish(batch)
    assert "transaction_timeout" in caught.value.remedy
    assert read(guarded.topics, unit.name) == []
    out._options |= {"transaction_timeout": 60.0}  # the next try is not to be too slow
    out.publish(batch)
    Transaction("out", unit.options(), f"{unit.name}-of-sink-0").fence()
    assert len(read(guarded.topics, unit.name)) == len(ROWS)


def short_lived(unit: Unit) -> Transaction:
    """Its row has arrived; the brokers end it a second after it has begun. Where the machine is slower than that, another one is tried."""
    for _ in range(60):
        made = unit.transaction(transaction_timeout=1.0)
        made.fence()
        made.send(unit.messages(1))
        with suppress(Superseded):
            made.flush()
            return made
    raise AssertionError("no row has arrived within a second")


def settled(unit: Unit) -> bool:
    """Whether no transaction is open in the topic of the rows: none of a test that has committed nothing was not aborted."""
    return unit.guarded.end(unit.name, committed=True) == unit.guarded.end(unit.name)


def test_a_commit_that_is_decided_outlives_its_time_out(unit: Unit, guarded: Guarded) -> None:
    for _ in range(60):
        slow, held = short_lived(unit), unit.rule("hold", WRITE_TXN_MARKERS)
        begun_s = time.monotonic()
        with suppress(Superseded, Unreachable):  # its time was over before: another try
            unit.commit(slow, 0)
            break
        guarded.proxy.lift(held)
    until(lambda: time.monotonic() - begun_s > 1.5)
    guarded.proxy.lift(held)
    newer = unit.transaction()
    newer.fence()
    assert (unit.newest(), unit.rows()) == (0, [1])


def test_a_commit_that_comes_while_its_time_out_is_carried_out_is_refused(unit: Unit, guarded: Guarded) -> None:
    slow = unit.transaction(transaction_timeout=1.0)
    slow.fence()
    held = unit.rule("hold", WRITE_TXN_MARKERS)
    slow.send(unit.messages(1))
    with suppress(Superseded):  # its time may be over before its row has arrived
        slow.flush()
    assert guarded.proxy.struck(held)
    # for the marker's partition the broker says "come again" until the abort is complete
    with pytest.raises((Superseded, Unreachable)):
        unit.commit(slow, 0)
    guarded.proxy.lift(held)
    newer = unit.transaction()
    newer.fence()
    assert (unit.newest(), unit.rows()) == (None, [])


def test_commits_that_race_their_time_out_show_marker_and_rows_or_neither(guarded: Guarded) -> None:
    units = [new_unit(guarded) for _ in range(8)]
    started = threading.Barrier(len(units))

    def race(number: int) -> str:
        unit = units[number]
        transaction = unit.transaction(transaction_timeout=1.0 if number else 60.0)
        transaction.fence()
        started.wait(60)
        try:
            transaction.send(unit.messages(1))
            transaction.flush()
            # the broker looks every 50 ms, and counts from the first partition that was added
            time.sleep(0.9 + 0.03 * number if number else 0)
            unit.commit(transaction, 0)
        except Superseded:
            return "refused"
        except Unreachable:
            return "nobody knows"
        return "done"

    races = [Beside(lambda number=number: race(number)) for number in range(len(units))]
    answers = [each.result() for each in races]
    allowed = {"done": [(0, [1])], "refused": [(None, [])], "nobody knows": [(0, [1]), (None, [])]}
    assert answers[0] == "done"
    for unit, answer in zip(units, answers, strict=True):
        unit.transaction().fence()
        assert (unit.newest(), unit.rows()) in allowed[answer], answer
        end(unit)


# --- a producer that is fenced in the middle ---


@pytest.mark.parametrize("kind", [ADD_PARTITIONS, PRODUCE, END_TXN])
def test_a_driver_that_is_fenced_while_it_sends_says_so_and_leaves_nothing(
    kind: int, guarded: Guarded, unit: Unit, sink: Callable[..., KafkaSink]
) -> None:
    older = sink(bootstrap=guarded.proxied)
    batch = decided(older, 0, ROWS)
    held = unit.rule("hold", kind)
    publishing = Beside(lambda: older.publish(batch))
    assert guarded.proxy.struck(held)
    newer = Transaction("out", unit.options(), f"{unit.name}-of-sink-0")
    newer.fence()
    guarded.proxy.lift(held)
    result = publishing.result()
    assert isinstance(result, FencedError), result
    assert "another driver has started to write" in result.message
    assert read(guarded.topics, unit.name) == []
    for _ in range(2):  # a replay of what is published adds nothing
        sink().publish(batch)
        Transaction("out", unit.options(), f"{unit.name}-of-sink-0").fence()
        assert len(read(guarded.topics, unit.name)) == len(ROWS)


def test_an_epoch_that_runs_over_fences_as_the_others_do(unit: Unit, guarded: Guarded) -> None:
    """Each fence raises an epoch of 15 bits; behind the last one the broker gives the id another producer's number, and begins at 0."""
    older = unit.transaction()
    older.fence()
    before = raise_epoch(guarded.bootstrap, f"{unit.markers}-0", to=32_760)
    for number in range(6):  # two fences each: 32,761 to 32,766, then over
        older = unit.transaction()
        older.fence()
        older.send(unit.messages(100 + number))
        older.flush()
        newer = unit.transaction()
        newer.fence()
        with pytest.raises(Superseded):
            unit.commit(older, 100 + number)
        newer.send(unit.messages(number))
        newer.flush()
        unit.commit(newer, number)
    unit.transaction().fence()
    assert (unit.newest(), unit.rows()) == (5, list(range(6)))
    after = raise_epoch(guarded.bootstrap, f"{unit.markers}-0", to=0)
    assert after[0] != before[0]
    assert after[1] < 100


def raise_epoch(bootstrap: str, transactional_id: str, *, to: int) -> tuple[int, int]:
    """Fence by bare requests (InitProducerId, version 1), all sent at once: some 10,000 a second. Returns the last answer's (producer's
    number, epoch)."""
    host, port = bootstrap.split(":")
    name = transactional_id.encode()
    body = struct.pack(f">hhih1sh{len(name)}si", INIT_PRODUCER_ID, 1, 0, 1, b"t", len(name), name, 60_000)
    request = struct.pack(">i", len(body)) + body

    with socket.create_connection((host, int(port)), timeout=60) as connection, connection.makefile("rb") as answers:

        def ask(times: int) -> tuple[int, int]:
            sending = threading.Thread(target=connection.sendall, args=(request * times,))
            sending.start()
            producer = epoch = -1
            for _ in range(times):
                (size,) = struct.unpack(">i", answers.read(4))
                _, _, error, producer, epoch = struct.unpack(">iihqh", answers.read(size))
                assert error == 0
            sending.join(60)
            return producer, epoch

        reached = ask(1)
        return ask(to - reached[1]) if to > reached[1] else reached


# --- a broker that goes, a topic that changes ---


@pytest.mark.long
def test_a_broker_that_is_gone_between_the_last_row_and_the_commit_is_waited_for(unit: Unit, guarded: Guarded) -> None:
    transaction = unit.transaction()
    transaction.fence()
    transaction.send(unit.messages(1, 2))
    transaction.flush()
    guarded.cluster.kill(1)
    commit = Beside(lambda: unit.commit(transaction, 0))
    guarded.cluster.restart(1)
    assert commit.result() is None
    unit.transaction().fence()
    assert (unit.newest(), unit.rows()) == (0, [1, 2])


def test_a_message_that_has_become_too_large_for_its_topic_is_told(guarded: Guarded, sink: Callable[..., KafkaSink], unit: Unit) -> None:
    out = sink()
    batch = decided(out, 0, [{"id": 1, "name": "x" * 5000}])
    guarded.alter(unit.name, "max.message.bytes", "2000")
    with pytest.raises(SinkError, match="larger than its topic allows") as caught:
        out.publish(batch)
    assert caught.value.code == "kafka-too-large"
    assert read(guarded.topics, unit.name) == []
    guarded.alter(unit.name, "max.message.bytes", "10000")
    sink().publish(batch)
    Transaction("out", unit.options(), f"{unit.name}-of-sink-0").fence()
    assert len(read(guarded.topics, unit.name)) == 1


def until(true: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)
