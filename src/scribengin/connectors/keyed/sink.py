"""The sink of a keyed store: tasks stage rows in the state folder; after the decision the driver sends them with their versions."""

from __future__ import annotations

import time
from collections import Counter, deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Published, RefusedRow, Unaccounted
from scribengin.connectors.keyed.staged import (
    StagedForm,
    StagedStream,
    as_json,
    batch_folder,
    drop_staged,
    read_staged,
    staged_batches,
    staged_schema,
)
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, SinkError, StateError, Unreachable
from scribengin.core.remedies import add_to_outputs, beside_flow, beside_installation, rename_back, start_over

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.keyed.contract import KeyedRows, KeyedStore, PartitionedPlace, WriteAnswer, WriterRecord
    from scribengin.core.types import Schema


# KeyedSender sends the rows of a Batch in concurrent requests, whose size is adapted so that the store answers quickly, and repeats rows
# that the store did not accept yet.


FIRST_ROWS = 1_000
_LEAST_ROWS, _MOST_ROWS = 10, 20_000
_SLOW_S, _FAST_S = 4.0, 0.5
"""a request that takes longer than the first halves the size of the next one; one that takes less than the second doubles it"""
_MOST_BYTES = 8 << 20
_WAIT_S, _MOST_WAIT_S = 0.1, 10.0
PATIENCE_S = 60.0
"""seconds for which the store may temporarily refuse all rows; then the query fails, and restarts automatically"""


