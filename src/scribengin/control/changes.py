"""What a submission changes against what is wanted of a flow now, and how each change takes effect."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at it: plans are made in a process of their own
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from scribengin.connectors import catalog
from scribengin.control.submission import bare_tiers, same_as, scaled_tiers
from scribengin.core.errors import InputError, Refused
from scribengin.local.migrate import changes_and_moves
from scribengin.local.prepare import prepare
from scribengin.plan.describe import listed
from scribengin.plan.topology import topology_of
from scribengin.spec.edge_model import EdgeProperties
from scribengin.spec.model import Sink, Source
from scribengin.spec.units_text import show_duration_exactly
from scribengin.state.folder import StateFolder
from scribengin.state.ledger import read_totals
from scribengin.state.topology import read_topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.control.submission import Submission
    from scribengin.local.prepare import PreparedFlow
    from scribengin.packages.store import PackageStore
    from scribengin.plan.diff import QueryChange
    from scribengin.registry.kinds import Spec
    from scribengin.spec.model import Flow

Effect = Literal["in place", "next Batch", "restart", "drain", "new checkpoint", "refused"]
"""How a change takes effect, the mildest first. `in place`: nothing that runs is touched. `next Batch`: the workers go on with it between
two Batches. `restart`: the workers end after the Batches under way, others take over; positions and state are kept. `drain`: as `restart`,
and before that the version that runs reads all that waits in channels which go. `new checkpoint`: what
a Query remembers would mean something else, so that it begins anew. `refused`: it cannot be done as things are; the remedy says what to do
first."""


_PACE = {"limit", "high_water", "low_water", "capacity"}
"""of an edge: what holds back its feeder"""


@dataclass(frozen=True, slots=True)
class FlowChange:
    """One change. `what` names it: `query kept`, `source orders`, `code`; `nodes` are the flow's nodes that it is about."""

    what: str
    effect: Effect
    says: str
    remedy: str = ""
    nodes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """One object."""
        return {"what": self.what, "effect": self.effect, "says": self.says, "remedy": self.remedy, "nodes": list(self.nodes)}


@dataclass(frozen=True, slots=True)
class Anew:
    """A Query that needs a new checkpoint. `read`: source → rows that it has read; `written`: sink → rows that it has put there. Begun from
    the start these are read again, and stand there twice; begun where it is, what it remembers of them is lost."""

    tier: str
    query: str
    read: Mapping[str, int]
    written: Mapping[str, int]

    @property
    def again(self) -> str:
        """For people: what is read and written twice from the start."""
        read = [f"{rows:,} rows of source {source}" for source, rows in self.read.items()]
        written = [f"up to {rows:,} rows of sink {sink}" for sink, rows in self.written.items()]
        return f"{listed(read) or 'nothing'} {'are' if read else 'is'} read again, {listed(written) or 'nothing'} may be duplicated"

    @property
    def lost(self) -> str:
        """For people: what is lost where it begins at the present positions."""
        read = [f"{rows:,} rows of source {source}" for source, rows in self.read.items()]
        return f"what it remembers of {listed(read) or 'its sources'} is lost, and no row of them is read again"

    def as_json(self) -> dict[str, Any]:
        """One object."""
        rows = {"read": dict(self.read), "written": dict(self.written)}
        return {"tier": self.tier, "query": self.query, **rows, "again": self.again, "lost": self.lost}


@dataclass(frozen=True, slots=True)
class Recut:
    """What the version that runs does before a flow that is cut otherwise goes on: `tiers` read all that waits in their channels, and a
    worker of tier `mover` moves the Queries. `feeders` of each of its tiers, as it is cut now."""

    mover: str
    tiers: tuple[str, ...]
    feeders: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Compared:
    """All changes of one flow; none where just this is wanted already. `version` is what is wanted now, 0 where nothing is."""

    flow: str
    version: int
    changes: tuple[FlowChange, ...]
    anew: tuple[Anew, ...] = ()
    recut: Recut | None = None

    @property
    def effect(self) -> Effect | None:
        """The hardest of all; None where nothing changes."""
        order = get_args(Effect)
        return max((change.effect for change in self.changes), key=order.index, default=None)

    def as_json(self) -> dict[str, Any]:
        """One object."""
        changes = [change.as_json() for change in self.changes]
        return {
            "flow": self.flow,
            "version": self.version,
            "effect": self.effect,
            "changes": changes,
            "anew": [a.as_json() for a in self.anew],
        }


