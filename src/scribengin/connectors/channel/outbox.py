"""Edges that do not block their upstream tier while the channel is unavailable: Batches that cannot be sent now wait here, in order, or are
dropped.

`store_on_failure` keeps the Batches that the channel did not accept, up to a limit, and sends them before any newer one; beyond the limit
the upstream tier waits, and nothing is lost. `best_effort` keeps the one Batch whose outcome is unknown, and drops, with a count, the
Batches that arrive while the channel is unavailable or full.

    <work>/<lineage>/outbox/waiting/<number>.json    a waiting Batch: its decision; its rows are still staged
    <work>/<lineage>/outbox/dropped/…                a record for each that was dropped, in order: number, rows, bytes and why

A Batch is removed from `waiting` when the channel has it. It is sent under its own number: the channel recognises a Batch that is sent
twice.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.connectors.abilities import can_restore, chains_batches, has_trash
from scribengin.connectors.contract import BatchId, Decided, Published, Receipt
from scribengin.core import faults
from scribengin.core.errors import EnvironmentFault, SinkError, Unreachable, text_of
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.storage import make_folder, names_in, put_if_absent, read_or_none, sync_folder
from scribengin.core.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import OriginStream, RestorableSink, SinkStream, StagingSink
    from scribengin.core.types import Schema

_BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""seconds before a failed channel is tried again"""
_AWAY = (Unreachable, SinkError, EnvironmentFault, OSError)


@dataclass(frozen=True, slots=True)
class Left:
    """The contents of one lineage's outbox: waiting Batches, and Batches dropped so far."""

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    dropped_rows: int = 0
    dropped_batches: int = 0


def dropped_log(work: Path, lineage: str) -> NumberedLog:
    """The log of dropped Batches: records with `number` (of the Batch), `rows`, `bytes`, `why`. `work` is the sink's folder in
    the state."""
    return NumberedLog(_outbox(work, lineage) / "dropped", "dropped")


def waiting_numbers(work: Path, lineage: str) -> set[int]:
    """The numbers of the waiting Batches."""
    return {int(name[:10]) for name in names_in(_waiting_folder(work, lineage)) if name[:10].isdigit()}


def read_left(work: Path, lineage: str) -> Left:
    """Read the contents of an outbox from the sink's folder in the state; needs no lease."""
    folder = _waiting_folder(work, lineage)
    waiting = [found for name in names_in(folder) if (found := _read(folder / name)) is not None]
    high, summary = (log := dropped_log(work, lineage)).summary()
    dropped = _summed(summary, (body for _, body in log.since(high + 1)))
    return Left(
        sum(receipt.rows for each in waiting for receipt in each.receipts),
        sum(receipt.bytes for each in waiting for receipt in each.receipts),
        len(waiting),
        dropped["rows"],
        dropped["batches"],
    )


def left_text(node: str, left: Left) -> str:
    """The contents of an outbox as a sentence for people; empty if no Batch waits and none was dropped."""
    parts = []
    if left.batches:
        parts.append(f"{left.rows:,} rows ({show_bytes(left.bytes)}) wait in the state folder until the channel is available again")
    if left.dropped_rows:
        parts.append(f"{left.dropped_rows:,} rows were dropped while the channel was unavailable or the buffer was full")
    return f"{node}: {', and '.join(parts)}" if parts else ""


