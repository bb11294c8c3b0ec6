"""Requests to replay dead letters: numbered records in a query's `replays` folder, written if absent, each with the lines that it holds.

    replays/0000000003.json          request 3: which dead letters, of which source, where they enter
    replays/0000000003/<id>.jsonl    the dead letters themselves, as a task reads them: the originals may be purged
    replays/0000000003.given         the source whose log takes it if the query no longer reads its own, and from which entry on
    replays/0000000003.done          a Batch with it is committed: after 30 days the dead letters are deleted, the request stays

The process that plans the query turns each request into one entry of the source's log, in order. The entry names the request, so that the
log itself records which ones it has taken. From there on a replay is a Batch like any other, and takes effect exactly once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from scribengin.connectors.contract import SourceStream
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.storage import names_in, put_if_absent, read_or_none, remove_tree, replace
from scribengin.core.time_text import now_text
from scribengin.state.contract import LineSegment
from scribengin.state.dead_letters import letter_as_json, letter_from_json
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder
from scribengin.state.lineage import past_lineages, read_lineage
from scribengin.state.segments import LineWriter, read_lines
from scribengin.state.source_log import REPLAY, SourceLog, is_replay

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.state.contract import DeadLetter
    from scribengin.state.lineage import Lineage

_DONE = ".done"
Key = tuple[int, int]
"""the key of a dead letter in its lineage: the Batch, and the place among the Batch's dead letters"""


@dataclass(frozen=True, slots=True)
class Entering:
    """A dead letter as a replay sends it in. If it is `repaired`, its `payload` or `came` was changed by an operator. `at` is the node
    where it enters; empty for its source. `entry` is the position in the source's log at which its Batch began to read, or one before it if
    that is not known any more: a rewind to there or before reads the record again."""

    letter: DeadLetter
    at: str
    entry: int


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request to replay dead letters. `letters` are their keys in `lineage`, in the order of the lines of all `parts` together."""

    number: int
    source: str
    lineage: str
    asked_at: str
    letters: tuple[Key, ...]
    repaired: tuple[Key, ...]
    parts: tuple[Mapping[str, Any], ...]
    behind: int = 0
    """the length of the source's log at the time of the request: the request's entry comes after it"""

    def streams(self, of: str) -> list[SourceStream]:
        """The request as an entry of the source's log. `of` is the `<tier>/<query>` in whose folder the request is."""
        name = f"replay {self.number}"
        return [
            SourceStream(
                f"{name}.{index}" if len(self.parts) > 1 else name,
                {REPLAY: {"of": of, "request": self.number, "lineage": self.lineage, "source": self.source, **part}},
                bytes=part["segment"]["bytes"],
                rows=part["segment"]["rows"],
            )
            for index, part in enumerate(self.parts)
        ]


