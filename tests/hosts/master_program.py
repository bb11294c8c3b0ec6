"""A master that stops itself (SIGSTOP) once, in the middle of what it has decided: a run is noted, and its order not yet written."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.control.executor import ordering
from scribengin.control.master import Master
from scribengin.core.secret import Secret
from scribengin.local.run_log import open_run_log
from scribengin.registry.access import DigestLogin, RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.tree import MASTERS

if TYPE_CHECKING:
    from scribengin.control.world import RunId
    from scribengin.launch.contract import LaunchOrder


def main(registry: str, login_file: str, name: str, folder: str) -> None:
    entrance = ConnectionSettings(RegistryAddress.parse(registry), DigestLogin(Secret(Path(login_file).read_text(), login_file)))
    client = entrance.open()
    about = {"id": name, "pid": os.getpid()}
    client.commit(MASTERS(name).create(MASTERS.kind(**about), ephemeral=True))
    real = ordering(client)
    slept: list[RunId] = []

    def order(id_: RunId) -> LaunchOrder:
        if not slept:
            slept.append(id_)
            before = client.session().id
            os.kill(os.getpid(), signal.SIGSTOP)
            # with a session again, of which ZooKeeper takes writes: only its Term is over
            while client.session().id == before or not client.session().lives:
                time.sleep(0.05)
        return real(id_)

    with open_run_log(Path(folder) / "master.log") as log:
        master = Master(client, {}, order, about, log=log, worker_login=entrance.worker_login)
        signal.signal(signal.SIGTERM, lambda *_: master.stop())
        master.run()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
