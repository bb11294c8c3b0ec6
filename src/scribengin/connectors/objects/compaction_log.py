"""The compaction runs of a store: committed segments that one large object now replaces.

    <url>/_scribengin/<lineage>/hidden/<key>           segments that wait for a compactor, of a sink whose readers list
    <url>/_scribengin/<lineage>/merges/…               one record per run, put-if-absent; see `core.numbered_log`
    <url>/_scribengin/<lineage>/merging/<turn>/<key>   an empty object: a compactor is about to write the key, or has written it

The record of a run names each new object and the segments whose rows it contains, which do not count from then on. So a reader that reads
first the manifests and then the runs sees each row once. The record also names the completion markers of closed folders by time. Any number
of compactors may work concurrently: of two with the same number one is rejected, discards its output, and continues from the recorded
state. A run's output is made visible before the next run is recorded, so only the newest run can be unfinished. Segments are deleted by a
later run, when readers that had read their names are finished.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.compaction_state import NOWHERE, Open, folder_of
from scribengin.connectors.objects.manifests import DATA, INTERNAL, Manifests, Notes
from scribengin.core.log_storage import StoreShelf
from scribengin.core.numbered_log import NumberedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.core.store import Store


_ROOT = re.compile(rf"{INTERNAL}/[^/]+/hidden/|{DATA}/")


def hidden_root(lineage: str) -> str:
    """Prefix of the keys of segments that wait for a compactor."""
    return f"{INTERNAL}/{lineage}/hidden/"


@dataclass(slots=True)
class ObjectFrontier:
    """The state after a compaction run. A segment's position is (Batch, index in its manifest); in a folder segments are merged in the
    order of their positions."""

    low: int = 0
    """Batches below this number have no waiting segments any more"""
    done: dict[str, tuple[int, int]] = field(default_factory=dict)
    """folder → the last position that no longer waits, if that is not below `low`"""
    cleared: int = -1
    """segments that were merged by runs up to this one are deleted"""
    scanned: int = -1
    """Batches up to this one are counted in `open`"""
    open: Mapping[str, Open] = field(default_factory=dict)
    """folder by time → contents that no completion marker counts, for sinks that close folders; see `objects.retention`"""
    ended: bool = False
    """True if another lineage writes there now, and has taken over `open`: this one closes no folders any more"""

    @staticmethod
    def of(turn: Mapping[str, Any] | None) -> ObjectFrontier:
        """The state after a compaction run; None: before the first run."""
        if turn is None:
            return ObjectFrontier()
        body = turn["frontier"]
        done = {folder: (batch, nth) for folder, (batch, nth) in body["done"].items()}
        open_ = {folder: Open(*each) for folder, each in body.get("open", {}).items()}
        return ObjectFrontier(body["low"], done, body["cleared"], body.get("scanned", -1), open_, body.get("ended", False))

    def as_json(self) -> dict[str, Any]:
        """The form in a record."""
        done = {folder: list(place) for folder, place in self.done.items()}
        closing = {"scanned": self.scanned, "open": {folder: list(each) for folder, each in self.open.items()}, "ended": self.ended}
        said = {"low": self.low, "done": done, "cleared": self.cleared}
        return said | (closing if self.ended or self.scanned >= 0 else {})

    def is_done(self, folder: str, place: tuple[int, int]) -> bool:
        """True if the segment at that position no longer waits."""
        return place[0] < self.low or place <= self.done.get(folder, NOWHERE)


class CompactionLog:
    """The compaction runs of one lineage at one place."""

    def __init__(self, store: Store, lineage: str) -> None:
        top = f"{INTERNAL}/{lineage}"
        self.log = NumberedLog(Path(top, "merges"), "turn", StoreShelf(store))
        self.notes = Notes(store, f"{top}/merging")
        """announced keys of compactors, by run"""

    def newest(self) -> tuple[int, Mapping[str, Any] | None]:
        """The number and the record of the newest run; (-1, None) if there is none."""
        number = self.log.newest()
        return (-1, None) if number is None else (number, self.log.read(number))

    def outputs(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The number of the run and its entry, for each object that runs made, in the order of creation."""
        return ((number, output) for number, turn in self.log.since() for output in turn["outputs"])

    def markers(self) -> Iterator[str]:
        """The keys of the completion markers of closed folders."""
        return (marker["key"] for _, turn in self.log.since() for marker in turn.get("closed", ()))


@dataclass(frozen=True, slots=True)
class Object:
    """One committed object."""

    batch: int
    """the Batch of its rows; for a merged object the last of them"""
    said: Mapping[str, Any]


@dataclass(slots=True)
class CountedManifests:
    """The committed objects of a lineage: its manifests, with its compaction runs after them."""

    records: list[tuple[int, Mapping[str, Any]]]
    outputs: list[Mapping[str, Any]]
    replaced: set[str]
    """the keys of the segments that the outputs hold"""

    @staticmethod
    def of(store: Store, lineage: str) -> CountedManifests:
        """The current state. If the objects of the newest manifest or run are not visible yet, because its writer is still revealing them,
        they are left out."""
        records = list(
            Manifests(store, lineage).committed()
        )  # before the compaction runs: objects that they merge meanwhile are in the outputs
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
        """The committed objects. Each row is in exactly one of them; they are in the order of the Batches of their first rows."""
        found = [(output["inputs"][0][0], Object(output["inputs"][-1][0], output)) for output in self.outputs]
        found += [(number, Object(number, file)) for number, r in self.records for file in r["files"] if file["name"] not in self.replaced]
        return (each for _, each in sorted(found, key=lambda pair: pair[0]))


def named(store: Store, lineage: str) -> Iterator[str]:
    """The keys of all objects that manifests and runs name, including merged segments, and completion markers."""
    for _, record in Manifests(store, lineage).committed():
        yield from (file["name"] for file in record["files"])
    turns = CompactionLog(store, lineage)
    yield from (output["name"] for _, output in turns.outputs())
    yield from turns.markers()


def root_of(name: str) -> str:
    """The prefix before the partition folders of an object: that of hidden objects, that of objects for readers that use manifests, or
    empty."""
    found = _ROOT.match(name)
    return found[0].rstrip("/") if found else ""


def place_of(name: str) -> str:
    """The partition folder of an object, with its `/`, wherever it is stored; empty if there is none."""
    found = _ROOT.match(name)
    return folder_of(name[found.end() :] if found else name)


def is_visible(store: Store, files: Iterable[Mapping[str, Any]]) -> bool:
    """True if the uploads of these objects of a manifest or a run are completed."""
    return all(store.head(file["name"]) is not None for file in files if "upload" in file)
