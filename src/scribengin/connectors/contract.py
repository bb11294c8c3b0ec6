"""The contract of sources and sinks. To add a system, write one folder with `options.py`, `source.py`, `sink.py`.

Sources
    A source is *replayable*: it can hand out again, byte for byte, a `SourceStream` that it handed out before, or it
    raises an error that it cannot (`SourceError`). The engine keeps the record: `SourceReader.split` proposes the next
    streams, the engine logs them durably as entry n of the source's log *before* any is read, and a position is the
    number of completed entries. After a crash the same entry is read again; `restore` gives a new reader the log.
    A reader that finds nothing new returns an empty list, at low cost: it is called at every trigger.

Sinks
    A sink that guarantees exactly-once is *staged*: `SinkStream.write` makes nothing visible; attempts never share a
    name; `close` makes the rows durable and returns a `Receipt`. The engine gathers the receipts of one successful
    attempt per task output, writes ONE decision record, and only then calls `SinkConnector.publish` with the decision, any number
    of times, from any process that holds the lease. Publishing is idempotent and never runs user code again. The sink
    keeps its own commit record at its place, and refuses (`FencedError`) a Batch that is older than that record, of
    another lineage, or decided differently. It never skips a Batch silently.

    A row that the place can never accept (too large a message, a null in a NOT NULL column) is not an error: `write`
    returns it, and it becomes a dead letter of the sink. If only the place itself can detect it, after the decision, the
    sink is an `OfferingSink`.

Abilities
    Anything that a source or sink supports beyond `SourceConnector`, `SourceReader`, `SinkConnector` and `SinkStream` belongs to an
    ability, which its type declares (`core.abilities`): each such Protocol below names its ability.

Nothing here imports Spark; `read`, `write` and `close` run in executors, the rest in the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from scribengin.core.errors import ScribenginError
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad, Block, Decoder
    from scribengin.formats.origins import Origins


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one Batch. None means no limit; a reader takes at least one file or row, so that it makes progress."""

    max_files: int | None = None
    max_bytes: int | None = None
    max_rows: int | None = None


@dataclass(frozen=True, slots=True)
class SourceStream:
    """The slice that one task reads. `place` is JSON (text, numbers, lists, mappings) and contains everything that `read` needs.

    `label` is for people (`tweets-003.jsonl[0:67108864]`); `files`, `bytes` and `rows` are for lag and progress bars (rows if known). A
    `skipped` stream counts as handed out and is never read (`offsets set`). For a skipped stream, `lost` is a sentence about data that no
    longer exists, was never read, and without which the flow continues; `rows` is then the maximum number of records, None if unknown. For
    a skipped stream, `again` is a file that was rewritten and is read from its start a second time.
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
        """The stream from the form that `as_json` wrote."""
        more = (data.get("skipped", False), data.get("lost", ""), data.get("again", ""))
        return SourceStream(data["label"], data["place"], data["files"], data["bytes"], data["rows"], *more)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog: data that exists and is not yet handed out. None for a figure that has no meaning for this source."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    oldest_s: float | None = None
    """age of the oldest waiting record, in seconds"""
    more: bool = False
    """True for an endless source, for which no progress bar can be drawn"""

    def most(self, other: Backlog) -> Backlog:
        """The larger of each figure: a source that two queries read has the backlog of the slower one."""
        figures = ("files", "bytes", "rows", "oldest_s")
        pairs = {figure: (getattr(self, figure), getattr(other, figure)) for figure in figures}
        larger = {figure: max((each for each in pair if each is not None), default=None) for figure, pair in pairs.items()}
        return Backlog(**larger, more=self.more or other.more)


class SourceReader(Protocol):
    """The driver side of a source: finds new data. One per source and query; used by one thread."""

    def restore(self, entries: Iterable[Sequence[SourceStream]]) -> None:
        """Apply the log's entries in order, before the first `split` (folded entries first)."""

    def split(self, limits: BatchLimits, *, final: bool = False) -> list[SourceStream]:
        """The next streams, each about one task's work, in the order of their rows; [] if there is nothing new. Returned streams count as
        handed out.

        Args:
            limits: The limits of the Batch.
            final: The data that exists now is all there is (`--once`, a drain): an endless source is at its end, and files need not settle.

        Raises:
            SourceError: Data can never be read again; with its place and a remedy.
        """

    def backlog(self) -> Backlog:
        """The current backlog; cheap, may be as old as the last `split`."""

    def notices(self) -> list[str]:
        """Sentences for people, shown once: skipped names, files that are not settled. Empty after each call."""


