"""Rules on groups: tiers, edges and sinks name existing groups, whose members suit their use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.addresses import has_password
from scribengin.core.problems import did_you_mean, suggestion
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.registry.tree import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.options import Option
    from scribengin.core.problems import Problem
    from scribengin.spec.model import Sink
    from scribengin.spec.places import Path


def groups_are_there(subject: Subject) -> Iterator[Problem]:
    """Every group that a tier, an edge or a sink names is in `groups`."""
    if "groups" in subject.unread:
        return
    flow = subject.flow
    targets: list[tuple[str, Path, str]] = [
        *((f'tier "{tier.id}"', ("tiers", tier.id, "group"), tier.group) for tier in flow.tiers.values() if tier.group),
        *((f'edge "{name}"', ("edges", name, "to"), edge.to) for name, edge in flow.edges.items() if edge.to),
        *((called(sink), path_of(sink, "to"), sink.to) for sink in flow.sinks.values() if sink.to),
    ]
    for whose, path, target in targets:
        name, _, member = target.partition(".")
        group = flow.groups.get(name)
        if group is None:
            known = f"groups are {', '.join(flow.groups)}" if flow.groups else f"add groups: {{{name}: {{members: [{{at: …}}]}}}}"
            remedy = did_you_mean(name, flow.groups) or known
            yield subject.problem("group-unknown", path, f'{whose} names the group "{name}", which does not exist', remedy)
        elif member and member not in (names := [one.name for one in group.members]):
            remedy = suggestion(member, names, "its members are")
            yield subject.problem("member-unknown", path, f'{whose} names "{target}", but the group does not have that member', remedy)


def tiers_run_on_hosts(subject: Subject) -> Iterator[Problem]:
    """The members of a group on which a tier runs can be nodes."""
    if "groups" in subject.unread:
        return
    tier_of = {tier.group: tier.id for tier in subject.flow.tiers.values() if tier.group}
    for name, group in subject.flow.groups.items():
        tier = tier_of.get(name)
        for index, member in enumerate(group.members if tier is not None else ()):
            if not HOST.fits(member.at):
                message = f'tier "{tier}" runs on group "{name}", but "{member.at}" is not a valid name of a host'
                remedy = "write the name of a node or of its machine; put data locations in a separate group"
                yield subject.problem("group-host", ("groups", name, "members", index, "at"), message, remedy)


def sinks_can_be_members(subject: Subject) -> Iterator[Problem]:
    """A sink that goes to a group can keep its delivery guarantee there, and each member has a valid location."""
    if "groups" in subject.unread:
        return
    for sink in subject.flow.sinks.values():
        declared = subject.sink_types.get(sink.type)
        group = subject.flow.groups.get((sink.to or "").partition(".")[0])
        if declared is None or sink.to is None or group is None:
            continue
        if (kept := declared.kept_alone(sink.options)) is not None:
            yield _kept_alone(subject, sink, *kept)
            continue
        option = declared.by_member
        assert option is not None, "a sink that may go to a group has an option for its location"
        if option.kind != "path" and option.name in sink.options:
            message = f"{called(sink)} has `{option.name}`, which has no effect: it goes to {sink.to}, and `at` of each member sets it"
            remedy = f"take `{option.name}` out, or take `to` out"
            yield subject.problem_at_key("group-option", path_of(sink, option.name), message, remedy, severity="warning")
        elif "://" in str(sink.options.get(option.name, "")):
            message = (
                f"{called(sink)} has `{option.name}` with an address, but goes to {sink.to}: the option must be relative to "
                "`at` of each member"
            )
            remedy = f"write {option.name} relative to `at`, such as {option.name}: orders"
            yield subject.problem("group-place", path_of(sink, option.name), message, remedy)
        for index, member in enumerate(group.members):
            if sink.to not in (group.id, f"{group.id}.{member.name}"):
                continue
            whose = f'member "{member.name}" of group "{group.id}", whose `at` is the {option.name} of {called(sink)},'
            where = ("groups", group.id, "members", index, "at")
            fault = option.member_fault(member.at)
            if fault is not None:
                yield subject.problem("group-place", where, f"{whose} {fault[0]}", fault[1])
            elif has_password(member.at) and declared.option("config") is not None:
                remedy = f'take it out and write for {called(sink)} config: {{password: "${{secret:env/NAME}}"}}: a secret is never shown'
                yield subject.problem("secret-in-plain", where, f"{whose} contains a password", remedy)


def _kept_alone(subject: Subject, sink: Sink, option: Option | None, why: str) -> Problem:
    """The problem of a sink that cannot go to a group because of its type or an option."""
    if option is None:
        able = [type_.type for type_ in subject.sink_types.values() if type_.by_member is not None and not type_.internal]
        message = f"{called(sink)} goes to {sink.to}, but a sink of type {sink.type} cannot go to a group: {why}"
        remedy = f"take `to` out and set the location in the sink's own options; types that can go to a group: {', '.join(able)}"
        return subject.problem_at_key("group-sink", path_of(sink, "to"), message, remedy)
    said = f"{option.name}: {sink.options.get(option.name, option.default)}" if option.kind == "choice" else f"`{option.name}`"
    others = [f"{option.name}: {choice}" for choice in option.choices if not option.keeps_alone(choice)]
    message = f"{called(sink)} goes to {sink.to}, but with {said} it cannot go to a group: {why}"
    remedy = (
        f"{f'write {others[0]}' if others else f'take `{option.name}` out'}, or take `to` out and set the location in the "
        "sink's own options"
    )
    where = path_of(sink, option.name if option.name in sink.options else "to")
    return subject.problem_at_key("group-sink", where, message, remedy)
