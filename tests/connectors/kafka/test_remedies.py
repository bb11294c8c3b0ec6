"""The reset that problems of topics name: typed as it is printed, the flow writes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.connectors.kafka.processes import scribengin
from tests.connectors.resets import resets_and_runs, stopped_by

if TYPE_CHECKING:
    from scribengin.embedded.kafka import KafkaCluster
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: handed
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: rows, type: kafka, bootstrap: "BOOTSTRAP", topic: TOPIC, format: json, delivery: DELIVERY}}
"""


@pytest.mark.needs("spark-kafka")
@pytest.mark.executes("delivery-changed")
def test_what_was_written_at_least_once_is_written_exactly_once_to_another_topic(
    folder: FlowFolder, cluster: KafkaCluster, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = topics.make(), topics.make()
    flow = FLOW.replace("BOOTSTRAP", cluster.bootstrap)
    folder.flow(flow.replace("TOPIC", first).replace("DELIVERY", "at_least_once")).data("data/a.jsonl", [{"id": 1}])
    ended = scribengin(folder.path, "run", "flow.yaml", "--once")  # Spark's own sink takes jars that the session of the tests has not
    assert ended.returncode == 0, ended.stderr
    folder.flow(flow.replace("TOPIC", first).replace("DELIVERY", "exactly_once")).data("data/b.jsonl", [{"id": 2}])
    remedy = stopped_by(folder, "delivery-changed")
    folder.flow(flow.replace("TOPIC", other).replace("DELIVERY", f"exactly_once, markers: {other}-markers"))
    resets_and_runs(folder, remedy, monkeypatch)