class MeasuringReader(SourceReader, Protocol):
    """A reader whose backlog can be measured without reading it, also for a flow that does not run (ability `measures_backlog`)."""

    def measure(self) -> Backlog:
        """The backlog after the entries that `restore` applied. Hands out nothing, and writes nothing to the place.

        Raises SourceError if the place can never be read again, Unreachable if it is unavailable."""


class ReportingReader(SourceReader, Protocol):
    """A reader that publishes the flow's position to its external system, such as the offsets of a consumer group (ability
    `reports_position`)."""

    def committed(self, streams: Sequence[SourceStream], *, query: str) -> None:
        """A Batch of `query` (`flow.query`) that read these streams is complete. Called at least once per Batch, in order, but perhaps not
        before a crash, so nothing may depend on it. Quick; never raises."""


class ColumnCheckingSource(Protocol):
    """A source whose data declares its own columns (ability `checks_columns`)."""

    def check_first(self) -> None:
        """Check the first available file. Quick.

        Raises:
            SourceError: The file has so few of the columns that this must be a mistake, or lacks a column that is read as a key
                (`ConnectorContext.keys`).
        """


class KeyCheckingSource(ColumnCheckingSource, Protocol):
    """A source whose data declares its own columns, and that can be a lookup table (ability `checks_keys`)."""

    def check_keys(self) -> None:
        """Check the files of a lookup table. Raises SourceError if one of them lacks a column that is read as a key."""


class ColumnCheckingReader(SourceReader, Protocol):
    """A reader of a source whose data declares its own columns (ability `checks_columns`)."""

    checks_first: bool
    """True if `split` checks the first file that it finds, as `check_first` does. Initially False, so that code that only inspects does not
    fail."""


class VerifyingReader(SourceReader, Protocol):
    """A reader whose data can disappear after it was handed out and before it was read (ability `verifies`)."""

    def verify(self, streams: Sequence[SourceStream]) -> list[SourceStream]:
        """Find out which streams can still be read. Called when a query starts, before any other method.

        Args:
            streams: The streams of an entry that is logged and in no decided Batch.

        Returns:
            The streams that can be read, and skipped ones for data that is lost (see `SourceStream.lost`); the same streams if all data
                exists.

        Raises:
            SourceError: The flow must not continue without the lost data.
        """


class HoldingReader(SourceReader, Protocol):
    """A reader whose data others delete, but not while the reader holds it (ability `holds_back`). It holds the streams that `split`
    returns."""

    def hold(self, streams: Sequence[SourceStream]) -> None:
        """Hold these streams, which are logged and in no decided Batch: an earlier reader of the source held them."""

    def let_go(self, streams: Sequence[SourceStream]) -> None:
        """Hold these streams no longer: a Batch that read them is complete."""


class SourceConnector(Protocol):
    """One configured source."""

    schema: Schema | None
    """None if the place itself declares the columns (Parquet): `resolve_schema` then reads them"""

    def resolve_schema(self) -> Schema:
        """The columns, from the declaration or the place. Raises SourceError if neither has them."""

    def reader(self) -> SourceReader:
        """A fresh driver-side reader. Raises SourceError if the place does not exist or access is denied."""

    def decoder(self) -> Decoder:
        """A fresh decoder for the blocks that `read` yields."""

    def read(self, stream: SourceStream) -> Iterator[Block]:
        """Executor side: the blocks of that stream. Raises SourceError if the place changed after the stream was logged."""


