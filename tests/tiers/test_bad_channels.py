"""What may happen to a channel between two tiers: it is told, with what to do, and no record is lost without a word."""

from __future__ import annotations

import base64
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource

from scribengin.formats.contract import RecordPlace
from scribengin.formats.pack_files import PackFileEncoder, pack_frames
from scribengin.formats.packs import PackMaker, read_pack
from scribengin.local.contract import RunSettings
from scribengin.local.inspect import audit_flow
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow
from scribengin.state.dead import read_letters

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.kafka import KafkaCluster
    from scribengin.local.contract import RunResult, RunView
    from tests.conftest import FlowFolder

HANDED = "handed/first_to_back"
pytestmark = pytest.mark.timeout(900)

FLOW = """
version: 1
name: NAME
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, n INT"}
steps:
  first: {from: rows, sql: "SELECT COLUMNS FROM rows"}
  second: {from: first, python: "steps:same"}
sinks:
  kept: {from: second, type: files, path: out/kept, format: json}
tiers: {front: {steps: [first]}, back: {steps: [second, kept]}}
edges:
  "first -> second": {channel: CHANNEL, pack: {rows: 4}MORE}
"""


def given(folder: FlowFolder, *, columns: str = "id, n", channel: str = "{path: handed}", more: str = "", name: str = "handed") -> None:
    folder.flow(FLOW.replace("NAME", name).replace("COLUMNS", columns).replace("CHANNEL", channel).replace("MORE", more))
    folder.steps("def same(row):\n    return row\n")


def data(folder: FlowFolder, name: str, ids: range) -> None:
    folder.data(f"data/{name}.jsonl", [{"id": id_, "n": id_ % 7} for id_ in ids])


def packs(folder: FlowFolder) -> list[Path]:
    return sorted((folder.path / HANDED).glob("part-*.packs"))


def ids(folder: FlowFolder) -> list[int]:
    return sorted(row["id"] for row in folder.read("out/kept"))


def letters(folder: FlowFolder) -> list[tuple[str, str, str]]:
    tiers = prepare(folder.path / "flow.yaml", state=None).tiers
    return [(each.step, each.reason, each.message) for tier in tiers for query in tier.folder.queries() for each in read_letters(query)]


def violations(folder: FlowFolder) -> list[str]:
    return [text for report in audit_flow(prepare(folder.path / "flow.yaml", state=None)).reports for text in report.violations]


def passed(folder: FlowFolder, tier: str) -> RunResult:
    result = folder.run(tier=tier)
    assert (result.state, result.violations) == ("finished", ()), result.problems
    return result


def key(number: int) -> str:
    return f"k{number} {base64.b64encode(bytes([number]) * 32).decode()}\n"


def sealed_with_a_key_that_is_gone(folder: FlowFolder) -> Path:
    """The front tier has handed over ten rows under the key 1; the keyring, which is returned, has the key 2 by now."""
    given(folder, more=", encryption: {keyring: channel.keys}")
    ring = folder.path / "channel.keys"
    ring.write_text(key(1))
    ring.chmod(0o600)
    data(folder, "a", range(10))
    passed(folder, "front")
    ring.write_text(key(2))
    return ring


def test_a_tier_whose_key_is_gone_waits_for_it_and_goes_on(folder: FlowFolder) -> None:
    ring = sealed_with_a_key_that_is_gone(folder)
    settings = RunSettings(tier="back")
    told: list[str] = []

    def watch(view: RunView) -> None:
        for query in view.queries:
            if query.state == "recovering":
                told.append(query.message)
                ring.write_text(key(1) + key(2))
            if query.rows_out == 10:
                settings.stop.set()

    result = run_flow(folder.path / "flow.yaml", settings, watch, spark=folder.spark)
    assert result.state == "stopped"
    assert "has no key k1; it has k2" in told[0]
    assert ids(folder) == list(range(10))
    assert letters(folder) == []
    assert violations(folder) == []


