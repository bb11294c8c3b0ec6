"""Fault campaigns: run drivers in child processes that are killed, suspended or out of disk space, then check every record."""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core import faults, numbered_log
from scribengin.core.errors import FencedError, Refused, ScribenginError, StateError
from scribengin.state.dead_letters import read_letters
from scribengin.state.ledger import balance, read_totals
from scribengin.state.lineage import read_lineage
from scribengin.testing.checker import Findings, Found, check_records
from scribengin.testing.children import LIMIT_S, await_end, fork
from scribengin.testing.protocol import SOURCE, STEP, Driver, Job
from scribengin.testing.records import Records

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from pathlib import Path

DONE, FENCED, REFUSED, FAILED, BUG = 0, 10, 11, 12, 13
"""exit statuses of a child that ends by itself; a negative status is the number of the signal that ended it"""

MakeDriver = Callable[[Job], Driver]


@dataclass(frozen=True, slots=True)
class Child:
    """A driver that runs in a process of its own."""

    process: BaseProcess

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Wait for the end and return the exit status. If the driver still runs after `limit_s` seconds, kill it and raise TimeoutError."""
        return await_end(self.process, limit_s)

    @property
    def alive(self) -> bool:
        """True while the driver runs."""
        return self.process.is_alive()


def start(
    job: Job,
    fault: str = "",
    *,
    make_driver: MakeDriver = Driver,
    lock_removed: bool = False,
    file_limit: int | None = None,
    power: bool = False,
) -> Child:
    """Start a driver in a child process.

    Args:
        job: The job that the driver runs.
        fault: Faults to arm in the child, in the syntax of `core.faults.arm`; empty for none.
        make_driver: Creates the driver from the job; a function that the child can import.
        lock_removed: Delete the lock file first, as if it were left by a dead driver.
        file_limit: Maximum size of a file, in bytes; None for no limit.
        power: Keep a journal of synced files, which `lose_power` needs.
    """
    return Child(fork(_child, job, fault, make_driver, lock_removed, file_limit, power))


def run(job: Job, fault: str = "", **options: Any) -> int:
    """Run a driver to its end, with the options of `start`, and return its exit status."""
    return start(job, fault, **options).wait()


def check(job: Job) -> Findings:
    """Check the outputs of both sinks, the dead letters and the ledger of a job whose Batches are all complete."""
    with _folded(job):
        return _check(job)


def _check(job: Job) -> Findings:
    torn: list[str] = []
    read = job.read(torn)
    rows = {node: len(of_sink) for node, of_sink in read.items()}
    found = [each for of_sink in read.values() for each in of_sink]
    letters: list[Found] = []
    try:
        # a store answers several requests concurrently: rows that it refuses are in no order
        letters += (
            Found("dead" if letter.step == STEP else letter.id, msgspec.json.decode(letter.payload)) for letter in read_letters(job.query)
        )
    except StateError as error:
        torn.append(error.message)
    findings = check_records(Records(job.run, job.units, job.part_rows).keys(), [*found, *letters])
    findings.torn += torn
    totals = read_totals(job.query)
    findings.imbalance += balance(totals.nodes, feeders={STEP: [SOURCE]})
    findings.imbalance += [
        f"the ledger says {totals.nodes[node].out} rows in {node}, {count} are there"
        for node, count in rows.items()
        if totals.nodes[node].out != count
    ]
    dead = sum(counts.dead for counts in totals.nodes.values())
    if dead != len(letters):
        findings.imbalance.append(f"the ledger says {dead} dead, there are {len(letters)}")
    return findings


def audit(job: Job, make_driver: MakeDriver = Driver) -> tuple[str, ...]:
    """The violations that Scribengin's own audit finds."""
    from scribengin.state.audit import audit_query

    driver, lineage = make_driver(job), read_lineage(job.query)
    assert lineage is not None
    with _folded(job):
        return audit_query(job.query, driver.sinks, lineage=lineage.id, feeders={STEP: [SOURCE]}).violations


def lose_power(job: Job) -> int:
    """Truncate every file to its last synced size, as a power failure would; returns the number of truncated files.

    Call it after a child that was started with `power` was killed. File names are kept: the check covers file contents, not folders.
    """
    synced: dict[int, int] = {}
    for line in _journal(job).read_text().splitlines():
        inode, size = map(int, line.split())
        synced[inode] = max(size, synced.get(inode, 0))
    cut = 0
    for root in (job.out, job.state):
        for path in root.rglob("*"):
            if path.is_file() and path != _journal(job):
                size = synced.get(path.stat().st_ino, 0)
                if size < path.stat().st_size and path.name != "lock":
                    os.truncate(path, size)
                    cut += 1
    return cut


def _journal(job: Job) -> Path:
    return job.state.parent / f"{job.state.name}.synced"


@contextmanager
def _folded(job: Job) -> Iterator[None]:
    """Set the folding interval of this process to the one that the job's drivers used, so that its folded files can be read."""
    chunk, numbered_log.CHUNK = numbered_log.CHUNK, job.fold_every
    try:
        yield
    finally:
        numbered_log.CHUNK = chunk


def _child(job: Job, fault: str, make_driver: MakeDriver, lock_removed: bool, file_limit: int | None, power: bool) -> None:
    os.setpgid(0, 0)  # a kill is sent to the process group: the child needs its own
    if file_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    if power:
        _keep_journal(_journal(job))
    faults.arm(fault)
    sys.exit(_status(lambda: make_driver(job).run(lock_removed=lock_removed)))


def _status(act: Callable[[], None]) -> int:
    try:
        act()
    except FencedError as error:
        return _report_error(error, FENCED)
    except Refused as error:
        return _report_error(error, REFUSED)
    except (ScribenginError, OSError) as error:
        return _report_error(error, FAILED)
    except Exception:
        traceback.print_exc()
        return BUG
    return DONE


def _report_error(error: Exception, status: int) -> int:
    with suppress(OSError):  # the disk may be full for this too
        print(f"child {os.getpid()}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return status


def _keep_journal(journal: Path) -> None:
    """Record each synced file and its size at that time. Each entry is one write, so that it survives a kill of the process."""
    sync = os.fsync
    note = journal.open("a", buffering=1)

    def fsync(handle: Any) -> None:
        sync(handle)
        status = os.fstat(handle)
        note.write(f"{status.st_ino} {status.st_size}\n")

    os.fsync = fsync  # type: ignore[assignment]
