"""What the Kafka benchmarks call a right output: figures of a contender that loses, doubles or changes rows must not count."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
ROWS = 200


@pytest.fixture
def kafka_topics(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import kafka_topics

    yield kafka_topics
    for name in ("kafka_topics", "kafka_rows"):
        del sys.modules[name]


@pytest.fixture
def output(kafka_topics: Any, cluster: Any, topics: Any) -> Any:
    """Makes a topic of these rows; (the benchmarks' view of the broker, the topic's name)"""

    def made(rows: Iterable[dict[str, Any]]) -> tuple[Any, str]:
        name = topics.make(kafka_topics.PARTITIONS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for row in rows:
            producer.produce(name, orjson.dumps(row), partition=row["id"] % kafka_topics.PARTITIONS)
        assert producer.flush(60) == 0
        return kafka_topics.Topics(cluster.bootstrap), name

    return made


def right_rows() -> list[dict[str, Any]]:
    import kafka_rows

    rows = [kafka_rows.banded(orjson.loads(kafka_rows.encode_row(number))) for number in range(ROWS)]
    return [row for row in rows if row is not None]


def test_rows_that_are_all_there_once_are_right(output: Any) -> None:
    topics, name = output(right_rows())
    topics.check(name, ROWS, banded=True)
    assert topics.committed(name) == len(right_rows())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda rows: rows[1:], "1 rows are missing", id="one lost"),
        pytest.param(lambda rows: [*rows, rows[0]], "is there twice", id="one doubled"),
        pytest.param(lambda rows: [*rows[1:], rows[0] | {"band": "odd"}], "and must be", id="one changed"),
        pytest.param(lambda rows: [*rows, rows[0] | {"id": 0}], "must not be there", id="one not filtered"),
        pytest.param(lambda rows: [*rows, rows[0] | {"id": ROWS}], "must not be there", id="one invented"),
    ],
)
def test_an_output_with_one_wrong_row_is_told(output: Any, kafka_topics: Any, spoil: Any, said: str) -> None:
    topics, name = output(spoil(right_rows()))
    with pytest.raises(kafka_topics.WrongOutputError, match=said):
        topics.check(name, ROWS, banded=True)


def test_rows_of_an_open_transaction_are_neither_committed_nor_right(output: Any, topics: Any) -> None:
    watched, name = output(right_rows())
    committed = watched.committed(name)
    producer = topics.transaction(name, range(10), by="open")
    try:
        assert watched.committed(name) == committed
        watched.check(name, ROWS, banded=True)
    finally:
        producer.abort_transaction(60)


def test_every_record_of_the_benchmarks_has_250_bytes(kafka_topics: Any) -> None:
    import kafka_rows

    numbers = (0, 7, 49_999, 1_000_000, 8_000_000)
    assert {len(kafka_rows.encode_row(number, sent)) for number in numbers for sent in (0, 1_795_301_825_013_000_000)} == {250}
