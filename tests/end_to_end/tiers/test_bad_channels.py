"""What may happen to a channel between two tiers: it is told, with what to do, and no record is lost without a word."""

from __future__ import annotations

import base64
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource

from scribengin.cli.commands.audit import command as audit
from scribengin.formats.contract import RecordPlace
from scribengin.formats.packs import PackFileEncoder, PackMaker, pack_frames, read_pack
from scribengin.local.audit import audit_flow
from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow
from scribengin.state.dead_letters import read_letters

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
    assert "does not have key k1; found k2" in told[0]
    assert ids(folder) == list(range(10))
    assert letters(folder) == []
    assert violations(folder) == []


def test_a_run_that_is_to_end_tells_which_key_is_missing_and_loses_nothing(folder: FlowFolder) -> None:
    ring = sealed_with_a_key_that_is_gone(folder)
    result = folder.run(tier="back")
    (problem,) = [problem for problem in result.problems if problem.severity == "error"]
    assert (result.state, problem.code) == ("failed", "key-missing")
    assert "restore the key k1" in (problem.remedy or "")
    ring.write_text(key(1))
    passed(folder, "back")
    assert ids(folder) == list(range(10))


def test_a_truncated_and_a_foreign_record_in_a_folder_become_dead_letters(folder: FlowFolder) -> None:
    given(folder)
    data(folder, "a", range(10))
    passed(folder, "front")
    (whole,) = packs(folder)
    first, *_ = values(whole)
    with whole.open("ab") as out:
        PackFileEncoder(out).write(b"{}" * 40)
        out.write(len(first).to_bytes(4, "little") + first[:-5])
    passed(folder, "back")
    assert ids(folder) == list(range(10))
    assert sorted(letter[:2] for letter in letters(folder)) == [("first", "foreign"), ("first", "truncated")]


@pytest.mark.parametrize(
    "name",
    [
        "part-0000000000-00000-000copy.packs",
        pytest.param("part-other.packs", marks=pytest.mark.long),
        "part-0000000007-00000-000abc.packs",
    ],
)
def test_a_file_that_nobody_has_handed_over_is_refused_before_anything_is_read(folder: FlowFolder, name: str) -> None:
    given(folder)
    data(folder, "a", range(10))
    passed(folder, "front")
    (whole,) = packs(folder)
    (folder.path / HANDED / name).write_bytes(whole.read_bytes())
    result = folder.run(tier="back")
    (problem,) = [problem for problem in result.problems if problem.severity == "error"]
    assert (result.state, problem.code) == ("failed", "channel-foreign")
    assert f"{folder.path / HANDED / name} does not belong to the upstream tier of this folder" in problem.message
    assert "move it out of the folder" in (problem.remedy or "")
    assert not list((folder.path / "out").glob("**/part-*"))
    (folder.path / HANDED / name).unlink()
    passed(folder, "back")
    assert ids(folder) == list(range(10))
    assert violations(folder) == []


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
    assert f"{second} is missing: 10 rows were written to the channel and are not read yet" in problem.message
    assert "restore it" in (problem.remedy or "")
    assert any("is missing: 10 rows" in text for text in violations(folder))
    second.write_bytes(kept)
    passed(folder, "back")
    assert ids(folder) == list(range(20))
    assert violations(folder) == []


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ("id, n, id + 1 AS more", {"n": 1, "more": None}),
        pytest.param("id, CAST(n AS BIGINT) AS n", {"n": 1}, marks=pytest.mark.long),
        pytest.param("id", {}, marks=pytest.mark.long),
    ],
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
    assert letters(folder) == [("first", "type", 'field "n" is INT in the pack; expected STRING')] * 10
    assert violations(folder) == []


@pytest.mark.parametrize("years", [-40, pytest.param(40, marks=pytest.mark.long)])
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
    whole = values(path)
    with path.open("wb") as out:
        for value in whole:
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
    channel, name = f'{{topic: {topic}, bootstrap: "{cluster.bootstrap}"}}', topic.replace("-", "_")
    given(folder, channel=channel, name=name)
    data(folder, "a", range(10))
    passed(folder, "front")
    passed(folder, "back")
    data(folder, "b", range(10, 20))
    passed(folder, "front")
    topics.make_anew(topic)
    result = folder.run(tier="back")
    (problem,) = [problem for problem in result.problems if problem.severity == "error"]
    assert (result.state, problem.code) == ("failed", "data-loss")
    assert f"topic {topic} was deleted and created again" in problem.message
    assert "on_data_loss" not in (problem.remedy or "")
    assert "durability: best_effort" in (problem.remedy or "")
    assert ids(folder) == list(range(10))
    # as it says
    data(folder, "c", range(20, 30))
    passed(folder, "front")
    given(folder, channel=channel, name=name, more=", durability: best_effort")
    passed(folder, "back")
    assert ids(folder) == [*range(10), *range(20, 30)]
    given(folder, channel=channel, name=name)
    data(folder, "d", range(30, 40))
    passed(folder, "front")
    passed(folder, "back")
    assert ids(folder) == [*range(10), *range(20, 40)]


