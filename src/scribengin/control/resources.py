"""Changes the resources of a flow's tiers: a new version with the same code and state. Only the changed tiers get new workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.flow_records import known_flow, versions_of, wanted
from scribengin.control.offsets import prepared_flow
from scribengin.control.operation_records import new_operation, refuse_while_under_way
from scribengin.control.record_validation import again, nodes_without_executors, why_not_workers
from scribengin.control.submission import Applied, bare_tiers
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.core.time_text import now_text
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Operation, Workers
from scribengin.registry.tree import SPEC, WORKERS
from scribengin.spark.offset_log import state_partitions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scribengin.control.world import ScaleTier
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.records import Desired, Spec, WorkerCount


LEAST_MEMORY_BYTES = 256 * 2**20
"""with less memory Spark's driver does not start"""
MOST_PARTITIONS = 10_000
AUTOSCALED_BY = "autoscale"
"""the user of versions that the leader makes"""


def scale(
    registry: Registry,
    flow: str,
    tiers: Collection[str] = (),
    *,
    cores: int | None = None,
    memory_bytes: int | None = None,
    executors: int | None = None,
    by: str,
) -> Applied:
    """Change the resources of tiers of a flow. This creates the flow's next version; the desired state stays. The values are kept when the
    flow is submitted again.

    Args:
        registry: where the flow is.
        flow: the flow.
        tiers: the tiers; empty: all.
        cores: cores of a worker, or of each executor; None: unchanged.
        memory_bytes: memory of a worker, or of each executor; None: unchanged.
        executors: number of executors; None: unchanged.
        by: the user, for the records.

    Raises:
        Refused: there is no such flow or tier, a number is too small, no node that may take a tier has executors, or an operation is under
            way.
    """
    asked = {"cores": cores, "memory_bytes": memory_bytes, "executors": executors}
    given = {name: value for name, value in asked.items() if value is not None}
    _check(given)

    def attempt() -> Applied:
        stored = known_flow(registry, flow)
        spec = _spec_of_wanted(registry, flow)
        chosen = _chosen(flow, spec, tiers)
        if executors is not None and executors > 1:
            _check_executors(registry, flow, spec, chosen, executors)
        there = bare_tiers(spec)
        changed = [name for name in chosen if replace(there[name], **given) != there[name]]
        if not changed:
            return Applied(flow, stored.record.version, changed=False)
        new = replace(_scaled(spec, stored.record.version, dict.fromkeys(changed, given)), by=by, at=now_text(), why="")
        version, writes = _as_next_version(registry, flow, stored, new)
        registry.commit(*writes)
        return Applied(flow, version, changed=True)

    return again(attempt)


def autoscaled(registry: Registry, action: ScaleTier) -> list[Write]:
    """The writes with which the leader changes the number of executors of a tier, as `scale` does.

    Returns:
        The writes; none if another version is the desired one by now.

    Raises:
        Refused: an operation is under way.
    """
    stored = known_flow(registry, action.flow)
    if stored.record.version != action.version:
        return []
    new = _scaled(_spec_of_wanted(registry, action.flow), action.version, {action.tier: {"executors": action.executors}})
    new = replace(new, by=AUTOSCALED_BY, at=now_text(), why=f"tier {action.tier}, executors {action.change}")
    return _as_next_version(registry, action.flow, stored, new, action)[1]


def _scaled(spec: Spec, version: int, given: Mapping[str, Mapping[str, int]]) -> Spec:
    """The spec of the version after `version`, with other values of some tiers (`given`: tier → values). Workers of the others serve it
    unchanged."""
    there = bare_tiers(spec)
    kept = {name: replace(tier, since=tier.since or version) for name, tier in spec.tiers.items()}
    scaled = {name: replace(there[name], **values) for name, values in given.items()}
    said = {name: {**spec.scaled.get(name, {}), **values} for name, values in given.items()}
    return replace(spec, tiers={**kept, **scaled}, scaled={**spec.scaled, **said}, together={})


def _as_next_version(
    registry: Registry, flow: str, stored: Stored[Desired], new: Spec, action: ScaleTier | None = None
) -> tuple[int, list[Write]]:
    """The number of the flow's next version, and the writes that create it and make it the desired one; also those of the operation that
    distributes the state of a tier over the partitions that `action` names. Raises Refused while an operation is under way."""
    refuse_while_under_way(registry, flow, stored)
    version = max(versions_of(registry, flow)) + 1
    desired = replace(stored.record, version=version, by=new.by, at=new.at)
    begun: list[Write] = []
    if action is not None and action.partitions:
        arguments = {"partitions": action.partitions}
        said = Operation(kind="repartition", step="stop", version=version, tiers=(action.tier,), arguments=arguments)
        id_, begun = new_operation(registry, flow, replace(said, by=new.by, at=new.at, since=new.at))
        desired = replace(desired, operation=id_)
    return version, [SPEC(flow, str(version)).create(new), *begun, stored.replace(desired)]