class Replays:
    """The replay requests of one query. Making requests needs no lease: concurrent ones get different numbers."""

    def __init__(self, folder: Path) -> None:
        """`folder` is `QueryFolder.replays`."""
        self._folder = folder
        self._log = NumberedLog(folder, "replay-request")

    def has(self, number: int) -> bool:
        """True if there is a request with that number. Checks one file."""
        return self._log.has(number)

    def read(self, number: int) -> ReplayRequest:
        """The request of that number, which must exist."""
        body = self._log.read(number)
        assert body is not None, f"replay request {number} does not exist in {self._folder}"
        return _request(number, body)

    def all(self, start: int = 0) -> Iterator[ReplayRequest]:
        """The requests from number `start` on, in order."""
        for number, body in self._log.since(start):
            yield _request(number, body)

    def asked(self, lineage: str) -> dict[Key, ReplayRequest]:
        """The dead letters of that lineage → the request that replays them."""
        return {key: request for request in self.all() if request.lineage == lineage for key in request.letters}

    def ask(self, number: int, source: str, lineage: str, letters: Sequence[tuple[Key, Entering]]) -> ReplayRequest | None:
        """Write a request durably. It may be interrupted at any point: without the record, its lines have no effect.

        Args:
            number: The number of the request.
            source: The source of the dead letters.
            lineage: The lineage in which they died.
            `letters`: The key of each dead letter, and how it enters.

        Returns:
            The request; None if another one has that number already. Then nothing has changed.
        """
        token = uuid4().hex
        parts: list[dict[str, Any]] = []
        for index, (at, way) in enumerate(dict.fromkeys((entering.at, entering.letter.way) for _, entering in letters)):
            writer = LineWriter(self._folder, f"{token}-{index}")
            for _, entering in letters:
                if (entering.at, entering.letter.way) == (at, way):
                    writer.append(number, {"entry": entering.entry, "letter": letter_as_json(entering.letter)})
            segment = writer.close()
            assert segment is not None
            first = min(entering.entry for _, entering in letters)
            parts.append({"at": at, "way": way, "first": first, "segment": asdict(segment)})
        body = {
            "source": source,
            "lineage": lineage,
            "asked_at": now_text(),
            "letters": [list(key) for key, _ in letters],
            "repaired": [list(key) for key, entering in letters if entering.letter.repaired],
            "parts": parts,
            "behind": SourceLog(self._folder.parent / "sources", source).length(),
        }
        stored = self._log.put(number, body)
        if stored["parts"] == parts:
            return _request(number, stored)
        for part in parts:
            (self._folder / part["segment"]["name"]).unlink(missing_ok=True)
        return None

    def next_number(self) -> int:
        """The number after that of the newest request."""
        newest = self._log.newest()
        return 0 if newest is None else newest + 1

    def note_done(self, streams: Iterable[SourceStream]) -> None:
        """Record that a Batch with these requests is committed. Idempotent. It is not repeated after a crash: then the dead letters of the
        request stay."""
        for number in _numbers(streams, of_query(self._folder.parent)):
            put_if_absent(self._folder / f"{number:010d}{_DONE}", now_text().encode())

    def done(self) -> set[int]:
        """The numbers of the requests that are known to be committed in a Batch."""
        return {int(name.removesuffix(_DONE)) for name in names_in(self._folder) if name.endswith(_DONE)}

    def given(self, number: int) -> tuple[str, int] | None:
        """The source that the request was assigned to, and the position in its log from which on an entry of the request counts; None while
        its own source takes it."""
        data = read_or_none(self._folder / f"{number:010d}.given")
        source, _, since = ("" if data is None else data.decode()).partition("\n")
        return (source, int(since or 0)) if source else None

    def owner(self, request: ReplayRequest) -> tuple[str, int]:
        """The source whose log takes the request, and the position from which on an entry counts. An earlier entry was read while the
        request belonged to another source, and had no effect."""
        return self.given(request.number) or (request.source, request.behind)

    def give(self, request: ReplayRequest, source: str, since: int) -> None:
        """Assign a request durably to the log of another source, because the query no longer reads its own one. The caller holds the lease.

        Args:
            request: The request.
            source: The source that takes it.
            since: The position in the log of `source` from which on an entry of the request counts.
        """
        replace(self._folder / f"{request.number:010d}.given", f"{source}\n{since}".encode())

    def drop_lines(self, before: datetime) -> None:
        """Delete the dead letters of requests that were committed before that time; the requests stay."""
        for name in names_in(self._folder):
            folder = self._folder / name.removesuffix(_DONE)
            if name.endswith(_DONE) and folder.is_dir():
                done_at = (self._folder / name).read_text() or self.read(int(folder.name)).asked_at  # older records do not contain the time
                if datetime.fromisoformat(done_at) < before:
                    remove_tree(folder)


