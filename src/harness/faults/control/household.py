"""A control plane in a folder of its own: a real `scribengin server dev`, the processes that it has started, and the command line as a user
runs it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

import msgspec

from harness.faults.control.processes import processes_with
from harness.faults.control.wire import ProxyWire
from harness.faults.drivers import CampaignEnded, Hung, plain_environment
from scribengin.client.client import Client
from scribengin.core.errors import ScribenginError
from scribengin.launch.marks import VARIABLE

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from harness.faults.control.processes import FoundProcess
    from harness.faults.small_disk import SmallDisk
    from scribengin.core.process import Process

UP_WITHIN_S = 240.0
_COMMAND_S = 300.0
_ANSWER_S = 3.0
_POLL_S = 0.2
_UP = "harness.faults.control.up_behind"
_BESIDE = {"node", "master"}
"""commands that start processes of the household"""
_API = re.compile(r" is up: API (http\S+?),")
_SMALL = {"SCRIBENGIN_PORTION_BYTES": "65536"}
"""small, so that workers of a tier share Batches of a few files"""
_MARK = "FAULTS_HOUSEHOLD"
"""an environment variable of all processes that are started here, and of their children"""


class Refusal(Exception):
    """A command that ended with another status than 0; with its message."""

    def __init__(self, words: tuple[str, ...], status: int, said: str, codes: tuple[str, ...]) -> None:
        super().__init__(f"scribengin {' '.join(words)} ended with {status}: {said}")
        self.codes = codes


@dataclass(frozen=True, slots=True)
class HouseholdProcess:
    """A process of the household. `role` is `up`, `node` (the node process of an additional host), `master` (an additional one),
    `zookeeper`, `keeper`, `python` (a worker's own), `jvm` (its Spark), `task` (started by Spark) or `other`. `worker` is the worker that
    it belongs to, `host` the additional host or master."""

    process: Process
    role: str
    worker: str = ""
    host: str = ""


@dataclass
class Household:
    """A control plane with all of its files in `folder`. A context manager that ends all remaining processes."""

    folder: Path
    stop: threading.Event
    """when it is set, waiting raises CampaignEnded"""
    java: Mapping[str, str]
    disk: SmallDisk | None = None
    """the disk of `folder`, as the processes see it"""
    up: subprocess.Popen[bytes] | None = None
    starts: int = 0
    voting: int = 1
    """number of servers of its ZooKeeper; with several there is no wire in front of them"""
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """host → node process, for additional hosts"""
    masters: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """name → process, for additional masters"""
    wire: ProxyWire = field(init=False)

    def __post_init__(self) -> None:
        self.wire = ProxyWire(self.zookeeper_port)

    @property
    def home(self) -> Path:
        """The home folder, as the processes see it."""
        return self.folder / "home"

    def seen(self, path: Path) -> Path:
        """A path as this process sees it."""
        return path if self.disk is None else self.disk.seen(path)

    @property
    def logs(self) -> Path:
        """The folder for the logs of `up`; it is outside of `folder`, which may be full."""
        return self.folder.with_name(f"{self.folder.name}-logs")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its processes, with the variable that identifies them."""
        return plain_environment() | dict(self.java) | {"SCRIBENGIN_HOME": str(self.home), _MARK: str(self.folder), **_SMALL}

    def start(self) -> None:
        """Start `scribengin server dev` and wait until it is up. Raises Hung if it does not come up."""
        self.begin()
        self.wait_up()

    def begin(self) -> None:
        """Start `scribengin server dev` without waiting."""
        if self.up is not None:
            self.up.wait()  # it was killed
        self.starts += 1
        self.logs.mkdir(exist_ok=True)
        voting = [str(self.voting)] if self.voting > 1 else []
        command = self.wrapped([sys.executable, "-m", _UP, str(self.wire.port), *voting])
        with (self.logs / f"up-{self.starts}.log").open("wb") as log:
            self.up = subprocess.Popen(
                command, cwd=self.logs, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_up(self) -> None:
        """Wait until the started `scribengin server dev` is up. Raises Hung."""
        assert self.up is not None
        up = self.up

        def is_up() -> bool:
            if (status := up.poll()) is not None:
                raise Hung(f"up has ended with {status}: {self._up_said()}")
            with suppress(OSError, msgspec.DecodeError):
                return bool(msgspec.json.decode(self.seen(self.home / "up.json").read_bytes())["pid"] == up.pid)
            return False

        self.wait_for(is_up, "up", UP_WITHIN_S, lambda: f"up did not come up: {self._up_said()}")

    def start_node(self, name: str) -> None:
        """Start an additional host with a folder of its own; data, outputs and state of flows are shared. Raises Hung."""
        self.nodes[name] = self._start_beside("node", name, self.nodes.get(name))

    def start_master(self, name: str) -> None:
        """Start an additional master with a folder of its own. Raises Hung."""
        self.masters[name] = self._start_beside("master", name, self.masters.get(name), "--state", str(self.home / "state"))

    def _start_beside(self, kind: str, name: str, before: subprocess.Popen[bytes] | None, *more: str) -> subprocess.Popen[bytes]:
        folder = self._folder_of(name)
        self.seen(folder).mkdir(exist_ok=True)
        registry = msgspec.json.decode(self.seen(self.home / "up.json").read_bytes())["registry"]
        login = self.home / "registry.login"
        command = ["server", kind, "--name", name, "--home", str(folder), "--registry", registry, "--login-file", str(login), *more]
        if before is not None:
            before.wait()  # it was killed
        path = self._log_of(kind, name)
        with path.open("ab") as log:
            begun = subprocess.Popen(
                self.wrapped([sys.executable, "-m", "scribengin.cli", *command]),
                cwd=self.logs,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        said = path.stat().st_size

        def is_up() -> bool:
            if (status := begun.poll()) is not None:
                raise Hung(f"{kind} {name} has ended with {status}: {path.read_text(errors='replace')[-1000:]}")
            return b" is up: " in path.read_bytes()[said:]

        try:
            self.wait_for(is_up, f"{kind} {name}", UP_WITHIN_S)
        except BaseException:
            begun.kill()
            begun.wait()
            raise
        return begun

    def address_of(self, master: str) -> str:
        """The address of the API of an additional master."""
        return str(_API.findall(self._log_of("master", master).read_text(errors="replace"))[-1])

    def query_states(self, flow: str) -> set[str]:
        """The states of all queries of a flow, by the last reports of its workers; empty if no master answers."""
        with suppress(ScribenginError, OSError, msgspec.DecodeError):
            url = msgspec.json.decode(self.seen(self.home / "up.json").read_bytes())["http"]
            with Client([url]) as client:
                return {query["state"] for tier in client.metrics(flow)["tiers"] for query in tier["queries"]}
        return set()

    def leader(self) -> HouseholdProcess | None:
        """The process that leads, according to an additional master that answers; None if none answers, or none leads."""
        for name, process in self.masters.items():
            if process.poll() is None and (said := _masters(self.address_of(name))) is not None:
                leads = next((master["id"] for master in said if master["leads"]), None)
                role, host = ("master", leads) if leads in self.masters else ("up", "")
                return next((part for part in self.parts() if leads and (part.role, part.host) == (role, host)), None)
        return None

    def says(self, *words: str) -> Any:
        """The result of a command. Raises Refusal."""
        command = self.wrapped([sys.executable, "-m", "scribengin.cli", *words, "--json"])
        try:
            ended = subprocess.run(command, env=self.environment, cwd=self.logs, capture_output=True, timeout=_COMMAND_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise Hung(f"scribengin {' '.join(words)} did not end in {_COMMAND_S:g} s") from error
        try:
            said = msgspec.json.decode(ended.stdout)
        except msgspec.DecodeError:
            said = {"result": None, "problems": [{"code": "", "message": (ended.stdout + ended.stderr).decode(errors="replace")[-2000:]}]}
        if ended.returncode:
            told = "; ".join(problem["message"] for problem in said["problems"]) or str(said["result"])[:1000]
            raise Refusal(words, ended.returncode, told, tuple(problem["code"] for problem in said["problems"]))
        return said["result"]

    def parts(self) -> list[HouseholdProcess]:
        """The current processes of the household, without zombies and without commands that a user runs."""
        return list(self._parts())

    def strike(self, number: signal.Signals, parts: Iterable[HouseholdProcess]) -> None:
        """Send a signal to processes."""
        for part in parts:
            part.process.send(number)

    def wait_for(self, what: Callable[[], bool], said: str, within_s: float, why: Callable[[], str] | None = None) -> None:
        """Wait until a condition is true. Raises Hung after the time limit, CampaignEnded if the campaign ends.

        Args:
            what: The condition.
            said: What is awaited, for the message.
            within_s: The time limit, in seconds.
            why: Returns the message of the error; None for a standard one.
        """
        give_up_s = time.monotonic() + within_s
        while not what():
            if time.monotonic() > give_up_s:
                raise Hung(why() if why else f"{said} did not come in {within_s:g} s")
            self.pause(_POLL_S)

    def pause(self, seconds: float) -> None:
        """Wait for some seconds. Raises CampaignEnded if the campaign ends."""
        if self.stop.wait(seconds):
            raise CampaignEnded

    def zookeeper_port(self) -> int | None:
        """The port of the ZooKeeper server behind the wire; None if it has none yet."""
        with suppress(OSError, msgspec.DecodeError):
            return int(
                msgspec.json.decode(self.seen(self.home / "zookeeper" / ("1" if self.voting > 1 else "") / "place.json").read_bytes())[
                    "port"
                ]
            )
        return None

    def sweep(self) -> list[str]:
        """Kill the remaining processes; returns their descriptions."""
        left = [(part.process.pid, part.role, part.worker) for part in self.parts()]
        for _ in range(20):
            parts = self.parts()
            if not parts:
                break
            self.strike(signal.SIGKILL, parts)
            time.sleep(_POLL_S)
        for process in (self.up, *self.nodes.values(), *self.masters.values()):
            if process is not None:
                process.wait()
        return [f"{role} {worker} ({pid})" for pid, role, worker in left]

    def _parts(self) -> Iterator[HouseholdProcess]:
        for found in processes_with(_MARK, str(self.folder)):
            if "scribengin.cli" not in found.words or _BESIDE & {*found.words}:
                role, worker = _role(found.words, found.environment.get(VARIABLE, "").partition(":")[2])
                yield HouseholdProcess(found.process, role, worker, self._host_of(found))

    def _folder_of(self, name: str) -> Path:
        return self.folder / f"host-{name}"

    def _log_of(self, kind: str, name: str) -> Path:
        return self.logs / f"{kind}-{name}.log"

    def _host_of(self, found: FoundProcess) -> str:
        homes = (found.environment.get("SCRIBENGIN_HOME"), *found.words)
        return next((name for name in (*self.nodes, *self.masters) if str(self._folder_of(name)) in homes), "")

    def wrapped(self, command: Sequence[str]) -> list[str]:
        """The command that runs `command` so that it sees the household's disk."""
        return list(command) if self.disk is None else self.disk.wrap(command, self.logs)

    def _up_said(self) -> str:
        return (self.logs / f"up-{self.starts}.log").read_text(errors="replace")[-1000:]

    def __enter__(self) -> Household:
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.wire.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.sweep()
        self.wire.__exit__(kind, error, trace)


def _masters(url: str) -> list[dict[str, Any]] | None:
    """The masters according to the one at `url`; None if it does not answer at once."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=_ANSWER_S)
    try:
        connection.request("GET", "/v1/masters")
        said: list[dict[str, Any]] = msgspec.json.decode(connection.getresponse().read())
        return said
    except (OSError, HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()


def _role(words: list[str], worker: str) -> tuple[str, str]:
    """The role of a process and its worker, from its command line."""
    if _UP in words:
        return "up", ""
    if "scribengin.cli" in words:
        return "node" if "node" in words else "master", ""
    if any(word.endswith(("ZooKeeperServerMain", "QuorumPeerMain")) for word in words) and words[0].endswith("java"):
        return "zookeeper", ""
    keeper = next((place for place, word in enumerate(words[:-1]) if word.endswith("keeper.py")), None)
    if keeper is not None:
        return "keeper", words[keeper + 1].rpartition("/")[2]
    if not worker:
        return "other", ""
    if "scribengin.worker" in words:
        return "python", worker
    return ("jvm" if words[0].endswith("java") else "task"), worker
