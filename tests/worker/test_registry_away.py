"""A worker whose registry is away goes on for the length of its lease, then commits nothing; when it is back the same process goes on."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from farm import until

from scribengin.core.process import Process, birth_of

if TYPE_CHECKING:
    from farm import Farm

WORKER = "numbers.main-1"
SESSION_S = 10.0
"""of a worker"""
QUIET_S = 2.5
"""a worker that goes on commits what was added within one"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_worker_outlives_its_registry_and_goes_on_by_itself_when_it_is_back(farm: Farm) -> None:
    farm.adds()
    farm.plants()
    until(lambda: len(farm.finds()) == 50, "the first file's records")
    until(lambda: (report := farm.report()) is not None and report.commits > 0, "its word")
    worker = farm.driver("a", WORKER)
    pid = farm.zookeeper.pid
    assert pid is not None
    server = Process(pid, birth_of(pid) or "")

    # asleep for less than a lease: nobody notices
    server.send(signal.SIGSTOP)
    farm.adds()
    until(lambda: len(farm.finds()) == 100, "the second file's records, with the registry asleep", SESSION_S - 2)
    server.send(signal.SIGCONT)

    # for longer: nothing is committed that nobody may know of
    until(lambda: farm.report() is not None, "the registry's answer")
    server.send(signal.SIGSTOP)
    time.sleep(SESSION_S + 1)
    farm.adds()
    time.sleep(QUIET_S)  # that nothing happens can only be waited for
    assert len(farm.finds()) == 100
    server.send(signal.SIGCONT)
    until(lambda: len(farm.finds()) == 150, "the third file's records")
    assert worker.alive()

    # gone, and started again
    farm.zookeeper.kill()
    time.sleep(SESSION_S + 1)
    farm.adds()
    time.sleep(QUIET_S)
    assert len(farm.finds()) == 150
    farm.zookeeper.start()
    until(lambda: len(farm.finds()) == 200, "the fourth file's records")
    assert worker.alive(), "the same process"
    until(lambda: farm.describes()["status"]["state"] == "running", "running again")
    run = farm.run()
    assert run is not None
    assert (run.number, run.ended_at) == (1, None)
    assert farm.finds() == list(range(1, 400, 2))
