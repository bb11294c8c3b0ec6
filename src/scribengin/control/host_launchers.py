"""The hosts of a registry, each as a launcher: the leader writes its orders, and its node process (`hosts/node_process.py`) its reports.

An order contains no command and no secret: only the worker's id, and its resources. The host makes the rest itself. One record per worker
and direction keeps them small, whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.core.errors import Unreachable
from scribengin.core.secret import Secret
from scribengin.launch.contract import Launcher, ObservedWorker
from scribengin.registry.contract import Delete, RegistryEntry
from scribengin.registry.record_io import Stored
from scribengin.registry.records import WorkerOrder, WorkerSeen
from scribengin.registry.tree import HOST, HOST_UP, HOSTS, WORKER_ORDER, WORKER_SEEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.control.registry_cache import Mirror
    from scribengin.launch.contract import LaunchOrder
    from scribengin.registry.contract import Registry, Term


class HostLauncher:
    """The launcher of one host, for the leading master. Its writes are under the Term that `term` returns. For the mirror's thread only."""

    def __init__(self, name: str, registry: Registry, mirror: Mirror, term: Callable[[], Term]) -> None:
        self._name = name
        self._registry = registry
        self._mirror = mirror
        self._term = term
        self._orders, self._seen = f"{HOSTS}/{name}/orders", f"{HOSTS}/{name}/seen"
        self._observed: tuple[int, list[ObservedWorker]] | None = None
        """the `drops` of its folders when they were last read, and the report"""

    def start(self, order: LaunchOrder) -> None:
        """Order the host to start a worker; see `Launcher.start`. A refusal by the host is reported by `observe`.

        Raises:
            ValueError: the order contains a secret.
            Unreachable: the host's node process does not run.
        """
        if order.secrets or any(isinstance(value, Secret) for value in order.spark.values()):
            raise ValueError(f"{order.worker}: secrets are not sent through the registry")
        self._check_up()
        if self._order(order.worker) is not None:
            return
        self._write(
            order.worker,
            WorkerOrder(
                ask="run",
                cores=order.cores,
                memory_bytes=order.memory_bytes,
                executors=order.executors,
                spark={name: str(value) for name, value in order.spark.items()},
                digest=order.digest,
            ),
        )

    def stop(self, worker: str, grace_s: float) -> None:
        """Order the host to stop a worker; see `Launcher.stop`."""
        order = self._order(worker)
        if order is None and self._seen_record(worker) is None:
            return
        if order is None or order.ask == "run":
            self._write(worker, replace(order or WorkerOrder(ask="stop"), ask="stop", grace_s=grace_s))
        elif order.ask == "stop" and grace_s < order.grace_s:
            self._write(worker, replace(order, grace_s=grace_s))

    def kill(self, worker: str) -> None:
        """Order the host to kill a worker; see `Launcher.kill`. A host that is unavailable does it when it is back."""
        order = self._order(worker)
        if order is None and self._seen_record(worker) is None:
            return
        if order is None or order.ask != "kill":
            self._write(worker, replace(order or WorkerOrder(ask="kill"), ask="kill"))

    def observe(self) -> list[ObservedWorker]:
        """The host's last report, the same list while it has not changed; see `Launcher.observe`. Raises Unreachable if its node process
        does not run."""
        self._check_up()
        drops = self._mirror.drops(self._orders) + self._mirror.drops(self._seen)
        if self._observed is None or self._observed[0] != drops:
            self._observed = drops, self._read_report()
        return self._observed[1]

    def _read_report(self) -> list[ObservedWorker]:
        there = {*self._mirror.children(self._orders), *self._mirror.children(self._seen)}
        workers = sorted(worker for worker in there if WORKER_ORDER.fits(self._name, worker))
        self._mirror.fetch([branch(self._name, worker).path for worker in workers for branch in (WORKER_ORDER, WORKER_SEEN)])
        found = [self._look_at(worker) for worker in workers]
        return [seen for seen in found if seen is not None]

    def logs(self, worker: str) -> tuple[str, ...]:
        """The logs of a worker, each as `HOST:PATH`; see `Launcher.logs`."""
        seen = self._seen_record(worker)
        return tuple(f"{self._name}:{path}" for path in seen.logs) if seen is not None else ()

    def forget(self, worker: str) -> None:
        """Remove the order of a worker that has ended; see `Launcher.forget`. The host forgets a worker for which it finds no order."""
        seen = self._seen_record(worker)
        path = WORKER_ORDER(self._name, worker).path
        there = self._mirror.read(path)
        if seen is None or seen.state not in ("exited", "gone") or there is None:
            return
        try:
            self._registry.commit(Delete(path, there.version), term=self._term())
        finally:
            self._mirror.forget(path)

    def close(self) -> None:
        """Does nothing: this launcher holds no resources."""

    def _check_up(self) -> None:
        there = self._mirror.read(HOST_UP(self._name).path)
        if there is None or not there.session:
            raise Unreachable(
                f"node {self._name} does not answer: its node process is not running",
                remedy=f"start it: scribengin server node --name {self._name} --registry ADDRESS",
            )

    def _look_at(self, worker: str) -> ObservedWorker | None:
        order, seen = self._order(worker), self._seen_record(worker)
        if order is None:
            # a worker that has ended and has no order is forgotten, or about to be
            return None if seen is None or seen.state in ("exited", "gone") else _seen(worker, "", seen, stopping=False)
        stopping = order.ask != "run"
        if seen is None or seen.order not in (0, self._made(worker)):
            return ObservedWorker(worker, "starting", order.digest, stopping=stopping)
        return _seen(worker, order.digest, seen, stopping=stopping)

    def _made(self, worker: str) -> int:
        there = self._mirror.read(WORKER_ORDER(self._name, worker).path)
        return there.made if isinstance(there, RegistryEntry) else 0

    def _order(self, worker: str) -> WorkerOrder | None:
        """The order; None if there is none, or its record is invalid, which is then replaced."""
        found = self._mirror.stored(WORKER_ORDER(self._name, worker))
        return found.record if isinstance(found, Stored) else None

    def _seen_record(self, worker: str) -> WorkerSeen | None:
        found = self._mirror.stored(WORKER_SEEN(self._name, worker))
        return found.record if isinstance(found, Stored) else None

    def _write(self, worker: str, order: WorkerOrder) -> None:
        spot = WORKER_ORDER(self._name, worker)
        try:
            self._registry.commit(self._mirror.put(spot, order), term=self._term())
        finally:
            self._mirror.forget(spot.path)


def _seen(worker: str, digest: str, seen: WorkerSeen, *, stopping: bool) -> ObservedWorker:
    ends = stopping and seen.state in ("starting", "running")
    facts = (seen.since_s, seen.process, seen.pid, seen.status, seen.reason, seen.stopping or ends, seen.strays)
    return ObservedWorker(worker, seen.state, digest, *facts)


class Fleet(Mapping[str, Launcher]):
    """Host → its launcher: those of this process, and those of all registered hosts. Hosts come and go; an unregistered name has a launcher
    too, which does not answer."""

    def __init__(self, registry: Registry, mirror: Mirror, term: Callable[[], Term], own: Mapping[str, Launcher]) -> None:
        self._registry = registry
        self._mirror = mirror
        self._term = term
        self._own = dict(own)
        self._hosts: dict[str, HostLauncher] = {}

    def __getitem__(self, name: str) -> Launcher:
        if name in self._own:
            return self._own[name]
        if name not in self._hosts:
            self._hosts[name] = HostLauncher(name, self._registry, self._mirror, self._term)
        return self._hosts[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        for name in self._mirror.children(HOSTS):
            if name not in self._own and HOST.fits(name) and isinstance(self._mirror.read(HOST(name).path), RegistryEntry):
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)
