"""Dedicated CPUs of a worker: it uses only those assigned to it, and no other worker uses them.

Only where it is said how many cores all workers of the machine may have together, and these are no more than there are: then there are
CPUs for each. Else the system's scheduler shares them out: a worker that was tied to a CPU beside others would be worse off.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def own_cpus(cores: int, limit: int | None, taken: Collection[int]) -> tuple[int, ...]:
    """The CPUs of a worker with so many cores, where all together may have `limit`; none: whichever are there. Linux only."""
    if sys.platform != "linux" or limit is None:
        return ()
    there = sorted(os.sched_getaffinity(0))
    free = [cpu for cpu in there if cpu not in taken]
    return tuple(free[:cores]) if limit <= len(there) and cores <= len(free) else ()
