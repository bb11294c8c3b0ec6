"""The Kafka source against a real broker: what is read, from where, and what it says when records are not in the log any more."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from scribengin.connectors.kafka.options import SOURCE
from scribengin.core.errors import SourceError, Unreachable
from scribengin.testing.conformance_sources import Bench, check_changing_source
from tests.connectors.kafka.processes import within

if TYPE_CHECKING:
    from scribengin.connectors.contract import SourceStream
    from scribengin.embedded.kafka import KafkaCluster


def test_each_partition_is_read_once_in_its_order_and_again_from_its_record(topics: Any, open_source: Any) -> None:
    name = topics.make(2)
    topics.write(name, range(10), 0)
    topics.write(name, range(10, 15), 1)
    reading = open_source(name)
    first = reading.take(final=False)
    assert reading.ids(first) == list(range(15))
    assert reading.take(final=False) == []
    topics.write(name, range(15, 18), 1)
    assert (reading.reader.backlog().rows, reading.reader.backlog().more) == (0, True)
    second = reading.take(final=False)
    assert reading.ids(second) == [15, 16, 17]
    assert reading.ids(first) == list(range(15))

    again = open_source(name)
    again.reader.restore([first])
    assert again.ids(again.take()) == [15, 16, 17]


def test_it_keeps_the_contract_while_its_topic_grows_is_widened_and_cut(topics: Any, open_source: Any) -> None:
    name, written = topics.make(), itertools.count()
    options = {"bootstrap": topics.bootstrap, "topics": (name,), "format": "json"}

    def add(rows: int, partition: int = 0) -> None:
        topics.write(name, itertools.islice(written, rows), partition)

    def add_part(rows: int) -> None:
        topics.widen(name, 2)
        add(rows, 1)

    check_changing_source(
        Bench(lambda: open_source(name).source, add, SOURCE, options, add_part, change=lambda: topics.forget(name, 0, before=3))
    )


def test_once_ends_at_what_was_there_when_it_began(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(10))
    reading = open_source(name, max_rows=4)
    found = reading.ids(reading.take())
    topics.write(name, range(10, 20))
    while streams := reading.take():
        found += reading.ids(streams)
    assert found == list(range(10))
    assert (reading.reader.backlog().rows, reading.reader.backlog().more) == (0, False)


def test_a_batch_takes_what_its_limit_says_and_a_task_what_split_says(topics: Any, open_source: Any) -> None:
    name = topics.make(2)
    topics.write(name, range(900), 0)
    topics.write(name, range(900, 1000), 1)
    reading = open_source(name, max_rows=100, split=40)
    first = reading.take()
    # by what waits in each, and no partition goes without
    assert [stream.label for stream in first] == [f"{name}-0[0:30]", f"{name}-0[30:60]", f"{name}-0[60:90]", f"{name}-1[0:10]"]
    assert [stream.rows for stream in reading.take(max_rows=10)] == [9, 1]
    taken = first + [stream for _ in range(20) for stream in reading.take()]
    assert reading.reader.backlog().rows == 0
    assert len(set(reading.ids(taken))) == 990


def test_a_batch_waits_for_enough_records_but_not_for_ever(topics: Any, open_source: Any) -> None:
    name = topics.make()
    reading = open_source(name, min_rows=10, max_delay=1.0)
    topics.write(name, range(4))
    begun = time.monotonic()
    streams = within(120, lambda: reading.take(final=False))
    assert time.monotonic() - begun >= 1.0
    assert reading.ids(streams) == [0, 1, 2, 3]
    topics.write(name, range(10))
    assert reading.ids(reading.take(final=False)) == list(range(10))


def test_readers_of_committed_records_wait_for_transactions_and_leave_out_aborted_ones(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, [0])
    aborted = topics.transaction(name, [100, 101], by="aborted")
    aborted.abort_transaction(60)
    committed = topics.transaction(name, [1, 2], by="committed")
    reading, eager = open_source(name), open_source(name, isolation="read_uncommitted")
    first = reading.take(final=False)
    assert reading.ids(first) == [0]
    assert eager.ids(eager.take()) == [0, 100, 101, 1, 2]
    committed.commit_transaction(60)
    # a commit is answered before its mark stands in the partitions
    assert within(120, lambda: reading.ids(reading.take(final=False))) == [1, 2]
    assert reading.take(final=False) == []
    topics.write(name, [3])
    # the marks that end transactions have offsets, and no reader sees them
    assert reading.ids(reading.take(final=False)) == [3]


def test_columns_come_from_key_headers_and_coordinates(topics: Any, open_source: Any) -> None:
    name = topics.make(2)
    before = dt.datetime.now(dt.UTC)
    topics.write(name, [7, 8], 1)
    schema = "id BIGINT, k STRING, at TIMESTAMP, p INT, o BIGINT, t STRING, h MAP<STRING, BINARY>"
    parts = {"k": "key", "at": "timestamp", "p": "partition", "o": "offset", "t": "topic", "h": "headers"}
    reading = open_source(name, schema=schema, metadata=parts)
    rows = reading.rows(reading.take())
    assert [{**row, "at": None} for row in rows] == [
        {"id": id_, "k": f"k{id_}", "at": None, "p": 1, "o": offset, "t": name, "h": {"n": str(id_).encode()}}
        for offset, id_ in enumerate((7, 8))
    ]
    assert all(before - dt.timedelta(seconds=60) < row["at"] < before + dt.timedelta(minutes=5) for row in rows)


def test_a_flow_begins_where_it_says_and_keeps_the_place_from_the_first_look_on(topics: Any, open_source: Any) -> None:
    name = topics.make(2)
    topics.write(name, [0, 1])
    time.sleep(0.05)  # a broker's time has milliseconds: the records behind must have another one
    moment = dt.datetime.now(dt.UTC).isoformat()
    time.sleep(0.05)
    topics.write(name, [2, 3])
    topics.write(name, [4], 1)

    at_time = open_source(name, start=moment)
    assert at_time.ids(at_time.take()) == [2, 3, 4]
    given = open_source(name, offsets={f"{name}-0": "3"})
    assert given.ids(given.take()) == [3, 4]
    latest = open_source(name, start="latest")
    pinned = latest.take()
    assert latest.ids(pinned) == []
    topics.write(name, [5], 1)
    # a later start asks the log, not the cluster, where it was
    again = open_source(name, start="latest")
    again.reader.restore([pinned])
    assert again.ids(again.take()) == [5]


def test_new_partitions_and_new_topics_of_a_pattern_are_taken_up_from_their_beginning(topics: Any, open_source: Any) -> None:
    name = topics.make(name="pattern-a")
    topics.write(name, [0])
    reading = open_source(pattern="pattern-.*", topics=(), start="latest")
    first = reading.take(final=False)
    assert reading.ids(first) == []
    topics.widen(name, 2)
    topics.write(name, [1], 1)
    topics.make(name="pattern-b")
    topics.write("pattern-b", [2])
    found: list[int] = []
    within(60, lambda: found.extend(reading.ids(reading.take(final=False))) or len(found) >= 2)
    assert sorted(found) == [1, 2]
    assert any("pattern-b" in notice for notice in reading.reader.notices())


def test_a_pattern_that_matches_nothing_says_so_once_and_misses_no_record_of_what_comes(topics: Any, open_source: Any) -> None:
    reading = open_source(pattern="lonely-.*", topics=(), start="latest")
    assert reading.ids(reading.take(final=False)) == []
    told = reading.reader.notices()
    assert [notice for notice in told if "no topic matches lonely-.* yet" in notice] == told != []
    reading.reader.find_partitions()
    assert reading.reader.notices() == []
    topics.make(name="lonely-a")
    topics.write("lonely-a", [7])
    found: list[int] = []
    within(60, lambda: found.extend(reading.ids(reading.take(final=False))) or found)
    assert found == [7]


def test_some_partitions_alone_are_read_where_the_flow_says_so(topics: Any, open_source: Any) -> None:
    name = topics.make(3)
    for partition in range(3):
        topics.write(name, [partition], partition)
    reading = open_source(topics=(), assign={name: "0, 2"})
    assert reading.ids(reading.take()) == [0, 2]
    with pytest.raises(SourceError, match="has 3 partitions, but `assign` names 3"):
        open_source(topics=(), assign={name: "3"}).take()


def test_records_that_retention_took_stop_the_flow_or_are_told(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(10))
    reading = open_source(name, max_rows=4)
    first = reading.take(final=False)
    topics.forget(name, 0, 6)
    with pytest.raises(SourceError, match=r"offsets 4 to 5 .* are not in the log any more") as caught:
        reading.take(final=False)
    assert (caught.value.code, "on_data_loss: continue" in caught.value.remedy) == ("data-loss", True)
    with pytest.raises(SourceError, match="are not in the log any more"):
        reading.ids(first)

    going_on = open_source(name, on_data_loss="continue")
    going_on.reader.restore([first])
    assert going_on.ids(going_on.take()) == [6, 7, 8, 9]
    assert any("offsets 4 to 5" in notice for notice in going_on.reader.notices())


def test_a_topic_made_anew_stops_the_flow_even_where_it_is_longer_than_before(topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(3))
    reading = open_source(name)
    first = reading.take()
    topics.make_anew(name)
    topics.write(name, range(50, 60))
    again = open_source(name)
    again.reader.restore([first])
    with pytest.raises(SourceError, match="deleted and created again") as caught:
        again.take()
    assert caught.value.code == "data-loss"
    going_on = open_source(name, on_data_loss="continue")
    going_on.reader.restore([first])
    second = going_on.take()
    assert going_on.ids(second) == list(range(50, 60))
    # the topic of today counts, though the one of yesterday was longer
    topics.write(name, range(60, 62))
    last = open_source(name)
    last.reader.restore([replace(first, end=500), second])
    assert last.ids(last.take()) == [60, 61]


def test_a_topic_that_is_deleted_between_two_looks_is_told_as_a_loss(topics: Any, open_source: Any) -> None:
    gone, stays = topics.make(), topics.make()
    topics.write(gone, range(3))
    topics.write(stays, range(10, 12))
    stopping, going_on = open_source(gone, stays), open_source(gone, stays, on_data_loss="continue")
    assert sorted(stopping.ids(stopping.take(final=False))) == sorted(going_on.ids(going_on.take(final=False))) == [0, 1, 2, 10, 11]
    topics.delete(gone)
    topics.write(stays, range(12, 14))
    # the topics themselves are looked at every 5 s only: these come in between
    with pytest.raises(SourceError, match=f"topic {gone} does not exist any more") as caught:
        within(60, lambda: stopping.take(final=False) == "never")
    assert caught.value.code == "data-loss"
    found: list[int] = []
    within(60, lambda: found.extend(going_on.ids(going_on.take(final=False))) or found == [12, 13])
    assert any(f"topic {gone} does not exist any more" in notice for notice in going_on.reader.notices())


def replace(streams: list[SourceStream], *, end: int) -> list[SourceStream]:
    return [dataclasses.replace(stream, place={**stream.place, "end": end}) for stream in streams]


def test_the_group_tells_lag_tools_how_far_the_flow_is(cluster: KafkaCluster, topics: Any, open_source: Any) -> None:
    name = topics.make()
    topics.write(name, range(5))
    reading = open_source(name)
    reading.reader.committed(reading.take(), query="flow.query")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "scribengin.flow.query"})
    try:
        assert within(120, lambda: consumer.committed([TopicPartition(name, 0)], timeout=60)[0].offset == 5)
    finally:
        consumer.close()


def test_a_broker_that_is_not_there_is_told_in_time_with_its_address(open_source: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=r"no broker at 127\.0\.0\.1:9 answers") as caught:
        open_source("any", bootstrap="127.0.0.1:9", timeout=3.0).take()
    assert time.monotonic() - begun < 60.0
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": ("nowhere",)}, "there is no topic nowhere"),
        ({"topics": (), "pattern": None}, "none of them"),
        ({"topics": ("a",), "pattern": "b"}, "topics and pattern"),
        ({"topics": ("a",), "start": "yesterday"}, "not a valid start position"),
        ({"topics": ("a",), "metadata": {"k": "keys"}}, 'metadata has "keys", which is not known'),
    ],
)
def test_what_cannot_be_read_is_told(open_source: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(SourceError, match=told):
        open_source(**options).take()
