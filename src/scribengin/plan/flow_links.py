"""Connections between flows: one writes data that another reads. They need not refer to each other; together they are one workflow."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.files.globs import WILDCARD, glob_of
from scribengin.core.options import loaded
from scribengin.plan.groups import placements
from scribengin.registry.flow_ends import ExternalPlace, Outside, SourceLevel, Waters
from scribengin.spec.model import Depth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.core.options import NodeType
    from scribengin.spec.model import Flow, Sink, Source


_WILD = re.compile(r"[^A-Za-z0-9._-]")
"""characters that topic names cannot have"""
_REPEATED = re.compile(r"\)[*+{]")
_NESTED = ("folder", "objects")
"""kinds of locations that can be inside each other"""
_MOST_REPEATS = 3
"""the limit for a pattern that is matched against names: masters do the matching, and some patterns take very long"""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A connection: `sink` of flow `feeding` writes where `source` of flow `reading` reads. `place` is the location, for people."""

    feeding: str
    sink: str
    reading: str
    source: str
    place: str = ""


def meetings(flows: Sequence[Flow]) -> tuple[Meeting, ...]:
    """Every connection between two of the flows, in their order: a topic of one cluster, a folder, objects, a table."""
    index = MeetingIndex()
    for flow in flows:
        index.put(flow.name, outside_of(flow))
    ends = [(flow.name, sink) for flow in flows for sink in flow.sinks]
    order = {end: number for number, end in enumerate(ends)}
    return tuple(sorted(index.meetings(), key=lambda each: order[each.feeding, each.sink]))


def circle(flows: Iterable[str], found: Sequence[Meeting]) -> tuple[Meeting, ...]:
    """The shortest cycle of connections by which one of these flows reads its own output; empty if there is none."""
    behind: dict[str, list[Meeting]] = defaultdict(list)
    for each in found:
        behind[each.feeding].append(each)
    for flow in flows:
        came: dict[str, tuple[Meeting, ...]] = {}
        ways: list[tuple[Meeting, ...]] = [(each,) for each in behind[flow]]
        while ways:
            way = ways.pop(0)
            if way[-1].reading == flow:
                return way
            if way[-1].reading not in came:
                came[way[-1].reading] = way
                ways += [(*way, each) for each in behind[way[-1].reading]]
    return ()


def way_text(way: Sequence[Meeting]) -> str:
    """`a.sink -> b.source, b.sink -> a.source`."""
    return ", ".join(f"{each.feeding}.{each.sink} -> {each.reading}.{each.source}" for each in way)


def outside_of(flow: Flow) -> Outside:
    """The locations that a flow reads and writes outside of itself."""
    reads = {id_: tuple(_read(flow, source)) for id_, source in flow.sources.items()}
    writes = {id_: tuple(_written(flow, sink)) for id_, sink in flow.sinks.items()}
    return Outside(
        reads={id_: places for id_, places in reads.items() if places},
        writes={id_: places for id_, places in writes.items() if places},
        waters={id_: waters for id_, source in flow.sources.items() if (waters := _waters(source)) is not None},
    )