class Pending:
    """The requests of a query that a source's log has not taken yet. `folder` is that of the query's state. Used by one thread at a time.

    The first source of a query also takes the requests of sources that the query does not read any more, because one source has to record
    their outcome. The assignment is stored beside the request before the entry is written to the log.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self._of = of_query(folder)
        self._source = source
        self._query = QueryFolder(folder)
        self._replays = Replays(self._query.replays)
        self._done = self._replays.done()
        lineage = read_lineage(self._query)
        self._read: tuple[str, ...] = (source,) if lineage is None else lineage.sources
        self._next = 0
        self._noted: set[int] = set()
        self._ends = _Ends(self._query)
        self._through: dict[str, dict[int, int]] = {}
        self._left: list[ReplayRequest] | None = None
        """requests below `_next` that this source is to take; None while they are not looked up"""

    def note(self, entry: int, streams: Sequence[SourceStream]) -> list[SourceStream]:
        """Take note of entry `entry` of the log; returns those of its streams that are the source's own."""
        for number in _numbers(streams, self._of):
            self._next = max(self._next, number + 1)
            given = self._replays.given(number)  # an unassigned request is only in the log of its own source
            if given is None or (given[0] == self._source and given[1] <= entry):
                self._noted.add(number)
        return [stream for stream in streams if not is_replay(stream)]

    def take(self) -> list[SourceStream]:
        """The entry for the next request; [] if no request waits. All of the log must have been passed to `note`."""
        if self._left is None:
            first = bool(self._read) and self._read[0] == self._source
            below = (self._replays.read(number) for number in range(self._next)) if first else ()
            self._left = [request for request in below if request.number not in self._noted and self._falls_here(request)][::-1]
        if self._left:
            return self._left.pop().streams(self._of)
        while self._replays.has(self._next):
            request = self._replays.read(self._next)
            self._next += 1
            if request.number not in self._noted and self._falls_here(request):
                return request.streams(self._of)
        return []

    def _falls_here(self, request: ReplayRequest) -> bool:
        if request.number in self._done:
            return False  # it is in a log that the flow has left with another division into tiers
        owner, since = self._replays.owner(request)
        if owner == self._source:
            length = SourceLog(self._query.sources, self._source).length()
            if since > length:  # the position refers to a longer log, which a move has left
                self._replays.give(request, self._source, length)
            return True
        if owner in self._read or self._read[:1] != (self._source,):
            return False
        if owner not in self._through:
            self._through[owner] = _logged(self._query, owner, 0, self._ends.of(owner))
        if self._through[owner].get(request.number, -1) >= since:
            return False  # it was read while the query still read that source
        end = self._ends.of(self._source)
        self._replays.give(request, self._source, end)
        return request.number not in _logged(
            self._query, self._source, end
        )  # otherwise the request belonged to this source before, and the log has its entry


def waiting(query: QueryFolder) -> list[ReplayRequest]:
    """The requests of which no Batch is known to be committed, in their order."""
    replays = Replays(query.replays)
    if replays.next_number() == 0:
        return []
    done = replays.done()
    left = {request.number: request for request in replays.all() if request.number not in done}
    owners = {number: replays.owner(request) for number, request in left.items()}
    begins: dict[str, int] = {}
    for source, since in owners.values():
        begins[source] = min(begins.get(source, since), since)
    ends = _Ends(query)
    through = {source: _logged(query, source, begin, ends.of(source)) for source, begin in begins.items()}
    return [request for number, request in left.items() if through[owners[number][0]].get(number, -1) < owners[number][1]]


def settle(query: QueryFolder) -> None:
    """Record every request that a Batch has committed, because for some of them only the logs of the sources show it. The caller holds the
    lease, and is about to leave these logs."""
    replays = Replays(query.replays)
    waits = {request.number for request in waiting(query)}
    for request in replays.all():
        if request.number not in waits:
            replays.note_done(request.streams(of_query(query.path)))


def _logged(query: QueryFolder, source: str, begin: int, end: int | None = None) -> dict[int, int]:
    """Request → the last entry that holds it, among the entries `begin` (inclusive) to `end` (exclusive; None for all) of a
    source's log."""
    entries = islice(SourceLog(query.sources, source).whole(begin), None if end is None else max(0, end - begin))
    return {number: entry for entry, streams in enumerate(entries, begin) for number in _numbers(streams, of_query(query.path))}


class _Ends:
    """The number of entries of a source's log that decided Batches have taken, also for sources that are not read any more.
    Looked up once."""

    def __init__(self, query: QueryFolder) -> None:
        self._query = query
        self._decisions = Decisions(query.decisions)

    def of(self, source: str) -> int:
        """The number of entries taken from that source's log."""
        return self._newest[source] if source in self._newest else self._earlier.get(source, 0)

    @cached_property
    def _newest(self) -> dict[str, int]:
        newest = self._decisions.newest()
        return {} if newest is None else {each.source: each.end for each in newest.sources}

    @cached_property
    def _earlier(self) -> dict[str, int]:
        lineage = read_lineage(self._query)
        return ({} if lineage is None else dict(lineage.starts)) | self._decisions.totals().ends


