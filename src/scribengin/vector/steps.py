"""A run of `filter` and `select` steps on one Arrow batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import arrow_schema
from scribengin.vector.engine import computed, holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from scribengin.core.types import Schema
    from scribengin.vector.expression import Expression


@dataclass(frozen=True, slots=True)
class VectorStep:
    """One step: a predicate or the columns that it makes, and what it requires of its output. `schema` is what it gives."""

    id: str
    schema: Schema
    predicate: Expression | None = None
    columns: tuple[tuple[str, Expression], ...] = ()
    require: tuple[tuple[str, Expression], ...] = ()

    @property
    def fallible(self) -> bool:
        """True where one of its expressions may raise in Spark, for some rows."""
        own = () if self.predicate is None else (self.predicate,)
        return any(each.fallible for each in (*own, *(each for _, each in (*self.columns, *self.require))))


@dataclass(frozen=True, slots=True)
class VectorResult:
    """What came of a batch: the rows that passed, which ones these are, and (row, step, name) of those that fail a
    `require`, by row, as Spark comes to them."""

    batch: pa.RecordBatch
    passed: NDArray[np.int64]
    failed: tuple[tuple[int, str, str], ...]


def run_steps(steps: Sequence[VectorStep], batch: pa.RecordBatch) -> VectorResult:
    """The batch through all steps. Raises NotSureError where Spark must decide about one of its rows."""
    rows = np.arange(batch.num_rows, dtype=np.int64)
    failed: list[tuple[int, str, str]] = []
    for step in steps:
        if step.predicate is not None:
            batch, rows = _kept(batch, rows, holds(step.predicate, batch))
        if step.columns:
            batch = computed(step.columns, batch, arrow_schema(step.schema))
        for name, predicate in step.require:
            passes = holds(predicate, batch)
            if not pc.all(passes).as_py():
                failed += [(int(row), step.id, name) for row in rows[~passes.to_numpy(zero_copy_only=False)]]
                batch, rows = _kept(batch, rows, passes)
    return VectorResult(batch, rows, tuple(sorted(failed, key=lambda each: each[0])))


def _kept(batch: pa.RecordBatch, rows: NDArray[np.int64], keep: pa.BooleanArray) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    if keep.true_count == len(keep):
        return batch, rows
    return batch.filter(keep), rows[keep.to_numpy(zero_copy_only=False)]
