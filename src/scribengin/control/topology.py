"""Several flows submitted as one: compared with the running versions, identified by a hash, and all of them written or none."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scribengin.client.change_models import FlowChanges, TopologyPlan
from scribengin.control import flow_records, flow_requests
from scribengin.control.changes import Compared, compare, rows_again
from scribengin.control.submission import Submission, bare_tiers
from scribengin.core.errors import InputError, Refused
from scribengin.core.problems import Place, Problem
from scribengin.core.records import canonical
from scribengin.core.remote import RemotePath
from scribengin.local.prepare import prepare
from scribengin.plan.flow_links import circle, meetings, way_text
from scribengin.state.places import located

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scribengin.control.submission import Applied
    from scribengin.control.workflows import Workflows
    from scribengin.local.prepare import PreparedFlow
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Goal, Spec

HASH_LENGTH = 16
Accept = Literal["again", "lost"]
"""the agreement for queries that need a new checkpoint: `again` reads from the start of their sources, `lost` continues from their
positions"""


@dataclass(frozen=True, slots=True)
class PlannedTopology:
    """The changes that submitting would make. `hash` covers the present desired versions and the new ones, not progress: it changes only if
    a flow is changed, or a query that could continue no longer can."""

    flows: tuple[Compared, ...]
    hash: str

    @property
    def needs_word(self) -> bool:
        """True if rows would be read again or lost, so that an operator must agree."""
        return any(each.effect == "new checkpoint" for each in self.flows)

    def shown(self) -> TopologyPlan:
        """The plan without internal data, for the answer of the API."""
        return TopologyPlan(tuple(FlowChanges(each.flow, each.version, each.changes, each.anew) for each in self.flows), self.hash)


def plan_topology(
    registry: Registry, submissions: Sequence[Submission], *, packages: PackageStore, state: Callable[[str], str]
) -> PlannedTopology:
    """Compare submissions with the present desired state. Changes nothing.

    Args:
        registry: where the flows are.
        submissions: the flows.
        packages: the packages of this host.
        state: flow → the folder of its state, for a flow that has none yet.

    Raises:
        InputError: every problem of every flow.
        Refused: `tier-two-flows` if two of them claim the same tiers.
    """
    claimed_once(submissions)
    wishes = {submission.flow: flow_records.wanted(registry, submission.flow) for submission in submissions}
    folders = {flow: located(spec.state if spec is not None else state(flow)) for flow, (_, spec) in wishes.items()}
    prepared = _prepared(submissions, packages, folders)
    compared = []
    for submission, flow in zip(submissions, prepared, strict=True):
        wanted, spec = wishes[submission.flow]
        version = 0 if wanted is None or spec is None else wanted.version
        runs = wanted is not None and wanted.state == "running"
        compared.append(compare(submission, flow, version, spec, runs=runs, packages=packages))
    specs = [wishes[submission.flow][1] for submission in submissions]
    return PlannedTopology(tuple(compared), _hash(submissions, compared, specs))


def plan_rollback(registry: Registry, flow: str, version: int, *, packages: PackageStore, only: bool = False) -> PlannedTopology:
    """The changes that `flow_requests.rollback` would make. Changes nothing. Raises as it, and as `plan_topology`."""
    submissions = []
    for name, number in flow_requests.rollback_versions(registry, flow, version, only=only).items():
        spec = flow_records.version_of(registry, name, number)
        about = (spec.watched, spec.labels, spec.outside, spec.groups, spec.agents)
        submissions.append(Submission(name, spec.package, spec.path, spec.base, bare_tiers(spec), *about))
    return plan_topology(registry, submissions, packages=packages, state=lambda _: "")


def claimed_once(submissions: Sequence[Submission]) -> None:
    """Raise Refused if two submissions claim the same tiers."""
    claimed: dict[str, Submission] = {}
    for submission in submissions:
        if (other := claimed.setdefault(submission.flow, submission)) is not submission:
            raise Refused(
                f'tiers {", ".join(sorted(submission.tiers))} of flow "{submission.flow}" are claimed twice: by {_where(other)} and by '
                f"{_where(submission)}",
                remedy="give one of the flows another name",
                code="tier-two-flows",
            )


def _prepared(submissions: Sequence[Submission], packages: PackageStore, state: Mapping[str, Path]) -> list[PreparedFlow]:
    """Check and plan the flows. Raises InputError with every problem of every flow, and if they feed each other in a cycle."""
    flows, problems = [], list[Problem]()
    for submission in submissions:
        path = packages.get(submission.package) / submission.path
        try:
            flow = prepare(path, state=state[submission.flow], base=Path(submission.base))
        except InputError as error:
            problems += error.problems
            continue
        problems += _on_one_host(flow)
        flows.append(flow)
    declared = [flow.plan.flow for flow in flows]
    if way := circle([flow.name for flow in declared], meetings(declared)):
        message = f"flows feed each other in a cycle: {way_text(way)}"
        where = next(_where(submission) for submission in submissions if submission.flow == way[-1].reading)
        problems.append(Problem("flows-circle", Place(where), message, "make one of them write elsewhere"))
    if problems:
        raise InputError(problems)
    return flows


def _on_one_host(flow: PreparedFlow) -> Iterator[Problem]:
    """The problems of channels that would be on a disk of one host, while the state is reachable from all hosts."""
    for channel in flow.plan.channels if isinstance(flow.root, RemotePath) else ():
        if channel.channel.type == "folder" and not channel.channel.path and channel.edge.to is None:
            edge = " and ".join(f'"{name}"' for name in channel.names)
            yield Problem(
                "channel-one-host",
                flow.tiers[0].place_of(channel.id),
                f"{edge} uses a folder of one host, and the state is in {flow.root}: a worker on another host cannot reach it",
                "give the edge `channel: {type: kafka, topic: NAME}`, or a folder that all hosts see under one path: "
                "`channel: {type: folder, path: DIR}`",
            )


def _where(submission: Submission) -> str:
    return f"{submission.base}/{submission.path}"


def apply_topology(
    registry: Registry,
    submissions: Sequence[Submission],
    *,
    packages: PackageStore,
    state: Callable[[str], str],
    by: str,
    expected: str = "",
    accept: Accept | None = None,
) -> tuple[PlannedTopology, tuple[Applied, ...]]:
    """Submit all flows, or none.

    Args:
        registry: where the flows are.
        submissions: the flows.
        packages: the packages of this host.
        state: flow → the folder of its state, for a flow that has none yet.
        by: the user, for the records.
        expected: the hash of the plan that was reviewed, or its first characters (at least 12). It agrees to everything in that plan,
            including
            rows that are read again. Empty: no plan was reviewed.
        accept: the agreement for queries that need a new checkpoint.

    Raises:
        Refused: `plan-stale`, `plan-refused` or `plan-unsaid` as `check_agreed`; and as `flow_requests.apply_all`.
        InputError: as `plan_topology`.
    """
    plan = plan_topology(registry, submissions, packages=packages, state=state)
    check_agreed(plan, expected=expected, accept=accept)
    return plan, write_topology(registry, submissions, plan, state=state, by=by, accept=accept)


def check_agreed(plan: PlannedTopology, *, expected: str = "", accept: Accept | None = None) -> None:
    """Check that a plan may be carried out.

    Args:
        plan: the present plan.
        expected: the hash of the plan that was reviewed, or its first characters (at least 12).
        accept: the agreement for queries that need a new checkpoint.

    Raises:
        Refused: the plan is not the reviewed one (`plan-stale`), is impossible now (`plan-refused`), or rows would be read again or lost
            without
            an agreement (`plan-unsaid`).
    """
    if expected and (len(expected) < 12 or not plan.hash.startswith(expected)):
        raise Refused(
            f"the plan {expected} is stale: for the current desired state it is {plan.hash}",
            remedy="to see what would change now, run: scribengin apply FILE --dry-run",
            code="plan-stale",
        )
    for each in plan.flows:
        for change in each.changes:
            if change.effect == "refused":
                raise Refused(f"flow {each.flow}, {change.what}: {change.says}", remedy=change.remedy, code="plan-refused")
    if plan.needs_word and accept is None and not expected:
        told = [f"flow {each.flow}, query {anew.query}: {rows_again(anew)}" for each in plan.flows for anew in each.anew]
        raise Refused(
            f"{'; '.join(told)}",
            remedy=f"to agree, pass --accept again or --plan {plan.hash}; to continue from here without their state, pass --accept lost",
            code="plan-unsaid",
        )


def write_topology(
    registry: Registry,
    submissions: Sequence[Submission],
    plan: PlannedTopology,
    *,
    state: Callable[[str], str],
    by: str,
    accept: Accept | None = None,
    workflows: Workflows | None = None,
    columns: bool = False,
    goal: Goal = "running",
) -> tuple[Applied, ...]:
    """Write what was planned and agreed to: all of it, or nothing. `columns`, `goal` and the errors are those of
    `flow_requests.apply_all`."""
    renew = {each.flow: [(anew.tier, anew.query) for anew in each.anew] for each in plan.flows if each.anew}
    versions = {each.flow: each.version for each in plan.flows}
    effects = {each.flow: each.effect for each in plan.flows}
    recut = {each.flow: each.recut for each in plan.flows if each.recut is not None}
    return flow_requests.apply_all(
        registry,
        submissions,
        versions,
        state=state,
        by=by,
        renew=renew,
        how=accept or "again",
        effects=effects,
        recut=recut,
        workflows=workflows,
        columns=columns,
        goal=goal,
    )


def _hash(submissions: Sequence[Submission], compared: Sequence[Compared], before: Sequence[Spec | None]) -> str:
    flows: list[Mapping[str, Any]] = [
        {
            "flow": submission.flow,
            "runs": {"version": each.version, "package": "" if spec is None else spec.package},
            "comes": {
                "package": submission.package,
                "path": submission.path,
                "base": submission.base,
                "tiers": {tier: wanted.dump() for tier, wanted in submission.tiers.items()},
            },
            "effects": sorted([change.what, change.effect] for change in each.changes if change.effect in ("new checkpoint", "refused")),
        }
        for submission, each, spec in sorted(zip(submissions, compared, before, strict=True), key=lambda row: row[0].flow)
    ]
    return hashlib.sha256(canonical(flows)).hexdigest()[:HASH_LENGTH]