class TracingSource(SourceConnector, Protocol):
    """A source with numbered records, which may contain their origin (ability `traces_origin`). Each method reads the place, and raises
    SourceError or Unreachable."""

    def numbers_of(self, stream: SourceStream, *, offset: int | None = None, ordinal: int | None = None) -> tuple[int, int] | None:
        """The position of a record in a stream, given one of its two numbers. Reads the stream up to the record.

        Args:
            stream: The stream.
            offset: The record's offset; Python steps identify a record by it.
            ordinal: The number of the record in the stream, from 0; steps that Spark runs identify a record by it.

        Returns:
            (offset, ordinal); None if the stream has no such record, or its beginning no longer exists.
        """

    def made_of(self, place: str, sequence: int) -> tuple[str, str] | None:
        """(flow, id of the record there) for the record `SOURCE/<place>@<sequence>`; None if it has no origin, or no longer exists."""


class LocatingSource(SourceConnector, Protocol):
    """A source whose records come from other hosts (ability `locates_records`). Each method may read the place, and raises SourceError or
    Unreachable."""

    def find_record(self, stream: SourceStream, place: str, number: int) -> int | None:
        """The number in the stream, from 0, of the record `SOURCE/<place>@<number>`; None if the stream does not have it."""

    def locate_record(self, stream: SourceStream, ordinal: int) -> Mapping[str, Any] | None:
        """Where the record with that number in the stream was first read, and the stations on its way, for people: name → value, in their
        order; None if the stream has no such record."""


@dataclass(frozen=True, slots=True)
class BatchId:
    """The identity of a Batch: (lineage, number), with the Term of the lease under which it runs."""

    flow: str
    query: str
    lineage: str
    number: int
    term: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of one task output staged for one sink. `segments` is the sink's own JSON, with a `crc` for staged files, so that an audit
    can detect a damaged or exchanged file; `rows` and `bytes` are for people and the ledger."""

    sink: str
    unit: int
    rows: int
    bytes: int
    segments: tuple[Mapping[str, Any], ...] = ()
    digest: int | None = None
    """for a channel: the digest of the row ids, which does not depend on their order (`Origins.digest`)"""

    def as_json(self) -> dict[str, Any]:
        """The form in write receipts and decision records."""
        form = {"sink": self.sink, "unit": self.unit, "rows": self.rows, "bytes": self.bytes, "segments": [dict(s) for s in self.segments]}
        return form if self.digest is None else form | {"digest": self.digest}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Receipt:
        """The write receipt from the form that `as_json` wrote."""
        return Receipt(data["sink"], data["unit"], data["rows"], data["bytes"], tuple(data["segments"]), data.get("digest"))


class SinkStream(Protocol):
    """Executor side: writes one task output to one sink. Ended by `close`, or by `abort`, which leaves nothing behind."""

    wants_ids: bool
    """True if `write` requires ids"""

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Stage the rows; nothing becomes visible. Returns the rows that the place can never accept, by their index in `batch`.

        `ids`: the origin of each row, the same each time the row is produced (`tweets-0@17`, `a.jsonl[0:4096]+3`); a second row from the
        same record ends in `.1`, and so on. None unless `wants_ids` is True.
        """

    def close(self) -> Receipt:
        """Make the rows durable. A stream that wrote no row returns a write receipt without segments."""

    def abort(self) -> None:
        """Delete the staged rows; called if the task fails. Never raises."""


