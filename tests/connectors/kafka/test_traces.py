"""The way of a record goes on over topics: what a message was made of, and which messages a record became."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.cli.commands.trace import _followed
from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.kafka.source import KafkaSource
from scribengin.core.errors import Refused, Unreachable
from scribengin.local.prepare import prepare
from scribengin.local.tracing import trace_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.embedded.kafka import KafkaCluster

FEEDS = """\
version: 1
name: feeds
sources:
  orders: {type: kafka, bootstrap: BROKER, topics: [FROM], format: json, start: earliest, schema: "id BIGINT NOT NULL, lines ARRAY<STRING>"}
steps:
  lines: {from: orders, select: {id: id, line: explode(lines)}}
sinks:
  kept: {from: lines, type: kafka, bootstrap: BROKER, topic: TO, format: json, missing_topic: make}
"""
READS = """\
version: 1
name: reads
sources:
  lines:
    type: kafka
    bootstrap: BROKER
    topics: [TO]
    format: json
    start: earliest
    on_error: dead_letter
    schema: "id TINYINT, line STRING"
sinks:
  kept: {from: lines, type: files, path: out, format: json}
"""


def traced(folder: Any, record: str) -> dict[str, Any]:
    return trace_record(prepare(folder.path / "flow.yaml", state=None), record)


def test_a_record_is_found_again_in_the_flow_before_and_in_the_one_behind(folder: Any, cluster: KafkaCluster, topics: Any) -> None:
    begin, between = topics.make(1), topics.make(1)
    topics.write_texts(begin, ['{"id": 1, "lines": ["4", "5"]}', '{"id": 200, "lines": ["6", "7"]}', '{"id": 3, "lines": []}'])
    topics.write_texts(between, ["{}"])  # somebody else's

    def filled(flow: str) -> str:
        return flow.replace("BROKER", f'"{cluster.bootstrap}"').replace("FROM", begin).replace("TO", between)

    folder.flow(filled(FEEDS))
    assert folder.run().state == "finished"
    went = {number: [each["place"] for each in traced(folder, f"orders/{begin}-0@{number}")["went"]] for number in range(3)}
    assert went == {0: [f"{between}-0@1", f"{between}-0@2"], 1: [f"{between}-0@3", f"{between}-0@4"], 2: []}
    assert traced(folder, f"orders/{begin}-0@1")["came"] == [], "it was written by no flow"

    folder.flow(filled(READS))
    assert folder.run().state == "finished"
    came = {number: traced(folder, f"lines/{between}-0@{number}")["came"] for number in range(5)}
    assert came[0] == []
    assert [came[number] for number in (2, 4)] == [
        [{"source": "lines", "flow": "feeds", "record": f"orders/{begin}-0[0:3]+0.1"}],
        [{"source": "lines", "flow": "feeds", "record": f"orders/{begin}-0[0:3]+1.1"}],
    ]
    letter = traced(folder, "kept:0:1")
    assert (len(letter["dead"]), letter["came"]) == (1, came[4]), "a dead letter says which record it was in the flow before"


def test_what_is_gone_or_away_is_no_error(topics: Any, tmp_path: Path) -> None:
    topic = topics.make(1)
    topics.write(topic, range(3))
    options = {"bootstrap": topics.bootstrap, "topics": [topic], "format": "json"}
    source = KafkaSource(ConnectorContext("numbers", tmp_path, options))
    assert source.made_of(f"{topic}-0", 1) is None, "it has no header"
    assert source.made_of(f"{topic}-0", 100) is None, "behind the end"
    with pytest.raises(Unreachable):
        KafkaSource(ConnectorContext("numbers", tmp_path, options | {"bootstrap": "127.0.0.1:9", "timeout": 1.0})).made_of(f"{topic}-0", 1)


class Flows:
    """Answers by (flow, record)."""

    def __init__(self, **ways: Mapping[str, Any]) -> None:
        self.ways = ways

    def trace(self, flow: str, record: str) -> dict[str, Any]:
        if flow not in self.ways:
            raise Refused("it is not yours")
        return {"flow": flow, "record": record, "came": [], "went": [], "notes": [], **self.ways[flow]}


def test_the_way_is_followed_through_all_flows_that_may_be_seen_each_once() -> None:
    def to(*readers: str) -> dict[str, Any]:
        return {"went": [{"readers": [{"flow": flow, "record": f"{flow}/1"} for flow in readers]}]}

    def by(*feeders: str) -> dict[str, Any]:
        return {"came": [{"flow": flow, "record": f"{flow}/1"} for flow in feeders]}

    flows: Any = Flows(a=to("b"), b=by("a") | to("c", "d", "c"), c=by("b") | to("b"), d=by("secret"))
    way = flows.trace("b", "b/1")
    found = _followed(flows, way)
    assert {name: [each["flow"] for each in ways] for name, ways in found.items()} == {"before": ["a"], "after": ["c", "d"]}
    way = flows.trace("d", "d/1")
    assert _followed(flows, way) == {"before": [], "after": []}
    assert way["notes"] == ["secret/1 of flow secret cannot be read: it is not yours"]
