"""What is said of groups while a worker runs: read again when somebody has changed it, remembered while nobody answers."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from scribengin.connectors.group.health import MemberOverrides
from scribengin.registry.records import Stored
from scribengin.registry.tree import GROUP
from scribengin.worker.followed import Followed
from scribengin.worker.own_log import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.registry.contract import Registry
    from scribengin.worker.followed import Found

_LOOK_S = 5.0


class LiveTurns:
    """Called from any thread with a group's name; it waits for the registry at the first call for each. `close` ends its thread. A record
    that says nothing, or may not be read, changes nothing."""

    def __init__(self, registry: Registry, tell: Callable[[str], None] = tell) -> None:
        self._now: dict[str, MemberOverrides] = {}
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._followed = Followed(registry, "turns", _LOOK_S, tell)

    def __call__(self, group: str) -> MemberOverrides:
        """What holds of it now."""
        with self._lock:
            if group not in self._known:
                self._known.add(group)
                self._followed.add(f"what is said of group {group} stays as it was", (GROUP(group),), partial(self._take, group))
        return self._now.get(group, MemberOverrides())

    def close(self) -> None:
        """Follow no more."""
        self._followed.close()

    def _take(self, group: str, found: Sequence[Found]) -> None:
        (said,) = found
        if said is None:
            self._now[group] = MemberOverrides()
        elif isinstance(said, Stored):
            self._now[group] = MemberOverrides(said.record.members, said.record.out)
