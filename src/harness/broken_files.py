"""Files sinks that are wrong on purpose, each in one way that `conformance.check_sink` must tell: deaths, kills, attempts at once, rows
that are never taken, new columns, secrets. The commit protocol's own faults are in `broken_sinks`."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from harness.broken_sinks import copy_slowly
from scribengin.connectors.files.sink import FilesSink
from scribengin.connectors.files.sink_folders import INTERNAL
from scribengin.core.errors import FencedError, SinkError
from scribengin.core.storage import read_or_none, remove_tree
from scribengin.core.storage import replace as put
from scribengin.core.types import Schema
from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Receipt
    from scribengin.connectors.files.sink_folders import LineageFolder

KNOWN = ("run", "part", "seq", "bucket", "body", "crc")
POISON = 666
"""a `seq` that the picky ones never take"""


class PurgesEarly(FilesSink):
    """ "What is staged at a start was left by a crash": it may be a sleeping driver's, which can still decide."""

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:  # noqa: D102
        super().recover(decided, lineage=lineage, before=before)
        remove_tree(self.path / INTERNAL / lineage / "staged")


class CopiesIntoPlace(FilesSink):
    """Publishes by copying, because "a rename may cross file systems"; readers see how a file grows."""

    def _reveal(self, place: LineageFolder, batch: BatchId, record: Mapping[str, Any]) -> None:
        for staged, final in place.files_of(batch.number, record, self.path):
            if staged.exists() and not final.exists():
                copy_slowly(staged, final)
                staged.unlink()
        super()._reveal(place, batch, record)


class CleansUp(FilesSink):
    """Says first that the Batch stands there, and takes it back where anything goes wrong: a process that is killed takes nothing back."""

    def _publish(self, decided: Decided) -> None:
        mark, here = self.path / INTERNAL / "done", f"{decided.batch.number} {decided.input_hash}".encode()
        if read_or_none(mark) == here:
            return
        put(mark, here)
        begun = time.monotonic()
        try:
            super()._publish(decided)
        except BaseException:
            mark.unlink()
            raise
        logging.getLogger(__name__).debug("published in %.3f s", time.monotonic() - begun)


class _Through:
    """A stream before another one, to be changed at one place."""

    wants_ids = False

    def __init__(self, inner: Any, sink: Any) -> None:
        self._inner = inner
        self._sink = sink

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        bad: Sequence[Bad] = self._inner.write(batch, ids)
        return bad

    def close(self) -> Receipt:
        receipt: Receipt = self._inner.close()
        return receipt

    def abort(self) -> None:
        self._inner.abort()


class LocksItsUnit(FilesSink):
    """One attempt at a time: "the second one waits for nothing, the first is still there"."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        lock = self.path / INTERNAL / f"lock-{batch.number}-{unit}"
        lock.touch(exist_ok=False)
        return _Locked(super().stream(batch, unit, attempt, schema), lock)


class _Locked(_Through):
    def close(self) -> Receipt:
        self._sink.unlink()
        return super().close()

    def abort(self) -> None:
        self._sink.unlink()
        super().abort()


class OneAtATime(FilesSink):
    """Remembers which units are being written, and refuses another attempt meanwhile."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        key = (str(self.path), batch.number, unit)
        if _OPEN.setdefault(key, attempt) != attempt:
            raise SinkError("another attempt is at it", remedy="wait for its end")
        return _Shared(super().stream(batch, unit, attempt, schema), key)


_WRITES = threading.Lock()
_OPEN: dict[tuple[str, int, int], Any] = {}


