"""A control plane on one machine, in one process beside its workers: an embedded ZooKeeper, a master, a local launcher."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from scribengin.control.master import Master
from scribengin.core.secret import Secret
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.launch.contract import Order
from scribengin.launch.local import LocalLauncher
from scribengin.local.run_log import open_run_log
from scribengin.registry.access import DEFAULT_ROOT, Address
from scribengin.registry.records import Stored, read_record
from scribengin.registry.tree import SPEC, WANTED, TierSpec
from scribengin.registry.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from scribengin.control.home import Home
    from scribengin.control.world import RunId
    from scribengin.registry.contract import Registry

NODE = "local"
"""what its one machine is called"""
REGISTRY, LOGIN, HOME = "SCRIBENGIN_REGISTRY", "SCRIBENGIN_REGISTRY_LOGIN", "SCRIBENGIN_HOME"
"""what a worker finds in its environment (`worker.process`)"""
_POLL_S = 0.2


class House:
    """Up inside the `with` block. At its end the workers are asked to end after the Batches under way; what is wanted stays, so that the
    next one goes on with every flow. Where this process is killed the workers go on, and the next one adopts them."""

    def __init__(self, home: Home, *, grace_s: float = 300.0, tell: Callable[[str], None] = lambda _line: None) -> None:
        """`grace_s`: how long workers may take to end. `tell` hears what takes a while."""
        self.home = home
        self._grace_s = grace_s
        self._tell = tell
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.home.held())
            self._tell("starting ZooKeeper")
            server = stack.enter_context(ZooKeeper(self.home.zookeeper))
            self.address = Address((server.address,), DEFAULT_ROOT)
            login = self.home.login()
            registry = open_zookeeper(self.address, login=login)
            stack.callback(registry.close)
            launcher = LocalLauncher(self.home.workers)
            stack.callback(launcher.close)

            def order(id_: RunId) -> Order:
                spec = _tier_spec(registry, id_)
                return Order(
                    str(id_),
                    (sys.executable, "-m", "scribengin.worker", str(id_)),
                    {REGISTRY: str(self.address), HOME: str(self.home.folder.absolute())},
                    {LOGIN: Secret(login.secret.reveal(), str(self.home.folder / "registry.login"))},
                    cores=spec.cores,
                    memory_bytes=spec.memory_bytes,
                    executors=spec.executors,
                )

            log = stack.enter_context(open_run_log(self.home.log))
            master = Master(registry, {NODE: launcher}, order, {"id": NODE}, log=log)
            thread = threading.Thread(target=master.run, name="master")
            stack.callback(self._end_workers, launcher)
            stack.callback(thread.join)
            stack.callback(master.stop)
            thread.start()
            self.home.announce(self.address)
            stack.callback(self.home.withdraw)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _end_workers(self, launcher: LocalLauncher) -> None:
        """All at once: what one has handed over and another has not taken waits in the channel between them."""
        there = [seen.worker for seen in launcher.look() if not seen.is_over]
        if there:
            self._tell(f"{len(there)} worker{'s end' if len(there) > 1 else ' ends'} after the Batch under way")
        for worker in there:
            launcher.stop(worker, self._grace_s)
        while any(not seen.is_over for seen in launcher.look()):
            time.sleep(_POLL_S)


def _tier_spec(registry: Registry, id_: RunId) -> TierSpec:
    """Of the version that the tier is wanted in; what nobody has said is Spark's default."""
    wish = read_record(registry, WANTED(id_.flow, id_.tier))
    spec = read_record(registry, SPEC(id_.flow, str(wish.record.version))) if isinstance(wish, Stored) else None
    return spec.record.tiers.get(id_.tier, TierSpec()) if isinstance(spec, Stored) else TierSpec()
