"""The contract of sources and sinks. To add a system, write one folder with `options.py`, `source.py`, `sink.py`.

Sources
    A source is *replayable*: what it once handed out as a `SourceStream` it can hand out again, byte for byte, or it
    says loudly that it cannot (`SourceError`). The engine keeps the record: `SourceReader.split` proposes the next
    streams, the engine logs them durably as entry n of the source's log *before* any is read, and a position is the
    number of entries that are behind. After a crash the same entry is read again; a reader is `restore`d from the log.
    A reader that finds nothing new returns an empty list, and costs little: it is asked every trigger.

Sinks
    A sink that promises exactly-once is *staged*: `SinkStream.write` makes nothing visible; attempts never share a
    name; `close` makes the rows durable and returns a `Receipt`. The engine gathers the receipts of one successful
    attempt per unit, writes ONE decision record, and only then calls `SinkConnector.publish` with what was decided, any number
    of times, from any process that holds the lease. Publishing is idempotent and never runs user code again. The sink
    keeps a commit record of its own at its place, and refuses (`FencedError`) what is older than what stands there, of
    another lineage, or decided differently. Skipping silently is never right.

    A row that the place can never take (too large a message, a null where there may be none) is no reason to fail: `write`
    returns it, and it becomes a dead letter of the sink. Where only the place itself can say so, behind the decision, the
    sink is an `OfferingSink`.

Nothing here imports Spark; `read`, `write` and `close` run in executors, the rest in the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad, Block, Decoder
    from scribengin.formats.origins import Origins


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much one Batch may take. None is no limit; a reader takes at least one file or row, or nothing moves."""

    max_files: int | None = None
    max_bytes: int | None = None
    max_rows: int | None = None


