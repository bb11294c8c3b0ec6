"""A worker in all but its tier: it takes the lease, does what is wanted, says how it stands. No Spark."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from scribengin.control.world import RunId
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.lease import RegistryLease
from scribengin.registry.tree import LEASE
from scribengin.worker.process import _read_spec
from scribengin.worker.registry_watch import DesiredState
from scribengin.worker.service import AttemptOutcome, AttemptStatus, WorkerService
from scribengin.worker.status_page import serve_page

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


def attempt(*, once: bool, stop: threading.Event, tell: Callable[[AttemptStatus], None]) -> AttemptOutcome:
    tell(AttemptStatus("running", 1))
    if once:
        return AttemptOutcome("finished")
    stop.wait()
    return AttemptOutcome("stopped")


def main(worker: str) -> int:
    id_ = RunId.parse(worker)
    assert id_ is not None
    registry = ConnectionSettings.of_environment(os.environ).open()
    version, _ = _read_spec(registry, id_)
    about = {"run": id_.number, "pid": os.getpid(), "host": os.environ["SCRIBENGIN_NODE"]}
    lease = RegistryLease(registry, LEASE(id_.flow, id_.tier).path, about)
    with serve_page(lambda: {"worker": worker, "rows": 17}) as http:
        service = WorkerService(registry, id_, lease, DesiredState(registry, id_), version, attempt, http=http)
        signal.signal(signal.SIGTERM, lambda *_: service.stop())
        status = service.serve()
    lease.close()
    registry.close()
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
