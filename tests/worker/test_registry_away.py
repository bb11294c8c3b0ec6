"""A worker whose registry is away goes on for the length of its lease, then commits nothing; when it is back the same process goes on."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from farm import until

from scribengin.core.process import Process, birth_of, within

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

    # asleep for less than a lease: nobody notices. Where the machine is slower than that, it is looked at again
    rows, went_on = 50, False
    for _ in range(10):
        rows += 50
        server.send(signal.SIGSTOP)
        farm.adds()
        went_on = within(SESSION_S / 2, lambda rows=rows: len(farm.finds()) == rows)  # type: ignore[misc]
        server.send(signal.SIGCONT)
        until(lambda rows=rows: len(farm.finds()) == rows, "the file's records")  # type: ignore[misc]
        until(lambda: farm.report() is not None, "the registry's answer")
        if went_on:
            break
    assert went_on, "with the registry asleep"

    # for longer: nothing is committed that nobody may know of
    server.send(signal.SIGSTOP)
    time.sleep(SESSION_S + 1)
    farm.adds()
    time.sleep(QUIET_S)  # that nothing happens can only be waited for
    assert len(farm.finds()) == rows
    server.send(signal.SIGCONT)
    until(lambda: len(farm.finds()) == rows + 50, "the next file's records")
    assert worker.alive()

    # gone, and started again
    farm.zookeeper.kill()
    time.sleep(SESSION_S + 1)
    farm.adds()
    time.sleep(QUIET_S)
    assert len(farm.finds()) == rows + 50
    farm.zookeeper.start()
    until(lambda: len(farm.finds()) == rows + 100, "the last file's records")
    assert worker.alive(), "the same process"
    until(lambda: farm.describes()["status"]["state"] == "running", "running again")
    run = farm.run()
    assert run is not None
    assert (run.number, run.ended_at) == (1, None)
    assert farm.finds() == list(range(1, 2 * rows + 200, 2))
