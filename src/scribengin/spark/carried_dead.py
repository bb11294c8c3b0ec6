"""Rows that failed a `require` in Spark, where they come out of the native part: to dead letters."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from scribengin.spark.program import DEAD, SPARK_PARSE

if TYPE_CHECKING:
    import pyarrow as pa

    from scribengin.spark.chunk import Origin
    from scribengin.spark.letters import DeadLetterWriter
    from scribengin.state.contract import Counts


def split_dead(
    batch: pa.RecordBatch, ordinals: list[int] | None, origin: Origin, native: Counts, letters: DeadLetterWriter
) -> tuple[list[int] | None, pa.RecordBatch]:
    """(ordinals, rows) of those that passed; the others, which carry why they did not in DEAD, are buried and counted."""
    dead = batch.column(DEAD)
    if dead.null_count == batch.num_rows:
        return ordinals, batch
    keep = dead.is_null()
    for index, failed in enumerate(dead.to_pylist()):
        if failed is not None:
            step, name = failed["step"], failed["name"]
            ordinal = None if ordinals is None else ordinals[index]
            payload = (None if ordinal is None else origin.payload(ordinal)) or failed["payload"].encode()
            reason, message = "require", f'"{name}" does not hold'
            if name == SPARK_PARSE:
                reason, message = "malformed", "Spark's parser cannot read it"
            letters.write(step, origin, ordinal, payload, reason, message)
            native.dead += 1
    return (None if ordinals is None else list(compress(ordinals, keep.to_pylist()))), batch.filter(keep)
