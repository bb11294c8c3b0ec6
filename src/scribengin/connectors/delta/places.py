"""Where a table lies: what its folder and its prefix in a store have in common, whoever writes to it."""

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
    """One that writes to a table, or has."""

    @property
    def path(self) -> Path:
        """Ends in its name."""

    @property
    def commits(self) -> NumberedLog:
        """What each Batch has published. One without `files` is no Batch: it ends the lineage."""

    def read_mark(self) -> int:
        """A Batch that is through, all before it too; -1 where that is not known."""


class TablePlace(ABC):
    """Where a table lies, and how it is reached. Names are those of the log: below the table, with `/`."""

    node: str
    """the sink's; empty for who only keeps the table"""

    @property
    @abstractmethod
    def uri(self) -> str:
        """What the client calls it."""

    @property
    def options(self) -> dict[str, str] | None:
        """What the client's store is told; None where it needs to know nothing. Holds the secret in plain."""
        return None

    def __str__(self) -> str:
        return self.uri

    def open(self) -> deltalake.DeltaTable | None:
        """The table as it is now; None where there is none. Raises SinkError for one that cannot be read."""
        library = client()
        try:
            # asked first: to open a place that holds no table is an error like others
            if not library.DeltaTable.is_deltatable(self.uri, self.options):
                return None
            table: deltalake.DeltaTable = library.DeltaTable(self.uri, storage_options=self.options)
        except (library.exceptions.DeltaError, OSError, ValueError) as error:
            raise self.fault(error, "cannot be read as a Delta table") from error
        return table

    def fault(self, error: Exception, what: str) -> ScribenginError:
        """An error of the client, in our words. `what` was tried when it came: "cannot be written"."""
        return fault_of_folder(self.node, str(self), error, what)

    @abstractmethod
    def lineages(self) -> Sequence[TableWriter]:
        """Every one that has written here."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """A small file of ours; None where there is none."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> bool:
        """Write one unless it is there; whether it was written."""

    @abstractmethod
    def made(self) -> None:
        """The client has made the table: let it last."""

    @abstractmethod
    def committed(self, *, files: bool) -> None:
        """The client has committed: let the newest of the log last, and, of `files` that it has written for it, these."""

    @abstractmethod
    def log(self) -> Iterator[tuple[int, bytes]]:
        """(version, its actions as lines of JSON), as far back as the log goes."""

    @abstractmethod
    def read_again(self, file: Mapping[str, Any]) -> tuple[int, list[str]]:
        """(rows found, what is wrong) of a file of which a record says this."""

    @abstractmethod
    def waiting(self) -> Collection[str]:
        """Files with the names of the table that a Batch may need which is not decided yet."""

    @abstractmethod
    def strays(self) -> Iterator[str]:
        """What tasks and writers that were killed have left, and nobody needs."""

    @abstractmethod
    def delete(self, name: str) -> int | None:
        """How many bytes went; None where there is no such file."""