def compare(submission: Submission, new: PreparedFlow, version: int, spec: Spec | None, *, runs: bool, packages: PackageStore) -> Compared:
    """Compare what would come, prepared over the flow's state, with version `version`, whose Spec is `spec`; None where nothing is wanted
    of the flow. `runs`: it is wanted to run. Looks at packages and state, changes nothing.

    Raises Refused while the flow's Queries are moved to other tiers.
    """
    if spec is None:
        return _first(submission, new)
    if same_as(spec, submission):
        again = () if runs else (FlowChange("flow", "in place", f"is wanted to run again, as version {version}"),)
        return Compared(submission.flow, version, again)
    old = _planned(spec, packages, new.root)
    recut = None if old is None else _recut(new, old, spec)
    changes, anew = _against_state(new, old, drained=recut is not None)
    told = {node for change in changes for node in change.nodes}
    found = [*_tiers(submission, spec), *changes, *_code(submission, spec, packages)]
    if old is not None:
        found += _nodes(old.plan.flow, new.plan.flow, told)
        found += _rest(old.plan.flow, new.plan.flow)
    if (spec.base, spec.path) != (submission.base, submission.path):
        where = f"{submission.path}, with data in {submission.base}"
        found.append(FlowChange("place", "restart", f"the flow is taken from {where}; before from {spec.path}, with data in {spec.base}"))
    if not found:
        found = [FlowChange("text", "in place", "the files differ, and mean the same")]
    if recut is not None and anew:
        says = "the way in which it is cut changes, and what its Queries remember: both in one step cannot be done"
        found.append(FlowChange("flow", "refused", says, "change one after the other"))
    return Compared(submission.flow, version, tuple(found), anew, recut)


def _recut(new: PreparedFlow, old: PreparedFlow, spec: Spec) -> Recut | None:
    """What is to be done before Queries go on in other places, where the version that is wanted can do it: nothing where none moves, or
    where another version wrote what lies there. Workers that start side by side would each wait for the leases that the others hold."""
    changes, moves = changes_and_moves(new)
    going = {channel.name for channel in changes.channels if channel.drains}
    moving = {query.tier for arrival in moves.arrivals for query in (*arrival.after, *arrival.through)}
    if not (moving or moves.refusals or any(each.fate == "refused" for each in changes.channels)) or not moving <= spec.tiers.keys():
        return None
    known = read_topology(new.root, new.name)
    there = {channel.id: channel for channel in known.channels if not channel.gone} if known is not None else {}
    runs = {channel.identity for channel in topology_of(old.plan).channels}
    if not going <= there.keys() or not {channel.identity for channel in there.values()} <= runs:
        return None
    readers = tuple(tier.tier for tier in old.plan.tiers if any(there[id_].reading == tier.tier for id_ in going))
    mover = next((tier.tier for tier in old.plan.tiers if tier.tier in (readers or moving)), old.plan.tiers[0].tier)
    return Recut(mover, readers, {name: tuple(tier.feeders) for name, tier in spec.tiers.items()})


def _first(submission: Submission, new: PreparedFlow) -> Compared:
    """A flow of which nothing is wanted. State from an earlier life is gone on with."""
    changes, anew = _against_state(new)
    begins = [change for change in changes if change.effect != "restart"]
    return Compared(submission.flow, 0, (FlowChange("flow", "restart", "is new here, and starts"), *begins), anew)


def _planned(spec: Spec, packages: PackageStore, state: Path) -> PreparedFlow | None:
    """What is wanted now, planned; None where this host cannot do that any more: its package is gone, or its rules have changed."""
    try:
        return prepare(packages.get(spec.package) / spec.path, state=state, base=Path(spec.base))
    except (Refused, InputError):
        return None