class MeetingIndex:
    """Finds connections between flows by their locations. The cost for a flow does not depend on the number of unconnected flows."""

    def __init__(self) -> None:
        self._outside: dict[str, Outside] = {}
        self._of: dict[str, set[Meeting]] = {}
        """flow → its connections, in both directions"""
        self._writers: dict[_Key, set[_End]] = defaultdict(set)
        self._readers: dict[_Key, set[_End]] = defaultdict(set)

    def put(self, flow: str, outside: Outside) -> bool:
        """Set the locations that the flow reads and writes now. True if they changed."""
        if self._outside.get(flow) == outside:
            return False
        self.drop(flow)
        self._outside[flow] = outside
        self._of[flow] = set()
        for source, places in outside.reads.items():
            for place in places:
                end = _End(flow, source, place)
                for key in _keys(place):
                    self._readers[key].add(end)
                for key in _sought_by_reader(place):
                    for other in self._writers.get(key, ()):
                        self._join(other, end)
        for sink, places in outside.writes.items():
            for place in places:
                end = _End(flow, sink, place)
                for key in _keys(place):
                    self._writers[key].add(end)
                for key in _sought_by_writer(place):
                    for other in self._readers.get(key, ()):
                        self._join(end, other)
        return True

    def drop(self, flow: str) -> None:
        """Remove a flow."""
        outside = self._outside.pop(flow, None)
        if outside is None:
            return
        for ends, places in ((self._readers, outside.reads), (self._writers, outside.writes)):
            for id_, each in places.items():
                for place in each:
                    for key in _keys(place):
                        ends[key].discard(_End(flow, id_, place))
                        if not ends[key]:
                            del ends[key]
        for meeting in self._of.pop(flow):
            for name in {meeting.feeding, meeting.reading} - {flow}:
                self._of[name].discard(meeting)

    def flows(self) -> tuple[str, ...]:
        """The names of all flows in the index, sorted."""
        return tuple(sorted(self._outside))

    def outside(self, flow: str) -> Outside:
        """The locations of the flow; empty if it is not in the index."""
        return self._outside.get(flow, Outside())

    def of(self, flow: str) -> tuple[Meeting, ...]:
        """The flow's connections, sorted by the names of both ends."""
        return tuple(sorted(self._of.get(flow, ()), key=_by_names))

    def meetings(self) -> tuple[Meeting, ...]:
        """All connections, sorted by the names of both ends."""
        return tuple(sorted({each for found in self._of.values() for each in found}, key=_by_names))

    def _join(self, writer: _End, reader: _End) -> None:
        if writer.flow == reader.flow or not _meet(writer.place, reader.place):
            return
        # the name on the other side is more precise than a template or a pattern
        place = writer.place if reader.place.many and reader.place.kind == "topic" else reader.place
        if place.kind in _NESTED:
            place = max((writer.place, reader.place), key=lambda each: len(each.at))
        meeting = Meeting(writer.flow, writer.id, reader.flow, reader.id, place.called)
        same = {each for each in self._of[writer.flow] if _by_names(each) == _by_names(meeting)}
        if not same:
            self._of[writer.flow].add(meeting)
            self._of[reader.flow].add(meeting)


@dataclass(frozen=True, slots=True)
class _End:
    flow: str
    id: str
    place: ExternalPlace


_Key = tuple[str, str, str]
"""(kind of the key, folder or server, topic)"""


def _by_names(meeting: Meeting) -> tuple[str, str, str, str]:
    return meeting.feeding, meeting.sink, meeting.reading, meeting.source


def _keys(place: ExternalPlace) -> Iterator[_Key]:
    """The keys under which a location is indexed."""
    if place.kind == "topic":
        for server in place.at.split(","):
            yield ("pattern", server, "") if place.many else ("topic", server, place.topic)
            yield "any topic", server, ""
    elif place.kind == "table":
        yield "table", place.at, place.topic
    else:
        yield place.kind, str(PurePosixPath(place.at)), ""
        for above in PurePosixPath(place.at).parents:
            yield f"below {place.kind}", str(above), ""


def _sought_by_reader(place: ExternalPlace) -> Iterator[_Key]:
    if place.kind == "topic":
        yield from _sought_topics(place)
    elif place.kind == "table":
        yield "table", place.at, place.topic
    else:
        yield from _sought_around(place, below=place.many)


def _sought_by_writer(place: ExternalPlace) -> Iterator[_Key]:
    if place.kind == "topic":
        yield from _sought_topics(place)
    elif place.kind == "table":
        yield "table", place.at, place.topic
    else:
        yield from _sought_around(place, below=True)


def _sought_around(place: ExternalPlace, *, below: bool) -> Iterator[_Key]:
    """The keys of the location itself, of folders that contain it, and, with `below`, of those inside it."""
    at = PurePosixPath(place.at)
    yield from ((place.kind, str(each), "") for each in (at, *at.parents))
    if below:
        yield f"below {place.kind}", str(at), ""


def _sought_topics(place: ExternalPlace) -> Iterator[_Key]:
    for server in place.at.split(","):
        if place.many:
            yield "any topic", server, ""
        else:
            yield "topic", server, place.topic
            yield "pattern", server, ""


