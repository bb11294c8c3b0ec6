"""Workers as processes of this machine that outlive the process that started them: what launchers with a process on this machine share.

All state is in files and in the processes themselves, none in the memory of a launcher: the next launcher, in another process, continues
from there.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import shlex
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from signal import SIGKILL, SIGTERM, SIGUSR1
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import Process, within
from scribengin.core.secret import Secret
from scribengin.core.storage import explained, make_folder, names_in, remove_tree
from scribengin.launch import keeper
from scribengin.launch.contract import ObservedWorker
from scribengin.launch.marks import VARIABLE, mark_of, marked_processes
from scribengin.launch.records import Ordered, WorkerRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from signal import Signals

    from scribengin.launch.contract import LaunchOrder


# Reports at once when one of the followed processes ends, if the system has process handles (Linux).


class Endings:
    """Calls `wake`, from a thread of its own, some milliseconds after a process that it follows has ended. It is a hint: the caller then
    checks. On systems other than Linux it is never called."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._followed: dict[int, Process] = {}
        """handle → process"""
        self._lock = threading.Lock()
        self._closed = False
        if sys.platform == "linux":
            self._poll = select.epoll()
            self._end, self._ended = os.pipe()
            self._poll.register(self._end, select.EPOLLIN)
            self._thread = threading.Thread(target=self._run, name="endings", daemon=True)
            self._thread.start()

    def follow(self, process: Process) -> None:
        """Follow this process too; a second call changes nothing."""
        if sys.platform != "linux":
            return
        with self._lock:
            if self._closed or process in self._followed.values():
                return
            with suppress(OSError):  # it has ended already, which the caller's next check shows
                handle = os.pidfd_open(process.pid)
                if not process.alive():
                    os.close(handle)
                    return
                self._followed[handle] = process
                self._poll.register(handle, select.EPOLLIN)

    def close(self) -> None:
        """Stop following all processes."""
        if sys.platform != "linux" or self._closed:
            return
        with self._lock:
            self._closed = True
        os.write(self._ended, b"1")
        self._thread.join()
        for handle in (*self._followed, self._end, self._ended):
            os.close(handle)
        self._followed.clear()
        self._poll.close()

    def _run(self) -> None:
        while True:
            for handle, _ in self._poll.poll():
                if handle == self._end:
                    return
                with self._lock:
                    self._poll.unregister(handle)
                    del self._followed[handle]
                    os.close(handle)
            self._wake()


# The logs of workers: one file each, bounded by its supervisor, and kept for some weeks after the worker's record is removed.


KEPT_OF_A_TIER = 5
KEPT_S = 30 * 86_400.0
_NAME = re.compile(r"(?P<worker>.+)\.log(?:\.1|\.1\.draft)?")
_NUMBER = re.compile(r"-(\d+)$")


def log_path(folder: Path, worker: str) -> Path:
    """The path of a worker's output; earlier output that exceeded the limit is in `<name>.1`."""
    return folder / f"{worker}.log"


def logs_of(folder: Path, worker: str) -> tuple[str, ...]:
    """The existing files of a worker's output, oldest first."""
    path = log_path(folder, worker)
    return tuple(str(file) for file in (path.with_name(f"{path.name}.1"), path) if file.exists())


def prune_logs(folder: Path, known: Collection[str]) -> None:
    """Remove the logs of workers that are not in `known`, except the newest few of each tier, which are kept for some weeks."""
    files: dict[str, list[Path]] = {}
    for name in names_in(folder):
        found = _NAME.fullmatch(name)
        if found is not None and found["worker"] not in known:
            files.setdefault(found["worker"], []).append(folder / name)
    tiers: dict[str, list[str]] = {}
    for worker in sorted(files, key=_number, reverse=True):
        tiers.setdefault(_NUMBER.sub("", worker), []).append(worker)
    oldest_s = time.time() - KEPT_S
    for workers in tiers.values():
        for rank, worker in enumerate(workers):
            for path in files[worker]:
                with suppress(FileNotFoundError):  # another launcher removes them too
                    if rank >= KEPT_OF_A_TIER or path.stat().st_mtime < oldest_s:
                        path.unlink()


