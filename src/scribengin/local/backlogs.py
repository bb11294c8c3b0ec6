"""The backlog of a flow's sources, measured at the sources: also while the flow fails, is stopped, or has never started."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.abilities import measures_backlog
from scribengin.core.errors import ScribenginError, text_of
from scribengin.local.positions import decided_ends
from scribengin.local.prepare import source_place
from scribengin.plan.tier_flows import CHANNEL
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.contract import Backlog
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.state.folder import QueryFolder


@dataclass(frozen=True, slots=True)
class Measured:
    """The backlog of a source after the newest decided Batch; if several queries read it, the largest figures of any.

    Attributes:
        backlog: None if it could not be measured.
        why_not: Why it could not be measured, for people; otherwise empty.
    """

    backlog: Backlog | None
    why_not: str = ""

    def as_json(self) -> dict[str, Any]:
        """The backlog as one JSON object, for another process."""
        return {"backlog": None if self.backlog is None else asdict(self.backlog), "why_not": self.why_not}


def measure_backlogs(prepared: PreparedFlow) -> dict[str, Measured]:
    """Measure every source that brings data into the flow from outside. Changes nothing in the state or at the places.

    Returns:
        Source → its backlog. Sources that cannot be measured without reading them (a snapshot, a sequence) are left out.
    """
    found: dict[str, Measured] = {}
    for tier in prepared.tiers:
        for folder, source in _read_from_outside(tier):
            measured = _measured(tier, folder, source)
            if measured is not None:
                found[source] = _most(found.get(source), measured)
    return found


def _read_from_outside(tier: Prepared) -> Iterator[tuple[QueryFolder, str]]:
    for query in tier.plan.queries:
        for source in query.sources:
            if tier.plan.flow.sources[source].type != CHANNEL:
                yield tier.folder.query(query.name), source


def _measured(tier: Prepared, folder: QueryFolder, source: str) -> Measured | None:
    try:
        reader = catalog.open_source(tier.plan.flow.sources[source].type, source_place(tier.plan.flow, source)).reader()
        if not measures_backlog(reader):
            return None
        # entries that are in no decided Batch count as backlog
        decided = decided_ends(folder).get(source, 0)
        reader.restore(islice(SourceLog(folder.sources, source).entries(), decided))
        waits = reader.measure()
    except (ScribenginError, OSError) as error:
        return Measured(None, text_of(error))
    return Measured(waits)


def _most(before: Measured | None, now: Measured) -> Measured:
    if before is None or before.backlog is None or now.backlog is None:
        return now if before is None or before.backlog is not None else before
    return Measured(before.backlog.most(now.backlog))
