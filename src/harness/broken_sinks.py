"""Commit protocols that are wrong on purpose, each with one fault of a careless author. The checker must detect every one.

Each is a function that creates a `Driver` for a Job; `BROKEN` contains them by name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.connectors.files.sink_folders import INTERNAL
from scribengin.core import faults
from scribengin.core.storage import SummedFile, read_or_none, remove_tree, replace
from scribengin.state.decisions import Decisions, decision_as_json, decision_from_json
from scribengin.state.publishing import recover_query
from scribengin.testing.protocol import Driver, Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.connectors.contract import BatchId, Decided, Receipt, SinkStream
    from scribengin.core.types import Schema
    from scribengin.state.contract import Decision


def _place(job: Job, node: str) -> ConnectorContext:
    options = {"path": str(job.out / node), "format": job.format, "partition_by": job.partition_by, "compression": job.compression}
    return ConnectorContext(node, job.out, SINK.filled(options))


class _EagerStream:
    """Makes each file visible as soon as its task ends."""

    wants_ids = False

    def __init__(self, sink: FilesSink, inner: SinkStream, batch: BatchId, *, name: Callable[[str], str]) -> None:
        self._path = sink.path
        self._staged = sink.path / INTERNAL / batch.lineage / "staged" / f"{batch.number:010d}"
        self._inner = inner
        self._name = name
        self.write, self.abort = inner.write, inner.abort

    def close(self) -> Receipt:
        receipt = self._inner.close()
        for segment in receipt.segments:
            final = self._path / self._name(segment["name"])
            final.parent.mkdir(parents=True, exist_ok=True)
            (self._staged / segment["staged"]).rename(final)
        return receipt


class NoStaging(FilesSink):
    """Tasks write files that readers see at once; all attempts use the same name, so that "a retry just overwrites it"."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        return _EagerStream(self, super().stream(batch, unit, attempt, schema), batch, name=lambda name: name)

    def publish(self, decided: Decided) -> None:  # noqa: D102
        pass

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:  # noqa: D102
        pass


class NamesFromTheAttempt(NoStaging):
    """The same with the attempt in the name, so that attempts "cannot overwrite one another"."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        inner = FilesSink.stream(self, batch, unit, attempt, schema)
        return _EagerStream(self, inner, batch, name=lambda name: name.replace("part-", f"part-{attempt[:8]}-"))


class OverwrittenDecisions(Decisions):
    """The last decision replaces an earlier one."""

    def decide(self, decision: Decision, *, hash_under: Callable[[str], str] | None = None) -> Decision:  # noqa: ARG002, D102
        body = decision_as_json(decision)
        path = self.folder / f"{decision.batch.number:010d}.json"
        faults.reached("decide.before")
        path.unlink(missing_ok=True)
        self._log.put(decision.batch.number, body)
        faults.reached("decide.after")
        return decision_from_json(body)


class TrustingSink(FilesSink):
    """Publishes over existing files, and records nothing."""

    def publish(self, decided: Decided) -> None:  # noqa: D102
        staged = self.path / INTERNAL / decided.batch.lineage / "staged" / f"{decided.batch.number:010d}"
        for receipt in decided.receipts:
            for segment in receipt.segments:
                final = self.path / segment["name"]
                final.parent.mkdir(parents=True, exist_ok=True)
                if (staged / segment["staged"]).exists():
                    (staged / segment["staged"]).replace(final)
                faults.reached("publish.renamed")

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:  # noqa: D102
        pass


class UnsyncedSink(FilesSink):
    """Does not sync: the operating system determines when the rows reach the disk."""

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:  # noqa: D102
        SummedFile.sync = lambda file: file.flush()  # type: ignore[method-assign,assignment]  # in this child
        return super().stream(batch, unit, attempt, schema)


class CopyingSink(FilesSink):
    """Publishes by copying, because "a rename may cross file systems"; so readers see growing files."""

    def _publish(self, decided: Decided) -> None:
        staged = self.path / INTERNAL / decided.batch.lineage / "staged" / f"{decided.batch.number:010d}"
        for receipt in decided.receipts:
            for segment in receipt.segments:
                final = self.path / segment["name"]
                final.parent.mkdir(parents=True, exist_ok=True)
                if not final.exists():
                    copy_slowly(staged / segment["staged"], final)


class SkippingSink(FilesSink):
    """Takes each Batch with a number up to the highest published one for published, without comparing its decision."""

    def _publish(self, decided: Decided) -> None:
        mark = self.path / INTERNAL / "done"
        if decided.batch.number <= int(read_or_none(mark) or b"-1"):
            return
        replace(mark, str(decided.batch.number).encode())
        super()._publish(decided)


def copy_slowly(source: Path, target: Path) -> None:
    """Copy a file in two writes, with a crash point in the middle of a row."""
    with source.open("rb") as read, target.open("wb") as write:
        data = read.read()
        middle = len(data) // 2
        middle -= data[middle - 1 : middle] == b"\n"  # between two rows no row would be truncated
        write.write(data[:middle])
        write.flush()
        os.fsync(write.fileno())
        faults.reached("publish.renamed")
        write.write(data[middle:])


def _recover_too_much(query: Any, sinks: Any, *, lineage: str, lease: Any) -> Any:
    """Deletes all staged data at a start, as if a crash had left it: it may belong to a suspended driver that can still decide."""
    newest = recover_query(query, sinks, lineage=lineage, lease=lease)
    for sink in sinks.values():
        remove_tree(sink.path / INTERNAL / lineage / "staged")
    remove_tree(query.dead / f"{0 if newest is None else newest.batch.number + 1:010d}")
    return newest


def no_staging(job: Job) -> Driver:
    """Rows are visible before they are decided."""
    return Driver(job, lambda job, node: NoStaging(_place(job, node)))


def names_from_the_attempt(job: Job) -> Driver:
    """Rows are visible before they are decided, once per attempt."""
    return Driver(job, lambda job, node: NamesFromTheAttempt(_place(job, node)))


def decision_overwritten(job: Job) -> Driver:
    """A second driver replaces a decision that the first one has begun to publish."""
    return Driver(job, make_decisions=OverwrittenDecisions)


def publish_before_fsync(job: Job) -> Driver:
    """Rows are decided and visible, but not durable."""
    return Driver(job, lambda job, node: UnsyncedSink(_place(job, node)))


def replay_from_rerun(job: Job) -> Driver:
    """A decided Batch is run again after a crash, and the new result is published."""
    return Driver(job, lambda job, node: TrustingSink(_place(job, node)), replay_from_rerun=True)


def purged_too_early(job: Job) -> Driver:
    """Recovery deletes the staged data of an undecided Batch."""
    return Driver(job, recover=_recover_too_much)


def copied_into_place(job: Job) -> Driver:
    """Readers see parts of files."""
    return Driver(job, lambda job, node: CopyingSink(_place(job, node)))


def skipped_silently(job: Job) -> Driver:
    """The Batch is recorded before it is published."""
    return Driver(job, lambda job, node: SkippingSink(_place(job, node)))


BROKEN = {
    make.__name__: make
    for make in (
        no_staging,
        names_from_the_attempt,
        decision_overwritten,
        publish_before_fsync,
        replay_from_rerun,
        purged_too_early,
        copied_into_place,
        skipped_silently,
    )
}
