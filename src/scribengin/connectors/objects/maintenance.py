"""Maintenance of a place in a store that a sink writes to: the work for the option `roll`, for all lineages that have written there."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.maintenance import MaintenanceRun
from scribengin.connectors.objects.compaction import CompactionOptions, ObjectCompactor
from scribengin.connectors.objects.compaction_log import hidden_root
from scribengin.connectors.objects.manifests import lineages
from scribengin.connectors.objects.options import SINK
from scribengin.connectors.objects.retention import Closing, OpenFolders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.objects.address import ObjectsAddress
    from scribengin.core.store import Store


LINEAGES_S = 60.0
"""how long a list of the lineages is used, in seconds"""


@dataclass(slots=True)
class StoreKeeper:
    """The maintenance of one sink's place. Kept between polls, so that it reads little more than new data from the store. `options` are the
    sink's, with defaults."""

    address: ObjectsAddress
    options: Mapping[str, Any]
    _store: Store | None = None
    _rollers: dict[str, ObjectCompactor] = field(default_factory=dict)
    _lineages: tuple[float, list[str]] = (-LINEAGES_S, [])
    """when the lineages were listed, and the lineages, oldest first"""
    _ended: set[str] = field(default_factory=set)
    """lineages that do not write any more, and have no waiting segments"""
    _idle: bool = False
    """True if nothing is hidden there, and nothing will be: the sink has no `roll` (any more)"""

    def __str__(self) -> str:
        return str(self.address)

    @property
    def hides(self) -> bool:
        """True if readers see committed rows only after maintenance."""
        return bool(self.options["visible"] == "listing")

    @property
    def closes(self) -> bool:
        """True if folders by time get completion markers."""
        return self.options.get("close") is not None

    @property
    def _by_time(self) -> bool:
        return any(not isinstance(part, str) for part in self.options["partition_by"])

    @property
    def look_s(self) -> float:
        """Interval between two polls, in seconds; each poll makes some requests."""
        wants = rolling_of(self.options)
        return 5.0 if wants is None else min(60.0, max(5.0, wants.every_s / 20))

    @property
    def wanted(self) -> bool:
        """True if there may be anything to do."""
        return self.hides or self.closes or rolling_of(self.options) is not None

    def keep(self, *, flush: bool = False) -> MaintenanceRun:
        """Do all work that is due now; with `flush` merge all waiting segments. Raises the errors of `ObjectCompactor.run`."""
        if self._idle:
            return MaintenanceRun()
        store = self._store = self._store or self.address.open()
        wants = rolling_of(self.options)
        if time.monotonic() - self._lineages[0] >= LINEAGES_S:
            self._lineages = (time.monotonic(), lineages(store))
        there = self._lineages[1]
        hides = (
            wants is None
            and not self.closes
            and any(next(iter(store.list(hidden_root(each).rstrip("/"))), None) is not None for each in there)
        )
        if wants is None and not hides and not self.closes:
            self._idle = True
            return MaintenanceRun()
        # without `roll` only hidden segments are merged
        plain = CompactionOptions(listed=True) if self.hides else CompactionOptions(size=0)
        done = []
        busy: set[str] = set()
        for lineage in there:
            # an earlier lineage does not write any more: without this, its segments would wait for ever
            ended = wants is None or lineage != there[-1]
            roller = self._rollers.get(lineage)
            if roller is None:
                roller = self._rollers[lineage] = ObjectCompactor(store, lineage, wants or plain)
            elif lineage in self._ended and roller.now_s() < roller.ripe_s:
                continue
            if self._by_time and lineage == there[-1]:
                # also if the sink closes no folders any more: another lineage may count by these records
                roller.busy = busy
                closing = Closing.read(store, lineage) if roller.open is None else None
                roller.open = roller.open if closing is None else OpenFolders(store, lineage, closing)
            done.append(roller.run(flush=flush or ended))
            busy |= roller.waiting if self.hides else set()
            if ended and not (self.closes and lineage == there[-1]):
                self._ended.add(lineage)
        return MaintenanceRun(
            merged=sum(each.segments for each in done),
            merged_files=sum(each.files for each in done),
            merged_bytes=sum(each.bytes for each in done),
            files=sum(each.removed for each in done),
            closed=sum(each.closed for each in done),
            due_s=min((each.due_s for each in done if each.due_s is not None), default=None),
        )


def rolling_of(options: Mapping[str, Any]) -> CompactionOptions | None:
    """The settings in a sink's options; None if there are none."""
    given, declared = options.get("roll"), SINK.option("roll")
    assert declared is not None
    if given is None:
        return None
    filled = declared.filled(given)
    return CompactionOptions(filled["size"], filled["every"], options["visible"] == "listing")
