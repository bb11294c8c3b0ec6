"""What a store of ids and versions must be able to do, so that `KeyedSink` makes a sink of it that writes each record once.

A row's id comes from what it was made of, or from its key; its version is a number that depends on nothing but the decision: the
lineage's base, the Batch, the row's place in the Batch. So a row that is sent again changes nothing, one that comes late from a driver
that slept loses against what stands there, and a new lineage, whose base is above all that was written before, wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from scribengin.core.types import Schema


class Texts(Sequence[str]):
    """Texts of Arrow (STRING, none null), each made when it is asked for."""

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
    """Consecutive rows of a Batch: `ids[i]` is what the place knows row `i` by, `version + i` its version, `made_of[i]` what it was made
    of."""

    ids: Sequence[str]
    made_of: Sequence[str]
    version: int
    columns: pa.RecordBatch
    """the flow's columns; of a store that takes JSON only `doc` (BINARY), the row as a JSON object, and where its sink has
    `PartitionedPlace` also `part` (STRING), which one the row comes to"""

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int, rows: int) -> KeyedRows:
        """So many of them, from row `first` on."""
        ids, made_of = self.ids[first : first + rows], self.made_of[first : first + rows]
        return KeyedRows(ids, made_of, self.version + first, self.columns.slice(first, rows))


class PartitionedPlace(Protocol):
    """A place in parts, of which a row's own depends on one of its columns and on nothing else: an index for each day."""

    @property
    def column(self) -> str:
        """Its name."""

    def of_rows(self, values: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        """The part that each row comes to (STRING), null where there is none for it; and why, by the row's index."""


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """What became of `KeyedRows` that were sent. Of what stands in neither list the place holds this version, or a later one."""

    refused: Sequence[tuple[int, str, str]] = ()
    """(index, reason, message) of rows that it never takes"""
    again: Sequence[int] = ()
    """indexes of rows that it may take later: it is overloaded"""
    too_large: bool = False
    """nothing was taken: the request was too large as a whole"""
    above: int = 0
    """the highest version that the store says to stand where a row of a lower one came, or of the same; 0 where it says none"""
    why: str = ""
    """what it says of a row in `again`, for a person who is to help it"""


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The record of who writes here, and what was written last. `tag` is the store's own: what it is exchanged by."""

    body: Mapping[str, Any]
    tag: Any = None


class KeyedStore(Protocol):
    """One place in one store: an index, a table. Used by one thread at a time, but for `send`. Must be picklable: executors get a copy,
    of which they only ask `form` and `most_id_bytes`. Methods raise Unreachable where the store is away, SinkError where a later try
    does not help."""

    form: Literal["json", "columns"]
    """how it takes rows"""
    most_id_bytes: int

    def __str__(self) -> str:
        """Where it is, for messages; nothing secret."""

    def read_record(self) -> WriterRecord | None:
        """Who writes here; None where nobody of us does. Never a stale answer."""

    def write_record(self, body: Mapping[str, Any], held: WriterRecord | None) -> bool:
        """Exchange the record for another, durably, if `held` still stands there (None: if nothing does); else False."""

    def make(self, schema: Schema) -> None:
        """Make the place where it is not there, so that it takes rows with these columns."""

    def unlike(self, schema: Schema) -> list[str]:
        """What of the place does not take rows with these columns, a sentence each; nothing where there is no place yet."""

    def is_there(self) -> bool:
        """False where there is no place; also true where it is in parts that come and go."""

    def is_empty(self) -> bool:
        """True where no row stands here; also where there is no place yet."""

    def send(self, rows: KeyedRows) -> WriteAnswer:
        """Write those whose versions are above what stands there, each by itself, durably. By several threads at once."""

    def versions(self) -> Iterator[Sequence[int]]:
        """The versions of all rows that stand here now, many at a time, in no order. For `audit`."""

    def clear(self) -> int:
        """Delete all rows; returns how many."""

    def close(self) -> None:
        """Give up connections; they are made again when they are needed."""
