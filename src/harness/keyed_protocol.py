"""The commit protocol without Spark over keyed stores in files of SQLite, which refuse some rows behind the decision."""

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
"""what the stores do not take: a quarter of the records"""


@dataclass(frozen=True, slots=True)
class KeyedJob(Job):
    """As Job; `out` holds a file for each sink."""

    def store(self, node: str) -> SqliteStore:
        """The store of that sink."""
        return SqliteStore(self.out / f"{node}.db", REFUSED)

    def read(self, torn: list[str]) -> dict[str, list[Found]]:  # noqa: ARG002 (a document is whole)
        """What a foreign reader finds, by sink."""
        return {node: [Found(node, row) for row in self.store(node).documents()] for node in SINKS}


def keyed_sink(job: Job, node: str, make_store: Callable[[Path], SqliteStore] | None = None) -> StagingSink:
    """The sink under test."""
    assert isinstance(job, KeyedJob)
    job.out.mkdir(parents=True, exist_ok=True)
    store = job.store(node) if make_store is None else make_store(job.out / f"{node}.db")
    return KeyedSink(ConnectorContext(node, job.out, work=job.query.path / "work" / node), store, key=(), connections=2)


def keyed_driver(job: Job) -> Driver:
    """One that writes to these."""
    return Driver(job, keyed_sink)
