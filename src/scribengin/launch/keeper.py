"""The supervisor of one worker: `python -I -S keeper.py FOLDER LOCK`. It is the parent of the worker and outlives the launcher.

It starts the worker that `order.json` in FOLDER describes, records how it ended (`ended.json`), stops it on request (`stopping.json`, read
after a SIGUSR1 or within some seconds), kills its remaining processes, and bounds its log. It signals only children of its own that it has
not waited for: no other process can have their numbers.

LOCK is the number of an open file that is locked. The lock is released once `keeper.json` exists: so at no moment could the launcher have
been killed, and a worker be about to start, without other processes being able to know. The worker itself writes `started.json` before its
program begins.

It imports only the standard library, without `site`, because one runs beside each worker: some 10 MB, of which 4 are its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing even `typing` would cost memory
    from typing import Any

TICK_S = 5.0
CANNOT_START = 127
_SUBREAPER = 36  # prctl's PR_SET_CHILD_SUBREAPER
_JVM = b"org.apache.spark.deploy.SparkSubmit"
_COPIED_BYTES = 2**20


def born(pid: int) -> str:
    """When the process was started, in the form of `scribengin.core.process.birth_of`, since records of both are compared."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = file.read().rpartition(")")[2].split()[19]
    except FileNotFoundError:
        if sys.platform == "linux":
            raise
        with os.popen(f"LC_ALL=C ps -o stat=,lstart= -p {pid}") as asked:
            return asked.read().strip().partition(" ")[2].strip()
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = "boot"
    return f"{boot} {ticks}"


def write(name: str, body: dict[str, Any]) -> None:
    """Write a record of the folder, durably and atomically."""
    draft = f".{name}.{os.getpid()}"
    with open(draft, "w") as file:
        json.dump(body, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, name)


def read(name: str) -> dict[str, float]:
    """Read a record of the folder; empty if it does not exist or is not valid."""
    try:
        with open(name) as file:
            found: dict[str, float] = json.load(file)
            return found
    except (FileNotFoundError, ValueError):
        return {}