def _against_state(
    new: PreparedFlow, old: PreparedFlow | None = None, *, drained: bool = False
) -> tuple[list[FlowChange], tuple[Anew, ...]]:
    """`drained`: all that waits in channels which go is read before."""
    changes, moves = changes_and_moves(new, drained=drained)
    before = _meanings(old)
    unchanged = {key for key, meaning in _meanings(new).items() if before.get(key) == meaning}
    found: list[FlowChange] = []
    anew: list[Anew] = []
    refused = {refusal.key for refusal in moves.refusals}
    for query in changes.queries:
        if query.fate == "unchanged" or (query.fate == "new" and (query.tier, query.name) in unchanged):
            continue  # what is new to the state, and was wanted before, has not come to its first Batch
        nodes = (*query.changed, *query.added, *query.removed)
        if query.fate == "refused" and (query.tier, query.name) not in refused:
            each = _anew(new, query)
            anew.append(each)
            says = f"{query.says}. From the start: {each.again}. From here: {each.lost}"
            remedy = "apply --accept again (from the start) or --accept lost (from here); or undo the change"
            found.append(FlowChange(f"query {query.label}", "new checkpoint", says, remedy, nodes))
        else:
            effect: Effect = "refused" if query.fate == "refused" else "restart"
            found.append(FlowChange(f"query {query.label}", effect, query.says, query.remedy, nodes))
    for channel in changes.channels:
        paced = channel.fate == "kept" and set(channel.changed) <= _PACE
        effect = "refused" if channel.fate == "refused" else "next Batch" if paced else "restart"
        says = channel.says
        if drained and channel.drains:
            effect, says = "drain", "its feeder stops, and all that waits in it is read, before the flow goes on as it is cut then"
        found.append(FlowChange(f"channel {channel.name}", effect, says, channel.remedy))
    return found, tuple(anew)


def _meanings(flow: PreparedFlow | None) -> dict[tuple[str, str], tuple[str, str]]:
    """(tier, Query) → its fingerprints."""
    tiers = () if flow is None else flow.plan.tiers
    return {(tier.tier, query.name): (query.fingerprint, query.state_fingerprint) for tier in tiers for query in tier.queries}


def _anew(new: PreparedFlow, query: QueryChange) -> Anew:
    totals = read_totals(StateFolder(new.root, new.name, query.tier).query(query.name))
    plan = next(each for each in new.plan.tier(query.tier).queries if each.name == query.name)
    read = {source: totals.nodes[source].rows_in for source in plan.sources if source in totals.nodes}
    return Anew(query.tier, query.name, read, {sink: count.rows for sink, count in totals.sinks.items() if count.rows})


def _tiers(submission: Submission, spec: Spec) -> Iterator[FlowChange]:
    there = bare_tiers(spec)
    for tier, wanted in scaled_tiers(submission.tiers, spec.scaled).items():
        before = there.get(tier)
        if before is None:
            yield FlowChange(f"tier {tier}", "restart", "is new: a worker of its own serves it")
        elif before != wanted:
            old, now = before.dump(), wanted.dump()
            keys = [key for key in {**old, **now} if old.get(key) != now.get(key)]
            says = listed([f"{key} {old.get(key, 'default')} -> {now.get(key, 'default')}" for key in keys])
            yield FlowChange(f"tier {tier}", "restart", says)
    for tier in spec.tiers.keys() - submission.tiers.keys():
        yield FlowChange(f"tier {tier}", "restart", "goes: its worker ends after the Batches under way, before the others start")


def _code(submission: Submission, spec: Spec, packages: PackageStore) -> Iterator[FlowChange]:
    """Modules and requirements that differ: a process keeps what it has loaded."""
    try:
        old = packages.read(spec.package).content
    except Refused:
        yield FlowChange("code", "restart", f"what ran came in package {spec.package[:12]}, which is not here any more")
        return
    new = packages.read(submission.package).content
    flows = {spec.path, submission.path}
    files = [name for name in sorted({*old, *new} - flows) if old.get(name) != new.get(name) and _is_loaded(name)]
    files += [name for name in flows if name.endswith(".py") and old.get(name) != new.get(name)]
    if files:
        yield FlowChange(
            "code", "restart", f"{listed(files)} {'differ' if len(files) > 1 else 'differs'}: new processes load what has come"
        )