def set_workers(registry: Registry, flow: str, tiers: Collection[str], count: WorkerCount) -> bool:
    """Set the number of workers of tiers of a flow. It applies to all versions, and running workers continue.

    Args:
        registry: where the flow is.
        flow: the flow.
        tiers: the tiers; empty: all.
        count: the number of workers, or `each` for one on each host.

    Returns:
        False if it is so already.

    Raises:
        Refused: there is no such flow or tier, or a tier cannot have that many.
    """

    def attempt() -> bool:
        spec = _spec_of_wanted(registry, flow)
        chosen = _chosen(flow, spec, tiers)
        for tier in chosen:
            if why := why_not_workers(flow, spec, tier, count):
                raise Refused(why, remedy="name a tier that has steps without state (NAME.TIER), or another number", code="scale-workers")
        found = read_record(registry, WORKERS(flow))
        before = found.record if isinstance(found, Stored) else Workers()
        said = {**before.tiers, **dict.fromkeys(chosen, count)}
        said = {tier: number for tier, number in said.items() if tier not in spec.tiers or number != spec.tiers[tier].workers}
        if said == before.tiers:
            return False
        registry.commit(put(registry, WORKERS(flow), replace(before, tiers=said)))
        return True

    return again(attempt)


def _spec_of_wanted(registry: Registry, flow: str) -> Spec:
    version = known_flow(registry, flow).record.version
    _, spec = wanted(registry, flow)
    if spec is None:
        raise Refused(f"version {version} of flow {flow} is not there", remedy="apply it again", code="version-unknown")
    return spec


def plan_spread(registry: Registry, packages: PackageStore, flow: str, tiers: Collection[str] = (), *, partitions: int) -> Operation | None:
    """Plan the operation that distributes the state of queries over another number of partitions, without loss. Changes nothing.

    Args:
        registry: where the flow is.
        packages: the packages of this host.
        flow: the flow.
        tiers: only queries in these tiers; empty: all.
        partitions: the number of partitions, 1 to MOST_PARTITIONS.

    Returns:
        The operation; None if the state has that number of partitions already.

    Raises:
        Refused: there is no such flow or tier, no query keeps state yet, or the number is not valid.
    """
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise Refused(
            f"{partitions} is not a valid number of partitions", remedy=f"give a number from 1 to {MOST_PARTITIONS:,}", code="scale-least"
        )
    prepared, version = prepared_flow(registry, packages, flow)
    spec = wanted(registry, flow)[1]
    chosen = _chosen(flow, spec, tiers) if spec is not None else ()
    there = {
        (tier.plan.tier, query.name): spread
        for tier in prepared.tiers
        for query in tier.folder.queries()
        if tier.plan.tier in chosen and (spread := state_partitions(query)) is not None
    }
    if not there:
        raise Refused(
            f"no query of flow {flow}{' in ' + ', '.join(tiers) if tiers else ''} keeps state yet",
            remedy="name another tier; a query without state has no state partitions",
            code="scale-stateless",
        )
    if set(there.values()) == {partitions}:
        return None
    with_state = tuple(dict.fromkeys(tier for tier, _ in there))
    return Operation(kind="repartition", step="stop", version=version, tiers=with_state, arguments={"partitions": partitions})


def _check(given: dict[str, int]) -> None:
    least = {"cores": 1, "executors": 1, "memory_bytes": LEAST_MEMORY_BYTES}
    if not given:
        said = "pass --cores, --memory, --executors, --workers or --partitions"
        raise Refused("no value to change was given", remedy=said, code="scale-nothing")
    for name, value in given.items():
        if value < least[name]:
            raise Refused(f"{name.replace('_', ' ')} {value:,} is too little", remedy=f"give {least[name]:,} or more", code="scale-least")


def _check_executors(registry: Registry, flow: str, spec: Spec, tiers: Collection[str], executors: int) -> None:
    """Raise Refused if one of the tiers cannot have executors."""
    for tier in tiers:
        said = spec.tiers[tier]
        if able := nodes_without_executors(registry, flow, tier, said):
            raise Refused(
                f"flow {flow}: on {', '.join(able)} Spark runs inside the worker, so tier {tier} cannot have executors",
                remedy=f"give the worker more cores: scribengin scale {flow}.{tier} --cores {executors * said.cores}; executors run on a "
                "Spark cluster, which a node is given with --launcher standalone, and `server dev` with --spark-standalone",
                code="scale-executors",
            )


def _chosen(flow: str, spec: Spec, tiers: Collection[str]) -> Collection[str]:
    for tier in tiers:
        if tier not in spec.tiers:
            near = did_you_mean(tier, list(spec.tiers)) or f"its tiers are {', '.join(spec.tiers)}"
            raise Refused(f'flow {flow} has no tier "{tier}"', remedy=near, code="tier-unknown")
    return tiers or spec.tiers
