"""The changes that a plan would make, compared with the stored state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from scribengin.core.remedies import start_over, write_beside
from scribengin.plan.describe import listed
from scribengin.plan.tiers import MAIN
from scribengin.state.lineage import types_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.plan.model import Plan, QueryPlan

Fate = Literal["new", "unchanged", "kept", "refused", "gone"]
"""`kept`: changed, and continues with its positions and state. `refused`: its state does not fit the change; a reset is needed."""


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """The stored state of a query, from the state folder."""

    name: str
    lineage: str
    fingerprint: str
    state_fingerprint: str
    sources: Mapping[str, int] = field(default_factory=dict)
    """source → number of log entries that decided Batches have processed"""
    last_batch: int | None = None
    """the newest decided Batch; None before the first"""
    parts: Mapping[str, str] = field(default_factory=dict)
    """node → fingerprint, as in `QueryPlan.parts`; empty if it was not stored"""
    tier: str = MAIN
    reads: tuple[str, ...] = ()
    """the ids of its streaming sources"""
    sinks: tuple[str, ...] = ()
    written: Mapping[str, int] = field(default_factory=dict)
    """sink → rows decided for it since the query began or was moved here"""
    read: Mapping[str, int] = field(default_factory=dict)
    """source → rows that the query has read; for a channel also the rows that other queries read before the query was moved here"""
    pending: bool = False
    """True if the current Batch commits each task output separately, so part of it may already be committed"""
    origin: str = ""
    """see `Lineage.origin`"""
    waiting: int = 0
    """dead letters queued for replay that no Batch has read yet"""
    types: Mapping[str, str] = field(default_factory=dict)
    """see `Lineage.types`"""

    @property
    def key(self) -> tuple[str, str]:
        """(tier, query)"""
        return self.tier, self.name

    @property
    def label(self) -> str:
        """The query's name in messages."""
        return label_of(self.tier, self.name)

    @property
    def progress(self) -> str:
        """The query's progress for messages: `after Batch 17`."""
        return "before its first Batch" if self.last_batch is None else f"after Batch {self.last_batch}"

    @property
    def gone(self) -> str:
        """The message for a query that no sink of the flow uses any more."""
        waits = f"; {letters(self.waiting)} to be replayed until a sink uses it again" if self.waiting else ""
        return f"no sink of the flow uses this query any more; its state and output are kept ({self.progress}){waits}"


@dataclass(frozen=True, slots=True)
class QueryChange:
    """The change of one query. `changed`, `added`, `removed` are node ids."""

    name: str
    fate: Fate
    says: str
    remedy: str = ""
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    tier: str = MAIN
    again: tuple[str, ...] = ()
    """if the change is refused: a sentence for each source on what a query that starts over would re-read"""

    @property
    def label(self) -> str:
        """The query's name in messages."""
        return label_of(self.tier, self.name)


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """The change of one channel. `changed` are its properties. `drains`: True if the channel must have no unread rows before the change, as
    long as rows of it are needed."""

    name: str
    fate: Fate
    says: str
    remedy: str = ""
    changed: tuple[str, ...] = ()
    drains: bool = False

    @property
    def label(self) -> str:
        """The channel's name in messages."""
        return self.name


@dataclass(frozen=True, slots=True)
class PlanChanges:
    """The changes in the plan's order, removed queries last; `channels` has only channels that change."""

    queries: tuple[QueryChange, ...]
    channels: tuple[ChannelChange, ...] = ()

    @property
    def refused(self) -> bool:
        """True if `run` would refuse to start until something is reset."""
        return "refused" in [*(query.fate for query in self.queries), *(channel.fate for channel in self.channels)]

    def with_remedies(self, named: Callable[[str], str]) -> PlanChanges:
        """A copy in which `named` has replaced the commands in remedies."""
        return PlanChanges(
            tuple(replace(change, remedy=named(change.remedy)) for change in self.queries),
            tuple(replace(change, remedy=named(change.remedy)) for change in self.channels),
        )

    def channels_json(self) -> list[dict[str, Any]]:
        """One object for each channel."""
        return [
            {"channel": each.name, "fate": each.fate, "says": each.says, "remedy": each.remedy, "changed": list(each.changed)}
            for each in self.channels
        ]

    def as_json(self) -> list[dict[str, Any]]:
        """One object for each query."""
        return [
            {
                "query": query.name,
                "tier": query.tier,
                "fate": query.fate,
                "says": query.says,
                "remedy": query.remedy,
                "changed": list(query.changed),
                "added": list(query.added),
                "removed": list(query.removed),
                "again": list(query.again),
            }
            for query in self.queries
        ]


