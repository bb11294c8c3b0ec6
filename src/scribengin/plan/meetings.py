"""Where flows meet: one writes what another reads. They need not know of each other; together they are one workflow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.globs import WILDCARD, glob_of
from scribengin.connectors.kafka.options import topics_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.spec.model import Flow, Sink, Source


@dataclass(frozen=True, slots=True)
class Meeting:
    """`sink` of flow `feeding` writes where `source` of flow `reading` reads."""

    feeding: str
    sink: str
    reading: str
    source: str


def meetings(flows: Sequence[Flow]) -> tuple[Meeting, ...]:
    """Every one between two of the flows, in their order: a topic of one cluster, or a folder."""
    return tuple(
        Meeting(feeding.name, sink.id, reading.name, source.id)
        for feeding in flows
        for sink in feeding.sinks.values()
        for reading in flows
        if reading is not feeding
        for source in reading.sources.values()
        if _meet(feeding, sink, reading, source)
    )


def circle(flows: Sequence[Flow], found: Sequence[Meeting]) -> tuple[Meeting, ...]:
    """Meetings by which flows feed each other in a circle, along the stream; empty where there is none."""
    ways: list[tuple[Meeting, ...]] = [(each,) for flow in flows for each in found if each.feeding == flow.name]
    while ways:
        way = ways.pop(0)
        if way[-1].reading == way[0].feeding:
            return way
        passed = {each.feeding for each in way}
        ways += [(*way, each) for each in found if each.feeding == way[-1].reading and each.feeding not in passed]
    return ()


def root_of(flow: Flow, path: Any) -> Path | None:
    """The folder that an option `path` means; of a glob, the part before its first wildcard. None for what is no path."""
    if not isinstance(path, str) or "://" in path:
        return None
    return flow.folder.joinpath(glob_of(Path(path))[0]).resolve()


def is_read(flow: Flow, path: Any, written: Path) -> bool:
    """Whether a source with that `path` reads what is written to the folder, or some of it."""
    read = root_of(flow, path)
    if read is None:
        return False
    deep = not WILDCARD.search(path) or "**" in path
    return written == read or read.is_relative_to(written) or (deep and written.is_relative_to(read))


def _meet(feeding: Flow, sink: Sink, reading: Flow, source: Source) -> bool:
    if sink.type == source.type == "kafka":
        return sink.options.get("bootstrap") == source.options.get("bootstrap") and _reads(source, str(sink.options.get("topic", "")))
    written, text = root_of(feeding, sink.options.get("path")), source.options.get("path")
    return written is not None and is_read(reading, text, written)


def _reads(source: Source, topic: str) -> bool:
    names = [*source.options.get("topics", ()), *source.options.get("assign", {})]
    written = topics_pattern(topic)
    pattern = source.options.get("pattern")
    return any(re.fullmatch(written, name) for name in names) or bool(pattern and re.fullmatch(str(pattern), topic))
