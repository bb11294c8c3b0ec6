"""The version of a row: base of the lineage + Batch and position in it. 63 bits, above 0.

A base is a time in microseconds (currently about 2 ** 51), or more if an earlier lineage has reached higher versions. So rows that others
wrote with the time as their version, as Cassandra's clients do, lose too.
"""

from __future__ import annotations

import time

PLACE_BITS = 28
MOST_ROWS = 1 << PLACE_BITS
"""maximum rows of one Batch for one sink"""
_MOST = (1 << 63) - 1
_ROOM = 1 << 48
"""room for versions above a base: a million Batches"""


def version_of(base: int, batch: int, place: int) -> int:
    """The version of the row at `place` (from 0) in Batch `batch`. Raises OverflowError beyond 63 bits: after some ten thousand million
    Batches."""
    version = base + (batch << PLACE_BITS) + place
    if version > _MOST:
        raise OverflowError(f"version {version} does not fit into 63 bits")
    return version


def batch_of(base: int, version: int) -> int:
    """The Batch that wrote the version; negative if an earlier lineage did."""
    return (version - base) >> PLACE_BITS


def next_base(base: int | None, newest: int, others: int = 0) -> int:
    """For a new lineage after one with `base` and the newest Batch `newest` (-1: none), if no row of another writer has a version above
    `others`. Raises OverflowError if these leave too little room."""
    found = max(time.time_ns() // 1000, others + 1)
    if base is not None:
        # one Batch more than is recorded may have been sent already
        found = max(found, version_of(base, newest + 2, 0))
    if found > _MOST - _ROOM:
        raise OverflowError(f"there is no room for new versions above {found - 1}")
    return found
