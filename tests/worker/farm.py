"""Real workers under a real master and a real ZooKeeper, on machines that can be cut off: each is a launcher of its own."""

from __future__ import annotations

import json
import logging
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import structlog

from harness.submit import submission
from scribengin.control import flow_records, flow_requests
from scribengin.control.home import Home
from scribengin.control.master import Master
from scribengin.core.errors import Unreachable
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.local import LocalLauncher
from scribengin.launch.marks import marked_processes
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.registry.access import DEFAULT_ROOT, RegistryAddress
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import LEASE, REPORT, RUN
from scribengin.registry.zookeeper import ZooKeeperRegistry, open_zookeeper
from tests.looking import look_until

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import TracebackType

    from scribengin.control.world import RunId
    from scribengin.core.process import Process
    from scribengin.launch.contract import ObservedWorker
    from scribengin.registry.records import Report, Run

FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, settle: 0s, schema: "id BIGINT"}}
steps: {odd: {from: numbers, python: "steps:odd"}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""
STEPS = """\
from scribengin import record


@record
def odd(row):
    return row["id"] % 2 == 1
"""
WITHIN_S = 240.0
"""a Spark start may take a minute where others work too"""
SILENT = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def until(what: Callable[[], Any], said: str, wait_s: float = WITHIN_S) -> None:
    """Wait for it, with a deadline."""
    look_until(what, said, wait_s)


class Machine(LocalLauncher):
    """A machine with a launcher; cut off it answers nobody, and what runs on it runs on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.away = False

    def start(self, order: LaunchOrder) -> None:
        self._check()
        super().start(order)

    def kill(self, worker: str) -> None:
        self._check()
        super().kill(worker)

    def observe(self) -> list[ObservedWorker]:
        self._check()
        return super().observe()

    def forget(self, worker: str) -> None:
        self._check()
        super().forget(worker)

    def _check(self) -> None:
        if self.away:
            raise Unreachable(f"{self.folder.name} does not answer", remedy="mend the cable")


@dataclass
class Farm:
    """Inside the `with` block a registry and a master are up; workers start when a flow is submitted."""

    folder: Path
    machines: tuple[str, ...] = ("a",)
    environment: dict[str, str | None] = field(default_factory=dict)
    """of the workers that are started next"""
    files: int = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            (self.folder / "flow" / "data").mkdir(parents=True)
            self.home = Home(self.folder / "home")
            self.zookeeper = ZooKeeper(self.home.zookeeper)
            stack.callback(self.zookeeper.kill)
            self.zookeeper.start()
            self.address = RegistryAddress((self.zookeeper.address,), DEFAULT_ROOT)
            self.registry = self.client(stack)
            self.launchers = {name: Machine(self.folder / name) for name in self.machines}
            stack.callback(self._clear)
            master = Master(self.client(stack), self.launchers, self._order, {"id": "m"}, log=SILENT)
            thread = threading.Thread(target=master.run, name="master")
            stack.callback(thread.join)
            stack.callback(master.stop)
            thread.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def client(self, stack: ExitStack) -> ZooKeeperRegistry:
        """Another client of the registry."""
        registry = open_zookeeper(self.address, login=self.home.login())
        stack.callback(registry.close)
        return registry

    def _order(self, id_: RunId) -> LaunchOrder:
        environment = {
            "SCRIBENGIN_REGISTRY": str(self.address),
            "SCRIBENGIN_HOME": str(self.home.folder.absolute()),
            "SCRIBENGIN_FAULT": None,
            **self.environment,
        }
        secrets = {"SCRIBENGIN_REGISTRY_LOGIN": self.home.login().secret}
        return LaunchOrder(str(id_), (sys.executable, "-m", "scribengin.worker", str(id_)), environment, secrets)

    def _clear(self) -> None:
        """End what runs on all machines."""
        for machine in self.launchers.values():
            machine.away = False
            for seen in machine.observe():
                machine.kill(seen.worker)
            until(lambda machine=machine: all(seen.is_over for seen in machine.observe()), "the end of all workers")  # type: ignore[misc]

    # --- a person ---

    def plants(self, flow: str = FLOW, steps: str = STEPS) -> None:
        """Write a flow and submit it."""
        place = self.folder / "flow"
        (place / "flow.yaml").write_text(flow)
        (place / "steps.py").write_text(steps)
        made, _ = submission(place / "flow.yaml", self.home.packages, self.home.state)
        flow_requests.apply(self.registry, made, state=lambda _: str(self.home.state), by="me")

    def adds(self, count: int = 100) -> None:
        """A file of records comes."""
        path = self.folder / "flow" / "data" / f".{self.files}"
        path.write_text("".join(f'{{"id": {self.files * count + n}}}\n' for n in range(count)))
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def finds(self) -> list[int]:
        """What has come out, in order."""
        files = (self.folder / "flow" / "out").glob("part-*")
        return sorted(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())

    def describes(self) -> dict[str, Any]:
        """What `status numbers` says."""
        return flow_records.describe(self.registry, "numbers")

    def standby(self) -> Any:
        """What `status numbers` says of the spare of its tier, without the address of its page."""
        said = self.describes()["tiers"][0]["standby"]
        return said and {name: value for name, value in said.items() if name != "http"}

    def wishes(self, goal: Any) -> None:
        """A person's word."""
        flow_requests.want(self.registry, "numbers", goal, by="me")

    def audits(self) -> tuple[str, ...]:
        """What `scribengin audit` finds wrong."""
        audit = audit_flow(prepare(self.folder / "flow" / "flow.yaml", state=self.home.state))
        return tuple(violation for report in audit.reports for violation in report.violations)

    # --- what is there ---

    def run(self, tier: str = "main") -> Run | None:
        """Which worker is to serve the tier."""
        found = read_record(self.registry, RUN("numbers", tier))
        return found.record if isinstance(found, Stored) else None

    def report(self, tier: str = "main") -> Report | None:
        """What its worker says."""
        found = read_record(self.registry, REPORT("numbers", tier))
        return found.record if isinstance(found, Stored) else None

    def holder(self, tier: str = "main") -> tuple[int, int] | None:
        """Who holds the tier's lease: (its number, its Term)."""
        there = self.registry.read(LEASE("numbers", tier).path)
        return (there.value["run"], there.made) if isinstance(there, RegistryEntry) else None

    def processes(self, machine: str, worker: str) -> list[Process]:
        """All of a worker: its Python, its JVM, the JVM's Pythons; not its keeper."""
        return marked_processes((self.folder / machine).resolve()).get(worker, [])

    def sends(self, machine: str, worker: str, number: signal.Signals) -> None:
        """Send a signal to all of a worker: stopped so, it is as on a machine that sleeps."""
        for process in self.processes(machine, worker):
            process.send(number)

    def driver(self, machine: str, worker: str) -> Process:
        """The first process of a worker."""
        (seen,) = (seen for seen in self.launchers[machine].observe() if seen.worker == worker)
        assert seen.pid is not None
        (process,) = (process for process in self.processes(machine, worker) if process.pid == seen.pid)
        return process

    def jvm(self, machine: str, worker: str) -> Process:
        """Spark's."""
        return next(process for process in self.processes(machine, worker) if _words(process.pid)[0].endswith(b"java"))


def _words(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
