"""`scribengin server node`, but its workers are `worker_program.py`: they hold their leases and say how they stand, and do nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.cli.server_options import until_asked
from scribengin.control.home import Home
from scribengin.core.secret import Secret
from scribengin.hosts.node import Capacity, NodeHost, worker_order
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.access import DigestLogin, RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings

if TYPE_CHECKING:
    from scribengin.registry.records import WorkerOrder

PROGRAM = Path(__file__).with_name("worker_program.py")


def main(registry: str, login_file: str, name: str, folder: str, cores: str) -> None:
    entrance = ConnectionSettings(RegistryAddress.parse(registry), DigestLogin(Secret(Path(login_file).read_text(), login_file)))
    home = Home(Path(folder))
    real = worker_order(home, name, entrance)

    def make(worker: str, order: WorkerOrder) -> LaunchOrder:
        made = real(worker, order)
        return LaunchOrder(worker, (sys.executable, str(PROGRAM), worker), made.environment, made.secrets, cores=made.cores)

    with until_asked() as asked, NodeHost(home, name, entrance, capacity=Capacity(int(cores) or None), make=make):
        print("up", flush=True)
        asked.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
