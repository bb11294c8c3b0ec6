"""The reading end of a channel of agents: finds runs on the driver, reads their frames in tasks."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from scribengin.connectors.agents.channel import channel_of
from scribengin.connectors.agents.contract import RunPositions
from scribengin.connectors.agents.options import SOURCE
from scribengin.connectors.contract import Backlog, SourceStream
from scribengin.core.errors import SourceError
from scribengin.core.types import Schema, arrow_schema
from scribengin.formats.blocks import DamageBlock, LineBlock
from scribengin.formats.catalog import decoder_for
from scribengin.formats.contract import DecodedColumns, DecodedRows
from scribengin.formats.dialect import AUTO
from scribengin.formats.spans import JsonBlock, SpanBlock
from scribengin.wire.frames import LINE_FEED, BadFrame, FrameHead, find_frames, payload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.agents.contract import AgentKey, StoredRun
    from scribengin.connectors.contract import BatchLimits, ConnectorContext
    from scribengin.formats.contract import Block, Decoder, Structs

_AGENT, _BEGIN, _NEXT, _GATEWAY, _TIME, _RUN_FIELDS = range(6)
"""the fields of a run in the place of a stream; the run's own place follows"""
_GAP_TOLD_S = 30.0
"""a gap is reported after this time: the missing run is usually under way on another path"""
_PARTS: Mapping[str, tuple[str, ...]] = {
    "agent": ("STRING",),
    "host": ("STRING",),
    "file": ("STRING",),
    "line": ("BIGINT", "INT"),
    "offset": ("BIGINT",),
    "read_at": ("TIMESTAMP",),
    "number": ("BIGINT",),
    "incarnation": ("STRING",),
    "tags": ("MAP",),
}
"""part of `metadata` → the types that its column may have"""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class AgentsSource:
    """A source `type: agents`; picklable."""

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = place.schema
        self._node = place.node
        self._options = SOURCE.filled(place.options)
        self._channel = channel_of(self._options, place.folder, place.node)
        self._parts: dict[str, str] = dict(self._options["metadata"])

    def resolve_schema(self) -> Schema:
        """The declared columns. Raises SourceError if none are declared, or if `metadata` cannot fill one of them."""
        if self.schema is None:
            raise SourceError(
                f'source "{self._node}" reads {self._options["format"]} and declares no columns',
                remedy="add `schema:`, such as: id BIGINT, name STRING",
                node=self._node,
            )
        self.decoder()
        return self.schema

    def reader(self) -> AgentsReader:
        """A new reader. Raises SourceError or Unreachable if the channel cannot be read."""
        return AgentsReader(self._node, self._channel, self._options)

    def decoder(self) -> Decoder:
        """A new decoder. Raises SourceError for contradictory options."""
        assert self.schema is not None
        options = self._options | {"encoding": "utf-8", "line_end": "auto"}  # agents send UTF-8
        try:
            if not self._parts:
                return decoder_for(self._options["format"], self.schema, options)
            return OriginDecoder(self._options["format"], self.schema, options, self._parts)
        except ValueError as error:
            raise SourceError(f'source "{self._node}": {error}', remedy="change `schema` or `metadata`", node=self._node) from error

    def read(self, stream: SourceStream) -> Iterator[Block]:
        """The records of the stream's runs. Raises SourceError if some of them are lost, Unreachable if the channel cannot be read."""
        agents: list[list[str]] = stream.place["agents"]
        for frames, sequence, agent in self._frames(stream):
            name, incarnation = agents[agent]
            for found in find_frames(frames):
                if found.head is None:
                    raise SourceError(
                        f'source "{self._node}": a frame of agent {name} is damaged in the channel: {found.fault}',
                        remedy="restore the channel from a backup; until then nothing is read, so that no record is skipped",
                        code="data-loss",
                        node=self._node,
                    )
                if found.head.next > sequence and found.head.kind != "lost":
                    yield _block_of(found.head, frames, found, name, incarnation, self._options["format"])

    def find_record(self, stream: SourceStream, place: str, number: int) -> int | None:
        """See the contract; `place` is an agent, or `AGENT~INCARNATION`."""
        name, _, wanted = place.partition("~")
        runs = stream.place.get("runs", [])
        for index, run in enumerate(runs):
            agent, incarnation = stream.place["agents"][run[_AGENT]]
            if agent == name and wanted in ("", incarnation) and run[_BEGIN] <= number < run[_NEXT]:
                heads = self._ahead(stream, run)
                here = next((head for head in heads if head.sequence <= number < head.next), None)
                if here is None:
                    return None  # it is lost
                before = sum(head.count for earlier in runs[:index] for head in self._ahead(stream, earlier))
                return before + sum(head.count for head in heads if head.next <= number) + number - here.sequence
        return None

    def locate_record(self, stream: SourceStream, ordinal: int) -> Mapping[str, Any] | None:
        """See the contract."""
        first = 0
        for run in stream.place.get("runs", ()):
            for head in self._ahead(stream, run):
                if ordinal < first + head.count:
                    agent, incarnation = stream.place["agents"][run[_AGENT]]
                    return _station(head, ordinal - first, agent, incarnation, stream.place["gateways"][run[_GATEWAY]], run[_TIME])
                first += head.count
        return None

    def _ahead(self, stream: SourceStream, run: Sequence[Any]) -> list[FrameHead]:
        """The heads of the frames of a run that are read."""
        alone = SourceStream("", {**stream.place, "runs": [run]})
        heads = [found.head for frames, _, _ in self._frames(alone) for found in find_frames(frames)]
        return [head for head in heads if head is not None and head.next > run[_BEGIN] and head.kind != "lost"]

    def _frames(self, stream: SourceStream) -> Iterator[tuple[bytes, int, int]]:
        """(frames of a run, the number from which on they are read, the agent's index)"""
        runs: list[list[Any]] = stream.place["runs"]
        if self._channel["kind"] == "folder":
            from scribengin.connectors.agents.folder import read_run

            for run in runs:
                segment, start, end = run[_RUN_FIELDS:]
                yield read_run(Path(self._channel["path"]), segment, start, end, self._node), run[_BEGIN], run[_AGENT]
            return
        from scribengin.connectors.agents.kafka import read_runs

        wanted: dict[int, set[int]] = {}
        for *_, partition, offset in runs:
            wanted.setdefault(partition, set()).add(offset)
        found = {
            place: frames for partition in wanted for place, frames in read_runs(self._channel, self._node, partition, wanted[partition])
        }
        # in the order of the numbers: a run that fills a gap has a higher offset than the one after it
        for run in runs:
            yield found[run[_RUN_FIELDS], run[_RUN_FIELDS + 1]], run[_BEGIN], run[_AGENT]