class JsonStream(SinkStream, Protocol):
    """A SinkStream that writes JSON (ability `takes_json`): rows that are not in Arrow form yet are passed to it as JSON, at a third of the
    cost. It must also accept Arrow, for other rows, and write the same output for them."""

    json_needs: Sequence[str] | None
    """columns that it additionally requires as Arrow; None if it accepts only Arrow"""

    def write_json(self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Like `write`, for rows that are JSON.

        Args:
            lines: Each row as an object with all columns in the schema's order, terminated by a line feed (an object contains none).
            rows: The number of rows.
            columns: The columns of `json_needs`, as Arrow.
            ids: As in `write`.
        """


class OriginStream(Protocol):
    """A stream of a channel, which stores the first coordinates of each row as numbers (ability `takes_origins`). Otherwise like a
    SinkStream."""

    wants_origins: bool
    """True; a stream that can also be used as a SinkStream returns False in that case"""

    def write_from(self, batch: pa.RecordBatch, origins: Origins) -> Sequence[Bad]:
        """Like `SinkStream.write`."""

    def close(self) -> Receipt:
        """Like `SinkStream.close`."""

    def abort(self) -> None:
        """Like `SinkStream.abort`."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The part of a decision record for one sink: enough to publish from any process, without running any step."""

    batch: BatchId
    input_hash: str
    receipts: tuple[Receipt, ...] = ()
    behind: Mapping[str, Any] = field(default_factory=dict)
    """the state of the sink's place before the Batch ran; see ChainedSink"""
    refused: int = 0
    """the number of rows in the write receipts that the place does not accept; see OfferingSink"""

    @property
    def rows(self) -> int:
        """The number of rows that are, or will be, at the place."""
        return sum(receipt.rows for receipt in self.receipts) - self.refused


NEXT_RUN = "the next run of the flow publishes"
"""text in a violation of `audit`: the rows are not at the place yet, and a run puts them there"""


@dataclass(frozen=True, slots=True)
class Published:
    """One committed Batch as found at the sink's place, for `audit`: rows, and violations (empty if the Batch is correct)."""

    number: int
    rows: int
    violations: tuple[str, ...] = ()
    counted: bool = True
    """False if `rows` is from a record, because the rows at the place cannot be counted by Batch"""


class SinkConnector(Protocol):
    """One configured sink, driver side."""

    exactly_once: bool

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the place for this installation and lineage, or confirm an existing claim.

        Args:
            owner: The installation.
            lineage: The lineage that will write.
            adopt: Add the lineage although there are commits of others (`--append-new-lineage`).

        Raises:
            Refused: Commits of another flow or lineage exist there; with the remedy.
        """

    def publish(self, decided: Decided) -> None:
        """Make the decided rows visible. Idempotent. Raises FencedError or StateError, never skips."""

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Called after a start: finish publishing the newest decision, and delete staged data that no record names. The caller holds the
        query's lease.

        Args:
            decided: The newest decision; None if there is none.
            lineage: The lineage whose staged data is deleted.
            before: Staged data of Batches below this number is deleted.
        """

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        """Read the place again, as an independent reader would, and compare it with the decisions.

        `decided` starts after the Batches whose details were pruned: those are reported from the place's own records alone, or not at all.
        """

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete everything that this installation's flow wrote here, of all lineages, and the claim (`reset --outputs`). Data that was
        never committed through this sink is kept.

        Args:
            owner: The installation.
            flow: The flow.
            dry_run: Delete nothing, only count.

        Returns:
            The number of deleted files; of rows, if there are no files.

        Raises:
            Refused: Others have written there too. Nothing is deleted then.
        """


class StagingSink(SinkConnector, Protocol):
    """A sink that creates its own streams. All sinks do, except that of a group, whose members create them. Must be picklable: executors
    get a copy."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SinkStream | OriginStream:
        """Create a stream for one task output. Runs in an executor.

        Args:
            batch: The Batch.
            unit: The number of the task output in the Batch.
            attempt: A globally unique id of the attempt, used only in names of staged data.
            schema: The columns of the rows.
        """


class ChainedSink(SinkConnector, Protocol):
    """A sink whose place records only its newest commits, so that each Batch must record which commits it follows (ability
    `chains_batches`)."""

    def behind(self, units: int) -> Mapping[str, Any]:
        """The newest commits at the place, as JSON. Called in the driver before a Batch runs. The value is stored in the Batch's decision,
        and `publish` refuses to continue from any other state.

        Args:
            units: The number of task outputs that will commit one by one; 0 if the Batch commits as a whole.
        """


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Contents of a sink's place that the flow's state does not account for. `what`: `lineage ID`, for a lineage that the state does not
    contain, or `that no record names`. `rows` is None if it could only be found by reading the data; `items` are files or objects."""

    what: str
    rows: int | None = None
    items: int = 0

    @property
    def is_of_lineage(self) -> bool:
        """True if a flow wrote it, although the flow's state does not contain that lineage."""
        return self.what.startswith("lineage ")

    def __str__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows:,} row{'s' * (self.rows != 1)}"
        files = f"{self.items:,} file{'s' * (self.items != 1)}" * bool(self.items)
        what = self.what if self.rows is None else f"of {self.what}, which this state does not know"
        return f"{' in '.join(filter(None, [rows, files]))} {what}"