class Supervisor:
    """Supervises one worker from its start until none of its processes is left."""

    def __init__(self, order: dict[str, Any], wake: int) -> None:
        self.log: str = order["log"]
        self.log_bytes: int = order["log_bytes"]
        self.orphan_grace_s: float = order["orphan_grace_s"]
        self.argv: list[str] = order["argv"]
        self.mark: str = order["mark"]
        self.cpus: list[int] = order.get("cpus", [])
        """the numbers of the CPUs that the worker, and all that it starts, may run on; empty: all"""
        self.wake = wake
        self.worker = 0
        self.ended: int | None = None
        """the exit code; None while the worker runs"""
        self.told = False
        self.dies_at_s = float("inf")
        """when the worker is killed, by the monotonic clock; `why` is the reason"""
        self.why = ""
        self.jvm = 0
        self.jvm_handle: int | None = None
        self.next_search_s = 0.0

    def start(self) -> str:
        """Start the worker. Returns when its program has begun, with an empty text, or why it could not begin."""
        reading, writing = os.pipe()
        self.worker = os.fork()
        if self.worker == 0:
            self._become(writing)
        os.close(writing)
        with open(reading, "rb") as fault:
            return fault.read().decode(errors="replace")

    def _become(self, fault: int) -> None:
        """In the child process: write the record first, then run the program."""
        try:
            os.setpgid(0, 0)  # a signal to the worker's process group does not reach the supervisor
            write("started.json", {"pid": os.getpid(), "born": born(os.getpid()), "at_s": time.time()})
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if self.cpus and sys.platform == "linux":
                with suppress(OSError):  # one of the CPUs was removed from this machine: then any CPU will do
                    os.sched_setaffinity(0, self.cpus)  # also for all that it starts: Spark's JVM, Python
            name, _, value = self.mark.partition("=")
            os.environ[name] = value
            os.execvp(self.argv[0], self.argv)
        except BaseException as error:
            os.write(fault, f"{self.argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}".encode())
        finally:
            os._exit(CANNOT_START)

    def watch(self) -> None:
        """Wait until the worker has ended; stop or kill it when that is due."""
        while self.ended is None:
            self._heed_stop()
            self._look_for_jvm()
            if time.monotonic() >= self.dies_at_s:
                with suppress(ProcessLookupError):
                    os.kill(self.worker, signal.SIGKILL)
            self._wait(min(TICK_S, max(0.0, self.dies_at_s - time.monotonic()) or 0.05))
            self.reap()
            with suppress(OSError):  # the disk is full; the next tick tries again
                self._bound_log()
        self._heed_stop()  # a kill request may have just been written: its sender also kills the worker itself

    def clear(self) -> None:
        """Wait until no process of the worker is left; kill those that do not end in time. Orphans become children of the supervisor."""
        dies_at_s = min(self.dies_at_s, time.monotonic() + self.orphan_grace_s)
        if self.jvm_handle is not None:
            os.close(self.jvm_handle)
            self.jvm_handle = None
        while self.reap():
            self._heed_stop()
            if time.monotonic() >= min(dies_at_s, self.dies_at_s):
                for child in _children(os.getpid()):
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
            self._wait(0.1)

    def reap(self) -> bool:
        """Wait for all children that have ended; False if no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.worker:
                self.ended = os.waitstatus_to_exitcode(status)

    def reason(self) -> str:
        """Why the worker ended; empty for one that ended by itself with status 0."""
        assert self.ended is not None
        if self.ended == -signal.SIGKILL and time.monotonic() >= self.dies_at_s:
            return self.why
        if self.ended < 0:
            return f"ended by signal {-self.ended} ({signal.strsignal(-self.ended)})"
        return f"ended with status {self.ended}" if self.ended else ""

    def tell_end(self, why: str) -> None:
        """Write the last line of the worker's log, which a killed worker could not write itself."""
        ended = why or "ended with status 0"
        with suppress(OSError):  # the disk is full: `ended.json` contains the same
            os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} supervisor: process {self.worker} {ended}\n".encode())

    def _heed_stop(self) -> None:
        asked = read("stopping.json")
        if not asked:
            return
        if not self.told and self.ended is None and asked["grace_s"] > 0:
            with suppress(ProcessLookupError):
                os.kill(self.worker, signal.SIGTERM)
        self.told = True
        dies_at_s = asked["asked_s"] + asked["grace_s"]
        if dies_at_s < self.dies_at_s:
            self.dies_at_s = dies_at_s
            grace_s = asked["grace_s"]
            self.why = f"killed: it did not stop within {grace_s:g} s of the stop request" if grace_s else "killed, as requested"

    def _look_for_jvm(self) -> None:
        """Find Spark's JVM. A worker whose JVM has ended may not notice it: it is killed after a while, unless another JVM is found."""
        now_s = time.monotonic()
        if self.jvm_handle is not None and select.select([self.jvm_handle], [], [], 0)[0]:
            os.close(self.jvm_handle)
            self.jvm_handle = None
            self.next_search_s = 0.0
            if now_s + self.orphan_grace_s < self.dies_at_s:
                self.dies_at_s = now_s + self.orphan_grace_s
                self.why = f"killed: Spark's JVM (process {self.jvm}) had ended {self.orphan_grace_s:g} s before"
        if self.jvm_handle is not None or sys.platform != "linux" or now_s < self.next_search_s:
            return
        for child in _children(self.worker):
            with suppress(OSError):
                with open(f"/proc/{child}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                if words[0].endswith(b"java") and _JVM in words:
                    self.jvm_handle = os.pidfd_open(child)
                    if self.jvm and not self.told:
                        self.dies_at_s = float("inf")  # another JVM replaces it
                    self.jvm = child
                    return
        # the end of a JVM before it was found would only be noticed by the worker itself: search often enough
        self.next_search_s = now_s + TICK_S

    def _wait(self, timeout_s: float) -> None:
        """Wait until a signal arrives, the JVM ends, or the time is over."""
        watched = [self.wake] if self.jvm_handle is None else [self.wake, self.jvm_handle]
        if self.wake in select.select(watched, [], [], timeout_s)[0]:
            os.read(self.wake, 4096)
            self.next_search_s = 0.0

    def _bound_log(self) -> None:
        """Copy a log that is too large to `<name>.1`, and empty it while the worker has it open, which continues to write at its new end.

        What is written between the last read of the copy and the truncation is lost: some microseconds of output.
        """
        if os.stat(self.log).st_size <= self.log_bytes:
            return
        draft = f"{self.log}.1.draft"
        with open(self.log, "rb") as source, open(draft, "wb") as target:
            while part := source.read(_COPIED_BYTES):
                target.write(part)
            target.flush()
            while part := source.read(_COPIED_BYTES):
                target.write(part)
            os.truncate(self.log, 0)
        os.replace(draft, f"{self.log}.1")


def _children(parent: int) -> list[int]:
    """The child processes of a process, without zombies."""
    found = []
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if name.isdigit():
            with suppress(OSError):
                with open(f"/proc/{name}/stat") as file:
                    state, ppid = file.read().rpartition(")")[2].split()[:2]
                if int(ppid) == parent and state not in "ZX":
                    found.append(int(name))
    return found


def _patiently(name: str, body: dict[str, Any]) -> None:
    """Write a record that must not be missing: try again while the disk is full."""
    while True:
        try:
            write(name, body)
            return
        except FileNotFoundError:  # the folder was removed: the record is no longer needed
            return
        except OSError:
            time.sleep(TICK_S)


def _keep(lock: int, ready: int) -> None:
    """Supervise the worker, in the process that stays. `lock` and `ready` are file descriptors: the lock is closed, and a byte is written
    to `ready`, once the supervisor's record exists."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the supervisor ends only with the worker
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    with open("order.json") as file:
        keeper = Supervisor(json.load(file)["body"], wake)
    log = os.open(keeper.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    write("keeper.json", {"pid": os.getpid(), "born": born(os.getpid())})
    os.close(lock)
    os.write(ready, b"1")
    os.close(ready)
    fault = keeper.start()
    keeper.watch()
    why = fault or keeper.reason()
    keeper.tell_end(why)
    _patiently("ended.json", {"status": keeper.ended, "reason": why, "at_s": time.time()})
    keeper.clear()
    with suppress(FileNotFoundError):
        os.unlink("spark.properties")  # it may contain secrets


def main() -> None:
    """Detach from the launcher; the exit status is 0 if the supervisor is running."""
    os.chdir(sys.argv[1])
    lock = int(sys.argv[2])
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os._exit(0 if os.read(reading, 1) else 1)
    os.close(reading)
    os.set_inheritable(lock, False)
    _keep(lock, writing)


if __name__ == "__main__":
    main()