@dataclass(frozen=True, slots=True)
class SourceStream:
    """The slice that one task reads. `place` is JSON (text, numbers, lists, mappings) and says all that `read` needs.

    `label` is for people (`tweets-003.jsonl[0:67108864]`); `files`, `bytes` and `rows` are for lag and bars (rows where known).
    A `skipped` one counts as handed out and is never read (`source set`). `lost` says of a skipped one, in a sentence, what is gone that
    was never read and that the flow goes on without; `rows` is then how many records at most, None where nobody knows. `again` says of a
    skipped one what is read from its start though it was read before: a file that was written again.
    """

    label: str
    place: Mapping[str, Any]
    files: int = 0
    bytes: int = 0
    rows: int | None = None
    skipped: bool = False
    lost: str = ""
    again: str = ""

    def as_json(self) -> dict[str, Any]:
        """The form in the source's log."""
        form = {"label": self.label, "place": dict(self.place), "files": self.files, "bytes": self.bytes, "rows": self.rows}
        more = {"skipped": self.skipped, "lost": self.lost, "again": self.again}
        return form | {name: value for name, value in more.items() if value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SourceStream:
        """The stream that `as_json` wrote."""
        more = (data.get("skipped", False), data.get("lost", ""), data.get("again", ""))
        return SourceStream(data["label"], data["place"], data["files"], data["bytes"], data["rows"], *more)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is there and not yet handed out. None where a figure means nothing for this source."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    oldest_s: float | None = None
    """age of the oldest thing that waits, in seconds"""
    more: bool = False
    """True for an endless source: no bar can be drawn"""

    def most(self, other: Backlog) -> Backlog:
        """Of each figure the larger one: a source that two Queries read is as full as it is for the slower one."""
        figures = ("files", "bytes", "rows", "oldest_s")
        pairs = {figure: (getattr(self, figure), getattr(other, figure)) for figure in figures}
        larger = {figure: max((each for each in pair if each is not None), default=None) for figure, pair in pairs.items()}
        return Backlog(**larger, more=self.more or other.more)


class SourceReader(Protocol):
    """Driver side: finds what is new. One per source and Query; used by one thread."""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Take over the log's entries in order, before the first `split` (folded entries come first)."""

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next streams, each about one task's work, in the order in which their rows shall stand; [] when nothing is new.

        `final` (`--once`, a drain): what is there now is finished, an endless source is at its end, do not wait for files to settle.
        What was returned counts as handed out. Raises SourceError, with place and remedy, for what can never be read again.
        """

    def backlog(self) -> Backlog:
        """What waits now; cheap, may be as old as the last `split`."""

    def notices(self) -> list[str]:
        """Sentences that a person should see once: names skipped, files not settled. Empty after each call."""


class MeasuringReader(SourceReader, Protocol):
    """What a reader may have besides, where what waits can be measured without reading it: also of a flow that does not run."""

    def measure(self) -> Backlog:
        """What waits now behind what `restore` has taken over. Nothing is handed out, and nothing is left behind at the place.

        Raises SourceError where the place can never be read again, Unreachable where it is away."""


class TellingReader(SourceReader, Protocol):
    """What a reader may have besides, where the outside world wants to hear how far a flow is (offsets of a consumer group)."""

    def committed(self, streams: Sequence[SourceStream], *, query: str) -> None:
        """A Batch of `query` (`flow.query`) that read these is through. Told at least once a Batch, in order, and perhaps not before a
        crash: nothing may rest on it. Quick; never raises."""


class LookingSource(Protocol):
    """What a source may have besides, where what it is going to read says its columns itself."""

    def check_first(self) -> None:
        """Raises SourceError where the first that is there now has so few of the columns that nobody can have meant it, or lacks one that
        is read as a key (`ConnectorContext.keys`). Quick."""


class KeyedSource(LookingSource, Protocol):
    """What such a source may have besides, where it can be a lookup table."""

    def check_keys(self) -> None:
        """Of a lookup table: raises SourceError where one of its files lacks a column that is read as a key."""


class LookingReader(SourceReader, Protocol):
    """What a reader of such a source has besides."""

    looks_first: bool
    """True where `split` looks at the very first that it finds, as `check_first` does; False at first: whoever only looks is not stopped"""


class RecheckingReader(SourceReader, Protocol):
    """What a reader may have besides, where what was handed out can be gone before it is read."""

    def recheck(self, streams: Sequence[SourceStream]) -> list[SourceStream]:
        """What of an entry, logged and in no decided Batch, can still be read, and what is lost (see `SourceStream.lost`); the same
        streams where all is there. Asked when a Query starts, before anything else. Raises SourceError where it must not go on without."""


class HoldingReader(SourceReader, Protocol):
    """What a reader may have besides, where others delete what it reads: they leave what it holds. It holds what `split` returns."""

    def hold(self, streams: Sequence[SourceStream]) -> None:
        """These are logged, and in no decided Batch: an earlier reader has held them."""

    def let_go(self, streams: Sequence[SourceStream]) -> None:
        """A Batch that read these is through."""


class SourceConnector(Protocol):
    """One configured source."""

    schema: Schema | None
    """None when the place itself knows it (Parquet): then `resolve_schema` asks it"""

    def resolve_schema(self) -> Schema:
        """The columns, from the declaration or the place. Raises SourceError when neither says."""

    def reader(self) -> SourceReader:
        """A fresh driver-side reader. Raises SourceError where the place is missing or forbidden."""

    def decoder(self) -> Decoder:
        """A fresh decoder for the blocks that `read` yields."""

    def read(self, stream: SourceStream) -> Iterator[Block]:
        """Executor side: the blocks of that stream. Raises SourceError when the place changed since it was logged."""


class TracingSource(SourceConnector, Protocol):
    """A source of numbered places, whose records may say what they were made of. Each method asks the place, and raises SourceError or
    Unreachable."""

    def numbers_of(self, stream: SourceStream, *, offset: int | None = None, ordinal: int | None = None) -> tuple[int, int] | None:
        """(offset, number in the stream from 0) of the record of which one is given: steps that Spark runs call it by the second, those in
        Python by the first. None where the stream has no such record, or its beginning is gone. Reads up to it."""

    def made_of(self, place: str, sequence: int) -> tuple[str, str] | None:
        """Of the record `SOURCE/<place>@<sequence>`: (flow, id of its record there); None where it does not say, or is gone."""


@dataclass(frozen=True, slots=True)
class BatchId:
    """(lineage, number), with the Term of the lease under which it runs."""

    flow: str
    query: str
    lineage: str
    number: int
    term: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one unit staged for one sink. `segments` is the sink's own JSON, of staged files with a `crc`, so that an audit can tell a torn
    or exchanged one from a whole one; `rows` and `bytes` are for people and the ledger."""

    sink: str
    unit: int
    rows: int
    bytes: int
    segments: tuple[Mapping[str, Any], ...] = ()
    digest: int | None = None
    """of a channel: the order-free digest of the rows' ids (`Origins.digest`)"""

    def as_json(self) -> dict[str, Any]:
        """The form in receipts and decision records."""
        form = {"sink": self.sink, "unit": self.unit, "rows": self.rows, "bytes": self.bytes, "segments": [dict(s) for s in self.segments]}
        return form if self.digest is None else form | {"digest": self.digest}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Receipt:
        """The receipt that `as_json` wrote."""
        return Receipt(data["sink"], data["unit"], data["rows"], data["bytes"], tuple(data["segments"]), data.get("digest"))


class SinkStream(Protocol):
    """Executor side: one unit's writes to one sink. Ended by `close`, or by `abort`, which leaves nothing behind."""

    wants_ids: bool
    """True where `write` is to be given ids"""

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Stage the rows; nothing becomes visible. Returns those that the place can never take, by their index in `batch`.

        `ids`: what each row was made of, the same whenever it is made again (`tweets-0@17`, `a.jsonl[0:4096]+3`); a second row out of the
        same record ends in `.1`, and so on. None unless they are wanted.
        """

    def close(self) -> Receipt:
        """Make the rows durable. A stream that wrote no row returns a receipt without segments."""

    def abort(self) -> None:
        """Remove what was staged; called when the task fails. Never raises."""


class JsonStream(SinkStream, Protocol):
    """A SinkStream that writes JSON: rows that are no Arrow yet are given to it as JSON, which costs a third. Must take Arrow all the
    same, for other rows, and write the same of them."""

    json_needs: Sequence[str] | None
    """which columns it is to be given as Arrow beside; None where it takes Arrow alone"""

    def write_json(self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """As `write`. `lines`: each row as an object with all columns in the schema's order, ended by a line feed (none is inside)."""


class OriginStream(Protocol):
    """A stream that keeps the first coordinates of each row, as numbers: a channel's. Else as a SinkStream."""

    wants_origins: bool
    """True; one that can be a SinkStream instead says False then"""

    def write_from(self, batch: pa.RecordBatch, origins: Origins) -> Sequence[Bad]:
        """As `SinkStream.write`."""

    def close(self) -> Receipt:
        """As `SinkStream.close`."""

    def abort(self) -> None:
        """As `SinkStream.abort`."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What a decision record says of one sink: enough to publish, from any process, without running anything."""

    batch: BatchId
    input_hash: str
    receipts: tuple[Receipt, ...] = ()
    behind: Mapping[str, Any] = field(default_factory=dict)
    """what the sink said of its place before the Batch ran; see ChainedSink"""
    refused: int = 0
    """rows of the receipts that the place does not take; see OfferingSink"""

    @property
    def rows(self) -> int:
        """Rows that stand at the place, or will."""
        return sum(receipt.rows for receipt in self.receipts) - self.refused


NEXT_RUN = "the next run of the flow publishes"
"""in a violation of `audit`: the rows that are not at the place yet, a run puts there"""


@dataclass(frozen=True, slots=True)
class Published:
    """One committed Batch as the sink's place tells it, for `audit`: rows, and what is wrong with it (empty when all is well)."""

    number: int
    rows: int
    violations: tuple[str, ...] = ()


class SinkConnector(Protocol):
    """One configured sink, driver side."""

    exactly_once: bool

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the place for this installation and lineage, or find it claimed by it. Raises Refused, with remedy, where
        commits of another flow or lineage stand there; with `adopt` (`--append-new-lineage`) a new lineage is added."""

    def publish(self, decided: Decided) -> None:
        """Make the decided rows visible. Idempotent. Raises FencedError or StateError, never skips."""

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Under the lease, after a start: finish what `decided` (the newest decision) says, and delete what older Batches
        (number < `before`) of the lineage staged and nothing names."""

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        """Read the place again, as a foreign reader would, and compare with what was decided.

        `decided` begins where the details of older Batches were pruned: those are told by the place's own records alone, or not at all.
        """

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete what this installation's flow has written here, of all lineages, and the claim (`reset --outputs`); returns how
        many files (rows, where there are no files). With `dry_run` only looks. Raises Refused, before anything is deleted, where
        others have written too; what was never committed through this sink stays."""


class StagingSink(SinkConnector, Protocol):
    """A sink that is the factory of its streams, as all are but that of a group, whose members are. Must be picklable: executors get a
    copy."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SinkStream | OriginStream:
        """Executor side: a stream for one unit. `attempt` is unique for ever and only names staged things."""


class ChainedSink(SinkConnector, Protocol):
    """A sink whose place knows only its newest commits, and so must be told which ones a Batch follows."""

    def behind(self, units: int) -> Mapping[str, Any]:
        """Driver side, before a Batch runs: the newest commits at the place, as JSON. It stands in the Batch's decision, and `publish`
        refuses to go on from anything else. `units`: how many units will commit one by one; 0 where the Batch commits as a whole."""


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """What a sink's place holds beside what the flow's state accounts for. `what`: `lineage ID`, one that the state does not know, or `that
    no record names`. `rows` is None where only reading them would tell; `items` are files or objects."""

    what: str
    rows: int | None = None
    items: int = 0

    @property
    def is_of_lineage(self) -> bool:
        """Whether a flow has written it, of which the state does not know."""
        return self.what.startswith("lineage ")

    def __str__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows:,} row{'s' * (self.rows != 1)}"
        files = f"{self.items:,} file{'s' * (self.items != 1)}" * bool(self.items)
        what = self.what if self.rows is None else f"of {self.what}, of which this state knows nothing"
        return f"{' in '.join(filter(None, [rows, files]))} {what}"


