"""A control plane of many flows on a real ZooKeeper: how long people wait for an answer, and a master for a look.

python benchmarks/control.py [--flows 1000] [--tiers 10] [--rounds 5]. All flows run, their workers are entries of a launcher without
processes. The rival is the plain way: a watch and a request for each record, a decision about every flow at each look, a commit for each
action; it has a tenth of the flows, and both see and decide the same. Times are medians of
rounds, a start is one; CPU is that of the master's process, which other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from control_plane import HOST, Plane, Size

from scribengin.control import flow_records
from scribengin.control.decide import decide
from scribengin.control.executor import Actor
from scribengin.control.master import Master
from scribengin.control.registry_cache import Mirror
from scribengin.control.snapshot import Observer
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.access import RegistryAddress
from scribengin.registry.lease import Election
from scribengin.registry.record_io import stored_as
from scribengin.registry.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.control.world import RunId
    from scribengin.registry.contract import Registry

LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
BARS_S = {
    "status of one flow": 0.3,
    "list of all flows": 0.3,
    "start": 10.0,
    "a look, no news": 2.0,
    "a look, one flow changed": 2.0,
    "a look, all changed": 2.0,
}

CPU_S: dict[str, float] = {}
"""what → seconds of CPU that this process took for it, the last time: what a busy machine does not change much"""


class Plain(Mirror):
    """A request and a watch for each record, when it is wanted."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self._watched: set[str] = set()

    def read(self, path: str) -> Any:
        self._watch_one(path)
        return super().read(path)

    def stored(self, spot: Any) -> Any:
        there = self.read(spot.path)
        return None if there is None else stored_as(there, spot)

    def children(self, path: str) -> tuple[str, ...]:
        self._watch_one(path)
        return super().children(path)

    def fetch(self, records: Any, folders: Any = ()) -> None:
        pass

    def refresh(self) -> set[str]:
        return super().refresh() | {who for readers in self._readers.values() for who in readers}

    def _begin(self) -> None:
        pass

    def _watch_one(self, path: str) -> None:
        if path not in self._watched:
            self._watched.add(path)
            self._registry.watch(path, lambda: self._wake(path))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--flows", type=int, default=1000)
    options.add_argument("--tiers", type=int, default=10)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-control-") as folder, ZooKeeper(Path(folder)) as server:
        all_flows, tenth = Size(given.flows, given.tiers), Size(max(1, given.flows // 10), given.tiers)
        figures, mib = measure(RegistryAddress((server.address,), "/all"), all_flows, given.rounds)
        mine, rival = compare(RegistryAddress((server.address,), "/tenth"), tenth)
    print(f"{given.flows:,} flows of {given.tiers} tiers, a worker each; medians of {given.rounds}")
    for name, took_s in figures.items():
        bar_s = BARS_S[name]
        missed = "" if took_s <= bar_s else "   MISSED"
        print(f"  {name:28}{took_s:9.3f} s   CPU {CPU_S[name]:6.3f} s   bar {bar_s:g} s{missed}")
    print(f"  {'memory of the master':28}{mib:9.0f} MiB more than before its start")
    print(f"{tenth.flows:,} flows, beside the plain way (a watch and a request for each record, a commit for each action)")
    for name, took_s in mine.items():
        print(f"  {name:28}{took_s:9.3f} s   plain {rival[name]:8.3f} s   {rival[name] / took_s:6.1f} ×")


def measure(address: RegistryAddress, size: Size, rounds: int) -> tuple[dict[str, float], float]:
    """(what → seconds, MiB of the master)."""
    figures = {}
    with ExitStack() as stack:
        plane = stack.enter_context(closing(Plane(address, size)))
        plane.fill()
        person = stack.enter_context(closing(open_zookeeper(address, insecure=True, session_s=30)))
        assert len(flow_records.read_flows(person)) == size.flows
        assert len(flow_records.describe(person, size.names()[0])["tiers"]) == size.tiers
        figures["status of one flow"] = median(rounds, lambda: flow_records.describe(person, size.names()[0]), "status of one flow")
        figures["list of all flows"] = median(rounds, lambda: flow_records.read_flows(person), "list of all flows")
        gc.collect()
        before = memory_mib()
        registry = stack.enter_context(closing(open_zookeeper(address, insecure=True, session_s=30)))
        master = Master(registry, {HOST: plane.launcher}, order, {"id": "m"}, log=LOG)
        figures["start"] = seconds(lambda: master.contend() and master.cycle(), "start")
        figures["a look, no news"] = median(rounds, master.cycle, "a look, no news")
        one, every = [], []
        for number in range(rounds):
            goal = "paused" if number % 2 == 0 else "running"
            one.append(changed(plane, master, size.names()[-1:], goal))
            every.append(changed(plane, master, size.names()[:-1], goal))
        figures["a look, one flow changed"], figures["a look, all changed"] = statistics.median(one), statistics.median(every)
        mib = memory_mib() - before
        states = {row.status.state for row in flow_records.read_flows(person) if row.status is not None}
        assert states <= {"starting", "pausing"}, states  # no worker is there to obey
    return figures, mib


def changed(plane: Plane, master: Master, names: list[str], goal: str) -> float:
    """How long a master's look takes in which it reads that, and does what there is to do."""
    plane.want(names, goal)
    told(master._registry, master._mirror, len(names))
    took_s = seconds(master.cycle, "a look, one flow changed" if len(names) == 1 else "a look, all changed")
    while master._mirror.changed.is_set():  # what it has written itself it reads again
        master.cycle()
        master._registry.sync()
    return took_s


def told(registry: Registry, mirror: Mirror, count: int) -> None:
    """Wait until its watches have told of so many changes."""
    registry.sync()
    while len(mirror._stale) < count:
        time.sleep(0.01)


def compare(address: RegistryAddress, size: Size) -> tuple[dict[str, float], dict[str, float]]:
    """What → seconds, of both ways; they see and decide the same."""
    mine: dict[str, float] = {}
    rival: dict[str, float] = {}
    with ExitStack() as stack:
        plane = stack.enter_context(closing(Plane(address, size)))
        plane.fill()
        decisions: list[list[str]] = []
        for figures, kind in ((rival, Plain), (mine, Mirror)):
            with closing(open_zookeeper(address, insecure=True, session_s=30)) as registry, closing(kind(registry)) as mirror:
                election = Election(registry, {"id": kind.__name__})
                assert election.acquire(wait_s=30)
                observer = Observer(mirror, {HOST: plane.launcher})
                actor = Actor(registry, mirror, {HOST: plane.launcher}, order, lambda _flow, _tier: None)
                figures["start"] = seconds(lambda observer=observer: observer.observe(0.0))
                figures["a look, no news"] = median(3, lambda observer=observer: observer.observe(0.0))
                goal = "paused" if kind is Plain else "running"
                plane.want(size.names(), goal)
                told(registry, mirror, size.flows)

                def act(plain: bool = kind is Plain, observer: Any = observer, actor: Any = actor, election: Any = election) -> None:
                    actions = decide(observer.observe(0.0))
                    decisions.append([type(action).__name__ for action in actions])
                    if plain:
                        for action in actions:
                            actor.perform(action, election.term)
                    else:
                        assert not list(actor.perform_all(actions, election.term, election.check))

                figures["a look, all changed"] = seconds(act)
                election.close()
        with closing(open_zookeeper(address, insecure=True, session_s=30)) as registry:
            worlds = [Observer(kind(registry), {}).observe(0.0) for kind in (Plain, Mirror)]
    assert len(worlds[0].flows) == size.flows
    assert worlds[0] == worlds[1]
    assert sorted(decisions[0]) == sorted(decisions[1]), "a way up and a way down, of as many steps"
    return mine, rival


def order(id_: RunId) -> LaunchOrder:
    return LaunchOrder(str(id_), ("true",))


def seconds(what: Callable[[], Any], name: str = "") -> float:
    begun, cpu_s = time.perf_counter(), time.process_time()
    what()
    CPU_S[name] = time.process_time() - cpu_s
    return time.perf_counter() - begun


def median(rounds: int, what: Callable[[], Any], name: str = "") -> float:
    return statistics.median(seconds(what, name) for _ in range(rounds))


def memory_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    main()
