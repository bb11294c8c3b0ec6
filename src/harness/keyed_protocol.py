"""The driver of `testing.protocol` with keyed stores in SQLite files, which refuse some rows after the decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.keyed.sink import KeyedSink
from scribengin.testing.checker import Found
from scribengin.testing.protocol import SINKS, Driver, Job
from scribengin.testing.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.connectors.contract import StagingSink

REFUSED = b'"bucket":"a"'
"""the stores never accept documents that contain this: a quarter of the records"""


@dataclass(frozen=True, slots=True)
class KeyedJob(Job):
    """A Job whose `out` contains one file for each sink."""

    def store(self, node: str) -> SqliteStore:
        """The store of the sink of that node."""
        return SqliteStore(self.out / f"{node}.db", REFUSED)

    def read(self, torn: list[str]) -> dict[str, list[Found]]:  # noqa: ARG002 (a document is whole)
        """The rows that an independent reader finds, by sink."""
        return {node: [Found(node, row) for row in self.store(node).documents()] for node in SINKS}


def keyed_sink(job: Job, node: str, make_store: Callable[[Path], SqliteStore] | None = None) -> StagingSink:
    """The sink of a node, with its store from `make_store`."""
    assert isinstance(job, KeyedJob)
    job.out.mkdir(parents=True, exist_ok=True)
    store = job.store(node) if make_store is None else make_store(job.out / f"{node}.db")
    return KeyedSink(ConnectorContext(node, job.out, work=job.query.path / "work" / node), store, key=(), connections=2)


def keyed_driver(job: Job) -> Driver:
    """A driver that writes to these sinks."""
    return Driver(job, keyed_sink)
