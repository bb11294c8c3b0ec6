"""A sink's topic can be looked at without being made or written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors import catalog
from scribengin.connectors.abilities import checks_place
from scribengin.connectors.contract import ConnectorContext
from scribengin.core.errors import SinkError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.kafka.conftest import Topics


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_missing_topic_is_told_and_one_that_a_run_makes_is_not_made(topics: Topics, tmp_path: Path, delivery: str) -> None:
    def look(topic: str, **more: Any) -> None:
        given = {"bootstrap": topics.bootstrap, "topic": topic, "format": "json"} | more
        options = catalog.sink_types()["kafka"].filled(given)
        sink = catalog.open_sink("kafka", ConnectorContext("kept", tmp_path, options, delivery=delivery))
        assert checks_place(sink)
        sink.check_place()

    with pytest.raises(SinkError, match="there is no topic"):
        look("is-not-there")
    look("is-not-there", missing_topic="make", partitions=1)
    look("of-{country}")
    look(topics.make(name=f"is-there-{delivery}"))
    assert "is-not-there" not in topics.admin.list_topics(timeout=60).topics
