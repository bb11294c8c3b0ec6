"""A flow as it is submitted, and the values of an earlier version that the next one keeps."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.plan.agent_lanes import AGENT_TIER, is_collected, tier_of_agents
from scribengin.plan.flow_links import outside_of
from scribengin.plan.groups import members_of, target
from scribengin.plan.maintained_places import kept_folders
from scribengin.plan.workers import standby_of, why_alone
from scribengin.registry.flow_ends import Outside
from scribengin.registry.records import AgentTierSpec, AlertSettings, AlertSpec, AutoscaleSpec, TierSpec
from scribengin.registry.tree import HOST
from scribengin.spec.alerts import show_condition
from scribengin.spec.model import Resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.registry.records import Spec
    from scribengin.spec.model import Flow, Sink, Tier

NOT_WATCHED = AlertSettings()
NOWHERE = Outside()


@dataclass(frozen=True, slots=True)
class Submission:
    """A packed and planned flow, from which a version is made.

    Attributes:
        flow: its name.
        package: the sha256 of a package that masters and workers can get.
        path: the path of the flow file in the package.
        base: the folder from which relative paths of data are resolved.
        tiers: the settings of its tiers.
        watched: the settings of delay and alerts.
        labels: its labels.
        outside: where it reads and writes.
        groups: the groups of hosts on which its tiers may run.
        agents: the tiers that agents run.
    """

    flow: str
    package: str
    path: str
    base: str
    tiers: Mapping[str, TierSpec]
    watched: AlertSettings = NOT_WATCHED
    labels: Mapping[str, str] = field(default_factory=dict)
    outside: Outside = NOWHERE
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    agents: Mapping[str, AgentTierSpec] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[str, Outside]:
        """(the path of its flow file, where it reads and writes)."""
        return f"{self.base}/{self.path}", self.outside


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a submission. `changed` is False if the newest version is identical and has the desired state already."""

    flow: str
    version: int
    changed: bool


def submission_of(plan: FlowPlan, package: str, path: str, base: str) -> Submission:
    """The submission of a planned flow.

    Args:
        plan: the plan.
        package: the sha256 of its package.
        path: the path of the flow file in the package.
        base: the folder from which relative paths of data are resolved.
    """
    flow = plan.flow
    return Submission(
        flow.name,
        package,
        path,
        base,
        _tiers_of(plan),
        _watched_of(flow),
        flow.labels,
        outside_of(flow),
        _groups_of(flow),
        _agents_of(plan),
    )


def _tiers_of(plan: FlowPlan) -> dict[str, TierSpec]:
    tiers = {}
    for tier in plan.tiers:
        declared = plan.flow.tiers.get(tier.tier)
        feeders = sorted({channel.feeding for channel in plan.channels if channel.reading == tier.tier})
        gets = Resources() if declared is None else declared.resources
        scale = None if declared is None else declared.autoscale
        standby = standby_of(plan.flow, tier.tier)
        groups = {group: costs for sink in tier.flow.sinks.values() for group, costs in _group_of(plan.flow, sink)}
        tiers[tier.tier] = TierSpec(
            feeders=tuple(feeders),
            cores=gets.cores or 1,
            memory_bytes=gets.memory or 0,
            standby=standby,
            executors=gets.executors or (1 if scale is None else scale.min),
            spark=gets.spark,
            folders=kept_folders(tier.flow),
            groups=groups,
            group=(declared.group or "") if declared is not None else "",
            hosts=_hosts_of(plan.flow, declared),
            workers=1 if declared is None else declared.workers,
            alone=why_alone(tier),
            autoscale=None if scale is None else AutoscaleSpec(lag_s=scale.lag_s, max=scale.max, min=scale.min, mode=scale.mode),
        )
    return tiers


def _group_of(flow: Flow, sink: Sink) -> Iterator[tuple[str, dict[str, float]]]:
    """The group that a sink or channel goes to as a whole, with its members' costs."""
    to = target(sink)
    if to is not None and "." not in to:
        yield to, {member.name: member.cost for member in members_of(flow, to)}


def _hosts_of(flow: Flow, tier: Tier | None) -> dict[str, float]:
    """Host → cost of the group on which a tier runs."""
    return {} if tier is None or tier.group is None else {member.at: member.cost for member in members_of(flow, tier.group)}


def _groups_of(flow: Flow) -> dict[str, dict[str, float]]:
    """The groups on which a tier may run: those whose members can all be hosts."""
    return {
        name: {member.at: member.cost for member in group.members}
        for name, group in flow.groups.items()
        if all(HOST.fits(member.at) for member in group.members)
    }


def _agents_of(plan: FlowPlan) -> dict[str, AgentTierSpec]:
    """The tiers that agents run: those with `agents`, and one for the sources that no such tier has."""
    taken = {tier.tier for tier in plan.tiers}
    lanes: dict[str, dict[str, str]] = {}
    gateways = {}
    for source in filter(is_collected, plan.flow.sources.values()):
        tier = tier_of_agents(plan.flow, source.id)
        named = AGENT_TIER if AGENT_TIER not in taken else f"{AGENT_TIER}_agents"
        name = named if tier is None else tier.id
        lanes.setdefault(name, {})[source.id] = source.options.get("group") or "" if tier is None else tier.agents
        gateways[name] = "" if tier is None else tier.gateways or ""
    return {name: AgentTierSpec(lanes=found, gateways=gateways[name]) for name, found in lanes.items()}


def _watched_of(flow: Flow) -> AlertSettings:
    alerts = {
        alert.id: AlertSpec(when=show_condition(alert.when), webhook=alert.webhook, command=alert.command) for alert in flow.alerts.values()
    }
    return AlertSettings(max_delay_s=flow.max_delay_s, alerts=alerts)


def same_as(spec: Spec, submission: Submission) -> bool:
    """True if the submission equals this version."""
    mine = (submission.package, submission.path, submission.base, scaled_tiers(submission.tiers, spec.scaled))
    return (spec.package, spec.path, spec.base, bare_tiers(spec)) == mine


def bare_tiers(spec: Spec) -> dict[str, TierSpec]:
    """The version's tiers, without the versions whose workers may serve them."""
    return {name: replace(tier, since=0, process=0) for name, tier in spec.tiers.items()}


def scaled_tiers(tiers: Mapping[str, TierSpec], scaled: Mapping[str, Mapping[str, int]]) -> dict[str, TierSpec]:
    """Tiers with the values set by `scale`."""
    return {name: replace(tier, **scaled.get(name, {})) for name, tier in tiers.items()}


def next_tiers(submission: Submission, before: Spec | None, version: int, effect: str | None) -> dict[str, TierSpec]:
    """The tiers of the next version.

    Args:
        submission: the submitted flow.
        before: the version before; None if there is none.
        version: the number of `before`; 0 if the flow has no desired state.
        effect: how the changes take effect (`change_models.Effect`); it decides which workers may serve the next version.
    """
    tiers = scaled_tiers(submission.tiers, {} if before is None else before.scaled)
    if before is None or not version or effect not in ("in place", "next Batch"):
        return tiers
    kept = {}
    for name, tier in tiers.items():
        old = before.tiers.get(name)
        if old is None:
            kept[name] = tier
        elif effect == "in place":
            kept[name] = replace(tier, since=old.since or version, process=old.process)
        else:
            kept[name] = replace(tier, process=old.process or old.since or version)
    return kept
