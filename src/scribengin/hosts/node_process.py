"""The node process of a host: executes the leader's orders for the host's workers from the registry, and writes back the workers' states.

Its orders and its reports are records: it may be killed at any point, and the next node process on the same folder continues. Workers do
not depend on it and do not end with it. A host's name has one node process: it holds a lease, and each write is under its Term.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.control.registry_cache import Mirror
from scribengin.core.errors import EnvironmentFault, FencedError, ScribenginError, Unreachable, text_of
from scribengin.core.log_once import ReportedTexts
from scribengin.core.time_text import moment_text, now_text
from scribengin.launch.contract import TellsEnds
from scribengin.registry.contract import Conflict, Delete, RegistryEntry
from scribengin.registry.lease import RegistryLease
from scribengin.registry.record_io import Stored, names, put, read_record
from scribengin.registry.records import ServedPage, WorkerOrder, WorkerSeen
from scribengin.registry.tree import HOST, HOST_HTTP, HOST_JSON, HOST_UP, HOSTS, WORKER_ORDER, WORKER_SEEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from scribengin.launch.contract import Launcher, LaunchOrder, ObservedWorker
    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.records import Host

    Making = Callable[[str, WorkerOrder], LaunchOrder]
    """worker, its order → what is started: command, environment, secrets"""

LOOK_S = 0.5
"""seconds between two checks of the workers, if no launcher reports that one has ended"""
_TAKE_S = 1.0
_AGAIN_S = 0.5
_BUG_S = 5.0
_COMMIT_WRITES = 50
_SINCE_S = 1.0
"""seconds; two times of a worker that differ by less are equal: one is from the clock, one from the process table"""
_LAST_ORDERS = 20


class NodeProcess:
    """The node process of the host `name`. `enter` and `run` are for one thread, `stop` for any."""

    def __init__(
        self,
        registry: Registry,
        name: str,
        launcher: Launcher,
        make: Making,
        host: Host,
        about: Mapping[str, object],
        *,
        log: FilteringBoundLogger,
    ) -> None:
        """Create it without a lease; `enter` acquires it.

        Args:
            registry: where the orders are.
            name: the name of the host.
            launcher: starts and stops the workers.
            make: returns what is started for an order.
            host: the record that it registers.
            about: identifies this process to others (id, host, pid).
            log: its log.
        """
        self._registry = registry
        self._name = name
        self._launcher = launcher
        self._make = make
        self._host = host
        self._log = log
        self._mirror = Mirror(registry, f"{HOSTS}/{name}")
        if isinstance(launcher, TellsEnds):
            launcher.on_end(self._mirror.changed.set)
        self._http = str(about.get("http") or "")
        self._right = RegistryLease(registry, HOST_UP(name).path, about)
        self._told: dict[str, WorkerSeen] = {}
        """worker → its state as recorded in the registry"""
        self._known: set[str] = set()
        self._made: dict[str, int] = {}
        """worker → the revision that created its order"""
        self._asked: dict[str, WorkerOrder] = {}
        """worker → the last stop order that was executed"""
        self._stopped = threading.Event()
        self._said = ReportedTexts()
        self._heard: dict[str, WorkerOrder] = {}
        """worker → its present order"""
        self._last_orders: deque[dict[str, Any]] = deque(maxlen=_LAST_ORDERS)

    @property
    def is_up(self) -> bool:
        """True if it certainly is the host's node process now."""
        return self._right.held()

    def enter(self, wait_s: float) -> bool:
        """Become the host's node process, and register the host. Raises Unreachable, Forbidden.

        Returns:
            False if another process is still the node process after `wait_s` seconds.
        """
        if not self._right.acquire(wait_s=wait_s):
            return False
        self._register()
        return True

    def run(self) -> None:
        """Run until `stop` is called. The workers continue after that."""
        try:
            while not self._stopped.is_set():
                try:
                    if not self._right.held() and not self.enter(_TAKE_S):
                        self._say("another node process of this name has its lease; this one waits")
                        continue
                    self.step()
                except (FencedError, Conflict, Unreachable) as error:
                    self._log.debug("node process", message=error.message)
                    self._stopped.wait(_AGAIN_S)
                    continue
                except ScribenginError as error:  # the disk is full, or access rights were withdrawn: it is logged, and tried again
                    self._say(error.message)
                    self._stopped.wait(_AGAIN_S)
                    continue
                except (
                    Exception
                ):  # a bug: it is logged with its traceback; a node process that does nothing would be worse than one that tries again
                    self._log.exception("node process")
                    self._stopped.wait(_BUG_S)
                    continue
                self._mirror.changed.wait(LOOK_S)
        finally:
            self._right.close()
            self._mirror.close()

    def stop(self) -> None:
        """End after the current step."""
        self._stopped.set()
        self._mirror.changed.set()

    def glance(self) -> dict[str, Any]:
        """The node process's state as JSON: whether it has the host's lease, the workers as last reported, and the last orders, newest
        first. For any thread."""
        held, heard = self._right.held(), self._heard
        workers = [
            {
                "worker": worker,
                "state": seen.state,
                "pid": seen.pid,
                "since": moment_text(seen.since_s) if seen.since_s else "",
                "asked": heard[worker].ask if worker in heard else "",
                "cores": heard[worker].cores if worker in heard else None,
                "memory_bytes": heard[worker].memory_bytes if worker in heard else None,
                "reason": seen.reason,
            }
            for worker, seen in sorted(self._told.copy().items())
        ]
        lease = {"held": held, "term": self._right.term.number if held else None}
        return {"lease": lease, "workers": workers, "orders": list(reversed(self._last_orders.copy()))}

    def step(self) -> None:
        """Execute orders, check workers, and write what has changed: once. Raises FencedError if another process is the node process,
        Unreachable, Conflict."""
        self._mirror.refresh()
        orders = self._orders()
        self._hear(orders)
        seen = {each.worker: each for each in self._launcher.observe()}
        refused: dict[str, str] = {}
        for worker, order in orders.items():
            self._right.check()
            if (why := self._follow(worker, order, seen.get(worker))) is not None:
                refused[worker] = why
        seen = {each.worker: each for each in self._launcher.observe()}
        for worker in [each.worker for each in seen.values() if each.is_over and each.worker not in orders]:
            self._launcher.forget(worker)  # its end was recorded by the leader, which has removed its order
            del seen[worker]
        found = {worker: self._record(worker, each) for worker, each in seen.items()}
        for worker in orders.keys() - found.keys():
            before = self._told.get(worker)
            if before is not None and before.state in ("exited", "gone"):
                found[worker] = before
            elif worker in refused or before is not None or orders[worker].ask != "run":
                found[worker] = WorkerSeen(
                    state="gone", order=self._made[worker], reason=refused.get(worker, "no record of it is left on this host")
                )
        self._tell(found)

    # --- pieces ---

    def _register(self) -> None:
        """Write the host's record, and read the last reports on its workers."""
        there = read_record(self._registry, HOST(self._name))
        before = there.record if isinstance(there, Stored) else None
        host = self._host if before is None else msgspec.structs.replace(self._host, since=before.since)
        if host != before:
            self._registry.commit(put(self._registry, HOST(self._name), host), term=self._right.term)
        self._link()
        self._told = {}
        for worker in names(self._registry, f"{HOSTS}/{self._name}/seen"):
            if not WORKER_SEEN.fits(self._name, worker):
                continue
            seen = read_record(self._registry, WORKER_SEEN(self._name, worker))
            self._told[worker] = seen.record if isinstance(seen, Stored) else WorkerSeen(state="starting")

    def _link(self) -> None:
        """Write the address of the host's page, or remove the one of an earlier node process if this one has no page."""
        spots = {HOST_HTTP(self._name): "", HOST_JSON(self._name): "/json"}
        if self._http:
            self._registry.commit(
                *(put(self._registry, spot, ServedPage(url=f"{self._http}{path}")) for spot, path in spots.items()), term=self._right.term
            )
        elif gone := [Delete(spot.path) for spot in spots if self._registry.read(spot.path) is not None]:
            self._registry.commit(*gone, term=self._right.term)

    def _orders(self) -> dict[str, WorkerOrder]:
        """The present orders. An invalid record gives an order that is never executed: so its worker is not forgotten."""
        found = {}
        names_there = self._mirror.children(f"{HOSTS}/{self._name}/orders")
        workers = [worker for worker in names_there if WORKER_ORDER.fits(self._name, worker)]
        self._mirror.fetch([WORKER_ORDER(self._name, worker).path for worker in workers])
        for gone in self._known - {*workers}:
            self._asked.pop(gone, None)
            self._made.pop(gone, None)
        self._known = {*workers}
        for worker in workers:
            spot = WORKER_ORDER(self._name, worker)
            there = self._mirror.read(spot.path)
            if there is None:
                continue
            order = self._mirror.stored(spot)
            self._made[worker] = there.made if isinstance(there, RegistryEntry) else 0
            if isinstance(order, Stored):
                found[worker] = order.record
            else:
                self._say(f"the order for {worker} cannot be read")
                found[worker] = WorkerOrder(ask="run", digest="?")
        return found

    def _hear(self, orders: Mapping[str, WorkerOrder]) -> None:
        """Remember the new orders, for `glance`."""
        for worker, order in orders.items():
            if self._heard.get(worker) != order:
                now = now_text()
                self._last_orders.append({"at": now, "worker": worker, "ask": order.ask})
        self._heard = {**orders}

    def _follow(self, worker: str, order: WorkerOrder, seen: ObservedWorker | None) -> str | None:
        """Execute an order. Returns why its worker cannot be started, if it cannot; the leader then tries again under another number."""
        told = self._told.get(worker)
        if told is not None and (seen is None or seen.is_over) and told.order not in (0, self._made[worker]):
            self._launcher.forget(worker)  # it was forgotten, and is ordered again
            del self._told[worker]
            seen = None
        match order.ask:
            case "run" if seen is None and worker not in self._told and order.digest != "?":
                try:
                    self._launcher.start(self._make(worker, order))
                except (EnvironmentFault, ValueError) as error:
                    why = text_of(error)
                    self._say(f"{worker} was not started: {why}")
                    return f"it was not started: {why}"
            case "stop" if seen is not None and not seen.is_over and self._asked.get(worker) != order:
                self._launcher.stop(worker, order.grace_s)
                self._asked[worker] = order
            case "kill" if seen is not None and not seen.is_over:
                self._launcher.kill(worker)
        return None

    def _record(self, worker: str, seen: ObservedWorker) -> WorkerSeen:
        before = self._told.get(worker)
        since_s = seen.since_s
        if before is not None and before.state == seen.state and abs(before.since_s - since_s) < _SINCE_S:
            since_s = before.since_s
        known = before is not None and (before.state, before.logs != ()) == (seen.state, True)
        return WorkerSeen(
            state=seen.state,
            order=self._made.get(worker, 0),
            since_s=since_s,
            process=seen.process,
            pid=seen.pid,
            status=seen.status,
            reason=seen.reason,
            stopping=seen.stopping,
            strays=seen.strays,
            logs=before.logs if before is not None and known else self._launcher.logs(worker),
        )

    def _tell(self, found: Mapping[str, WorkerSeen]) -> None:
        """Write the states that differ from those in the registry."""
        changed = [worker for worker in sorted(found) if found[worker] != self._told.get(worker)]
        gone = [worker for worker in sorted(self._told) if worker not in found]
        for part in _parts([*changed, *gone]):
            writes: list[Write] = []
            for worker in part:
                spot = WORKER_SEEN(self._name, worker)
                if worker in found:
                    writes.append(put(self._registry, spot, found[worker]))
                elif self._registry.read(spot.path) is not None:
                    writes.append(Delete(spot.path))
            self._registry.commit(*writes, term=self._right.term)
            for worker in part:
                if worker in found:
                    self._told[worker] = found[worker]
                else:
                    self._told.pop(worker, None)

    def _say(self, text: str) -> None:
        if self._said.is_new(text):
            self._log.warning("node process", message=text)


def _parts(workers: list[str]) -> Iterable[list[str]]:
    for at in range(0, len(workers), _COMMIT_WRITES):
        yield workers[at : at + _COMMIT_WRITES]
