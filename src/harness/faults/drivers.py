"""`scribengin run` as a process of its own, armed with a fault; and its end, with everything it started."""

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
"""how long what is struck by `slow` sleeps; more than the time-outs of flows that it is tried on"""
IN_TASKS = frozenset({"stage.before", "stage.mid_write", "stage.closed"})
"""Points that tasks pass: `die` and `enospc` cost one task there, not the driver."""
IN_CHILDREN = IN_TASKS | {"source.logged", *TRANSACTION_POINTS}
"""Points that Spark's Python processes pass, or may pass; they have process groups of their own."""
_POLL_S = 0.02


class Hung(Exception):
    """A process did not come to an end, or to its point, in time."""


class CampaignEnded(Exception):
    """The campaign is ended from outside."""


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens when the `nth` pass of `point` is reached, once in a run.

    `kill`: SIGKILL for the driver's process group, JVM included. `die`: for the one process that is there: the driver, a Python worker,
    the planner. `enospc`: no space left, once. `hold`: it sleeps until `DriverProcess.release`. `slow`: it sleeps `SLOW_S`, and goes on.
    """

    point: str
    act: Act
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.act} at {self.point}" + (f" (pass {self.nth})" if self.nth > 1 else "")


@dataclass(slots=True)
class DriverProcess:
    """One `scribengin run --once`, started; use it in a `with` block, which ends whatever is left."""

    process: subprocess.Popen[bytes]
    work: Path
    strikes: Sequence[Strike]
    limit_s: float
    stop: threading.Event
    began: float = field(default_factory=time.monotonic)

    def wait(self) -> int:
        """Its exit status; negative, the signal that ended it. Deals the blow where it must come from outside. Raises Hung."""
        while (status := self.process.poll()) is None:
            if any(strike.act == "kill" and self.was_hit_by(strike) for strike in self.strikes):
                self._kill_group()
            self._check_limit("end")
            time.sleep(_POLL_S)
        return status

    def wait_for(self, within_s: float) -> int | None:
        """As `wait`, but so long at most: None where it still runs then."""
        give_up_s = time.monotonic() + within_s
        while (status := self.process.poll()) is None and time.monotonic() < give_up_s:
            self._check_limit("end")
            time.sleep(_POLL_S)
        return status

    def wait_until_hit_by(self, strike: Strike) -> bool:
        """Until its point is reached, or the process has ended: then False. Raises Hung."""
        while not self.was_hit_by(strike):
            if self.process.poll() is not None:
                return self.was_hit_by(strike)
            self._check_limit("reach its point")
            time.sleep(_POLL_S)
        return True

    def release(self) -> None:
        """Wake what `hold` or `freeze` has put to sleep; its limit begins anew."""
        self.began = time.monotonic()
        (self.work / "go").touch()
        self._signal_all(signal.SIGCONT)

    def freeze(self) -> None:
        """SIGSTOP for all processes of its session, the JVM and its workers too: no thread of theirs runs until `release`."""
        self._signal_all(signal.SIGSTOP)

    def was_hit_by(self, strike: Strike) -> bool:
        """True when its point was reached."""
        return (self.work / strike.point).exists()

    @property
    def result(self) -> dict[str, Any]:
        """The object that `--json` printed, {} where it printed none."""
        out = (self.work / "stdout").read_bytes()
        try:
            found: dict[str, Any] = msgspec.json.decode(out)
        except msgspec.DecodeError:
            return {}
        return found

    @property
    def codes(self) -> list[str]:
        """The codes of the problems it told."""
        return [problem["code"] for problem in self.result.get("problems", ())]

    def explain(self) -> str:
        """What it said of its failure."""
        told = [problem["message"] for problem in self.result.get("problems", ())]
        return "; ".join(told) or (self.work / "stderr").read_text(errors="replace")[-2000:]

    def sweep(self) -> None:
        """Kill what is left of its session: Spark's Python processes stand in groups of their own, and outlive a kill of the driver's."""
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
    """Start `scribengin run FLOW --once`, `arguments` behind it. `work` takes its output and the signs of its strikes, of which each has
    a point of its own; `wrap` may put a command before it; `path` goes before PYTHONPATH; `java` are settings of module `java`; `stop`
    raises Ended where it is waited for."""
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
    """The value of VARIABLE that arms them; `work` takes their signs."""
    return ",".join([f"once={work}", *(f"{strike.point}@{strike.nth}:{_act(strike, work)}" for strike in strikes)])


@dataclass(frozen=True, slots=True)
class Audited:
    """What `scribengin audit` said: its exit status, what is wrong, and the rows that it has found in each sink, over all Queries that ever
    wrote there."""

    status: int
    wrong: list[str]
    rows: Mapping[str, int]


def run_audit(
    flow: Path, *, state: Path | None = None, wrap: Callable[[Sequence[str]], list[str]] = list, path: Sequence[str] = ()
) -> Audited:
    """Run it."""
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
    """(the edges that `scribengin status` tells, why it tells none)"""
    command = [sys.executable, "-m", "scribengin.cli", "status", str(flow), "--json", "--state", str(state)]
    ended = subprocess.run(command, cwd=flow.parent, capture_output=True, env=plain_environment(path), check=False)
    if ended.returncode:
        said = (ended.stdout + ended.stderr).decode(errors="replace")
        return [], f"status exits with {ended.returncode}: {said[-2000:]}"
    edges: list[dict[str, Any]] = msgspec.json.decode(ended.stdout)["result"]["edges"]
    return edges, ""


def plain_environment(path: Sequence[str] = ()) -> dict[str, str]:
    """This process's environment without Scribengin's settings, `path` before PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBENGIN_")}
    parts = [*path, *filter(None, [environment.get("PYTHONPATH")])]
    return environment | ({"PYTHONPATH": os.pathsep.join(parts)} if parts else {})


def session_members(session: int) -> list[int]:
    """The processes of a session, by its leader's pid; [] where there is no /proc to ask."""
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
            # a child's own group is not the driver's: it sleeps, and `wait` kills from outside
            return f"wait={work / 'never'}" if strike.point in IN_CHILDREN else "kill"
        case "hold":
            return f"wait={work / 'go'}"
        case "slow":
            return f"sleep={SLOW_S}"
    return strike.act