@dataclass
class OutboxSink:
    """A channel's sink whose Batches commit as a whole, each when the channel accepts it. Executors get a pickled copy.

    `most_bytes` is the limit of waiting bytes; None (`best_effort`): one Batch waits, others are dropped.
    """

    inner: StagingSink
    node: str
    work: Path | None
    most_bytes: int | None
    now: Callable[[], float] = time.monotonic
    is_full: Callable[[], str] | None = None
    """for `best_effort`: returns why the channel has no space now; empty if it has"""
    exactly_once: bool = True
    _claim: dict[str, Any] = field(default_factory=dict)
    _claimed: bool = False
    _failures: int = 0
    _again_s: float = 0.0
    _why: str = ""
    _notices: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.RLock)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "is_full": None, "now": time.monotonic}

    # --- the contract ---

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the channel now; if it is unavailable, later, before the first Batch is sent."""
        claim = {"owner": owner, "lineage": lineage, "adopt": adopt}
        self._claimed = self._claimed and claim == self._claim
        self._claim = claim
        self._tried(lambda: None)

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> SinkStream | OriginStream:
        """Create a stream of the channel's sink, which makes no request to the channel."""
        return self.inner.stream(batch, unit, attempt, schema)

    def behind(self, units: int) -> Mapping[str, Any]:  # noqa: ARG002 (the contract's; Batches of an outbox commit as a whole)
        """A value that does not depend on the channel, which may be unavailable. The newest commits of the channel are determined when the
        Batch is sent."""
        return {"outbox": True}

    def publish(self, decided: Decided) -> None:
        """Send, keep or drop the Batch. Raises Unreachable if the limit of waiting Batches is reached."""
        with self._lock:
            number = decided.batch.number
            if self._path(decided.batch).exists() or self._newest_dropped(decided.batch.lineage) == number:
                return
            if self._was_handed_over(decided):
                return
            if self.most_bytes is None and not self._waiting() and (why := self.is_full() if self.is_full else ""):
                self._drop(decided, why)
                return
            if not self._drain() or not self._tried(lambda: self._handed_over(decided)):
                self._keep(decided)

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, and delete leftovers of older Batches. The staged files of waiting Batches are kept."""
        self._claim.setdefault("lineage", lineage)
        if decided is not None:
            self.publish(decided)
        first = min((each.batch.number for each in self._waiting()), default=before)
        with suppress(*_AWAY):  # leftovers are deleted at any later start
            self.inner.recover(None, lineage=lineage, before=min(before, first))

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        """Audit the channel's sink. Batches that wait, or were dropped, are not searched in the channel: they are reported last, with the
        rows of their write receipts and without violations."""
        elsewhere = {each.batch.number for each in self._waiting(lineage)}
        elsewhere |= {body["number"] for _, body in self._dropped(lineage).since()}
        rows: dict[int, int] = {}

        def handed_over() -> Iterator[Decided]:
            for each in decided:
                if each.batch.number in elsewhere:
                    rows[each.batch.number] = sum(receipt.rows for receipt in each.receipts)
                else:
                    yield each

        yield from self.inner.audit(lineage=lineage, decided=handed_over())
        for number, there in rows.items():
            yield Published(number, there)

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """See SinkConnector; clears the channel's sink."""
        return self.inner.clear(owner=owner, flow=flow, dry_run=dry_run)

    @property
    def restorable(self) -> bool:
        """True if the channel's sink can restore its files."""
        return can_restore(self.inner) and not has_trash(self.inner)

    @property
    def path(self) -> Path:
        """The folder of a `restorable` channel."""
        return self._restored.path

    def move_away(self, kept: Path, *, owner: str, flow: str) -> int:
        """See `RestorableSink`."""
        return self._restored.move_away(kept, owner=owner, flow=flow)

    @property
    def _restored(self) -> RestorableSink:
        assert can_restore(self.inner)
        assert not has_trash(self.inner)
        return self.inner

    def upkeep(self) -> list[str]:
        """Send waiting Batches if the channel is available again. Called from time to time while no Batch is published. Returns sentences
        for people."""
        with self._lock:
            if self._waiting():
                self._drain()
            told, self._notices = self._notices, []
            return told

    def left(self) -> Left:
        """The waiting and the dropped Batches."""
        return Left() if self.work is None or "lineage" not in self._claim else read_left(self.work, self._claim["lineage"])

    @property
    def is_claimed(self) -> bool:
        """True after the channel was claimed by this process."""
        return self._claimed

    # --- handing over ---

    def _drain(self) -> bool:
        """Send waiting Batches, oldest first. Returns False if some still wait."""
        waiting = self._waiting()
        for each in waiting:
            if not self._tried(lambda each=each: self._handed_over(each)):  # type: ignore[misc]
                return False
            self._path(each.batch).unlink(missing_ok=True)
            faults.reached("outbox.drained")
        if waiting:
            sync_folder(self._path(waiting[0].batch).parent)
            self._notices.append(
                f"{self.node}: the channel is available again; {len(waiting)} waiting Batch{'es' * (len(waiting) != 1)} were sent"
            )
        return True

    def _was_handed_over(self, decided: Decided) -> bool:
        """True if a newer Batch was sent, and therefore this one too, because they are sent in order. If such a Batch still waits, its
        removal was lost in a crash, or an older driver kept a Batch that its successor had sent."""
        inner: Any = self.inner
        try:
            return bool(inner.newest_published(decided.batch.lineage) > decided.batch.number)
        except _AWAY:
            return False

    def _handed_over(self, decided: Decided) -> None:
        if self._was_handed_over(decided):
            return
        inner: Any = self.inner
        behind = inner.behind_published(decided.batch.lineage) if chains_batches(self.inner) else {}
        self.inner.publish(replace(decided, behind=behind))

    def _tried(self, act: Callable[[], None]) -> bool:
        """Claim the channel if necessary, and run `act`. Returns False if the channel is unavailable, or must not be tried yet."""
        if self._failures and self.now() < self._again_s:
            return False
        try:
            if not self._claimed:
                self.inner.prepare(**self._claim)
                self._claimed = True
            act()
        except _AWAY as error:
            self._why = text_of(error)
            if not self._failures:
                goes = "rows are dropped" if self.most_bytes is None else "rows wait in the state folder"
                self._notices.append(f"{self.node}: the channel is unavailable, {goes} until it is available again ({self._why})")
            self._again_s = self.now() + _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
            self._failures += 1
            return False
        self._failures = 0
        return True

    def _keep(self, decided: Decided) -> None:
        if self._was_handed_over(decided):  # by this driver's successor, in the meantime
            return
        waiting = self._waiting()
        if self.most_bytes is None and waiting:
            self._drop(decided, self._why)
            return
        size = sum(receipt.bytes for receipt in decided.receipts)
        there = sum(receipt.bytes for each in waiting for receipt in each.receipts)
        if self.most_bytes is not None and there + size > self.most_bytes:
            raise Unreachable(
                f'sink "{self.node}": the channel is unavailable, and {show_bytes(there)} of at most {show_bytes(self.most_bytes)} are '
                f"buffered; batch {decided.batch.number} waits in its tier ({self._why})",
                remedy="make the channel available; or raise the limit of the buffer: spill: 10GiB",
                node=self.node,
            )
        faults.reached("outbox.keep.before")
        make_folder(self._path(decided.batch).parent)
        put_if_absent(self._path(decided.batch), _encoded(decided))
        faults.reached("outbox.keep.after")

    def _drop(self, decided: Decided, why: str) -> None:
        rows, size = (sum(getattr(receipt, what) for receipt in decided.receipts) for what in ("rows", "bytes"))
        log = self._dropped(decided.batch.lineage)
        nth = newest + 1 if (newest := log.newest()) is not None else 0
        log.put(nth, {"number": decided.batch.number, "rows": rows, "bytes": size, "why": why})
        faults.reached("outbox.dropped")
        inner: Any = self.inner
        inner.discard(decided.batch)
        if log.wants_folding(nth):
            log.fold(_summed)

    # --- the folder ---

    def _own_work(self) -> Path:
        assert self.work is not None, "a sink opened without the state folder can neither write nor report what it wrote"
        return self.work

    def _path(self, batch: BatchId) -> Path:
        return _waiting_folder(self._own_work(), batch.lineage) / f"{batch.number:010d}.json"

    def _waiting(self, lineage: str = "") -> list[Decided]:
        folder = _waiting_folder(self._own_work(), lineage or self._claim["lineage"])
        return [found for name in sorted(names_in(folder)) if (found := _read(folder / name)) is not None]

    def _dropped(self, lineage: str) -> NumberedLog:
        return dropped_log(self._own_work(), lineage)

    def _newest_dropped(self, lineage: str) -> int | None:
        log = self._dropped(lineage)
        newest = log.newest()
        return None if newest is None else log.read(newest)["number"]  # type: ignore[index]


def _outbox(work: Path, lineage: str) -> Path:
    return work / lineage / "outbox"


def _waiting_folder(work: Path, lineage: str) -> Path:
    return _outbox(work, lineage) / "waiting"


def _encoded(decided: Decided) -> bytes:
    batch = decided.batch
    return msgspec.json.encode(
        {
            "batch": [batch.flow, batch.query, batch.lineage, batch.number, batch.term],
            "hash": decided.input_hash,
            "receipts": [receipt.as_json() for receipt in decided.receipts],
        }
    )


def _read(path: Path) -> Decided | None:
    """Read a waiting Batch. None for a draft, and for a Batch that was just sent."""
    data = read_or_none(path) if path.suffix == ".json" and not path.name.startswith(".") else None
    if data is None:
        return None
    body = msgspec.json.decode(data)
    return Decided(BatchId(*body["batch"]), body["hash"], tuple(Receipt.from_json(each) for each in body["receipts"]))


def _summed(summary: Any | None, records: Iterable[Any]) -> dict[str, int]:
    so_far = dict(summary or {"rows": 0, "batches": 0})
    for record in records:
        so_far = {"rows": so_far["rows"] + record["rows"], "batches": so_far["batches"] + 1}
    return so_far
