"""The contract of stores with ids and versions, from which `KeyedSink` makes a sink that writes each record exactly once.

The id of a row is its origin, or is formed from its key. The version is a number that depends only on the decision: the lineage's base, the
Batch, and the position of the row in the Batch. So a row that is sent again changes nothing, a late row of a suspended driver does not
replace the stored one, and the rows of a new lineage win, because its base is above all versions written before.
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
"""the abilities of a sink type whose sinks are `KeyedSink`"""


class Texts(Sequence[str]):
    """A sequence of texts from an Arrow array (STRING, without nulls), created on demand."""

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
    """Consecutive rows of a Batch. Row `i` has the id `ids[i]`, the version `version + i` and the origin `made_of[i]`."""

    ids: Sequence[str]
    made_of: Sequence[str]
    version: int
    columns: pa.RecordBatch
    """the flow's columns; for a store that accepts JSON only `doc` (BINARY), the row as a JSON object, and for a sink with a
    `PartitionedPlace` also `part` (STRING), the part that the row goes to"""

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int, rows: int) -> KeyedRows:
        """The `rows` rows from index `first` on."""
        ids, made_of = self.ids[first : first + rows], self.made_of[first : first + rows]
        return KeyedRows(ids, made_of, self.version + first, self.columns.slice(first, rows))


class PartitionedPlace(Protocol):
    """A place with several parts, such as an index for each day. The part of a row depends on one of its columns only."""

    @property
    def column(self) -> str:
        """The name of that column."""

    def of_rows(self, values: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        """The part of each row (STRING), null for a row without a part; and row index → reason, for the rows without a part."""


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """The result of sending `KeyedRows`. Rows that are in neither list are stored, with this version or a later one."""

    refused: Sequence[tuple[int, str, str]] = ()
    """(index, reason, message) of each row that the store never accepts"""
    again: Sequence[int] = ()
    """indexes of the rows that the store does not accept now, because it is overloaded, and may accept later"""
    too_large: bool = False
    """True if no row was accepted because the request was too large"""
    above: int = 0
    """the highest stored version that the store reports for a row of a lower or equal version; 0 if it reports none"""
    why: str = ""
    """the store's message about a row in `again`, for people"""


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The record of the place's writer and its newest Batch. `tag` identifies the stored record: the store compares it when the record is
    replaced."""

    body: Mapping[str, Any]
    tag: Any = None


class KeyedStore(Protocol):
    """One place in a store: an index, a table. Used by one thread at a time, except `send`. Must be picklable: executors get a copy, of
    which they use only `form` and `most_id_bytes`.

    Methods raise Unreachable if the store is unavailable, SinkError if a retry cannot succeed.
    """

    form: Literal["json", "columns"]
    """the form in which the store accepts rows"""
    most_id_bytes: int

    def __str__(self) -> str:
        """The place, for messages; without secrets."""

    def read_record(self) -> WriterRecord | None:
        """The record of the writer; None if no flow of Scribengin writes to the place. The answer is never stale."""

    def write_record(self, body: Mapping[str, Any], held: WriterRecord | None) -> bool:
        """Replace the record durably, if the stored one is still `held` (None: if there is none). Returns False otherwise."""

    def make(self, schema: Schema) -> None:
        """Create the place for rows with these columns, unless it exists."""

    def unlike(self, schema: Schema) -> list[str]:
        """Why the place does not accept rows with these columns, one sentence per reason; empty if it accepts them or does not exist
        yet."""

    def is_there(self) -> bool:
        """False if the place does not exist; always True for a place whose parts are created and deleted."""

    def is_empty(self) -> bool:
        """True if the place has no rows or does not exist."""

    def send(self, rows: KeyedRows) -> WriteAnswer:
        """Write each row whose version is above the stored one, durably and independently of the other rows. Thread-safe."""

    def versions(self) -> Iterator[Sequence[int]]:
        """The versions of all current rows, in portions and in no order. For `audit`."""

    def clear(self) -> int:
        """Delete all rows; returns their number."""

    def close(self) -> None:
        """Close the connections; they are opened again when they are needed."""