class CountingSink(SinkConnector, Protocol):
    """A sink whose place records what others wrote there (ability `finds_unaccounted`)."""

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """The contents that the flow's state does not account for. Runs in the driver, for `audit`; changes nothing.

        Args:
            known: The lineages that the flow's state accounts for, of any sink.
        """


BESIDE_OUTPUTS = ".scribengin-trash"
"""The folder below a sink's own in which removed files are kept: readers skip names that begin with a dot"""
_REMOVED = "removed-", ".removed"


def removed_name(name: str) -> str:
    """The name that a removed file gets: readers that also read such folders select files by the start or end of a name."""
    return name.join(_REMOVED)


def name_before(removed: str) -> str:
    """The name of a file before it was removed; names of folders do not change."""
    begin, end = _REMOVED
    return removed[len(begin) : -len(end)] if removed.startswith(begin) and removed.endswith(end) else removed


class TracingSink(SinkConnector, Protocol):
    """A sink whose rows contain their origin (ability `traces_rows`)."""

    def places_of(self, lineage: str, number: int, records: Collection[str]) -> Iterator[str]:
        """The positions of rows that a Batch wrote and that came from given records. Reads everything that the Batch wrote.

        Args:
            lineage: The lineage of the Batch.
            number: The number of the Batch.
            records: The ids of the records.

        Returns:
            Positions in the form that a source of the same system uses: `topic-0@17`.

        Raises:
            SinkError, Unreachable: The place cannot be read.
        """


class TrashSink(SinkConnector, Protocol):
    """A sink whose place has its own trash: data that `reset` removed can be restored for a while (ability `has_trash`). Each method is
    idempotent and may be interrupted at any point; `id_` identifies the reset."""

    restorable: bool
    """False if the store does not support it"""
    place: str
    """the place that the sink writes to; it may differ in another flow file"""

    def move_to_trash(self, id_: str, *, owner: str, flow: str) -> int:
        """Like `clear`, but move the data to the trash."""

    def check_back(self, id_: str) -> None:
        """Raise Refused if the original place is occupied by now, or the trash is empty; changes nothing."""

    def move_back(self, id_: str) -> None:
        """Restore everything; the claim comes last."""

    def drop_trash(self, id_: str) -> None:
        """Delete the trash permanently."""


