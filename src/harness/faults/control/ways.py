"""The ways to strike a control plane. Each one strikes, repairs what the campaign must repair, and returns a description."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from harness.faults.control.feeds import BROKEN, CutFeed, TableFeed
from harness.faults.control.masters import leader_killed, leader_stopped, standby_killed
from harness.faults.control.processes import ports_of
from harness.faults.control.wire import HOWS
from scribengin.registry.records import HELPER
from scribengin.worker.sharing import SILENT_S

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from harness.faults.control.household import HouseholdProcess
    from harness.faults.control.life import ControlLife, Way

SESSION_S = 10.0
_MINUTE_S = 60.0
_GONE_WITHIN_S = 60.0
_WAIT = "8m"
_HELD_BACK_S = 180.0
_SHOWN = 160


def master_killed(life: ControlLife, rng: random.Random) -> str:
    """Kill the master with its ZooKeeper; they are started again, at once or after a while. Workers continue."""
    house = life.house
    before = {part.process.pid for part in house.parts() if part.role == "python"}
    house.strike(signal.SIGKILL, _of(life, "up"))
    house.wait_for(lambda: not _of(life, "up", "zookeeper"), "the end of master and ZooKeeper", _GONE_WITHIN_S)
    away_s = rng.choice((0.0, rng.uniform(0.0, 8.0), SESSION_S + rng.uniform(0.0, 8.0)))
    house.pause(away_s)
    house.start()
    life.mended()
    after = {part.process.pid for part in house.parts() if part.role == "python"}
    return f"away for {away_s:.0f} s; {len(before & after)} of {len(before)} workers were there when it came back"


def worker_killed(life: ControlLife, rng: random.Random) -> str:
    """Kill a worker: its Python, its JVM, the Python of a task, all of it, or its Python with its keeper."""
    parts = life.house.parts()
    worker = rng.choice(sorted({part.worker for part in parts if part.role == "python"}))
    what = rng.choice(("python", "jvm", "task", "group", "keeper"))
    mine = [part for part in parts if part.worker == worker]
    if what == "keeper":
        hit = [part for part in mine if part.role in ("keeper", "python")]
    else:
        hit = mine if what == "group" else [part for part in mine if part.role == what]
    life.struck()
    life.house.strike(signal.SIGKILL, hit)
    return f"{what} of {worker}, {len(hit)} processes"


def all_killed(life: ControlLife, rng: random.Random) -> str:
    """Kill everything at once, then start `up`."""
    house = life.house
    parts = house.parts()
    rng.shuffle(parts)
    life.struck()
    house.strike(signal.SIGKILL, parts)
    house.wait_for(lambda: not _struck_again(life), "the end of all", _GONE_WITHIN_S)
    house.start()
    for host in house.nodes:
        house.start_node(host)
    for master in house.masters:
        house.start_master(master)
    life.mended()
    return f"{len(parts)} processes"


def zookeeper_restarted(life: ControlLife, rng: random.Random) -> str:
    """Kill ZooKeeper only; `up` must start it again."""
    number = rng.choice((signal.SIGKILL, signal.SIGTERM))
    before = _of(life, "zookeeper")
    life.struck()
    life.house.strike(number, before)
    pids = {part.process.pid for part in before}
    life.house.wait_for(lambda: any(part.process.pid not in pids for part in _of(life, "zookeeper")), "another ZooKeeper", _GONE_WITHIN_S)
    life.mended()
    return number.name


def zookeeper_lost(life: ControlLife, rng: random.Random) -> str:
    """Strike one of three ZooKeeper servers: kill it, so that its `up` must start it again, or suspend it for longer than a session."""
    hit, sleeps = rng.choice(_of(life, "zookeeper")), rng.random() < 0.5
    house = life.house
    life.struck()
    house.strike(signal.SIGSTOP if sleeps else signal.SIGKILL, [hit])
    house.pause(2 * SESSION_S)
    house.strike(signal.SIGCONT, [hit])
    house.wait_for(lambda: len(_of(life, "zookeeper")) == house.voting, "the third ZooKeeper", _GONE_WITHIN_S)
    life.mended()
    return "asleep" if sleeps else "killed"


def session_expired(life: ControlLife, rng: random.Random) -> str:
    """Cut the master, or one worker, off from ZooKeeper until its session expires, then reconnect it."""
    who = rng.choice(("up", "python"))
    part = rng.choice(_of(life, who))
    return f"{part.worker or 'the master'} {_cut(life, rng, [part], SESSION_S + rng.uniform(2.0, 10.0))}"


def network_cut(life: ControlLife, rng: random.Random) -> str:
    """Cut masters, node processes and workers off from ZooKeeper all at once, for less or more than a session."""
    return _cut(
        life, rng, _of(life, "up", "master", "node", "python"), rng.choice((rng.uniform(1.0, 8.0), SESSION_S + rng.uniform(0.0, 15.0)))
    )


def worker_stopped(life: ControlLife, rng: random.Random) -> str:
    """Suspend all processes of a worker with SIGSTOP, until its session has expired and it is not replaced yet, or for a minute; then
    resume them."""
    return _stopped(life, rng, rng.uniform(SESSION_S + 1.0, SESSION_S + 10.0))


def worker_stopped_a_minute(life: ControlLife, rng: random.Random) -> str:
    """Suspend all processes of a worker for a minute."""
    return _stopped(life, rng, _MINUTE_S)


def master_stopped_a_minute(life: ControlLife, rng: random.Random) -> str:  # noqa: ARG001
    """Suspend the master with SIGSTOP until its session has expired, then resume it. Its writes under the old Term must have no effect."""
    house = life.house
    parts = _of(life, "up")
    life.struck()
    house.strike(signal.SIGSTOP, parts)
    house.pause(_MINUTE_S)
    house.strike(signal.SIGCONT, parts)
    life.mended()
    return f"{_MINUTE_S:.0f} s"


def host_stopped_a_minute(life: ControlLife, rng: random.Random) -> str:
    """Suspend an additional host, its node process and its workers, for a minute. They cannot be killed meanwhile, and other workers take
    their tiers over. The node process, which would kill the workers, is resumed last: until then they must detect by themselves that they
    are fenced."""
    house = life.house
    host = next(iter(house.nodes))
    parts = [part for part in house.parts() if part.host == host]
    node_processes, others = [part for part in parts if part.role == "node"], [part for part in parts if part.role != "node"]
    workers = sum(part.role == "python" for part in parts)
    life.struck()
    house.strike(signal.SIGSTOP, parts)
    house.pause(_MINUTE_S)
    house.strike(signal.SIGCONT, others)
    later_s = rng.uniform(0.0, 25.0)
    house.pause(later_s)
    house.strike(signal.SIGCONT, node_processes)
    life.mended()
    return f"{len(parts)} processes, {workers} workers, the node process {later_s:.0f} s longer"


def host_killed(life: ControlLife, rng: random.Random) -> str:
    """Kill an additional host with all of its processes, and start it again later; or only its node process, while its workers continue."""
    house, alone = life.house, rng.random() < 0.5
    host = next(iter(house.nodes))
    parts = [part for part in house.parts() if part.host == host and (part.role == "node" or not alone)]
    life.struck()
    house.strike(signal.SIGKILL, parts)
    house.nodes[host].wait()
    away_s = rng.uniform(0.0, 40.0)
    house.pause(away_s)
    house.start_node(host)
    life.mended()
    return f"{'its node process' if alone else f'{len(parts)} processes'}, away for {away_s:.0f} s"


def version_applied(life: ControlLife, rng: random.Random) -> str:
    """Apply another version of a flow under load."""
    feed = rng.choice(life.feeds)
    feed.edit(feed.version + 1)
    applied = life.house.says("apply", str(feed.folder / "flow.yaml"), "--wait", _WAIT)
    life.mended()
    return f"{feed.name} version {applied['version']}"


def paused_and_resumed(life: ControlLife, rng: random.Random) -> str:
    """Pause or stop a flow, check that it writes nothing then, and resume it."""
    feed, verb = rng.choice(life.feeds), rng.choice(("pause", "stop"))
    house = life.house
    house.says(verb, feed.name, "--wait", _WAIT)
    before = feed.commits()
    house.pause(3.0)
    if feed.commits() != before:
        life.told.wrong.append(f"{feed.name} committed after it was said to have come to rest ({verb})")
    life.struck()
    house.says("resume", feed.name, "--wait", _WAIT)
    life.mended()
    return f"{feed.name} {verb}"


def helper_killed(life: ControlLife, rng: random.Random) -> str:
    """Strike a helping worker: kill it, or suspend it for longer than the others wait for it."""
    house = life.house
    helpers = sorted({part.worker for part in house.parts() if part.role == "python" and HELPER in part.worker})
    if not helpers:
        return "there was none"
    worker, sleeps = rng.choice(helpers), rng.random() < 0.3
    parts = [part for part in house.parts() if part.worker == worker and part.role != "keeper"]
    life.struck()
    house.strike(signal.SIGSTOP if sleeps else signal.SIGKILL, parts)
    if sleeps:
        house.pause(SILENT_S + rng.uniform(2.0, 10.0))
        house.strike(signal.SIGCONT, parts)
    life.mended()
    return f"{worker} {'asleep' if sleeps else 'killed'}"


def workers_scaled(life: ControlLife, rng: random.Random) -> str:
    """Change the number of workers under load; sometimes one of them is killed at once."""
    house = life.house
    count = rng.randrange(1, 5)
    life.struck()
    house.says("scale", "shared.core", "--workers", str(count))
    house.pause(rng.uniform(0.0, 6.0))
    hit = []
    if rng.random() < 0.5:
        workers = sorted({part.worker for part in house.parts() if part.role == "python" and part.worker.startswith("shared.")})
        worker = rng.choice(workers)
        hit = [part for part in house.parts() if part.worker == worker]
        house.strike(signal.SIGKILL, hit)
    life.mended()
    return f"{count} workers{f', and {hit[0].worker} killed' if hit else ''}"


def tier_inserted(life: ControlLife, rng: random.Random) -> str:
    """Insert a tier between two others of a flow, or remove it, under load; meanwhile one of the flow's workers is killed."""
    house, feed = life.house, next(feed for feed in life.feeds if isinstance(feed, CutFeed))
    feed.is_long = not feed.is_long
    feed.write()
    life.struck()
    house.says("apply", str(feed.folder / "flow.yaml"))
    away_s = rng.uniform(0.0, 12.0)
    house.pause(away_s)
    workers = [part for part in house.parts() if part.role == "python" and part.worker.startswith(f"{feed.name}.")]
    hit = [rng.choice(workers)] if workers else []
    house.strike(signal.SIGKILL, hit)
    house.says("apply", str(feed.folder / "flow.yaml"), "--wait", _WAIT)
    life.mended()
    return f"{'put in' if feed.is_long else 'taken out'}, {hit[0].worker if hit else 'nobody'} killed {away_s:.0f} s later"


