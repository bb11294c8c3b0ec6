"""Channels in topics of Kafka, between the tiers of one flow."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from scribengin.cli.commands.offsets import set_ as set_offset
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.local.status import read_standing
from tests.connectors.kafka.processes import scribengin
from tests.looking import look_until

if TYPE_CHECKING:
    from scribengin.embedded.kafka import KafkaCluster
    from tests.conftest import FlowFolder

ROWS = 3000
FLOW = """
version: 1
name: NAME
sources:
  numbers: {type: files, path: data, format: json, schema: "n BIGINT, who STRING", max_bytes: 40KiB}
steps:
  small: {from: numbers, filter: n % 10 <> 0}
  doubled: {from: small, python: "steps:doubled", schema: "n BIGINT, who STRING, twice BIGINT"}
  sizes: {from: doubled, route: {big: n > 2000, otherwise: low}}
  all: {from: [sizes.big, sizes.low], merge: {origin: came}}
sinks:
  kept: {from: all, type: files, path: out/kept, format: json}
tiers: {near: {steps: [small]}, mid: {steps: [doubled, sizes]}, far: {steps: [all, kept]}}
defaults: {edge: {channel: {type: kafka, bootstrap: "BOOTSTRAP", partitions: 3}, compression: zstd}}
"""


@pytest.fixture
def flow(folder: FlowFolder, cluster: KafkaCluster, request: pytest.FixtureRequest) -> Any:
    name = "ch_" + str(abs(hash(request.node.name)))[:12]

    def made(text: str = "", **replaced: str) -> FlowFolder:
        whole = FLOW.replace("NAME", name).replace("BOOTSTRAP", cluster.bootstrap) + text
        for old, new in replaced.items():
            whole = whole.replace(old, new)
        folder.flow(whole)
        folder.steps("def doubled(row):\n    return {**row, 'twice': row['n'] * 2}\n")
        for part in range(4):
            rows = range(part * ROWS // 4, (part + 1) * ROWS // 4)
            folder.data(f"data/{part}.jsonl", [{"n": n, "who": f"w{n % 7}"} for n in rows])
        return folder

    made.name = name  # type: ignore[attr-defined]
    return made


def expected() -> list[tuple[int, str, int, str]]:
    return sorted((n, f"w{n % 7}", 2 * n, "sizes_big" if n > 2000 else "sizes_low") for n in range(ROWS) if n % 10)


def found(folder: FlowFolder) -> list[tuple[int, str, int, str]]:
    return sorted((row["n"], row["who"], row["twice"], row["came"]) for row in folder.read("out/kept"))


def sound(folder: FlowFolder, result: Any) -> None:
    assert [(query.name, query.error) for query in result.queries if query.error] == []
    assert result.state == "finished"
    audit = audit_flow(prepare(folder.path / "flow.yaml", state=None))
    assert [text for report in audit.reports for text in report.violations] == []


@pytest.mark.parametrize(
    "edges",
    [
        "",
        """edges: {"small -> doubled": {encryption: {keys: {k1: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}}, pack: {rows: 100}}}""",
        pytest.param(
            """edges:
  "sizes.big -> all": {channel: {topic: NAME-shared}}
  "sizes.low -> all": {channel: {topic: NAME-shared}}
""",
            marks=pytest.mark.long,
        ),
    ],
    ids=["a topic each", "encrypted, in small packs", "one topic for two branches"],
)
def test_a_chain_over_topics_gives_each_row_once(flow: Any, edges: str) -> None:
    folder = flow(edges.replace("NAME", flow.name))
    sound(folder, folder.run())
    assert found(folder) == expected()


def test_tiers_in_turn_over_topics(flow: Any) -> None:
    folder = flow()
    waits = ROWS * 9 // 10
    for tier in ("far", "near"):
        folder.run(tier=tier)
    lags: list[int | None] = []
    standing = read_standing(prepare(folder.path / "flow.yaml", state=None))
    of_mid = [query["lag"]["rows"] for tier in standing["tiers"] if tier["tier"] == "mid" for query in tier["queries"]]
    assert set(of_mid) == {waits}, "rows, not packs"
    result = folder.run(lambda view: lags.extend(query.lag_rows for query in view.queries), tier="mid")
    assert lags[0] == waits
    assert lags[-1] == 0
    assert {query["lag"]["rows"] for query in result.as_json()["queries"]} == {0}
    folder.run(tier="far")
    assert found(folder) == expected()


def test_what_waits_in_a_topic_from_before_its_feeder_went_back_waits_still(flow: Any) -> None:
    folder = flow()
    path = str(folder.path / "flow.yaml")
    folder.run(tier="near")
    assert CliRunner().invoke(set_offset, [path, "numbers", "1", "--yes"]).exit_code == 0

    def waiting() -> int:
        standing = read_standing(prepare(folder.path / "flow.yaml", state=None))
        return max(edge["waiting"]["rows"] for edge in standing["edges"] if edge["from"] == "near")

    waits = ROWS * 9 // 10
    assert waiting() == waits
    gates: list[int] = []
    folder.run(lambda view: gates.extend(gate.rows for gate in view.gates if gate.feeding == "near"), tier="near")
    assert gates[0] == waits
    assert waiting() > waits
    assert waiting() == gates[-1]
    folder.run()
    assert waiting() == 0
    assert set(found(folder)) == set(expected())


def test_rows_of_one_key_keep_their_order(flow: Any, cluster: KafkaCluster) -> None:
    folder = flow("""edges: {"small -> doubled": {ordering: key, key: [who], pack: {rows: 50}}}""")
    sound(folder, folder.run())
    assert found(folder) == expected()
    from scribengin.formats.contract import RecordPlace
    from scribengin.formats.packs import PackDecoder, read_pack

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "look", "auto.offset.reset": "earliest",
                         "isolation.level": "read_committed", "enable.partition.eof": True})  # fmt: skip
    consumer.subscribe([f"scribengin-{flow.name}-small-mid"])
    places: dict[str, set[int]] = defaultdict(set)
    seen: dict[str, list[int]] = defaultdict(list)
    ended: set[int] = set()
    while len(ended) < 3:
        message = consumer.poll(10.0)
        assert message is not None
        if message.error() is not None:
            ended.add(message.partition())
            continue
        block = read_pack(message.value(), None, RecordPlace(""))
        assert block.schema is not None
        for row in PackDecoder(block.schema).rows(block).rows:
            places[row["who"]].add(message.partition())
            seen[row["who"]].append(row["n"])
    consumer.close()
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set().union(*places.values())) > 1
    assert all(numbers == sorted(numbers) for numbers in seen.values())


@pytest.mark.long
def test_a_reset_takes_the_channels_with_it(flow: Any, topics: Any) -> None:
    folder = flow()
    folder.run()
    assert f"scribengin-{flow.name}-small-mid" in topics.admin.list_topics(timeout=60).topics
    ended = scribengin(folder.path, "reset", "flow.yaml", "--outputs", "--yes")
    assert ended.returncode == 0, ended.stderr
    # a broker may know them for a moment after they are deleted
    look_until(lambda: not [name for name in topics.admin.list_topics(timeout=60).topics if flow.name in name], "its topics are gone", 60)
    # by a process of its own: this one believes for a moment what it knows of the topics
    ended = scribengin(folder.path, "run", "flow.yaml", "--once")
    assert ended.returncode == 0, ended.stderr
    assert found(folder) == expected()
