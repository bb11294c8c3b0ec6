"""Files sinks that are wrong on purpose, each with one fault that `conformance.check_sink` must detect: deaths, kills, concurrent attempts,
rows that are never accepted, new columns, secrets. Faults of the commit protocol itself are in `broken_sinks`."""

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
"""a `seq` that the picky sinks never accept"""


class PurgesEarly(FilesSink):
    """Deletes all staged data at a start, as if a crash had left it: it may belong to a suspended driver that can still decide."""

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:  # noqa: D102
        super().recover(decided, lineage=lineage, before=before)
        remove_tree(self.path / INTERNAL / lineage / "staged")


class CopiesIntoPlace(FilesSink):
    """Publishes by copying, because "a rename may cross file systems"; so readers see growing files."""

    def _reveal(self, place: LineageFolder, batch: BatchId, record: Mapping[str, Any]) -> None:
        for staged, final in place.files_of(batch.number, record, self.path):
            if staged.exists() and not final.exists():
                copy_slowly(staged, final)
                staged.unlink()
        super()._reveal(place, batch, record)


class CleansUp(FilesSink):
    """Records first that the Batch is published, and removes that record after an error: a killed process does not remove it."""

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
    """A stream that passes calls to another one; subclasses change one of its methods."""

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
    """Allows one attempt at a time, by a lock file that a killed attempt leaves behind."""

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
    """Remembers which task outputs are being written, and refuses another attempt meanwhile."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        key = (str(self.path), batch.number, unit)
        if _OPEN.setdefault(key, attempt) != attempt:
            raise SinkError("another attempt is at it", remedy="wait for its end")
        return _Shared(super().stream(batch, unit, attempt, schema), key)


_WRITES = threading.Lock()
_OPEN: dict[tuple[str, int, int], Any] = {}


class SharesItsWriter(FilesSink):
    """Gives all attempts at a task output in one process the same writer, because "two never run there at once"."""

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
    """A correct sink: rows with the seq `POISON` are refused."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        return _Picky(super().stream(batch, unit, attempt, schema), self)

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: ARG002 (for those that are broken)
        """The refused rows of a write with `rows` rows. `wrong` are the indexes of rows that are not accepted."""
        return [Bad(index, "seq", f"seq {POISON} is not taken") for index in wrong]


class _Picky(_Through):
    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:  # noqa: ARG002
        wrong = [index for index, seq in enumerate(batch.column("seq").to_pylist()) if seq == POISON]
        bad: Sequence[Bad] = self._sink.refused(wrong, batch.num_rows)
        kept = [index for index in range(batch.num_rows) if index not in wrong and index not in {each.ordinal for each in bad}]
        self._inner.write(batch.take(pa.array(kept, pa.int64())))
        return bad


class Forgets(Picky):
    """Drops the rows without reporting them."""

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: ARG002, D102
        return []


class RefusesAll(Picky):
    """Refuses all rows of a write if one of them is wrong."""

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: D102
        return [Bad(index, "seq", f"seq {POISON} is not taken") for index in range(rows)] if wrong else []


class Fails(Picky):
    """Fails at a wrong row, and would fail at each retry."""

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: D102
        if wrong:
            raise SinkError(f"seq {POISON} is not taken", remedy="give it another one")
        return super().refused(wrong, rows)


class SaysNoReason(Picky):
    """Refuses the rows without a reason."""

    def refused(self, wrong: list[int], rows: int) -> list[Bad]:  # noqa: D102
        return [replace(bad, reason="") for bad in super().refused(wrong, rows)]


# --- columns that come later ---


class DropsColumns(FilesSink):
    """Writes only the columns that it knows."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        known = Schema(tuple(field for field in schema.fields if field.name in KNOWN))
        return _Narrow(super().stream(batch, unit, attempt, known), self)


class _Narrow(_Through):
    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        return super().write(batch.select(list(KNOWN)), ids)


class FailsLate(FilesSink):
    """Has no `unlike`, and fails at every attempt to write rows with a new column."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        if set(schema.names) - set(KNOWN):
            raise SinkError("there is a new column", remedy="leave it out")
        return super().stream(batch, unit, attempt, schema)


class Mumbles(FilesSink):
    """Reports that the columns differ, but not which."""

    def unlike(self, schema: Schema) -> list[str]:
        """A reason that names no column."""
        return ["the columns are different"] if set(schema.names) - set(KNOWN) else []


# --- secrets ---


class HasToken(FilesSink):
    """A correct sink: it has a token, and does not reveal it."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        self._token = place.options["token"]


class InItsText(HasToken):
    """Reveals the token in its text, as a dataclass with all its fields would."""

    def __repr__(self) -> str:
        return f"InItsText({self._token!r})"


class InReceipts(HasToken):
    """Reveals the token in write receipts."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        return _Signed(super().stream(batch, unit, attempt, schema), self._token)


class _Signed(_Through):
    def close(self) -> Receipt:
        receipt = super().close()
        return replace(receipt, segments=tuple({**segment, "by": self._sink} for segment in receipt.segments))


class InAFile(HasToken):
    """Stores the token in a file, for the next start."""

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:  # noqa: D102
        super().prepare(owner=owner, lineage=lineage, adopt=adopt)
        put(self.path / INTERNAL / "settings", f"token={self._token}".encode())


class InErrors(HasToken):
    """Reveals the token in an error of a library, which contains it in the address; our own error, raised from it, does not."""

    def publish(self, decided: Decided) -> None:  # noqa: D102
        try:
            super().publish(decided)
        except FencedError as error:
            raise FencedError("the place refuses the batch", remedy=error.remedy) from OSError(f"https://{self._token}@example.org: 409")


class InLogs(HasToken):
    """Logs the token."""

    def publish(self, decided: Decided) -> None:  # noqa: D102
        logging.getLogger(__name__).warning("publishing with %s", self._token)
        super().publish(decided)
