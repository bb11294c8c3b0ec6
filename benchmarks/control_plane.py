"""Many flows at work, as records in a real ZooKeeper and workers of a launcher without processes: what `benchmarks/control.py` looks at."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from kazoo.client import KazooClient

from harness.memory_launcher import MemoryCluster, MemoryLauncher
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.records import Desired, Report, Run, Spec, StatusRecord, TierSpec, TierWish
from scribengin.registry.tree import DESIRED, LEASE, REPORT, RUN, SPEC, STATUS, WANTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.registry.access import RegistryAddress
    from scribengin.registry.record_io import Record, Spot

_AT_ONCE = 500
"""records of one transaction"""
HOST = "here"


@dataclass(frozen=True)
class Size:
    """So many flows, each a chain of so many tiers."""

    flows: int
    tiers: int

    def names(self) -> list[str]:
        return [f"flow{number:04d}" for number in range(self.flows)]

    def chain(self) -> list[str]:
        return [f"t{number}" for number in range(self.tiers)]


class Plane:
    """The records are written past the registry's client, some hundred at once. The leases live as long as this."""

    def __init__(self, address: RegistryAddress, size: Size) -> None:
        self.size = size
        self._root = address.root
        self._client = KazooClient(address.servers[0], timeout=60)
        self._client.start(timeout=60)
        self._client.ensure_path(self._root)
        self._made: set[str] = set()
        self.launcher = MemoryLauncher(time.time, MemoryCluster())

    def fill(self) -> None:
        """Every flow runs, and so does every worker; a master that looks has nothing to do."""
        size, chain = self.size, self.size.chain()
        tiers = {name: TierSpec(feeders=tuple(chain[at - 1 : at])) for at, name in enumerate(chain)}
        spec = Spec(
            package="0" * 64, path="flow.yaml", base="/data", state="/state", tiers=tiers, by="bench", at="2026-01-01T00:00:00+00:00"
        )
        wanted = Desired(state="running", version=1, by="bench", at="2026-01-01T00:00:00+00:00")
        self._create((spot, record) for name in size.names() for spot, record in ((SPEC(name, "1"), spec), (DESIRED(name), wanted)))
        generations = {name: self._client.get_async(f"{self._root}/{DESIRED(name).path}") for name in size.names()}
        self._create(pair for name, found in generations.items() for pair in self._at_work(name, chain, found.get(timeout=60)[1].mzxid))
        self._create(((LEASE(name, tier), {"format": 1, "run": 1}) for name in size.names() for tier in chain), ephemeral=True)
        for name in size.names():
            for tier in chain:
                self.launcher.start(LaunchOrder(f"{name}.{tier}-1", ("true",)))

    def want(self, names: Iterable[str], state: Any) -> None:
        """A person's word for each of them."""
        value = orjson.dumps(Desired(state=state, version=1, by="bench").dump())
        for asked in [self._client.set_async(f"{self._root}/{DESIRED(name).path}", value) for name in names]:
            asked.get(timeout=60)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _at_work(self, flow: str, chain: list[str], generation: int) -> Iterator[tuple[Spot[Any], Record]]:
        status = StatusRecord(state="running", since="2026-01-01T00:00:00+00:00", version=1, generation=generation)
        yield STATUS(flow), status
        for tier in chain:
            yield WANTED(flow, tier), TierWish(version=1, goal="running", generation=generation)
            yield RUN(flow, tier), Run(number=1, node=HOST, asked_at=1.0, generation=generation, leased=True)
            yield REPORT(flow, tier), Report(run=1, generation=generation, version=1, state="running", commits=1)

    def _create(self, records: Iterable[tuple[Spot[Any], Record | dict[str, Any]]], *, ephemeral: bool = False) -> None:
        asked = []
        transaction, count = self._client.transaction(), 0
        for spot, record in records:
            for folder in self._folders(spot.path):
                transaction.create(f"{self._root}/{folder}")
                count += 1
            transaction.create(
                f"{self._root}/{spot.path}", orjson.dumps(record if isinstance(record, dict) else record.dump()), None, ephemeral
            )
            count += 1
            if count >= _AT_ONCE:
                asked.append(transaction.commit_async())
                transaction, count = self._client.transaction(), 0
        asked.append(transaction.commit_async())
        for each in asked:
            for result in each.get(timeout=120):
                if isinstance(result, Exception):
                    raise result

    def _folders(self, path: str) -> Iterator[str]:
        names = path.split("/")[:-1]
        for depth in range(1, len(names) + 1):
            folder = "/".join(names[:depth])
            if folder not in self._made:
                self._made.add(folder)
                yield folder
