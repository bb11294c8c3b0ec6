"""Checks that figures do not grow while a control plane is struck for a long time: memory, threads, open files, records."""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from harness.faults.control.processes import figures_of
from harness.faults.control.wire import HOST
from scribengin.control.home import Home
from scribengin.core.errors import ScribenginError
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.tree import ATTEMPTS, CHANGES
from scribengin.registry.zookeeper_servers import ask_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from harness.faults.control.household import Household
    from scribengin.registry.contract import Registry

EVERY_S = 30.0
_FEWEST = 8
"""minimum number of samples of a process; with fewer, no trend is computed"""
_WARM = 1 / 3
"""share of a process's samples, at the beginning, in which it may grow"""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One figure of one process (`of` is its role and pid), or of the registry, `at_s` seconds after the beginning."""

    at_s: float
    of: str
    what: str
    value: float


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of a figure: its range, its median, and its growth over the time, from the median of all slopes."""

    of: str
    what: str
    samples: int
    least: float
    median: float
    most: float
    growth: float
    may_grow: float

    @property
    def is_flat(self) -> bool:
        """True if the figure grew no more than allowed."""
        return self.growth <= self.may_grow

    def __str__(self) -> str:
        sign = "flat" if self.is_flat else "GROWS"
        range_ = f"{self.least:,.0f} to {self.most:,.0f}, median {self.median:,.0f}"
        return f"{self.of} {self.what}: {range_}; {self.growth:+,.1f} over {self.samples} samples, {self.may_grow:,.1f} allowed: {sign}"


FLOORS = {"memory MiB": 8.0, "threads": 3.0, "open files": 6.0, "records": 6.0, "record bytes": 4096.0}
"""figure → the growth that is always allowed over a soak; a tenth of the median is allowed if that is more"""
HEAP_MIB = 48.0
"""the same for ZooKeeper's memory: a JVM first fills a part of its heap of 256 MiB before it collects garbage"""
_SHARE = 0.1


def trends(samples: Sequence[ProcessSample]) -> list[Trend]:
    """The trend of every figure with enough samples, without the first third of them."""
    found = []
    for of, what in dict.fromkeys((sample.of, sample.what) for sample in samples):
        mine = [(sample.at_s, sample.value) for sample in samples if (sample.of, sample.what) == (of, what)]
        kept = mine[int(len(mine) * _WARM) :]
        if len(mine) < _FEWEST:
            continue
        values = [value for _, value in kept]
        # a linear fit would follow a single peak; the median of the slopes between all pairs does not
        slope = statistics.median((later - value) / (then - at) for (at, value), (then, later) in combinations(kept, 2))
        median = statistics.median(values)
        growth = slope * (kept[-1][0] - kept[0][0])
        floor = HEAP_MIB if of.startswith("zookeeper") and what == "memory MiB" else FLOORS[what]
        may = max(floor, _SHARE * median)
        found.append(Trend(of, what, len(kept), min(values), median, max(values), growth, may))
    return found


class Sampler:
    """Samples a household's master and ZooKeeper in a thread, and writes a line for each figure."""

    def __init__(self, house: Household, file: Path, *, every_s: float = EVERY_S) -> None:
        self.samples: list[ProcessSample] = []
        self._house = house
        self._file = file
        self._every_s = every_s
        self._began = time.monotonic()

    @contextmanager
    def running(self) -> Iterator[Sampler]:
        """Take samples for the duration of the block."""
        ended = threading.Event()

        def sample_until_ended() -> None:
            while not ended.wait(self._every_s):
                self.sample_all()

        thread = threading.Thread(target=sample_until_ended, name="sampler")
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def sample_all(self) -> None:
        """Take one sample of every figure."""
        at_s = round(time.monotonic() - self._began, 1)
        new = [
            ProcessSample(at_s, f"{part.role} {part.process.pid}", what, value)
            for part in self._house.parts()
            if part.role in ("up", "zookeeper")
            for what, value in figures_of(part.process).items()
        ]
        port = self._house.zookeeper_port()
        if port is not None:
            with suppress(OSError, KeyError, ValueError, ScribenginError):
                said = _monitored(port)
                with Home(self._house.home).registry() as registry:
                    kept = _histories(registry)
                new.append(ProcessSample(at_s, "registry", "records", float(said["zk_znode_count"]) - len(kept)))
                new.append(ProcessSample(at_s, "registry", "record bytes", float(said["zk_approximate_data_size"]) - sum(kept)))
        self.samples += new
        with self._file.open("a") as file:
            file.writelines(f"{sample.at_s}\t{sample.of}\t{sample.what}\t{sample.value:g}\n" for sample in new)


def _histories(registry: Registry) -> list[int]:
    """The sizes in bytes of the records whose number or size is limited: the stored answers to writes (kept for a day), and the histories
    of flows, with their operations and versions. They fill up in the first hours, which is not growth."""
    found = [f"requests/{name}" for name in registry.children("requests")]
    for flow in registry.children("flows"):
        found += [CHANGES(flow).path, ATTEMPTS(flow).path]
        found += [f"flows/{flow}/{folder}/{name}" for folder in ("ops", "spec") for name in registry.children(f"flows/{flow}/{folder}")]
    return [len(msgspec.json.encode(each.value)) for each in registry.read_many(found) if isinstance(each, RegistryEntry)]


def _monitored(port: int) -> dict[str, str]:
    """ZooKeeper's own monitoring data."""
    said = ask_server(HOST, port, b"mntr", 5.0)
    return {name: value for name, _, value in (line.partition("\t") for line in said.decode().splitlines())}
