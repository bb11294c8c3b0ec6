"""Units that commit to a topic by themselves, some of them at another worker of the tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.spark import portions
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from tests.beside import helper_beside
from tests.connectors.kafka.test_moves import messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.embedded.kafka import KafkaCluster
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: copied
sources:
  numbers: {type: kafka, bootstrap: BOOTSTRAP, topics: [FROM], format: json, schema: id BIGINT}
steps:
  even: {from: numbers, STEP}
sinks:
  kept: {from: even, type: kafka, bootstrap: BOOTSTRAP, topic: TO, markers: TO-markers, format: json}
"""


@pytest.mark.parametrize("step", ["filter: id % 2 = 0", "filter: id % 2 = 0 AND hash(id) IS NOT NULL"], ids=["vector", "native"])
@pytest.mark.parametrize("broken", [False, True], ids=["helps", "gone"])
def test_each_row_is_in_the_topic_once(
    folder: FlowFolder, spark: SparkSession, cluster: KafkaCluster, topics: Any, monkeypatch: pytest.MonkeyPatch, step: str, broken: bool
) -> None:
    monkeypatch.setattr(portions, "LEAST_BYTES", 1)
    source, sink = topics.make(4), topics.make()
    for partition in range(4):
        topics.write(source, range(partition, 400, 4), partition)
    text = FLOW.replace("BOOTSTRAP", f'"{cluster.bootstrap}"').replace("FROM", source).replace("TO", sink).replace("STEP", step)
    folder.flow(text)
    beside = helper_beside(spark, folder, broken=broken)
    result = folder.run(helpers=beside)
    assert (beside.errors, len(beside.staged)) == ([], 1)
    assert result.balanced
    assert sorted(messages(cluster.bootstrap, sink)) == list(range(0, 400, 2))
    newest = Decisions(StateFolder(folder.path / ".scribengin", "copied").query("kept").decisions).newest()
    assert newest is not None
    assert (newest.behind["kept"]["units"], newest.ran.get("workers")) == (4, None if broken else "2")
