"""Both ends of both kinds of channel under the suites that every sink and source must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from scribengin.connectors.abilities import chains_batches, takes_origins
from scribengin.connectors.channel import SINK, SOURCE, make_sink, make_source
from scribengin.connectors.channel.outbox import read_left
from scribengin.connectors.contract import BatchId, BatchLimits, ConnectorContext, Decided
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.formats.contract import RecordPlace
from scribengin.formats.origins import Origins
from scribengin.formats.packs import pack_frames, read_pack
from scribengin.testing.conformance import check_sink, check_source
from tests.connectors.kafka.processes import within
from tests.connectors.kafka.test_sink import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.connectors.contract import SinkConnector, SourceConnector
    from tests.connectors.kafka.conftest import Topics

SCHEMA = parse_schema("id BIGINT, name STRING, at TIMESTAMP, tags ARRAY<STRING>")
ROWS: list[dict[str, Any]] = [{"id": n, "name": "ü" * n or None, "at": None, "tags": ["t"] * n} for n in range(5)]
WAYS = [{}, {"compression": "zstd", "rows": 1}, {"keys": {"k": "A" * 43 + "="}}]
NAMES = ["plain", "compressed", "encrypted"]


def in_a_topic(short: str) -> list[Any]:
    """All ways, of which one alone is no long test: what a message holds is made and read by the code that a folder has, too."""
    return [way if name == short else pytest.param(way, marks=pytest.mark.long) for way, name in zip(WAYS, NAMES, strict=True)]


HOLD_NOBODY = ["store_on_failure", "best_effort"]


def folder_channel(folder: Path, **more: Any) -> tuple[Callable[[], SinkConnector], Callable[[], SourceConnector]]:
    return ends(folder, {"kind": "folder", "path": "handed", **more})


def topic_channel(
    folder: Path, topics: Topics, topic: str, **more: Any
) -> tuple[Callable[[], SinkConnector], Callable[[], SourceConnector]]:
    return ends(folder, {"kind": "kafka", "topic": topic, "bootstrap": topics.bootstrap, **more})


def ends(folder: Path, given: dict[str, Any]) -> tuple[Callable[[], SinkConnector], Callable[[], SourceConnector]]:
    given = {"channel": "a_to_back", "tier": "front", **given}

    def sink() -> SinkConnector:
        return make_sink(
            ConnectorContext(
                "a_to_back", folder, SINK.filled(given), flow=str(given.get("topic", "f")), version="0123456789", work=folder / "work"
            )
        )

    def source() -> SourceConnector:
        options = {name: value for name, value in given.items() if name not in ("compression", "rows")}
        return make_source(ConnectorContext("a", folder, SOURCE.filled(options), SCHEMA))

    return sink, source


def written(sink: SinkConnector) -> None:
    """Three Batches of three units each."""
    sink.prepare(owner="o", lineage="l")
    for number in range(3):
        batch = BatchId("f", "a_to_back", "l", number, 1)
        receipts = []
        for unit in range(3):
            stream = sink.stream(batch, unit, f"attempt-{number}-{unit}", SCHEMA)
            assert takes_origins(stream)
            made = pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(SCHEMA))
            assert not stream.write_from(made, Origins.of(f"s/part-{number}-{unit}+", np.arange(len(ROWS))))
            receipts.append(stream.close())
        sink.publish(Decided(batch, f"hash-{number}", tuple(receipts), sink.behind(0) if chains_batches(sink) else {}))


@pytest.mark.parametrize("way", [*WAYS, *({"durability": each} for each in HOLD_NOBODY)], ids=[*NAMES, *HOLD_NOBODY])
def test_the_writing_end_in_a_folder(tmp_path: Path, way: dict[str, Any]) -> None:
    sink, source = folder_channel(tmp_path, **way)
    ring: Any = source()._wire._keyring  # type: ignore[attr-defined]

    def found() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for path in sorted((tmp_path / "handed").glob("part-*.packs")):
            with path.open("rb") as file:
                for frame in pack_frames(file, 0, path.stat().st_size):
                    assert frame.fault is None
                    rows += read_pack(frame.value, ring, RecordPlace(path.name)).batch.to_pylist()
        return rows

    # what holds nobody hands over by a lock of the driver's process, which no copy has
    check_sink(
        sink,
        found,
        schema=SCHEMA,
        rows=ROWS,
        copies_publish=way.get("durability") not in HOLD_NOBODY,
        declared=SINK,
        options={"kind": "folder"},
    )


@pytest.mark.parametrize("way", in_a_topic("plain"), ids=NAMES)
def test_the_writing_end_in_a_topic(tmp_path: Path, topics: Topics, way: dict[str, Any]) -> None:
    topic = topics.make(2, **{"max.message.bytes": "8388608"})
    sink, source = topic_channel(tmp_path, topics, topic, **way)
    ring: Any = source()._wire._keyring  # type: ignore[attr-defined]

    def found() -> list[dict[str, Any]]:
        blocks = [read_pack(message.value(), ring, RecordPlace("")) for message in read(topics, topic)]
        return [row for block in blocks for row in block.batch.to_pylist()]

    check_sink(sink, found, schema=SCHEMA, rows=ROWS, declared=SINK, options={"kind": "kafka"})


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_the_reading_end_in_a_folder(tmp_path: Path, way: dict[str, Any]) -> None:
    sink, source = folder_channel(tmp_path, **way)
    written(sink())
    assert check_source(source(), declared=SOURCE, options={"kind": "folder"}) == 9 * len(ROWS)


@pytest.mark.parametrize("way", in_a_topic("encrypted"), ids=NAMES)
def test_the_reading_end_in_a_topic(tmp_path: Path, topics: Topics, way: dict[str, Any]) -> None:
    sink, source = topic_channel(tmp_path, topics, topics.make(2, **{"max.message.bytes": "8388608"}), **way)
    written(sink())
    # a broker answers a commit before its marker stands in the partitions
    assert within(60, lambda: seen(source()) == 9 * len(ROWS))
    # each read asks the broker anew, which takes a third of a second: not one message at a time
    assert check_source(source(), limits=BatchLimits(max_rows=7), declared=SOURCE, options={"kind": "kafka"}) == 9 * len(ROWS)


def seen(source: SourceConnector) -> int:
    """How many records can be read now."""
    return sum(len(block) for stream in source.reader().split(BatchLimits(), final=True) for block in source.read(stream))


def test_coordinates_come_through_both_ends_with_the_hop_between_them(tmp_path: Path) -> None:
    sink, source = folder_channel(tmp_path)
    opened = sink()
    opened.prepare(owner="o", lineage="l")
    stream = opened.stream(BatchId("f", "a_to_back", "l", 0, 1), 0, "attempt", SCHEMA)
    assert takes_origins(stream)
    several = Origins.of("s/part-0+", np.array([3, 3, 3, 9, 11])).numbered([3, 3, 3, 9, 11])
    stream.write_from(pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(SCHEMA)), several)
    opened.publish(Decided(BatchId("f", "a_to_back", "l", 0, 1), "hash", (stream.close(),)))
    reader = source().reader()
    (streams,) = [reader.split(BatchLimits(), final=True)]
    (block,) = [block for each in streams for block in source().read(each)]
    found: Any = block
    assert found.origins(range(5)).ids() == several.ids()
    assert several.ids()[1] != several.ids()[0]
    assert {hop.tier for trail in found.whole.trails for hop in trail} == {"front"}


@pytest.mark.parametrize("away_from", ["the start", "the second batch"])
def test_rows_for_a_folder_that_is_away_wait_in_the_state_and_go_over_when_it_is_back(tmp_path: Path, away_from: str) -> None:
    sink, source = folder_channel(tmp_path, durability="store_on_failure", path="share/handed")
    share, gone = tmp_path / "share", tmp_path / "gone"
    opened: Any = sink()

    def goes() -> None:
        if share.exists():
            share.rename(gone)
        share.touch()

    if away_from == "the start":
        goes()
    opened.prepare(owner="o", lineage="l")
    for number in range(3):
        if number == 1 and away_from != "the start":
            goes()
        batch = BatchId("f", "a_to_back", "l", number, 1)
        stream = opened.stream(batch, 0, f"attempt-{number}", SCHEMA)
        stream.write_from(pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(SCHEMA)), Origins.of(f"s/{number}+", np.arange(len(ROWS))))
        opened.publish(Decided(batch, f"hash-{number}", (stream.close(),), opened.behind(0)))
    assert read_left(tmp_path / "work", "l").batches == (3 if away_from == "the start" else 2)
    again: Any = sink()  # a start that meets the same
    again.prepare(owner="o", lineage="l")
    again.recover(None, lineage="l", before=3)
    assert read_left(tmp_path / "work", "l").batches == (3 if away_from == "the start" else 2)
    share.unlink()
    if gone.exists():
        gone.rename(share)
    back: Any = sink()
    back.prepare(owner="o", lineage="l")
    back.recover(None, lineage="l", before=3)
    assert "the channel is available again" in back.upkeep()[0]
    assert read_left(tmp_path / "work", "l").batches == 0
    assert check_source(source()) == 3 * len(ROWS)
    assert [path.name for path in (tmp_path / "share/handed").glob("_scribengin/l/staged/*")] == []
    assert [path.name for path in (tmp_path / "work/l/staged").iterdir()] == []


def test_what_was_staged_of_a_dropped_batch_for_a_folder_does_not_stay(tmp_path: Path) -> None:
    sink, _ = folder_channel(tmp_path, durability="best_effort")
    (tmp_path / "handed").touch()
    opened: Any = sink()
    opened.prepare(owner="o", lineage="l")
    for number in range(3):
        batch = BatchId("f", "a_to_back", "l", number, 1)
        stream = opened.stream(batch, 0, f"attempt-{number}", SCHEMA)
        stream.write_from(pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(SCHEMA)), Origins.of(f"s/{number}+", np.arange(len(ROWS))))
        opened.publish(Decided(batch, f"hash-{number}", (stream.close(),), opened.behind(0)))
    left = read_left(tmp_path / "work", "l")
    assert (left.batches, left.dropped_batches) == (1, 2)
    assert [path.name for path in (tmp_path / "work/l/staged").iterdir()] == ["0000000000"]


def test_an_encrypted_channel_takes_no_pack_in_plain_whoever_wrote_it(tmp_path: Path) -> None:
    plain, _ = folder_channel(tmp_path)
    written(plain())
    _, source = folder_channel(tmp_path, keys={"k": "A" * 43 + "="})
    reader = source().reader()
    blocks: list[Any] = [block for stream in reader.split(BatchLimits(), final=True) for block in source().read(stream)]
    assert {block.bad.reason for block in blocks} == {"not-authentic"}
