"""Which tiers run on which hosts, and which hosts take workers: people's requests as registry writes, and the present bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scribengin.control.known import again
from scribengin.control.reading import read_flow
from scribengin.core.errors import Refused
from scribengin.core.moments import now_text
from scribengin.core.problems import did_you_mean
from scribengin.registry.contract import Delete, RegistryEntry, Require
from scribengin.registry.host_records import Decommissioned
from scribengin.registry.kinds import Mapped
from scribengin.registry.records import Stored, names, read_record
from scribengin.registry.tree import (
    DECOMMISSIONED,
    DESIRED,
    HOST,
    HOST_HTTP,
    HOST_JSON,
    HOST_UP,
    HOSTS,
    MAPPED,
    SPEC,
    WORKER_ORDER,
    WORKER_SEEN,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.registry.contract import Registry, Write

_COMMIT_WRITES = 100


def nodes(registry: Registry) -> list[dict[str, Any]]:
    """All registered hosts, by name, as JSON. `state` is `up`, `away` or `decommissioned`; `workers` are those that it has reported, and
    not reported as ended."""
    return [node_as_json(registry, name) for name in names(registry, HOSTS) if registry.read(HOST(name).path) is not None]


def bind(registry: Registry, node: str, host: str, *, by: str, start: bool = False) -> bool:
    """Run the tier `FLOW.TIER` on that host only; False if it is so already. `start`: also set the desired state of its flow to running. It
    is one write: the tier is bound to one host at each moment.

    Raises Refused if there is no such tier, no such host, or the host takes no workers.
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
    """Allow the tier `FLOW.TIER` to run anywhere; False if that is so already. It stays where it is."""
    _parts(node)

    def attempt() -> bool:
        writes = _unbound(registry, node)
        if writes:
            registry.commit(*writes)
        return bool(writes)

    return again(attempt)


def decommission(registry: Registry, host: str, *, by: str) -> bool:
    """Decommission a host: it gets no new workers, and its workers end gracefully and continue elsewhere, if another host can take them.
    False if it is so already. Raises Refused if there is no such host."""
    _check_host(registry, host)

    def attempt() -> bool:
        if registry.read(DECOMMISSIONED(host).path) is not None:
            return False
        registry.commit(DECOMMISSIONED(host).create(Decommissioned(by=by, at=now_text())))
        return True

    return again(attempt)


def recommission(registry: Registry, host: str) -> bool:
    """Allow a host to take workers again; False if it may already. Raises Refused if there is no such host."""
    _check_host(registry, host)

    def attempt() -> bool:
        if registry.read(DECOMMISSIONED(host).path) is None:
            return False
        registry.commit(Delete(DECOMMISSIONED(host).path))
        return True

    return again(attempt)


def forget(registry: Registry, host: str) -> None:
    """Remove a host that is gone: its orders, its reports, its bindings. If it registers again it is a new one. Raises Refused if there is
    no such host, or it is up."""
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
    """The workers that run on a host, or are ordered there, as far as it has reported."""
    found = []
    for worker in sorted({*names(registry, f"{HOSTS}/{host}/orders"), *names(registry, f"{HOSTS}/{host}/seen")}):
        seen, order = read_record(registry, WORKER_SEEN(host, worker)), registry.read(WORKER_ORDER(host, worker).path)
        state = seen.record.state if isinstance(seen, Stored) else "starting" if order is not None else "gone"
        if state in ("starting", "running"):
            found.append(worker)
    return found


def node_as_json(registry: Registry, name: str) -> dict[str, Any]:
    """One of `nodes`, whether or not it has registered."""
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
    """The writes that unbind a tier from its hosts."""
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
    """The error for an unregistered name."""
    near = did_you_mean(host, known) or "see: scribengin node list; start one there: scribengin server node --registry ADDRESS"
    return Refused(f'there is no node "{host}"', remedy=near, code="node-unknown")
