"""What a store of ids and versions must support, so that `KeyedSink` makes a sink of it that writes each record once.

A row's id comes from its origin, or from its key; its version is a number that depends only on the decision: the lineage's base, the Batch,
the row's position in the Batch. So a row that is sent again changes nothing, a late row of a suspended driver loses against the stored one,
and a new lineage, whose base is above all versions written before, wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from scribengin.core.types import Schema


KEYED_ABILITIES = frozenset(
    {"exactly_once", "append", "refuses_rows", "compares_columns", "finds_unaccounted", "checks_place", "takes_json"}
)
"""what a sink type declares whose sinks are `KeyedSink`"""


class Texts(Sequence[str]):
    """Arrow texts (STRING, none null), created on demand."""

    __slots__ = ("_array",)

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Texts: ...

    def __getitem__(self, at: int | slice) -> str | Texts:
        if isinstance(at, slice):
            return Texts(self._array[at])
        text: str = self._array[at].as_py()
        return text


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Consecutive rows of a Batch: `ids[i]` is the id of row `i` at the place, `version + i` its version, `made_of[i]` its origin."""

    ids: Sequence[str]
    made_of: Sequence[str]
    version: int
    columns: pa.RecordBatch
    """the flow's columns; for a store that accepts only JSON just `doc` (BINARY), the row as a JSON object, and for a sink with
    `PartitionedPlace` also `part` (STRING), the part of the row"""

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int, rows: int) -> KeyedRows:
        """That many of the rows, from row `first` on."""
        ids, made_of = self.ids[first : first + rows], self.made_of[first : first + rows]
        return KeyedRows(ids, made_of, self.version + first, self.columns.slice(first, rows))


class PartitionedPlace(Protocol):
    """A place with several parts; the part of a row depends only on one of its columns: an index for each day."""

    @property
    def column(self) -> str:
        """Its name."""

    def of_rows(self, values: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        """The part of each row (STRING), null if it has none; and the reason, by the row's index."""


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """The result of sending `KeyedRows`. For rows in neither list the place holds this version, or a later one."""

    refused: Sequence[tuple[int, str, str]] = ()
    """(index, reason, message) of rows that it never accepts"""
    again: Sequence[int] = ()
    """indexes of rows that it may accept later: it is overloaded"""
    too_large: bool = False
    """no row was accepted: the request was too large"""
    above: int = 0
    """the highest stored version that the store reports for a row of a lower or equal version; 0 if it reports none"""
    why: str = ""
    """its message about a row in `again`, for people"""


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The record of the writer, and of the newest Batch. `tag` belongs to the store: the exchange compares it."""

    body: Mapping[str, Any]
    tag: Any = None


class KeyedStore(Protocol):
    """One place in one store: an index, a table. Used by one thread at a time, except `send`. Must be picklable: executors get a copy, and
    use only `form` and `most_id_bytes` of it. Methods raise Unreachable if the store is unavailable, SinkError if a retry cannot
    succeed."""

    form: Literal["json", "columns"]
    """the form in which it accepts rows"""
    most_id_bytes: int

    def __str__(self) -> str:
        """Its place, for messages; contains no secret."""

    def read_record(self) -> WriterRecord | None:
        """The record of the writer; None if no flow of Scribengin writes there. Never a stale answer."""

    def write_record(self, body: Mapping[str, Any], held: WriterRecord | None) -> bool:
        """Exchange the record for another, durably, if it still equals `held` (None: if there is none); else return False."""

    def make(self, schema: Schema) -> None:
        """Create the place if it does not exist, so that it accepts rows with these columns."""

    def unlike(self, schema: Schema) -> list[str]:
        """Why the place does not accept rows with these columns, one sentence per reason; empty if there is no place yet."""

    def is_there(self) -> bool:
        """False if the place does not exist; always True for a place whose parts are created and deleted."""

    def is_empty(self) -> bool:
        """True if it has no row; also if there is no place yet."""

    def send(self, rows: KeyedRows) -> WriteAnswer:
        """Write the rows whose versions are above the stored ones, each independently, durably. Thread-safe."""

    def versions(self) -> Iterator[Sequence[int]]:
        """The versions of all current rows, many at a time, in no order. For `audit`."""

    def clear(self) -> int:
        """Delete all rows; returns their number."""

    def close(self) -> None:
        """Close the connections; they are opened again when they are needed."""