class SharesItsWriter(FilesSink):
    """Attempts at one unit in one process get one writer, because "two never run there at once"."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        key = (str(self.path), batch.number, unit)
        return _OPEN.setdefault(key, _Shared(super().stream(batch, unit, attempt, schema), key))


class _Shared(_Through):
    _receipt: Receipt | None = None

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        with _WRITES:
            return super().write(batch, ids)

    def close(self) -> Receipt:
        with _WRITES:
            _OPEN.pop(self._sink, None)
            self._receipt = self._receipt or super().close()
            return self._receipt

    def abort(self) -> None:
        _OPEN.pop(self._sink, None)
        super().abort()


# --- rows that the place never takes ---


class Picky(FilesSink):
    """This one is right: rows with that `seq` come back."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        return _Picky(super().stream(batch, unit, attempt, schema), self)

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: ARG002 (for those that are broken)
        """What comes back of a write of so many rows."""
        return [Bad(index, "seq", f"seq {POISON} is not taken") for index in wrong]


class _Picky(_Through):
    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002
        wrong = [index for index, seq in enumerate(batch.column("seq").to_pylist()) if seq == POISON]
        bad: Sequence[Bad] = self._sink.refused(wrong, batch.num_rows)
        kept = [index for index in range(batch.num_rows) if index not in wrong and index not in {each.ordinal for each in bad}]
        self._inner.write(batch.take(pa.array(kept, pa.int64())))
        return bad


class Forgets(Picky):
    """Leaves them out, and says nothing."""

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: ARG002, D102
        return []


class RefusesAll(Picky):
    """Takes a write as one thing: what is wrong with one row is wrong with all of them."""

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: D102
        return [Bad(index, "seq", f"seq {POISON} is not taken") for index in range(rows)] if wrong else []


class Fails(Picky):
    """Fails, and would for ever."""

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: D102
        if wrong:
            raise SinkError(f"seq {POISON} is not taken", remedy="give it another one")
        return super().refused(wrong, rows)


class SaysNoReason(Picky):
    """Does not say why."""

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: D102
        return [replace(bad, reason="") for bad in super().refused(wrong, rows)]


# --- columns that come later ---


class DropsColumns(FilesSink):
    """Writes the columns that it knows."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        known = Schema(tuple(field for field in schema.fields if field.name in KNOWN))
        return _Narrow(super().stream(batch, unit, attempt, known), self)


class _Narrow(_Through):
    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        return super().write(batch.select(list(KNOWN)), ids)


class FailsLate(FilesSink):
    """Has no `unlike`, and fails when such rows come: at every try, as a Batch has them."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        if set(schema.names) - set(KNOWN):
            raise SinkError("there is a new column", remedy="leave it out")
        return super().stream(batch, unit, attempt, schema)


class Mumbles(FilesSink):
    """Says that something is wrong, and not what."""

    def unlike(self, schema: Schema) -> list[str]:
        """Not which column."""
        return ["the columns are different"] if set(schema.names) - set(KNOWN) else []


# --- secrets ---


class HasToken(FilesSink):
    """This one is right: it has a token, and keeps it to itself."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        self._token = place.options["token"]


class InItsText(HasToken):
    """As a dataclass with all its fields would."""

    def __repr__(self) -> str:
        return f"InItsText({self._token!r})"


class InReceipts(HasToken):
    """So that whoever publishes can read what was staged."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        return _Signed(super().stream(batch, unit, attempt, schema), self._token)


class _Signed(_Through):
    def close(self) -> Receipt:
        receipt = super().close()
        return replace(receipt, segments=tuple({**segment, "by": self._sink} for segment in receipt.segments))


class InAFile(HasToken):
    """For the next start."""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:  # noqa: D102
        super().prepare(owner=owner, lineage=lineage, adopt=adopt)
        put(self.path / INTERNAL / "settings", f"token={self._token}".encode())


class InErrors(HasToken):
    """With the address, as the library words it; what is said of it in our words does not help."""

    def publish(self, decided: Decided) -> None:  # noqa: D102
        try:
            super().publish(decided)
        except FencedError as error:
            raise FencedError("the place refuses the batch", remedy=error.remedy) from OSError(f"https://{self._token}@example.org: 409")


class InLogs(HasToken):
    """For whoever looks for a fault."""

    def publish(self, decided: Decided) -> None:  # noqa: D102
        logging.getLogger(__name__).warning("publishing with %s", self._token)
        super().publish(decided)
