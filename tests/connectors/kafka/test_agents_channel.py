"""A channel of agents in topics of a real broker."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.errors import SourceError, Unreachable
from tests.connectors.agents.promises import PROMISES
from tests.connectors.agents.sending import AgentsPlace, ids, numbered, take

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_numbers = count()


@pytest.fixture
def place(topics: Any, tmp_path: Path) -> Iterator[AgentsPlace]:
    channel = {"topic": f"agents-{next(_numbers)}", "bootstrap": topics.bootstrap, "partitions": 2}
    made = AgentsPlace(tmp_path, {"input": "tail", "path": ("/log",), "format": "json", "channel": channel, "timeout": 30.0})
    yield made
    made.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_channel_in_kafka_promises(promise: Any, place: AgentsPlace) -> None:
    promise(place)


def test_a_message_that_is_gone_before_it_was_read_stops_the_reader(place: AgentsPlace, topics: Any) -> None:
    place.writer().append([numbered(0, 3)])
    source = place.source()
    streams = take(source.reader())
    topic = place.options["channel"]["topic"]
    for partition in range(2):
        topics.forget(topic, partition, before=-1)
    with pytest.raises(SourceError, match="not in the log any more"):
        ids(source, streams)


def test_a_channel_without_brokers_says_so(tmp_path: Path) -> None:
    channel = {"topic": "t", "bootstrap": "127.0.0.1:1"}
    options = {"input": "tail", "path": ("/log",), "format": "json", "channel": channel, "timeout": 0.5}
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        AgentsPlace(tmp_path, options).writer()
