"""The ways to strike the edge: each one strikes, repairs what has to be repaired, and returns a description."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from harness.faults.edge_life import TIMEOUT_S
from harness.faults.small_disk import no_small_disk
from scribengin.core.faults import AGENT_POINTS, GATEWAY_POINTS, WAL_POINTS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from harness.faults.edge_life import EdgeLife

    EdgeWay = Callable[[EdgeLife, random.Random], str]

_AWAY_S = 6.0
"""the longest time for which a process is away"""
_POINT_LIMIT_S = 25.0
"""how long to wait for a crash point: some are passed seldom"""


def agent_killed(life: EdgeLife, rng: random.Random) -> str:
    """Kill agents."""
    names = rng.sample(life.agents, rng.randrange(1, len(life.agents) + 1))
    return _killed(life, rng, names)


def agent_killed_again(life: EdgeLife, rng: random.Random) -> str:
    """Kill an agent again and again, also while it recovers."""
    name = rng.choice(life.agents)
    times = rng.randrange(3, 7)
    for _ in range(times):
        life.kill(name)
        life.start(name)
        life.pause(rng.uniform(0.1, 2.0))
    return f"{name}, {times} times"


def gateway_killed(life: EdgeLife, rng: random.Random) -> str:
    """Kill a gateway."""
    return _killed(life, rng, [rng.choice(life.gateways)])


def gateways_killed(life: EdgeLife, rng: random.Random) -> str:
    """Kill all gateways at once."""
    return _killed(life, rng, life.gateways)


def worker_killed(life: EdgeLife, rng: random.Random) -> str:
    """Kill the worker of a tier."""
    return _killed(life, rng, [rng.choice(life.shape.workers)])


def broker_killed(life: EdgeLife, rng: random.Random) -> str:
    """Kill the broker."""
    if life.kafka is None:
        return "skipped: no broker"
    life.kafka.kill(1)
    life.pause(away_s := rng.uniform(0.0, 2 * _AWAY_S))
    life.kafka.restart(1)
    return f"back after {away_s:.0f} s"


def all_killed(life: EdgeLife, rng: random.Random) -> str:
    """Kill agents, gateways, a worker and the broker right after each other, in any order."""
    names = [*life.agents, *life.gateways, rng.choice(life.shape.workers)]
    rng.shuffle(names)
    for name in names:
        life.kill(name)
        life.pause(rng.uniform(0.0, 0.3))
    broker = ""
    if life.kafka is not None and rng.random() < 0.5:
        broker = " and the broker"
        life.kafka.kill(1)
        life.kafka.restart(1)
    rng.shuffle(names)
    for name in names:
        life.start(name)
    return ", ".join(names) + broker


def agent_at_point(life: EdgeLife, rng: random.Random) -> str:
    """Let an agent die at a crash point of its log or sender, twice: the second time while it recovers or soon after."""
    name, point, nth = rng.choice(life.agents), rng.choice(WAL_POINTS + AGENT_POINTS), rng.choice((1, 1, 2, 5))
    return _at_point(life, name, f"{point}@{nth}:die")


def power_lost(life: EdgeLife, rng: random.Random) -> str:
    """Kill an agent, and take from its log what was not synced, as a loss of power does."""
    names = rng.sample(life.agents, rng.randrange(1, len(life.agents) + 1))
    for name in names:
        life.kill(name)
        (life.power_folder(name) / "lost").touch()
        life.start(name)
    return ", ".join(names)


def gateway_at_point(life: EdgeLife, rng: random.Random) -> str:
    """Let a gateway die after it has written frames, or their index, and before it answers."""
    name, point = rng.choice(life.gateways), rng.choice(GATEWAY_POINTS)
    life.kill(next(each for each in life.gateways if each != name))  # else this one may get no frames
    about = _at_point(life, name, f"{point}@{rng.choice((1, 3))}:die")
    for each in life.gateways:
        if each not in life.running:
            life.start(each)
    return about


def gateway_disk_full(life: EdgeLife, rng: random.Random) -> str:
    """Let a gateway find no space after it has written frames."""
    if life.kafka is not None:
        return "skipped: the channel is on the brokers' disks"
    name = rng.choice(life.gateways)
    life.arm(name, f"gateway.written@{rng.choice((1, 2))}:enospc")
    life.kill(name)
    life.start(name)
    life.pause(rng.uniform(3.0, _AWAY_S))
    life.arm(name, "")
    return name


def network_cut(life: EdgeLife, rng: random.Random) -> str:
    """Cut the network between agents and gateways: connections are reset."""
    return _network(life, rng, "refuse", rng.uniform(3.0, 12.0))


def half_open(life: EdgeLife, rng: random.Random) -> str:
    """Let bytes get lost without a word, as with a cable that was pulled."""
    return _network(life, rng, "swallow", rng.uniform(3.0, 12.0))


def answers_lost(life: EdgeLife, rng: random.Random) -> str:
    """Cut connections before the answer: gateways have stored the frames, and agents do not know."""
    return _network(life, rng, "mute", rng.uniform(3.0, 8.0))


def slow_gateways(life: EdgeLife, rng: random.Random) -> str:
    """Let gateways answer later than agents wait."""
    for proxy in life.proxies.values():
        proxy.delay_s = TIMEOUT_S + 2.0
    return _network(life, rng, "slow", rng.uniform(8.0, 15.0))


def long_cut(life: EdgeLife, rng: random.Random) -> str:
    """Cut the network for as long as a bounded buffer in memory lasts."""
    return _network(life, rng, "refuse", rng.uniform(22.0, 30.0), all_of_them=True)


def ten_minutes_cut(life: EdgeLife, rng: random.Random) -> str:
    """Cut the network for ten minutes."""
    return _network(life, rng, "refuse", 600.0, all_of_them=True)


def ten_minutes_late(life: EdgeLife, rng: random.Random) -> str:  # noqa: ARG001 - as all ways
    """Suspend the last tier for ten minutes: acknowledgements come as late."""
    return _asleep(life, [life.shape.workers[-1]], 600.0)


def gateway_replaced(life: EdgeLife, rng: random.Random) -> str:
    """Replace a gateway by one with another name, port and folder, while agents fail over from it."""
    old = rng.choice(life.gateways)
    new = f"gateway{len(life.proxies) + 1}"
    life.kill(old)
    life.gateways = [*(each for each in life.gateways if each != old), new]
    life.add_gateway(new)
    for name in life.gateways:
        life.kill(name)
        life.start(name)
    for name in rng.sample(life.agents, 1):  # one learns of it at its start, the others from the other gateway
        life.kill(name)
        life.start(name)
    return f"{old} by {new}"


def gateway_asleep(life: EdgeLife, rng: random.Random) -> str:
    """Suspend a gateway until agents use the other one; then it wakes up and writes what it had in hand."""
    name = rng.choice(life.gateways)
    return _asleep(life, [name], rng.uniform(TIMEOUT_S + 2.0, 4 * TIMEOUT_S))


def agent_asleep(life: EdgeLife, rng: random.Random) -> str:
    """Suspend an agent, as a laptop or a virtual machine."""
    return _asleep(life, [rng.choice(life.agents)], rng.uniform(2.0, 10.0))


def worker_asleep(life: EdgeLife, rng: random.Random) -> str:
    """Suspend the last tier: acknowledgements come late."""
    return _asleep(life, [life.shape.workers[-1]], rng.uniform(10.0, 40.0))


def token_removed(life: EdgeLife, rng: random.Random) -> str:
    """Remove the tokens of some agents while they are connected, and put them back."""
    kept = rng.sample(life.agents, rng.randrange(len(life.agents)))
    life.allow(kept)
    life.pause(away_s := rng.uniform(3.0, 8.0))
    life.allow(life.agents)
    return f"of all but {', '.join(kept) or 'none'}, for {away_s:.0f} s"


def two_agents(life: EdgeLife, rng: random.Random) -> str:
    """Start a second agent on the folder of one that runs: it must refuse, and name the other."""
    name = rng.choice(life.agents)
    life.wait_for(lambda: life.lanes()[name] and not life.has_ended(name), f"{name} runs")
    environment = {**os.environ, **life.environment}
    found = subprocess.run(life.agent_words(name), env=environment, capture_output=True, text=True, check=False, timeout=120)
    if found.returncode == 0 or "another agent uses the folder" not in found.stderr:
        life.wrong.append(f"a second agent on the folder of {name} ended with {found.returncode}: {found.stderr[-300:]}")
    return name


def clock_jump(life: EdgeLife, rng: random.Random) -> str:
    """Set the clock of an agent back or forward; it is right again some seconds later."""
    name, jump_s = rng.choice(life.agents), rng.choice((-86_400.0, -3600.0, -5.0, 5.0, 3600.0, 86_400.0 * 400))
    file = life.clock_file(name)
    file.write_text(str(jump_s))
    restarted = rng.random() < 0.5
    life.pause(rng.uniform(1.0, 4.0))
    if restarted:
        life.kill(name)
        life.start(name)
        life.pause(rng.uniform(1.0, 4.0))
    file.write_text("0")
    return f"{name} by {jump_s:g} s" + (", and killed" if restarted else "")


def disk_full(life: EdgeLife, rng: random.Random) -> str:
    """Fill the disk that an agent has its log on, kill it there, and free some."""
    if reason := no_small_disk():
        return f"skipped: {reason}"
    name = next((each for each in life.agents if each in life._disks), life.agents[0])
    if name not in life._disks:
        life.kill(name)
        life.put_on_small_disk(name, "6m")
        life.start(name)
        life.pause(rng.uniform(1.0, 4.0))
    ballast = life.agent_folder(name) / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    life.pause(rng.uniform(2.0, 6.0))
    restarted = rng.random() < 0.5
    if restarted:
        life.kill(name)
        life.start(name)
        life.pause(rng.uniform(2.0, 5.0))
    ballast.unlink()
    return name + (", killed meanwhile" if restarted else "")


def _killed(life: EdgeLife, rng: random.Random, names: Sequence[str]) -> str:
    for name in names:
        life.kill(name)
    life.pause(away_s := rng.uniform(0.0, _AWAY_S))
    for name in names:
        life.start(name)
    return f"{', '.join(names)}, back after {away_s:.1f} s"


def _at_point(life: EdgeLife, name: str, fault: str) -> str:
    life.doomed.add(name)
    life.arm(name, fault)
    life.kill(name)
    life.doomed.add(name)
    life.start(name)
    try:
        for _ in range(int(_POINT_LIMIT_S / 0.2)):
            if life.has_ended(name):
                break
            life.pause(0.2)
        reached = life.has_ended(name)
    finally:
        life.arm(name, "")
        life.kill(name)
        life.start(name)
    return f"{name}, {fault}" + ("" if reached else ", which was not reached")


def _network(life: EdgeLife, rng: random.Random, mode: str, seconds: float, *, all_of_them: bool = False) -> str:
    names = life.gateways if all_of_them or rng.random() < 0.7 else [rng.choice(life.gateways)]
    try:
        for name in names:
            proxy = life.proxies[name]
            proxy.mode = mode  # type: ignore[assignment]
            if mode == "refuse":
                proxy.cut()
        life.pause(seconds)
    finally:
        for name in names:
            life.proxies[name].mode = "pass"
    return f"{', '.join(names)} for {seconds:.0f} s"


def _asleep(life: EdgeLife, names: Sequence[str], seconds: float) -> str:
    try:
        for name in names:
            life.signal(name, signal.SIGSTOP)
        life.pause(seconds)
    finally:
        for name in names:
            life.signal(name, signal.SIGCONT)
    return f"{', '.join(names)} for {seconds:.0f} s"


EDGE_WAYS: dict[str, EdgeWay] = {
    "agent-killed": agent_killed,
    "agent-killed-again": agent_killed_again,
    "agent-at-point": agent_at_point,
    "agent-asleep": agent_asleep,
    "power-lost": power_lost,
    "gateway-killed": gateway_killed,
    "gateways-killed": gateways_killed,
    "gateway-at-point": gateway_at_point,
    "gateway-disk-full": gateway_disk_full,
    "gateway-replaced": gateway_replaced,
    "gateway-asleep": gateway_asleep,
    "worker-killed": worker_killed,
    "worker-asleep": worker_asleep,
    "broker-killed": broker_killed,
    "all-killed": all_killed,
    "network-cut": network_cut,
    "half-open": half_open,
    "answers-lost": answers_lost,
    "slow-gateways": slow_gateways,
    "long-cut": long_cut,
    "token-removed": token_removed,
    "two-agents": two_agents,
    "clock-jump": clock_jump,
    "disk-full": disk_full,
    "ten-minutes-cut": ten_minutes_cut,
    "ten-minutes-late": ten_minutes_late,
}
LONG_WAYS = ("ten-minutes-cut", "ten-minutes-late")
"""those that a campaign uses only where they are named"""
SPARING_AGENTS = (
    "gateway-killed",
    "gateways-killed",
    "gateway-at-point",
    "gateway-disk-full",
    "gateway-asleep",
    "worker-killed",
    "worker-asleep",
    "broker-killed",
    "network-cut",
    "half-open",
    "answers-lost",
    "slow-gateways",
    "long-cut",
    "agent-asleep",
)
"""those after which agents that keep records in memory still have them"""
