"""Groups of flows: their members, and their settings, which workers use from their next Batch on. A group is identified by its name: flows
that name a group by the same name share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scribengin.control.flow_records import read_flows
from scribengin.control.record_validation import again
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.registry.contract import Damaged, Delete
from scribengin.registry.record_io import Newer, Stored, names, read_record, read_records
from scribengin.registry.records import GroupRecord
from scribengin.registry.tree import GROUP, SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.registry.contract import Registry

_MOST_WHY = 300


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group: flow → member → cost, in the desired versions; and its settings from the registry."""

    group: str
    flows: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stored: Stored[GroupRecord] | None = None
    damaged: str = ""
    narrow: bool = False
    """not all flows are visible: members that only other flows name are left out"""

    @property
    def as_record(self) -> GroupRecord:
        """The group's settings as a record of the registry; without members if it has none."""
        return GroupRecord(members={}) if self.stored is None else self.stored.record

    @property
    def members(self) -> tuple[str, ...]:
        """All members that a flow names, then those that only the settings name."""
        named = [member for members in self.flows.values() for member in members]
        spoken = () if self.narrow else (*self.as_record.members, *self.as_record.out)
        return tuple(dict.fromkeys([*named, *spoken]))

    @property
    def refused(self) -> str:
        """Why its settings are not in force; empty if they are."""
        if self.damaged:
            return f"{self.damaged}; workers keep the previous settings"
        whole = [flow for flow in self.flows if not left_of(self, flow, self.as_record.out)]
        return f"all members that {' and '.join(whole)} may use are disabled; the disabling is ignored there" if whole else ""


def left_of(group: GroupSeen, flow: str, out: Mapping[str, str]) -> list[str]:
    """The members that still get Batches of a flow while those in `out` are disabled."""
    return [member for member in group.flows[flow] if member not in out]


def read_groups(registry: Registry, visible: Callable[[str], bool] | None = None) -> dict[str, GroupSeen]:
    """Group name → group: the groups of all flows, and those that only have settings; with `visible` only the groups of visible flows.
    Works without a running master."""
    flows: dict[str, dict[str, dict[str, float]]] = {}
    rows = [row for row in read_flows(registry) if visible is None or visible(row.flow)]
    specs = read_records(registry, [SPEC(row.flow, str(row.desired.version)) for row in rows])
    for row, spec in zip(rows, specs, strict=True):
        for tier in spec.record.tiers.values() if isinstance(spec, Stored) else ():
            for group, members in tier.groups.items():
                flows.setdefault(group, {})[row.flow] = dict(members)
    spoken = [name for name in names(registry, "groups") if GROUP.fits(name)] if visible is None else []
    found = {}
    for name in sorted({*flows, *spoken}):
        record = read_record(registry, GROUP(name))
        why = record.why if isinstance(record, Damaged) else "has a newer format" if isinstance(record, Newer) else ""
        found[name] = GroupSeen(name, flows.get(name, {}), record if isinstance(record, Stored) else None, why, visible is not None)
    return found


def find_group(registry: Registry, name: str, visible: Callable[[str], bool] | None = None) -> GroupSeen:
    """The group of that name. Raises Refused if no flow names it, and it has no settings."""
    groups = read_groups(registry, visible)
    if name not in groups:
        have = did_you_mean(name, groups) or (f"there are {', '.join(groups)}" if groups else "no submitted flow has groups")
        raise Refused(f'there is no group "{name}"', remedy=have, code="group-unknown")
    return groups[name]


def group_as_json(group: GroupSeen, told: Callable[[str], Mapping[str, Any] | None]) -> dict[str, Any]:
    """One group as JSON, with the state of each member at each of its sinks.

    Args:
        group: the group.
        told: flow → the last reports of its workers (`WorkerWatch.last_report`).
    """
    seen: dict[str, list[dict[str, Any]]] = {}
    for flow in group.flows:
        for member, row in _seen_by(flow, group.group, told(flow)):
            seen.setdefault(member, []).append(row)
    said = group.as_record
    members: list[dict[str, Any]] = []
    for member in group.members:
        costs = sorted({members[member] for members in group.flows.values() if member in members})
        own = said.members.get(member)
        members.append(
            {
                "member": member,
                "cost": own if own is not None else costs[0] if costs else None,
                "costs": costs,
                "out": member in said.out,
                "why": said.out.get(member, ""),
                "seen": seen.get(member, []),
            }
        )
    members.sort(key=lambda each: (each["cost"] if each["cost"] is not None else inf, each["member"]))
    return {"group": group.group, "flows": list(group.flows), "members": members, "refused": group.refused}


def _seen_by(flow: str, group: str, told: Mapping[str, Any] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(member, report) of each sink of the flow that writes to the group, and whose worker reports."""
    for tier in (told or {}).get("tiers", ()):
        if tier["silent"] or tier["phase"] == "ended":
            continue
        for query in tier["queries"]:
            for sink, members in query.get("members", {}).items():
                for each in members:
                    if each.get("group") == group:
                        row = {"flow": flow, "tier": tier["tier"], "query": query["query"], "sink": sink, "place": each.get("place", "")}
                        yield each["member"], {**row, **{name: each[name] for name in ("state", "reason", "again_s", "batches")}}


def set_member(
    registry: Registry, name: str, member: str, *, out: bool | None = None, why: str = "", cost: float | None = None, by: str = ""
) -> None:
    """Disable or enable a member, and set its cost.

    Args:
        registry: where the group's settings are.
        name: the group.
        member: the member.
        out: True disables it, False enables it; None leaves it unchanged.
        why: the reason for disabling it, shown to other operators.
        cost: its cost; 0: the one of the flow files; None leaves it unchanged.
        by: the user, for the record.

    Raises:
        Refused: there is no such group or member, it is the last member that takes Batches of a flow, or the cost is invalid.
    """
    if cost is not None and not (isfinite(cost) and cost >= 0):
        raise Refused(
            f"{cost:g} is not a valid cost", remedy="give a number above 0, or 0 for the cost in the flow files", code="group-cost"
        )

    def attempt() -> None:
        group = find_group(registry, name)
        if member not in group.members:
            near = did_you_mean(member, group.members) or f"its members are {', '.join(group.members)}"
            raise Refused(f'group {name} has no member "{member}"', remedy=near, code="member-unknown")
        if group.damaged:
            raise Refused(f"groups/{name} {group.damaged}", remedy="fix or delete the record in the registry", code="registry-damaged")
        said = group.as_record
        if out is not None:
            others = {each: reason for each, reason in said.out.items() if each != member}
            said = replace(said, out={**others, member: (why or f"disabled by {by or 'an unknown user'}")[:_MOST_WHY]} if out else others)
        if out:
            for flow in group.flows:
                if member in group.flows[flow] and not left_of(group, flow, said.out):
                    raise Refused(
                        f"{member} is the last member of group {name} that takes Batches of flow {flow}",
                        remedy=f"enable another member first: scribengin group enable {name} MEMBER; or pause the flow",
                        code="group-last",
                    )
        if cost is not None:
            costs = {each: value for each, value in said.members.items() if each != member}
            said = replace(said, members={**costs, member: cost} if cost else costs)
        bare = not said.members and not said.out
        if group.stored is None:
            if not bare:
                registry.commit(GROUP(name).create(said))
        elif bare and not set(group.stored.entry.value) - {"format", "members", "out"}:
            registry.commit(Delete(group.stored.entry.path, group.stored.entry.version))
        else:
            registry.commit(group.stored.replace(said))

    again(attempt)