def test_a_run_that_is_to_end_tells_which_key_is_missing_and_loses_nothing(folder: FlowFolder) -> None:
    ring = sealed_with_a_key_that_is_gone(folder)
    result = folder.run(tier="back")
    (problem,) = [problem for problem in result.problems if problem.severity == "error"]
    assert (result.state, problem.code) == ("failed", "key-missing")
    assert "put the key k1 back" in (problem.remedy or "")
    ring.write_text(key(1))
    passed(folder, "back")
    assert ids(folder) == list(range(10))


def test_a_truncated_and_a_foreign_record_in_a_folder_become_dead_letters(folder: FlowFolder) -> None:
    given(folder)
    data(folder, "a", range(10))
    passed(folder, "front")
    (whole,) = packs(folder)
    (folder.path / HANDED / "part-foreign.packs").write_bytes(b"no pack at all, and longer than a frame's head")
    with whole.open("rb") as file:
        first = next(pack_frames(file, 0, whole.stat().st_size))
    (folder.path / HANDED / "part-short.packs").write_bytes(len(first.value).to_bytes(4, "little") + first.value[:-5])
    with (folder.path / HANDED / "part-other.packs").open("wb") as out:
        PackFileEncoder(out).write(b"{}" * 40)
    passed(folder, "back")
    assert ids(folder) == list(range(10))
    assert sorted(letter[:2] for letter in letters(folder)) == [("first", "damaged"), ("first", "foreign"), ("first", "truncated")]


def test_a_file_of_a_channel_that_is_deleted_before_it_was_read_stops_the_reader_until_it_is_back(folder: FlowFolder) -> None:
    given(folder)
    data(folder, "a", range(10))
    passed(folder, "front")
    data(folder, "b", range(10, 20))
    passed(folder, "front")
    _, second = packs(folder)
    kept = second.read_bytes()
    second.unlink()
    result = folder.run(tier="back")
    (problem,) = [problem for problem in result.problems if problem.severity == "error"]
    assert result.state == "failed"
    assert f"{second} is gone: 10 rows were handed over and not read yet" in problem.message
    assert "restore it" in (problem.remedy or "")
    assert any("is missing: 10 rows" in text for text in violations(folder))
    second.write_bytes(kept)
    passed(folder, "back")
    assert ids(folder) == list(range(20))
    assert violations(folder) == []


@pytest.mark.parametrize(
    ("columns", "found"),
    [("id, n, id + 1 AS more", {"n": 1, "more": None}), ("id, CAST(n AS BIGINT) AS n", {"n": 1}), ("id", {})],
    ids=["a further one", "a wider type", "one less"],
)
def test_packs_under_way_go_on_when_the_columns_grow(folder: FlowFolder, columns: str, found: dict[str, Any]) -> None:
    given(folder)
    data(folder, "a", range(10))
    passed(folder, "front")
    given(folder, columns=columns)
    data(folder, "b", range(10, 20))
    passed(folder, "front")
    passed(folder, "back")
    assert ids(folder) == list(range(20))
    assert [row for row in folder.read("out/kept") if row["id"] == 1] == [{"id": 1, **found}]
    assert letters(folder) == []
    assert violations(folder) == []


def test_packs_under_way_whose_column_has_another_type_now_are_dead_letters_never_null(folder: FlowFolder) -> None:
    given(folder)
    data(folder, "a", range(10))
    passed(folder, "front")
    given(folder, columns="id, CAST(n AS STRING) AS n")
    data(folder, "b", range(10, 20))
    passed(folder, "front")
    passed(folder, "back")
    assert ids(folder) == list(range(10, 20))
    assert letters(folder) == [("first", "type", 'field "n" is INT in the pack; asked is STRING')] * 10
    assert violations(folder) == []


@pytest.mark.parametrize("years", [-40, 40])
def test_a_host_whose_clock_is_wrong_loses_nothing(folder: FlowFolder, years: int) -> None:
    given(folder)
    data(folder, "a", range(10))
    passed(folder, "front")
    (path,) = packs(folder)
    moment = int(time.time() + years * 365.25 * 86_400)
    rewrite(path, moment * 1000)
    os.utime(path, (moment, moment))
    passed(folder, "back")
    data(folder, "b", range(10, 20))
    passed(folder, "front")
    passed(folder, "back")
    assert ids(folder) == list(range(20))
    assert letters(folder) == []


