"""Which tiers run on which hosts, and which hosts take workers: requests of operators as registry writes, and the present bindings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scribengin.control.flow_records import read_flow
from scribengin.control.record_validation import again, refusal
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.core.time_text import now_text
from scribengin.registry.contract import Delete, RegistryEntry, Require, shown
from scribengin.registry.record_io import Stored, names, read_record
from scribengin.registry.records import Decommissioned, Mapped
from scribengin.registry.tree import (
    DECOMMISSIONED,
    DESIRED,
    HOST,
    HOST_HTTP,
    HOST_JSON,
    HOST_UP,
    HOSTED,
    HOSTS,
    MAPPED,
    SPEC,
    WORKER_ORDER,
    WORKER_SEEN,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scribengin.control.record_validation import Refusals
    from scribengin.control.registry_cache import Mirror
    from scribengin.registry.contract import Registry, Write


# Which tier is bound to which node, by the records below `physicalnodes/`, and which of these records are refused and why.


@dataclass(frozen=True, slots=True)
class Bindings:
    """Flow → tier → node; flow → its refused bindings; and flow → (node, worker) of the workers that are shown to run there."""

    bound: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    refused: Mapping[str, Refusals] = field(default_factory=dict)
    hosted: Mapping[str, Collection[tuple[str, str]]] = field(default_factory=dict)

    def differ(self, other: Bindings) -> set[str]:
        """The flows whose bindings differ between the two."""
        return {
            flow
            for mine, theirs in ((self.bound, other.bound), (self.refused, other.refused), (self.hosted, other.hosted))
            for flow in mine.keys() | theirs.keys()
            if mine.get(flow) != theirs.get(flow)
        }


def read_bindings(mirror: Mirror, launchers: Collection[str]) -> Bindings:
    """Read the bindings. If a tier is bound to several nodes, the binding that was written first applies.

    Args:
        mirror: the cached registry.
        launchers: the nodes that a launcher of this master represents; they are known, as registered ones are.

    Returns:
        The bindings. Those to unknown nodes are refused; invalid names of records are ignored.
    """
    hosts = [host for host in mirror.children(HOSTS) if HOST.fits(host)]
    mirror.fetch([HOST(host).path for host in hosts], [f"{HOSTS}/{host}/lns" for host in hosts])
    there = [(host, node) for host in hosts for node in mirror.children(f"{HOSTS}/{host}/lns") if MAPPED.fits(host, node)]
    mirror.fetch([MAPPED(*each).path for each in there])
    hosted: dict[str, set[tuple[str, str]]] = {}
    for host in hosts:
        for worker in mirror.children(f"{HOSTS}/{host}/lns"):
            if HOSTED.fits(host, worker):
                hosted.setdefault(_flow(worker), set()).add((host, worker))
    known = sorted({*launchers, *(host for host in hosts if isinstance(mirror.read(HOST(host).path), RegistryEntry))})
    claims: list[tuple[int, str, str]] = []
    refused: dict[str, dict[str, Any]] = {}
    for host, node in there:
        spot = MAPPED(host, node)
        stored, raw = mirror.stored(spot), mirror.read(spot.path)
        if isinstance(stored, Stored) and stored.record.group is not None:
            continue  # an agent runs it, and nothing is bound
        if host not in known:
            names = ", ".join(known) or "none"
            why, remedy = (
                f"binds to node {host}, which has never registered; known nodes: {names}",
                "bind it to one of these, or start the node",
            )
        elif isinstance(stored, Stored) and raw is not None:
            claims.append((stored.entry.made, host, node))
            continue
        elif stored is None or raw is None:
            continue  # it was removed between the two reads
        else:
            why, remedy = getattr(stored, "why", "was written by a newer Scribengin"), "write {} there, or remove it"
        refused.setdefault(_flow(node), {})[spot.path] = refusal(raw, why, remedy)
    bound: dict[str, dict[str, str]] = {}
    for _, host, node in sorted(claims):
        flow, _, tier = node.partition(".")
        first = bound.setdefault(flow, {}).setdefault(tier, host)
        if first != host:
            path = MAPPED(host, node).path
            why = f"binds {node} to {host}, but it is already bound to {first}"
            refused.setdefault(flow, {})[path] = refusal(mirror.read(path), why, f"remove it, or {shown(MAPPED(first, node).path)}")
    return Bindings(bound, refused, hosted)


def _flow(node: str) -> str:
    return node.partition(".")[0]


_COMMIT_WRITES = 100


def nodes(registry: Registry) -> list[dict[str, Any]]:
    """All registered hosts, by name, as JSON.

    `state` is `up`, `away` or `decommissioned`; `workers` are those that the host has reported and not reported as ended, or that are
    ordered there.
    """
    return [node_as_json(registry, name) for name in names(registry, HOSTS) if registry.read(HOST(name).path) is not None]


def bind(registry: Registry, node: str, host: str, *, by: str, start: bool = False) -> bool:
    """Run a tier on one host only. It is one write: the tier is bound to one host at each moment.

    Args:
        registry: where the bindings are.
        node: the tier, as `FLOW.TIER`.
        host: the host.
        by: the user, for the records.
        start: also set the desired state of its flow to running.

    Returns:
        False if the tier is bound so already.

    Raises:
        Refused: there is no such tier, no such host, or the host takes no workers.
    """
    flow, tier = _parts(node)

    def attempt() -> bool:
        there = registry.read(DESIRED(flow).path)
        row = read_flow(registry, flow)
        spec = read_record(registry, SPEC(flow, str(row.desired.version)))
        tiers = sorted(spec.record.tiers) if isinstance(spec, Stored) else []
        if tier not in tiers:
            near = did_you_mean(tier, tiers) or f"it has {', '.join(tiers)}"
            raise Refused(f'flow {flow} has no tier "{tier}"', remedy=near, code="tier-unknown")
        _check_host(registry, host)
        if registry.read(DECOMMISSIONED(host).path) is not None:
            raise Refused(
                f"node {host} is decommissioned: it takes no workers",
                remedy=f"to undo this, run: scribengin node undrain {host}",
                code="node-decommissioned",
            )
        writes = _unbound(registry, node, but=host)
        if registry.read(MAPPED(host, node).path) is None:
            writes.append(MAPPED(host, node).create(Mapped(by=by, at=now_text())))
        if start and row.desired.state != "running":
            writes.append(DESIRED(flow).put(there, replace(row.desired, state="running", by=by, at=now_text())))
        if writes:
            registry.commit(*writes, Require(HOST(host).path))
        return bool(writes)

    return again(attempt)


def unbind(registry: Registry, node: str) -> bool:
    """Allow the tier `FLOW.TIER` to run on any host. Its worker stays where it is. Returns False if the tier is not bound."""
    _parts(node)

    def attempt() -> bool:
        writes = _unbound(registry, node)
        if writes:
            registry.commit(*writes)
        return bool(writes)

    return again(attempt)


def decommission(registry: Registry, host: str, *, by: str) -> bool:
    """Decommission a host: it gets no new workers, and its workers end gracefully and continue elsewhere, if another host can take them.

    Returns:
        False if the host is decommissioned already.

    Raises:
        Refused: there is no such host.
    """
    _check_host(registry, host)

    def attempt() -> bool:
        if registry.read(DECOMMISSIONED(host).path) is not None:
            return False
        registry.commit(DECOMMISSIONED(host).create(Decommissioned(by=by, at=now_text())))
        return True

    return again(attempt)


def recommission(registry: Registry, host: str) -> bool:
    """Allow a host to take workers again. Returns False if it is not decommissioned. Raises Refused if there is no such host."""
    _check_host(registry, host)

    def attempt() -> bool:
        if registry.read(DECOMMISSIONED(host).path) is None:
            return False
        registry.commit(Delete(DECOMMISSIONED(host).path))
        return True

    return again(attempt)


def forget(registry: Registry, host: str) -> None:
    """Remove a host that is gone: its orders, its reports, its bindings. If it registers again, it is a new host. Raises Refused if there
    is no such host, or it is up."""
    _check_host(registry, host)
    up = registry.read(HOST_UP(host).path)
    if up is not None and up.session:
        raise Refused(
            f"node {host} is up",
            remedy=f"move its workers away: scribengin node drain {host} --wait; then stop `scribengin server node` there",
            code="node-up",
        )
    folders = [f"{HOSTS}/{host}/{name}" for name in ("orders", "seen", "lns")]
    gone = [f"{folder}/{name}" for folder in folders for name in registry.children(folder)]
    gone += [
        path
        for path in (DECOMMISSIONED(host).path, HOST_HTTP(host).path, HOST_JSON(host).path, HOST(host).path)
        if registry.read(path) is not None
    ]
    for at in range(0, len(gone), _COMMIT_WRITES):
        registry.commit(*map(Delete, gone[at : at + _COMMIT_WRITES]))


def workers_on(registry: Registry, host: str) -> list[str]:
    """The names of the workers that run on a host, as far as it has reported, or are ordered there."""
    found = []
    for worker in sorted({*names(registry, f"{HOSTS}/{host}/orders"), *names(registry, f"{HOSTS}/{host}/seen")}):
        seen, order = read_record(registry, WORKER_SEEN(host, worker)), registry.read(WORKER_ORDER(host, worker).path)
        state = seen.record.state if isinstance(seen, Stored) else "starting" if order is not None else "gone"
        if state in ("starting", "running"):
            found.append(worker)
    return found


def node_as_json(registry: Registry, name: str) -> dict[str, Any]:
    """A host as one entry of `nodes`, even if it has never registered."""
    host, up = read_record(registry, HOST(name)), registry.read(HOST_UP(name).path)
    about = host.record if isinstance(host, Stored) else None
    is_up = up is not None and up.session != 0
    out = registry.read(DECOMMISSIONED(name).path) is not None
    return {
        "node": name,
        "state": "decommissioned" if out else "up" if is_up else "away",
        "up": is_up,
        "host": "" if about is None else about.host,
        "pid": up.value.get("pid") if isinstance(up, RegistryEntry) and is_up else None,
        "http": str(up.value.get("http") or "") if isinstance(up, RegistryEntry) and is_up else "",
        "cores": 0 if about is None else about.cores,
        "memory_bytes": 0 if about is None else about.memory_bytes,
        "spark": "" if about is None else about.spark,
        "home": "" if about is None else about.home,
        "since": "" if about is None else about.since,
        "workers": workers_on(registry, name),
        "mapped": [node for node in names(registry, f"{HOSTS}/{name}/lns") if MAPPED.fits(name, node)],
    }


def _unbound(registry: Registry, node: str, *, but: str = "") -> list[Write]:
    """The writes that unbind a tier from its hosts, except the host `but`."""
    bound = [name for name in names(registry, HOSTS) if name != but and node in registry.children(f"{HOSTS}/{name}/lns")]
    return [Delete(MAPPED(name, node).path) for name in bound]


def _parts(node: str) -> tuple[str, str]:
    flow, dot, tier = node.partition(".")
    try:
        MAPPED("any", node)
    except ValueError:
        raise Refused(
            f'"{node}" is not a valid name of a tier',
            remedy="write FLOW.TIER; a flow that is not split into tiers has one tier, main",
            code="tier-unknown",
        ) from None
    assert dot
    return flow, tier


def _check_host(registry: Registry, host: str) -> None:
    known = [name for name in names(registry, HOSTS) if registry.read(HOST(name).path) is not None]
    if host not in known:
        raise unknown_node(host, known)


def unknown_node(host: str, known: Sequence[str]) -> Refused:
    """The error for the name of a host that has never registered."""
    near = did_you_mean(host, known) or "see: scribengin node list; start one there: scribengin server node --registry ADDRESS"
    return Refused(f'there is no node "{host}"', remedy=near, code="node-unknown")
