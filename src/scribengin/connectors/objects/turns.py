"""What rollers of a store have done: committed segments that one large object stands for now, turn by turn.

    <url>/_scribengin/<lineage>/hidden/<key>           segments that wait for a roller, of a sink whose readers list
    <url>/_scribengin/<lineage>/merges/…               one record a turn, put-if-absent; see `core.numbered_log`
    <url>/_scribengin/<lineage>/merging/<turn>/<key>   says, without content, that a roller is about to write the key, or has

A turn names each object that was made and the segments whose rows it holds: from then on these count no more. So a reader who takes the
manifests first and the turns then sees each row once. It names the markers of folders by time that are closed, too. Any number of rollers
may be at it: of two with the same number one is late, throws away what it has made, and goes on from what stands there. What a turn makes
visible is finished before the next is put, so only the newest can be unfinished; segments are deleted by a later turn, when readers that
had taken their names are done.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.roll_state import NOWHERE, Open, folder_of
from scribengin.connectors.objects.manifests import DATA, INTERNAL, Manifests, Notes
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.shelf import StoreShelf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.core.store import Store

_ROOT = re.compile(rf"{INTERNAL}/[^/]+/hidden/|{DATA}/")


def hidden_root(lineage: str) -> str:
    """What the keys of segments begin with that wait for a roller."""
    return f"{INTERNAL}/{lineage}/hidden/"


@dataclass(slots=True)
class ObjectFrontier:
    """What is done after a turn. A segment's place is (Batch, index in its manifest); in a folder segments are merged in the order of their
    places."""

    low: int = 0
    """nothing of Batches below waits for a roller any more"""
    done: dict[str, tuple[int, int]] = field(default_factory=dict)
    """folder → the last place that waits no more, where that is not below `low`"""
    cleared: int = -1
    """segments that turns up to this one have merged are deleted"""
    scanned: int = -1
    """Batches up to this one are counted in `open`"""
    open: Mapping[str, Open] = field(default_factory=dict)
    """folder by time → what no marker counts there, of sinks that close such; see `closing`"""
    ended: bool = False
    """another lineage writes there now, and has taken `open` over: this one closes no folder any more"""

    @staticmethod
    def of(turn: Mapping[str, Any] | None) -> ObjectFrontier:
        """After that turn; None: before the first."""
        if turn is None:
            return ObjectFrontier()
        body = turn["frontier"]
        done = {folder: (batch, nth) for folder, (batch, nth) in body["done"].items()}
        open_ = {folder: Open(*each) for folder, each in body.get("open", {}).items()}
        return ObjectFrontier(body["low"], done, body["cleared"], body.get("scanned", -1), open_, body.get("ended", False))

    def as_json(self) -> dict[str, Any]:
        """The form in a turn."""
        done = {folder: list(place) for folder, place in self.done.items()}
        closing = {"scanned": self.scanned, "open": {folder: list(each) for folder, each in self.open.items()}, "ended": self.ended}
        said = {"low": self.low, "done": done, "cleared": self.cleared}
        return said | (closing if self.ended or self.scanned >= 0 else {})

    def is_done(self, folder: str, place: tuple[int, int]) -> bool:
        """Whether the segment of that place waits no more."""
        return place[0] < self.low or place <= self.done.get(folder, NOWHERE)


class CompactionLog:
    """Of one lineage at one place."""

    def __init__(self, store: Store, lineage: str) -> None:
        top = f"{INTERNAL}/{lineage}"
        self.log = NumberedLog(Path(top, "merges"), "turn", StoreShelf(store))
        self.notes = Notes(store, f"{top}/merging")
        """of rollers, by turn"""

    def newest(self) -> tuple[int, Mapping[str, Any] | None]:
        """(its number, the turn), or (-1, None)."""
        number = self.log.newest()
        return (-1, None) if number is None else (number, self.log.read(number))

    def outputs(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """(turn, what it says of an object), in the order in which they were made."""
        return ((number, output) for number, turn in self.log.since() for output in turn["outputs"])

    def markers(self) -> Iterator[str]:
        """The keys of the markers of folders that were closed."""
        return (marker["key"] for _, turn in self.log.since() for marker in turn.get("closed", ()))


@dataclass(frozen=True, slots=True)
class Object:
    """One that counts."""

    batch: int
    """that of its rows; the last of these where it was merged"""
    said: Mapping[str, Any]


@dataclass(slots=True)
class CountedManifests:
    """What counts of a lineage: its manifests, with its turns behind them."""

    records: list[tuple[int, Mapping[str, Any]]]
    outputs: list[Mapping[str, Any]]
    replaced: set[str]
    """the keys of the segments that the outputs hold"""

    @staticmethod
    def of(store: Store, lineage: str) -> CountedManifests:
        """As it is now. What is being made visible at this moment, by who put the newest manifest or turn, is left out where it is not."""
        records = list(Manifests(store, lineage).committed())  # before the turns: what they merge meanwhile is in the outputs
        turns = CompactionLog(store, lineage)
        outputs = list(turns.outputs())
        newest = outputs[-1][0] if outputs else -1
        last = [output for number, output in outputs if number == newest]
        if not is_visible(store, last):
            outputs = [(number, output) for number, output in outputs if number != newest]
        merged = {name for _, output in outputs for _, _, name, _ in output["inputs"]}
        if records and not is_visible(store, [file for file in records[-1][1]["files"] if file["name"] not in merged]):
            records.pop()  # its driver was killed in between: the next one makes it visible
        return CountedManifests(records, [output for _, output in outputs], merged)

    def objects(self) -> Iterator[Object]:
        """Each row is in one of them, in the order of the Batches of their first rows."""
        found = [(output["inputs"][0][0], Object(output["inputs"][-1][0], output)) for output in self.outputs]
        found += [(number, Object(number, file)) for number, r in self.records for file in r["files"] if file["name"] not in self.replaced]
        return (each for _, each in sorted(found, key=lambda pair: pair[0]))


def named(store: Store, lineage: str) -> Iterator[str]:
    """The keys of all objects that manifests and turns name, segments too that were merged, and markers."""
    for _, record in Manifests(store, lineage).committed():
        yield from (file["name"] for file in record["files"])
    turns = CompactionLog(store, lineage)
    yield from (output["name"] for _, output in turns.outputs())
    yield from turns.markers()


def root_of(name: str) -> str:
    """Below what the partitions' folders of an object begin: hidden ones, those that are for readers by manifests, or nothing."""
    found = _ROOT.match(name)
    return found[0].rstrip("/") if found else ""


def place_of(name: str) -> str:
    """The partition's folder of an object, with its `/`, wherever it lies; empty for none."""
    found = _ROOT.match(name)
    return folder_of(name[found.end() :] if found else name)


def is_visible(store: Store, files: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the uploads are completed of these objects of a manifest or a turn."""
    return all(store.head(file["name"]) is not None for file in files if "upload" in file)
