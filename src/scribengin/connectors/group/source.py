"""The source of a channel of an edge with a group: rows are read from every member, each member's rows in their own order.

A stream names its member: its label begins with the member's name, and its place is `{"member": …, "of": the member's own place}`. So the
position in each member is in the source's log like any other. The source waits for an unavailable member while it continues with the
others.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors.abilities import holds_back, measures_backlog, reports_position, verifies
from scribengin.connectors.contract import Backlog, BatchLimits, SourceStream
from scribengin.connectors.group.contract import DOWN
from scribengin.connectors.group.health import GroupHealth
from scribengin.core.errors import SourceError, Unreachable, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scribengin.connectors.contract import ConnectorContext, SourceReader
    from scribengin.connectors.group.contract import MemberSource
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block, Decoder

_DIVIDED = ("max_files", "max_bytes", "max_rows")
_PASSES = (*DOWN, SourceError)
"""errors after which the member is checked: a SourceError of an unavailable member is not a real error"""


class GroupSource:
    """The source of a group. Picklable. `sources`: member → the source that reads from it."""

    handed_over = True

    def __init__(self, place: ConnectorContext, sources: Mapping[str, MemberSource]) -> None:
        self.node = place.node
        self._sources = dict(sources)
        self._any = next(iter(self._sources.values()))
        self.schema: Schema | None = self._any.schema

    def resolve_schema(self) -> Schema:
        """See the contract."""
        return self._any.resolve_schema()

    def decoder(self) -> Decoder:
        """A decoder for the blocks of any member."""
        return self._any.decoder()

    def reader(self) -> GroupReader:
        """A fresh reader; this makes no request to a member."""
        return GroupReader(self.node, self._sources)

    def read(self, stream: SourceStream) -> Iterator[Block]:
        """The blocks of a stream, from its member. Raises Unreachable if the member is unavailable."""
        name = stream.place["member"]
        source = self._member(name)
        try:
            yield from source.read(_own(stream))
        except _PASSES as error:
            reason = away(source, error)
            if reason is None:
                raise
            raise Unreachable(
                f'source "{self.node}": {stream.label} waits for member "{name}": {text_of(reason)}',
                remedy=f"make {name} available; the Batch that reads there is run again",
                node=self.node,
            ) from error

    def _member(self, name: str) -> MemberSource:
        if name not in self._sources:
            raise SourceError(
                f'source "{self.node}": an unfinished entry must be read from member "{name}", which is not in its group any more',
                remedy=f"add {name} to the group again",
                code="group-changed",
                node=self.node,
            )
        return self._sources[name]


class GroupReader:
    """The readers of the members that were available, and the log entries of the others. `now` returns seconds of a monotonic clock."""

    def __init__(self, node: str, sources: Mapping[str, MemberSource], *, now: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._sources = sources
        self._now = now
        self._health = GroupHealth(dict.fromkeys(sources, 1.0))
        self._readers: dict[str, SourceReader] = {}
        self._logged: dict[str, list[list[SourceStream]]] = {name: [] for name in sources}
        """member → log entries that its reader has not applied yet, because there is no reader"""
        self._begun: set[str] = set()
        """members whose rows were handed out"""
        self._gone: set[str] = set()
        """names in the log that are not members any more"""
        self._told: list[str] = []

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Give each member its own part of each entry."""
        for streams in entries:
            parts: dict[str, list[SourceStream]] = {}
            for stream in streams:
                parts.setdefault(stream.place["member"], []).append(_own(stream))
            for name, part in parts.items():
                self._begun.add(name)
                if name in self._readers:
                    self._readers[name].restore([part])
                elif name in self._logged:
                    self._logged[name].append(part)
                elif name not in self._gone:
                    self._gone.add(name)
                    self._told.append(f"{self._node}: member {name} is not in the group any more: its unread rows are not read")

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next streams of every member that answers; the limits are divided among the members."""
        share = _share(limits, len(self._sources))
        found: list[SourceStream] = []
        left = []
        for name in self._sources:
            if self._health.is_open(name, self._now()):
                found += self._split(name, share, final=final)
            else:
                left.append(name)
        if final and not found:  # at the end of the data every member is checked
            for name in left:
                found += self._split(name, share, final=final)
        return found

    def finish(self) -> None:
        """See FinishingReader."""
        if out := self._health.out(self._now()):
            names = "; ".join(f"{each.member}: {each.reason}" for each in out)
            raise Unreachable(
                f'source "{self._node}": members of its group are unavailable, and their backlog is not read: {names}',
                remedy="make them available, and run again: the flow continues from its last position",
                code="group-waits",
                node=self._node,
            )

    def verify(self, streams: Sequence[SourceStream]) -> list[SourceStream]:
        """See VerifyingReader. Raises Unreachable if a required member is unavailable."""
        checked: list[SourceStream] = []
        for name in dict.fromkeys(stream.place["member"] for stream in streams):
            part = [stream for stream in streams if stream.place["member"] == name]
            if name in self._sources:
                try:
                    reader = self._opened(name)
                    if verifies(reader):
                        part = [_of(name, each) for each in reader.verify([_own(stream) for stream in part])]
                except _PASSES as error:
                    reason = away(self._sources[name], error)
                    if reason is None:
                        raise
                    raise Unreachable(
                        f'source "{self._node}": rows assigned from member "{name}" wait for it: {text_of(reason)}',
                        remedy=f"make {name} available",
                        code="group-waits",
                        node=self._node,
                    ) from error
            checked += part
        return checked

    def committed(self, streams: Sequence[SourceStream], *, query: str) -> None:
        """See ReportingReader."""
        for name in self._sources:
            part = [_own(stream) for stream in streams if stream.place["member"] == name]
            if not part or (name not in self._readers and not self._health.is_open(name, self._now())):
                continue
            try:
                reader = self._opened(name)
            except DOWN as error:
                self._health.failed(name, self._now(), text_of(error))
                continue
            if reports_position(reader):
                reader.committed(part, query=query)

    def hold(self, streams: Sequence[SourceStream]) -> None:
        """See HoldingReader; applies to members with an open reader."""
        for name, reader in self._readers.items():
            if holds_back(reader):
                reader.hold([_own(stream) for stream in streams if stream.place["member"] == name])

    def let_go(self, streams: Sequence[SourceStream]) -> None:
        """See HoldingReader."""
        for name, reader in self._readers.items():
            if holds_back(reader):
                reader.let_go([_own(stream) for stream in streams if stream.place["member"] == name])

    def backlog(self) -> Backlog:
        """The backlog of all members; for an unavailable one, the backlog of the last poll."""
        known = [reader.backlog() for reader in self._readers.values()]
        sums = {name: _sum([getattr(each, name) for each in known]) for name in ("files", "bytes", "rows")}
        ages = [each.oldest_s for each in known if each.oldest_s is not None]
        return Backlog(**sums, oldest_s=max(ages, default=None), more=any(each.more for each in known))

    def measure(self) -> Backlog:
        """See `MeasuringReader`. Measures the available members that support it; the backlog of the others is unknown."""
        for name in self._sources:
            try:
                if measures_backlog(reader := self._opened(name)):
                    reader.measure()
            except DOWN as error:
                self._health.failed(name, self._now(), text_of(error))
        return self.backlog()

    def notices(self) -> list[str]:
        """The notices of all members, and which members became unavailable or available."""
        told, self._told = self._told, []
        for name, reader in self._readers.items():
            told += [f"member {name}: {sentence}" for sentence in reader.notices()]
        return told

    # --- pieces ---

    def _split(self, name: str, limits: BatchLimits, *, final: bool) -> list[SourceStream]:
        was_healthy, source = self._health.is_healthy(name), self._sources[name]
        try:
            reader = self._opened(name)
            if not was_healthy or final:
                source.check_ready(begun=name in self._begun)
        except DOWN as error:
            self._health.failed(name, self._now(), text_of(error))
            if was_healthy:
                self._told.append(
                    f"{self._node}: member {name} is unavailable; its backlog is read when it is available again: {text_of(error)}"
                )
            return []
        try:
            streams = reader.split(limits, final=final)
        except _PASSES as error:
            reason = away(source, error, begun=name in self._begun)
            if reason is None:
                raise
            # the reader may count streams as handed out that it has not returned: only a fresh one, with the log applied, is reliable
            raise Unreachable(
                f'source "{self._node}": member "{name}" became unavailable: {text_of(reason)}',
                remedy="the query restarts automatically, and continues with the other members",
                node=self._node,
            ) from error
        if not was_healthy:
            self._health.succeeded(name)
            self._told.append(f"{self._node}: member {name} is available again; reading continues")
        if streams:
            self._begun.add(name)
        return [_of(name, stream) for stream in streams]

    def _opened(self, name: str) -> SourceReader:
        """The member's reader, with all its log entries applied; opened when it is first needed."""
        if name not in self._readers:
            source = self._sources[name]
            source.check_ready(begun=name in self._begun)
            reader = source.reader()
            reader.restore(self._logged[name])
            self._readers[name], self._logged[name] = reader, []
        return self._readers[name]


def away(source: MemberSource, error: Exception, *, begun: bool = True) -> Exception | None:
    """Why the member does not answer.

    Args:
        source: The member's source.
        error: The error of the call that failed.
        begun: Rows were read from the member before.

    Returns:
        The error that shows that the member is unavailable; None if it answers: then `error` is the cause.
    """
    if isinstance(error, DOWN):
        return error
    try:
        source.check_ready(begun=begun)
    except DOWN as reason:
        return reason
    return None


def _own(stream: SourceStream) -> SourceStream:
    """The stream as the member itself handed it out."""
    member: str = stream.place["member"]
    return replace(stream, label=stream.label.removeprefix(f"{member}:"), place=stream.place["of"])


def _of(member: str, stream: SourceStream) -> SourceStream:
    return replace(stream, label=f"{member}:{stream.label}", place={"member": member, "of": dict(stream.place)})


def _share(limits: BatchLimits, members: int) -> BatchLimits:
    given = {name: amount for name in _DIVIDED if (amount := getattr(limits, name)) is not None}
    return replace(limits, **{name: max(1, amount // members) for name, amount in given.items()})


def _sum(amounts: Sequence[Any]) -> Any:
    return None if not amounts or None in amounts else sum(amounts)