def rewrite(path: Path, time_ms: int) -> None:
    """The same packs, as a host would have made them whose clock says that."""
    size = path.stat().st_size
    with path.open("rb") as file:
        values = [frame.value for frame in pack_frames(file, 0, size)]
    with path.open("wb") as out:
        for value in values:
            block = read_pack(value, None, RecordPlace(path.name))
            assert block.header is not None
            assert block.schema is not None
            about = {**block.header.about, "time_ms": time_ms}
            maker = PackMaker(block.schema, codec="none", keyring=None, sign=block.header.sign, about=about)
            (made,), bad = maker.make(block.batch, block.whole)
            assert not bad
            PackFileEncoder(out).write(made.value)


def test_a_truncated_and_a_foreign_message_in_a_topic_become_dead_letters(folder: FlowFolder, cluster: KafkaCluster, topics: Any) -> None:
    topic = topics.make(2, **{"max.message.bytes": "8388608"})
    given(folder, channel=f'{{topic: {topic}, bootstrap: "{cluster.bootstrap}"}}', name=topic.replace("-", "_"))
    data(folder, "a", range(10))
    passed(folder, "front")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in (b"no pack", b"SGP\x01\x00", None):
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    passed(folder, "back")
    assert ids(folder) == list(range(10))
    assert sorted(letter[1] for letter in letters(folder)) == ["foreign", "foreign", "truncated"]
    assert violations(folder) == []


def test_a_topic_that_was_deleted_and_made_anew_stops_its_reader(folder: FlowFolder, cluster: KafkaCluster, topics: Any) -> None:
    topic = topics.make(2, **{"max.message.bytes": "8388608"})
    given(folder, channel=f'{{topic: {topic}, bootstrap: "{cluster.bootstrap}"}}', name=topic.replace("-", "_"))
    data(folder, "a", range(10))
    passed(folder, "front")
    passed(folder, "back")
    data(folder, "b", range(10, 20))
    passed(folder, "front")
    topics.make_anew(topic)
    result = folder.run(tier="back")
    (problem,) = [problem for problem in result.problems if problem.severity == "error"]
    assert (result.state, problem.code) == ("failed", "data-loss")
    assert f"topic {topic} was deleted and made again" in problem.message
    assert ids(folder) == list(range(10))


def test_a_topic_that_a_channel_makes_counts_retention_by_the_brokers_clock(folder: FlowFolder, cluster: KafkaCluster, topics: Any) -> None:
    given(folder, channel=f'{{type: kafka, bootstrap: "{cluster.bootstrap}"}}', name="clocked")
    data(folder, "a", range(10))
    passed(folder, "front")
    (asked,) = topics.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "scribengin-clocked-first-back")]).values()
    found = asked.result(60)
    assert found["message.timestamp.type"].value == "LogAppendTime"
    assert found["retention.ms"].value == str(7 * 86_400_000)


def test_rows_that_were_exchanged_in_a_channel_stop_the_flow_with_edge_and_batch(folder: FlowFolder) -> None:
    """Every pack is whole, and of this channel: only that other rows went in tells it."""
    given(folder)
    data(folder, "a", range(8))
    folder.run(tier="front")
    (file,) = packs(folder)
    with file.open("rb") as opened:
        blocks = [read_pack(frame.value, None, RecordPlace("")) for frame in pack_frames(opened, 0, file.stat().st_size)]
    with file.open("wb") as out:
        encoder = PackFileEncoder(out)
        for block in [blocks[0], blocks[0]]:
            assert block.header is not None
            assert block.schema is not None
            maker = PackMaker(block.schema, codec="none", keyring=None, sign=block.header.sign, about=block.header.about)
            for pack in maker.make(block.batch, block.whole)[0]:
                encoder.write(pack.value)
    result = folder.run(tier="back")
    assert result.state == "failed"
    (problem,) = [problem for problem in result.problems if problem.code == "channel-mismatch"]
    assert 'edge "first -> second": channel first_to_back, batch 0 of its feeder: 8 rows came out as others' in problem.message
