"""What people ask of the control plane, as writes to the registry: submit a flow, say what is wanted of it, read how it stands."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from scribengin.control.paths import FLOWS, FlowPaths
from scribengin.control.records import Spec, TierSpec, Unreadable, as_record, put, read_as
from scribengin.control.world import FlowStatus, Wish
from scribengin.core.errors import Refused, StateError
from scribengin.core.problems import did_you_mean
from scribengin.registry.contract import Conflict, Create, Require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.control.world import Goal
    from scribengin.plan.split import FlowPlan
    from scribengin.registry.contract import Registry

T = TypeVar("T")
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Submission:
    """A flow as it was packed and planned: what a version of it will be."""

    flow: str
    package: str
    """the sha256 of a package that masters and workers can have"""
    path: str
    base: str
    tiers: Mapping[str, TierSpec]


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of a submission. `changed` is false where the newest version is just this, and wanted to run."""

    flow: str
    version: int
    changed: bool


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow in a list: what is wanted, and how it stands; None where no master has looked at it yet."""

    flow: str
    wish: Wish
    status: FlowStatus | None


def tiers_of(plan: FlowPlan) -> dict[str, TierSpec]:
    """What masters must know of the tiers of a planned flow."""
    tiers = {}
    for tier in plan.tiers:
        declared = plan.flow.tiers.get(tier.tier)
        feeders = sorted({channel.feeding for channel in plan.channels if channel.reading == tier.tier})
        cores = 1 if declared is None else declared.resources.cores or 1
        memory = 0 if declared is None else declared.resources.memory or 0
        tiers[tier.tier] = TierSpec(tuple(feeders), cores, memory)
    return tiers


def apply(registry: Registry, submission: Submission, *, state: Callable[[str], str], by: str) -> Applied:
    """Make it the flow's next version, and want it to run; the same again changes nothing. `state`: flow → folder of its state.

    Both records are written, or none. Raises StateError where the flow's records are damaged, Unreachable.
    """
    paths = FlowPaths(submission.flow)

    def attempt() -> Applied:
        wish = _known(registry, paths.desired, Wish)
        versions = [int(name) for name in registry.children(paths.specs) if name.isdigit()]
        newest = max(versions, default=0)
        before = _known(registry, paths.spec(newest), Spec) if newest else None
        if before is not None and wish is not None and (wish.version, wish.goal) == (newest, "running") and _same(before, submission):
            return Applied(submission.flow, newest, changed=False)
        spec = Spec(
            submission.package,
            submission.path,
            submission.base,
            before.state if before is not None else state(submission.flow),
            dict(submission.tiers),
            time.time(),
            by,
        )
        version = newest + 1
        wanted = Wish(version, "running", 1 if wish is None else wish.generation + 1)
        registry.commit(Create(paths.spec(version), as_record(spec, None)), put(registry, paths.desired, wanted))
        return Applied(submission.flow, version, changed=True)

    return _again(attempt)


def want(registry: Registry, flow: str, goal: Goal) -> Wish:
    """Say what is wanted of a flow now; asked again it is tried again, where a failure waits for a person. Raises Refused: no such flow."""
    paths = FlowPaths(flow)

    def attempt() -> Wish:
        wish = _known(registry, paths.desired, Wish)
        if wish is None:
            raise unknown_flow(flow, registry.children(FLOWS))
        wanted = Wish(wish.version, goal, wish.generation + 1)
        registry.commit(put(registry, paths.desired, wanted), Require(paths.spec(wish.version)))
        return wanted

    return _again(attempt)


def read_flow(registry: Registry, flow: str) -> FlowRow:
    """Raises Refused where there is no such flow, StateError where its records are damaged."""
    paths = FlowPaths(flow)
    wish = _known(registry, paths.desired, Wish)
    if wish is None:
        raise unknown_flow(flow, registry.children(FLOWS))
    return FlowRow(flow, wish, _known(registry, paths.status, FlowStatus))


def read_flows(registry: Registry) -> tuple[FlowRow, ...]:
    """All flows, by name; damaged ones are left out (a master reports them)."""
    rows = []
    for name in registry.children(FLOWS):
        wish, status = read_as(registry.read(FlowPaths(name).desired), Wish), read_as(registry.read(FlowPaths(name).status), FlowStatus)
        if isinstance(wish, Wish):
            rows.append(FlowRow(name, wish, status if isinstance(status, FlowStatus) else None))
    return tuple(rows)


def unknown_flow(flow: str, names: Sequence[str]) -> Refused:
    """The error for a name that nobody has submitted."""
    near = did_you_mean(flow, names) or "submit it: scribengin apply FILE"
    return Refused(f'there is no flow "{flow}"', remedy=near, code="flow-unknown")


def _same(spec: Spec, submission: Submission) -> bool:
    return (spec.package, spec.path, spec.base, spec.tiers) == (
        submission.package,
        submission.path,
        submission.base,
        dict(submission.tiers),
    )


def _known(registry: Registry, path: str, kind: type[T]) -> T | None:
    value = read_as(registry.read(path), kind)
    if isinstance(value, Unreadable):
        raise StateError(
            str(value), remedy="mend it with ZooKeeper's shell, or delete it and apply the flow again", code="registry-damaged"
        )
    return value


def _again(attempt: Callable[[], T]) -> T:
    """Somebody else may write at the same time: look again, and decide again."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()
