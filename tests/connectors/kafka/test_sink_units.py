"""Units of the Kafka sink that commit by themselves, attempt against attempt, against a real broker."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import AlreadyCommitted, BatchId, Decided, Receipt
from scribengin.core.errors import FencedError, StateError, Unreachable
from scribengin.core.types import arrow_schema
from scribengin.testing.conformance_units import check_unit_sink
from tests.connectors.kafka.test_sink import ROWS, SCHEMA, claimed, rows_of, sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.connectors.kafka.sink import KafkaSink
    from scribengin.connectors.kafka.sink_unit import UnitMessages
    from tests.connectors.kafka.conftest import Topics

__all__ = ["sink"]


def begin(sink: KafkaSink, number: int, *, unit: int = 0, units: int = 2, hash_: str = "", behind: Any = None) -> UnitMessages:
    copy: KafkaSink = pickle.loads(pickle.dumps(sink))
    given = {"input_hash": hash_ or f"h{number}", "behind": behind or sink.behind(units)}
    return copy.unit_stream(BatchId("f", "q", "l1", number, 1), unit, f"a{time.monotonic_ns()}", SCHEMA, **given)


def write(stream: UnitMessages, rows: list[dict[str, Any]]) -> None:
    assert not stream.write(pa.RecordBatch.from_pylist(rows, arrow_schema(SCHEMA)), [f"in-0@{row['id']}" for row in rows])


def finish(stream: UnitMessages) -> Receipt:
    receipt = stream.close()
    stream.commit({"receipts": [receipt.as_json()]})
    stream.abort()
    return receipt


def begin_sending(sink: KafkaSink, rows: list[dict[str, Any]]) -> UnitMessages:
    """A unit whose transaction is open; where the machine is busy, the first ones may be taken for slow, and wait for their end."""
    for _ in range(20):
        stream = begin(sink, 0)
        write(stream, rows)
        if stream.sending:
            return stream
        stream.abort()
    raise AssertionError("no unit was quick enough to begin its transaction")


def write_until_refused(stream: UnitMessages, rows: list[dict[str, Any]]) -> None:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        write(stream, rows)
        stream.close()
        time.sleep(0.2)


def try_all(stream: UnitMessages, rows: list[dict[str, Any]]) -> None:
    write(stream, rows)
    stream.close()
    stream.commit({})


def run(sink: KafkaSink, number: int, rows: list[dict[str, Any]], **given: Any) -> Receipt:
    stream = begin(sink, number, **given)
    write(stream, rows)
    return finish(stream)


def test_units_are_seen_as_they_commit_and_a_decision_has_nothing_left_to_do(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make(2)
    out = claimed(sink(topic))
    for number in range(3):
        behind = out.behind(2)
        receipts = (run(out, number, ROWS[:2], unit=0), run(out, number, ROWS[2:3], unit=1))
        assert len(rows_of(topics, topic)) == 3 * (number + 1)
        decided = Decided(BatchId("f", "q", "l1", number, 1), "h", receipts, behind)
        out.publish(decided)
    again = claimed(sink(topic))
    again.recover(decided, lineage="l1", before=3)
    assert [(each.number, each.rows, each.violations) for each in again.audit(lineage="l1", decided=[decided])] == [(2, 3, ())]
    assert len(rows_of(topics, topic)) == 9


def test_a_second_attempt_takes_the_report_of_the_first(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    out = claimed(sink(topic))
    receipt = run(out, 0, ROWS[:2])
    for behind in (None, {"units": 2, "after": {"1": 0, "2": None}}):
        second = begin(claimed(sink(topic)), 0, behind=behind)
        with pytest.raises(AlreadyCommitted) as found:
            try_all(second, ROWS)
        second.abort()
        assert found.value.report == {"receipts": [receipt.as_json()]}
    assert len(rows_of(topics, topic)) == 2


def test_a_fenced_attempt_waits_for_the_report_of_the_one_that_fenced_it(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    out = claimed(sink(topic))
    first = begin(out, 0)
    write(first, ROWS[:2])
    first.close()
    second = begin(out, 0)
    write(second, ROWS[2:5])
    receipt = second.close()
    # the other one takes its time: longer than the first one waits
    first._place = replace(first._place, limit_s=0.3)
    with pytest.raises(Unreachable, match="no other attempt committed"):
        first.commit({"receipts": []})
    second.commit({"receipts": [receipt.as_json()]})
    with pytest.raises(AlreadyCommitted) as found:
        first.commit({"receipts": []})
    assert found.value.report == {"receipts": [receipt.as_json()]}
    assert [row["id"] for row in rows_of(topics, topic)] == [3, 4, 5]


@pytest.mark.parametrize(
    ("hash_", "behind"),
    [("other", None), ("", {"units": 2, "after": {"1": 5}}), ("", {"units": 2, "after": {"1": None}})],
    ids=["other input", "a marker is lost", "a marker is too many"],
)
def test_a_unit_that_finds_another_history_writes_nothing(topics: Topics, sink: Callable[..., KafkaSink], hash_: str, behind: Any) -> None:
    topic = topics.make()
    out = claimed(sink(topic))
    run(out, 0, ROWS[:1])
    stream = begin(out, 0 if hash_ else 1, hash_=hash_, behind=behind)
    with pytest.raises(FencedError, match="writes nothing of batch"):
        try_all(stream, ROWS)
    stream.abort()
    assert len(rows_of(topics, topic)) == 1


def test_after_a_new_lineage_no_unit_of_the_old_one_writes_also_in_slots_it_never_used(
    topics: Topics, sink: Callable[..., KafkaSink]
) -> None:
    topic = topics.make()
    old = claimed(sink(topic))
    run(old, 0, ROWS[:1])
    asleep = begin(old, 1, unit=1)
    write(asleep, ROWS)
    claimed(sink(topic), "l2", adopt=True)
    for stream in (asleep, begin(old, 1, unit=1, behind={"units": 2, "after": {"2": None}})):
        with pytest.raises(FencedError, match="lineage l2"):
            try_all(stream, ROWS)
        stream.abort()
    assert len(rows_of(topics, topic)) == 1


def test_a_unit_slower_than_its_transaction_comes_through_once(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    out = claimed(sink(topic, transaction_timeout=2.0))
    many = [{"id": number, "name": "n"} for number in range(20_000)]
    first = begin_sending(out, many)
    # the clock is the broker's: it ends what is open for two seconds, and looks every ten at the latest
    with pytest.raises(Unreachable, match="brokers rejected task output 0 of batch 0"):
        write_until_refused(first, many[:1])
    first.abort()
    for _ in range(20):
        second = begin(out, 0)
        write(second, many)
        assert not second.sending, "a unit that was slow before sends at its end: what it waits for its rows costs no transaction time"
        write(second, many[:5])
        try:
            finish(second)
            break
        except Unreachable:  # the machine was too slow for that, too
            second.abort()
    assert len(rows_of(topics, topic)) == 20_005


@pytest.mark.long
def test_a_decision_whose_markers_are_gone_is_told(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic = topics.make()
    out = claimed(sink(topic))
    behind = out.behind(2)
    receipts = (run(out, 0, ROWS[:2]),)
    assert len(rows_of(topics, topic)) == 2
    with pytest.raises(StateError, match=r"markers-2 is no commit marker"):
        out.recover(Decided(BatchId("f", "q", "l1", 0, 1), "h", receipts, behind), lineage="l1", before=1)


def test_units_keep_the_contract(topics: Topics, sink: Callable[..., KafkaSink]) -> None:
    topic, ended = topics.make(2), iter([False])  # the contract reads first while a unit is open, and no other has written yet
    check_unit_sink(lambda: sink(topic), lambda: rows_of(topics, topic, ended=next(ended, True)), schema=SCHEMA, rows=ROWS)
