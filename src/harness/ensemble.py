"""Several ZooKeeper servers on this machine that form a quorum: of three servers, one may fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.embedded.server import free_ports, load_or_create
from scribengin.embedded.zookeeper import Quorum, ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class ZooKeeperEnsemble:
    """An ensemble of `count` servers, an odd number. Data and ports are kept in `folder` across restarts. A context manager like
    `ZooKeeper`."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.folder = folder.absolute()
        ports = load_or_create(self.folder / "ensemble.json", dict[int, tuple[int, int]], lambda: _new_ports(count))
        self.servers = [ZooKeeper(self.folder / str(number), Quorum(number, ports)) for number in sorted(ports)]

    @property
    def address(self) -> str:
        """The addresses `127.0.0.1:port,…` for a client's connect string."""
        return ",".join(server.address for server in self.servers)

    @property
    def pid(self) -> int | None:
        """The process id of the first server, if all are running; else None."""
        pids = [server.pid for server in self.servers]
        return None if None in pids else pids[0]

    def start(self) -> None:
        """Start the servers that are not running, and wait until all answer. Raises EnvironmentFault as `ZooKeeper.start`."""
        begun = [server for server in self.servers if server.begin()]
        try:
            for server in self.servers:
                server.wait_ready()
        except BaseException:
            for server in begun:
                server.kill()
            raise

    def stop(self) -> None:
        """Stop all servers cleanly."""
        for server in self.servers:
            server.stop()

    def clear(self) -> None:
        """Clean up after servers that have ended."""
        for server in self.servers:
            server.clear()

    def __enter__(self) -> ZooKeeperEnsemble:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _new_ports(count: int) -> dict[int, tuple[int, int]]:
    ports = free_ports(2 * count)
    return {number: (ports[2 * number - 2], ports[2 * number - 1]) for number in range(1, count + 1)}
