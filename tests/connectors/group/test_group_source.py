"""The reading end of an edge to a group, over folders, without Spark: every member's rows, at each one's own position."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from scribengin.connectors import catalog
from scribengin.connectors.channel.options import SINK, SOURCE
from scribengin.connectors.contract import BatchId, BatchLimits, ConnectorContext, Decided, SourceStream
from scribengin.connectors.group.source import GroupReader, GroupSource
from scribengin.core.errors import SourceError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.formats.origins import Origins
from tests.connectors.group.disks import Clock, Disks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA = parse_schema("id BIGINT")
WHERE = {"kind": "folder", "channel": "a_to_b", "tier": "t"}


@dataclass
class Edge(Disks):
    """An edge to two folders: Batches are put where a test wants them, and the log is what the engine would keep."""

    members: tuple[str, ...] = ("m1", "m2")
    clock: Clock = field(default_factory=Clock)
    log: list[list[SourceStream]] = field(default_factory=list)
    numbers: int = 0
    reader: Any = None

    def place(self, type_: Any, member: str = "") -> ConnectorContext:
        options = type_.filled(WHERE | {"path": f"{member or '-'}/hand"})
        return ConnectorContext("a", self.folder, options, SCHEMA, work=self.folder / "state" / (member or "all"), member=member)

    def source(self) -> GroupSource:
        members = tuple((name, 1.0, dict(self.place(SOURCE, name).options)) for name in self.members)
        place = self.place(SOURCE)
        source = catalog.open_source("channel", ConnectorContext("a", self.folder, place.options, SCHEMA, members=members))
        assert isinstance(source, GroupSource)
        return source

    def start(self) -> Edge:
        source = self.source()
        self.reader = GroupReader("a", source._sources, now=self.clock)
        self.reader.restore(self.log)
        return self

    def put(self, member: str, *ids: int) -> None:
        sink = catalog.open_sink("channel", self.place(SINK, member))
        sink.prepare(owner="me", lineage="l1")
        batch = BatchId("f", "q", "l1", self.numbers, 1)
        self.numbers += 1
        stream: Any = sink.stream(batch, 0, "a", SCHEMA)
        rows = pa.RecordBatch.from_pylist([{"id": id_} for id_ in ids], schema=arrow_schema(SCHEMA))
        stream.write_from(rows, Origins.of("src/f+", np.arange(len(ids))))
        sink.publish(Decided(batch, f"h{batch.number}", (stream.close(),)))

    def take(self, *, final: bool = False, **limits: int) -> list[int]:
        """What a Batch reads; it is in the log then."""
        streams = self.reader.split(BatchLimits(**limits), final=final)
        if streams:
            self.log.append([SourceStream.from_json(stream.as_json()) for stream in streams])
        return self.ids(streams)

    def ids(self, streams: Sequence[SourceStream]) -> list[int]:
        source = pickle.loads(pickle.dumps(self.source()))
        decoder = source.decoder()
        return [id_ for stream in streams for block in source.read(stream) for id_ in decoder.columns(block).batch.column("id").to_pylist()]


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(tmp_path).start()


def test_every_member_is_read_and_each_stream_says_whose_it_is(edge: Edge) -> None:
    edge.put("m1", 1, 2)
    edge.put("m2", 3)
    assert edge.take() == [1, 2, 3]
    (entry,) = edge.log
    assert [stream.label.partition(":")[0] for stream in entry] == ["m1", "m2"]
    assert edge.take() == []


def test_a_restart_goes_on_at_each_member_s_own_position(edge: Edge) -> None:
    edge.put("m1", 1)
    edge.put("m2", 2)
    assert edge.take() == [1, 2]
    edge.put("m2", 3)
    edge.put("m1", 4)
    assert edge.start().take() == [4, 3]
    assert edge.start().take() == []


def test_while_a_member_is_away_the_others_go_on_and_it_is_read_on_when_it_is_back(edge: Edge) -> None:
    edge.put("m1", 1)
    edge.put("m2", 2)
    assert edge.take() == [1, 2]
    edge.put("m2", 3)
    edge.take_away("m2")
    edge.put("m1", 4)
    edge.start()
    assert edge.take() == [4]
    (away,) = edge.reader.notices()
    assert "member m2 is unavailable; its backlog is read when it is available again" in away
    assert edge.take() == []
    assert edge.reader.notices() == [], "told once"
    edge.give_back("m2")
    assert edge.take() == [], "it is left out for a second"
    edge.clock.seconds += 1
    assert edge.take() == [3]
    assert edge.reader.notices() == ["a: member m2 is available again; reading continues"]


def test_the_end_is_not_reached_while_a_member_is_away(edge: Edge) -> None:
    edge.put("m1", 1)
    edge.put("m2", 2)
    assert edge.take() == [1, 2]
    edge.put("m1", 3)
    edge.take_away("m2")
    edge.start()
    assert edge.take(final=True) == [3], "first what can be read"
    assert edge.take(final=True) == []
    with pytest.raises(Unreachable, match="members of its group are unavailable, and their backlog is not read: m2: "):
        edge.reader.finish()
    edge.give_back("m2")
    assert edge.take(final=True) == [], "whoever ends looks at all, whatever their back-off"
    edge.reader.finish()


def test_a_batch_that_reads_at_a_member_that_is_away_waits_for_it(edge: Edge) -> None:
    edge.put("m1", 1)
    streams = edge.reader.split(BatchLimits())
    edge.take_away("m1")
    with pytest.raises(Unreachable, match='waits for member "m1"'):
        edge.ids(streams)
    edge.give_back("m1")
    assert edge.ids(streams) == [1]


def test_a_file_that_was_deleted_at_a_member_that_answers_is_no_reason_to_wait(edge: Edge) -> None:
    edge.put("m1", 1)
    streams = edge.reader.split(BatchLimits())
    (part,) = (edge.folder / "m1/hand").glob("part-*")
    part.unlink()
    with pytest.raises(SourceError, match="is missing"):
        edge.ids(streams)


def test_an_empty_folder_where_something_was_read_is_a_member_that_is_away(edge: Edge) -> None:
    edge.put("m1", 1)
    assert edge.take() == [1]
    (edge.folder / "m1").rename(edge.folder / "m1.gone")
    edge.start()
    assert edge.take() == []
    assert "is not the folder that was read before" in edge.reader.notices()[0]
    with pytest.raises(Unreachable):
        edge.reader.finish()


def test_members_share_what_a_batch_takes_at_most(edge: Edge) -> None:
    for number in range(4):
        edge.put("m1" if number < 2 else "m2", number)
    assert edge.take(max_files=2) == [0, 2]
    assert edge.take(max_files=1) == [1, 3], "each at least one, or nothing moves"


def test_a_member_that_left_the_group_is_told_and_what_is_under_way_there_is_refused(edge: Edge) -> None:
    edge.put("m1", 1)
    edge.put("m2", 2)
    streams = edge.reader.split(BatchLimits())
    edge.log.append(streams)
    edge.members = ("m1",)
    edge.start()
    assert edge.take() == []
    assert edge.reader.notices() == ["a: member m2 is not in the group any more: its unread rows are not read"]
    with pytest.raises(SourceError, match="which is not in its group any more"):
        edge.ids(streams)


def test_the_backlog_is_that_of_all_members(edge: Edge) -> None:
    for member in ("m1", "m1", "m2", "m2"):
        edge.put(member, 1)
    edge.take(max_files=2)
    assert edge.reader.backlog().files == 2
