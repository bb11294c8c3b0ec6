"""Two sites, each under its own `scribengin server dev`, with a topic between them and a network that is cut: real servers and Spark."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from harness.faults.control.wire import ProxyWire
from scribengin.embedded.kafka import KafkaCluster
from scribengin.embedded.server import free_ports
from tests.control.test_watching_up import Bench, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EACH, FIRST, FILES = 100, 2, 40
"""rows of a file, and files before and behind the cut"""
CAPACITY = 800
COLLECT = """\
version: 1
name: collect
sources: {in: {type: files, path: data, format: json, schema: "id BIGINT", max_files: 1, settle: 0s}}
sinks: {out: {from: in, type: kafka, bootstrap: "BROKER", topic: wan, format: json, missing_topic: make, trigger: 500ms}}
"""
STORE = """\
version: 1
name: store
sources:
  in: {type: kafka, bootstrap: "BROKER", topics: [wan], format: json, schema: "id BIGINT", capacity: {rows: CAPACITY}}
sinks: {out: {from: in, type: files, path: out, format: json, trigger: 500ms}}
"""


class Sites:
    """`tokyo` collects, `berlin` stores. What berlin has of the broker, and tokyo of berlin's API, goes through wires that can be cut."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.tokyo, self.berlin = (self._site(folder / name, stack) for name in ("tokyo", "berlin"))
        (inside,) = free_ports(1)
        wan = stack.enter_context(ProxyWire(lambda: inside))
        self.bootstrap = KafkaCluster(folder / "kafka").bootstrap
        (node,) = json.loads((folder / "kafka/cluster.json").read_text())["nodes"]
        properties = {
            "listeners": f"PLAINTEXT://{self.bootstrap},WAN://127.0.0.1:{inside},CONTROLLER://127.0.0.1:{node['controller_port']}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},WAN://127.0.0.1:{wan.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,WAN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        stack.enter_context(KafkaCluster(folder / "kafka", properties=properties))
        for site in (self.tokyo, self.berlin):
            stack.enter_context(site.up())
        berlin_api = int(self.berlin.address.rpartition(":")[2])
        api = stack.enter_context(ProxyWire(lambda: berlin_api))
        self.wires = (wan, api)
        (self.tokyo.folder / "data").mkdir()
        (self.tokyo.folder / "collect.yaml").write_text(COLLECT.replace("BROKER", self.bootstrap))
        (self.berlin.folder / "store.yaml").write_text(STORE.replace("BROKER", f"127.0.0.1:{wan.port}").replace("CAPACITY", str(CAPACITY)))
        alias = f"127.0.0.1:{wan.port}={self.bootstrap}"
        self.tokyo.says("peer", "set", "berlin", f"http://127.0.0.1:{api.port}", "--alias", alias)
        self.berlin.says("peer", "set", "tokyo", self.tokyo.address, "--alias", f"{self.bootstrap}=127.0.0.1:{wan.port}")

    def _site(self, folder: Path, stack: ExitStack) -> Bench:
        folder.mkdir()
        site = Bench(folder)
        (site.folder / "flow.yaml").unlink()
        stack.callback(site.clears)
        return site

    def add(self, files: range) -> None:
        for number in files:
            draft = self.tokyo.folder / "data" / f".{number:02}"
            draft.write_text("".join(f'{{"id": {number * EACH + n}}}\n' for n in range(EACH)))
            draft.rename(draft.with_name(f"{number:02}.jsonl"))

    def stored(self) -> list[int]:
        return sorted(
            json.loads(line)["id"] for path in (self.berlin.folder / "out").glob("part-*") for line in path.read_text().splitlines()
        )

    def sent(self) -> int:
        """Messages on the topic that are committed."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "count", "isolation.level": "read_committed"})
        try:
            consumer.assign([TopicPartition("wan", number, 0) for number in consumer.list_topics("wan", 60).topics["wan"].partitions])
            found, last = 0, time.monotonic()
            while time.monotonic() - last < 5:
                if (message := consumer.poll(1)) is not None and message.error() is None:
                    found, last = found + 1, time.monotonic()
            return found
        finally:
            consumer.close()

    def standing(self) -> Any:
        return self.tokyo.says("status", "collect")

    def acknowledged(self) -> bool:
        """To the end of the way, as far as tokyo knows yet that it goes on in berlin."""
        part = self.standing()["workflow"]
        return part is not None and bool(part["through"].get("in", {}).get("at"))


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    with ExitStack() as stack:
        yield Sites(tmp_path, stack)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_link_that_is_cut_costs_delay_and_neither_records_nor_room(sites: Sites) -> None:
    sites.tokyo.says("apply", "collect.yaml", "--wait=started:4m")
    until(lambda: [row["flows"] for row in sites.berlin.says("peer", "list")], "berlin knows who feeds")
    sites.add(range(FIRST))
    sites.berlin.says("apply", "store.yaml", "--wait", "4m")
    until(lambda: len(sites.stored()) == FIRST * EACH, "the first rows stored")
    until(sites.acknowledged, "acknowledged over both sites")
    assert sites.standing()["workflow"]["flows"] == ["collect", "berlin/store"]

    for wire in sites.wires:
        wire.cut("silent", lambda _port: True)
    sites.add(range(FIRST, FIRST + FILES))

    def held() -> bool:
        reason = sites.standing()["status"]["reason"]
        return bool(reason.startswith("paused: ") and "peer berlin has not answered since " in reason)

    until(held, "the feeder paused, and why")
    until(lambda: sites.tokyo.asks("/v1/flows/collect/metrics")["tiers"][0]["queries"][0]["state"] == "paused", "its Query paused")
    sent = sites.sent()
    assert CAPACITY <= sent - FIRST * EACH < FILES * EACH
    for _ in range(4):
        assert sites.sent() == sent, "paused is paused, however long the link is cut"
    assert len(sites.stored()) == FIRST * EACH

    for wire in sites.wires:
        wire.mend()
    until(lambda: len(sites.stored()) >= (FIRST + FILES) * EACH, "all stored, without a person")
    assert sites.stored() == list(range((FIRST + FILES) * EACH))
    until(lambda: sites.standing()["status"]["state"] == "running" and not sites.standing()["status"]["reason"], "the feeder goes on")
    until(sites.acknowledged, "acknowledged again")
    print(f"sent while the link was cut: {sent - FIRST * EACH} rows of {FILES * EACH}, capacity {CAPACITY}")