def reader_failing(life: ControlLife, rng: random.Random) -> str:
    """Let a flow that reads another flow's output fail until its feeder is paused for that reason: its server is killed and started again,
    or its code is broken and then fixed by another version."""
    house, reader, serves = life.house, next(feed for feed in life.feeds if isinstance(feed, TableFeed)), rng.random() < 0.5
    life.struck()
    if serves:
        reader.server.kill()
    else:
        reader.break_code()
        house.says("apply", str(reader.folder / "flow.yaml"))
    try:
        why = _held_back(life, reader, f"{reader.name} is " if serves else BROKEN)
        held_s, rows = life.since_s(), reader.feeder.commits()
        house.pause(rng.uniform(0.0, 20.0))
        if reader.feeder.commits() != rows:
            life.told.wrong.append(f"{reader.feeder.name} went on while its reader failed: {why}")
    finally:
        if serves:
            reader.server.start()
    if not serves:
        reader.edit(reader.version + 1)
        house.says("apply", str(reader.folder / "flow.yaml"), "--wait", _WAIT)
    life.mended()
    return f"its {'server' if serves else 'code'}; the feeder rested after {held_s:.0f} s: {why[:_SHOWN]}"


def _held_back(life: ControlLife, reader: TableFeed, sign: str) -> str:
    """Wait until the feeder is reported as paused because the reader has failed, with `sign` in the reason, and its queries are paused;
    returns the reason. Raises Hung."""
    house, feeder = life.house, reader.feeder
    status = dict[str, Any]()

    def is_paused() -> bool:
        status.update(house.says("status", feeder.name)["status"])
        reason = str(status["reason"])
        return reason.startswith("paused: ") and sign in reason

    def state_text() -> str:
        return f"{feeder.name} is not held back by its reader, which fails: {status}, its Queries are {house.query_states(feeder.name)}"

    house.wait_for(lambda: is_paused() and house.query_states(feeder.name) == {"paused"}, "the feeder at rest", _HELD_BACK_S, state_text)
    return str(status["reason"])


