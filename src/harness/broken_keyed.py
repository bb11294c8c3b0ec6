"""Keyed stores and sinks that are wrong on purpose, each with one fault of a careless author."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.keyed_protocol import KeyedJob
from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.keyed.contract import WriteAnswer
from scribengin.connectors.keyed.sink import KeyedSink
from scribengin.connectors.keyed.staged import batch_folder, drop_staged
from scribengin.testing.protocol import Driver, Job
from scribengin.testing.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.connectors.contract import BatchId, Decided, RefusedRow
    from scribengin.connectors.keyed.contract import KeyedRows
    from scribengin.core.types import Schema


class BlindStore(SqliteStore):
    """Replaces every stored row, whatever its version: "the newest write wins"."""

    def send(self, rows: KeyedRows) -> WriteAnswer:  # noqa: D102
        docs = rows.columns.column(0).to_pylist()
        with closing(self._open()) as connection, connection:
            written = [(id_, rows.version + index, doc) for index, (id_, doc) in enumerate(zip(rows.ids, docs, strict=True))]
            connection.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", written)
        return WriteAnswer()


class BulkStore(SqliteStore):
    """Refuses a whole request for now if one of its rows is never accepted."""

    def send(self, rows: KeyedRows) -> WriteAnswer:  # noqa: D102
        docs = rows.columns.column(0).to_pylist()
        if any(self.refuses in doc for doc in docs):
            return WriteAnswer(again=range(len(docs)))
        return super().send(rows)


class QuietStore(SqliteStore):
    """Drops the rows that it never accepts, without reporting them."""

    def send(self, rows: KeyedRows) -> WriteAnswer:  # noqa: D102
        return replace(super().send(rows), refused=())


class ImpatientStore(SqliteStore):
    """Reports a row that it refuses for now as accepted."""

    def send(self, rows: KeyedRows) -> WriteAnswer:  # noqa: D102
        return replace(super().send(rows), again=())


class AllAgainStore(SqliteStore):
    """Refuses a whole request for now if it refuses one of its rows for now."""

    def send(self, rows: KeyedRows) -> WriteAnswer:  # noqa: D102
        answer = super().send(rows)
        return replace(answer, again=range(len(rows))) if answer.again else answer


class SharedStaging(KeyedSink):
    """Stages under the name of the task output only, so that "a retry just overwrites it"."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: ARG002, D102
        for left in batch_folder(self._folder, batch.lineage, batch.number).glob(f"{unit:05d}-*"):
            left.unlink()
        return super().stream(batch, unit, "rows", schema)


class MarkerFirst(KeyedSink):
    """Records the Batch as published first, then sends it."""

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:  # noqa: D102
        record, held = self._mine(decided)
        if not self._is_done(record, decided):
            batch = decided.batch
            self._store.write_record(replace(record, number=batch.number, hash=decided.input_hash, term=batch.term).as_json(), held)
            self._send(decided, record, refuse)


class DropsWhenSent(KeyedSink):
    """Deletes the staged rows as soon as they are sent: the Batch is not recorded yet, and a recovery needs them."""

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:  # noqa: D102
        super().offer(decided, refuse)
        drop_staged(self._folder, decided.batch.lineage, [decided.batch.number])


def _driver(job: Job, kind: type[KeyedSink]) -> Driver:
    def make(job: Job, node: str) -> KeyedSink:
        assert isinstance(job, KeyedJob)
        job.out.mkdir(parents=True, exist_ok=True)
        return kind(ConnectorContext(node, job.out, work=job.query.path / "work" / node), job.store(node), key=(), connections=2)

    return Driver(job, make)


def staging_shared(job: Job) -> Driver:
    """Two attempts write the same file."""
    return _driver(job, SharedStaging)


def marker_first(job: Job) -> Driver:
    """The Batch is recorded before it is sent."""
    return _driver(job, MarkerFirst)


BROKEN = {make.__name__: make for make in (staging_shared, marker_first)}
