"""The changes that a submission makes to the desired version of a flow, and how each takes effect."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations: plans are made in a process of their own
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from scribengin.client.change_models import AnewRow, ChangeRow, Effect, FlowChanges
from scribengin.connectors import catalog
from scribengin.control.submission import bare_tiers, same_as, scaled_tiers
from scribengin.core.errors import InputError, Refused
from scribengin.core.units import show_duration_exactly
from scribengin.local.move_queries import changes_and_moves
from scribengin.local.prepare import prepare
from scribengin.plan.describe import listed
from scribengin.plan.topology import topology_of
from scribengin.spec.model import EdgeProperties, Sink, Source
from scribengin.state.folder import StateFolder
from scribengin.state.ledger import read_totals
from scribengin.state.topology import read_topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.control.submission import Submission
    from scribengin.local.prepare import PreparedFlow
    from scribengin.packages.store import PackageStore
    from scribengin.plan.diff import QueryChange
    from scribengin.registry.records import AutoscaleSpec, Spec
    from scribengin.spec.model import Flow, Tier

_PACE = {"limit", "high_water", "low_water", "capacity"}
"""settings of an edge that throttle its upstream tier"""


@dataclass(frozen=True, slots=True)
class Recut:
    """What the running version does before a flow with a new tier layout continues.

    Attributes:
        mover: the tier whose worker moves the queries.
        tiers: the tiers that read the backlog of their channels first.
        feeders: the upstream tiers of each tier, in the present layout.
    """

    mover: str
    tiers: tuple[str, ...]
    feeders: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Compared(FlowChanges):
    """All changes of one flow; none if the submission equals the desired version."""

    recut: Recut | None = None

    @property
    def effect(self) -> Effect | None:
        """The strongest of all effects; None if nothing changes."""
        order = get_args(Effect)
        return max((change.effect for change in self.changes), key=order.index, default=None)


def rows_again(anew: AnewRow) -> str:
    """A text for people: what is read and written twice if the query starts from the beginning."""
    read = [f"{rows:,} rows of source {source}" for source, rows in anew.read.items()]
    written = [f"up to {rows:,} rows of sink {sink}" for sink, rows in anew.written.items()]
    return f"{listed(read) or 'nothing'} {'are' if read else 'is'} read again, {listed(written) or 'nothing'} may be duplicated"


def rows_lost(anew: AnewRow) -> str:
    """A text for people: what is lost if the query continues from its present positions."""
    read = [f"{rows:,} rows of source {source}" for source, rows in anew.read.items()]
    return f"its state for {listed(read) or 'its sources'} is discarded, and no row of them is read again"


def compare(submission: Submission, new: PreparedFlow, version: int, spec: Spec | None, *, runs: bool, packages: PackageStore) -> Compared:
    """Compare a submission with the desired version of its flow. Reads packages and state, changes nothing.

    Args:
        submission: the submitted flow.
        new: the same flow, prepared over the flow's state.
        version: the number of the desired version.
        spec: the Spec of that version; None if the flow has no desired state.
        runs: the desired state is running.
        packages: the packages of this host.

    Raises:
        Refused: the flow's queries are being moved to other tiers.
    """
    if spec is None:
        return _first(submission, new)
    if same_as(spec, submission):
        again = () if runs else (ChangeRow("flow", "in place", f"runs again, as version {version}"),)
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
        found.append(ChangeRow("place", "restart", f"the flow file is now {where}; before, it was {spec.path}, with data in {spec.base}"))
    if not found:
        found = [ChangeRow("text", "in place", "the files differ, but the flow is the same")]
    if recut is not None and anew:
        says = "its tier layout and the state of its queries both change; one step cannot change both"
        found.append(ChangeRow("flow", "refused", says, "apply the two changes one after the other"))
    return Compared(submission.flow, version, tuple(found), anew, recut)


def _recut(new: PreparedFlow, old: PreparedFlow, spec: Spec) -> Recut | None:
    """The steps that the desired version must do before queries continue in other tiers. None if none moves, or if the desired version
    cannot do them, for example because another version wrote the state. Without these steps, workers of old and new tiers would wait for
    each other's leases."""
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
    """The changes of a flow without a desired state. State of an earlier flow of this name is continued."""
    changes, anew = _against_state(new)
    begins = [change for change in changes if change.effect != "restart"]
    return Compared(submission.flow, 0, (ChangeRow("flow", "restart", "is new and starts"), *begins), anew)