def _number(worker: str) -> int:
    found = _NUMBER.search(worker)
    return int(found[1]) if found else 0


# How Spark's settings reach a worker: a file that only its user may read, and arguments that make PySpark's `spark-submit` read it. None of
# the settings is in a command line, where every user of the machine could read a secret.


NAME = "spark.properties"
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def write_spark_settings(folder: Path, settings: Mapping[str, str | Secret]) -> None:
    """Write the file with Spark's settings again, with mode 0600 from its creation. Raises EnvironmentFault."""
    path = folder / NAME
    with explained(f"{path} cannot be written"):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(spark_settings_text(settings))


def spark_settings_text(settings: Mapping[str, str | Secret]) -> str:
    """The text of a file with Spark's settings, with the values of secrets."""
    lines = []
    for name, value in sorted(settings.items()):
        text = value.reveal() if isinstance(value, Secret) else value
        lines.append(f"{_escaped(name, ' :=#!')}={_escaped(text)}\n")
    return "".join(lines)


LOOPBACK_DRIVER: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""the settings of a driver of this machine whose cluster only this machine reaches: otherwise executors would get an address that may not
answer"""


def executor_settings(order: LaunchOrder) -> dict[str, str | Secret]:
    """Spark's settings for each executor of a worker, for every cluster."""
    settings: dict[str, str | Secret] = {"spark.executor.cores": str(order.cores), "spark.executor.memory": f"{order.executor_mib}m"}
    if path := os.environ.get("PYTHONPATH"):
        settings["spark.executorEnv.PYTHONPATH"] = path  # so that executors can import what this process can
    return settings


def spark_environment(folder: Path, master: str, *options: str) -> dict[str, str]:
    """The environment that makes any PySpark program read the file, and use this master unless the program names another one. `options`:
    further options of `spark-submit`.

    `SCRIBENGIN_SPARK_MASTER` is Scribengin's own setting: its session names the master, and checks which one Spark uses.
    """
    words = ["--master", master, "--properties-file", str(folder / NAME), "--load-spark-defaults", *options, "pyspark-shell"]
    return {"SCRIBENGIN_SPARK_MASTER": master, "PYSPARK_SUBMIT_ARGS": shlex.join(words)}


def _escaped(text: str, further: str = "") -> str:
    """A text in the form of a Java properties file, in ASCII: readers do not agree on any other encoding. `further`: more characters to
    escape."""
    said = "".join(_ESCAPES.get(letter) or (f"\\{letter}" if letter in further else _in_ascii(letter)) for letter in text)
    return f"\\{said}" if said.startswith(" ") else said


def _in_ascii(letter: str) -> str:
    return letter if letter.isascii() else "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", letter.encode("utf-16-be")))


LOG_BYTES = 16 * 2**20
ORPHAN_GRACE_S = 10.0
_LOCKED_WITHIN_S = 60.0
_BEGUN_WITHIN_S = 60.0
_TOLD_WITHIN_S = 1.0
_KILL_ROUNDS = 5
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]*")


