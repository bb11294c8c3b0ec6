"""A host that is reached through a registry, as one more launcher: the leader's side, a node process in a thread, and local processes."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

import structlog
from launch_benches import PROGRAM, ProcessBench

from scribengin.control.host_launchers import HostLauncher
from scribengin.control.registry_cache import Mirror
from scribengin.hosts.node_process import NodeProcess
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.local import LocalLauncher
from scribengin.registry.lease import Election
from scribengin.registry.memory import MemoryStore
from scribengin.registry.records import Host

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.launch.contract import Launcher, ObservedWorker
    from scribengin.registry.records import WorkerOrder

LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
NAME = "a"


class Leader(HostLauncher):
    """A master's launcher for the host; it looks anew each time."""

    def __init__(self, store: MemoryStore, election: Election) -> None:
        registry = store.client()
        self.mirror = Mirror(registry)
        super().__init__(NAME, registry, self.mirror, lambda: election.term)

    def observe(self) -> list[ObservedWorker]:
        self.mirror.refresh()
        return super().observe()

    def start(self, order: LaunchOrder) -> None:
        self.mirror.refresh()
        super().start(order)

    def stop(self, worker: str, grace_s: float) -> None:
        self.mirror.refresh()
        super().stop(worker, grace_s)

    def kill(self, worker: str) -> None:
        self.mirror.refresh()
        super().kill(worker)

    def forget(self, worker: str) -> None:
        self.mirror.refresh()
        super().forget(worker)


class HostBench(ProcessBench):
    """The node process makes the command: here of the words that the test has said."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = MemoryStore()
        self.words: dict[str, tuple[str, ...]] = {}
        self.election = Election(self.store.client(), {})
        assert self.election.acquire()
        self.own = LocalLauncher(self.home, orphan_grace_s=0.5)
        self.process = self.new_process()
        self.thread = self.begin()

    def new_process(self) -> NodeProcess:
        process = NodeProcess(self.store.client(), NAME, self.own, self._make, Host(host="here"), {"id": NAME}, log=LOG)
        assert process.enter(10.0)
        return process

    def begin(self) -> threading.Thread:
        thread = threading.Thread(target=self.process.run, daemon=True)
        thread.start()
        return thread

    def launcher(self) -> Launcher:
        return Leader(self.store, self.election)

    def order(self, worker: str, *words: str, **more: Any) -> LaunchOrder:
        self.words.setdefault(worker, words)
        return super().order(worker, *words, **more)

    def _make(self, worker: str, order: WorkerOrder) -> LaunchOrder:
        command = (sys.executable, "-S", str(PROGRAM), str(self.folder / f"{worker}.diary"), *self.words[worker])
        return LaunchOrder(worker, command, cores=order.cores, memory_bytes=order.memory_bytes, spark=order.spark)

    def clear(self) -> None:
        self.process.stop()
        self.thread.join()
        super().clear()
