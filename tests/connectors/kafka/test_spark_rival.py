"""Spark's own Kafka sink, which is at least once: the checker that the other sinks must pass finds what it doubles."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from harness.kafka_protocol import read_topic
from scribengin.testing.checker import check_records
from scribengin.testing.records import SCHEMA, Records
from tests.connectors.kafka.processes import said, started, within

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.kafka.guarded import Guarded

QUERY = f"""
import sys
from pathlib import Path

from scribengin.embedded.jars import fetch
from scribengin.spark.session import start_session

folder, bootstrap, topic, key = Path(sys.argv[1]), *sys.argv[2:]
jars = ",".join(str(path) for path in fetch("spark-kafka"))
spark = start_session("rival", master="local[2]", memory="1g", conf={{"spark.jars": jars}}, folder=folder / "spark")
rows = spark.readStream.schema({SCHEMA!r}).json(str(folder / "in"))
query = (
    rows.selectExpr(key, "to_json(struct(*), map('ignoreNullFields', 'false')) AS value")
    .writeStream.format("kafka")
    .options(**{{"kafka.bootstrap.servers": bootstrap, "topic": topic, "checkpointLocation": str(folder / "checkpoint")}})
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
"""
KEY = "CAST(part AS STRING) AS key"
SLEEPING_KEY = "CAST(IF(part = 1, reflect('java.lang.Thread', 'sleep', 600000L), part) AS STRING) AS key"
"""the rows of one task are through when those of the other are still on the way"""


@pytest.mark.long
def test_the_checker_finds_what_sparks_own_sink_doubles_when_it_is_killed(guarded: Guarded, tmp_path: Path) -> None:
    records, topic = Records("rival", 2, 50), guarded.topics.make()
    records.write(tmp_path / "in")
    query = (sys.executable, "-c", QUERY, str(tmp_path), guarded.bootstrap, topic)
    with started(tmp_path, *query, SLEEPING_KEY) as killed:
        within(180, lambda: guarded.end(topic) >= records.rows or killed.poll() is not None)
        assert killed.poll() is None, said(tmp_path)
    assert not list((tmp_path / "checkpoint/commits").glob("[0-9]*"))
    with started(tmp_path, *query, KEY) as again:
        assert again.wait(180) == 0, said(tmp_path)
    torn: list[str] = []
    findings = check_records(records.keys(), read_topic(guarded.bootstrap, topic, torn), ordered=False)
    assert not torn
    assert findings.kinds() == {"doubled": records.rows}