@pytest.mark.parametrize("when", ["before it is read", "after it was read"])
def test_a_message_of_a_channel_that_stands_there_twice_is_found_by_the_sums(
    folder: FlowFolder, cluster: KafkaCluster, topics: Any, when: str
) -> None:
    topic = topics.make(1, **{"max.message.bytes": "8388608"})
    given(folder, channel=f'{{topic: {topic}, bootstrap: "{cluster.bootstrap}"}}', name=topic.replace("-", "_"))
    data(folder, "a", range(8))
    passed(folder, "front")
    first = next(message for message in sent(cluster, topic) if message.value().startswith(b"SGP"))
    if when == "after it was read":
        passed(folder, "back")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, first.value(), partition=0)
    assert producer.flush(60) == 0
    data(folder, "b", range(8, 12))
    passed(folder, "front")
    result = folder.run(tier="back")
    told = [problem.message for problem in result.problems if problem.code == "channel-mismatch"]
    found = [each for each in violations(folder) if "channel first_to_back" in each]
    assert len(found) == 1
    assert "batch 0 of its upstream: 8 rows were written, but 12 were read" in found[0]
    assert f"written to topic {topic}, partition 0, offsets {first.offset()} to " in found[0]
    assert f"at {topic}-0 offset {first.offset()}, {topic}-0 offset " in found[0]
    assert "4 records are duplicated: " in found[0]
    if when == "before it is read":
        assert (result.state, told) == ("failed", found)
        return
    # whoever did not see Batch 0 being taken cannot know: that is what the audit is for
    assert result.state == "finished"


def sent(cluster: KafkaCluster, topic: str) -> list[Any]:
    """The committed messages of its partition 0."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "t", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Any] = []
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            consumer.close()
            return found
        found.append(message)
    raise AssertionError(f"{topic} has no end")


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
    first, _ = values(file)
    write(file, [first, first])
    text = mismatch(folder)
    assert (
        'edge "first -> second": channel first_to_back, batch 0 of its upstream: 8 rows were written, but different rows were read' in text
    )
    assert f"written to {file.name}; task output 0 ({file.name}): 8 rows were written, but different rows were read" in text
    assert "task output 0 has no record batch with rows 5 to 8" in text
    four = read_pack(first, None, RecordPlace("")).origins(range(4)).ids()
    assert f"4 records are duplicated: {', '.join(four)}; at {file.name} byte 0, {file.name} byte {len(first) + 4}" in text
    assert [each for each in violations(folder) if "channel first_to_back" in each] == [text]


def test_packs_that_are_gone_from_a_channel_stop_the_flow_with_the_rows_they_held(folder: FlowFolder) -> None:
    given(folder)
    data(folder, "a", range(12))
    folder.run(tier="front")
    (file,) = packs(folder)
    first, _, third = values(file)
    write(file, [first, third])
    text = mismatch(folder)
    assert "12 rows were written, but 8 were read by back/kept/first" in text
    assert "on re-read, 8 of its rows exist" in text
    assert "task output 0 has no record batch with rows 5 to 8" in text
    assert "duplicated" not in text


def test_of_many_doubled_records_five_are_named(folder: FlowFolder) -> None:
    given(folder)
    data(folder, "a", range(16))
    folder.run(tier="front")
    (file,) = packs(folder)
    there = values(file)
    write(file, [*there, *there])
    text = mismatch(folder)
    assert "16 rows were written, but 32 were read" in text
    assert "16 records are duplicated: " in text
    assert " and 11 more; at " in text


def test_after_a_mismatch_the_next_run_goes_on_and_the_audit_still_tells(folder: FlowFolder) -> None:
    given(folder)
    data(folder, "a", range(8))
    folder.run(tier="front")
    (file,) = packs(folder)
    write(file, values(file)[:1])
    mismatch(folder)
    data(folder, "b", range(8, 16))
    passed(folder, "front")
    passed(folder, "back")
    assert ids(folder) == [0, 1, 2, 3, *range(8, 16)]
    (told,) = [each for each in violations(folder) if "channel first_to_back" in each]
    assert "8 rows were written, but 4 were read" in told
    answer = CliRunner().invoke(audit, [str(folder.path / "flow.yaml")])
    assert answer.exit_code == 1
    assert "channel first_to_back to back/kept/first: 2 Batches compared at both ends\n" in answer.stdout
    file.unlink()
    (told,) = [each for each in violations(folder) if "channel first_to_back" in each]
    assert "the channel cannot be read again now: " in told


def test_a_run_that_has_found_a_mismatch_releases_nothing(folder: FlowFolder) -> None:
    given(folder)
    text = (folder.path / "flow.yaml").read_text()
    folder.flow(text.replace("path: data,", "path: data, when_done: delete,"))
    data(folder, "a", range(8))
    folder.run(tier="front")
    (file,) = packs(folder)
    write(file, values(file)[:1])
    result = folder.run()
    assert [problem.code for problem in result.problems if problem.severity == "error"] == ["channel-mismatch"]
    assert (folder.path / "data/a.jsonl").exists()
    result = folder.run()
    assert result.state == "finished", result.problems
    assert not (folder.path / "data/a.jsonl").exists()


def mismatch(folder: FlowFolder) -> str:
    """What the reading tier tells when it has found one."""
    result = folder.run(tier="back")
    assert result.state == "failed"
    (problem,) = [problem for problem in result.problems if problem.code == "channel-mismatch"]
    assert "scribengin reset" in problem.remedy
    assert "FLOW" not in problem.remedy
    return problem.message


def values(file: Path) -> list[bytes]:
    """The packs of a file."""
    with file.open("rb") as opened:
        return [frame.value for frame in pack_frames(opened, 0, file.stat().st_size)]


def write(file: Path, there: list[bytes]) -> None:
    with file.open("wb") as out:
        encoder = PackFileEncoder(out)
        for value in there:
            encoder.write(value)
