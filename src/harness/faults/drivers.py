"""Runs `scribengin run` as a separate process with an armed fault, and ends it together with all processes that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from scribengin.core.faults import TRANSACTION_POINTS, VARIABLE

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

Act = Literal["kill", "die", "enospc", "hold", "slow"]
SLOW_S = 12
"""seconds that a process struck by `slow` sleeps; more than the time-outs of the flows that are used with it"""
IN_TASKS = frozenset({"stage.before", "stage.mid_write", "stage.closed"})
"""points that tasks pass: `die` and `enospc` end one task there, not the driver"""
IN_CHILDREN = IN_TASKS | {"source.logged", *TRANSACTION_POINTS}
"""points that Spark's Python processes pass, or may pass; they have process groups of their own"""
_POLL_S = 0.02


class Hung(Exception):
    """A process did not end, or did not reach its point, within its time limit."""


class CampaignEnded(Exception):
    """The campaign was ended from outside."""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault at the `nth` pass of `point`, once in a run.

    `kill` sends SIGKILL to the driver's process group, including the JVM. `die` kills only the process that reaches the point: the driver,
    a Python worker, the planner. `enospc` raises "no space left" once. `hold` suspends the process until `DriverProcess.release`. `slow`
    lets it sleep for `SLOW_S` seconds.
    """

    point: str
    act: Act
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.act} at {self.point}" + (f" (pass {self.nth})" if self.nth > 1 else "")


@dataclass(slots=True)
class DriverProcess:
    """A started `scribengin run --once`. Use it in a `with` block, which ends all remaining processes."""

    process: subprocess.Popen[bytes]
    work: Path
    strikes: Sequence[Strike]
    limit_s: float
    stop: threading.Event
    began: float = field(default_factory=time.monotonic)

    def wait(self) -> int:
        """Wait for the end and return the exit status, negative for a signal. Makes the strikes that must be made from outside. Raises
        Hung."""
        while (status := self.process.poll()) is None:
            if any(strike.act == "kill" and self.was_hit_by(strike) for strike in self.strikes):
                self._kill_group()
            self._check_limit("end")
            time.sleep(_POLL_S)
        return status

    def wait_for(self, within_s: float) -> int | None:
        """Wait for the end for at most `within_s` seconds; None if it is still running then."""
        give_up_s = time.monotonic() + within_s
        while (status := self.process.poll()) is None and time.monotonic() < give_up_s:
            self._check_limit("end")
            time.sleep(_POLL_S)
        return status

    def wait_until_hit_by(self, strike: Strike) -> bool:
        """Wait until the point of the strike is reached. Returns False if the process has ended before. Raises Hung."""
        while not self.was_hit_by(strike):
            if self.process.poll() is not None:
                return self.was_hit_by(strike)
            self._check_limit("reach its point")
            time.sleep(_POLL_S)
        return True

    def release(self) -> None:
        """Resume the process after `hold` or `freeze`; its time limit starts again."""
        self.began = time.monotonic()
        (self.work / "go").touch()
        self._signal_all(signal.SIGCONT)

    def freeze(self) -> None:
        """Suspend all processes of its session with SIGSTOP, including the JVM and its workers, until `release`."""
        self._signal_all(signal.SIGSTOP)

    def was_hit_by(self, strike: Strike) -> bool:
        """True if the point of the strike was reached."""
        return (self.work / strike.point).exists()

    @property
    def result(self) -> dict[str, Any]:
        """The object that `--json` printed; empty if it printed none."""
        out = (self.work / "stdout").read_bytes()
        try:
            found: dict[str, Any] = msgspec.json.decode(out)
        except msgspec.DecodeError:
            return {}
        return found

    @property
    def codes(self) -> list[str]:
        """The codes of the reported problems."""
        return [problem["code"] for problem in self.result.get("problems", ())]

    def explain(self) -> str:
        """The reported reason of its failure."""
        told = [problem["message"] for problem in self.result.get("problems", ())]
        return "; ".join(told) or (self.work / "stderr").read_text(errors="replace")[-2000:]

    def sweep(self) -> None:
        """Kill the remaining processes of its session: Spark's Python processes have their own process groups, and survive a kill of the
        driver's group."""
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in session_members(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _check_limit(self, what: str) -> None:
        if self.stop.is_set():
            raise CampaignEnded
        if time.monotonic() - self.began > self.limit_s:
            raise Hung(f"driver {self.process.pid} did not {what} in {self.limit_s:g} s: {self.explain()}")

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self._kill_group()
        self.sweep()


def start_run(
    flow: Path,
    strikes: Sequence[Strike],
    work: Path,
    *,
    limit_s: float,
    stop: threading.Event,
    java: Mapping[str, str],
    state: Path | None = None,
    arguments: Sequence[str] = (),
    wrap: Callable[[Sequence[str]], list[str]] = list,
    path: Sequence[str] = (),
) -> DriverProcess:
    """Start `scribengin run FLOW --once`.

    Args:
        flow: The flow file.
        strikes: The strikes to arm, each at a different point.
        work: The folder for its output and for the signs of its strikes.
        limit_s: The time limit of each wait, in seconds.
        stop: When it is set, waiting raises CampaignEnded.
        java: Environment variables from the module `java`.
        state: The state folder; None for the default.
        arguments: Additional arguments of `run`.
        wrap: Puts another command in front of it.
        path: Folders that are put in front of PYTHONPATH.
    """
    work.mkdir(parents=True)
    command = [sys.executable, "-m", "scribengin.cli", "run", str(flow), "--once", "--json", "--progress", "off"]
    command += ["--spark-master", "local[2,4]", "--spark-memory", "512m", *arguments]
    if state is not None:
        command += ["--state", str(state)]
    environment = plain_environment(path) | dict(java)
    if strikes:
        environment[VARIABLE] = fault_variable(strikes, work)
    with (work / "stdout").open("wb") as out, (work / "stderr").open("wb") as err:
        process = subprocess.Popen(
            wrap(command), cwd=flow.parent, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
        )
    return DriverProcess(process, work, tuple(strikes), limit_s, stop)


def fault_variable(strikes: Sequence[Strike], work: Path) -> str:
    """The value of VARIABLE that arms the strikes; `work` is the folder for their signs."""
    return ",".join([f"once={work}", *(f"{strike.point}@{strike.nth}:{_act(strike, work)}" for strike in strikes)])


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of `scribengin audit`: its exit status, what is wrong, and the number of rows in each sink, over all queries that have
    ever written to it."""

    status: int
    wrong: list[str]
    rows: Mapping[str, int]


def run_audit(
    flow: Path, *, state: Path | None = None, wrap: Callable[[Sequence[str]], list[str]] = list, path: Sequence[str] = ()
) -> Audited:
    """Run `scribengin audit`."""
    where = [] if state is None else ["--state", str(state)]
    command = wrap([sys.executable, "-m", "scribengin.cli", "audit", str(flow), "--json", *where])
    ended = subprocess.run(command, cwd=flow.parent, capture_output=True, env=plain_environment(path), check=False)
    try:
        said = msgspec.json.decode(ended.stdout)
    except msgspec.DecodeError:
        return Audited(ended.returncode, [ended.stderr.decode(errors="replace")[-2000:]], {})
    result = said["result"] or {}
    wrong = result.get("ledger", {}).get("violations", [])
    rows: Counter[str] = Counter()
    for query in result.get("queries", ()):
        rows.update({sink["sink"]: sink["found"] for sink in query["sinks"]})
    return Audited(
        ended.returncode, [*wrong, *(problem["message"] for problem in said["problems"] if problem["severity"] == "error")], rows
    )


def run_status(flow: Path, *, state: Path, path: Sequence[str] = ()) -> tuple[list[dict[str, Any]], str]:
    """Run `scribengin status`; returns the edges that it reports, and the reason if it reports none."""
    command = [sys.executable, "-m", "scribengin.cli", "status", str(flow), "--json", "--state", str(state)]
    ended = subprocess.run(command, cwd=flow.parent, capture_output=True, env=plain_environment(path), check=False)
    if ended.returncode:
        said = (ended.stdout + ended.stderr).decode(errors="replace")
        return [], f"status exits with {ended.returncode}: {said[-2000:]}"
    edges: list[dict[str, Any]] = msgspec.json.decode(ended.stdout)["result"]["edges"]
    return edges, ""


def plain_environment(path: Sequence[str] = ()) -> dict[str, str]:
    """This process's environment without Scribengin's settings, and with `path` in front of PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBENGIN_")}
    parts = [*path, *filter(None, [environment.get("PYTHONPATH")])]
    return environment | ({"PYTHONPATH": os.pathsep.join(parts)} if parts else {})


def session_members(session: int) -> list[int]:
    """The processes of a session, by the pid of its leader; empty on systems without /proc."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                members.append(int(stat.parent.name))
    return members


def _act(strike: Strike, work: Path) -> str:
    match strike.act:
        case "kill":
            # a child has its own process group: it is suspended here, and `wait` kills the driver's group from outside
            return f"wait={work / 'never'}" if strike.point in IN_CHILDREN else "kill"
        case "hold":
            return f"wait={work / 'go'}"
        case "slow":
            return f"sleep={SLOW_S}"
    return strike.act
