"""Groups whose members are clusters of Kafka, one broker each: one is killed, and started again."""

from __future__ import annotations

import json
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from scribengin.connectors.contract import BatchId, Decided
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, Unreachable
from scribengin.embedded.kafka import KafkaCluster
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import open_sinks, prepare
from scribengin.spark import query
from scribengin.testing.checker import Found, check_records
from scribengin.testing.records import SCHEMA, Records
from tests.connectors.group.test_flows import Flow
from tests.connectors.kafka.processes import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scribengin.local.contract import RunView

_numbers = count()
GROUP = 'groups: {wan: {members: [{at: "NEAR", name: near}, {at: "FAR", name: far, cost: 2}]}}'
HEAD = f"""
version: 1
name: copied
sources: {{numbers: {{type: files, path: in, format: json, settle: 0s, max_files: 1, schema: "{SCHEMA}"}}}}
"""
SINK = HEAD + "sinks: {kept: {from: numbers, type: kafka, topic: TOPIC, format: json, missing_topic: make, timeout: 3s, to: wan}}\n" + GROUP
EDGE = f"""{HEAD}
steps:
  whole: {{from: numbers, filter: seq >= 0}}
  again: {{from: whole, filter: part >= 0}}
sinks: {{kept: {{from: again, type: files, path: out, format: json}}}}
tiers: {{first: {{steps: [whole]}}, second: {{steps: [again]}}}}
edges: {{"whole -> again": {{channel: {{type: kafka, topic: TOPIC, partitions: 1}}, to: wan}}}}
{GROUP.replace(", cost: 2", "")}
"""


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("near")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("far")) as cluster:
        yield cluster