def _numbers(streams: Iterable[SourceStream], of: str) -> set[int]:
    """The numbers of the requests of that query in an entry."""
    return {stream.place[REPLAY]["request"] for stream in streams if is_replay(stream) and stream.place[REPLAY]["of"] == of}


def of_query(folder: Path) -> str:
    """The `<tier>/<query>` of a query's folder."""
    return f"{folder.parent.name}/{folder.name}"


def read_entering(query: QueryFolder, place: Mapping[str, Any], log: str = "") -> list[DeadLetter]:
    """The dead letters of a replay's stream, in their order. Those that the query's lineage reads again from the source, after a rewind,
    are left out.

    Args:
        query: The folder of the query that reads the stream.
        place: The place of the stream.
        log: The source in whose log the stream is. If the request was assigned to another source since, nothing is returned. Empty to skip
            that check.

    Raises:
        StateError: The lines are gone.
    """
    said = place[REPLAY]
    if log and said["of"] == of_query(query.path):
        given = Replays(query.replays).given(said["request"])
        if given is not None and given[0] != log:
            return []
    segment = LineSegment(**said["segment"])
    lineage = read_lineage(query)
    again = None
    if lineage is not None and lineage.id != said["lineage"]:
        again = _read_since([each for _, each in past_lineages(query)], lineage.starts, said["lineage"])
        if said["first"] >= max(again.values(), default=0):
            return []  # all of them are read again, and their lines may be gone
    lines = read_lines(_folder_of(query, said["of"], segment.name), segment, "dead letters to be replayed")
    found = []
    for line in lines:
        data = msgspec.json.decode(line)
        letter = letter_from_json(data["letter"])
        source = letter.source or said.get("source", "")
        if again is None or not source or data["entry"] < again.get(source, 0):
            found.append(letter)
    return found


def missing_lines(query: QueryFolder, streams: Iterable[SourceStream], starts: Mapping[str, int]) -> list[str]:
    """The labels of replays whose lines are gone, and would be needed by a new lineage.

    Args:
        query: The folder of the query's state.
        streams: Streams of its sources' logs.
        starts: Source → the position at which the new lineage starts.
    """
    lineage = read_lineage(query)
    assert lineage is not None
    past = [*(each for _, each in past_lineages(query)), lineage]
    found = []
    for stream in filter(is_replay, streams):
        said = stream.place[REPLAY]
        needed = said["first"] < max(_read_since(past, starts, said["lineage"]).values(), default=0)
        name = said["segment"]["name"]
        if needed and not (_folder_of(query, said["of"], name) / name).exists():
            found.append(stream.label)
    return found


def _read_since(past: Sequence[Lineage], starts: Mapping[str, int], since: str) -> Mapping[str, int]:
    """Source → the lowest position from which a lineage after `since` has read it, or one with these starts would: from there on the record
    is read again."""
    ids = [each.id for each in past]
    between = [*(each.starts for each in (past[ids.index(since) + 1 :] if since in ids else ())), starts]
    return {source: min(each.get(source, 0) for each in between) for each in between for source in each}


def _folder_of(query: QueryFolder, of: str, name: str) -> Path:
    """The folder that has the lines. If the flow was divided into other tiers since, they are in a lineage's folder."""
    home = query.path.parent.parent / of
    if not (home / "replays" / name).exists():
        for lineage in names_in(home / "lineages"):
            left = home / "lineages" / lineage / "replays"
            if (left / name).exists():
                return left
    return home / "replays"


def _request(number: int, body: Mapping[str, Any]) -> ReplayRequest:
    return ReplayRequest(
        number,
        body["source"],
        body["lineage"],
        body["asked_at"],
        tuple((batch, place) for batch, place in body["letters"]),
        tuple((batch, place) for batch, place in body["repaired"]),
        tuple(body["parts"]),
        body.get("behind", 0),
    )
