"""The flows with an object store as sink, below prefixes of their own."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from harness.faults.flows import DECISIVE, FOLD_EVERY, KINDS
from harness.faults.grounds import Ground, store_places
from harness.faults.reader import Sight, told_to_end, whole_key
from harness.faults.store_flows import ServedFlow
from harness.object_stores import address, options
from scribengin.connectors.objects.reading import committed_at
from scribengin.core import numbered_log
from scribengin.core.errors import SourceError, Unreachable
from scribengin.embedded.objects import ObjectServer
from scribengin.testing.checker import partition_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from harness.faults.grounds import Places
    from harness.faults.outcomes import Life
    from scribengin.connectors.objects.address import ObjectsAddress
    from scribengin.core.store import Store
    from scribengin.testing.records import RecordKey

BY_MANIFEST, LISTED, ROLLED = "files-to-objects", "files-to-objects-listed", "files-to-objects-rolled"
"""`LISTED`: uploads are completed when a Batch is published, and readers list; `ROLLED`: they are completed when objects are merged"""
BY_MANIFEST_DECISIVE = tuple(point for point in DECISIVE if point != "publish.renamed")
ROLLER_POINTS = ("roll.draft.writing", "roll.drafts.written", "roll.record.before", "roll.record.after", "roll.renamed")
"""points that a compaction passes while a flow runs; merged objects are deleted later, when no reader may need them"""
_LOOK_S = 0.1
_FOLDING = Lock()


@dataclass(kw_only=True)
class ObjectFlow(ServedFlow):
    """A flow into prefixes of an existing bucket."""

    server: ObjectServer

    @property
    def listed(self) -> bool:
        """True if readers list."""
        return self.route in (LISTED, ROLLED)

    @property
    def decisive(self) -> tuple[str, ...]:
        """The same as for files; there are points for renames only if readers list."""
        return DECISIVE if self.route == LISTED else BY_MANIFEST_DECISIVE

    def place(self, sink: str) -> ObjectsAddress:
        """The address of a sink's prefix."""
        return address(self.server, sink)

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, str(self.server.folder), sink, *(["listed"] if self.listed else [])

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The rows of all visible objects."""
        place = self.place(sink)
        store = place.open()
        with _folds_as_drivers():
            return [row for key in keys_of(place, store, listed=self.listed) for row in read_object(store, key)]

    @property
    def roll(self) -> str:
        """The sink's options for merging: sizes above those of a few Batches' objects."""
        return f", roll: {{size: {self._kind.rows // 2}KiB, every: 1s}}" if self.route.endswith("-rolled") else ""

    def _output(self, sink: str) -> str:
        given = options(self.server, sink)
        login = ", ".join(f"{name}: {value}" for name, value in given["config"].items())
        by = ", partition_by: [bucket]" if self.partitioned else ""
        visible = (", visible: listing" if self.listed else "") + self.roll
        return f'type: objects, url: "{given["url"]}", endpoint: "{given["endpoint"]}", config: {{{login}}}, format: json{by}{visible}'


@contextmanager
def _folds_as_drivers() -> Iterator[None]:
    """Set the folding interval of manifests to that of the drivers, so that they can be read."""
    with _FOLDING:
        before, numbered_log.CHUNK = numbered_log.CHUNK, FOLD_EVERY
        try:
            yield
        finally:
            numbered_log.CHUNK = before


def keys_of(place: Any, store: Store, *, listed: bool) -> list[str]:
    """The keys of the objects that a reader sees now; empty before anything was written."""
    if listed:
        return [entry.key for entry in store.list() if not entry.key.startswith("_")]
    try:
        return [each.key for each in committed_at(place).objects]
    except SourceError:
        return []


def read_object(store: Store, key: str) -> Iterable[dict[str, Any]]:
    """The rows of a JSON object, with the partition values of its folders. Raises FileNotFoundError."""
    data = store.get(key)
    if data is None:
        raise FileNotFoundError(key)
    beside = partition_values(key.rpartition("/")[0])
    return [json.loads(line) | beside for line in data.splitlines()]


class ObjectWatch:
    """Reads one prefix repeatedly. A record that was seen must stay, and must exist once."""

    def __init__(self, *, records: bool, listed: bool) -> None:
        self.sight = Sight()
        self._records, self._listed = records, listed
        self._seen: dict[str, int] = {}
        self._keys: set[RecordKey] = set()

    def read_new(self, place: Any, store: Store) -> None:
        """Read the objects that were added since the last call."""
        there = keys_of(place, store, listed=self._listed)
        self.sight.looks += 1
        if gone := self._seen.keys() - set(there):
            self.sight.complain(f"gone: {sorted(gone)[:5]}")
        for key in there:
            if key not in self._seen:
                self._read(store, key)
        self.sight.rows = max(self.sight.rows, sum(self._seen.values()))

    def _read(self, store: Store, key: str) -> None:
        try:
            rows = list(read_object(store, key))
        except (FileNotFoundError, ValueError) as error:
            self.sight.complain(f"{key}: {error!r}")
            return
        self._seen[key] = len(rows)
        for row in rows if self._records else ():
            try:
                record = whole_key(row)
            except ValueError as error:
                self.sight.complain(str(error))
                continue
            if record in self._keys:
                self.sight.complain(f"{record} stands there twice")
            self._keys.add(record)


def _flow(life: Life, folder: Path, stack: ExitStack) -> ObjectFlow:
    server = stack.enter_context(ObjectServer(folder / "server"))
    return ObjectFlow(folder, life.kind, "json", life.partitioned, route=life.format, server=server)


def rolled_places() -> Places:
    """The points for a sink whose objects are merged: the compaction is killed, and replaced by another one, too."""
    places = store_places(BY_MANIFEST_DECISIVE)
    return places | {way: (*places[way], *ROLLER_POINTS) for way in ("kill", "two")}


def _ground(title: str, route: str, decisive: tuple[str, ...], places: Places) -> Ground:
    return Ground(title, (route,), KINDS, decisive, {route: places}, _flow, (False, True))


OBJECTS = _ground("object stores", BY_MANIFEST, BY_MANIFEST_DECISIVE, store_places(BY_MANIFEST_DECISIVE))
OBJECTS_ROLLED = _ground("object stores, merged", ROLLED, BY_MANIFEST_DECISIVE, rolled_places())
OBJECTS_LISTED = _ground("object stores that are listed", LISTED, DECISIVE, store_places(DECISIVE, lacks=()))


def main(folder: str, sink: str, *flags: str) -> None:
    """Read until the standard input closes, waiting while the server is unavailable; then print one Sight."""
    from pathlib import Path

    look_on(address(ObjectServer(Path(folder)), sink), flags)


def look_on(place: ObjectsAddress, flags: Sequence[str]) -> None:
    """Read as `main` describes."""
    store = place.open()
    watch = ObjectWatch(records="records" in flags, listed="listed" in flags)
    numbered_log.CHUNK = FOLD_EVERY
    last = False
    while not last:
        last = told_to_end(_LOOK_S)
        try:
            watch.read_new(place, store)
        except Unreachable:
            last = False  # the server comes back: the final contents must still be read
            time.sleep(_LOOK_S)
    os.write(1, msgspec.json.encode(asdict(watch.sight)))


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
