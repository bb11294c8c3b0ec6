"""The interface of an HBase gateway for a table: a REST server or a Thrift server. Both pass on the messages of the region servers."""

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
"""a timestamp that means: the server's current time"""
BUSY = ("RegionTooBusy", "CallQueueTooBig", "NotServingRegion", "RegionMoved", "RegionOpening", "CallDropped")
"""texts for a region that is overloaded, or moving"""
NEVER = ("DoNotRetryIOException", "FailedSanityCheck", "KeyValue size too large", "exceeds limit")
"""text of a region server, inside an error that looks like unavailability, for a cell that it never accepts"""


class HBaseCell(msgspec.Struct, frozen=True):
    """`column` is `family:qualifier`, `timestamp` its version."""

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
    """The contents of a row, of any timestamp."""

    key: bytes
    cells: list[Value] = msgspec.field(name="Cell")


AnyRow = TypeVar("AnyRow", HBaseRow, ValueRow)
Part = Literal["all", "names", "first"]


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A scan: rows whose key is greater than `after`; only cells of these columns or families (none: all). `part`: `names` returns all
    cells without values, `first` the first cell of a row without its value. `ahead`: rows that the gateway fetches from a region at
    once."""

    after: bytes
    columns: Sequence[bytes]
    part: Part
    ahead: int


@dataclass(frozen=True, slots=True)
class TableForm:
    """The settings of a table: family → TTL in seconds, and its durability."""

    families: Mapping[str, int]
    durability: str = ""


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The result of sent rows: `taken`; `busy` for now; `large` for one request; `gone`: the table does not exist; `refused`: some of them
    are."""

    what: Literal["taken", "busy", "large", "gone", "refused"]
    said: str = ""


class Gateway(Protocol):
    """Equivalent servers of one kind; `str` is one that answered. Pickled with its secrets and without connections.

    Every call raises Unreachable if no server answers, or none has a region that answers, and SourceError or SinkError if a retry cannot
    succeed.
    """

    @property
    def node(self) -> str:
        """An error of the flow's node."""

    @property
    def called(self) -> str:
        """`source "in"`."""

    def schema(self, table: str) -> TableForm | None:
        """The settings of the table; None if it does not exist."""

    def make(self, table: str, families: Sequence[str]) -> None:
        """Create it, with only the newest version of each cell; one that is created meanwhile is kept."""

    def row(self, table: str, key: str) -> HBaseRow | None:
        """All cells of a row; None if the row or the table does not exist."""

    def put_if(self, table: str, row: HBaseRow, expected: HBaseCell) -> bool:
        """Write the cells if the row holds `expected` (no value: if there is no such cell), which is one of their columns; else return
        False."""

    def put(self, table: str, cells: Cells) -> WriteOutcome:
        """Write all of them, in one request."""

    def delete(self, table: str, key: bytes, families: Sequence[bytes], until: int) -> None:
        """Delete the row's cells in these families up to that timestamp."""

    def is_empty(self, table: str) -> bool:
        """True if it has no row, or does not exist."""

    def last_key(self, table: str, columns: Sequence[bytes] = ()) -> bytes | None:
        """The last row with a cell in these columns or families (any, if none are given); None if there is no such row."""

    def open_scanner(self, table: str, asked: ScanRequest) -> Any:
        """An argument for `next_of`: the scanner exists in one of the servers."""

    def next_of(self, scanner: Any, most: int, kind: type[AnyRow]) -> tuple[list[AnyRow], int] | None:
        """At most that many rows, and their approximate bytes; None if the scanner is at its end, or does not exist any more."""

    def close_scanner(self, scanner: Any) -> None:
        """Close the scanner; it would also expire."""

    def missing(self, table: str) -> SourceError | SinkError:
        """There is no such table."""

    def close(self) -> None:
        """Close the connections."""


def reason_of(text: str) -> str:
    """The exception line of a server's message, without the code locations.

    Messages begin with the status, followed by a Java trace; the error of the last retry comes at its end.
    """
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if "Exception" in line and not line.startswith(("at ", "..."))]
    deepest = named[-1].removeprefix("Caused by: ") if named and "RetriesExhausted" in named[0] else ""
    said = deepest or next(iter(named), "") or next((line for line in lines if line), "")
    return " ".join(said.split())[:400]
