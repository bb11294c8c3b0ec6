"""Trials of the commit protocol. Each runs a Job to its end in spite of faults, and returns the findings of the checker."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.testing import campaign
from scribengin.testing.checker import Findings, read_output, visible_files
from scribengin.testing.protocol import SINKS, Driver, Job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.testing.campaign import Child, MakeDriver

RESTARTS = 3
"""maximum number of runs without faults at the end; the first one should succeed"""
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial: `statuses` are the exit statuses of the children with faults, in order; `last` is that of the last run without
    faults."""

    findings: Findings
    statuses: tuple[int, ...]
    last: int

    @property
    def clean(self) -> bool:
        """True if no check failed and the job is complete."""
        return not self.findings and self.last == campaign.DONE

    def __str__(self) -> str:
        return f"{self.findings} (statuses {self.statuses}, then {self.last})"


def killed(job: Job, faults: Sequence[str], make_driver: MakeDriver = Driver, *, power: bool = False) -> Outcome:
    """Run a driver once for each fault, then without faults. After each fault an independent reader checks that all visible files are
    complete and do not change.

    Args:
        job: The job.
        faults: The faults, one run for each.
        make_driver: Creates the driver.
        power: Simulate a power failure at the end of each of these runs: unsynced data is lost.
    """
    seen = _Seen(job)
    statuses = []
    for fault in faults:
        statuses.append(campaign.run(job, fault, make_driver=make_driver, power=power))
        if power:
            campaign.lose_power(job)
        seen.read_new()
    return finished(job, make_driver, statuses, seen)


def overtaken(job: Job, point: str, make_driver: MakeDriver = Driver, *, successor: str = "") -> Outcome:
    """Suspend a driver at `point` (`point@nth`), delete its lock file, run a successor, then resume the first driver.

    Args:
        job: The job.
        point: The crash point at which the first driver waits.
        make_driver: Creates both drivers.
        successor: The faults of the successor; empty for none.
    """
    seen = _Seen(job)
    gate = job.state.parent / f"{job.state.name}.gate"
    sleeper = campaign.start(job, f"{point}:wait={gate}", make_driver=make_driver)
    await_file(gate.with_name(f"{gate.name}.waiting"), sleeper)
    second = campaign.run(job, successor, make_driver=make_driver, lock_removed=True)
    seen.read_new()
    gate.touch()
    first = sleeper.wait()
    seen.read_new()
    return finished(job, make_driver, [second, first], seen)


def out_of_room(job: Job, make_driver: MakeDriver = Driver, *, fault: str = "", file_limit: int | None = None) -> Outcome:
    """Run a driver that finds the disk full, then run it without faults.

    Args:
        job: The job.
        make_driver: Creates the driver.
        fault: A fault such as `point:enospc`; empty for none.
        file_limit: Maximum size of a file, in bytes; None for no limit.
    """
    seen = _Seen(job)
    status = campaign.run(job, fault, make_driver=make_driver, file_limit=file_limit)
    seen.read_new()
    return finished(job, make_driver, [status], seen)


def finished(job: Job, make_driver: MakeDriver, statuses: Sequence[int], seen: _Seen | None = None) -> Outcome:
    """Run the job without faults to its end and check the result.

    Args:
        job: The job.
        make_driver: Creates the driver.
        statuses: The exit statuses of the earlier runs, for the outcome.
        seen: The observations of an independent reader so far; None if there are none.
    """
    last = campaign.FAILED
    for _ in range(RESTARTS):
        last = campaign.run(job, make_driver=make_driver)
        if last == campaign.DONE:
            break
    findings = campaign.check(job)
    findings.torn += seen.wrong() if seen is not None else []
    return Outcome(findings, tuple(statuses), last)


def await_file(path: Path, child: Child) -> None:
    """Wait for a file that the child creates. Raises AssertionError if the child ends before, TimeoutError after two minutes."""
    deadline = time.monotonic() + _LIMIT_S
    while not path.exists():
        if not child.alive:
            raise AssertionError(f"the driver ended (status {child.wait()}) before it came to where it should sleep")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear in {_LIMIT_S} s")
        time.sleep(0.002)


class _Seen:
    """The files that an independent reader has seen during the trial."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._files: dict[Path, int] = {}
        self._torn: list[str] = []

    def read_new(self) -> None:
        for node in SINKS:
            for _ in read_output(self._job.out / node, self._job.format, torn=self._torn):
                pass
            self._files |= {path: zlib.crc32(path.read_bytes()) for path in visible_files(self._job.out / node)}

    def wrong(self) -> list[str]:
        """The problems that the reader has seen; called after the last run."""
        changed = [path for path, crc in self._files.items() if not path.exists() or zlib.crc32(path.read_bytes()) != crc]
        return [*(f"on the way: {text}" for text in self._torn), *(f"{path.name} was visible, and has changed" for path in changed)]