class Children:
    """The workers of one folder: records under `workers/`, output under `logs/`. Only its user may enter it.

    The remaining processes of a worker whose first process has ended, and a worker whose JVM has ended, have `orphan_grace_s` seconds to
    end by themselves. A worker's log takes at most twice `log_bytes`, plus what is written in five seconds.
    """

    def __init__(self, folder: Path, *, log_bytes: int = LOG_BYTES, orphan_grace_s: float = ORPHAN_GRACE_S) -> None:
        self.folder = folder.resolve()  # marks are derived from the path, so it must always be spelled the same
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
        program: Callable[[Path], tuple[Sequence[str], Mapping[str, str | None]]] | None = None,
    ) -> None:
        """Start a worker. No other process starts a worker in this folder meanwhile.

        Args:
            order: what is started.
            master: Spark's master.
            settings: Spark's settings, besides those in the order.
            environment: variables, besides those in the order.
            fits: called before with the orders of all existing workers; it raises if this one needs too much.
            cpus: called with the same; it returns the CPUs that the worker may use, none for any.
            program: for a worker on another machine: called with the folder of its records, it returns the command and the environment of
                the process that is started here in its place, such as `spark-submit`.
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
            argv: Sequence[str] = order.argv
            secrets = {name: secret.reveal() for name, secret in order.secrets.items()}
            asked: Mapping[str, str | None] = {**environment, **order.environment, **secrets, **spark_environment(records.folder, master)}
            if program is not None:
                argv, asked = program(records.folder)
            records.write_order(
                Ordered(
                    order.worker,
                    order.digest,
                    time.time(),
                    tuple(argv),
                    order.cores,
                    order.memory_bytes,
                    mark_of(self.folder, order.worker),
                    str(log),
                    self._log_bytes,
                    self._orphan_grace_s,
                    cpus(others),
                )
            )
            records.remove_stopping()  # of an earlier start that failed
            write_spark_settings(records.folder, {**settings, **order.spark})
            given = {name: value for name, value in {**os.environ, **asked, VARIABLE: None}.items() if value is not None}
            _start_keeper(order.worker, records.folder, lock, given)

    def on_end(self, wake: Callable[[], None]) -> None:
        """Set the function to call when a worker that `observe` has shown as running ends; see `TellsEnds`."""
        self.close()
        self._endings = Endings(wake)

    def close(self) -> None:
        """Stop reporting the ends of workers. Nothing else is held."""
        if self._endings is not None:
            self._endings.close()

    def stop(self, worker: str, grace_s: float) -> None:
        """Stop a worker; see `Launcher.stop`. Its supervisor stops it. Without a supervisor this process signals it, and a later `observe`
        kills it."""
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
        except EnvironmentFault:  # the disk is full: at least send the signal
            _send(records, SIGTERM)
            raise
        if not self._wake(records) and before is None:
            _send(records, SIGTERM)

    def kill(self, worker: str) -> None:
        """Kill a worker; see `Launcher.kill`. Its supervisor kills its children; all processes with the worker's mark are killed too."""
        if not _WORKER.fullmatch(worker):
            return
        records = self._records(worker)
        try:
            if records.folder.is_dir() and records.ended() is None:
                records.write_stopping(0.0)
        finally:
            self._wake(records)
            _send(records, SIGKILL)
            for _ in range(_KILL_ROUNDS):  # a process may have forked just before it was killed
                found = marked_processes(self.folder).get(worker, [])
                for process in found:
                    process.send(SIGKILL)
                if not found:
                    break

    def observe(self) -> list[ObservedWorker]:
        """All workers of this folder; see `Launcher.observe`."""
        marked = marked_processes(self.folder)
        workers = {name for name in names_in(self.folder / "workers") if _WORKER.fullmatch(name)} | marked.keys()
        found = (self._seen(worker, marked.get(worker, [])) for worker in sorted(workers))
        return [seen for seen in found if seen is not None]

    def logs(self, worker: str) -> tuple[str, ...]:
        """The paths of a worker's output on this machine; see `Launcher.logs`."""
        return logs_of(self.folder / "logs", worker) if _WORKER.fullmatch(worker) else ()

    def forget(self, worker: str) -> None:
        """Remove a worker's record; see `Launcher.forget`. Old logs of forgotten workers are deleted."""
        seen = self._seen(worker)
        if seen is None or seen.state not in ("exited", "gone"):
            return
        with self._alone():  # so that it is not started meanwhile
            self.kill(worker)
            keeping = self._records(worker).keeper()
            if keeping is not None and not keeping.gone_within(_TOLD_WITHIN_S):
                keeping.send(SIGKILL)  # it would write into the folder that is removed next
            remove_tree(self._records(worker).folder)
            prune_logs(self.folder / "logs", names_in(self.folder / "workers"))

    # --- pieces ---

    def _records(self, worker: str) -> WorkerRecords:
        return WorkerRecords(self.folder / "workers" / worker)

    def _orders_in_force(self) -> list[Ordered]:
        """The orders of all workers that run or start."""
        found = [self._records(name) for name in names_in(self.folder / "workers") if _WORKER.fullmatch(name)]
        there = (one for one in found if one.ended() is None and (_is_alive(_process(one)) or _is_alive(one.keeper())))
        return [ordered for records in there if (ordered := records.ordered()) is not None]

    def _seen(self, worker: str, marked: list[Process] | None = None) -> ObservedWorker | None:
        """The state of a worker; None if nothing of it exists. `marked`: the processes with its mark; None: strays are not determined."""
        if not _WORKER.fullmatch(worker):
            return None
        records = self._records(worker)
        ordered, started, stopping = records.ordered(), records.started(), records.stopping()
        if ordered is None and started is None and not marked:
            return None
        digest, since_s = (ordered.digest, ordered.at_s) if ordered is not None else ("", 0.0)
        # of the record that was read above: a second look at the file may show a process that has begun in between
        process = None if started is None else Process(started.pid, started.born)
        if started is not None and process is not None and process.alive():
            if stopping is not None and stopping.dies_at_s < time.monotonic() and not _is_alive(records.keeper()):
                process.send(SIGKILL)  # its supervisor, which is gone, would have killed it
            if self._endings is not None:
                self._endings.follow(process)
            where = f"process {process.pid}"
            return ObservedWorker(worker, "running", digest, started.at_s, where, process.pid, stopping=stopping is not None)
        strays = tuple(sorted(one.pid for one in marked or [] if one != process))
        keeping = records.keeper()
        supervised = _is_alive(keeping)  # before the end is read: a supervisor records it before it ends itself
        ended = records.ended()
        if process is not None and ended is None and supervised:
            within(_TOLD_WITHIN_S, lambda: records.ended() is not None)  # its supervisor is about to record its end
            ended = records.ended()
        elif ended is None and (supervised or (keeping is None and self._is_starting())):
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
        """Make the supervisor check its requests at once; False if there is no supervisor."""
        keeping = records.keeper()
        if keeping is None or not keeping.alive():
            return False
        keeping.send(SIGUSR1)
        return True

    def _is_starting(self) -> bool:
        """True if a process is about to start a worker: it holds the lock, or the supervisor that it has started does."""
        with (self.folder / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """Hold the lock: no other process starts a worker meanwhile. Yields the lock's file descriptor, for a child process that inherits
        the lock."""
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
    """Start the supervisor; returns when its record exists. Raises EnvironmentFault."""
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
            start_new_session=True,  # so that a Ctrl-C in the launcher's terminal, or its end, does not end the worker
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
    """True if the worker's program has begun, or its supervisor is about to start it."""
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


# What launchers whose workers are processes of this machine share: all methods but `start` are those of `Children`.


class LauncherHere:
    """A launcher without `start`, which sets the Spark settings. `Children` manages the workers."""

    def __init__(self, folder: Path, *, log_bytes: int = LOG_BYTES, orphan_grace_s: float = ORPHAN_GRACE_S) -> None:
        self._children = Children(folder, log_bytes=log_bytes, orphan_grace_s=orphan_grace_s)

    def stop(self, worker: str, grace_s: float) -> None:
        """Stop a worker; see `Launcher.stop`."""
        self._children.stop(worker, grace_s)

    def kill(self, worker: str) -> None:
        """Kill a worker; see `Launcher.kill`."""
        self._children.kill(worker)

    def observe(self) -> list[ObservedWorker]:
        """All workers on this machine; see `Launcher.observe`."""
        return self._children.observe()

    def logs(self, worker: str) -> tuple[str, ...]:
        """The paths of a worker's output on this machine; see `Launcher.logs`."""
        return self._children.logs(worker)

    def forget(self, worker: str) -> None:
        """Remove a worker's record; see `Launcher.forget`."""
        self._children.forget(worker)

    def on_end(self, wake: Callable[[], None]) -> None:
        """Set the function to call when a worker ends; see `TellsEnds`."""
        self._children.on_end(wake)

    def close(self) -> None:
        """Release the resources of the launcher; see `Launcher.close`."""
        self._children.close()
