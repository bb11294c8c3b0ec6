"""Agents, gateways and workers as real processes over a real broker, hosts that write logs, and a reader of what came out of it all: for
the demo, the fault campaign and tests of the edge."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_PAGES = ("/", "/cart", "/pay", "/search?q=shoes", "/item/17")
_LINE_BYTES = 200
_ROTATIONS = ("rename", "gzip", "delete")


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def log_line(agent: str, number: int) -> bytes:
    """A line of about 200 bytes: its number, and a sum over number and agent, by which a changed line is known."""
    status = 500 if number % 50 == 0 else 200
    record: dict[str, Any] = {"n": number, "status": status, "page": _PAGES[number % len(_PAGES)], "sum": line_sum(agent, number)}
    bare = json.dumps(record).encode()
    record["pad"] = "x" * max(0, _LINE_BYTES - len(bare) - 12)
    return json.dumps(record).encode() + b"\n"


def line_sum(agent: str, number: int) -> int:
    """The sum of a line."""
    return zlib.crc32(f"{agent} {number}".encode())


class LogHost(threading.Thread):
    """A host that writes lines into `access.log`, at a rate, sometimes in two parts, and rotates it. `number` is the next line's."""

    def __init__(self, folder: Path, name: str, *, rate: float, rotate_every: int, seed: int, lines: int = 10**9) -> None:
        super().__init__(name=name, daemon=True)
        self.path = folder / name / "access.log"
        self.number = 0
        self.rotations = 0
        self._lines, self._rate, self._rotate_every = lines, rate, rotate_every
        self._random = random.Random(f"{seed} {name}")
        self._ended = threading.Event()
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """Write until all lines are written, or `end`."""
        file = self.path.open("ab", buffering=0)
        begun_s, since_rotation = time.monotonic(), 0
        try:
            while self.number < self._lines and not self._ended.is_set():
                due = min(self._lines, int((time.monotonic() - begun_s) * self._rate) + 1)
                if due <= self.number:
                    time.sleep(0.01)
                    continue
                data = b"".join(log_line(self.name, number) for number in range(self.number, due))
                cut = self._random.randrange(len(data)) if self._random.random() < 0.2 else 0
                for part in (data[:cut], data[cut:]):
                    file.write(part)
                since_rotation += due - self.number
                self.number = due
                if since_rotation >= self._rotate_every:
                    since_rotation = 0
                    file.close()
                    self._rotate()
                    file = self.path.open("ab", buffering=0)
        finally:
            file.close()

    def end(self) -> None:
        """Write no more."""
        self._ended.set()

    def _rotate(self) -> None:
        """Rotate as logrotate does; the oldest file goes, as late as a real one does."""
        self.rotations += 1
        kind = self._random.choice(_ROTATIONS)
        rotated = self.path.with_name(f"access.log.{self.rotations}")
        self.path.rename(rotated)
        if kind == "gzip" and self.rotations > 1:
            before = self.path.with_name(f"access.log.{self.rotations - 1}")
            if before.exists():
                packed = before.with_name(f".{before.name}.gz")
                packed.write_bytes(gzip.compress(before.read_bytes()))
                packed.rename(before.with_name(f"{before.name}.gz"))
                before.unlink()