@dataclass(slots=True)
class RequestPace:
    """The number of rows in a request, adapted to the store; kept across Batches."""

    rows: int = FIRST_ROWS

    def heed(self, sent: int, seconds: float, rows: KeyedRows) -> None:
        """Adapt the size after a request. A request that was sent before a reduction does not increase the size again.

        Args:
            sent: The number of rows in the request.
            seconds: How long it took.
            rows: The rows.
        """
        if seconds > _SLOW_S:
            self.rows = max(_LEAST_ROWS, min(self.rows, sent // 2))
        elif seconds < _FAST_S and sent >= self.rows:
            by_size = _MOST_BYTES * sent // max(1, rows.columns.nbytes)
            self.rows = max(_LEAST_ROWS, min(_MOST_ROWS, 2 * self.rows, by_size))

    def shrink(self, sent: int) -> None:
        """Reduce the size after a request with that many rows was too large."""
        self.rows = max(1, min(self.rows, sent // 2))


@dataclass(slots=True)
class _Waiting:
    """Rows to send, not before the time `at` (monotonic)."""

    rows: KeyedRows
    at: float = 0.0
    wait_s: float = _WAIT_S


@dataclass(slots=True)
class KeyedSender:
    """Sends the rows of one Batch. `refuse(rows, index, reason, message)` is called, in the caller's thread, for each row that the store
    never accepts."""

    store: KeyedStore
    pace: RequestPace
    connections: int
    refuse: Callable[[KeyedRows, int, str, str], None]
    between: Callable[[], None]
    """called regularly; raises if this process may not send any more"""
    most: int
    """the highest version of this flow's rows"""
    strange: Callable[[int], None]
    """called with a stored version above `most`, which another writer must have written; raises"""
    _ready: deque[_Waiting] = field(default_factory=deque)
    _flying: dict[Future[tuple[WriteAnswer, float]], _Waiting] = field(default_factory=dict)
    _moved: float = 0.0

    def send(self, rows: Iterable[KeyedRows]) -> None:
        """Send all rows; returns when each is accepted or refused. Raises Unreachable if the store accepts none for a minute."""
        pool = ThreadPoolExecutor(self.connections, "scribengin-send")
        self._moved = time.monotonic()
        try:
            for each in rows:
                self._ready.append(_Waiting(each))
                while len(self._ready) > 1:
                    self._step(pool)
            while self._ready or self._flying:
                self._step(pool)
        finally:
            # requests in progress are harmless: they are sent again unchanged
            pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, pool: ThreadPoolExecutor) -> bool:
        """Send the next waiting rows; returns False if none may be sent yet."""
        now = time.monotonic()
        for index, waiting in enumerate(self._ready):
            if waiting.at > now:
                continue
            del self._ready[index]
            first = waiting.rows.part(0, self.pace.rows)
            if len(waiting.rows) > len(first):
                rest = waiting.rows.part(len(first), len(waiting.rows) - len(first))
                self._ready.insert(index, _Waiting(rest, waiting.at, waiting.wait_s))
            self._flying[pool.submit(self._timed, first)] = _Waiting(first, waiting.at, waiting.wait_s)
            return True
        return False

    def _timed(self, rows: KeyedRows) -> tuple[WriteAnswer, float]:
        begun = time.monotonic()
        return self.store.send(rows), time.monotonic() - begun

    def _step(self, pool: ThreadPoolExecutor) -> None:
        while len(self._flying) < self.connections and self._start(pool):
            pass
        self.between()
        if not self._flying:
            time.sleep(max(0.0, min(waiting.at for waiting in self._ready) - time.monotonic()))
            return
        done, _ = wait(self._flying, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            self._take(self._flying.pop(future), *future.result())

    def _take(self, sent: _Waiting, answer: WriteAnswer, seconds: float) -> None:
        now = time.monotonic()
        if answer.too_large:
            if len(sent.rows) == 1:
                self.refuse(sent.rows, 0, "too-large", f"{self.store} rejected a request with only this row: it is too large")
                return
            self.pace.shrink(len(sent.rows))
            self._ready.appendleft(_Waiting(sent.rows))
            return
        if answer.above > self.most:
            self.strange(answer.above)
        for index, reason, message in answer.refused:
            self.refuse(sent.rows, index, reason, message)
        if len(answer.again) < len(sent.rows):
            self._moved = now
            faults.reached("offer.sent")
        if not answer.again:
            self.pace.heed(len(sent.rows), seconds, sent.rows)
            return
        if now - self._moved > PATIENCE_S:
            raise Unreachable(
                f"{self.store} has accepted no rows for {now - self._moved:.0f} s" + (f": {answer.why}" if answer.why else ""),
                remedy="check whether the store is overloaded or full; a running flow retries automatically",
                code="store-overloaded",
            )
        self.pace.shrink(len(sent.rows))
        for first, count in _runs(answer.again):
            self._ready.append(_Waiting(sent.rows.part(first, count), now + sent.wait_s, min(2 * sent.wait_s, _MOST_WAIT_S)))


def _runs(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """(first, count) of each run of consecutive indexes.

    >>> _runs([0, 1, 2, 7, 9, 10])
    [(0, 3), (7, 1), (9, 2)]
    """
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and sum(runs[-1]) == index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


# The version of a row: base of the lineage + Batch and position in it. 63 bits, above 0.
#
# A base is a time in microseconds (currently about 2 ** 51), or more if an earlier lineage has reached higher versions. So rows that
# others wrote with the time as their version, as Cassandra's clients do, lose too.


PLACE_BITS = 28
MOST_ROWS = 1 << PLACE_BITS
"""maximum number of rows of one Batch for one sink"""
_MOST = (1 << 63) - 1
_ROOM = 1 << 48
"""room for versions above a base: a million Batches"""


def version_of(base: int, batch: int, place: int) -> int:
    """The version of the row at position `place` (from 0) of a Batch. Raises OverflowError above 63 bits, which takes some 10 ** 10
    Batches.

    Args:
        base: The base of the lineage.
        batch: The number of the Batch.
        place: The position of the row in the Batch, from 0.
    """
    version = base + (batch << PLACE_BITS) + place
    if version > _MOST:
        raise OverflowError(f"version {version} does not fit into 63 bits")
    return version


def batch_of(base: int, version: int) -> int:
    """The Batch that wrote a version; negative if the version is from an earlier lineage."""
    return (version - base) >> PLACE_BITS


def next_base(base: int | None, newest: int, others: int = 0) -> int:
    """The base of the versions of a new lineage. It is above all versions that were written before.

    Args:
        base: The base of the lineage before; None if there is none.
        newest: The newest Batch of the lineage before; -1 if there is none.
        others: The highest version of other writers' rows.

    Raises:
        OverflowError: if these versions leave too little room.
    """
    found = max(time.time_ns() // 1000, others + 1)
    if base is not None:
        # one Batch more than recorded may have been sent already
        found = max(found, version_of(base, newest + 2, 0))
    if found > _MOST - _ROOM:
        raise OverflowError(f"there is no room for new versions above {found - 1}")
    return found


CHECK_S = 1.0


@dataclass(frozen=True, slots=True)
class _Record:
    """The writer of the place and the newest Batch: the place's record, decoded."""

    owner: str
    """empty if the place is not claimed: its rows were deleted"""
    lineage: str
    sink: str
    flow: str
    base: int
    number: int = -1
    hash: str = ""
    term: int = 0
    rows: int = 0
    """the number of rows in all Batches of the lineage"""
    earlier: tuple[str, ...] = ()
    had_rows: bool = False
    """True if it contained rows of others when it was first claimed"""
    brief: bool = False
    """True if rows whose id is their origin get ids from `brief_ids`"""

    def as_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__} | {"earlier": list(self.earlier)}
        # a version of Scribengin without brief ids would write each row again under its long id: it rejects a record with this field
        return fields if self.brief else {name: value for name, value in fields.items() if name != "brief"}

    @staticmethod
    def of(held: WriterRecord) -> _Record:
        return _Record(**{**held.body, "earlier": tuple(held.body["earlier"])})


class _Told:
    """Makes the ids of one Batch unique."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._often: Counter[str] = Counter()

    def apart(self, rows: KeyedRows) -> KeyedRows:
        """Make the ids unique: `~~1` is appended to the second row with an id, `~~2` to the third, and so on."""
        if self._seen.isdisjoint(rows.ids) and len(set(rows.ids)) == len(rows):
            self._seen.update(rows.ids)
            return rows
        return replace(rows, ids=[self._own(id_) for id_ in rows.ids])

    def _own(self, id_: str) -> str:
        if id_ not in self._seen:
            self._seen.add(id_)
            return id_
        self._often[id_] += 1
        return f"{id_}~~{self._often[id_]}"


class KeyedSink:
    """An OfferingSink that writes to a KeyedStore.

    Args:
        place: The context of the sink.
        store: The store.
        key: The columns that form the id of a row; empty: the origin of the row is its id.
        connections: The maximum number of concurrent requests.
        parts: For a store that accepts JSON: the part of the place that a row goes to. Rows with the same id must go to the same part.
        brief: Use short ids (`brief_ids`), if the place is empty when it is first claimed.
    """

    exactly_once = True

    def __init__(
        self,
        place: ConnectorContext,
        store: KeyedStore,
        *,
        key: tuple[str, ...],
        connections: int,
        parts: PartitionedPlace | None = None,
        brief: bool = False,
    ) -> None:
        self.node = place.node
        self.on_error = place.on_error
        self._store = store
        self._flow = place.flow
        self._work = place.work
        self._key = key
        self._connections = connections
        self._parts = parts
        self._brief = brief
        self._pace = RequestPace()
        self._owner = ""
        self._made = False
        self._below: int | None = None
        """number of rows with versions from before this lineage; None if they were not counted yet"""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the place, or confirm an existing claim of this lineage. Raises Refused if the place contains rows of others, unless
        `adopt`."""
        while True:
            held = self._store.read_record()
            old = None if held is None else _Record.of(held)
            self._owner = owner
            if old is not None and (old.owner, old.lineage, old.sink, old.flow) == (owner, lineage, self.node, self._flow):
                self._check_there(old)
                return
            if old is not None and lineage in old.earlier:
                raise self._foreign("a newer lineage has taken it over")
            taken = old is not None and bool(old.owner)
            had_rows = old.had_rows if old is not None and taken else not self._store.is_empty()
            if not adopt and old is not None and taken:
                self._check_writer(old, owner, self._flow)
                self._check_sink(old.sink)
            if not adopt and (taken or had_rows):
                raise self._foreign("it holds rows that this lineage did not write")
            base = self._next_base(old, others=had_rows and not taken)
            earlier = () if old is None else (*old.earlier, old.lineage)
            # a later lineage replaces existing rows only if it uses the same ids
            brief = old.brief if old is not None and (taken or had_rows) else self._brief and not had_rows
            new = _Record(owner, lineage, self.node, self._flow, base, earlier=earlier, had_rows=had_rows, brief=brief)
            if self._store.write_record(new.as_json(), held):
                return

    def check_place(self) -> None:
        """See PlaceChecking."""
        held = self._store.read_record()
        if held is not None:
            self._check_there(_Record.of(held))

    def check_ready(self, *, claimed: bool) -> None:
        """See `group.contract.MemberSink`."""
        held = self._store.read_record()
        if claimed and held is None:
            raise Unreachable(
                f'sink "{self.node}": {self._store} has no claim: this is not the place that the flow claimed',
                remedy="restore it, or connect to the claimed one",
                node=self.node,
            )
        if held is not None:
            self._check_there(_Record.of(held))

    def unlike(self, schema: Schema) -> list[str]:
        """Why the place does not accept the columns, one sentence per reason; empty if it does."""
        return self._store.unlike(schema)

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> StagedStream:
        """A stream that stages one task output."""
        form = StagedForm(self._store.form == "json", self._key, self._store.most_id_bytes, self._parts)
        return StagedStream(self.node, batch_folder(self._folder, batch.lineage, batch.number), unit, attempt, schema, form)

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:
        """Send the decided rows. It is checked regularly that the claim is still valid: rows that are sent after the claim was lost do not
        replace the successor's rows, but would be visible until the successor has written its own."""
        record, _ = self._mine(decided)
        if self._is_done(record, decided):
            return
        try:
            self._send(decided, record, refuse)
        except StateError:
            # another process deletes staged rows as soon as it has published them
            if not self._is_done(self._mine(decided)[0], decided):
                raise

    def _send(self, decided: Decided, record: _Record, refuse: Callable[[RefusedRow], None]) -> None:
        self._make(decided, record)
        looked = time.monotonic()

        def check_turn() -> None:
            nonlocal looked
            if time.monotonic() - looked > CHECK_S:
                self._is_done(self._mine(decided)[0], decided)
                looked = time.monotonic()

        def refused(rows: KeyedRows, index: int, reason: str, message: str) -> None:
            refuse(RefusedRow(rows.made_of[index], reason, message, as_json(self._store.form, rows.columns, index)))

        def strange(version: int) -> None:
            self._is_done(self._mine(decided)[0], decided)
            raise self._overwritten(decided.batch, version)

        most = version_of(record.base, decided.batch.number + 1, 0) - 1
        KeyedSender(self._store, self._pace, self._connections, refused, check_turn, most, strange).send(self._rows(decided, record))

    def publish(self, decided: Decided) -> None:
        """Record the Batch at the place, unless it is recorded. All of its rows were offered before."""
        while True:
            record, held = self._mine(decided)
            if self._is_done(record, decided):
                break
            batch = decided.batch
            new = {
                **record.as_json(),
                "number": batch.number,
                "hash": decided.input_hash,
                "term": batch.term,
                "rows": record.rows + decided.rows,
            }
            faults.reached("publish.record.before")
            if self._store.write_record(new, held):
                faults.reached("publish.record.after")
                break
        drop_staged(self._folder, decided.batch.lineage, [decided.batch.number])

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, then delete the staged rows of decided Batches."""
        if decided is not None:
            self.publish(decided)
        drop_staged(self._folder, lineage, [number for number in staged_batches(self._folder, lineage) if number < before])

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        """Compare the decisions with the record; if ids are origins, count the rows of each Batch by their versions. Rows with versions
        above all of this lineage belong to another writer, and would hide rows of this flow. `since`: see `group.contract.MemberSink`."""
        held = self._store.read_record()
        record = None if held is None else _Record.of(held)
        if record is None or record.lineage != lineage:
            for each in decided:
                yield Published(each.batch.number, 0, (f"{self._store} is not claimed by this lineage any more",))
            return
        found = self._counted(record.base)
        last = record.number
        for each in decided:
            number = each.batch.number
            last = max(last, number)
            if number > record.number:
                lost = self._staged_fault(each)
                then = f", and no run can do it: {lost}" if lost else "; the next run publishes it"
                yield Published(number, 0, (f"batch {number} is decided, but not published{then}",))
                continue
            rows = each.rows if self._key else found.pop(number, 0)
            short = rows != each.rows
            wrong = (f"batch {number}: expected {each.rows} rows in {self._store}, found {rows}",) if short else ()
            yield Published(number, rows, wrong, counted=not self._key)
        for number, rows in sorted(found.items()):
            if 0 <= number <= record.number and not self._key:
                undecided = since is not None and number >= since
                yield Published(number, rows, (f"batch {number} is published, but there is no decision for it",) if undecided else ())
        strange = sum(rows for number, rows in found.items() if number > last)
        if strange:
            yield Published(-1, 0, (f"{strange} rows in {self._store} belong to no batch",))

    def unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """See `CountingSink`. The versions that `audit` has read show which rows are older than this lineage, but not who wrote them."""
        held = self._store.read_record()
        if held is None:
            return []
        record = _Record.of(held)
        unknown = [f"lineage {lineage}" for lineage in record.earlier if lineage not in known]
        if len(unknown) < len(record.earlier) and unknown:
            unknown.append("lineages before it")
        if record.had_rows:
            unknown.append("other writers, before this flow wrote there")
        if not unknown:
            return []
        if self._below is None:
            self._counted(record.base)
        return [Unaccounted(" or ".join(unknown), self._below)] if self._below else []

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete all rows; returns their number. Raises Refused if they may include rows of others.

        The record is kept, without a claim: stores remember the versions of deleted rows for a while, and the next writer must use higher
        ones.
        """
        held = self._store.read_record()
        if held is None or not held.body["owner"]:
            return 0
        record = _Record.of(held)
        self._check_writer(record, owner, flow)
        if record.had_rows:
            raise self._foreign("it already held rows of other writers when the flow started to write there")
        if dry_run:
            return sum(len(some) for some in self._store.versions())
        rows = self._store.clear()
        if not self._store.write_record(replace(record, owner="").as_json(), held):
            raise self._foreign("another flow has claimed it meanwhile")
        return rows

    # --- implementation ---

    @property
    def _folder(self) -> Path:
        assert self._work is not None, "a sink needs a work folder to be written to"
        return self._work

    def _make(self, decided: Decided, record: _Record) -> None:
        """Create the place, once per process, if the Batch has rows."""
        segment = next((segment for receipt in decided.receipts for segment in receipt.segments), None)
        if segment is not None and not self._made:
            self._check_there(record)
            folder = batch_folder(self._folder, decided.batch.lineage, decided.batch.number)
            self._store.make(staged_schema(folder, segment, self.node))
            self._made = True

    def _rows(self, decided: Decided, record: _Record) -> Iterator[KeyedRows]:
        """The rows of a Batch with their versions, in the decided order: task output by task output. Without a key, rows with the same
        origin get different ids."""
        folder = batch_folder(self._folder, decided.batch.lineage, decided.batch.number)
        place = 0
        told = _Told()
        for segment in (segment for receipt in decided.receipts for segment in receipt.segments):
            version = version_of(record.base, decided.batch.number, place)
            for rows in read_staged(folder, segment, version, self.node, brief=record.brief and not self._key):
                yield rows if self._key else told.apart(rows)
            place += segment["rows"]
            if place > MOST_ROWS:
                raise self._too_many(decided)

    def _staged_fault(self, decided: Decided) -> str:
        """The error in the staged rows of the Batch; empty if there is none."""
        folder = batch_folder(self._folder, decided.batch.lineage, decided.batch.number)
        try:
            for segment in (segment for receipt in decided.receipts for segment in receipt.segments):
                staged_schema(folder, segment, self.node)
        except StateError as error:
            return error.message
        return ""

    def _mine(self, decided: Decided) -> tuple[_Record, WriterRecord]:
        held = self._store.read_record()
        record = None if held is None else _Record.of(held)
        if held is None or record is None or (record.owner, record.lineage) != (self._owner, decided.batch.lineage):
            raise self._fenced(decided.batch, "another lineage has claimed it")
        return record, held

    def _is_done(self, record: _Record, decided: Decided) -> bool:
        """True if exactly this Batch is recorded. Raises FencedError if it is recorded with another decision, or if a later one is
        recorded."""
        batch = decided.batch
        if record.number == batch.number:
            if record.hash != decided.input_hash:
                raise self._fenced(batch, "it already exists with another decision")
            return True
        if record.number > batch.number or record.term > batch.term:
            raise self._fenced(batch, f"batch {record.number} already exists, under Term {record.term}")
        return False

    def _next_base(self, old: _Record | None, *, others: bool) -> int:
        """A base above all versions written before. With `others`, unknown writers have written rows, so the version of each row is
        read."""
        highest = max((max(some, default=0) for some in self._store.versions()), default=0) if others else 0
        try:
            return next_base(None, -1, highest) if old is None else next_base(old.base, old.number, highest)
        except OverflowError as error:
            raise Refused(
                f'''sink "{self.node}": {self._store} holds rows with versions that always win over this flow's rows: {error}''',
                remedy="choose another place for this flow, or delete these rows",
                code="foreign-writer",
                node=self.node,
            ) from error

    def _counted(self, base: int) -> dict[int, int]:
        found: Counter[int] = Counter()
        for some in self._store.versions():
            found.update(batch_of(base, version) for version in some)
        self._below = sum(rows for number, rows in found.items() if number < 0)
        return found

    def _check_there(self, record: _Record) -> None:
        """Raise SinkError if the lineage has written rows and the place does not exist any more: a new place would hide the loss."""
        if record.owner and record.rows and not self._store.is_there():
            raise SinkError(
                (
                    f'''sink "{self.node}": {self._store} does not exist any more; {record.rows:,} row{"s" * (record.rows != 1)} had '''
                    "been written to it"
                ),
                remedy=f"restore it, or {start_over()}",
                code="table-gone",
                node=self.node,
            )

    def _check_writer(self, writer: _Record, owner: str, flow: str) -> None:
        """Raise Refused if the writer is another flow, or another installation, whose rows a reset of this flow does not delete."""
        if writer.flow != flow:
            raise self._foreign(f'it holds rows of the flow "{writer.flow}"', beside_flow("place", writer.flow))
        if writer.owner != owner:
            raise self._foreign("another installation has written there", beside_installation("place", same_flow=True))

    def _check_sink(self, writer: str) -> None:
        """Raise Refused if another sink of this flow wrote there; a reset would delete its rows too."""
        if writer != self.node:
            remedy = f"{rename_back('sink', writer)}; or {start_over()}; or {add_to_outputs()}"
            raise self._foreign(f'it holds rows of the sink "{writer}"', remedy)

    def _foreign(self, why: str, remedy: str = "") -> Refused:
        return Refused(
            f'sink "{self.node}": {self._store}: {why}',
            remedy=remedy or f"{start_over()}; or {add_to_outputs()}",
            code="output-foreign",
            node=self.node,
        )

    def _fenced(self, batch: BatchId, why: str) -> FencedError:
        return FencedError(
            f'sink "{self.node}" refuses batch {batch.number} of lineage {batch.lineage}: {why} ({self._store})',
            remedy="another driver writes here, or the state folder was copied or restored; stop this driver",
            node=self.node,
        )

    def _overwritten(self, batch: BatchId, version: int) -> SinkError:
        return SinkError(
            f'sink "{self.node}": {self._store} holds a row with version {version}, which is newer than any of this flow; the store '
            f"would keep that row over this flow's rows with the same id, so batch {batch.number} is not written",
            remedy="another program writes there: choose another place for this flow, or reset it",
            code="foreign-writer",
            node=self.node,
        )

    def _too_many(self, decided: Decided) -> StateError:
        return StateError(
            f'sink "{self.node}": batch {decided.batch.number} has more than {MOST_ROWS} rows',
            remedy="set a limit at the source: max_rows",
            node=self.node,
        )
