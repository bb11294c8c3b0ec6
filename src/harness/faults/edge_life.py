"""The edge under strikes: agents, gateways behind proxies, a channel, the workers of a flow, hosts that write and rotate; and the judge of
what came out."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from harness.control_programs import NotInTime
from harness.edge_plane import EdgePlane, EdgeVerdict, free_port, json_rows, verdict
from harness.faults.edge_hosts import ROTATIONS, RotatingHost
from harness.faults.edge_proxy import EdgeProxy
from harness.faults.small_disk import SmallDisk
from scribengin.core.faults import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scribengin.embedded.kafka import KafkaCluster
    from scribengin.wire.protocol import HopDurability

LANE = "edge.access"
TIMEOUT_S = 3.0
"""how long agents wait for an answer"""
_TOKEN = "a-token-of-agents"
_LOOK_S = 0.3
_MOST_ENDED = 12
"""how often workers may end by themselves in one life: a start without a broker ends"""
_BUGS = ("Traceback (most recent call last)", "the gateway failed; its log says why", "sending failed:")

_SITE = """\
import os
import time


def _move_clock(file):
    # the clock of this process is wrong by the seconds in a file
    right, right_ns = time.time, time.time_ns

    def offset_s():
        try:
            with open(file) as text:
                return float(text.read() or 0)
        except (OSError, ValueError):
            return 0.0

    time.time = lambda: right() + offset_s()
    time.time_ns = lambda: right_ns() + int(offset_s() * 1e9)


def _lose_power(folder):
    # at a start with a file "lost" in the folder, segments of a log have only what was synced
    from scribengin.wal.files import LogFolder
    from scribengin.wal.segments import first_of

    real_sync, real_rename, real_lock = LogFolder.sync, LogFolder.rename, LogFolder.lock

    def sync(self, handle):
        real_sync(self, handle)
        name = os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))
        with open(os.path.join(folder, name), "w") as file:
            file.write(str(os.fstat(handle).st_size))

    def rename(self, old, new):
        real_rename(self, old, new)
        if os.path.exists(os.path.join(folder, old)):
            os.replace(os.path.join(folder, old), os.path.join(folder, new))

    def lock(self):
        real_lock(self)
        if os.path.exists(os.path.join(folder, "lost")):
            os.remove(os.path.join(folder, "lost"))
            for name in self.names():
                if first_of(name) is not None:
                    try:
                        with open(os.path.join(folder, name)) as file:
                            size = int(file.read() or 0)
                    except FileNotFoundError:
                        size = 0
                    os.truncate(self.path / name, min(size, os.path.getsize(self.path / name)))

    LogFolder.sync, LogFolder.rename, LogFolder.lock = sync, rename, lock


if os.environ.get("EDGE_CLOCK"):
    _move_clock(os.environ["EDGE_CLOCK"])
if os.environ.get("EDGE_POWER"):
    _lose_power(os.environ["EDGE_POWER"])
if os.environ.get("EDGE_BROKEN"):
    exec(os.environ["EDGE_BROKEN"])