class RestorableSink(SinkConnector, Protocol):
    """A sink whose rows are files that can be renamed: files that `reset` removed can be restored for a while (ability
    `restores_files`)."""

    restorable: bool
    """True; a sink that supports it only sometimes returns False otherwise"""
    path: Path

    def move_away(self, kept: Path, *, owner: str, flow: str) -> int:
        """Like `clear`, but move the files to another folder. Moving them back, the claim last, restores the former state. Idempotent: it
        may be interrupted at any point and repeated.

        Args:
            kept: The folder to move to. Files keep their folders relative to `path`, and are named by `removed_name`.
            owner: The installation.
            flow: The flow.

        Returns:
            The number of files.
        """


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row of a decided Batch that the place never accepts. `id`: the origin of the row, as passed to a SinkStream; `came`: the input row
    of the sink, as a JSON object."""

    id: str
    reason: str
    message: str
    came: bytes


class OfferingSink(SinkConnector, Protocol):
    """A sink whose place accepts or refuses rows one by one, and only when they are sent (ability `refuses_rows`). Refused rows are stored
    in a record beside the decision, between `offer` and `publish`: each refused row becomes a dead letter, once."""

    on_error: str
    """what happens to a refused row: `dead_letter`, `drop` or `fail`"""

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:
        """Make the decided rows visible, and call `refuse` for each that the place never accepts. Idempotent; may be repeated after a
        crash, or run by two drivers at once: a row that already exists counts as accepted. Returns when every row is accepted or refused.
        Raises as `publish`, which then only records `refused`."""


class ComparingSink(SinkConnector, Protocol):
    """A sink whose place has its own columns, perhaps created by a person, such as a table (ability `compares_columns`)."""

    def unlike(self, schema: Schema) -> list[str]:
        """Why the place does not accept rows with these columns, one sentence per reason. Runs in the driver before a start; changes
        nothing."""


class BufferingSink(SinkConnector, Protocol):
    """A sink that may keep a published Batch for a while because its place is unavailable (ability `buffers_batches`)."""

    def upkeep(self) -> list[str]:
        """Send waiting rows, if the place accepts them now. Called in the driver from time to time, between Batches. Returns sentences for
        people."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """The flow that is going to claim a sink's place. `owner` is the installation, `lineage` that of the query; empty if a run creates a
    new one. `adopt`: as in `SinkConnector.prepare`; `decided`: the decision that will be recovered there, if it is known."""

    owner: str
    lineage: str
    adopt: bool = False
    decided: Decided | None = None


class PlaceChecking(Protocol):
    """A sink whose external place can be checked before any run, by `validate --env`, or a source whose reader connects only after it is
    created (ability `checks_place`)."""

    def check_place(self) -> None:
        """Connect, and check that the data to read, or the target of rows, exists and can be inspected. Runs in the driver, changes
        nothing, and takes at most seconds. Raises Unreachable, SourceError or SinkError."""


class CodeSink(SinkConnector, Protocol):
    """A sink whose streams run user code (ability `runs_code`)."""

    load: Callable[[str], Any] | None
    """returns the object of a reference to user code; set in the executor's copy before a stream is requested"""


class MaskingSink(SinkConnector, Protocol):
    """A sink that passes secrets to Spark in options (ability `masks`)."""

    redacted: Sequence[str]
    """the names of the options that hold secrets"""


class HandedOverSource(SourceConnector, Protocol):
    """A source whose records come from another tier: all of its blocks are TracedBlocks (ability `handed_over`)."""

    handed_over: bool
    """True"""


