"""The ways to strike a flow in YARN: each one strikes, repairs what has to be repaired, and returns a description."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from harness.yarn_plane import COLLECT, STORE

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from harness.yarn_plane import YarnPlane
    from scribengin.embedded.yarn import NodeManager

    YarnWay = Callable[[YarnPlane, random.Random], str]

_AWAY_S = 15.0
"""the longest time for which a server is away"""


def executor_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill the container of an executor; YARN gives Spark another one."""
    flow = rng.choice((COLLECT, STORE))
    plane.wait_for(lambda: bool(plane.executors(flow)), f"an executor of {flow}")
    container = rng.choice(plane.executors(flow))
    return f"{container} of {flow}, {plane.yarn.kill_containers(container)} processes"


def driver_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill the container of a driver, which is the application master."""
    flow = rng.choice((COLLECT, STORE))
    container = _driver(plane, flow)
    return f"{container} of {flow}, {plane.yarn.kill_containers(container)} processes"


def drivers_killed(plane: YarnPlane, _rng: random.Random) -> str:
    """Kill all containers of both flows at once."""
    return f"{plane.yarn.kill_containers()} processes"


def application_killed(plane: YarnPlane, rng: random.Random) -> str:
    """End an application as an administrator does."""
    flow = rng.choice((COLLECT, STORE))
    _driver(plane, flow)
    return f"{plane.kill_application(flow)} of {flow}"


def host_lost(plane: YarnPlane, rng: random.Random) -> str:
    """Kill a NodeManager and all of its containers, as if its machine were lost; it comes back later."""
    node = _busy_host(plane, rng)
    node.kill()
    killed = plane.yarn.kill_containers(str(node.logs))
    return f"{node.name}, {killed} processes of containers; back after {_away(plane, rng):.0f} s"


def node_manager_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill a NodeManager alone: its containers run on, and YARN counts them as lost."""
    node = _busy_host(plane, rng)
    node.kill()
    return f"{node.name}; back after {_away(plane, rng):.0f} s"


def host_asleep(plane: YarnPlane, rng: random.Random) -> str:
    """Suspend the host of a driver, with all of its containers, until another driver of the flow has written; then let it go on: it must
    write nothing."""
    flow = rng.choice((COLLECT, STORE))
    first = _driver(plane, flow)
    node = plane.host_of(first)
    if node is None or node.pid is None:
        return f"skipped: {first} of {flow} has ended"
    os.kill(node.pid, signal.SIGSTOP)
    asleep = plane.yarn.signal_containers(signal.SIGSTOP, str(node.logs))
    try:
        plane.wait_for(lambda: plane.driver(flow) not in ("", first), f"another driver of {flow}")
        second = plane.driver(flow)
        plane.wait_arrival()
    finally:
        plane.yarn.signal_containers(signal.SIGCONT, str(node.logs))
        plane.pause(rng.uniform(0.0, 3.0))
        os.kill(node.pid, signal.SIGCONT)
    return f"{node.name} with {first} of {flow}, {asleep} processes; {second} wrote beside it"


def driver_asleep(plane: YarnPlane, rng: random.Random) -> str:
    """Suspend the processes of a driver for longer than its session in the registry lasts."""
    flow = rng.choice((COLLECT, STORE))
    container = _driver(plane, flow)
    asleep = plane.yarn.signal_containers(signal.SIGSTOP, container)
    try:
        plane.pause(seconds := rng.uniform(_AWAY_S, 3 * _AWAY_S))
    finally:
        plane.yarn.signal_containers(signal.SIGCONT, container)
    return f"{container} of {flow}, {asleep} processes, for {seconds:.0f} s"


def resource_manager_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill the ResourceManager; it comes back with its recovered state."""
    plane.yarn.resource_manager.kill()
    return f"back after {_away(plane, rng):.0f} s"


def name_node_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill HDFS's NameNode: states cannot be written until it is back."""
    plane.yarn.hdfs.name_node.kill()
    return f"back after {_away(plane, rng):.0f} s"


def data_node_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill HDFS's only DataNode."""
    plane.yarn.hdfs.data_node.kill()
    return f"back after {_away(plane, rng):.0f} s"


def broker_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill the Kafka broker between the flows."""
    plane.kafka.kill(1)
    plane.pause(seconds := rng.uniform(0.0, _AWAY_S))
    plane.kafka.restart(1)
    return f"back after {seconds:.0f} s"


def keeper_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill ZooKeeper, for less or more than a session lasts."""
    plane.keeper.kill()
    plane.pause(seconds := rng.uniform(0.0, 2 * _AWAY_S))
    plane.keeper.start()
    return f"back after {seconds:.0f} s"


def master_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill the master of the control plane."""
    return _program_killed(plane, "master", rng)


def node_killed(plane: YarnPlane, rng: random.Random) -> str:
    """Kill the node of the control plane, which submits and watches the applications."""
    return _program_killed(plane, "node", rng)


def node_killed_as_it_submits(plane: YarnPlane, rng: random.Random) -> str:
    """Kill a driver, and the node while it may be submitting the next one."""
    about = application_killed(plane, rng)
    plane.pause(rng.uniform(0.0, 8.0))
    return f"{about}; then the node: {node_killed(plane, rng)}"


def _driver(plane: YarnPlane, flow: str) -> str:
    """The container of a flow's driver, as soon as there is one."""
    plane.wait_for(lambda: bool(plane.driver(flow)), f"a driver of {flow}")
    return plane.driver(flow)


def _busy_host(plane: YarnPlane, rng: random.Random) -> NodeManager:
    """A host that runs a driver."""
    hosts: list[NodeManager] = []

    def there() -> bool:
        hosts[:] = [host for flow in (COLLECT, STORE) if (host := plane.host_of(plane.driver(flow))) is not None]
        return bool(hosts)

    plane.wait_for(there, "a host with a driver")
    return rng.choice(hosts)


def _away(plane: YarnPlane, rng: random.Random) -> float:
    """Start the servers of YARN and HDFS that are down again after a while; returns the number of seconds."""
    plane.pause(seconds := rng.uniform(0.0, _AWAY_S))
    plane.yarn.start()
    return seconds


def _program_killed(plane: YarnPlane, name: str, rng: random.Random) -> str:
    plane.kill_program(name)
    plane.pause(seconds := rng.uniform(0.0, _AWAY_S))
    plane.start_program(name)
    return f"back after {seconds:.0f} s"


YARN_WAYS: dict[str, YarnWay] = {
    "executor-killed": executor_killed,
    "driver-killed": driver_killed,
    "drivers-killed": drivers_killed,
    "application-killed": application_killed,
    "host-lost": host_lost,
    "node-manager-killed": node_manager_killed,
    "host-asleep": host_asleep,
    "driver-asleep": driver_asleep,
    "resource-manager-killed": resource_manager_killed,
    "name-node-killed": name_node_killed,
    "data-node-killed": data_node_killed,
    "broker-killed": broker_killed,
    "zookeeper-killed": keeper_killed,
    "master-killed": master_killed,
    "node-killed": node_killed,
    "node-killed-as-it-submits": node_killed_as_it_submits,
}
