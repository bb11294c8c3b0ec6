"""Rows that are at hand in this process, with where each came from; and the dead letters of a step over them, held instead of written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from scribengin.core.types import arrow_schema
from scribengin.formats.contract import RecordPlace
from scribengin.spark.chunk import Origin
from scribengin.spark.letters import DeadLetterWriter
from scribengin.spark.user_code import code_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.core.types import Schema
    from scribengin.spark.chunk import Chunk
    from scribengin.spec.model import OnError


@dataclass(frozen=True, slots=True)
class Root:
    """The record that a row was made of: where it stood in which source, and its bytes."""

    source: str
    place: RecordPlace
    payload: bytes


@dataclass(frozen=True, slots=True)
class RowSample:
    """Some rows. `roots[i]` is what row i was made of; None where no single record stands behind it."""

    rows: pa.RecordBatch
    schema: Schema
    roots: tuple[Root | None, ...]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def taken(self, indexes: Sequence[int]) -> RowSample:
        """The rows with these indexes."""
        return RowSample(self.rows.take(pa.array(indexes, pa.int64())), self.schema, tuple(self.roots[index] for index in indexes))


def joined(samples: Sequence[RowSample], schema: Schema) -> RowSample:
    """The rows of all, one after the other, with the columns of `schema` by name."""
    form = arrow_schema(schema)
    table = pa.Table.from_batches([sample.rows.select(form.names).cast(form) for sample in samples], schema=form)
    return RowSample(one_batch(table), schema, tuple(root for sample in samples for root in sample.roots))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows of the table, also where there are none."""
    return pa.RecordBatch.from_arrays(_flat(table), schema=table.schema)


def _flat(table: pa.Table) -> list[pa.Array]:
    return [pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in table.columns]


@dataclass(frozen=True, slots=True)
class Died:
    """A row that a step could not take. `index` is its place among the rows that came in, `utility` which of a step's it was."""

    index: int
    reason: str
    message: str
    code_line: str = ""
    utility: str = ""
    payload: str = ""
    """the row as JSON, where it failed a `require`"""


class RootsOrigin(Origin):
    """Ordinals are indexes of rows of a Sample."""

    def __init__(self, roots: Sequence[Root | None]) -> None:
        self._roots = roots

    def place(self, ordinal: int) -> RecordPlace:
        """Of the record that the row was made of."""
        root = self._roots[ordinal]
        return RecordPlace("") if root is None else root.place

    def payload(self, ordinal: int) -> bytes | None:
        """Of the record that the row was made of."""
        root = self._roots[ordinal]
        return None if root is None else root.payload


class HeldLetters(DeadLetterWriter):
    """Dead letters that are kept here and written nowhere, whatever the node's `on_error`. For steps: they only `bury`."""

    def __init__(self) -> None:
        self.died: list[Died] = []

    def bury(
        self,
        node: str,
        chunk: Chunk,
        index: int,
        reason: str,
        message: str,
        *,
        error: BaseException | None = None,
        came: Schema | None = None,  # noqa: ARG002 (nobody replays these)
        arrived: pa.RecordBatch | None = None,  # noqa: ARG002
        arrived_at: int | None = None,  # noqa: ARG002
        fate: OnError | None = None,  # noqa: ARG002
        remedy: str = "",  # noqa: ARG002
    ) -> None:
        """Note it; `node` is `step.name` of a utility. A person's Ctrl-C reaches no executor, but this process: it is raised again."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        ordinal = chunk.ordinal(index)
        assert ordinal is not None, "rows at hand are numbered"
        line = code_line(error) if error is not None else ""
        self.died.append(Died(ordinal, reason, message, line, node.partition(".")[2]))