def disk_full(life: ControlLife, rng: random.Random) -> str:
    """Fill the disk with all files for a while, then free the space. The flows may have to be resumed by a command."""
    house = life.house
    life.forgives = True
    ballast = house.seen(house.folder / "ballast")
    before = {part.process for part in _of(life, "zookeeper")}
    # unbuffered: a buffer would be written at the close of the file, when there is no space
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 2**16)
    life.struck()
    full_s = rng.uniform(5.0, 30.0)
    house.pause(full_s)
    ballast.unlink()
    life.mended()
    died = house.up is not None and house.up.poll() is not None
    if died:
        life.told.wrong.append(f"up ended with {house.up.poll() if house.up else None} over a full disk")
        house.start()
    ended = before - {part.process for part in _of(life, "zookeeper")}
    return f"{full_s:.0f} s; ZooKeeper {'ended' if ended else 'lived on'}"


WAYS: dict[str, Way] = {
    "master-killed": master_killed,
    "worker-killed": worker_killed,
    "all-killed": all_killed,
    "zookeeper-restarted": zookeeper_restarted,
    "zookeeper-lost": zookeeper_lost,
    "session-expired": session_expired,
    "leader-killed": leader_killed,
    "leader-stopped": leader_stopped,
    "standby-killed": standby_killed,
    "worker-stopped": worker_stopped,
    "worker-stopped-a-minute": worker_stopped_a_minute,
    "master-stopped-a-minute": master_stopped_a_minute,
    "network-cut": network_cut,
    "host-stopped-a-minute": host_stopped_a_minute,
    "host-killed": host_killed,
    "version-applied": version_applied,
    "paused-and-resumed": paused_and_resumed,
    "helper-killed": helper_killed,
    "workers-scaled": workers_scaled,
    "tier-inserted": tier_inserted,
    "reader-failing": reader_failing,
    "disk-full": disk_full,
}
"""name in reports and in `ONLY=control:…` → way"""
OF_HOSTS = frozenset({"host-stopped-a-minute", "host-killed", "reader-failing"})
"""ways that need an additional host"""
OF_MASTERS = frozenset({"leader-killed", "leader-stopped", "standby-killed"})
"""ways that need three masters"""
OF_WORKERS = frozenset({"helper-killed", "workers-scaled"})
"""ways that need a flow with several workers"""
OF_CUTS = frozenset({"tier-inserted"})
"""ways that need a flow whose tiers change"""
OF_READERS = frozenset({"reader-failing"})
"""ways that need a flow that reads another flow's output"""
OF_ENSEMBLE = frozenset({"zookeeper-lost"})
"""ways that need several ZooKeeper servers, in front of which there is no wire to cut"""
ON_SMALL_DISK = frozenset({"disk-full"})
OF_WIRE = frozenset({"session-expired", "network-cut"})


