"""After a start, under the lease: finish what was decided, and clear away what can never be decided any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.abilities import is_chained
from scribengin.connectors.group.contract import chooses
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused
from scribengin.core.remedies import start_over
from scribengin.core.storage import explained, names_in, remove_drafts
from scribengin.state.dead import purge_dead
from scribengin.state.decisions import Decisions
from scribengin.state.settling import settle
from scribengin.state.trails import forget_trails

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.contract import SinkConnector
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease


def recover_query(query: QueryFolder, sinks: Mapping[str, SinkConnector], *, lineage: str, lease: Lease) -> Decision | None:
    """Publish the newest decision at every sink, delete orphans of decided Batches; returns that decision.

    The sinks must be prepared. Every older decision was published before the next was made. May be killed at any point and done again.
    Raises EnvironmentFault for what a person can mend about a disk, here or at a sink, and Refused where a sink went to a group, and does
    not any more.
    """
    with explained(f"query {query.path.name}: what its last run has left cannot be completed"):
        return _recovered(query, sinks, lineage, lease)


def _recovered(query: QueryFolder, sinks: Mapping[str, SinkConnector], lineage: str, lease: Lease) -> Decision | None:
    lease.check()
    faults.reached("recovery.before")
    decisions = Decisions(query.decisions)
    while True:
        newest = decisions.newest()
        try:
            newest = _recover_sinks(newest, sinks, lineage, decisions, query)
            break
        except FencedError:
            # an older driver that woke has decided one more, and published it, before it saw that its lease is lost
            lease.check()
            if decisions.newest() == newest:
                raise
    purge_dead(query)
    forget_trails(query, None)
    for folder in (query.path, query.decisions, *(query.sources / name for name in names_in(query.sources))):
        remove_drafts(folder)
    faults.reached("recovery.after")
    return newest


def _recover_sinks(
    newest: Decision | None, sinks: Mapping[str, SinkConnector], lineage: str, decisions: Decisions, query: QueryFolder
) -> Decision | None:
    before = 0 if newest is None else newest.batch.number + 1
    for id_, sink in sinks.items():
        _refuse_left_group(newest, id_, sink)
    if newest is not None:
        newest = settle(newest, sinks, decisions, query)
    for id_, sink in sinks.items():
        there = newest if newest is not None and not (newest.empty and is_chained(sink)) else None
        sink.recover(None if there is None else there.of_sink(id_), lineage=lineage, before=before)
        faults.reached("recovery.mid")
    return newest


def _refuse_left_group(newest: Decision | None, id_: str, sink: SinkConnector) -> None:
    """What was decided for a member lies at its place, and is nothing to a sink that writes elsewhere."""
    member = None if newest is None else newest.behind.get(id_, {}).get("member")
    if newest is not None and member is not None and not chooses(sink):
        raise Refused(
            f'sink "{id_}": batch {newest.batch.number} was decided for member "{member}" of a group, and the sink does not go to a group '
            f"any more; what stands at the members is not looked at from here",
            remedy="write `to` at the sink again; or give the sink another id, under which it reads all again, and what the members "
            f"hold stays; or {start_over()}",
            code="group-changed",
            node=id_,
        )
