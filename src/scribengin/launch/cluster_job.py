"""The job with which `doctor --cluster` checks a cluster: an application of two tasks, `cluster_probe.py`. The launcher of workers starts
it, so that what works for it works for workers."""

from __future__ import annotations

import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.errors import ScribenginError
from scribengin.core.process import within
from scribengin.launch import cluster_probe
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.process_launcher import LauncherHere
from scribengin.launch.yarn import YarnLauncher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.core.secret import Secret
    from scribengin.launch.contract import Launcher, ObservedWorker

WORKER = "scribengin-doctor"
"""the name of the application"""
MEMORY_MIB = 512
"""the heap of its driver, and of each executor: little more than the least that Spark accepts"""
_POLL_S = 1.0
_OUTPUT_WITHIN_S = 30.0
"""seconds within which the output of an application that has ended must be complete"""
_ENDED_WITHIN_S = 60.0
_OUTPUT_BYTES = 2**20
_EXCEPTION = re.compile(r"^\s*(?:Caused by: )?(?:[\w$]+\.)*\w+(?:Error|Exception): .*", re.MULTILINE)
_WRAPPERS = ("py4j.", "org.apache.spark.SparkException: Job aborted", "org.apache.spark.api.python.PythonException")


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """What a job does.

    Attributes:
        clock: a page whose server's time is compared with the clocks of the hosts; empty: none.
        folder: a folder that all hosts must be able to read and write; empty: none.
        file: the name of a file in it.
        text: the content of that file.
        within_s: the seconds after which the job is ended.
        spark: further settings of Spark.
        places: the check of sources and sinks, as `cluster_probe.examine` takes it; empty: none.
    """

    clock: str
    folder: str
    file: str
    text: str
    within_s: float
    spark: Mapping[str, str]
    places: Secret


class ReachReport(msgspec.Struct, frozen=True):
    """A source or sink as a host sees it: its `node` (empty if none could be checked), its `role` and `state`, what it `says`, and a
    remedy if it is not ok."""

    node: str
    role: str
    state: str
    says: str
    remedy: str


class HostReport(msgspec.Struct, frozen=True):
    """What a process of the job has found on its host.

    Attributes:
        role: `driver`, or `task` and its number.
        host: the name of the host.
        process: the parent of the Python process, the same for all tasks of an executor.
        python: the version of Python.
        executable: the path of Python.
        scribengin: the version of Scribengin; `unknown`; or empty if it cannot be imported.
        pyspark: the same of PySpark.
        java: the version of Java; empty if there is none.
        lead_s: by how many seconds the clock of `ClusterJob.clock` is ahead of the host's, at least and at most; None if it is not known.
        at_s: the time of the host's clock, in seconds since the epoch.
        fault: why it cannot use `ClusterJob.folder`; empty if it can.
        reached: the sources and sinks of `ClusterJob.places`.
    """

    role: str
    host: str
    process: int
    python: str
    executable: str
    scribengin: str
    pyspark: str
    java: str
    lead_s: tuple[float, float] | None
    at_s: float
    fault: str
    reached: tuple[ReachReport, ...] = ()


