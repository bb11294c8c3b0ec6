"""Agents of tests: frames with numbers, stored through a channel's writing end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.connectors.agents.channel import channel_of, open_channel
from scribengin.connectors.agents.contract import Arrival
from scribengin.connectors.agents.options import SOURCE
from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.core.types import parse_schema, with_added
from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame, mark_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.agents.contract import ChannelWriter
    from scribengin.connectors.contract import SourceConnector, SourceReader, SourceStream

READER = "web.main"


def frame(sequence: int, records: Sequence[bytes], **origin: Any) -> bytes:
    """A frame of records."""
    mark = mark_for(records)
    head = FrameHead("records", "none", sequence, len(records), 0, 1_700_000_000_000, mark, FrameOrigin(file="/log", **origin))
    return encode_frame(head, b"".join(record + mark for record in records))


def lost(sequence: int, count: int, why: str) -> bytes:
    """A frame that stands for records that exist no more."""
    return encode_frame(FrameHead("lost", "none", sequence, count, 0, 0), why.encode())


def arrival(frames: bytes, sequence: int, next_: int, *, agent: str = "web1", incarnation: str = "a", committed: int = 0) -> Arrival:
    """Frames as a gateway hands them on."""
    return Arrival(agent, incarnation, committed, frames, sequence, next_)


def numbered(first: int, end: int, *, agent: str = "web1", incarnation: str = "a", committed: int = 0) -> Arrival:
    """A run with a record `{"id": N}` for each number."""
    records = [json.dumps({"id": number}).encode() for number in range(first, end)]
    return arrival(frame(first, records, line=first + 1), first, end, agent=agent, incarnation=incarnation, committed=committed)


@dataclass
class AgentsPlace:
    """A channel and what reads it."""

    folder: Path
    options: Mapping[str, Any]
    schema: str = "id BIGINT"
    writers: dict[str, ChannelWriter] = field(default_factory=dict)

    def source(self, **more: Any) -> SourceConnector:
        """A source of the channel."""
        options = {**self.options, **more}
        schema = with_added(parse_schema(self.schema), options)
        return open_source("agents", ConnectorContext("access", self.folder, options, schema))

    def writer(self, name: str = "g1") -> ChannelWriter:
        """The writing end of a gateway."""
        if name not in self.writers:
            channel = channel_of(SOURCE.filled(self.options), self.folder, "access")
            self.writers[name] = open_channel(channel, name=name, readers=[READER])
        return self.writers[name]

    def close(self) -> None:
        """Close what was opened."""
        for writer in self.writers.values():
            writer.close()


def folder_place(folder: Path, **options: Any) -> AgentsPlace:
    """A channel in a folder."""
    return AgentsPlace(folder, {"input": "tail", "path": ("/log",), "format": "json", "channel": {"path": "channel"}, **options})


def rows_of(source: SourceConnector, streams: Iterable[SourceStream]) -> list[dict[str, Any]]:
    """The rows of these streams; the same as rows and as columns."""
    decoder = source.decoder()
    rows: list[dict[str, Any]] = []
    for stream in streams:
        for block in () if stream.skipped else source.read(stream):
            found = decoder.rows(block)
            assert decoder.columns(block).batch.num_rows == len(found.rows)
            rows += found.rows
    return rows


def ids(source: SourceConnector, streams: Iterable[SourceStream]) -> list[int]:
    """The column `id` of these streams."""
    return [row["id"] for row in rows_of(source, streams)]


def take(reader: SourceReader, *, most: int | None = None) -> list[SourceStream]:
    """The next entry of a reader."""
    return reader.split(BatchLimits(max_bytes=most))
