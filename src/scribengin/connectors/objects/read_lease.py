"""Read leases at a store: while one is held, segments are kept that were merged into larger objects.

    <url>/_scribengin/readers/<until>-<who>   without content; `until` is when it ends, in seconds since 1970 by the reader's clock

Objects there are never changed, so a lease is renewed by writing another one. A reader takes it before it reads manifests.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.connectors.objects.manifests import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.store import Store


LEASE_S = 120.0
"""a lease expires this long after its last renewal, in seconds: a killed reader holds nothing for longer"""
_FOLDER = f"{INTERNAL}/readers"


@contextmanager
def reading(store: Store, lease_s: float = LEASE_S) -> Iterator[None]:
    """Hold a lease until the end of the block, renewed by a thread. Raises the store's errors if the lease cannot be taken; a failed
    renewal is retried."""
    who = uuid4().hex
    held = _take(store, who, lease_s)
    over = threading.Event()

    def renew() -> None:
        nonlocal held
        while not over.wait(lease_s / 4):
            with suppress(Exception):
                before, held = held, _take(store, who, lease_s)
                store.delete(before)

    thread = threading.Thread(target=renew, name="read lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(Exception):  # the lease expires by itself
            store.delete(held)


def someone_reads(store: Store, now_s: float) -> bool:
    """True if any lease is held. Leases that expired more than a day ago are deleted: that is safe however wrong a clock is."""
    until = {entry.key: _until(entry.key) for entry in store.list(_FOLDER)}
    store.delete(*(key for key, end_s in until.items() if end_s < now_s - 86400))
    return any(end_s > now_s for end_s in until.values())


def _take(store: Store, who: str, lease_s: float) -> str:
    key = f"{_FOLDER}/{ceil(time.time() + lease_s)}-{who}"
    store.put(key, b"")
    return key


def _until(key: str) -> float:
    text = key.rpartition("/")[2].partition("-")[0]
    return float(text) if text.isdigit() else 0.0
