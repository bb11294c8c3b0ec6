"""`make demo-edge`: twenty agents follow the logs of twenty hosts, two gateways take their records, a broker stores them, and a flow of two
tiers keeps them. Each part is killed while they write; then every line is counted.

Everything of the run lies in a folder of its own, which is gone at the end, however it ends.
"""

import argparse
import os
import random
import signal
import tempfile
import time
from pathlib import Path

from rich.console import Console

from harness.edge_plane import EdgePlane, LogHost, json_rows, verdict, within
from scribengin.embedded.jars import fetch
from scribengin.embedded.kafka import JARS, KafkaCluster

HERE = Path(__file__).parent
GATEWAYS = ("gateway1", "gateway2")
TIERS = ("sort", "keep")
LANE = "edge.access"
_ROTATE_S = 7
console = Console(highlight=False)


def main() -> int:
    """0 if each line is there once; else 1."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agents", type=int, default=20, help="number of agents")
    options.add_argument("--rate", type=float, default=100.0, help="lines a second of each host")
    options.add_argument("--seed", type=int, default=7, help="of rotations and victims")
    options.add_argument("--folder", type=Path, default=HERE, help="where the run's own folder is made")
    options.add_argument("--keep", action="store_true", help="keep the folder")
    asked = options.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    folder = Path(tempfile.mkdtemp(prefix=".demo-", dir=asked.folder)).absolute()
    plane = EdgePlane(folder, HERE / "flow.yaml", {"LOGS": str(folder / "logs"), "OUT": str(folder / "out")})
    try:
        return demo(plane, asked)
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left.")
        return 130
    finally:
        if not asked.keep:
            plane.remove()


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def demo(plane: EdgePlane, asked: argparse.Namespace) -> int:
    """From nothing to the count."""
    begun_s, choice = time.monotonic(), random.Random(asked.seed)
    fetch(JARS, lambda line: console.print(line, style="dim"))
    names = [f"web{number:02d}" for number in range(1, asked.agents + 1)]
    with KafkaCluster(plane.folder / "kafka") as broker, plane:
        plane.environment = {**plane.environment, "BOOTSTRAP": broker.bootstrap}
        os.environ.update(plane.environment)
        _say(f"a broker is up; {asked.agents} hosts write {asked.agents * asked.rate:,.0f} lines a second, and rotate their logs")
        plane.name_gateways(*GATEWAYS)
        for gateway in GATEWAYS:
            plane.start_gateway(gateway)
        every = max(50, int(asked.rate * _ROTATE_S))
        hosts = [LogHost(plane.folder / "logs", name, rate=asked.rate, rotate_every=every, seed=asked.seed) for name in names]
        for host in hosts:
            host.start()
        for name in names:
            plane.start_agent(name)
        for tier in TIERS:
            plane.start_worker(tier)
        within(180, lambda: _alive(plane) and _committed(plane, names) > 0, "the first lines are committed")
        _say(f"the first lines went all the way, and the agents know: {_line(plane, names, hosts)}")

        victims = choice.sample(names, 3)
        _strike(plane, names, hosts, "three agents", lambda: [plane.kill(name) for name in victims])
        for name in victims:
            plane.start_agent(name)
        _strike(plane, names, hosts, GATEWAYS[0], lambda: plane.kill(GATEWAYS[0]))
        _strike(plane, names, hosts, f"the worker of tier {TIERS[0]}", lambda: plane.kill(TIERS[0]))
        plane.start_gateway(GATEWAYS[0])
        plane.start_worker(TIERS[0])
        _strike(plane, names, hosts, "the broker", lambda: broker.kill(1))
        broker.restart(1)
        _strike(plane, names, hosts, GATEWAYS[1], lambda: plane.kill(GATEWAYS[1]))
        plane.start_gateway(GATEWAYS[1])
        _strike(plane, names, hosts, f"the worker of tier {TIERS[1]}", lambda: plane.kill(TIERS[1]))
        plane.start_worker(TIERS[1])

        for host in hosts:
            host.end()
        for host in hosts:
            host.join()
        _say(f"the hosts write no more, with {sum(host.rotations for host in hosts):,} rotations")
        within(300, lambda: _all_committed(plane, hosts), f"all lines are committed; now {_line(plane, names, hosts)}")
        _say(f"every line is acknowledged from the far end: {_line(plane, names, hosts)}")
        for tier in TIERS:
            plane.kill(tier, by=signal.SIGTERM)
        audit = plane.scribengin("audit", str(plane.flow), "--state", str(plane.state))
        console.print(audit.stdout.rstrip(), style="dim")
        found = verdict({host.name: host.number for host in hosts}, json_rows(plane.folder / "out/pages", plane.folder / "out/errors"))
    right = found.is_right and audit.returncode == 0
    console.print(f"\n[bold {'green' if right else 'red'}]{found}[/] in {time.monotonic() - begun_s:.0f} s")
    return 0 if right else 1


def _strike(plane: EdgePlane, names: list[str], hosts: list[LogHost], what: str, strike: object) -> None:
    """Kill something, and let the others go on without it."""
    time.sleep(2.0)
    assert callable(strike)
    strike()
    console.print(f"[bold red]SIGKILL[/] to {what}: {_line(plane, names, hosts)}")
    time.sleep(3.0)


def _lanes(plane: EdgePlane, names: list[str]) -> list[dict[str, int]]:
    return [lanes[LANE] for name in names if (lanes := plane.agent_status(name)) and LANE in lanes]


def _committed(plane: EdgePlane, names: list[str]) -> int:
    return sum(lane.get("committed", 0) for lane in _lanes(plane, names))


def _all_committed(plane: EdgePlane, hosts: list[LogHost]) -> bool:
    _alive(plane)
    lanes = {host.name: plane.agent_status(host.name).get(LANE, {}) for host in hosts}
    return all(lanes[host.name].get("committed", 0) >= host.number for host in hosts)


def _alive(plane: EdgePlane) -> bool:
    for name in plane.dead():
        if name in TIERS and "unreachable" in plane.log(name)[-2000:]:
            plane.start_worker(name)  # it was started while the broker was down; under a control plane a master does this
            continue
        raise SystemExit(f"{name} ended by itself:\n{plane.log(name)[-3000:]}")
    return True


def _line(plane: EdgePlane, names: list[str], hosts: list[LogHost]) -> str:
    lanes = _lanes(plane, names)
    figures = [sum(lane.get(name, 0) for lane in lanes) for name in ("read", "stored", "committed")]
    written = sum(host.number for host in hosts)
    return f"{written:,} lines written, {figures[0]:,} read, {figures[1]:,} stored, {figures[2]:,} committed"


def _say(text: str) -> None:
    console.print(text)


if __name__ == "__main__":
    raise SystemExit(main())
