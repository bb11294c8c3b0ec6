"""A control plane as a user runs it: a master and a node as programs of this machine, and the command line. For tests, campaigns and demos
whose workers run in a cluster. Linux only: processes are found by `/proc`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from harness.faults.control.processes import processes_with
from harness.faults.drivers import plain_environment
from scribengin.core.storage import make_folder, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from scribengin.embedded.zookeeper import ZooKeeper

WITHIN_S = 400.0
"""the time limit of each recovery"""
LOOK_S = 0.3
_LEADS_WITHIN_S = 60.0
_NUMBERS = """\
version: 1
name: {name}
sources: {{numbers: {{type: files, path: {data}, format: json, schema: "id BIGINT"}}}}
steps: {{odd: {{from: numbers, filter: id % 2 = 1}}}}
sinks: {{kept: {{from: odd, {sink}, format: json}}}}
tiers: {{all: {{steps: [odd], resources: {resources}}}}}
"""
_COMMAND_S = 600.0
_MARK = "CONTROL_PROGRAMS"
"""an environment variable of all processes that are started here, and of their children; the cluster's processes do not have it"""


def numbers_flow(name: str, data: Path, sink: str, resources: str) -> str:
    """The text of a flow that keeps the odd numbers of files.

    Args:
        name: its name.
        data: the folder of the files.
        sink: the type and the place of the sink, in YAML.
        resources: the resources of its tier `all`, in YAML.
    """
    return _NUMBERS.format(name=name, data=data, sink=sink, resources=resources)


class NotInTime(Exception):
    """Something that was awaited did not happen; the message has the last words of the control plane."""


class ControlPrograms:
    """A master, a node and the command line. A context manager: the programs end after its block, and what they have started on this
    machine."""

    def __init__(self, folder: Path, keeper: ZooKeeper, *, stop: threading.Event | None = None) -> None:
        """Prepare it.

        Args:
            folder: a new folder for all files.
            keeper: the ZooKeeper of the registry.
            stop: when it is set, waiting raises KeyboardInterrupt.
        """
        self.folder = folder.absolute()
        self.keeper = keeper
        self._stop = stop or threading.Event()
        self._programs: dict[str, subprocess.Popen[bytes]] = {}

    def program_options(self, name: str) -> tuple[str, ...]:
        """The options of a program, `master` or `node`, besides its folder and the registry."""
        raise NotImplementedError

    def start_control(self) -> None:
        """Start the master and the node, and return when the node can take workers. Raises NotInTime."""
        make_folder(self.folder)
        replace(self.folder / "login", b"me:a-password-of-some-length\n", private=True)
        for name in ("master", "node"):
            self.start_program(name)
            self.wait_for(lambda name=name: b" is up: " in (self.folder / f"{name}.log").read_bytes(), f"the {name}")  # type: ignore[misc]
        self.wait_for(lambda: bool(self.says("node", "list")), "a node")

    def apply(self, file: str, *words: str) -> None:
        """Apply a flow file. Raises NotInTime: it is refused for a minute, in which a master must have begun to lead."""
        give_up_s = time.monotonic() + _LEADS_WITHIN_S
        while self.says("apply", file, *words) is None:
            if time.monotonic() > give_up_s:
                raise NotInTime(f"{file} was not applied; {self.last_words()}")
            self.pause(LOOK_S)

    def start_program(self, name: str) -> None:
        """Start the master or the node, in its folder."""
        command = [sys.executable, "-m", "scribengin.cli", "server", name, "--home", str(self.folder / name)]
        command += [*self.program_options(name), *self._way]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._programs[name] = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill_program(self, name: str) -> None:
        """Kill the master or the node."""
        self._programs[name].kill()
        self._programs[name].wait()

    def says(self, *words: str) -> Any:
        """The result of a command; None if it failed."""
        command = [sys.executable, "-m", "scribengin.cli", *words, *self._way, "--json"]
        try:
            ended = subprocess.run(
                command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=_COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        if ended.returncode != 0:
            with (self.folder / "commands.log").open("a") as log:
                log.write(f"{' '.join(words)}: {ended.stdout}{ended.stderr}\n")
            return None
        return msgspec.json.decode(ended.stdout)["result"]

    def wait_for(self, what: Callable[[], bool], said: str) -> None:
        """Wait until a condition is true. Raises NotInTime after `WITHIN_S` seconds, KeyboardInterrupt if the campaign ends."""
        give_up_s = time.monotonic() + WITHIN_S
        while not what():
            if time.monotonic() > give_up_s:
                raise NotInTime(f"{said} did not come in {WITHIN_S:g} s; {self.last_words()}")
            self.pause(LOOK_S)

    def pause(self, seconds: float) -> None:
        """Wait for some seconds. Raises KeyboardInterrupt if the campaign ends."""
        if self._stop.wait(seconds):
            raise KeyboardInterrupt

    def last_words(self) -> str:
        """The ends of the logs of the control plane and of failed commands, and the states of the flows."""
        logs = [f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in self.folder.glob("*.log")]
        return "\n".join([*logs, str(self.says("list"))])

    @property
    def _way(self) -> list[str]:
        return ["--registry", f"zk://{self.keeper.address}/flows", "--login-file", str(self.folder / "login"), "--insecure"]

    @property
    def _environment(self) -> Mapping[str, str]:
        return plain_environment() | {_MARK: str(self.folder)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for _ in range(20):  # clients that submit an application outlive the node
            left = list(processes_with(_MARK, str(self.folder)))
            if not left:
                break
            for found in left:
                found.process.send(signal.SIGKILL)
            time.sleep(LOOK_S)
        for program in self._programs.values():
            program.wait()