def _is_loaded(name: str) -> bool:
    """False for what does not reach a worker: another flow's YAML file, the manifest."""
    return not name.endswith((".yaml", ".yml")) and name != "scribengin-package.json"


def _nodes(old: Flow, new: Flow, told: set[str]) -> Iterator[FlowChange]:
    """Nodes whose definition differs without another meaning of the Query: how much at once, how often."""
    sections: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...] = (
        ("source", old.sources, new.sources),
        ("step", old.steps, new.steps),
        ("sink", old.sinks, new.sinks),
    )
    for kind, before, after in sections:
        for id_, node in after.items():
            if id_ in before and before[id_] != node and id_ not in told:
                effect: Effect = "next Batch" if _paced(before[id_], node) else "restart"
                yield FlowChange(f"{kind} {id_}", effect, _says(before[id_], node), nodes=(id_,))
        for id_ in [*(after.keys() - before.keys()), *(before.keys() - after.keys())]:
            if id_ not in told:
                yield FlowChange(f"{kind} {id_}", "restart", "is new" if id_ in after else "goes", nodes=(id_,))


def _paced(before: Any, after: Any) -> bool:
    """True where the two differ only in how much at once, or how often."""
    if not isinstance(after, Source | Sink) or not isinstance(before, Source | Sink) or before.type != after.type:
        return False
    types = catalog.source_types() if isinstance(after, Source) else catalog.sink_types()
    if type(before) is not type(after) or after.type not in types:
        return False
    pace = {option.name for option in types[after.type].options if option.pace}

    def bare(node: Source | Sink) -> Source | Sink:
        kept = replace(node, options={name: value for name, value in node.options.items() if name not in pace})
        dry = {"trigger_s"} if isinstance(kept, Sink) else _PACE - {"limit"}
        return replace(kept, **dict.fromkeys(dry))  # type: ignore[arg-type]

    return bare(before) == bare(after)


def _says(before: Any, after: Any) -> str:
    old, new = getattr(before, "options", {}), getattr(after, "options", {})
    said = [f"{key} {old.get(key, 'default')} -> {new.get(key, 'default')}" for key in {**old, **new} if old.get(key) != new.get(key)]
    if getattr(before, "trigger_s", None) != getattr(after, "trigger_s", None):
        said.append("trigger")
    return listed(said) if said else "its definition differs"


def _rest(old: Flow, new: Flow) -> Iterator[FlowChange]:
    if old.about != new.about:
        yield FlowChange("about", "in place", "is said otherwise")
    if old.labels != new.labels:
        yield FlowChange("labels", "in place", "are others from now on")
    if old.max_delay_s != new.max_delay_s:
        said = "none" if new.max_delay_s is None else show_duration_exactly(new.max_delay_s)
        yield FlowChange("max_delay", "in place", f"is {said} from now on")
    if old.max_dead != new.max_dead:
        yield FlowChange("max_dead", "restart", "is another from now on" if new.max_dead else "is removed from now on")
    if old.alerts != new.alerts:
        names = [name for name in {**old.alerts, **new.alerts} if old.alerts.get(name) != new.alerts.get(name)]
        yield FlowChange("alerts", "in place", f"{listed(names)} {'are others' if len(names) > 1 else 'is another'} from now on")
    if old.defaults != new.defaults:
        paced = replace(old.defaults, trigger_s=0.0) == replace(new.defaults, trigger_s=0.0)
        yield FlowChange("defaults", "next Batch" if paced else "restart", "trigger differs" if paced else "are others than before")
    for name in {**old.edges, **new.edges}:
        before, after = old.edges.get(name), new.edges.get(name)
        if before != after:
            paced = _without_pace(before) == _without_pace(after)
            yield FlowChange(
                f"edge {name}", "next Batch" if paced else "restart", "limit or water marks differ" if paced else "its properties differ"
            )
    for part in ("groups", "tiers"):
        if getattr(old, part) != getattr(new, part):
            yield FlowChange(part, "restart", "are others than before")


def _without_pace(edge: EdgeProperties | None) -> EdgeProperties:
    return replace(edge or EdgeProperties(), limit=None, high_water=None, low_water=None, capacity=None)
