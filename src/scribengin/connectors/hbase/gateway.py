"""What a gateway of HBase does for a table, whichever it is: a REST server or a Thrift server. Both give what the region servers say."""

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
"""the TTL of a family whose cells stay"""
LATEST = (1 << 63) - 1
"""a time that says: the server's own"""
BUSY = ("RegionTooBusy", "CallQueueTooBig", "NotServingRegion", "RegionMoved", "RegionOpening", "CallDropped")
"""a region that is full for now, or moves"""
NEVER = ("DoNotRetryIOException", "FailedSanityCheck", "KeyValue size too large", "exceeds limit")
"""what a server of regions says, behind the answer that it is away, of a cell that it never takes"""


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
    """What stands in a row, whenever it was written."""

    key: bytes
    cells: list[Value] = msgspec.field(name="Cell")


AnyRow = TypeVar("AnyRow", HBaseRow, ValueRow)
Part = Literal["all", "names", "first"]


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A scan: rows whose key is greater than `after`; cells of these columns or families alone (none: all). `part`: `names` is all cells
    without values, `first` the first one of a row without its value. `ahead`: rows that the gateway takes from a region at once."""

    after: bytes
    columns: Sequence[bytes]
    part: Part
    ahead: int


@dataclass(frozen=True, slots=True)
class TableForm:
    """What a table was made with: family → TTL in seconds, and how it acknowledges."""

    families: Mapping[str, int]
    durability: str = ""


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """Of rows that were sent: `taken`; `busy` for now; `large` as one request; `gone` is the table; something of them is `refused`."""

    what: Literal["taken", "busy", "large", "gone", "refused"]
    said: str = ""


class Gateway(Protocol):
    """Servers of one kind, of which any will do; `str` is one that answered. Travels by pickle with its secrets and without connections.

    Every call raises Unreachable where no server answers, or none has a region that answers, and SourceError or SinkError where no later
    try will do.
    """

    @property
    def node(self) -> str:
        """Of the flow."""

    @property
    def called(self) -> str:
        """`source "in"`."""

    def schema(self, table: str) -> TableForm | None:
        """What the table was made with; None where there is none."""

    def make(self, table: str, families: Sequence[str]) -> None:
        """Make it, each cell in its newest version; one that is made meanwhile stays."""

    def row(self, table: str, key: str) -> HBaseRow | None:
        """All cells of a row; None where it, or the table, is not there."""

    def put_if(self, table: str, row: HBaseRow, expected: HBaseCell) -> bool:
        """Write the cells if `expected` stands there (no value: if there is no such cell), which is one of their columns; else False."""

    def put(self, table: str, cells: Cells) -> WriteOutcome:
        """Write all of them, in one request."""

    def delete(self, table: str, key: bytes, families: Sequence[bytes], until: int) -> None:
        """Delete the row's cells in these families up to that timestamp."""

    def is_empty(self, table: str) -> bool:
        """True where it has no row, or is not there."""

    def last_key(self, table: str, columns: Sequence[bytes] = ()) -> bytes | None:
        """The last row that has a cell in these columns or families (any, where there are none); None where there is no such row."""

    def open_scanner(self, table: str, asked: ScanRequest) -> Any:
        """What `next_of` takes: it lives in one of the servers."""

    def next_of(self, scanner: Any, most: int, kind: type[AnyRow]) -> tuple[list[AnyRow], int] | None:
        """So many rows at most, and about how many bytes they are; None where it says that it has no more, or is gone."""

    def close_scanner(self, scanner: Any) -> None:
        """It would end by itself, later."""

    def missing(self, table: str) -> SourceError | SinkError:
        """There is no such table."""

    def close(self) -> None:
        """Give up connections."""


def open_gateway(node: str, servers: Sequence[str], config: Mapping[str, Any], role: Literal["source", "sink"] = "sink") -> Gateway:
    """The kind that the addresses say. Raises SourceError or SinkError where they are none."""
    if any(server.startswith("thrift") for server in servers):
        from scribengin.connectors.hbase.thrift import ThriftGateway

        return ThriftGateway(node, servers, config, role)
    from scribengin.connectors.hbase.rest import RestGateway

    return RestGateway(node, servers, config, role)


def reason_of(text: str) -> str:
    """The exception's line of what a server says, without the places in its code.

    Answers begin with what the status says, then comes a trace of Java's; what a retry has met stands in it last.
    """
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if "Exception" in line and not line.startswith(("at ", "..."))]
    deepest = named[-1].removeprefix("Caused by: ") if named and "RetriesExhausted" in named[0] else ""
    said = deepest or next(iter(named), "") or next((line for line in lines if line), "")
    return " ".join(said.split())[:400]