def _of(life: ControlLife, *roles: str) -> list[HouseholdProcess]:
    return [part for part in life.house.parts() if part.role in roles]


def _struck_again(life: ControlLife) -> int:
    """Strike again, and return how many processes still existed: some may have been forked just before the first strike."""
    left = life.house.parts()
    life.house.strike(signal.SIGKILL, left)
    return len(left)


def _stopped(life: ControlLife, rng: random.Random, seconds: float) -> str:
    house = life.house
    worker = rng.choice(_of(life, "python")).worker
    parts = [part for part in house.parts() if part.worker == worker and part.role != "keeper"]
    life.struck()
    house.strike(signal.SIGSTOP, parts)
    house.pause(seconds)
    life.mended()
    house.strike(signal.SIGCONT, parts)
    woke = sum(part.process.alive() for part in parts)
    return f"{worker}, {len(parts)} processes, {seconds:.0f} s; {woke} woke"


def _cut(life: ControlLife, rng: random.Random, parts: list[HouseholdProcess], seconds: float) -> str:
    how = rng.choice(HOWS)
    life.struck()
    life.house.wire.cut(how, _belongs_to(parts))
    life.house.pause(seconds)
    life.house.wire.mend()
    life.mended()
    return f"{how} for {seconds:.0f} s"


def _belongs_to(parts: list[HouseholdProcess]) -> Callable[[int], bool]:
    """A function that returns True for ports of these processes. It caches its results, because it is called for each piece of data."""
    known: dict[int, bool] = {}

    def hits(port: int) -> bool:
        if port not in known:
            known[port] = any(port in ports_of(part.process) for part in parts)
        return known[port]

    return hits
