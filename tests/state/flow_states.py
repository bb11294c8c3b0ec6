"""States of cut flows, built by hand: what each Query has decided, and what it has put into its channels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import BatchId, Receipt, SourceStream
from scribengin.core.numbered_log import NumberedLog
from scribengin.state.channel_acks import ChannelLink, QueryKey, QueryReading, QueryTopology
from scribengin.state.contract import Counts, Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder
from scribengin.state.lineage import Lineage, open_lineage
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INPUT = "rows"
"""the source of a Query that no other one feeds"""


@dataclass
class Stage:
    """One Query of the chain. `outs` are the channels it feeds, `inputs` those it reads; without them it reads INPUT, an entry a Batch."""

    folder: QueryFolder
    outs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    kind: str = "folder"
    rows: int = 10
    digest: int | None = None
    """of what each Batch puts into each channel"""
    lineage: Lineage | None = None
    taken: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Open its lineage."""
        sources = self.inputs or (INPUT,)
        self.lineage = open_lineage(
            self.folder,
            owner="me",
            fingerprint="f",
            state_fingerprint="",
            sources=sources,
            parts=dict.fromkeys((*sources, *self.outs), "p"),
        )
        self.taken = {source: self.lineage.starts.get(source, 0) for source in sources}

    def batch(
        self,
        entries: Mapping[str, list[SourceStream]],
        *,
        committed: bool = True,
        times: Mapping[str, int] | None = None,
        sums: Mapping[str, Any] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> int:
        """Decide a Batch that takes one entry of each source that is given, and let it put `rows` rows into each channel."""
        if self.lineage is None:
            self.begin()
        assert self.lineage is not None
        decisions = Decisions(self.folder.decisions)
        newest = decisions.newest()
        number = 0 if newest is None else newest.batch.number + 1
        ranges = []
        for source, start in self.taken.items():
            log = SourceLog(self.folder.sources, source)
            if source in entries:
                log.append(start, entries[source])
                self.taken[source] = start + 1
            ranges.append(SourceRange(source, start, self.taken[source]))
        receipts = tuple(Receipt(out, 0, self.rows, 100, self._segments(out, number), self.digest) for out in self.outs)
        counted = {out: Counts(rows_in=self.rows, out=self.rows) for out in self.outs}
        counted |= {source: Counts(rows_in=rows, out=rows) for source, rows in (counts or {}).items()}
        batch = BatchId("flow", self.folder.name, self.lineage.id, number, 1)
        decisions.decide(Decision(batch, "h", "f", tuple(ranges), receipts, (), counted, at(number), times=times or {}, taken=sums or {}))
        if self.kind == "kafka":
            for out in self.outs:
                self.publish(out, number)
        if committed:
            self.commit(number)
        return number

    def commit(self, number: int) -> None:
        """Spark's log says that the Batch is through."""
        commits = self.folder.checkpoint / "commits"
        commits.mkdir(parents=True, exist_ok=True)
        (commits / str(number)).touch()

    def publish(self, out: str, number: int) -> None:
        """The log of a Kafka sink: a Batch's rows stand in partition `number` modulo 2, 10 offsets each."""
        assert self.lineage is not None
        first = number // 2 * self.rows
        said = {"topic": out, "partition": number % 2, "first": first, "last": first + self.rows - 1, "rows": self.rows}
        log = NumberedLog(self.folder.work(out) / self.lineage.id / "published", "publication")
        log.put(number, {"hash": "h", "units": 0, "rows": self.rows, "messages": [said]})

    def output(self, *numbers: int) -> list[SourceStream]:
        """What a reader finds of Batches: an entry of its source log."""
        if self.kind == "kafka":
            return [
                SourceStream("t", {"topic": self.outs[0], "partition": n % 2, "start": 0, "end": (n // 2 + 1) * self.rows, "id": "x"})
                for n in numbers
            ]
        pieces = [[self._name(number), 100, 1, 1, 0, 100, 100] for number in numbers]
        return [SourceStream("f", {"root": "packs", "pieces": pieces})]

    def _name(self, number: int) -> str:
        assert self.lineage is not None
        return f"part-{number:010d}-00000-000{self.lineage.id[:8]}.packs"

    def _segments(self, out: str, number: int) -> tuple[Mapping[str, Any], ...]:
        if self.kind == "kafka" or not self.rows:
            return ()
        return ({"staged": "s", "name": self._name(number), "rows": self.rows, "bytes": 100, "crc": 0},)


def at(number: int) -> str:
    """When Batch `number` is decided: one a second."""
    return f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000+00:00"


def file_entry(name: str) -> list[SourceStream]:
    """An entry of INPUT."""
    return [SourceStream(name, {"root": "data", "pieces": [[name, 5, 1, 1, 0, 5, 5]]})]


@dataclass
class Chain:
    """Stages in a row of `letters`, each fed by the one before: `a` feeds channel `a_b`, which `b` reads as source `a`."""

    root: Path
    letters: str = "abcd"
    kind: str = "folder"
    loose: tuple[str, ...] = ()
    """channels that hold nobody"""
    by_state: tuple[str, ...] = ()
    stages: dict[str, Stage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, letter in enumerate(self.letters):
            outs = (f"{letter}_{self.letters[index + 1]}",) if index + 1 < len(self.letters) else ()
            inputs = (self.letters[index - 1],) if index else ()
            self.stages[letter] = Stage(QueryFolder(self.root / letter / letter), outs, inputs, self.kind)

    def __getitem__(self, letter: str) -> Stage:
        return self.stages[letter]

    def topology(self) -> QueryTopology:
        """As `local` makes it of a plan."""
        keys = {letter: QueryKey(letter, letter) for letter in self.letters}
        links = []
        for before, behind in zip(self.letters, self.letters[1:], strict=False):
            channel = f"{before}_{behind}"
            reading = QueryReading(keys[behind], before)
            links.append(ChannelLink(channel, keys[before], (reading,), self.kind, channel not in self.loose))  # type: ignore[arg-type]
        folders = {key: self.stages[letter].folder for letter, key in keys.items()}
        return QueryTopology(folders, tuple(links), frozenset(keys[letter] for letter in self.by_state))

    def pass_on(self, letter: str, *numbers: int) -> int:
        """The stage takes what the one before it has put there in these Batches."""
        before = self.letters[self.letters.index(letter) - 1]
        return self[letter].batch({before: self[before].output(*numbers)})


def acknowledged(standing: Any) -> dict[str, int]:
    """Query → the newest Batch that is acknowledged."""
    return {key.query: each.acknowledged for key, each in standing.queries.items()}