class CountingSink(SinkConnector, Protocol):
    """A sink whose place says what others have written there."""

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """Driver side, for `audit`; changes nothing. `known`: the lineages that the flow's state accounts for, whatever the sink."""


BESIDE_OUTPUTS = ".scribengin-trash"
"""The folder below a sink's own in which removed files are kept: readers pass over names that begin with a dot"""
_REMOVED = "removed-", ".removed"


def removed_name(name: str) -> str:
    """What a removed file is called: readers that look into such folders too go by how a name begins or ends."""
    return name.join(_REMOVED)


def name_before(removed: str) -> str:
    """What a file was called before it was removed; the names of folders stay."""
    begin, end = _REMOVED
    return removed[len(begin) : -len(end)] if removed.startswith(begin) and removed.endswith(end) else removed


class TracingSink(SinkConnector, Protocol):
    """A sink whose rows say what they were made of."""

    def places_of(self, lineage: str, number: int, records: Collection[str]) -> Iterator[str]:
        """Where rows stand that Batch `number` has written and that were made of a record of one of these ids, as a source there calls
        them: `topic-0@17`. Asks the place: all that the Batch has written is read. Raises SinkError or Unreachable."""


class TrashSink(SinkConnector, Protocol):
    """A sink whose place has a trash of its own: what `reset` removes can be brought back for a while. Each of this may be killed at any
    point and done again; `id_` names the reset."""

    restorable: bool
    """False where the store does not allow it"""
    place: str
    """where it writes; another flow file may lead elsewhere"""

    def move_to_trash(self, id_: str, *, owner: str, flow: str) -> int:
        """As `clear`, but to the trash."""

    def check_back(self, id_: str) -> None:
        """Raise Refused where something is in its place by now, or where it is gone; changes nothing."""

    def move_back(self, id_: str) -> None:
        """All is as before; what says whose the rows are comes last."""

    def drop_trash(self, id_: str) -> None:
        """Delete it for good."""