class StateAuditedSink(SinkConnector, Protocol):
    """A sink whose audit reads only the flow's state, and never the place (ability `audited_in_state`)."""

    audited_in_state: bool
    """True"""


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """The arguments for building a connector: the node's id, the flow's folder and others. Relative paths start at `folder`; those of
    options that travel with the flow (`core.options`) start at `code_folder`."""

    node: str
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: Schema | None = None
    on_error: str = "dead_letter"
    flow: str = ""
    version: str = ""
    """version of the flow's definition, for a sink that reports it"""
    work: Path | None = None
    """the sink's own folder in the state, where it may stage; None if nothing will be written"""
    earlier: tuple[Path, ...] = ()
    """the `work` folders of all queries, of this and other tiers, that wrote to the sink in the flow's life: for `audit`; only set with
    `work`"""
    delivery: str = "exactly_once"
    """the delivery guarantee that a sink is built for"""
    members: tuple[tuple[str, float, Mapping[str, Any]], ...] = ()
    """for a node with a group: (name, cost, options) of each member"""
    member: str = ""
    """the name of the member, for a node that is a member of a group: the numbers of its Batches have gaps"""
    code: Path | None = None
    """the folder of the flow's code; None if it is `folder`"""
    kept_elsewhere: frozenset[str] = frozenset()
    """folders of sinks that another process maintains"""
    any_columns: bool = False
    """True if the user accepted that the first file of a source has other columns than the flow declares"""
    learned: tuple[str, ...] = ()
    """columns of `schema` that its evolution added to the declared ones; a value that does not fit is read as null, without an error"""
    static: bool = False
    """True for a source that is a lookup table: it is read completely at each start"""
    keys: Mapping[str, str] = field(default_factory=dict)
    """columns of a source that the flow reads as keys, each with its use as text for people: `the join key of step "placed"`"""

    @property
    def code_folder(self) -> Path:
        """The folder that relative paths of files which belong to the flow's text, such as schemas, start at."""
        return self.folder if self.code is None else self.code


# Sinks that commit the task outputs of a Batch one by one, beside the contract that all sinks implement.


class AlreadyCommitted(Exception):
    """Raised by a UnitStream if this task output of this Batch is already committed; `report` is the report that its task stored then."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        super().__init__("committed by another attempt")
        self.report = report


class UnitStream(SinkStream, Protocol):
    """A stream whose rows become visible by `commit`, in one step with the report of its task.

    `write`, `close` and `commit` raise AlreadyCommitted if another attempt committed first. `close` waits until the rows are in their final
    place, still invisible, and records it in the write receipt.
    """

    def commit(self, report: Mapping[str, Any]) -> None:
        """Make rows and report visible together."""


class UnitSink(ChainedSink, StagingSink, Protocol):
    """A sink that can commit the task outputs of a Batch one by one, each in its own transaction, which also contains its report (ability
    `commits_units`). The engine uses it if a task output is the same whenever the Batch is run: its `input_hash` identifies the input, and
    the unit number the part."""

    units: int
    """maximum number of task outputs of a Batch"""

    def unit_stream(
        self, batch: BatchId, unit: int, attempt: str, schema: Schema, *, input_hash: str, behind: Mapping[str, Any]
    ) -> UnitStream:
        """Create a stream for one task output, like `stream`. Runs in an executor.

        Args:
            batch: The Batch.
            unit: The number of the task output, from 0.
            attempt: A globally unique id of the attempt.
            schema: The columns of the rows.
            input_hash: Identifies the input of the Batch.
            behind: The value of `ChainedSink.behind`.
        """


# The contract of sinks whose rows are written by one of Spark's own sinks.


class RowStream(SinkStream, Protocol):
    """A stream of a SparkSink. `write` prepares rows for Spark, `close` only counts them (ability `spark_writes`)."""

    def take(self) -> Sequence[pa.RecordBatch]:
        """The rows prepared for Spark since the last call, with the sink's `columns`."""


class SparkSink(StagingSink, Protocol):
    """A sink whose rows are written by one of Spark's own sinks, at least once: a Batch that fails, or is killed, before it is decided is
    written again (ability `spark_writes`). It is the only sink of its query. `stream` returns RowStreams; `publish` does nothing."""

    format: str
    """Spark's name for its sink"""
    columns: str
    """the columns of the rows for Spark, as DDL"""
    jars: str
    """the set of jars that Spark needs for it (`embedded.jars`)"""

    def spark_options(self) -> Mapping[str, str]:
        """The options for Spark's sink, with secrets in plain text: pass them only to Spark, with redaction of all names in `redacted`.
        Raises SinkError for settings that Spark's client does not have."""

    def fault(self, text: str) -> ScribenginError | None:
        """Spark's message about a failed write as a Scribengin error; None if the place is not the cause."""
