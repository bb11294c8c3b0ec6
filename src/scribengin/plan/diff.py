"""What a plan would change against the state that is there."""

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
"""`kept`: changed, and goes on with its positions and state. `refused`: its state would mean something else; a reset is needed."""


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """What the state folder tells of a Query."""

    name: str
    lineage: str
    fingerprint: str
    state_fingerprint: str
    sources: Mapping[str, int] = field(default_factory=dict)
    """source → number of log entries that decided Batches are through with"""
    last_batch: int | None = None
    """the newest decided Batch; None before the first"""
    parts: Mapping[str, str] = field(default_factory=dict)
    """node → fingerprint, as `QueryPlan.parts`; empty where it was not kept"""
    tier: str = MAIN
    reads: tuple[str, ...] = ()
    """its streaming sources"""
    sinks: tuple[str, ...] = ()
    written: Mapping[str, int] = field(default_factory=dict)
    """sink → rows that were decided for it, since the Query began or was moved here"""
    read: Mapping[str, int] = field(default_factory=dict)
    """source → rows that it has taken; of a channel those too that others took before it was moved here"""
    pending: bool = False
    """the Batch under way commits unit by unit: some of it may be committed already"""
    origin: str = ""
    """as `Lineage.origin`"""
    waiting: int = 0
    """dead letters that were asked to be replayed, and that no Batch has taken"""
    types: Mapping[str, str] = field(default_factory=dict)
    """as `Lineage.types`"""

    @property
    def key(self) -> tuple[str, str]:
        """(tier, Query)"""
        return self.tier, self.name

    @property
    def label(self) -> str:
        """For people."""
        return label_of(self.tier, self.name)

    @property
    def progress(self) -> str:
        """For people: `after Batch 17`."""
        return "before its first Batch" if self.last_batch is None else f"after Batch {self.last_batch}"

    @property
    def gone(self) -> str:
        """For people: what becomes of it where no sink makes it any more."""
        waits = f"; {letters(self.waiting)} to be replayed until one does again" if self.waiting else ""
        return f"no sink of the flow makes it any more; its state and what it wrote stay ({self.progress}){waits}"


@dataclass(frozen=True, slots=True)
class QueryChange:
    """What would happen to one Query. `changed`, `added`, `removed` are node ids."""

    name: str
    fate: Fate
    says: str
    remedy: str = ""
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    tier: str = MAIN
    again: tuple[str, ...] = ()
    """where it is refused: a sentence for each source, what of it would be read again by a Query that starts over"""

    @property
    def label(self) -> str:
        """For people."""
        return label_of(self.tier, self.name)


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """What would happen to one channel. `changed` are its properties; `drains`: all that it holds is to be read first, where rows go on
    from it."""

    name: str
    fate: Fate
    says: str
    remedy: str = ""
    changed: tuple[str, ...] = ()
    drains: bool = False

    @property
    def label(self) -> str:
        """For people."""
        return self.name


@dataclass(frozen=True, slots=True)
class PlanChanges:
    """In the plan's order, Queries that are gone last; `channels` are those that are not unchanged."""

    queries: tuple[QueryChange, ...]
    channels: tuple[ChannelChange, ...] = ()

    @property
    def refused(self) -> bool:
        """True where `run` would refuse until something is reset."""
        return "refused" in [*(query.fate for query in self.queries), *(channel.fate for channel in self.channels)]

    def with_remedies(self, named: Callable[[str], str]) -> PlanChanges:
        """With commands of remedies as `named` gives them."""
        return PlanChanges(
            tuple(replace(change, remedy=named(change.remedy)) for change in self.queries),
            tuple(replace(change, remedy=named(change.remedy)) for change in self.channels),
        )

    def channels_json(self) -> list[dict[str, Any]]:
        """One object a channel."""
        return [
            {"channel": each.name, "fate": each.fate, "says": each.says, "remedy": each.remedy, "changed": list(each.changed)}
            for each in self.channels
        ]

    def as_json(self) -> list[dict[str, Any]]:
        """One object a Query."""
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
    """What people call a Query: with its tier where the flow is cut."""
    return query if tier == MAIN else f"{tier}.{query}"


def diff_plans(stored: Mapping[str, StoredQuery], plan: Plan) -> PlanChanges:
    """Compare. `stored` maps Query names to what their folders tell; an empty mapping is a first run."""
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
        begun = "that the move to this tier began" if before.origin else "that `source set` made"
        return QueryChange(query.name, "kept", f"begins the new lineage {begun}: reads {positions}")
    if before.fingerprint == query.fingerprint and before.state_fingerprint == query.state_fingerprint:
        return QueryChange(query.name, "unchanged", f"goes on {before.progress}; nothing is read again")
    changed = tuple(id_ for id_, part in query.parts.items() if id_ in before.parts and before.parts[id_] != part)
    added = tuple(id_ for id_ in query.parts if before.parts and id_ not in before.parts)
    removed = tuple(id_ for id_ in before.parts if id_ not in query.parts)
    nodes = _Nodes(changed=changed, added=added, removed=removed)
    if before.last_batch is None and not before.sources:
        return QueryChange(query.name, "kept", "changed before its first Batch; nothing was written yet", **nodes)
    if before.state_fingerprint != query.state_fingerprint:
        return QueryChange(query.name, "refused", _why_refused(query, before), _instead(query), **nodes)
    flow = plan.flow
    types = types_changed(before.types, {sink: flow.sinks[sink].type for sink in query.sinks if sink in flow.sinks})
    if types and before.last_batch is not None:
        sink, was, now = types[0]
        remedy = _instead(query)
        return QueryChange(query.name, "refused", f"{sink} was of type {was}: what was decided for it is nothing to {now}", remedy, **nodes)
    says = f"goes on {before.progress} with {'its state and ' if query.stateful else ''}the new definition; earlier rows stay as they are"
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
        return f"{listed(stateful)} would keep state, and the checkpoint ({before.progress}) has none: it needs a new one"
    if not stateful:
        return f"it keeps no state any more, and the checkpoint ({before.progress}) has some: it needs a new one"
    return f"what {listed(stateful)} remembers ({before.progress}) would mean something else: it needs a new checkpoint"


def _instead(query: QueryPlan) -> str:
    return f"undo the change; or {write_beside(query.sinks[0])}; or {start_over()}"