class RestorableSink(SinkConnector, Protocol):
    """A sink whose rows are files that can be renamed: what `reset` removes can be brought back for a while."""

    restorable: bool
    """True; one that can be so says False where it is not"""
    path: Path

    def move_away(self, kept: Path, *, owner: str, flow: str) -> int:
        """As `clear`, but move the files to the folder `kept`, below the folders that they have in `path`, each as `removed_name`
        says. May be killed at any point and done again; moved back, what says whose the files are last, all is as before."""


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row of a decided Batch that the place never takes. `id`: what the row was made of, as a SinkStream is told it; `came`: the row as
    it came to the sink, as a JSON object."""

    id: str
    reason: str
    message: str
    came: bytes


class OfferingSink(SinkConnector, Protocol):
    """A sink whose place takes or refuses rows one by one, and only when they come. What it refused is settled in a record beside the
    decision, between `offer` and `publish`: each refused row is a dead letter, once."""

    on_error: str
    """that of its node"""

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:
        """Make the decided rows visible, and call `refuse` for each that the place never takes. Idempotent, and perhaps done again after a
        crash, or by two drivers at once: a row that stands there already is taken. Returns when every row is one or the other. Raises
        as `publish`, which then only records what `refused` says."""


class ComparingSink(SinkConnector, Protocol):
    """A sink whose place has columns of its own, which a person may have made: a table."""

    def unlike(self, schema: Schema) -> list[str]:
        """Driver side, before a start: what of the place does not take rows with these columns, a sentence each. Changes nothing."""


class KeptSink(SinkConnector, Protocol):
    """A sink that may keep a published Batch for a while, because its place is away."""

    def upkeep(self) -> list[str]:
        """Driver side, now and then between Batches: hand over what waits, if the place takes it now. Sentences for people."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who is going to claim a sink's place. `owner` is the installation, `lineage` that of the Query; empty where a run makes a new one.
    `adopt`: as in `SinkConnector.prepare`; `decided`: what is going to be recovered there, as far as it is known."""

    owner: str
    lineage: str
    adopt: bool = False
    decided: Decided | None = None


class LookedAtSource(SourceConnector, Protocol):
    """A source whose reader connects later than when it is made: `validate --env` looks at its place by this."""

    def look_at_place(self) -> None:
        """Driver side: connect, and look whether what is read is there. Raises Unreachable, SourceError. Changes nothing, and takes seconds
        at most."""


class LookedAtSink(SinkConnector, Protocol):
    """A sink of another system whose place can be looked at before any run: `validate --env` does it."""

    def look_at_place(self) -> None:
        """Driver side: connect, and look whether what rows go to is there and can be read about. Raises Unreachable, SinkError. Changes
        nothing, and takes seconds at most."""


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """What a connector is built with: the node's id and the flow's folder. Relative paths start there, those of options that travel with
    the flow (`core.options`) at `code_folder`."""

    node: str
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: Schema | None = None
    on_error: str = "dead_letter"
    flow: str = ""
    version: str = ""
    """of the flow's definition; for a sink that tells it"""
    work: Path | None = None
    """a sink's own folder in the state, where it may stage; None where nothing is going to be written"""
    earlier: tuple[Path, ...] = ()
    """what `work` was in Queries, of this tier and others, that wrote to the sink in the flow's life: for `audit`; with `work` only"""
    delivery: str = "exactly_once"
    """what a sink is asked for"""
    members: tuple[tuple[str, float, Mapping[str, Any]], ...] = ()
    """of a node that goes to a group: (name, cost, options) of each"""
    member: str = ""
    """which one it is, of a node that is one of these: the numbers of its Batches have gaps"""
    code: Path | None = None
    """None: the same as `folder`"""
    kept_elsewhere: frozenset[str] = frozenset()
    """folders of sinks of which somebody else does the upkeep"""
    any_columns: bool = False
    """True where somebody has agreed that the first file of a source has other columns than the flow says"""
    learned: tuple[str, ...] = ()
    """columns of `schema` that nobody has declared: what does not fit them is null, and stops nothing"""
    static: bool = False
    """True of a source that is a lookup table: read whole, at each start"""
    keys: Mapping[str, str] = field(default_factory=dict)
    """columns of a source that the flow reads as keys, and what reads them, for people: `the join key of step "placed"`"""

    @property
    def code_folder(self) -> Path:
        """Where files start that belong to the flow's text, such as schemas."""
        return self.folder if self.code is None else self.code