def _planned(spec: Spec, packages: PackageStore, state: Path) -> PreparedFlow | None:
    """The plan of the desired version; None if this host can no longer make it: its package is gone, or the rules have changed."""
    try:
        return prepare(packages.get(spec.package) / spec.path, state=state, base=Path(spec.base))
    except (Refused, InputError):
        return None


def _against_state(
    new: PreparedFlow, old: PreparedFlow | None = None, *, drained: bool = False
) -> tuple[list[ChangeRow], tuple[AnewRow, ...]]:
    """The changes that the state shows. `drained`: the backlog of channels that are removed is read first."""
    changes, moves = changes_and_moves(new, drained=drained)
    before = _meanings(old)
    unchanged = {key for key, meaning in _meanings(new).items() if before.get(key) == meaning}
    found: list[ChangeRow] = []
    anew: list[AnewRow] = []
    refused = {refusal.key for refusal in moves.refusals}
    for query in changes.queries:
        if query.fate == "unchanged" or (query.fate == "new" and (query.tier, query.name) in unchanged):
            continue  # it is new to the state, but not to the desired version, whose first Batch it has not reached
        nodes = (*query.changed, *query.added, *query.removed)
        if query.fate == "refused" and (query.tier, query.name) not in refused:
            each = _anew(new, query)
            anew.append(each)
            says = f"{query.says}. From the start: {rows_again(each)}. From here: {rows_lost(each)}"
            remedy = "pass --accept again (from the start) or --accept lost (from here), or undo the change"
            found.append(ChangeRow(f"query {query.label}", "new checkpoint", says, remedy, nodes))
        else:
            effect: Effect = "refused" if query.fate == "refused" else "restart"
            found.append(ChangeRow(f"query {query.label}", effect, query.says, query.remedy, nodes))
    for channel in changes.channels:
        paced = channel.fate == "kept" and set(channel.changed) <= _PACE
        effect = "refused" if channel.fate == "refused" else "next Batch" if paced else "restart"
        says = channel.says
        if drained and channel.drains:
            effect, says = "drain", "the upstream tier stops and the backlog is read before the flow continues with the new tier layout"
        found.append(ChangeRow(f"channel {channel.name}", effect, says, channel.remedy))
    return found, tuple(anew)


def _meanings(flow: PreparedFlow | None) -> dict[tuple[str, str], tuple[str, str]]:
    """(tier, query) → its fingerprints."""
    tiers = () if flow is None else flow.plan.tiers
    return {(tier.tier, query.name): (query.fingerprint, query.state_fingerprint) for tier in tiers for query in tier.queries}


def _anew(new: PreparedFlow, query: QueryChange) -> AnewRow:
    totals = read_totals(StateFolder(new.root, new.name, query.tier).query(query.name))
    plan = next(each for each in new.plan.tier(query.tier).queries if each.name == query.name)
    read = {source: totals.nodes[source].rows_in for source in plan.sources if source in totals.nodes}
    return AnewRow(query.tier, query.name, read, {sink: count.rows for sink, count in totals.sinks.items() if count.rows})


def _tiers(submission: Submission, spec: Spec) -> Iterator[ChangeRow]:
    there = bare_tiers(spec)
    for tier, wanted in scaled_tiers(submission.tiers, spec.scaled).items():
        before = there.get(tier)
        if before is None:
            yield ChangeRow(f"tier {tier}", "restart", "is new; it gets a worker of its own")
        elif before != wanted:
            old, now = before.dump(), wanted.dump()
            keys = [key for key in {**old, **now} if old.get(key) != now.get(key)]
            if "autoscale" in keys:  # only masters read it
                keys.remove("autoscale")
                yield ChangeRow(f"tier {tier}", "in place", _autoscale_text(wanted.autoscale))
            if keys:
                says = listed([f"{key} {old.get(key, 'default')} -> {now.get(key, 'default')}" for key in keys])
                yield ChangeRow(f"tier {tier}", "restart", says)
    for tier in spec.tiers.keys() - submission.tiers.keys():
        yield ChangeRow(f"tier {tier}", "restart", "is removed; its worker ends after the current Batches, before the others start")