def letters(waiting: int) -> str:
    """`2 dead letters wait`"""
    return f"{waiting:,} dead letter{'s wait' if waiting != 1 else ' waits'}"


def label_of(tier: str, query: str) -> str:
    """The name of a query in messages: with its tier if the flow has tiers."""
    return query if tier == MAIN else f"{tier}.{query}"


def diff_plans(stored: Mapping[str, StoredQuery], plan: Plan) -> PlanChanges:
    """Compare a plan with the stored state. `stored`: name of a query → its stored state; empty at a first run."""
    known = [_change(plan, query, stored.get(query.name)) for query in plan.queries]
    names = {query.name for query in plan.queries}
    gone = [QueryChange(name, "gone", query.gone) for name, query in stored.items() if name not in names]
    return PlanChanges(tuple(replace(change, tier=plan.tier) for change in (*known, *gone)))


class _Nodes(TypedDict):
    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]


def _change(plan: Plan, query: QueryPlan, before: StoredQuery | None) -> QueryChange:
    if before is None:
        return QueryChange(query.name, "new", f"starts at Batch 0 and reads {listed(query.sources)} from the start")
    if before.last_batch is None and before.sources:
        positions = listed([f"{source} from position {position}" for source, position in before.sources.items()])
        begun = "of the move to this tier" if before.origin else "of `offsets set`"
        return QueryChange(query.name, "kept", f"starts the new lineage {begun}: reads {positions}")
    if before.fingerprint == query.fingerprint and before.state_fingerprint == query.state_fingerprint:
        return QueryChange(query.name, "unchanged", f"continues {before.progress}; nothing is re-read")
    changed = tuple(id_ for id_, part in query.parts.items() if id_ in before.parts and before.parts[id_] != part)
    added = tuple(id_ for id_ in query.parts if before.parts and id_ not in before.parts)
    removed = tuple(id_ for id_ in before.parts if id_ not in query.parts)
    nodes = _Nodes(changed=changed, added=added, removed=removed)
    if before.last_batch is None and not before.sources:
        return QueryChange(query.name, "kept", "changed before its first Batch; nothing is written yet", **nodes)
    if before.state_fingerprint != query.state_fingerprint:
        return QueryChange(query.name, "refused", _why_refused(query, before), _instead(query), **nodes)
    flow = plan.flow
    types = types_changed(before.types, {sink: flow.sinks[sink].type for sink in query.sinks if sink in flow.sinks})
    if types and before.last_batch is not None:
        sink, was, now = types[0]
        remedy = _instead(query)
        return QueryChange(
            query.name,
            "refused",
            f"the type of sink {sink} changed from {was} to {now}: its committed Batches do not apply to the new type",
            remedy,
            **nodes,
        )
    says = (
        f"continues {before.progress} with {'its state and ' if query.stateful else ''}the new definition; rows already written "
        "do not change"
    )
    fresh = [source for source in query.sources if source not in before.sources]
    if fresh:
        says += f"; reads {listed(fresh)} from the start"
    dropped = [source for source in before.sources if source not in query.sources]
    if dropped:
        says += f"; no longer reads {listed(dropped)}"
    return QueryChange(query.name, "kept", says, **nodes)


def _why_refused(query: QueryPlan, before: StoredQuery) -> str:
    stateful = [node.id for node in query.nodes if node.stateful]
    if not before.state_fingerprint:
        return f"{listed(stateful)} would keep state, but the checkpoint ({before.progress}) has none: a new checkpoint is needed"
    if not stateful:
        return f"the query no longer keeps state, but the checkpoint ({before.progress}) has state: a new checkpoint is needed"
    return f"the state of {listed(stateful)} ({before.progress}) does not fit the changed flow: a new checkpoint is needed"


def _instead(query: QueryPlan) -> str:
    return f"undo the change; or {write_beside(query.sinks[0])}; or {start_over()}"
