"""The plan of a whole flow as text, JSON and a picture: its tiers, and the channels between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.units import show_bytes
from scribengin.plan.channel_text import properties
from scribengin.plan.describe import span
from scribengin.plan.explain import (
    about_lines,
    agent_lines,
    change_lines,
    hint_lines,
    mermaid_id,
    mermaid_lines,
    query_json,
    tier_lines,
    wrapped,
)
from scribengin.plan.explain import explain as explain_tier
from scribengin.plan.graph import Graph, base
from scribengin.plan.python_functions import inspect_function, inspect_utilities
from scribengin.plan.resolve import resolve
from scribengin.plan.tier_flows import source_id
from scribengin.plan.workers import standby_of
from scribengin.spec.model import Dedupe, Python, Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from scribengin.plan.channels import PlannedChannel
    from scribengin.plan.diff import PlanChanges
    from scribengin.plan.model import Plan
    from scribengin.plan.resolve import Resolved
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.spec.model import Autoscale, Flow, Tier


# Hints on results that may change if a flow is split into tiers: steps that depend on the order or the lateness of their rows.


def cut_notes(plan: Plan, arriving: Collection[str]) -> Iterator[str]:
    """Hints on the steps of one tier whose rows come from a channel. `arriving`: the sources that are channels."""
    graph = Graph(plan.flow)
    resolved = resolve(graph)
    for id_ in graph.order:
        node = graph.nodes[id_]
        if isinstance(node, Step) and not graph.upstream([id_]).isdisjoint(arriving):
            yield from _notes(node, resolved, plan.flow)


def _notes(step: Step, resolved: Resolved, flow: Flow) -> Iterator[str]:
    marks = resolved.reaching(step)
    if step.id in resolved.stateful and marks:
        rules = " and ".join(f"{mark.column} {span(mark.delay_s)} of {mark.origin}" for mark in marks)
        yield f'"{step.id}" treats rows behind its watermark ({rules}) as late: splitting into tiers may change which rows are late'
    match step.action:
        case Dedupe():
            yield f'"{step.id}" keeps the first of equal rows: splitting into tiers may change which row is the first'
        case Python(reference, function=function) if inspect_function(reference, flow.code_folder, function).kind == "class":
            yield f'"{step.id}" is a class, which may keep rows: if it does, splitting into tiers may change its results'
        case Utilities() as action if any(info.kind == "class" for info in inspect_utilities(action, flow.code_folder)):
            yield (
                f'"{step.id}" has a class among its utilities, which may keep rows: if it does, splitting into tiers may change its results'
            )


def explain(plan: FlowPlan, changes: PlanChanges | None = None, advice: Sequence[str] = ()) -> str:
    """The text form: each tier with its queries, the channels, the paths with their guarantees, hints and changes. `advice`: further hints,
    from the counts of past runs."""
    if not plan.flow.tiers:
        return explain_tier(plan.tiers[0], changes, advice)
    return "\n".join(_lines(plan, changes, advice)) + "\n"


def _lines(plan: FlowPlan, changes: PlanChanges | None, advice: Sequence[str]) -> Iterator[str]:
    queries = sum(len(tier.queries) for tier in plan.tiers)
    names = ", ".join(tier.tier for tier in plan.tiers)
    tiers = f"{len(plan.tiers)} tier{'s' * (len(plan.tiers) != 1)} ({names})"
    yield from wrapped(f"flow {plan.flow.name}: ", f"{tiers}, {queries} {'query' if queries == 1 else 'queries'}")
    yield from about_lines(plan.flow)
    yield from agent_lines(plan.flow)
    for tier in plan.tiers:
        yield ""
        yield from wrapped(f"tier {tier.tier}", _where(plan.flow.tiers[tier.tier]))
        yield from tier_lines(tier, _words(plan, tier))
    yield from _channel_lines(plan)
    yield ""
    yield "paths"
    for path in plan.paths:
        yield from wrapped("  ", f"{path.source} -> {path.sink} ({', '.join(path.tiers)}): {path.guarantee}; {path.reason}")
        if path.strengthen:
            yield from wrapped("    ", f"stronger: {path.strengthen}")
    yield from hint_lines([*hints(plan), *advice])
    yield from change_lines(changes)


def _where(tier: Tier) -> str:
    """The settings of a tier in the flow file, without its steps."""
    resources, said = tier.resources, []
    if tier.workers == "each":
        said.append(f"one worker on each host{'' if tier.group is None else f' of group {tier.group}'} (the workers share each Batch)")
    elif tier.group is not None:
        said.append(f"on group {tier.group}")
    if tier.workers != "each" and tier.workers > 1:
        said.append(f"{tier.workers} workers share each Batch")
    if resources.cores is not None:
        said.append(f"{resources.cores} core{'s' * (resources.cores != 1)}")
    if resources.memory is not None:
        said.append(show_bytes(resources.memory))
    if resources.executors is not None:
        said.append(f"{resources.executors} executor{'s' * (resources.executors != 1)}")
    if (scale := tier.autoscale) is not None:
        does = "changed" if scale.mode == "act" else "advised on"
        said.append(f"{scale.min} to {scale.max} executors, {does} to keep the lag below {span(scale.lag_s)}")
    said += [f"{name} = {value}" for name, value in resources.spark.items()]
    if resources.standby is not None:
        said.append("a warm standby" if resources.standby == "warm" else "no standby")
    if tier.trigger_s is not None:
        said.append(f"a Batch every {span(tier.trigger_s)}")
    if tier.acknowledge != "checkpoint":
        said.append("acknowledges rows when they have left its state")
    return f": {', '.join(said)}" if said else ":"


def _words(plan: FlowPlan, tier: Plan) -> dict[str, str]:
    """Node → text, for the ends of channels in the tier."""
    sinks = {each.id: f"writes to {each.reading}" for each in plan.channels if each.feeding == tier.tier}
    return sinks | {source_id(each): f"reads from {each.feeding}" for each in plan.channels if each.reading == tier.tier}


def _channel_lines(plan: FlowPlan) -> Iterator[str]:
    if not plan.channels:
        return
    yield ""
    yield "channels"
    for channel in plan.channels:
        edges = " and ".join(f'"{name}"' for name in channel.names)
        yield from wrapped(f"  {channel.id}: ", f"{edges}, {channel.feeding} to {channel.reading}")
        for each in properties(plan.flow, channel):
            yield from wrapped(f"    {each.name:11}  ", f"{each.value} ({each.said})")


def hints(plan: FlowPlan) -> list[str]:
    """Hints on the tiers' queries, and on steps whose results may differ if the flow is split into tiers."""
    found: list[str] = []
    for tier in plan.tiers:
        found += tier.hints
        found += cut_notes(tier, {source_id(channel) for channel in plan.channels if channel.reading == tier.tier})
    return list(dict.fromkeys(found))