def _autoscale_text(scale: AutoscaleSpec | None) -> str:
    if scale is None:
        return "autoscale ends; the number of executors stays"
    return f"autoscale becomes {scale.min} to {scale.max} executors, lag {show_duration_exactly(scale.lag_s)}, mode {scale.mode}"


def _code(submission: Submission, spec: Spec, packages: PackageStore) -> Iterator[ChangeRow]:
    """The modules and requirements that differ: a running process keeps what it has loaded."""
    try:
        old = packages.read(spec.package).content
    except Refused:
        yield ChangeRow("code", "restart", f"the package of the running version, {spec.package[:12]}, is no longer available")
        return
    new = packages.read(submission.package).content
    flows = {spec.path, submission.path}
    files = [name for name in sorted({*old, *new} - flows) if old.get(name) != new.get(name) and _is_loaded(name)]
    files += [name for name in flows if name.endswith(".py") and old.get(name) != new.get(name)]
    if files:
        yield ChangeRow("code", "restart", f"{listed(files)} {'differ' if len(files) > 1 else 'differs'}: new processes load the new files")


def _is_loaded(name: str) -> bool:
    """False for files that do not reach a worker: another flow's YAML file, the manifest."""
    return not name.endswith((".yaml", ".yml")) and name != "scribengin-package.json"


def _nodes(old: Flow, new: Flow, told: set[str]) -> Iterator[ChangeRow]:
    """Nodes whose definition differs without changing the meaning of the query, such as batch sizes and intervals."""
    sections: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...] = (
        ("source", old.sources, new.sources),
        ("step", old.steps, new.steps),
        ("sink", old.sinks, new.sinks),
    )
    for kind, before, after in sections:
        for id_, node in after.items():
            if id_ in before and before[id_] != node and id_ not in told:
                effect: Effect = "next Batch" if _paced(before[id_], node) else "restart"
                yield ChangeRow(f"{kind} {id_}", effect, _says(before[id_], node), nodes=(id_,))
        for id_ in [*(after.keys() - before.keys()), *(before.keys() - after.keys())]:
            if id_ not in told:
                yield ChangeRow(f"{kind} {id_}", "restart", "is new" if id_ in after else "is removed", nodes=(id_,))


def _paced(before: Any, after: Any) -> bool:
    """True if the two differ only in batch size or interval."""
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


def _rest(old: Flow, new: Flow) -> Iterator[ChangeRow]:
    if old.about != new.about:
        yield ChangeRow("about", "in place", "the description changes")
    if old.labels != new.labels:
        yield ChangeRow("labels", "in place", "the labels change")
    if old.max_delay_s != new.max_delay_s:
        said = "none" if new.max_delay_s is None else show_duration_exactly(new.max_delay_s)
        yield ChangeRow("max_delay", "in place", f"becomes {said}")
    if old.max_dead != new.max_dead:
        yield ChangeRow("max_dead", "restart", "changes" if new.max_dead else "is removed")
    if old.alerts != new.alerts:
        names = [name for name in {**old.alerts, **new.alerts} if old.alerts.get(name) != new.alerts.get(name)]
        yield ChangeRow("alerts", "in place", f"{listed(names)} {'change' if len(names) > 1 else 'changes'}")
    if old.defaults != new.defaults:
        paced = replace(old.defaults, trigger_s=0.0) == replace(new.defaults, trigger_s=0.0)
        yield ChangeRow("defaults", "next Batch" if paced else "restart", "trigger differs" if paced else "the defaults change")
    for name in {**old.edges, **new.edges}:
        before, after = old.edges.get(name), new.edges.get(name)
        if before != after:
            paced = _without_pace(before) == _without_pace(after)
            yield ChangeRow(
                f"edge {name}", "next Batch" if paced else "restart", "limit or thresholds differ" if paced else "its properties differ"
            )
    if old.groups != new.groups:
        yield ChangeRow("groups", "restart", "the groups change")
    if _without_autoscale(old) != _without_autoscale(new):
        yield ChangeRow("tiers", "restart", "the tiers change")


def _without_autoscale(flow: Flow) -> dict[str, Tier]:
    return {name: replace(tier, autoscale=None) for name, tier in flow.tiers.items()}


def _without_pace(edge: EdgeProperties | None) -> EdgeProperties:
    return replace(edge or EdgeProperties(), limit=None, high_water=None, low_water=None, capacity=None)
