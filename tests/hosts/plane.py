"""Masters and nodes as real processes over a real ZooKeeper, each with its folder; and a person who looks at them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from scribengin.control import flow_records, flow_requests
from scribengin.core.secret import Secret
from scribengin.registry.access import DigestLogin, RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.records import TierSpec
from scribengin.registry.tree import LEADER, LEASE
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.registry.contract import Registry

WITHIN_S = 120.0
SLEEPER_PROGRAM = Path(__file__).with_name("master_program.py")
NODE_PROGRAM = Path(__file__).with_name("node_program.py")
HASTY = """
import sys
from scribengin.cli.main import main
from scribengin.control import worker_lifecycle
worker_lifecycle.REGAIN_S = float(sys.argv[1])
main(sys.argv[2:])
"""
"""a master with a patience of its own"""


def until(what: Callable[[], Any], said: str, within_s: float = WITHIN_S) -> Any:
    """Ask until it is true; what it said."""
    return look_until(what, said, within_s)


@dataclass
class Plane:
    """All that belongs to one registry root."""

    folder: Path
    address: RegistryAddress
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.login_file = self.folder / "login"
        self.login_file.write_text("masters:a-long-random-text")
        self.login_file.chmod(0o600)
        self.login = DigestLogin(Secret(self.login_file.read_text(), "file"))
        self.registry: Registry = ConnectionSettings(self.address, self.login).open(wait_s=60)

    # --- who is there ---

    def master(self, name: str, *, regain_s: float | None = None, state: str = "") -> subprocess.Popen[str]:
        """`scribengin server master`, until it is there. `regain_s`: how long a worker may be without its lease. `state`: a folder by
        default."""
        words = ["server", "master", *self.entrance, "--name", name, "--home", str(self.folder / name)]
        words += ["--state", state or str(self.folder / "state")]
        program = ["-m", "scribengin.cli"] if regain_s is None else ["-c", HASTY, str(regain_s)]
        return self._begin(name, [sys.executable, *program, *words], f"masters/{name}")

    def sleeper(self, name: str) -> subprocess.Popen[str]:
        """A master that stops itself in the middle of its first start of a worker."""
        (self.folder / name).mkdir()
        command = [sys.executable, str(SLEEPER_PROGRAM), str(self.address), str(self.login_file), name, str(self.folder / name)]
        return self._begin(name, command, f"masters/{name}")

    def node(self, name: str, *, cores: int = 0) -> subprocess.Popen[str]:
        """A node whose workers do nothing but hold their leases."""
        command = [sys.executable, str(NODE_PROGRAM), str(self.address), str(self.login_file), name, str(self.folder / name), str(cores)]
        return self._begin(name, command, f"physicalnodes/{name}/up")

    def armed_node(self, name: str, fault: str) -> subprocess.Popen[str]:
        """The same, with a crash point armed in its own process."""
        os.environ["SCRIBENGIN_FAULT"] = fault
        try:
            return self.node(name)
        finally:
            del os.environ["SCRIBENGIN_FAULT"]

    def real_node(self, name: str) -> subprocess.Popen[str]:
        """`scribengin server node`."""
        words = ["server", "node", *self.entrance, "--name", name, "--home", str(self.folder / name)]
        return self._begin(name, [sys.executable, "-m", "scribengin.cli", *words], f"physicalnodes/{name}/up")

    @property
    def entrance(self) -> list[str]:
        return ["--registry", str(self.address), "--login-file", str(self.login_file)]

    def kill(self, name: str) -> None:
        """As a crash does; its workers go on."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def says(self, *words: str, status: int = 0) -> Any:
        """A command with --json: its result; of one that ends otherwise its problems."""
        return self._said([*words, *self.entrance, "--home", str(self.folder / "person")], status)

    def says_openly(self, *words: str, status: int = 0) -> Any:
        """The same without a login."""
        return self._said([*words, "--registry", str(self.address), "--home", str(self.folder / "person")], status)

    def openly(self, program: str, name: str, sign: str) -> None:
        """A master or node over a registry that everybody may change."""
        words = [program, "--registry", str(self.address), "--insecure", "--name", name, "--home", str(self.folder / name)]
        self._begin(name, [sys.executable, "-m", "scribengin.cli", *words], sign)

    def _said(self, words: list[str], status: int) -> Any:
        command = [sys.executable, "-m", "scribengin.cli", *words, "--json"]
        ended = subprocess.run(command, cwd=self.folder, env=clean(), capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == status, f"{words}: {ended.stdout} {ended.stderr}"
        said = json.loads(ended.stdout)
        return said["result"] if not status else said["problems"]

    # --- what is there ---

    def apply(self, flow: str, *, by: Mapping[str, TierSpec] | None = None, **tiers: tuple[str, ...]) -> None:
        """A flow of tiers that do nothing."""
        specs = dict(by) if by is not None else {tier: TierSpec(feeders=feeders) for tier, feeders in tiers.items()}
        submission = flow_requests.Submission(flow, "0" * 64, "flow.yaml", "/base", specs)
        flow_requests.apply(self.registry, submission, state=lambda _: "/state", by="me")

    def state(self, flow: str) -> str:
        status = flow_records.read_flow(self.registry, flow).status
        return "" if status is None else status.state

    def comes_to(self, flow: str, state: str, within_s: float = WITHIN_S) -> None:
        until(lambda: self.state(flow) == state, f"{flow} {state}", within_s)

    def leader(self) -> str:
        """Its name; empty where there is none."""
        there = self.registry.read(LEADER().path)
        return str(there.value.get("id", "")) if isinstance(there, RegistryEntry) else ""

    def holder(self, flow: str, tier: str) -> Mapping[str, Any]:
        """What who runs the tier says of itself; nothing where nobody does."""
        there = self.registry.read(LEASE(flow, tier).path)
        return there.value if isinstance(there, RegistryEntry) else {}

    def worker(self, flow: str, tier: str) -> psutil.Process:
        return psutil.Process(until(lambda: self.holder(flow, tier).get("pid"), f"{flow}.{tier} held"))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    # --- the end ---

    def close(self) -> None:
        """Nothing of it is left."""
        self.registry.close()
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("SCRIBENGIN_REGISTRY") == str(self.address)
            except psutil.Error:
                continue
            if mine:
                process.kill()

    def _begin(self, name: str, command: list[str], sign: str) -> subprocess.Popen[str]:
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=clean(), stdout=log, stderr=log, text=True)
        self.processes[name] = process

        def there() -> bool:
            assert process.poll() is None, self.log(name)
            found = self.registry.read(sign)
            return isinstance(found, RegistryEntry) and found.value.get("pid") == process.pid

        until(there, f"{name} up")
        return process


def clean() -> dict[str, str]:
    """The environment without what a surrounding control plane may have put there."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SCRIBENGIN_REGISTRY", "SCRIBENGIN_HOME"))}
