"""Where a table is stored: the common interface of a folder and a prefix in a store, for any writer."""

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
        """The end of its name."""

    @property
    def commits(self) -> NumberedLog:
        """The records of published Batches. One without `files` is not a Batch: it ends the lineage."""

    def read_mark(self) -> int:
        """The newest Batch for which it and all earlier ones are complete; -1 if that is not known."""


class TablePlace(ABC):
    """Where a table is stored, and how it is accessed. Names are in the log's form: relative to the table, with `/`."""

    node: str
    """the id of the sink; empty for pure maintenance"""

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
            # checked first: opening a place without a table raises an ordinary error
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
        """All lineages that wrote here."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """A small file of Scribengin's own; None if there is none."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> bool:
        """Write one unless it exists; returns whether it was written."""

    @abstractmethod
    def made(self) -> None:
        """Called after the client created the table: make it durable."""

    @abstractmethod
    def committed(self, *, files: bool) -> None:
        """Called after the client committed: make the newest log file durable, and of `files` those that the client wrote for this
        commit."""

    @abstractmethod
    def log(self) -> Iterator[tuple[int, bytes]]:
        """(version, its actions as lines of JSON), as far back as the log goes."""

    @abstractmethod
    def read_again(self, file: Mapping[str, Any]) -> tuple[int, list[str]]:
        """(rows found, errors) for a file, compared with its record."""

    @abstractmethod
    def waiting(self) -> Collection[str]:
        """Files named like those of the table that a Batch which is not decided yet may need."""

    @abstractmethod
    def strays(self) -> Iterator[str]:
        """Leftovers of killed tasks and writers that are not needed."""

    @abstractmethod
    def delete(self, name: str) -> int | None:
        """The number of deleted bytes; None if there is no such file."""
