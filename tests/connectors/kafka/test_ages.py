"""How old waiting records are: from the looks at a log's end, and at the start from what the brokers say."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from scribengin.connectors.kafka.reader import POINTS, Ages
from tests.connectors.kafka.processes import within
from tests.looking import calls_in

P = ("t", 0)


def test_a_record_is_as_old_as_the_look_that_first_saw_it_or_a_share_of_the_time_before() -> None:
    ages = Ages()
    ages.note(0.0, {P: 100}, {P: 100})
    ages.note(10.0, {P: 100}, {P: 100})
    ages.note(11.0, {P: 100}, {P: 100})
    # ten came since the last look, one in a tenth of a second
    ages.note(12.0, {P: 110}, {P: 100})
    ages.note(14.0, {P: 130}, {P: 100})
    assert ages.age_s(P, 100, 15.0) == pytest.approx(3.9)
    assert ages.age_s(P, 109, 15.0) == pytest.approx(3.0)
    assert ages.age_s(P, 119, 15.0) == pytest.approx(2.0)
    assert ages.age_s(P, 130, 15.0) is None
    # the time in which nothing came is no age: it is a look that ends it
    ages.note(100.0, {P: 130}, {P: 130})
    ages.note(500.0, {P: 130}, {P: 130})
    ages.note(501.0, {P: 131}, {P: 130})
    assert ages.age_s(P, 130, 501.0) == 0.0


def test_what_was_there_at_the_first_look_is_at_least_as_old_as_that() -> None:
    ages = Ages()
    ages.note(5.0, {P: 10}, {P: 0})
    ages.note(6.0, {P: 10}, {P: 0})
    ages.note(8.0, {P: 10}, {P: 0})
    assert ages.age_s(P, 0, 9.0) == 4.0


def test_a_log_that_is_another_begins_anew() -> None:
    ages = Ages()
    ages.note(5.0, {P: 1000}, {P: 0})
    ages.note(6.0, {P: 10}, {P: 0})
    assert ages.age_s(P, 0, 9.0) == 3.0
    ages.forget(P)
    assert not ages.knows(P)


def test_a_long_lag_is_kept_in_few_points_that_stay_near_the_truth() -> None:
    ages = Ages()
    came_s = [0.0]
    for look in range(1, 20_001):
        # slower and faster by turns
        came_s += [look * 0.1] * (1 + look // 1000 % 3)
        ages.note(look * 0.1, {P: len(came_s)}, {P: 1})
    assert len(ages._points[P]) <= POINTS
    for offset in range(1, len(came_s), 997):
        age_s = ages.age_s(P, offset, 2000.0)
        # as far from it as two points can be at most
        assert age_s == pytest.approx(2000.0 - came_s[offset], abs=2 * 2000 / POINTS)
    # what is handed out is forgotten
    ages.note(2000.1, {P: len(came_s)}, {P: len(came_s)})
    assert len(ages._points[P]) == 1


@pytest.mark.parametrize("age_s", [3.0, 90.0, 7200.0, 6 * 86400.0])
def test_brokers_are_asked_few_questions_for_the_age_of_what_waited_before_the_start(age_s: float) -> None:
    now_ms = 1_800_000_000_000
    came_ms = [now_ms - int(age_s * 1000 * (1.5 - index / 100_000)) for index in range(150_000)]
    waiting = next(index for index, moment in enumerate(came_ms) if moment >= now_ms - age_s * 1000)
    asked = []

    def ask(times: Any) -> Any:
        asked.append(times)
        found = {}
        for partition, time_ms in times.items():
            offset = next((index for index, moment in enumerate(came_ms) if moment >= time_ms), None)
            if offset is not None:
                found[partition] = (offset, came_ms[offset])
        return found

    ages = Ages()
    ages.learn(1000.0, now_ms, {P: waiting}, {P: len(came_ms)}, ask)
    ages.note(1000.0, {P: len(came_ms)}, {P: waiting})
    assert ages.age_s(P, waiting, 1000.0) == pytest.approx(age_s, rel=0.1, abs=0.5)
    assert len(asked) <= 16
    ages.learn(1001.0, now_ms, {P: waiting}, {P: len(came_ms)}, ask)
    assert len(asked) <= 16, "what is known is not asked again"
    # and what comes behind it is known by then
    assert ages.age_s(P, waiting + 40_000, 1000.0) == pytest.approx(age_s * 0.6, rel=0.25, abs=0.5)


def test_what_comes_while_brokers_are_asked_is_no_other_log() -> None:
    ages = Ages()
    ages.learn(1000.0, 1_000_000, {P: 5}, {P: 10}, lambda times: {P: (3, 400_000) if times[P] < 500_000 else (20, 999_500)})
    ages.note(1000.0, {P: 10}, {P: 5})
    # known to the brokers as 500 s old at least
    assert ages.age_s(P, 5, 1000.0) > 300.0


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_waits_also_right_after_a_start(topics: Any, open_source: Any) -> None:
    name = topics.make(2)
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    now_ms = int(time.time() * 1000)
    for index in range(1000):
        producer.produce(name, json.dumps({"id": index}), partition=0, timestamp=now_ms - 3_600_000 + index * 3600)
    producer.produce(name, json.dumps({"id": 1000}), partition=1, timestamp=now_ms - 60_000)
    assert producer.flush(60) == 0

    reading = open_source(name, max_rows=10)
    reading.take(final=False)
    # of partition 0 some ten records are handed out; partition 1 is younger
    assert reading.reader.backlog().oldest_s == pytest.approx(3564, rel=0.1)
    while reading.reader.backlog().rows:
        reading.take(final=False, max_rows=500)
    assert reading.reader.backlog().oldest_s is None

    # one that is looked at all the time takes the age from its looks, not from what the records say
    waiting = open_source(name, min_rows=5000, max_delay=3600.0)
    waiting.reader.restore([open_source(name).take()])
    assert waiting.take(final=False) == []
    assert waiting.reader.backlog().oldest_s is None
    begun = time.monotonic()
    producer.produce(name, json.dumps({"id": 1001}), partition=0, timestamp=now_ms - 3_600_000)
    assert producer.flush(60) == 0
    assert within(120, lambda: waiting.take(final=False) or waiting.reader.backlog().oldest_s) <= time.monotonic() - begun + 1.0
    oldest_s = waiting.reader.backlog().oldest_s
    assert within(120, lambda: (now := waiting.reader.backlog().oldest_s) > oldest_s + 0.5 and now) < 600


def test_an_idle_look_costs_little_over_many_partitions(topics: Any, open_source: Any) -> None:
    name = topics.make(50)
    for partition in range(50):
        topics.write(name, range(2), partition)
    reading = open_source(name, min_rows=5000, max_delay=3600.0)
    reading.take(final=False)
    ages = reading.reader._ages

    def look() -> None:
        ages.note(time.monotonic(), reading.reader._last, reading.reader._next)
        reading.reader.backlog()

    assert calls_in(look) < 50 * 50, "a few calls a partition, and no question to brokers for each"