def _meet(written: ExternalPlace, read: ExternalPlace) -> bool:
    """True if two locations that were found under one key are connected."""
    if written.kind != read.kind:
        return False
    if written.kind == "table":
        return (written.at, written.topic) == (read.at, read.topic)
    if written.kind in _NESTED:
        return _covers(Path(read.at), Path(written.at), deep=read.many)
    if read.many:  # two patterns cannot be compared for all names: one name is tried
        return _fits(_sample(written.topic) if written.many else written.topic, read.topic)
    return _fits(read.topic, written.topic) if written.many else written.topic == read.topic


def _fits(name: str, pattern: str) -> bool:
    """True if a topic's name matches a pattern. If matching could take very long, or Python cannot parse the pattern, only its literal
    start is compared."""
    if not _REPEATED.search(pattern) and sum(map(pattern.count, "*+{")) <= _MOST_REPEATS:
        try:
            return bool(re.fullmatch(pattern, name))
        except re.error:
            pass
    begin = _WILD.split(pattern.replace("\\.", "").removeprefix("^"), maxsplit=1)[0]
    return bool(begin) and name.startswith(begin)


def _sample(pattern: str) -> str:
    """An example of a name that the pattern of a template matches."""
    return _WILD.sub("", pattern.replace(".*", "x").replace("\\", ""))


def root_of(flow: Flow, path: Any) -> Path | None:
    """The folder of an option `path`; for a glob, the part before its first wildcard. None if the value is not a path."""
    if not isinstance(path, str) or "://" in path:
        return None
    return flow.folder.joinpath(glob_of(Path(path))[0]).resolve()


def is_read(flow: Flow, path: Any, written: Path) -> bool:
    """True if a source with that `path` reads files that are written to the folder, or some of them."""
    read = root_of(flow, path)
    return read is not None and _covers(read, written, deep=_is_deep(path))


def _is_deep(path: str) -> bool:
    return not WILDCARD.search(path) or "**" in path


def _covers(read: Path, written: Path, *, deep: bool) -> bool:
    return written == read or read.is_relative_to(written) or (deep and written.is_relative_to(read))


def _read(flow: Flow, source: Source) -> Iterator[ExternalPlace]:
    path = source.options.get("path")
    if (read := root_of(flow, path)) is not None:
        yield ExternalPlace(kind="folder", at=str(read), many=_is_deep(str(path)))
    else:
        yield from _declared(catalog.source_types().get(source.type), source.options)


def _waters(source: Source) -> Waters | None:
    """Fill in thresholds that are not set: low is half of high, capacity twice."""
    if source.high_water is None and source.capacity is None:
        return None
    high, low, full = (level or Depth() for level in (source.high_water, source.low_water, source.capacity))
    levels: dict[str, dict[str, Any]] = {"high": {}, "low": {}, "capacity": {}}
    for name in ("rows", "bytes", "age_s"):
        begin, end, most = (getattr(level, name) for level in (high, low, full))
        if begin is None and most is None:
            continue
        begin = most if begin is None else begin
        half = begin / 2 if name == "age_s" else begin // 2
        for level, value in (("high", begin), ("low", half if end is None else end), ("capacity", 2 * begin if most is None else most)):
            levels[level][name] = value
    return Waters(**{level: SourceLevel(**values) for level, values in levels.items()})


def _written(flow: Flow, sink: Sink) -> Iterator[ExternalPlace]:
    for _, options in placements(flow, sink):
        if (written := root_of(flow, options.get("path"))) is not None:
            yield ExternalPlace(kind="folder", at=str(written))
        else:
            yield from _declared(catalog.sink_types().get(sink.type), options)


def _declared(declared: NodeType | None, options: Mapping[str, Any]) -> Iterator[ExternalPlace]:
    """The locations that the type declares for these options."""
    if declared is not None and declared.locations:
        for each in loaded(declared.locations)(options):
            yield ExternalPlace(kind=each.kind, at=each.at, topic=each.name, many=each.many)