"""
"""What each process of a life runs at its start, by its environment: a wrong clock, a loss of power, a fault put into the code."""


@dataclass(frozen=True, kw_only=True)
class EdgeShape:
    """What a life is made of.

    Attributes:
        channel: The kind of channel, between gateways and the first tier and between the tiers.
        tiers: One or two.
        durability: Of the hop from the agents.
        sync: When their logs are made durable.
        compression: Of frames.
        rate: Lines a second of each host.
        agents: How many.
        rotate_s: The mean time between rotations of a host.
        rotations: Which ways to rotate are used.
    """

    channel: Literal["folder", "kafka"] = "folder"
    tiers: int = 1
    durability: HopDurability = "end_to_end"
    sync: str = "100ms"
    compression: str = "zstd"
    rate: float = 40.0
    agents: int = 3
    rotate_s: float = 3.0
    rotations: tuple[str, ...] = ROTATIONS
    light: bool = False
    """the only tier runs without Spark (`edge_reader`)"""

    @staticmethod
    def of_seed(seed: int, *, light: bool = False) -> EdgeShape:
        """The shape of a life: channels alternate, most lives are end to end."""
        rng = random.Random(f"{seed}/shape")
        durability: HopDurability = "store_on_failure" if seed % 5 == 3 else "best_effort" if seed % 5 == 4 else "end_to_end"
        return EdgeShape(
            channel="kafka" if seed % 2 else "folder",
            tiers=2 if seed % 4 in (1, 2) and not light else 1,
            light=light,
            durability=durability,
            sync=rng.choice(("each", "100ms", "64KiB")),
            compression="none" if durability == "best_effort" else rng.choice(("none", "gzip", "zstd", "lz4")),
            rate=300.0 if durability == "best_effort" else 40.0,
        )

    def __str__(self) -> str:
        tiers = "one tier without Spark" if self.light else "one tier" if self.tiers == 1 else f"{self.tiers} tiers"
        return f"{self.durability} over a {self.channel} channel, {tiers}, sync {self.sync}, {self.compression}"

    def flow(self) -> str:
        """The text of the flow file."""
        kafka = self.channel == "kafka"
        place = '{type: kafka, topic: edge-access, bootstrap: "${env:BOOTSTRAP}"}' if kafka else '{type: folder, path: "${env:CHANNEL}"}'
        tiers = (
            "  whole: {steps: [sorted, pages, errors]}"
            if self.tiers == 1
            else "  sort: {steps: [sorted]}\n  keep: {steps: [pages, errors]}"
        )
        edges = ""
        if self.tiers == 2:
            channel = '{type: kafka, bootstrap: "${env:BOOTSTRAP}"}' if kafka else "{type: folder}"
            edges = "edges:\n" + "".join(
                f'  "sorted.{port} -> {sink}": {{channel: {channel}}}\n' for port, sink in (("served", "pages"), ("failed", "errors"))
            )
        spill = "    spill: 1MiB\n" if self.durability == "best_effort" else ""
        return f"""\
version: 1
name: edge
defaults: {{trigger: 500ms}}
sources:
  access:
    type: agents
    input: tail
    path: "${{env:LOGS}}/{{agent}}/access.log*"
    poll: 100ms
    format: json
    schema: n BIGINT NOT NULL, status INT, page STRING, sum BIGINT, pad STRING
    metadata: [agent, file, line]
    durability: {self.durability}
    sync: {self.sync}
    compression: {self.compression}
{spill}    timeout: 2s
    channel: {place}
steps:
  sorted: {{from: access, route: {{served: status < 500, otherwise: failed}}}}
sinks:
  pages: {{from: sorted.served, type: files, path: "${{env:OUT}}/pages", format: json}}
  errors: {{from: sorted.failed, type: files, path: "${{env:OUT}}/errors", format: json}}
