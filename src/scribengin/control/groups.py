"""Groups of flows: which members there are, and what is said of them while flows run; workers take it up before their next Batch.

A group is known by its name: flows that name one with the same name and member mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scribengin.control.known import again
from scribengin.control.reading import read_flows
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.registry.contract import Damaged, Delete
from scribengin.registry.kinds import GroupRecord
from scribengin.registry.records import Newer, Stored, names, read_record, read_records
from scribengin.registry.tree import GROUP, SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.registry.contract import Registry

_MOST_WHY = 300


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group: flow → member → cost, as the versions that are wanted say; and what is said of it beside."""

    group: str
    flows: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stored: Stored[GroupRecord] | None = None
    damaged: str = ""
    narrow: bool = False
    """Not all flows are looked at: whom only others may name is left out."""

    @property
    def said(self) -> GroupRecord:
        """What is said of it."""
        return GroupRecord(members={}) if self.stored is None else self.stored.record

    @property
    def members(self) -> tuple[str, ...]:
        """All that a flow names, those that are only spoken of last."""
        named = [member for members in self.flows.values() for member in members]
        spoken = () if self.narrow else (*self.said.members, *self.said.out)
        return tuple(dict.fromkeys([*named, *spoken]))

    @property
    def refused(self) -> str:
        """Why what is said of it does not hold; empty where it does."""
        if self.damaged:
            return f"{self.damaged}; workers go on with what was said before"
        whole = [flow for flow in self.flows if not left_of(self, flow, self.said.out)]
        return f"all members that {' and '.join(whole)} may use are out: there none is" if whole else ""


def left_of(group: GroupSeen, flow: str, out: Mapping[str, str]) -> list[str]:
    """The members that get Batches of a flow while those are out."""
    return [member for member in group.flows[flow] if member not in out]


def read_groups(registry: Registry, visible: Callable[[str], bool] | None = None) -> dict[str, GroupSeen]:
    """Name → group: of all flows, and those that are only spoken of; or of the flows that are visible. Works with no master alive."""
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
    """Raises Refused where no flow names it, and nobody speaks of it."""
    groups = read_groups(registry, visible)
    if name not in groups:
        have = did_you_mean(name, groups) or (f"there are {', '.join(groups)}" if groups else "no flow that was submitted has groups")
        raise Refused(f'there is no group "{name}"', remedy=have, code="group-unknown")
    return groups[name]


def group_as_json(group: GroupSeen, told: Callable[[str], Mapping[str, Any] | None]) -> dict[str, Any]:
    """`told`: flow → what its workers have said of its parts last (`Watch.told`): how each of its sinks finds each member."""
    seen: dict[str, list[dict[str, Any]]] = {}
    for flow in group.flows:
        for member, row in _seen_by(flow, group.group, told(flow)):
            seen.setdefault(member, []).append(row)
    said = group.said
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
    """(member, who sees it how) of each sink of the flow that goes to the group, and whose worker speaks."""
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
    """Take a member out of turn, or let it back (`out`), and say what it costs (`cost`; 0: as flow files say). What is None stays.

    Raises Refused where there is no such group or member, it is the last one that takes Batches of a flow, or the cost is none.
    """
    if cost is not None and not (isfinite(cost) and cost >= 0):
        raise Refused(f"{cost:g} is no cost", remedy="say a number above 0; 0: as the flow files say", code="group-cost")

    def attempt() -> None:
        group = find_group(registry, name)
        if member not in group.members:
            near = did_you_mean(member, group.members) or f"its members are {', '.join(group.members)}"
            raise Refused(f'group {name} has no member "{member}"', remedy=near, code="member-unknown")
        if group.damaged:
            raise Refused(f"groups/{name} {group.damaged}", remedy="mend it, or delete it, in the registry", code="registry-damaged")
        said = group.said
        if out is not None:
            others = {each: reason for each, reason in said.out.items() if each != member}
            said = replace(said, out={**others, member: (why or f"taken out by {by or 'somebody'}")[:_MOST_WHY]} if out else others)
        if out:
            for flow in group.flows:
                if member in group.flows[flow] and not left_of(group, flow, said.out):
                    raise Refused(
                        f"{member} is the last member of group {name} that takes Batches of flow {flow}",
                        remedy=f"let another one back first: scribengin groups set {name} MEMBER --back; or pause the flow",
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
