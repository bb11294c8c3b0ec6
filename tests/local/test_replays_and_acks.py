"""What a source is told of what came through, where dead letters that were replayed stand in its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.contract import SourceStream
from scribengin.local.acks import Releases
from scribengin.local.backlog_view import Levels
from scribengin.local.prepare import prepare
from scribengin.state.channel_acks import FlowAcks, QueryStanding
from scribengin.state.source_log import REPLAY, SourceLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

FLOW = """\
version: 1
name: relay
sources:
  rows: {type: kafka, bootstrap: "127.0.0.1:1", topics: [t], format: json, schema: "id BIGINT"}
steps:
  some: {from: rows, filter: id % 10 != 9}
sinks:
  kept: {from: some, type: files, path: out, format: json}
tiers:
  edge: {steps: [some]}
  core: {steps: [kept]}
"""


class _Reader:
    """Hears what came through, as Kafka's does: by topic."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def committed(self, streams: Sequence[SourceStream], *, query: str) -> None:
        self.told += [f"{stream.place['topic']}:{stream.place['end']}" for stream in streams]

    def notices(self) -> list[str]:
        return []


class _Through(Levels):
    """All of the first tier is acknowledged."""

    def acknowledged(self, *, fresh: bool = True) -> FlowAcks:
        through = QueryStanding("lineage", released={"rows": 2})
        return FlowAcks({key: through if key.tier == "edge" else QueryStanding() for key in self.topology.queries}, {})


def test_a_source_hears_what_came_through_and_nothing_of_replays_among_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    prepared = prepare(tmp_path / "flow.yaml", state=None)
    reader, said = _Reader(), list[str]()
    monkeypatch.setattr("scribengin.local.acks._position_reader", lambda _tier, _id: reader)
    releases = Releases(prepared, _Through(Releases(prepared)._topology), say=said.append)
    (edge,) = (key for key in releases._topology.queries if key.tier == "edge")
    folder = releases._topology.queries[edge]
    log = SourceLog(folder.sources, "rows")
    log.append(0, [SourceStream("t/0", {"topic": "t", "partition": 0, "end": 7})])
    log.append(1, [SourceStream("replay 0", {REPLAY: {"of": "edge/x", "request": 0}})])
    releases.release_acknowledged()
    assert (reader.told, said) == (["t:7"], [])
