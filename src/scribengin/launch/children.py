"""Workers as processes of this machine that outlive who started them: the part that launchers with a process on this machine share.

All is in files and in the processes themselves, nothing in the memory of a launcher: the next one, in another process, goes on from there.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from signal import SIGKILL, SIGTERM, SIGUSR1
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import Process, within
from scribengin.core.storage import explained, make_folder, names_in, remove_tree
from scribengin.launch import keeper
from scribengin.launch.contract import ObservedWorker
from scribengin.launch.endings import Endings
from scribengin.launch.logs import log_path, logs_of, prune_logs
from scribengin.launch.marks import VARIABLE, mark_of, marked_processes
from scribengin.launch.records import Ordered, WorkerRecords
from scribengin.launch.spark_settings import spark_environment, write_spark_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from signal import Signals

    from scribengin.core.secret import Secret
    from scribengin.launch.contract import LaunchOrder

LOG_BYTES = 16 * 2**20
ORPHAN_GRACE_S = 10.0
_LOCKED_WITHIN_S = 60.0
_BEGUN_WITHIN_S = 60.0
_TOLD_WITHIN_S = 1.0
_KILL_ROUNDS = 5
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]*")


class Children:
    """The workers of one folder: records under `workers/`, output under `logs/`. Only its user may enter it.

    What is left of a worker when its first process has ended, and a worker whose JVM has ended, have `orphan_grace_s` to leave by
    themselves. A worker's log takes twice `log_bytes` at most, and what is written in five seconds.
    """

    def __init__(self, folder: Path, *, log_bytes: int = LOG_BYTES, orphan_grace_s: float = ORPHAN_GRACE_S) -> None:
        self.folder = folder.resolve()  # one spelling, of which the marks are made
        self._log_bytes = log_bytes
        self._orphan_grace_s = orphan_grace_s
        self._endings: Endings | None = None
        for part in (self.folder, self.folder / "workers", self.folder / "logs"):
            make_folder(part)
        with explained(f"the permissions of {self.folder} cannot be set"):
            self.folder.chmod(0o700)

    def start(
        self,
        order: LaunchOrder,
        *,
        master: str,
        settings: Mapping[str, str | Secret],
        environment: Mapping[str, str],
        fits: Callable[[list[Ordered]], None] = lambda _others: None,
        cpus: Callable[[list[Ordered]], tuple[int, ...]] = lambda _others: (),
    ) -> None:
        """Start the worker under Spark's `master`, `settings` and `environment` beside what the order says.

        `fits` is asked before, with the orders of all workers that are there, and raises where this one is too much; `cpus` says which it
        is to keep to, none for any. No other process starts a worker in the meantime.
        """
        records = self._records(order.worker)
        if _was_begun(records):
            return
        with self._alone() as lock:
            if _was_begun(records):
                return
            others = self._orders_in_force()
            fits(others)
            with explained(f"{records.folder} cannot be created"):
                records.folder.mkdir(mode=0o700, exist_ok=True)
            log = log_path(self.folder / "logs", order.worker)
            records.write_order(
                Ordered(
                    order.worker,
                    order.digest,
                    time.time(),
                    order.argv,
                    order.cores,
                    order.memory_bytes,
                    mark_of(self.folder, order.worker),
                    str(log),
                    self._log_bytes,
                    self._orphan_grace_s,
                    cpus(others),
                )
            )
            records.remove_stopping()  # of a start that came to nothing
            write_spark_settings(records.folder, {**settings, **order.spark})
            secrets = {name: secret.reveal() for name, secret in order.secrets.items()}
            asked = {**environment, **order.environment, **secrets, **spark_environment(records.folder, master), VARIABLE: None}
            given = {name: value for name, value in (os.environ | asked).items() if value is not None}
            _start_keeper(order.worker, records.folder, lock, given)

    def on_end(self, wake: Callable[[], None]) -> None:
        """As `TellsEnds` says: of those that `observe` has seen running."""
        self.close()
        self._endings = Endings(wake)

    def close(self) -> None:
        """Nothing is held but who hears of ends."""
        if self._endings is not None:
            self._endings.close()

    def stop(self, worker: str, grace_s: float) -> None:
        """As the contract says. The keeper does it; in its absence this process asks, and whoever looks later strikes."""
        seen = self._seen(worker)
        if seen is None or seen.state not in ("starting", "running"):
            return
        records = self._records(worker)
        before = records.stopping()
        if before is not None and before.dies_at_s <= time.monotonic() + grace_s:
            self._wake(records)
            return
        try:
            records.write_stopping(grace_s)
        except EnvironmentFault:  # no room for the record: then it is asked at least
            _send(records, SIGTERM)
            raise
        if not self._wake(records) and before is None:
            _send(records, SIGTERM)

    def kill(self, worker: str) -> None:
        """As the contract says: the keeper's children by the keeper, and all that carries the worker's mark."""
        if not _WORKER.fullmatch(worker):
            return
        records = self._records(worker)
        try:
            if records.folder.is_dir() and records.ended() is None:
                records.write_stopping(0.0)
        finally:
            self._wake(records)
            _send(records, SIGKILL)
            for _ in range(_KILL_ROUNDS):  # what is struck may have forked just before
                found = marked_processes(self.folder).get(worker, [])
                for process in found:
                    process.send(SIGKILL)
                if not found:
                    break

    def observe(self) -> list[ObservedWorker]:
        """As the contract says."""
        marked = marked_processes(self.folder)
        workers = {name for name in names_in(self.folder / "workers") if _WORKER.fullmatch(name)} | marked.keys()
        found = (self._seen(worker, marked.get(worker, [])) for worker in sorted(workers))
        return [seen for seen in found if seen is not None]

    def logs(self, worker: str) -> tuple[str, ...]:
        """As the contract says."""
        return logs_of(self.folder / "logs", worker) if _WORKER.fullmatch(worker) else ()

    def forget(self, worker: str) -> None:
        """As the contract says; logs of workers that were forgotten before go with it, by age and number."""
        seen = self._seen(worker)
        if seen is None or seen.state not in ("exited", "gone"):
            return
        with self._alone():  # no start of it is under way
            self.kill(worker)
            keeping = self._records(worker).keeper()
            if keeping is not None and not keeping.gone_within(_TOLD_WITHIN_S):
                keeping.send(SIGKILL)  # it would write into a folder that is not there
            remove_tree(self._records(worker).folder)
            prune_logs(self.folder / "logs", names_in(self.folder / "workers"))

    # --- pieces ---

    def _records(self, worker: str) -> WorkerRecords:
        return WorkerRecords(self.folder / "workers" / worker)

    def _orders_in_force(self) -> list[Ordered]:
        """Of all workers that are there."""
        found = [self._records(name) for name in names_in(self.folder / "workers") if _WORKER.fullmatch(name)]
        there = (one for one in found if one.ended() is None and (_is_alive(_process(one)) or _is_alive(one.keeper())))
        return [ordered for records in there if (ordered := records.ordered()) is not None]

    def _seen(self, worker: str, marked: list[Process] | None = None) -> ObservedWorker | None:
        """What is known of a worker; None if nothing is. `marked`: the processes that carry its mark; not asked for, no strays."""
        if not _WORKER.fullmatch(worker):
            return None
        records = self._records(worker)
        ordered, started, stopping = records.ordered(), records.started(), records.stopping()
        if ordered is None and started is None and not marked:
            return None
        digest, since_s = (ordered.digest, ordered.at_s) if ordered is not None else ("", 0.0)
        process = _process(records)
        if process is not None and started is not None and process.alive():
            if stopping is not None and stopping.dies_at_s < time.monotonic() and not _is_alive(records.keeper()):
                process.send(SIGKILL)  # its keeper would have
            if self._endings is not None:
                self._endings.follow(process)
            where = f"process {process.pid}"
            return ObservedWorker(worker, "running", digest, started.at_s, where, process.pid, stopping=stopping is not None)
        strays = tuple(sorted(one.pid for one in marked or [] if one != process))
        ended = records.ended()
        keeping = records.keeper()
        if process is not None and ended is None and _is_alive(keeping):
            within(_TOLD_WITHIN_S, lambda: records.ended() is not None)  # it is about to write how
            ended = records.ended()
        elif ended is None and (_is_alive(keeping) or (keeping is None and self._is_starting())):
            return ObservedWorker(worker, "starting", digest, since_s, "", stopping=stopping is not None)
        if ended is not None:
            return ObservedWorker(worker, "exited", digest, ended.at_s, "", None, ended.status, ended.reason, stopping is not None, strays)
        if process is None:
            reason = "it did not start: its launcher was killed" if ordered is not None else "its record no longer exists"
        else:
            reason = f"its exit status is unknown: its supervisor (process {keeping.pid if keeping else '?'}) was killed first"
        return ObservedWorker(
            worker, "gone", digest, started.at_s if started else since_s, "", None, None, reason, stopping is not None, strays
        )

    def _wake(self, records: WorkerRecords) -> bool:
        """Tell the supervisor to look at once; False if there is none."""
        keeping = records.keeper()
        if keeping is None or not keeping.alive():
            return False
        keeping.send(SIGUSR1)
        return True

    def _is_starting(self) -> bool:
        """Whether a process is about to start a worker: it holds the lock, or the supervisor that it has started does."""
        with (self.folder / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """No other process starts a worker in the meantime. Yields the lock, which passes to the process that inherits it."""
        path = self.folder / "lock"
        with explained(f"{path} cannot be written"), path.open("a") as file:

            def taken() -> bool:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
                return True

            if not within(_LOCKED_WITHIN_S, taken):
                raise EnvironmentFault(
                    f"{path} has been locked for {_LOCKED_WITHIN_S:g} s: another launcher is starting a worker and does not finish",
                    remedy="find the process that holds the lock (fuser, lsof), and check whether its disk hangs",
                    code="launcher-busy",
                )
            yield file.fileno()


def _start_keeper(worker: str, folder: Path, lock: int, environment: Mapping[str, str]) -> None:
    """Returns when the keeper's record is there."""
    command = [sys.executable, "-I", "-S", keeper.__file__, str(folder), str(lock)]
    remedy = f"check that {folder} is writable and that this user can start processes"
    try:
        begun = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=(lock,),
            start_new_session=True,  # a Ctrl-C for the launcher, or the end of its terminal, is none for the worker
            check=False,
            timeout=_BEGUN_WITHIN_S,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(
            f"{worker} did not start within {_BEGUN_WITHIN_S:g} s; it may still start", remedy=remedy, code="launcher-failed"
        ) from error
    if begun.returncode != 0:
        said = begun.stderr.decode(errors="replace").strip().splitlines()
        raise EnvironmentFault(
            f"{worker} cannot be started: {said[-1] if said else f'status {begun.returncode}'}",
            remedy=remedy,
            code="launcher-failed",
        )


def _was_begun(records: WorkerRecords) -> bool:
    """Whether its program began, or its keeper is about to begin it."""
    return records.started() is not None or records.ended() is not None or _is_alive(records.keeper())


def _is_alive(process: Process | None) -> bool:
    return process is not None and process.alive()


def _process(records: WorkerRecords) -> Process | None:
    started = records.started()
    return None if started is None else Process(started.pid, started.born)


def _send(records: WorkerRecords, number: Signals) -> None:
    process = _process(records)
    if process is not None:
        process.send(number)
