"""The conformance suite of sources whose place changes. `check_changing_source`, and `check_bounded_source` for a source that reads once,
raise AssertionError with the sentence of the contract that is broken. `conformance.check_source` is for a place that does not change; a
source should pass both.

    def test_my_source_keeps_the_contract(tmp_path):
        place = MyPlace(tmp_path)
        make = lambda: MySource(ConnectorContext("in", tmp_path, {...}))
        check_changing_source(Bench(make, place.add, SOURCE, {...}, change=place.change))
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors.abilities import measures_backlog, verifies
from scribengin.connectors.contract import BatchLimits, SourceStream
from scribengin.core.errors import SourceError, Unreachable
from scribengin.plan.guarantees import path_guarantee
from scribengin.spec.model import Flow, Sink
from scribengin.spec.model import Source as DeclaredSource
from scribengin.testing.conformance import _records, check_abilities, must

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.contract import Backlog, SourceConnector, SourceReader
    from scribengin.core.options import NodeType

_COMES_WITHIN_S = 30.0
_STARTED = b"in the midst\n"
_LIMITS = BatchLimits(max_files=1, max_bytes=1, max_rows=2)

Entry = list[SourceStream]


@dataclass(frozen=True)
class Bench:
    """A place for a source, empty at first, and the changes that the test can make there; None for a change that is not possible.

    Attributes:
        open: Creates a new source of the place.
        add: Adds the given number of records to the existing data (a growing file, a partition, a table). All records are different.
        declared: The type of the source.
        options: The options of the source.
        add_part: Adds records in a new part.
        remove_part: Deletes the newest of these parts.
        change: Changes or deletes a record of the first `add`.
        follows: False if a reader does not see records that were added after it was created.
        grows: False for a snapshot, which has an end.
    """

    open: Callable[[], SourceConnector]
    add: Callable[[int], object]
    declared: NodeType
    options: Mapping[str, Any] = field(default_factory=dict)
    add_part: Callable[[int], object] | None = None
    remove_part: Callable[[], object] | None = None
    change: Callable[[], object] | None = None
    follows: bool = True
    grows: bool = True
    within_s: float = _COMES_WITHIN_S
    """seconds within which a running reader must see new records"""


def check_changing_source(bench: Bench) -> None:
    """Check a source while its place grows, gets and loses parts, and changes records, with dropped readers and killed tasks."""
    trial = _Trial(bench)
    bench.add(5)
    was = trial.take("a new reader hands out what is there", 5)
    first = list(trial.streams)
    live = bench.open().reader()
    live.restore(trial.entries)
    bench.add(4)
    must(trial.records(first) == was, "a range stays what it was while its part grows")
    if not bench.grows:
        trial.take("a snapshot has what was there when it was begun", 0)
        trial.kill_in_midst()
        if bench.change is not None:
            _changed(trial, first, was)
        return
    trial.drop()
    came = trial.take("a reader that was restored hands out what came to a part, from exactly where the last one stopped", 4)
    followed = trial.follow(live, 4)
    whole = len(trial.streams)
    if bench.add_part is not None:
        bench.add_part(3)
        came += trial.take("a part that appears is taken from its beginning", 3)
        followed += trial.follow(live, 3)
    must(followed == came or not bench.follows, "a reader that keeps running takes what one that is restored takes")
    trial.kill_in_midst()
    if bench.remove_part is not None:
        _without_a_part(trial, trial.streams[whole:])
    if bench.change is not None:
        _changed(trial, first, was)


def check_bounded_source(bench: Bench) -> None:
    """Check a source that reads the existing records once. `follows`, `grows` and parts of the bench are not used."""
    trial = _Trial(bench)
    bench.add(5)
    trial.drop()
    was = trial.take("a new reader hands out what is there, also what an earlier one has handed out that was never logged", 5)
    first = list(trial.streams)
    each = [(stream, trial.records([stream])) for stream in first]
    trial.kill_in_midst()
    if bench.change is not None:
        _changed(trial, first, was)
    bench.add(4)
    trial.take("a source that reads once hands out nothing of what comes when it is through", 0)
    if "replayable" in bench.declared.able(bench.options):
        for stream, before in each:
            trial.same_or_told([stream], before, "a range stays what it was while its place grows, or SourceError says that it did not")


def _without_a_part(trial: _Trial, gone: list[SourceStream]) -> None:
    bench = trial.bench
    assert bench.remove_part is not None
    before = trial.records(gone)
    bench.remove_part()
    trial.same_or_told(gone, before, "a stream of a part that is gone is read whole, or SourceError says that it is not")
    reader = bench.open().reader()
    if verifies(reader):
        try:
            told = reader.verify(gone)
        except SourceError:
            told = []
        must(told != gone or trial.is_whole(gone, before), "`verify` tells what of a stream is gone")
    bench.add(2)
    try:
        trial.take("without a part that was read to its end, the others are read on", 2)
    except SourceError:
        return  # the error reports it, and an operator decides


def _changed(trial: _Trial, first: Sequence[SourceStream], was: Counter[bytes]) -> None:
    bench = trial.bench
    assert bench.change is not None
    bench.change()
    level = _guarantee(bench)
    if "replayable" in bench.declared.able(bench.options):
        trial.same_or_told(first, was, "a source that says it is replayable hands out the same rows again, or raises SourceError")
        must(level == "exactly once", f"the plan believes a replayable source; it says {level}")
        return
    try:
        trial.records(first)
    except SourceError as error:
        raise AssertionError(f"the contract is broken: a source that is not replayable gives what is there now; it said {error}") from error
    must(level == "at least once", f"the plan lowers the guarantee of a source that is not replayable; it says {level}")


def _guarantee(bench: Bench) -> str:
    source, sink = DeclaredSource("in", bench.declared.type, dict(bench.options)), Sink("out", ("in",), "files", {"path": "out"})
    from scribengin.connectors.catalog import sink_types

    flow = Flow("conformance", sources={"in": source}, steps={}, sinks={"out": sink})
    return path_guarantee(flow, source, sink, source_types={bench.declared.type: bench.declared}, sink_types=sink_types()).guarantee


class _Trial:
    """A bench, and the entries that the log of its source would contain."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        check_abilities(bench.declared, bench.options, "source", bench.open())
        self.entries: list[Entry] = []
        self._seen = Counter[bytes]()

    @property
    def streams(self) -> list[SourceStream]:
        """All streams that were handed out."""
        return [stream for entry in self.entries for stream in entry]

    def records(self, streams: Sequence[SourceStream]) -> Counter[bytes]:
        """The records of the streams, read by a copy of a new source, as a task does."""
        source = pickle.loads(pickle.dumps(self.bench.open()))
        return Counter(record for stream in streams for record in _records(source, stream))

    def take(self, sentence: str, rows: int) -> Counter[bytes]:
        """Let a restored reader hand out everything, check that these are exactly `rows` new records, and log them."""
        measured = self._measured()
        entries = _through_json(_all_of(self._restored()))
        if measured is not None:
            _compare(measured, entries, self._measured())
        found = self.records([stream for entry in entries for stream in entry])
        twice = found & self._seen
        must(not twice, f"{sentence}; {twice.total()} records were handed out before: {_shown(twice)}")
        must(found.total() == rows, f"{sentence}; {rows} records came, {found.total()} were handed out")
        self._seen += found
        self.entries += entries
        return found

    def drop(self) -> None:
        """Let a reader hand out streams that are never logged: the next reader must hand them out again."""
        self._restored().split(_LIMITS, final=True)

    def follow(self, reader: SourceReader, rows: int) -> Counter[bytes]:
        """Follow a running reader until it has handed out `rows` records, and a little longer; returns all records."""
        found, end_s = Counter[bytes](), time.monotonic() + (self.bench.within_s if self.bench.follows else 0)
        calm = 0
        while calm < 3 and time.monotonic() < end_s:
            streams = reader.split(BatchLimits())
            found += self.records(streams)
            calm = calm + 1 if found.total() >= rows and not streams else 0
            time.sleep(0.05)
        return found

    def same_or_told(self, streams: Sequence[SourceStream], before: Counter[bytes], sentence: str) -> None:
        """Check that the streams have the same records as before, or that reading them raises SourceError with a remedy.

        Args:
            streams: The streams to read.
            before: The records that were read from them before.
            sentence: The rule that is checked.
        """
        try:
            found = self.records(streams)
        except SourceError as error:
            must(bool(error.remedy), f"{sentence}; and what to do: {error}")
            return
        must(found == before, f"{sentence}; {(before - found).total()} records are missing, {(found - before).total()} are new")

    def is_whole(self, streams: Sequence[SourceStream], before: Counter[bytes]) -> bool:
        """True if the streams have the same records as before."""
        try:
            return self.records(streams) == before
        except (SourceError, Unreachable):
            return False

    def kill_in_midst(self) -> None:
        """Kill a process while it reads a stream, then read the stream again."""
        stream = max(self.streams, key=lambda each: each.rows or 0)
        before = self.records([stream])
        path = os.pathsep.join(each for each in sys.path if each)
        child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
        assert child.stdin is not None
        assert child.stdout is not None
        with child:
            child.stdin.write(pickle.dumps((self.bench.open(), stream.as_json())))
            child.stdin.close()
            said = child.stdout.readline()
            child.send_signal(signal.SIGKILL)
        must(said == _STARTED, "a copy of the source reads in a process of its own")
        must(self.records([stream]) == before, "a stream whose reader was killed in its midst is read again from its beginning, whole")

    def _measured(self) -> Backlog | None:
        """The backlog by a reader that only measures; None if the reader cannot measure it."""
        reader = self._restored()
        return reader.measure() if measures_backlog(reader) else None

    def _restored(self) -> SourceReader:
        reader = self.bench.open().reader()
        check_abilities(self.bench.declared, self.bench.options, "reader", reader)
        reader.restore(self.entries)
        return reader