tiers:
  edge: {{agents: web}}
{tiers}
{edges}"""

    @property
    def workers(self) -> tuple[str, ...]:
        """The tiers that workers run."""
        return ("whole",) if self.tiers == 1 else ("sort", "keep")


class EdgeLife(EdgePlane):
    """All processes of a life, its hosts and its proxies. A context manager; nothing is left at its end.

    Args:
        folder: Where everything lies.
        shape: What the life is made of.
        seed: Of the hosts.
        limit_s: The longest time until all is committed at the end.
        stop: When it is set, waits raise KeyboardInterrupt.
        broken: Name of a process → code that it runs at its start, to check that its fault is found.
    """

    def __init__(
        self,
        folder: Path,
        shape: EdgeShape,
        *,
        seed: int,
        limit_s: float = 300.0,
        stop: threading.Event | None = None,
        broken: Mapping[str, str] | None = None,
    ) -> None:
        names = {"LOGS": str(folder / "logs"), "OUT": str(folder / "out"), "CHANNEL": str(folder / "channel")}
        super().__init__(folder, folder / "flow.yaml", names)
        self.shape = shape
        self.limit_s = limit_s
        self.agents = [f"web{number}" for number in range(1, shape.agents + 1)]
        self.gateways = ["gateway1", "gateway2"]
        self.proxies: dict[str, EdgeProxy] = {}
        self.hosts: list[RotatingHost] = []
        self.kafka: KafkaCluster | None = None
        self.wrong: list[str] = []
        self.ended: list[str] = []
        """processes that ended by themselves and were started again"""
        self.doomed: set[str] = set()
        """processes that are expected to end"""
        self._seed = seed
        self._stop = stop or threading.Event()
        self._faults: dict[str, str] = {}
        """process → the crash points of its next start"""
        self._broken = dict(broken or {})
        self._disks: dict[str, SmallDisk] = {}
        self._stack = ExitStack()
        self._guard = threading.RLock()
        self._watching = threading.Event()
        self._watch: threading.Thread | None = None

    # start and end

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        self.flow.write_text(self.shape.flow())
        self._write_tokens(self.agents)
        site = self.folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE)
        if self.shape.channel == "kafka":
            from scribengin.embedded.jars import fetch
            from scribengin.embedded.kafka import JARS, KafkaCluster

            fetch(JARS, lambda _: None)
            self.kafka = self._stack.enter_context(KafkaCluster(self.folder / "kafka"))
            self.environment = {**self.environment, "BOOTSTRAP": self.kafka.bootstrap}
        os.environ.update(self.environment)
        for tier in self.shape.workers:
            self.start_worker(tier)
        for name in self.gateways:
            self.add_gateway(name)
        for name in self.gateways:
            self.start_gateway(name)
        for name in self.agents:
            host = RotatingHost(
                self.folder / "logs",
                name,
                rate=self.shape.rate,
                rotate_s=self.shape.rotate_s,
                seed=self._seed,
                rotations=self.shape.rotations,
                is_read=partial(self._has_read, name),
            )
            host.start()
            self.hosts.append(host)
            self.start_agent(name)
        self._watch = threading.Thread(target=self._keep, name="watch", daemon=True)
        self._watch.start()

    def __exit__(self, *_: object) -> None:
        self._watching.set()
        if self._watch is not None:
            self._watch.join(30)
        for host in self.hosts:
            host.end()
        for name in list(self.running):
            self.signal(name, signal.SIGCONT)
        super().__exit__()
        self._stack.close()

    def _has_read(self, name: str, number: int) -> bool:
        lane = self.agent_status(name).get(LANE, {})
        process = self.running.get(name)
        return process is not None and process.poll() is None and name not in self.doomed and lane.get("committed", 0) >= number

    def _keep(self) -> None:
        """Start processes again that ended by themselves: a worker that found no broker. Others must not."""
        while not self._watching.wait(_LOOK_S):
            with self._guard:
                for name in self.dead():
                    if name in self.doomed:
                        continue
                    status = self.running.pop(name).returncode
                    self.ended.append(f"{name} with {status}")
                    if name not in self.shape.workers:
                        self.wrong.append(f"{name} ended by itself with {status}: {' '.join(self.log(name)[-500:].split())}")
                    if len(self.ended) <= 3 * _MOST_ENDED:
                        self.start(name)

    # processes

    def start(self, name: str) -> None:
        """Start an agent, a gateway or a worker again."""
        if name in self.agents:
            self.start_agent(name)
        elif name in self.shape.workers:
            self.start_worker(name)
        else:
            self.start_gateway(name)

    def arm(self, name: str, faults: str) -> None:
        """Arm crash points for the next starts of a process; none if empty."""
        self._faults[name] = faults

    def add_gateway(self, name: str) -> None:
        """Give a gateway its port and its proxy."""
        self._ports[name] = free_port()
        self.proxies[name] = self._stack.enter_context(EdgeProxy(self._ports[name]))

    def start_gateway(self, name: str) -> None:
        """Start a gateway, or start it again."""
        members = [word for each in self.gateways for word in ("--member", self.url(each))]
        listen = ("--listen", f"127.0.0.1:{self._ports[name]}", "--folder", str(self.folder / name))
        words = ("gateway", "run", "--flow", str(self.flow), "--name", name, *listen, "--state", str(self.state), *members)
        tokens = ("--tokens", str(self.folder / "tokens"))
        self._start(name, [sys.executable, "-m", "scribengin.cli", *words, *tokens])

    def start_worker(self, tier: str) -> None:
        """Start the run of a tier, or start it again."""
        if self.shape.light:
            words = (str(self.flow), str(self.state), str(self.folder / "out/pages"))
            self._start(tier, [sys.executable, "-m", "harness.faults.edge_reader", *words])
        else:
            super().start_worker(tier)

    def start_agent(self, name: str) -> None:
        """Start an agent, or start it again."""
        self._start(name, self.agent_words(name))

    def agent_words(self, name: str) -> list[str]:
        """The command line of an agent."""
        gateways = [word for each in self.gateways for word in ("--gateway", self.url(each))]
        data = self.folder / "agents" / name
        words = ["--name", name, "--group", self.group, "--data", str(data), *gateways, "--timeout", str(TIMEOUT_S), "--level", "debug"]
        command = [sys.executable, "-m", "scribengin.agent", *words, "--token-file", str(self.folder / "token")]
        disk = self._disks.get(name)
        return command if disk is None else disk.wrap(command, self.folder)

    def url(self, gateway: str) -> str:
        """The address of a gateway for agents: of its proxy."""
        return f"http://127.0.0.1:{self.proxies[gateway].port}"

    def _start(self, name: str, words: Sequence[str]) -> None:
        with self._guard:
            own = {
                VARIABLE: self._faults.get(name, ""),
                "EDGE_CLOCK": str(self.clock_file(name)),
                "EDGE_POWER": str(self.power_folder(name)) if name in self.agents else "",
                "EDGE_BROKEN": self._broken.get(name, ""),
                "PYTHONPATH": os.pathsep.join(filter(None, (str(self.folder / "site"), os.environ.get("PYTHONPATH", "")))),
            }
            before, self.environment = self.environment, {**self.environment, **own}
            try:
                super()._start(name, words)
            finally:
                self.environment = before

    def clock_file(self, name: str) -> Path:
        """The file with the seconds by which the clock of a process is wrong."""
        return self.folder / f"{name}.clock"

    def power_folder(self, name: str) -> Path:
        """The folder that says how much of an agent's log is durable; with a file `lost` in it, its next start finds nothing else."""
        folder = self.folder / f"{name}.power"
        folder.mkdir(exist_ok=True)
        return folder

    def kill(self, name: str, *, by: signal.Signals = signal.SIGKILL) -> None:
        """Kill a process with all that it has started, and wait until it is gone."""
        with self._guard:
            self.doomed.discard(name)
            super().kill(name, by=by)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process and all that it has started."""
        process = self.running.get(name)
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def has_ended(self, name: str) -> bool:
        """True if a process is not there, or has ended."""
        process = self.running.get(name)
        return process is None or process.poll() is not None

    # the small disk of an agent

    def put_on_small_disk(self, name: str, size: str) -> SmallDisk:
        """From the next start on, the data of an agent is on a disk of its own, which has what the folder had."""
        folder = self.folder / "agents" / name
        kept = self.folder / f"{name}.kept"
        folder.rename(kept)
        disk = self._stack.enter_context(SmallDisk(folder, size))
        _copy(kept, disk.seen(folder))
        self._disks[name] = disk
        return disk

    def agent_folder(self, name: str) -> Path:
        """The data folder of an agent, as this process sees it."""
        folder = self.folder / "agents" / name
        disk = self._disks.get(name)
        return folder if disk is None else disk.seen(folder)

    def agent_status(self, name: str) -> dict[str, Any]:
        """See `EdgePlane`."""
        import json

        try:
            status = json.loads((self.agent_folder(name) / "status.json").read_bytes())
        except (OSError, ValueError):
            return {}
        lanes: dict[str, Any] = status.get("report", {}).get("lanes", {})
        return lanes

    # tokens

    def _write_tokens(self, agents: Sequence[str]) -> None:
        draft = self.folder / "tokens.new"
        draft.write_text("".join(f"{name}: {_TOKEN}\n" for name in agents) or "# none\n")
        draft.rename(self.folder / "tokens")
        (self.folder / "token").write_text(_TOKEN)

    def allow(self, agents: Sequence[str]) -> None:
        """Let the token be valid for these agents only."""
        self._write_tokens(agents)

    # waiting

    def pause(self, seconds: float) -> None:
        """Sleep. Raises KeyboardInterrupt if the campaign is to end."""
        if self._stop.wait(seconds):
            raise KeyboardInterrupt

    def wait_for(self, holds: Callable[[], Any], what: str, limit_s: float | None = None) -> Any:
        """Wait until something is true, and return it. Raises NotInTime."""
        limit_s = limit_s or self.limit_s
        give_up_s = time.monotonic() + limit_s
        while not (found := holds()):
            if time.monotonic() > give_up_s:
                raise NotInTime(f"not within {limit_s:g} s: {what}; {self.line()}")
            self.pause(0.2)
        return found

    def lanes(self) -> dict[str, dict[str, Any]]:
        """The lane of each agent, as it last said."""
        return {name: self.agent_status(name).get(LANE, {}) for name in self.agents}

    def wait_arrival(self) -> None:
        """Wait until lines that are written from now on are committed (or stored, where agents do not wait for commits)."""
        goals = {host.name: host.number for host in self.hosts}
        key = "committed" if self.shape.durability == "end_to_end" else "stored"

        def there() -> bool:
            lanes = self.lanes()
            return all(lanes[name].get(key, 0) >= goal for name, goal in goals.items())

        self.wait_for(there, f"what was written is {key}")

    def line(self) -> str:
        """Where the records are, in a line."""
        lanes = list(self.lanes().values())
        figures = [sum(lane.get(name, 0) for lane in lanes) for name in ("read", "stored", "committed", "dropped")]
        messages = "; ".join(dict.fromkeys(f"{lane.get('state')}: {lane['message']}" for lane in lanes if lane.get("message")))
        written = sum(host.number for host in self.hosts)
        text = f"{written:,} written, {figures[0]:,} read, {figures[1]:,} stored, {figures[2]:,} committed, {figures[3]:,} dropped"
        return text + (f" ({messages[:600]})" if messages else "")

    # the end

    def arrived(self) -> EdgeVerdict:
        """What is in the sinks now."""
        return verdict({host.name: host.number for host in self.hosts}, json_rows(self.folder / "out/pages", self.folder / "out/errors"))

    def finish(self) -> EdgeVerdict:
        """Let the hosts end, wait until all is committed, and judge."""
        for host in self.hosts:
            host.end()
            if host.fault is not None:
                self.wrong.append(f"the host {host.name} failed: {host.fault}")
        try:
            self.wait_for(self._all_there, "everything is committed")
        except NotInTime as error:
            self.wrong.append(str(error))
        self._watching.set()
        with self._guard:
            for tier in self.shape.workers:
                self.kill(tier, by=signal.SIGTERM)
        if not self.shape.light:
            self._audit()
        found = self.arrived()
        self._judge(found)
        return found

    def _audit(self) -> None:
        audit = self.scribengin("audit", str(self.flow), "--state", str(self.state))
        if audit.returncode:
            self.wrong.append(f"audit exits with {audit.returncode}: {' '.join((audit.stdout + audit.stderr)[-600:].split())}")

    def _all_there(self) -> bool:
        lanes = self.lanes()
        if not all(lane.get("read", -1) >= host.number for host, lane in zip(self.hosts, lanes.values(), strict=True)):
            return False
        if self.shape.durability == "end_to_end":
            return all(lane["committed"] >= lane["read"] for lane in lanes.values())
        if not all(lane["stored"] >= lane["read"] and not lane.get("waiting_bytes") for lane in lanes.values()):
            return False
        found = self.arrived()
        dropped = sum(lane.get("dropped", 0) for lane in lanes.values())
        return bool(found.found + dropped >= found.expected)

    def _judge(self, found: EdgeVerdict) -> None:
        dropped = {name: lane.get("dropped", 0) for name, lane in self.lanes().items()}
        if self.shape.durability != "best_effort":
            dropped = dict.fromkeys(dropped, 0)
        lost = {name: len(found.lost.get(name, ())) for name in dropped}
        if found.doubled or found.changed or lost != dropped:
            self.wrong.append(f"{found}; dropped by agents: {sum(dropped.values()):,} ({found.changed[:2]})")
        if len(self.ended) > _MOST_ENDED:
            self.wrong.append(f"processes ended by themselves {len(self.ended)} times: {self.ended[:5]}")
        for name in (*self.agents, *self.gateways, *self.proxies):
            text = self.log(name)
            for bug in _BUGS:
                if (at := text.find(bug)) >= 0:
                    self.wrong.append(f"the log of {name}: {' '.join(text[max(0, at - 200) : at + 1200].split())}")
                    break


def _copy(source: Path, target: Path) -> None:
    import shutil

    shutil.copytree(source, target, dirs_exist_ok=True)
