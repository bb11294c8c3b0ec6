"""The actions of a master. Each may be performed twice, by two masters, with the effect of one: writes name the Term, starts the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

if TYPE_CHECKING:
    from scribengin.control.world import RunId
    from scribengin.registry.kinds import Desired, GroupName, Hosted, Operation, Run, Share, StatusRecord, TierWish, WorkflowOperationRecord
    from scribengin.registry.outside import HeldBackSinks
    from scribengin.registry.records import Spot


@dataclass(frozen=True, slots=True)
class SetWorkerGoal:
    """Write the desired state of a tier's worker."""

    flow: str
    tier: str
    wish: TierWish


@dataclass(frozen=True, slots=True)
class Start:
    """Write the run, then have the launcher of its node start it. It also repairs a start in which a master died between the two."""

    flow: str
    tier: str
    run: Run
    spare: bool = False
    """it is a standby, which waits until it is needed"""


@dataclass(frozen=True, slots=True)
class Note:
    """Write what is known of a run now."""

    flow: str
    tier: str
    run: Run
    spare: bool = False


@dataclass(frozen=True, slots=True)
class FreeLease:
    """Remove the lease of a run whose process is known to have ended, without waiting for its session to expire."""

    run: RunId


@dataclass(frozen=True, slots=True)
class Kill:
    """Order the launcher to kill a worker at once. What it had decided stays; nothing else of it is visible."""

    run: RunId
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Order the launcher to remove its record of a worker whose end is recorded."""

    run: RunId
    node: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Write the status of a flow."""

    flow: str
    status: StatusRecord


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move a damaged record aside, with its bytes: it is created again from what is observed."""

    flow: str
    spot: Spot[Any]


@dataclass(frozen=True, slots=True)
class OperationStep:
    """Write the step of an operation."""

    flow: str
    id: str
    operation: Operation


@dataclass(frozen=True, slots=True)
class Ask:
    """Write the desired state of a flow: an operation over its workflow has reached it, or the operation with which a version was to start
    has failed, and the version before becomes the desired one again."""

    flow: str
    operation: str
    wanted: Desired


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Write which sinks of a flow are throttled."""

    flow: str
    held_back: HeldBackSinks


@dataclass(frozen=True, slots=True)
class Advance:
    """Write the step of an operation over a workflow."""

    id: str
    operation: WorkflowOperationRecord


@dataclass(frozen=True, slots=True)
class Allot:
    """Write a flow's share of the rows per second of its quotas."""

    flow: str
    share: Share


@dataclass(frozen=True, slots=True)
class NameGroup:
    """Write on which group a tier runs."""

    flow: str
    tier: str
    name: GroupName


@dataclass(frozen=True, slots=True)
class Show:
    """Write in a node's records that a worker runs there."""

    flow: str
    node: str
    worker: str
    hosted: Hosted


@dataclass(frozen=True, slots=True)
class Hide:
    """Remove from a node's records that a worker runs there."""

    flow: str
    node: str
    worker: str


Writing = SetWorkerGoal | Note | Tell | OperationStep | Ask | Advance | Allot | HoldBack | NameGroup | Show | Hide
"""actions that need nothing but their record"""
Action = Writing | Start | FreeLease | Kill | Forget | SetAside


def flow_of(action: Action) -> str:
    """The flow that it concerns; empty if it concerns several."""
    if isinstance(action, Advance):
        return ""
    return action.run.flow if isinstance(action, FreeLease | Kill | Forget) else action.flow


def said_of(action: Action) -> str:
    """The action in a few words, for people."""
    match action:
        case SetWorkerGoal(_, tier, wish):
            return f"tier {tier}: desired state {wish.goal}, version {wish.version}"
        case Start(_, tier, run, spare):
            return f"{'standby' if spare else 'worker'} {run.number} of tier {tier} is started on {run.node}"
        case Note(_, tier, run, spare):
            ended = f" has ended: {run.cause}" if run.ended_at is not None else " is noted"
            return f"{'standby' if spare else 'worker'} {run.number} of tier {tier}{ended}"
        case FreeLease(run):
            return f"the lease of {run}, which has ended, is removed"
        case Kill(run, node, why):
            return f"{run} on {node} is killed: {why}"
        case Forget(run, node):
            return f"the record of {run} on {node} is removed"
        case Tell(_, status):
            return f"it is {status.state}" + (f": {status.reason}" if status.reason else "")
        case SetAside(_, spot):
            return f"{spot.path} is set aside"
        case OperationStep(_, id_, operation):
            return f"operation {id_} ({operation.kind}) reaches step {operation.step}"
        case Ask(_, id_, wanted):
            return f"desired state {wanted.state}, version {wanted.version}, set by operation {id_}"
        case Advance(id_, reached):
            return f"operation {id_} over a workflow reaches step {reached.step}"
        case Allot(_, share):
            return (
                f"it may read {share.rows_per_s:g} rows/s of quota {share.quota}"
                if share.rows_per_s is not None
                else "no quota limits its reads"
            )
        case HoldBack(_, held_back):
            return f"{', '.join(sorted(held_back.sinks)) or 'none of its sinks'} throttled by downstream flows"
        case NameGroup(_, tier, name):
            return f"tier {tier} runs on group {name.group}"
        case Show(_, node, worker):
            return f"{worker} is shown at {node}"
        case Hide(_, node, worker):
            return f"{worker} is no longer shown at {node}"
        case _:
            assert_never(action)