def _compare(before: Backlog, entries: Sequence[Entry], after: Backlog | None) -> None:
    """Check that the backlog equals the streams that were handed out after it, and that measuring has handed out none of them."""
    streams = [stream for entry in entries for stream in entry]
    for figure in ("bytes", "rows"):  # a file that is split counts in each of its streams
        waited = getattr(before, figure)
        given = [getattr(stream, figure) for stream in streams if not stream.skipped]
        if waited is not None and None not in given:
            must(waited == sum(given), f"what waits is measured as it is handed out: {waited} {figure}, {sum(given)} were handed out")
    must(after == replace(before, oldest_s=after.oldest_s if after else None), "measuring hands nothing out, and takes nothing away")


def _all_of(reader: SourceReader) -> list[Entry]:
    entries = []
    while entry := reader.split(_LIMITS, final=True):
        entries.append(entry)
    return entries


def _through_json(entries: Sequence[Entry]) -> list[Entry]:
    return [[SourceStream.from_json(json.loads(json.dumps(stream.as_json()))) for stream in entry] for entry in entries]


def _shown(records: Counter[bytes]) -> str:
    return ", ".join(repr(record[:60]) for record in list(records)[:3])


def _read_and_wait() -> None:
    """In a child process: read the first block of a stream, report it, and wait to be killed."""
    source, form = pickle.load(sys.stdin.buffer)
    blocks = iter(source.read(SourceStream.from_json(form)))
    next(blocks)
    os.write(1, _STARTED)
    time.sleep(_COMES_WITHIN_S)


if __name__ == "__main__":
    _read_and_wait()
