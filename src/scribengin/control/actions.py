"""What a master can do. Each may be performed twice, by two masters, with the effect of once: writes name the Term, starts the run."""

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
    """Write what is wanted of a tier's worker."""

    flow: str
    tier: str
    wish: TierWish


@dataclass(frozen=True, slots=True)
class Start:
    """Write the run, then have the launcher of its node start it. Also the remedy where a master died between the two."""

    flow: str
    tier: str
    run: Run
    spare: bool = False
    """it is to wait until it is needed"""


@dataclass(frozen=True, slots=True)
class Note:
    """Write what is known of a run now."""

    flow: str
    tier: str
    run: Run
    spare: bool = False


@dataclass(frozen=True, slots=True)
class FreeLease:
    """Take away the lease of a run whose process is known to have ended: its session need not run out first."""

    run: RunId


@dataclass(frozen=True, slots=True)
class Kill:
    """Have the launcher end a worker at once. What it had decided stands; nothing else of it is visible."""

    run: RunId
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Have the launcher forget a worker whose end is noted."""

    run: RunId
    node: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Write how a flow stands."""

    flow: str
    status: StatusRecord


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move a damaged record out of the way, with its bytes: it is made anew from what is seen."""

    flow: str
    spot: Spot[Any]


@dataclass(frozen=True, slots=True)
class OperationStep:
    """Write how far an operation is."""

    flow: str
    id: str
    operation: Operation


@dataclass(frozen=True, slots=True)
class Ask:
    """Write what is wanted of a flow: its turn in an operation over its workflow has come, or the operation with which a version was to
    begin has failed, and the one before is wanted again."""

    flow: str
    operation: str
    wanted: Desired


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Write which sinks of a flow are held back."""

    flow: str
    held_back: HeldBackSinks


@dataclass(frozen=True, slots=True)
class Advance:
    """Write how far an operation over a workflow is."""

    id: str
    operation: WorkflowOperationRecord


@dataclass(frozen=True, slots=True)
class Allot:
    """Write a flow's part of the rows a second of its quotas."""

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
    """Write at a node that a worker runs there."""

    flow: str
    node: str
    worker: str
    hosted: Hosted


@dataclass(frozen=True, slots=True)
class Hide:
    """Take away what says that a worker runs at a node."""

    flow: str
    node: str
    worker: str


Writing = SetWorkerGoal | Note | Tell | OperationStep | Ask | Advance | Allot | HoldBack | NameGroup | Show | Hide
"""what a record is all there is to do for"""
Action = Writing | Start | FreeLease | Kill | Forget | SetAside


def flow_of(action: Action) -> str:
    """Which flow it is about; empty where it is about several."""
    if isinstance(action, Advance):
        return ""
    return action.run.flow if isinstance(action, FreeLease | Kill | Forget) else action.flow


def said_of(action: Action) -> str:
    """The action in a few words, for people."""
    match action:
        case SetWorkerGoal(_, tier, wish):
            return f"tier {tier} is wanted {wish.goal}, version {wish.version}"
        case Start(_, tier, run, spare):
            return f"{'standby' if spare else 'worker'} {run.number} of tier {tier} is started on {run.node}"
        case Note(_, tier, run, spare):
            ended = f" has ended: {run.cause}" if run.ended_at is not None else " is noted"
            return f"{'standby' if spare else 'worker'} {run.number} of tier {tier}{ended}"
        case FreeLease(run):
            return f"the lease of {run}, which has ended, is taken away"
        case Kill(run, node, why):
            return f"{run} on {node} is killed: {why}"
        case Forget(run, node):
            return f"{run} on {node} is forgotten"
        case Tell(_, status):
            return f"it is {status.state}" + (f": {status.reason}" if status.reason else "")
        case SetAside(_, spot):
            return f"{spot.path} is set aside"
        case OperationStep(_, id_, operation):
            return f"operation {id_} ({operation.kind}) comes to {operation.step}"
        case Ask(_, id_, wanted):
            return f"it is wanted {wanted.state}, version {wanted.version}, by operation {id_}"
        case Advance(id_, reached):
            return f"operation {id_} over a workflow comes to {reached.step}"
        case Allot(_, share):
            return (
                f"it may read {share.rows_per_s:g} rows/s of quota {share.quota}"
                if share.rows_per_s is not None
                else "it reads under no quota"
            )
        case HoldBack(_, held_back):
            return f"{', '.join(sorted(held_back.sinks)) or 'none of its sinks'} held back by flows that read there"
        case NameGroup(_, tier, name):
            return f"tier {tier} runs on group {name.group}"
        case Show(_, node, worker):
            return f"{worker} is shown at {node}"
        case Hide(_, node, worker):
            return f"{worker} is shown at {node} no more"
        case _:
            assert_never(action)
