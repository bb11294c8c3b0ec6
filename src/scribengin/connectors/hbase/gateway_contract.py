"""The interface of an HBase gateway for a table: a REST server or a Thrift server. Both pass the messages of the region servers on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec

from scribengin.connectors.keyed.http import Codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.hbase.cells import Cells
    from scribengin.core.errors import SinkError, SourceError


CODES = Codes(
    away="hbase-away",
    login="hbase-login",
    trust="hbase-trust",
    address="hbase-address",
    config="hbase-config",
    other="hbase",
)
FOREVER = 2_147_483_647
"""the TTL of a family whose cells never expire"""
LATEST = (1 << 63) - 1
"""a timestamp that stands for the server's current time"""
BUSY = ("RegionTooBusy", "CallQueueTooBig", "NotServingRegion", "RegionMoved", "RegionOpening", "CallDropped")
"""texts in errors of a region that is overloaded or moving"""
NEVER = ("DoNotRetryIOException", "FailedSanityCheck", "KeyValue size too large", "exceeds limit")
"""texts of a region server for a cell that it never accepts, in an error that otherwise looks like unavailability"""


class HBaseCell(msgspec.Struct, frozen=True):
    """A cell. `column` is `family:qualifier`; `timestamp` is its version."""

    column: bytes
    timestamp: int = LATEST
    value: bytes = msgspec.field(name="$", default=b"")


class HBaseRow(msgspec.Struct, frozen=True):
    """Some cells of a row."""

    key: bytes
    cells: list[HBaseCell] = msgspec.field(name="Cell")


class Value(msgspec.Struct, frozen=True):
    """A cell without its timestamp."""

    column: bytes
    value: bytes = msgspec.field(name="$", default=b"")


class ValueRow(msgspec.Struct, frozen=True):
    """A row without the timestamps of its cells."""

    key: bytes
    cells: list[Value] = msgspec.field(name="Cell")


AnyRow = TypeVar("AnyRow", HBaseRow, ValueRow)
Part = Literal["all", "names", "first"]


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A scan.

    Attributes:
        after: The key after which the scan begins (exclusive).
        columns: The columns or families of the cells that are returned; empty: all cells.
        part: `all`; `names` for all cells without values; `first` for the first cell of each row without its value.
        ahead: The number of rows that the gateway fetches from a region at once.
    """

    after: bytes
    columns: Sequence[bytes]
    part: Part
    ahead: int


@dataclass(frozen=True, slots=True)
class TableForm:
    """The settings of a table: the TTL of each family in seconds, and its durability."""

    families: Mapping[str, int]
    durability: str = ""


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The result of a write: `taken`; `busy`, the server does not accept it now; `large`, the request is too large; `gone`, the table does
    not exist; `refused`, some rows are never accepted. `said` is the server's message."""

    what: Literal["taken", "busy", "large", "gone", "refused"]
    said: str = ""


class Gateway(Protocol):
    """Equivalent servers of one kind; `str` is the server that is used now. Pickled with its secrets and without connections.

    Every call raises Unreachable if no server answers, or no server reaches the region; SourceError or SinkError if a retry cannot succeed.
    """

    @property
    def node(self) -> str:
        """The id of the flow's node."""

    @property
    def called(self) -> str:
        """The node in messages, such as `source "in"`."""

    def schema(self, table: str) -> TableForm | None:
        """The settings of the table; None if it does not exist."""

    def make(self, table: str, families: Sequence[str]) -> None:
        """Create the table, with only the newest version of each cell, unless it exists."""

    def row(self, table: str, key: str) -> HBaseRow | None:
        """All cells of a row; None if the row or the table does not exist."""

    def put_if(self, table: str, row: HBaseRow, expected: HBaseCell) -> bool:
        """Write the cells if the row contains `expected`, a cell in one of their columns; without a value it means that there is no such
        cell. Returns False if the condition is not met."""

    def put(self, table: str, cells: Cells) -> WriteOutcome:
        """Write all cells in one request."""

    def delete(self, table: str, key: bytes, families: Sequence[bytes], until: int) -> None:
        """Delete the row's cells in these families with timestamps up to `until`.

        Args:
            table: The name of the table.
            key: The row key.
            families: The families.
            until: The greatest timestamp that is deleted.
        """

    def is_empty(self, table: str) -> bool:
        """True if the table has no row or does not exist."""

    def last_key(self, table: str, columns: Sequence[bytes] = ()) -> bytes | None:
        """The key of the last row with a cell in these columns or families (in any, if none are given); None if there is no such row."""

    def open_scanner(self, table: str, asked: ScanRequest) -> Any:
        """Open a scanner, for `next_of`. It exists in one of the servers only."""

    def next_of(self, scanner: Any, most: int, kind: type[AnyRow]) -> tuple[list[AnyRow], int] | None:
        """The next rows, at most `most`, and their approximate size in bytes; None if the scanner is at its end, or does not exist any
        more. `kind` is the type of the rows."""

    def close_scanner(self, scanner: Any) -> None:
        """Close the scanner; otherwise it expires."""

    def missing(self, table: str) -> SourceError | SinkError:
        """The error for a table that does not exist; it is returned, not raised."""

    def close(self) -> None:
        """Close the connections."""


def reason_of(text: str) -> str:
    """The exception line of a server's message, without stack frames.

    A message begins with the status, followed by a Java stack trace, which ends with the error of the last retry.
    """
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if "Exception" in line and not line.startswith(("at ", "..."))]
    deepest = named[-1].removeprefix("Caused by: ") if named and "RetriesExhausted" in named[0] else ""
    said = deepest or next(iter(named), "") or next((line for line in lines if line), "")
    return " ".join(said.split())[:400]
