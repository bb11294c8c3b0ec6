"""Rules on settings without effect: stream options of static sources, Kafka options of folders, state options without state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.checks.subject import Subject, called, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem

_LEVELS = ("high_water", "low_water", "capacity")


def tables_are_read_whole(subject: Subject) -> Iterator[Problem]:
    """A static source has no Batches of its own, so options for the size and time of Batches have no effect."""
    for source in subject.flow.sources.values():
        declared = subject.source_types.get(source.type)
        if not source.static or declared is None:
            continue
        said = [option.name for option in declared.options if option.of_streams and option.name in source.options]
        for name in [*said, *(level for level in _LEVELS if getattr(source, level) is not None)]:
            message = f"{called(source)} is static, so `{name}` has no effect: a static source is read completely for each Batch"
            remedy = f"take `{name}` out, or take `static: true` out"
            yield subject.problem_at_key("no-effect", path_of(source, name), message, remedy, severity="warning")


def channels_support_their_properties(subject: Subject) -> Iterator[Problem]:
    """Only Kafka channels have partitions, and the members of a group set the brokers."""
    for planned in subject.channels:
        for name in planned.names:
            own = subject.flow.edges[name].channel if name in subject.flow.edges else None
            if own is None:
                continue
            if planned.channel.type == "folder" and own.partitions is not None:
                message = f'edge "{name}" has `channel.partitions`, which has no effect: its channel is a folder'
                remedy = "take `partitions` out, or write type: kafka"
                yield subject.problem_at_key("no-effect", ("edges", name, "channel", "partitions"), message, remedy, severity="warning")
            if planned.channel.type == "kafka" and own.bootstrap is not None and planned.edge.to is not None:
                message = (
                    f'edge "{name}" has `channel.bootstrap`, which has no effect: the edge goes to {planned.edge.to}, whose '
                    "members set it with `at`"
                )
                remedy = "take `bootstrap` out, or take `to` out"
                yield subject.problem_at_key("no-effect", ("edges", name, "channel", "bootstrap"), message, remedy, severity="warning")


def only_stateful_tiers_acknowledge_state(subject: Subject) -> Iterator[Problem]:
    """`acknowledge: state` is only for tiers with a step that keeps state."""
    if subject.shaken or "tiers" in subject.unread:
        return
    for tier in subject.flow.tiers.values():
        own = {id_ for id_, name in subject.assignment.tier_of.items() if name == tier.id}
        if tier.acknowledge == "state" and own.isdisjoint(subject.resolved.stateful):
            message = f'tier "{tier.id}" has `acknowledge: state`, which has no effect: none of its steps keeps state'
            yield subject.problem("no-effect", ("tiers", tier.id, "acknowledge"), message, "take `acknowledge` out", severity="warning")