class AgentsReader:
    """The driver's side, see `SourceReader`."""

    def __init__(self, node: str, channel: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self._node, self._channel, self._options = node, channel, options
        self._positions = RunPositions()
        self._index = _index_of(node, channel)
        self._queue: dict[AgentKey, list[_Found]] = {}
        """runs that are not handed out yet, of each agent in the order of their numbers"""
        self._gaps: dict[AgentKey, float] = {}
        """agent → since when records before its first run are missing"""
        self._told: list[str] = []

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """See the contract."""
        for streams in entries:
            for stream in streams:
                self._positions.restore(stream.place)
                self._index.read_to.update(stream.place.get("seen", {}))

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:  # noqa: ARG002
        """See the contract."""
        self._learn()
        most = limits.max_bytes or self._options["max_bytes"]
        most_rows = limits.max_rows
        taken: list[tuple[_Found, int]] = []
        size = rows = 0
        progress = True
        while progress:
            progress = False
            for key in list(self._queue):
                if taken and (size >= most or (most_rows is not None and rows >= most_rows)):
                    break
                found = self._next_of(key)
                if found is not None:
                    taken.append(found)
                    size += found[0].run.bytes
                    rows += found[0].run.next - found[1]
                    progress = True
            else:
                continue
            break
        self._tell_gaps()
        return self._streams(taken) if taken else []

    def _next_of(self, key: AgentKey) -> tuple[_Found, int] | None:
        """Take the next run of an agent off its queue, with the number from which on it is read; None if there is none yet."""
        queue = self._queue[key]
        while queue:
            run = queue[0].run
            if self._positions.is_taken(run):
                queue.pop(0)
                continue
            begin = self._positions.from_number(*key, run.sequence, committed=run.committed)
            if begin is None:
                self._gaps.setdefault(key, time.monotonic())
                return None
            self._gaps.pop(key, None)
            self._positions.take(run)
            return queue.pop(0), begin
        del self._queue[key]
        return None

    def _learn(self) -> None:
        for segment, place, run in self._index.read_new():
            if not self._positions.is_taken(run):
                queue = self._queue.setdefault(run.key, [])
                queue.append(_Found(run, segment, place))
                if len(queue) > 1 and queue[-2].run.sequence > run.sequence:
                    queue.sort(key=lambda found: found.run.sequence)

    def _streams(self, taken: list[tuple[_Found, int]]) -> list[SourceStream]:
        """The streams of the runs. The first one says what was taken, for `restore`."""
        groups: list[list[tuple[_Found, int]]] = [[]]
        size = 0
        for each in sorted(taken, key=lambda each: (each[0].run.key, each[0].run.sequence)):
            if size >= self._options["split"]:
                groups.append([])
                size = 0
            groups[-1].append(each)
            size += each[0].run.bytes
        streams = [_stream(group) for group in groups]
        changed = dict.fromkeys(found.run.key for found, _ in taken)
        said = {"taken": [[*key, self._positions.next[key]] for key in changed], "seen": self._seen()}
        first = streams[0]
        streams[0] = SourceStream(first.label, {**first.place, **said}, bytes=first.bytes, rows=first.rows)
        for found, _ in taken:
            run = found.run
            if run.lost:
                sentence = f"{run.lost:,} records of agent {run.agent} do not exist any more: {run.why}"
                streams.append(SourceStream(f"{run.agent} lost", {}, rows=run.lost, skipped=True, lost=sentence))
        return streams

    def _seen(self) -> dict[str, int]:
        """Segment of the index → the place up to which no run is left in the queues."""
        seen = dict(self._index.read_to)
        for queue in self._queue.values():
            for waiting in queue:
                seen[waiting.segment] = min(waiting.place, seen.get(waiting.segment, waiting.place))
        return seen

    def _tell_gaps(self) -> None:
        for key, since_s in self._gaps.items():
            queue = self._queue.get(key)
            if queue and time.monotonic() - since_s > _GAP_TOLD_S:
                self._gaps[key] = float("inf")
                missing = f"{self._positions.next.get(key, 0):,} to {queue[0].run.sequence - 1:,}"
                self._told.append(
                    f"{self._node}: records {missing} of agent {key[0]} are not in the channel, but later ones are; they are read when the "
                    "agent has sent the missing ones again"
                )

    def backlog(self) -> Backlog:
        """See the contract."""
        runs = [found.run for queue in self._queue.values() for found in queue if not self._positions.is_taken(found.run)]
        oldest = min((run.time_ms for run in runs), default=None)
        age_s = None if oldest is None else max(0.0, time.time() - oldest / 1000)
        return Backlog(bytes=sum(run.bytes for run in runs), rows=sum(run.next - run.sequence for run in runs), oldest_s=age_s, more=True)

    def measure(self) -> Backlog:
        """See the contract."""
        self._learn()
        return self.backlog()

    def notices(self) -> list[str]:
        """See the contract."""
        told, self._told = self._told, []
        return told


@dataclass(frozen=True, slots=True)
class _Found:
    """A run and where the index names it."""

    run: StoredRun
    segment: str
    place: int


class _TopicIndex:
    """The index of a channel in Kafka, with the interface of `SegmentIndexes`. One message has several runs; the place is its offset."""

    def __init__(self, node: str, channel: Mapping[str, Any]) -> None:
        from scribengin.connectors.agents.kafka import TopicTail, index_topic, make_topics

        make_topics(channel, node)
        self._tail = TopicTail(node, channel, index_topic(channel["topic"]))
        self.read_to: dict[str, int] = {}

    def read_new(self) -> Iterator[tuple[str, int, StoredRun]]:
        from scribengin.connectors.agents.kafka import runs_in

        self._tail.offset = max(self._tail.offset, self.read_to.get("index", 0))
        for message in self._tail.read_new():
            for run in runs_in(message):
                yield "index", message.offset(), run
            self.read_to["index"] = message.offset() + 1

    def forget(self, names: Iterable[str]) -> None:
        """Nothing: Kafka deletes by age."""


def _index_of(node: str, channel: Mapping[str, Any]) -> Any:
    if channel["kind"] == "kafka":
        return _TopicIndex(node, channel)
    from scribengin.connectors.agents.folder import SegmentIndexes

    return SegmentIndexes(Path(channel["path"]))


def _stream(group: list[tuple[_Found, int]]) -> SourceStream:
    agents = list(dict.fromkeys(found.run.key for found, _ in group))
    gateways = list(dict.fromkeys(found.run.gateway for found, _ in group))
    runs = [
        [agents.index(found.run.key), begin, found.run.next, gateways.index(found.run.gateway), found.run.time_ms, *found.run.place]
        for found, begin in group
    ]
    first, last = group[0], group[-1]
    label = f"{first[0].run.agent}[{first[1]}:{first[0].run.next}]"
    if last is not first:
        label += f" to {last[0].run.agent}[{last[1]}:{last[0].run.next}]"
    size = sum(found.run.bytes for found, _ in group)
    rows = sum(found.run.next - begin for found, begin in group)
    return SourceStream(label, {"agents": [list(key) for key in agents], "gateways": gateways, "runs": runs}, bytes=size, rows=rows)


def _station(head: FrameHead, ordinal: int, agent: str, incarnation: str, gateway: str, stored_ms: int) -> dict[str, Any]:
    """Where a record of a frame was read, and who took it on."""
    origin, one_line_each = head.origin, not head.origin.lines or head.origin.lines == head.count
    return {
        "host": origin.host,
        "file": origin.file,
        "line": origin.line + ordinal if origin.line and one_line_each else origin.line,
        "agent": agent,
        "incarnation": incarnation,
        "number": head.sequence + ordinal,
        "read_at": _moment(head.time_ms),
        "gateway": gateway,
        "stored_at": _moment(stored_ms),
    }


def _moment(time_ms: int) -> str:
    return (_EPOCH + dt.timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class FrameLines(LineBlock):
    """The lines of one frame."""

    head: FrameHead | None = None
    agent: str = ""
    incarnation: str = ""


@dataclass(slots=True)
class FrameSpans(SpanBlock):
    """The records of one frame, which may have line feeds in them."""

    head: FrameHead | None = None
    agent: str = ""
    incarnation: str = ""


@dataclass(slots=True)
class FrameJson(JsonBlock):
    """The JSON records of one frame, which may have line feeds in them."""

    head: FrameHead | None = None
    agent: str = ""
    incarnation: str = ""


def _block_of(head: FrameHead, frames: bytes, found: Any, agent: str, incarnation: str, format: str) -> Block:
    try:
        raw = payload_of(frames, found)
    except BadFrame as error:
        raise SourceError(
            f"a frame of agent {agent} cannot be read: {error}",
            remedy="restore the channel from a backup; until then nothing is read, so that no record is skipped",
            code="data-loss",
        ) from error
    file, line = f"{agent}:{head.origin.file}", head.origin.line or None
    if head.kind == "too_long":
        size = head.origin.end - head.origin.offset
        message = f"the record has {size:,} bytes, more than `max_record`; it was not sent, and is still in the file"
        return DamageBlock(file, "too-long", message, head.origin.offset, line, raw)
    about = {"head": head, "agent": agent, "incarnation": incarnation}
    if head.mark == LINE_FEED:
        block = FrameLines(file, raw, head.origin.offset, line, end=AUTO, **about)  # type: ignore[arg-type]
        block.has_lines(head.count)
        return block
    ends, width, at = [], len(head.mark), 0
    while (at := raw.find(head.mark, at)) >= 0:
        ends.append(at)
        at += width
    starts = [0, *(end + width for end in ends[:-1])]
    if format == "json":
        made = JsonBlock.of(file, raw, head.origin.offset, line or 1, starts, ends)
        return FrameJson(file, made.data, made.offset, line, content=raw, starts=starts, ends=ends, **about)  # type: ignore[arg-type]
    return FrameSpans(file, raw, head.origin.offset, line, content=raw, starts=starts, ends=ends, **about)  # type: ignore[arg-type]


@dataclass(slots=True)
class OriginDecoder:
    """Decodes frames, with columns of `metadata`: column → one of `_PARTS`. Raises ValueError for columns that do not fit."""

    format: str
    schema: Schema
    options: Mapping[str, Any]
    parts: Mapping[str, str]
    structs: Callable[[Block], Structs] | None = None
    _inner: Decoder = field(init=False)

    def __post_init__(self) -> None:
        for name, part in self.parts.items():
            if name not in self.schema.names:
                raise ValueError(
                    f'metadata names the column "{name}", which the schema does not have; it has {", ".join(self.schema.names)}'
                )
            asked = self.schema[name].type
            if asked.name not in _PARTS[part]:
                raise ValueError(f'the column "{name}" is {asked}; {part} must be {" or ".join(_PARTS[part])}')
        own = Schema(tuple(each for each in self.schema.fields if each.name not in self.parts))
        self._inner = decoder_for(self.format, own, self.options)

    def rows(self, block: Block) -> DecodedRows:
        """The records as dicts with exactly the columns of the schema."""
        found = self._inner.rows(block)
        columns = {name: self._values(block, part, found.ordinals) for name, part in self.parts.items()}
        names = self.schema.names
        rows = []
        for number, row in enumerate(found.rows):
            whole = row | {name: values[number] for name, values in columns.items()}
            rows.append({name: whole[name] for name in names})
        return DecodedRows(rows, found.ordinals, found.bad, found.skipped)

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        found = self._inner.columns(block)
        form = arrow_schema(self.schema)
        arrays = []
        for column in form:
            part = self.parts.get(column.name)
            if part is None:
                arrays.append(found.batch.column(column.name))
            else:
                values = self._values(block, part, found.ordinals)
                arrays.append(pa.array([list(each.items()) for each in values] if part == "tags" else values, column.type))
        return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=form), found.ordinals, found.bad, found.skipped)

    def _values(self, block: Block, part: str, ordinals: Sequence[int]) -> Sequence[Any]:
        """The values of a part for these records."""
        if not isinstance(block, FrameLines | FrameSpans | FrameJson) or block.head is None:
            return [None] * len(ordinals)  # a replayed dead letter: its frame is not known any more
        head = block.head
        match part:
            case "line" | "offset":
                at = np.asarray(ordinals, np.int64)
                found = block.line_numbers(at) if part == "line" else block.offsets(at)
                return [None] * len(ordinals) if found is None else found.tolist()
            case "number":
                return [head.sequence + ordinal for ordinal in ordinals]
        fixed = {
            "agent": block.agent,
            "incarnation": block.incarnation,
            "host": head.origin.host,
            "file": head.origin.file,
            "read_at": _EPOCH + dt.timedelta(milliseconds=head.time_ms),
            "tags": head.origin.tags,
        }
        return [fixed[part]] * len(ordinals)
