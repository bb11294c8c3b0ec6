"""What a protocol must outlive. Each trial runs a Job to its end through faults and returns what the checker found."""

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
"""Clean runs after the faults at most; the first should do."""
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`statuses` are those of the children that met faults, in order; `last` that of the last clean run."""

    findings: Findings
    statuses: tuple[int, ...]
    last: int

    @property
    def clean(self) -> bool:
        """True if no check failed and the job came to its end."""
        return not self.findings and self.last == campaign.DONE

    def __str__(self) -> str:
        return f"{self.findings} (statuses {self.statuses}, then {self.last})"


def killed(job: Job, faults: Sequence[str], make_driver: MakeDriver = Driver, *, power: bool = False) -> Outcome:
    """A run for each of `faults`, then clean ones. With `power` the machine goes dark at each end, and unsynced bytes are gone.

    After each fault a foreign reader looks: what it sees must be whole, and stay.
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
    """A driver sleeps at `point` (`point@nth`), its lock file is deleted, a successor runs (with the faults `successor`) to its end,
    then the first one wakes."""
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
    """A run that meets a full disk: at a point (`point:enospc`), or by a limit on the size of files; then clean ones."""
    seen = _Seen(job)
    status = campaign.run(job, fault, make_driver=make_driver, file_limit=file_limit)
    seen.read_new()
    return finished(job, make_driver, [status], seen)


def finished(job: Job, make_driver: MakeDriver, statuses: Sequence[int], seen: _Seen | None = None) -> Outcome:
    """What is left once clean runs have brought the job to its end."""
    last = campaign.FAILED
    for _ in range(RESTARTS):
        last = campaign.run(job, make_driver=make_driver)
        if last == campaign.DONE:
            break
    findings = campaign.check(job)
    findings.torn += seen.wrong() if seen is not None else []
    return Outcome(findings, tuple(statuses), last)


def await_file(path: Path, child: Child) -> None:
    """Wait for a file that the child makes."""
    deadline = time.monotonic() + _LIMIT_S
    while not path.exists():
        if not child.alive:
            raise AssertionError(f"the driver ended (status {child.wait()}) before it came to where it should sleep")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear in {_LIMIT_S} s")
        time.sleep(0.002)


class _Seen:
    """What a foreign reader has seen on the way."""

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
        """After the last run."""
        changed = [path for path, crc in self._files.items() if not path.exists() or zlib.crc32(path.read_bytes()) != crc]
        return [*(f"on the way: {text}" for text in self._torn), *(f"{path.name} was visible, and has changed" for path in changed)]
