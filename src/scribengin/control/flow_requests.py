"""Requests of people to the control plane, as writes to the registry: submit a flow, set its desired state, delete it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scribengin.control.flow_records import not_stopped, read_flow, versions_of
from scribengin.control.operation_records import new_operation, refuse_while_under_way
from scribengin.control.record_validation import again, nodes_without_executors, read_known, read_stored
from scribengin.control.submission import Applied, Submission, next_tiers, same_as
from scribengin.control.workflows import Workflows, refuse_circle
from scribengin.core.errors import Refused
from scribengin.core.time_text import now_text
from scribengin.registry.contract import Delete, RegistryEntry, Require
from scribengin.registry.record_io import DAMAGED
from scribengin.registry.records import Desired, Operation, Spec
from scribengin.registry.tree import DESIRED, LEASE, LEASE_TERM, LIMIT, RUN, SPEC, TREE, WORKERS, branch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.control.changes import Recut
    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.record_io import Stored
    from scribengin.registry.records import Goal


# Which records are removed when a flow is deleted, and which stay: numbers that must never be used twice, and unknown records.


_STAY = (RUN, LEASE, LEASE_TERM)
"""the numbers of its runs, the Terms of its leases"""


def records_of(registry: Registry, flow: str) -> list[str]:
    """The paths of all that is removed with a flow except its desired state, deepest first."""
    nodes = [f"logicalnodes/{name}" for name in registry.children("logicalnodes") if name.partition(".")[0] == flow]
    roots = [f"flows/{flow}", *nodes, f"acks/{flow}", LIMIT(flow).path, WORKERS(flow).path]
    children: dict[str, list[str]] = {}
    level = [path for path, found in zip(roots, registry.read_many(roots), strict=True) if found is not None]
    order: list[str] = []
    while level:
        order += level
        found = registry.children_many(level)
        children.update({path: [f"{path}/{name}" for name in names] for path, names in zip(level, found, strict=True)})
        level = [path for path in level for path in children[path]]
    gone: dict[str, bool] = {}
    for path in reversed(order):
        gone[path] = all(gone[below] for below in children[path]) and _goes(path)
    wanted = DESIRED(flow).path
    return [path for path, goes in gone.items() if goes and path not in (wanted, f"flows/{flow}")]


def _goes(path: str) -> bool:
    branch = branch_of(path)
    return f"/{DAMAGED}" in path or (branch not in _STAY if branch is not None else _is_folder(path))


def _is_folder(path: str) -> bool:
    """True if the tree of the registry has records below this path."""
    above = {branch.path.rpartition("/")[0] for branch in TREE}
    above |= {path.rpartition("/")[0] for path in above}
    return any(dataclasses.replace(TREE[0], path=each).matches(path) for each in above)


def apply(registry: Registry, submission: Submission, *, state: Callable[[str], str], by: str) -> Applied:
    """Submit one flow, whatever its present desired state; see `apply_all`."""
    return apply_all(registry, [submission], None, state=state, by=by)[0]


def apply_all(
    registry: Registry,
    submissions: Sequence[Submission],
    versions: Mapping[str, int] | None,
    *,
    state: Callable[[str], str],
    by: str,
    renew: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    how: str = "again",
    effects: Mapping[str, str | None] | None = None,
    recut: Mapping[str, Recut] | None = None,
    workflows: Workflows | None = None,
    columns: bool = False,
    goal: Goal = "running",
) -> tuple[Applied, ...]:
    """Make each submission the next version of its flow. A flow that already has it in this desired state is left unchanged. All records
    are written, or none.

    Args:
        registry: where the flows are.
        submissions: the flows, each at most once.
        versions: flow → the version that the new one must follow, 0 for a new flow; None: any.
        state: flow → the folder of its state, for a flow that has none.
        by: the user, for the records.
        renew: flow → (tier, query) of the queries that start with a new checkpoint.
        how: how these do so (`topology.Accept`).
        effects: flow → how its changes take effect (`change_models.Effect`): it decides which workers stay. Without it all are replaced.
        recut: flow → what the running version reads first.
        workflows: a cache of all flows that were read before.
        columns: agree that sinks continue with other columns than their folders hold, at the next start of each tier; an unchanged flow is
            written again with it.
        goal: the desired state of each flow.

    Raises:
        Refused: `plan-stale` if another version is the desired one by now; `operation-under-way`; `plan-refused` if a reader of what is to
            be read first has failed; `scale-executors` if a tier with `autoscale` cannot have executors.
        StateError: a flow's records are damaged.
        Unreachable: the registry does not answer.
    """

    def attempt() -> tuple[Applied, ...]:
        now = now_text()
        found: list[tuple[Submission, Stored[Desired] | None, Spec | None, int]] = []
        for submission in submissions:
            stored = read_stored(registry, DESIRED(submission.flow))
            version = 0 if stored is None else stored.record.version
            if versions is not None and versions[submission.flow] != version:
                raise _stale(submission.flow, versions[submission.flow], version)
            newest = max(versions_of(registry, submission.flow), default=0)
            spec = read_known(registry, SPEC(submission.flow, str(version or newest))) if newest else None
            found.append((submission, stored, spec, newest))
        applied = tuple(_applied(*each, goal, anyway=columns) for each in found)
        changed = {each.flow for each in applied if each.changed}
        refuse_circle(workflows or Workflows(registry), {each.flow: each.ends for each in submissions if each.flow in changed})
        for submission in submissions:
            if submission.flow in changed:
                _check_autoscale(registry, submission)
        together = {each.flow: each.version for each in applied} if len(applied) > 1 else {}
        writes: list[Write] = []
        for each, (submission, stored, before, _) in zip(applied, found, strict=True):
            if not each.changed:
                continue
            refuse_while_under_way(registry, each.flow, stored)
            spec = Spec(
                package=submission.package,
                path=submission.path,
                base=submission.base,
                state=before.state if before is not None else state(each.flow),
                tiers=next_tiers(submission, before, 0 if stored is None else stored.record.version, (effects or {}).get(each.flow)),
                by=by,
                at=now,
                together=together,
                scaled={} if before is None else before.scaled,
                watched=submission.watched,
                labels=dict(submission.labels),
                outside=submission.outside,
                groups=submission.groups,
                agents=submission.agents,
            )
            accepts = {"at": now, "by": by} if columns else {}
            desired = Desired(state=goal, version=each.version, by=by, at=now, accepts=accepts)
            old = each.version if stored is None else stored.record.version
            begun = _begun(registry, each, old, (renew or {}).get(each.flow, ()), how, (recut or {}).get(each.flow), by, now)
            if begun is not None:
                id_, more = new_operation(registry, each.flow, begun)
                desired = replace(desired, operation=id_)
                writes += more
            if stored is None or each.version != stored.record.version:
                writes.append(SPEC(each.flow, str(each.version)).create(spec))
            writes.append(DESIRED(each.flow).create(desired) if stored is None else stored.replace(desired))
        if writes:
            registry.commit(*writes)
        return applied

    return again(attempt)


def _check_autoscale(registry: Registry, submission: Submission) -> None:
    """Raise Refused if a tier with `autoscale` cannot have executors."""
    for tier, said in submission.tiers.items():
        if said.autoscale is not None and (able := nodes_without_executors(registry, submission.flow, tier, said)):
            raise Refused(
                f"flow {submission.flow}: on {', '.join(able)} Spark runs inside the worker, so tier {tier} cannot have the executors that "
                "its autoscale is about",
                remedy="take autoscale out; executors run on a cluster, which a node has with --launcher standalone, yarn or kubernetes",
                code="scale-executors",
            )


def _applied(
    submission: Submission, stored: Stored[Desired] | None, spec: Spec | None, newest: int, goal: Goal, *, anyway: bool
) -> Applied:
    if stored is not None and spec is not None and same_as(spec, submission):
        return Applied(submission.flow, stored.record.version, changed=anyway or stored.record.state != goal)
    return Applied(submission.flow, newest + 1, changed=True)


def _stale(flow: str, planned: int, version: int) -> Refused:
    now = f"version {version}" if version else "no version"
    was = f"version {planned}" if planned else "no version"
    return Refused(
        f"the plan is stale: it was made for flow {flow} at {was}; the flow is now at {now}",
        remedy="to see what would change now, run: scribengin apply FILE --dry-run",
        code="plan-stale",
    )


def want(registry: Registry, flow: str, goal: Goal, *, by: str) -> int:
    """Set the desired state of a flow. Setting it again retries what has failed.

    Returns:
        The revision of the desired state; a report names it as its generation when it has reached it.

    Raises:
        Refused: there is no such flow.
    """

    def attempt() -> int:
        there = registry.read(DESIRED(flow).path)
        desired = read_flow(registry, flow).desired
        wish = replace(desired, state=goal, by=by, at=now_text())
        return registry.commit(DESIRED(flow).put(there, wish), Require(SPEC(flow, str(wish.version)).path)).revision

    return again(attempt)


def rollback_versions(registry: Registry, flow: str, version: int, *, only: bool = False) -> dict[str, int]:
    """The versions that `rollback` would set: flow → version. Raises as `rollback`.

    Args:
        registry: where the flows are.
        flow: the flow.
        version: the version to return to.
        only: leave out the flows that were submitted as one with that version. Flows that already have theirs are always left out.
    """
    desired = read_flow(registry, flow).desired
    there = versions_of(registry, flow)
    if version not in there:
        known = ", ".join(str(number) for number in there)
        raise Refused(f"flow {flow} has no version {version}", remedy=f"it has {known}: scribengin history {flow}", code="version-unknown")
    spec = read_known(registry, SPEC(flow, str(version)))
    together = {} if only or spec is None else {**spec.together}
    back = {name: number for name, number in {**together, flow: version}.items() if number in versions_of(registry, name)}
    wanted_now = {name: desired.version if name == flow else read_flow(registry, name).desired.version for name in back}
    changed = {name: number for name, number in back.items() if wanted_now[name] != number}
    if not changed:
        raise Refused(
            f"version {version} is already the desired version of flow {flow}",
            remedy=f"see: scribengin history {flow}",
            code="version-same",
        )
    return changed


def rollback(
    registry: Registry,
    flow: str,
    version: int,
    *,
    by: str,
    only: bool = False,
    renew: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    how: str = "again",
    recut: Mapping[str, Recut] | None = None,
    workflows: Workflows | None = None,
    columns: bool = False,
) -> dict[str, int]:
    """Return to an earlier version, code and flow together; the desired state stays.

    Args:
        registry: where the flows are.
        flow: the flow.
        version: the version to return to.
        by: the user, for the records.
        only: leave the flows unchanged that were submitted as one with that version; without it they return with it.
        renew, how, recut, workflows, columns: see `apply_all`.

    Returns:
        Flow → version of those that changed: all of them, or none.

    Raises:
        Refused: there is no such flow or version, it is the desired version already, or an operation is under way; `plan-refused` as in
            `apply_all`.
    """

    def attempt() -> dict[str, int]:
        changed = rollback_versions(registry, flow, version, only=only)
        specs = {name: read_known(registry, SPEC(name, str(number))) for name, number in changed.items()}
        ends = {name: (f"version {changed[name]}", spec.outside) for name, spec in specs.items() if spec is not None}
        refuse_circle(workflows or Workflows(registry), ends)
        writes: list[Write] = []
        for name, number in changed.items():
            there = registry.read(DESIRED(name).path)
            desired = read_flow(registry, name).desired
            stored = read_stored(registry, DESIRED(name)) if isinstance(there, RegistryEntry) else None
            refuse_while_under_way(registry, name, stored)
            now = now_text()
            wish = replace(desired, version=number, by=by, at=now, accepts={"at": now, "by": by} if columns else {})
            goes = Applied(name, number, changed=True)
            begun = _begun(registry, goes, desired.version, (renew or {}).get(name, ()), how, (recut or {}).get(name), by, now)
            if begun is not None:
                id_, more = new_operation(registry, name, begun)
                wish = replace(wish, operation=id_)
                writes += more
            writes += [DESIRED(name).put(there, wish), Require(SPEC(name, str(number)).path)]
        registry.commit(*writes)
        return changed

    return again(attempt)


def _begun(
    registry: Registry,
    comes: Applied,
    version: int,
    anew: Sequence[tuple[str, str]],
    how: str,
    recut: Recut | None,
    by: str,
    now: str,
) -> Operation | None:
    """The operation with which a new version replaces `version`; None if it needs none."""
    if anew:
        return _renewal(anew, version, how, by, now)
    if recut is None:
        return None
    _refuse_failed_readers(registry, comes.flow, recut.tiers)
    feeders = {tier: list(names) for tier, names in recut.feeders.items()}
    arguments: dict[str, Any] = {"version": comes.version, "read": list(recut.tiers), "feeders": feeders}
    return Operation(kind="recut", step="drain", tiers=(recut.mover,), version=version, arguments=arguments, by=by, at=now, since=now)


def _refuse_failed_readers(registry: Registry, flow: str, tiers: Sequence[str]) -> None:
    """Raise Refused if one of the tiers that are to read their channels to the end has failed permanently."""
    for tier in tiers:
        run = read_known(registry, RUN(flow, tier))
        if run is not None and run.ended_at is not None and run.permanent:
            raise Refused(
                f"flow {flow}: tier {tier} must read the backlog of its channels before they are removed, and has failed: {run.cause}",
                remedy=f"fix the cause, then run: scribengin resume {flow}; submit again when the flow runs",
                code="plan-refused",
            )


def _renewal(anew: Sequence[tuple[str, str]], version: int, how: str, by: str, now: str) -> Operation:
    """The operation by which queries start with a new checkpoint. It runs as `version`, whose plan has the old one."""
    tiers = tuple(dict.fromkeys(tier for tier, _ in anew))
    arguments: dict[str, Any] = {"how": how, "queries": [list(query) for query in anew]}
    return Operation(kind="renew", step="stop", tiers=tiers, version=version, arguments=arguments, by=by, at=now, since=now)


def delete(registry: Registry, flow: str) -> None:
    """Delete a stopped flow: its versions, desired state, status and limits.

    The numbers of its runs and the Terms of its leases stay, so that a later flow of that name never uses one twice. Records unknown to
    this version, the flow's state, its packages, and the bindings of its tiers to nodes stay too.

    Raises:
        Refused: there is no such flow, or it is not stopped.
    """

    def attempt() -> None:
        desired, row = registry.read(DESIRED(flow).path), read_flow(registry, flow)
        status = row.status
        at_rest = (
            status is not None and status.state == "stopped" and isinstance(desired, RegistryEntry) and status.generation == desired.changed
        )
        if not at_rest or not isinstance(desired, RegistryEntry):
            raise not_stopped(row)
        registry.commit(Delete(DESIRED(flow).path, desired.version), *map(Delete, records_of(registry, flow)))

    again(attempt)
