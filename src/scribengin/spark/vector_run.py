"""A run of SQL steps inside a stage: the vector engine over chunks, with the counts and dead letters of the run that Spark would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scribengin.core.types import arrow_schema
from scribengin.spark.chunk import Chunk
from scribengin.spark.sieve import compiled
from scribengin.vector.steps import run_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.spark.letters import DeadLetterWriter
    from scribengin.spark.program import VectorNode
    from scribengin.state.contract import Counts


class VectorRun:
    """Takes chunks, whose rows fit the first step's columns, and gives what is left of them."""

    def __init__(self, node: VectorNode, counts: Counts, letters: DeadLetterWriter) -> None:
        self._steps = node.steps
        self._schema = node.schema_in
        self._sieve = None if node.sieve is None else compiled(node.sieve)
        self._decides = node.decides
        self._only_filters = not any(step.columns for step in node.steps)
        self._counts = counts
        self._letters = letters

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """The rows that pass; those that fail a `require` are dead letters of their step."""
        self._counts.rows_in += len(chunk)
        structs = None if self._sieve is None else chunk.structs(self._schema)
        if self._sieve is not None and structs is not None:
            kept = chunk.selected(self._sieve(structs))
            self._counts.filtered += len(chunk) - len(kept)
            chunk = kept
            if self._decides:
                self._counts.out += len(chunk)
                if len(chunk):
                    yield chunk
                return
        if len(chunk):
            yield from self._through(chunk)

    def _through(self, chunk: Chunk) -> Iterator[Chunk]:
        batch, bad = chunk.batch(self._schema)
        if bad:
            raise TypeError(f"rows that enter {self._steps[0].id} were to be typed before, and are not: {bad[0].message}")
        outcome = run_steps(self._steps, batch)
        for row, step, name in outcome.failed:
            self._letters.bury(step, chunk, row, "require", f'"{name}" does not hold')
        passed = len(outcome.passed)
        self._counts.dead += len(outcome.failed)
        self._counts.filtered += len(chunk) - passed - len(outcome.failed)
        self._counts.out += passed
        if not passed:
            return
        if passed == len(chunk) and self._only_filters:
            yield chunk
        elif self._only_filters and not chunk.is_arrow:
            keep = np.zeros(len(chunk), bool)
            keep[outcome.passed] = True
            yield chunk.selected(keep.tolist())
        else:
            ordinals = chunk.ordinals
            kept = None if ordinals is None else [ordinals[row] for row in outcome.passed.tolist()]
            yield Chunk(chunk.origin, kept, batch=outcome.batch.cast(arrow_schema(self._steps[-1].schema)))