class JobReports(msgspec.Struct, frozen=True):
    """What the driver of a job has reported.

    Attributes:
        driver: the driver's own host; None if it did not start.
        executors: the number of executors that have connected to the driver; None if Spark did not start.
        tasks: the hosts of the tasks; empty if the tasks did not end.
        failed: the error; empty if there is none.
    """

    driver: HostReport | None = None
    executors: int | None = None
    tasks: tuple[HostReport, ...] = ()
    failed: str = ""

    @property
    def is_complete(self) -> bool:
        """True if nothing will be reported any more."""
        return bool(self.tasks or self.failed)


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended.

    Attributes:
        reports: what it has reported.
        seen: the last observed state of its application; None if it was never observed.
        output: the output of the driver, or of the submission.
        begun_s: when it was started, in seconds since the epoch.
        ended_s: when its last report was read, in seconds since the epoch.
    """

    reports: JobReports
    seen: ObservedWorker | None
    output: str
    begun_s: float
    ended_s: float


class JobRun:
    """A run of a job. `seen` is the last observed state of its application; None before it was observed."""

    def __init__(self, launcher: Launcher, job: ClusterJob) -> None:
        """`launcher`: the launcher of the cluster, over a folder of its own. `job`: what the job does."""
        self._launcher = launcher
        self._job = job
        self.seen: ObservedWorker | None = None

    def run(self, tell: Callable[[str], None]) -> JobResult:
        """Run the job until it has ended. It is killed if its time is over, or if this process is interrupted.

        Args:
            tell: called with each change of its state, for people.

        Raises:
            EnvironmentFault, Unreachable: it cannot be started, or the cluster does not answer any more.
        """
        begun_s = time.time()
        try:
            self._launcher.start(_order(self._launcher, self._job))
            output = self._watch(tell)
            return JobResult(reports=reports_of(output), seen=self.seen, output=output, begun_s=begun_s, ended_s=time.time())
        finally:
            self._end()

    def _watch(self, tell: Callable[[str], None]) -> str:
        """Wait for the end of the application, or of its time. Returns the output of the driver."""
        deadline, output, shown = time.monotonic() + self._job.within_s, "", ""
        while time.monotonic() < deadline:
            self.seen = next((each for each in self._launcher.observe() if each.worker == WORKER), self.seen)
            if self.seen is not None and self.seen.state != "starting":
                output = _output(self._launcher)
            if (state := _state_text(self.seen, reports_of(output))) != shown:
                tell(state)
                shown = state
            if self.seen is not None and self.seen.is_over:
                break
            time.sleep(_POLL_S)
        if self.seen is not None and (self.seen.status == 0 or reports_of(output).driver is not None):
            # Spark's JVM copies the output, and a NodeManager shows it, in their own time
            within(_OUTPUT_WITHIN_S, lambda: reports_of(_output(self._launcher)).is_complete)
        return _output(self._launcher)

    def _end(self) -> None:
        """Kill what is left of the job, and remove its records."""

        def over() -> bool:
            live = [each for each in self._launcher.observe() if not each.is_over]
            if live:
                self.seen = live[0]
                self._launcher.kill(WORKER)
            return not live

        try:
            with suppress(ScribenginError):
                within(_ENDED_WITHIN_S, over)  # again: a client may have submitted it just before it was killed
                self._launcher.forget(WORKER)
        finally:
            self._launcher.close()


def reports_of(output: str) -> JobReports:
    """What the driver has reported, from its output."""
    found = JobReports()
    for line in output.splitlines():
        _, mark, text = line.partition(cluster_probe.MARK)
        with suppress(msgspec.DecodeError):  # the last line may not be complete
            if mark:
                known = msgspec.json.decode(text, type=JobReports)
                found = JobReports(
                    driver=known.driver or found.driver,
                    executors=found.executors if known.executors is None else known.executors,
                    tasks=known.tasks or found.tasks,
                    failed=known.failed or found.failed,
                )
    return found


def cause_of(text: str) -> str:
    """The line that names the cause, of the text of an exception of Spark; the first line if no line does."""
    lines = [each.strip() for each in _EXCEPTION.findall(text)]
    lines = [each for each in lines if not each.startswith(_WRAPPERS)] or lines or text.strip().splitlines()
    return lines[0] if lines else ""


def _order(launcher: Launcher, job: ClusterJob) -> LaunchOrder:
    words = msgspec.json.encode(
        {"clock": job.clock, "folder": job.folder, "file": job.file, "text": job.text, "within_s": job.within_s},
    ).decode()
    program = cluster_probe.__file__
    settings = {"spark.driver.memory": f"{MEMORY_MIB}m", "spark.ui.enabled": "false", **job.spark}
    if isinstance(launcher, YarnLauncher):  # the driver runs elsewhere, and may not have this file
        files = [settings["spark.yarn.dist.files"]] if "spark.yarn.dist.files" in settings else []
        settings["spark.yarn.dist.files"] = ",".join([*files, program])
        program = Path(program).name
    here = isinstance(launcher, YarnLauncher | LauncherHere)
    # a launcher of pods takes the program from their image
    argv = (sys.executable, program, words) if here else (sys.executable, "-m", cluster_probe.__name__, words)
    return LaunchOrder(
        WORKER,
        argv,
        secrets={cluster_probe.PLACES: job.places},
        memory_bytes=MEMORY_MIB * 2**20,
        executors=cluster_probe.TASKS,
        spark=settings,
    )


def _output(launcher: Launcher) -> str:
    """The end of the output."""
    parts = []
    for path in launcher.logs(WORKER):
        with suppress(OSError), Path(path).open("rb") as file:
            file.seek(max(0, Path(path).stat().st_size - _OUTPUT_BYTES))
            parts.append(file.read().decode(errors="replace"))
    return "".join(parts)


def _state_text(seen: ObservedWorker | None, reports: JobReports) -> str:
    if seen is None or seen.state == "starting":
        return f"starting: {seen.reason or seen.process}" if seen is not None and (seen.reason or seen.process) else "starting"
    if seen.is_over or reports.is_complete:
        return "ended"
    if reports.executors is None:
        return f"{seen.process}: its driver runs"
    return f"{seen.process}: {reports.executors} executors"