@pytest.fixture
def made(tmp_path: Path, near: KafkaCluster, far: KafkaCluster) -> Iterator[Callable[[str], Flow]]:
    def make(text: str) -> Flow:
        topic = f"flow{next(_numbers)}"
        text = text.replace("NEAR", near.bootstrap).replace("FAR", far.bootstrap).replace("TOPIC", topic)
        return Flow(tmp_path, text.replace("name: copied", f"name: {topic}"), ("near", "far")).write()

    yield make
    for cluster in (near, far):
        if not cluster.brokers_up:
            cluster.restart(1)


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Query that finds nobody tries as often as ever, and waits less in between."""
    monkeypatch.setattr(query, "BACK_OFF_S", (0.0, 0.2, 0.5, 1.0))


def messages(cluster: KafkaCluster, topic: str) -> list[dict[str, Any]]:
    """Those that are committed, in their order."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "t", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer, found = Consumer(settings), []
    if topic not in consumer.list_topics(timeout=60).topics:
        consumer.close()
        return []
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while True:
        message = within(60, lambda: consumer.poll(1.0))
        if message.error() is None:
            found.append(json.loads(message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found


@pytest.mark.long
def test_batches_go_to_another_cluster_while_one_is_down_and_come_back(
    made: Any, near: KafkaCluster, far: KafkaCluster, spark: Any
) -> None:
    flow = made(SINK).add(2)
    topic = flow.text.partition("name: ")[2].partition("\n")[0]
    assert flow.run(spark, once=True).state == "finished"
    near.kill(1)
    flow.add(2)
    result = flow.run(spark, once=True)
    assert result.state == "finished", result.problems
    near.restart(1)
    flow.add(2)
    assert flow.run(spark, once=True).state == "finished"
    assert [member for member, _ in flow.chosen()] == ["near", "near", "far", "far", "near", "near"]
    assert "no broker at" in flow.chosen()[2][1]
    first, second = messages(near, topic), messages(far, topic)
    assert (len(first), len(second)) == (40, 20)
    found = [Found(str(number), row) for number, row in enumerate([*first, *second])]
    findings = check_records(Records("r", 6, 10).keys(), found, ordered=False, ledger_rows=60)
    assert not findings, findings
    audited(flow)


def audited(flow: Flow) -> None:
    audit = audit_flow(prepare(flow.folder / "flow.yaml", state=None))
    assert audit.balanced, [report.violations for report in audit.reports]


@pytest.mark.long
def test_a_batch_that_is_decided_for_a_dead_cluster_waits_and_stands_there_once(
    made: Any, near: KafkaCluster, far: KafkaCluster, spark: Any
) -> None:
    flow = made(SINK).add(2)
    topic = flow.text.partition("name: ")[2].partition("\n")[0]
    gate, stop = flow.folder / "gate", threading.Event()
    seen: list[str] = []

    def killed() -> None:
        near.kill(1)
        gate.touch()

    def waited() -> None:
        assert messages(far, topic) == []
        near.restart(1)

    steps: list[tuple[Callable[[RunView], bool], Callable[[], Any]]] = [
        (lambda _: (flow.folder / "gate.waiting").exists(), killed),
        (lambda view: any("waits for it" in query.message for query in view.queries), waited),
        (lambda view: any(query.batches == 2 for query in view.queries), stop.set),
    ]

    def watch(view: RunView) -> None:
        seen.extend(query.message for query in view.queries if query.message)
        if steps and steps[0][0](view):
            steps.pop(0)[1]()

    faults.arm(f"decide.after@2:wait={gate}")
    try:
        result = flow.run(spark, watch, stop=stop)
    finally:
        faults.arm("")
    assert (result.state, result.balanced, steps) == ("stopped", True, [])
    assert any('batch 1 is decided for member "near" and waits for it' in message for message in seen)
    assert [member for member, _ in flow.chosen()] == ["near", "near"]
    assert sorted((row["part"], row["seq"]) for row in messages(near, topic)) == [(part, seq) for part in range(2) for seq in range(10)]
    assert messages(far, topic) == []
    audited(flow)


@pytest.mark.long
def test_a_sleeping_driver_of_an_older_batch_is_fenced_at_its_member(made: Any, near: KafkaCluster, far: KafkaCluster, spark: Any) -> None:
    """The numbers at a member have gaps: what stands there is told by its marker, not by the number before."""
    flow = made(SINK.replace(", cost: 2", "")).add(5)
    flow.run(spark, once=True)
    assert [member for member, _ in flow.chosen()] == ["near", "far", "near", "far", "near"]
    (tier,) = prepare(flow.folder / "flow.yaml", state=None).tiers
    sink: Any = open_sinks(tier.plan.flow, tier.plan, tier.folder)["kept"]
    record = next((flow.folder / ".scribengin").glob("*/*/kept/decisions/*3.json"))
    batch = json.loads(record.read_text())["body"]["batch"]
    sink.prepare(owner=tier.folder.read_owner(), lineage=batch["lineage"])
    stale = {"member": "near", "behind": {"units": 0, "after": {"0": 2}}}
    with pytest.raises(FencedError, match="batch 4 under Term 1 is the newest there; expected batch 2"):
        sink.publish(Decided(BatchId(**batch), "late", (), stale))
    audited(flow)


@pytest.mark.long
def test_an_edge_over_two_clusters_loses_nothing_when_one_is_down(made: Any, near: KafkaCluster, far: KafkaCluster, spark: Any) -> None:
    flow = made(EDGE).add(2)
    assert flow.run(spark, once=True).state == "finished"
    flow.add(2)
    assert flow.run(spark, once=True, tier="first").state == "finished"
    near.kill(1)
    result = flow.run(spark, once=True, tier="second")
    assert [problem.code for problem in result.problems] == ["group-waits"]
    flow.add(1)
    assert flow.run(spark, once=True, tier="first").state == "finished"
    near.restart(1)
    assert flow.run(spark, once=True).state == "finished"
    assert {member for member, _ in flow.chosen("whole_to_second")} == {"near", "far"}
    assert flow.acknowledged()
    flow.check("out")


@pytest.mark.long
def test_no_broker_of_any_member_is_told_with_each_one_s_address(made: Any, near: KafkaCluster, far: KafkaCluster) -> None:
    flow = made(SINK)
    (tier,) = prepare(flow.folder / "flow.yaml", state=None).tiers
    sink: Any = open_sinks(tier.plan.flow, tier.plan, tier.folder)["kept"]
    near.kill(1)
    far.kill(1)
    sink.prepare(owner="me", lineage="l1")
    with pytest.raises(Unreachable) as told:
        sink.behind(0)
    assert near.bootstrap in told.value.message
    assert far.bootstrap in told.value.message


def test_a_sink_that_leaves_its_group_of_clusters_is_refused_with_what_to_do(made: Any, near: KafkaCluster, spark: Any) -> None:
    flow = made(SINK).add(1)
    assert flow.run(spark, once=True).state == "finished"
    plain = flow.text.replace("to: wan", f'bootstrap: "{near.bootstrap}"')
    (flow.folder / "flow.yaml").write_text(plain)
    flow.add(1)
    with pytest.raises(Refused) as refused:
        flow.run(spark, once=True)
    assert refused.value.code == "group-changed"
    assert "restore `to` of the sink" in (refused.value.remedy or "")
