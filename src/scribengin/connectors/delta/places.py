"""The interface of the place of a table, which is a folder or a prefix in a store, for any writer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.delta.client import client, fault_of_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import deltalake

    from scribengin.core.errors import ScribenginError
    from scribengin.core.numbered_log import NumberedLog


class TableWriter(Protocol):
    """A lineage that writes, or wrote, to the table."""

    @property
    def path(self) -> Path:
        """The path of the lineage's own folder; its name is the lineage."""

    @property
    def commits(self) -> NumberedLog:
        """The commit records of published Batches. A record without `files` is not a Batch: it closes the lineage."""

    def read_mark(self) -> int:
        """The newest Batch that is complete, together with all before it; -1 if that is not known."""


class TablePlace(ABC):
    """The place of a table, and how it is accessed. Names are in the log's form: relative to the table, with `/`."""

    node: str
    """the id of the sink; empty for maintenance alone"""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The client's name of the table."""

    @property
    def options(self) -> dict[str, str] | None:
        """The client's storage options; None if it needs none. Contains the secret in plain text."""
        return None

    def __str__(self) -> str:
        return self.uri

    def open(self) -> deltalake.DeltaTable | None:
        """The current table; None if there is none. Raises SinkError if it cannot be read."""
        library = client()
        try:
            # the existence is checked first: opening a place without a table raises an ordinary error
            if not library.DeltaTable.is_deltatable(self.uri, self.options):
                return None
            table: deltalake.DeltaTable = library.DeltaTable(self.uri, storage_options=self.options)
        except (library.exceptions.DeltaError, OSError, ValueError) as error:
            raise self.fault(error, "cannot be read as a Delta table") from error
        return table

    def fault(self, error: Exception, what: str) -> ScribenginError:
        """A client error as a Scribengin error. `what`: the action that failed, such as "cannot be written"."""
        return fault_of_folder(self.node, str(self), error, what)

    @abstractmethod
    def lineages(self) -> Sequence[TableWriter]:
        """All lineages that have written to the table."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content of a small file of Scribengin's own; None if there is none."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> bool:
        """Write a small file unless it exists; returns True if it was written."""

    @abstractmethod
    def made(self) -> None:
        """Make a table durable that the client has just created."""

    @abstractmethod
    def committed(self, *, files: bool) -> None:
        """Make the newest log file durable after a commit of the client; with `files` also the data files that the client wrote for this
        commit."""

    @abstractmethod
    def log(self) -> Iterator[tuple[int, bytes]]:
        """(version, its actions as lines of JSON) from the log, as far back as it goes."""

    @abstractmethod
    def read_again(self, file: Mapping[str, Any]) -> tuple[int, list[str]]:
        """Read a file again and compare it with its record; returns (rows found, errors)."""

    @abstractmethod
    def waiting(self) -> Collection[str]:
        """The names of files, named like those of the table, that a Batch which is not decided yet may need."""

    @abstractmethod
    def strays(self) -> Iterator[str]:
        """The names of leftovers of killed tasks and writers, which are not needed."""

    @abstractmethod
    def delete(self, name: str) -> int | None:
        """Delete a file. Returns the number of deleted bytes; None if there is no such file."""
