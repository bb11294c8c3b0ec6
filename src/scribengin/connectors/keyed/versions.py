"""The version of a row: base of the lineage + Batch and place in it. 63 bits, above 0.

A base is a time in microseconds (2 ** 51 in our days), or more where an earlier lineage has come further. So rows that others have written
with the time as their version, as Cassandra's clients do, lose too.
"""

from __future__ import annotations

import time

PLACE_BITS = 28
MOST_ROWS = 1 << PLACE_BITS
"""rows of one Batch for one sink"""
_MOST = (1 << 63) - 1
_ROOM = 1 << 48
"""for versions above a base: a million Batches"""


def version_of(base: int, batch: int, place: int) -> int:
    """Of the row at `place` (from 0) in Batch `batch`. Raises OverflowError beyond 63 bits: after some ten thousand million Batches."""
    version = base + (batch << PLACE_BITS) + place
    if version > _MOST:
        raise OverflowError(f"version {version} does not fit 63 bits")
    return version


def batch_of(base: int, version: int) -> int:
    """The Batch that wrote it; negative where an earlier lineage did."""
    return (version - base) >> PLACE_BITS


def next_base(base: int | None, newest: int, others: int = 0) -> int:
    """For a new lineage, where the one before had `base` and came to Batch `newest` (-1: none), and no row of somebody else has a version
    above `others`. Raises OverflowError where these leave too little room."""
    found = max(time.time_ns() // 1000, others + 1)
    if base is not None:
        # one Batch more than is recorded may have been sent already
        found = max(found, version_of(base, newest + 2, 0))
    if found > _MOST - _ROOM:
        raise OverflowError(f"above version {found - 1} there is no room for ours")
    return found