def as_json(plan: FlowPlan, changes: PlanChanges | None = None, advice: Sequence[str] = ()) -> dict[str, Any]:
    """The `result` of `plan --json`."""
    return {
        "flow": plan.flow.name,
        "tiers": [_tier_json(plan, tier) for tier in plan.tiers],
        "channels": [_channel_json(plan, channel) for channel in plan.channels],
        "paths": [path.as_json() for path in plan.paths],
        "hints": [*hints(plan), *advice],
        "changes": None if changes is None else changes.as_json(),
        "channel_changes": None if changes is None else changes.channels_json(),
    }


def _tier_json(plan: FlowPlan, tier: Plan) -> dict[str, Any]:
    declared = plan.flow.tiers.get(tier.tier)
    return {
        "name": tier.tier,
        "group": declared.group if declared else None,
        "cores": declared.resources.cores if declared else None,
        "memory_bytes": declared.resources.memory if declared else None,
        "executors": declared.resources.executors if declared else None,
        "workers": declared.workers if declared else 1,
        "autoscale": _autoscale_json(declared.autoscale) if declared and declared.autoscale else None,
        "spark": dict(declared.resources.spark) if declared else {},
        "standby": standby_of(plan.flow, tier.tier),
        "acknowledge": declared.acknowledge if declared else "checkpoint",
        "queries": [query_json(tier, query) for query in tier.queries],
    }


def _autoscale_json(scale: Autoscale) -> dict[str, Any]:
    return {"lag_s": scale.lag_s, "min": scale.min, "max": scale.max, "mode": scale.mode}


def _channel_json(plan: FlowPlan, channel: PlannedChannel) -> dict[str, Any]:
    return {
        "id": channel.id,
        "edges": list(channel.names),
        "feeding": channel.feeding,
        "reading": channel.reading,
        "kind": channel.channel.type,
        "place": channel.place,
        "properties": {each.name: {"value": each.value, "said": each.said} for each in properties(plan.flow, channel)},
    }


def as_mermaid(plan: FlowPlan) -> str:
    """A flowchart: a box for each query, in it one for each stage. Tiers are boxes around their queries, channels are cylinders."""
    if not plan.flow.tiers:
        return "\n".join(["flowchart LR", *mermaid_lines(plan.tiers[0])]) + "\n"
    lines = ["flowchart LR"]
    for tier in plan.tiers:
        ends = _words(plan, tier)
        lines.append(f'  subgraph t_{tier.tier} ["tier {tier.tier}"]')
        lines += mermaid_lines(tier, tier=tier.tier, indent="    ", beside=ends)
        lines.append("  end")
    for channel in plan.channels:
        lines.append(f'  c_{channel.id}[("{channel.id}: {channel.place}")]')
        lines += _channel_arrows(plan, channel)
    return "\n".join(lines) + "\n"


def _channel_arrows(plan: FlowPlan, channel: PlannedChannel) -> Iterator[str]:
    cylinder = f"c_{channel.id}"
    start, dot, branch = channel.reference.partition(".")
    from_source = next((each for each in plan.channels if each.reading == channel.feeding and source_id(each) == start), None)
    feeder = f"c_{from_source.id}" if from_source else f"{mermaid_id(channel.feeding, plan.feeder(channel).name)}__{start}"
    yield f"  {feeder} -->{f'|{branch}|' if dot else ''} {cylinder}"
    reading, source = plan.tier(channel.reading), source_id(channel)
    ends = _words(plan, reading)
    for query in plan.readers(channel):
        for node in query.nodes:
            if node.id not in ends and source in map(base, node.inputs):
                yield f"  {cylinder} --> {mermaid_id(reading.tier, query.name)}__{node.id}"