@dataclass
class EdgePlane:
    """The processes. A context manager; it ends all that it has started.

    Attributes:
        folder: Where everything of this run lies.
        flow: The flow file.
        environment: The variables that the flow file names.
        group: The group of the agents.
    """

    folder: Path
    flow: Path
    environment: Mapping[str, str]
    group: str = "web"
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> EdgePlane:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.running):
            self.kill(name)

    def name_gateways(self, *names: str) -> None:
        """Fix the ports of the gateways, so that each can name all."""
        for name in names:
            self._ports[name] = free_port()

    def start_gateway(self, name: str) -> None:
        """Start a gateway, or start it again."""
        members = [word for port in self._ports.values() for word in ("--member", f"http://127.0.0.1:{port}")]
        listen = ("--listen", f"127.0.0.1:{self._ports[name]}", "--folder", str(self.folder / name))
        words = ("gateway", "run", "--flow", str(self.flow), "--name", name, *listen, "--state", str(self.state), *members)
        self._start(name, [sys.executable, "-m", "scribengin.cli", *words])

    def start_agent(self, name: str) -> None:
        """Start an agent, or start it again."""
        gateways = [word for port in self._ports.values() for word in ("--gateway", f"http://127.0.0.1:{port}")]
        words = ("--name", name, "--group", self.group, "--data", str(self.folder / "agents" / name), *gateways)
        self._start(name, [sys.executable, "-m", "scribengin.agent", *words])

    def start_worker(self, tier: str) -> None:
        """Start the run of a tier, or start it again."""
        words = ("run", str(self.flow), "--tier", tier, "--state", str(self.state))
        self._start(tier, [sys.executable, "-m", "scribengin.cli", *words])

    @property
    def state(self) -> Path:
        """The state folder of the flow."""
        return self.folder / "state"

    def _start(self, name: str, words: Sequence[str]) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def kill(self, name: str, *, by: signal.Signals = signal.SIGKILL) -> None:
        """Kill a process with all that it has started, and wait until it is gone."""
        process = self.running.pop(name, None)
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, by)
        process.wait()

    def dead(self) -> list[str]:
        """The processes that ended by themselves."""
        return [name for name, process in self.running.items() if process.poll() is not None]

    def agent_status(self, name: str) -> dict[str, Any]:
        """The lanes of an agent, as it last wrote them; {} before."""
        try:
            status = json.loads((self.folder / "agents" / name / "status.json").read_bytes())
        except (OSError, ValueError):
            return {}
        lanes: dict[str, Any] = status.get("report", {}).get("lanes", {})
        return lanes

    def log(self, name: str) -> str:
        """What a process has written."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def scribengin(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command = [sys.executable, "-m", "scribengin.cli", *words]
        return subprocess.run(command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False)

    def remove(self) -> None:
        """Delete the folder; workers of runs that were killed leave in a moment."""
        give_up_s = time.monotonic() + 30
        while self.folder.exists() and time.monotonic() < give_up_s:
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class EdgeVerdict:
    """What came out, against what the hosts have written."""

    expected: int
    found: int
    lost: Mapping[str, list[int]]
    doubled: Mapping[str, list[int]]
    changed: list[str]

    @property
    def is_right(self) -> bool:
        """True if each line is there once, as it was written."""
        return not (self.lost or self.doubled or self.changed)

    def __str__(self) -> str:
        lost, doubled = (sum(map(len, each.values())) for each in (self.lost, self.doubled))
        told = f"{self.expected:,} lines written, {self.found:,} found: {lost:,} lost, {doubled:,} doubled, {len(self.changed):,} changed"
        first = [f"{agent}: {numbers[:5]}" for each in (self.lost, self.doubled) for agent, numbers in each.items()]
        return told + ("" if not first else f" ({'; '.join(first[:4])})")


def verdict(written: Mapping[str, int], rows: Iterator[Mapping[str, Any]]) -> EdgeVerdict:
    """Compare rows with columns `agent`, `n` and `sum` with what each agent's host has written.

    Args:
        written: Agent → the number of its lines.
        rows: The rows that came out.
    """
    seen: dict[str, Counter[int]] = {agent: Counter() for agent in written}
    changed, found = [], 0
    for row in rows:
        found += 1
        agent, number = str(row["agent"]), int(row["n"])
        if agent not in seen or not 0 <= number < written[agent] or row["sum"] != line_sum(agent, number):
            changed.append(f"{agent} {row}")
            continue
        seen[agent][number] += 1
    lost = {agent: [number for number in range(count) if not seen[agent][number]] for agent, count in written.items()}
    doubled = {agent: sorted(number for number, times in numbers.items() if times > 1) for agent, numbers in seen.items()}
    return EdgeVerdict(
        sum(written.values()),
        found,
        {agent: numbers for agent, numbers in lost.items() if numbers},
        {agent: numbers for agent, numbers in doubled.items() if numbers},
        changed,
    )


def json_rows(*folders: Path) -> Iterator[dict[str, Any]]:
    """The rows of the files of JSON lines in these folders."""
    for folder in folders:
        for path in sorted(folder.glob("part-*.jsonl")):
            for line in path.read_bytes().splitlines():
                yield json.loads(line)


def within(limit_s: float, holds: Callable[[], Any], what: str) -> Any:
    """Wait until `holds` returns something true, and return it. Raises TimeoutError with `what` after the limit."""
    give_up_s = time.monotonic() + limit_s
    while not (found := holds()):
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"not within {limit_s:g} s: {what}")
        time.sleep(0.1)
    return found
