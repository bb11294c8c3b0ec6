"""One case: a flow, a way to strike it, a seed. Runs it, restarts it until it is through, and judges what is left.

Everything that a seed decides is decided by `random.Random(seed)`: the same case and seed give the same schedule.
"""

from __future__ import annotations

import random
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.testing.faults.drivers import IN_CHILDREN, Driver, Hung, Strike, run_audit, start_run
from scribengin.testing.faults.flows import STATEFUL, FaultFlow
from scribengin.testing.faults.reader import start_reader
from scribengin.testing.faults.small_disk import SmallDisk, no_small_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scribengin.testing.checker import Findings
    from scribengin.testing.faults.drivers import Act
    from scribengin.testing.faults.reader import ReaderProcess

DECISIVE = ("decide.after", "publish.record.after", "publish.renamed", "commit.before")
"""Where a kill leaves work to a recovery, and where a successor has decided already."""
CHAIN = ("stage.mid_write", "decide.before", "decide.after", "publish.record.after", "publish.renamed", "recovery.mid", "commit.before")
"""The kills of the way `chain`: the points where a wrong driver loses or doubles records, in one life of one flow."""
_ONCE_A_RUN = frozenset({"lease.taken", "recovery.before", "recovery.mid", "recovery.after", "fold.before", "fold.written", "fold.after"})
_SMALL_CHUNK = "from scribengin.core import numbered_log\n\nnumbered_log.CHUNK = 2\n"
_MAX_RESTARTS = 3
_EDITED = 0.3
"""of the cases with two drivers, where the flow has no state: the newer one runs another plan"""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is to be covered: a way to strike at a place, on a flow."""

    way: str
    """one of `WAYS`"""
    point: str
    kind: str
    format: str
    partitioned: bool

    def __str__(self) -> str:
        return f"{self.way}@{self.point} {self.kind} {self.format}{' partitioned' if self.partitioned else ''}"


@dataclass(slots=True)
class Outcome:
    """How a case went. `wrong` holds what must not be; `reached` is False where no strike struck."""

    cell: Cell
    seed: int
    schedule: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    reached: bool = True
    skipped: str = ""
    rows: int = 0
    looks: int = 0
    recovery_s: float = 0.0
    """the last start, from the process's begin to its end, what was left to do included"""
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """passed, failed, skipped, or not reached"""
        if self.wrong:
            return "failed"
        return "skipped" if self.skipped else "passed" if self.reached else "not reached"


def run_case(cell: Cell, seed: int, folder: Path, *, limit_s: float = 300.0) -> Outcome:
    """Run it in `folder`, which must not be there; it is removed unless the case fails. `limit_s` is for each start."""
    outcome = Outcome(cell, seed)
    began = time.monotonic()
    with ExitStack() as stack:
        case = _Case(FaultFlow(folder.resolve(), cell.kind, cell.format, cell.partitioned), outcome, random.Random(seed), limit_s, stack)
        try:
            case.run()
        except Hung as error:
            outcome.wrong.append(str(error))
    outcome.seconds = round(time.monotonic() - began, 1)
    if outcome.verdict != "failed":
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


class _Case:
    def __init__(self, flow: FaultFlow, outcome: Outcome, rng: random.Random, limit_s: float, stack: ExitStack) -> None:
        self.flow = flow
        self.cell = outcome.cell
        self.outcome = outcome
        self.rng = rng
        self._limit_s = limit_s
        self._stack = stack
        self._starts = 0
        self._path: list[str] = []
        self._disk: SmallDisk | None = None
        self._state: Path | None = None
        """the state folder that the last starts use; None: beside the flow"""

    def run(self) -> None:
        self.flow.write()
        if self.cell.point.startswith("fold."):
            self._fold_early()
        if self.cell.way == "full":
            if reason := no_small_disk():
                self.outcome.skipped = reason
                return
            self._disk = self._stack.enter_context(SmallDisk(self._small_folder(), "24k" if self.cell.point == "out" else "8k"))
        readers = [start_reader(self._seen(sink), self.flow.format, records=self.flow.has_records) for sink in self.flow.sinks]
        try:
            WAYS[self.cell.way](self)
            result = self.finish()
        finally:
            self._end(readers)
        if result is not None:
            self._judge(result)

    # --- starts ---

    def start(self, strike: Strike | None = None, *, state: Path | None = None) -> Driver:
        """A run; ended with the case, at the latest."""
        self._starts += 1
        self.outcome.schedule.append(str(strike) if strike else "undisturbed")
        state = state or self._state
        work = self.flow.folder / "starts" / f"{self._starts}"
        driver = start_run(self.flow.flow, strike, work, limit_s=self._limit_s, state=state, wrap=self._wrap, path=self._path)
        return self._stack.enter_context(driver)

    def struck(self, act: Act, point: str | None = None) -> Driver:
        """A run with a strike, to its end. Notes where the strike did not come about."""
        driver = self.start(self.strike(act, point))
        status = driver.wait()
        self._note(f"exit {status}")
        if not driver.is_struck:
            self.outcome.reached = False
        return driver

    def strike(self, act: Act, point: str | None = None) -> Strike:
        """At the cell's point; which pass of it, the seed says."""
        point = point or self.cell.point
        highest = 1 if point in _ONCE_A_RUN or self.cell.way == "chain" else 2 if point in IN_CHILDREN else 3
        return Strike(point, act, self.rng.randint(1, highest))

    def finish(self) -> dict[str, Any] | None:
        """Start it again until it is through; what it then says, or None where it never was."""
        for _ in range(_MAX_RESTARTS):
            driver = self.start()
            status = driver.wait()
            self.outcome.recovery_s = round(time.monotonic() - driver.began, 1)
            self._note(f"exit {status}")
            if status == 0:
                result: dict[str, Any] = driver.result["result"]
                return result
            self.outcome.wrong.append(f"an undisturbed start ended with {status}: {driver.explain()}")
        return None

    def _note(self, text: str) -> None:
        self.outcome.schedule[-1] += f" → {text}"

    # --- ways ---

    def kill(self) -> None:
        self.struck("kill")

    def die(self) -> None:
        self.struck("die")

    def enospc(self) -> None:
        driver = self.struck("enospc")
        if driver.process.returncode and "space" not in driver.explain():
            self.outcome.wrong.append(f"a full disk was not told: {driver.explain()}")

    def chain(self) -> None:
        """One kill after the other: each start gets a little further than the last."""
        for point in CHAIN:
            self.struck("kill", point)

    def recovery(self) -> None:
        """Killed where much is left to do, and again while that is done."""
        first = self.struck("kill", self.rng.choice(DECISIVE))
        if first.is_struck:
            self.struck("kill")

    def full(self) -> None:
        """A disk that is full until someone makes room."""
        assert self._disk is not None
        driver = self.start()
        status = driver.wait()
        self._note(f"exit {status} on a full disk")
        if status == 0:
            self.outcome.reached = False
        elif "space" not in driver.explain():
            self.outcome.wrong.append(f"a full disk was not told: {driver.explain()}")
        self._disk.grow("512m")

    def two(self) -> None:
        """The older one sleeps; its lock is taken away; it wakes when its successor has decided (or is through)."""
        older = self.start(self.strike("hold"))
        if not older.wait_until_struck():
            self.outcome.reached = False
            return
        self._main_state.joinpath("lock").unlink()
        if self.cell.kind not in STATEFUL and self.rng.random() < _EDITED:
            self.flow.flow.write_text(self.flow.text(edited=True))
            self._note("the flow is edited")
        until = self.rng.choice((None, *DECISIVE))
        newer = self.start(Strike(until, "hold", self.rng.randint(1, 2)) if until else None)
        if until is None:
            self._note(f"exit {newer.wait()}, the older one wakes")
        else:
            newer.wait_until_struck()
        older.release()
        self.outcome.schedule.append(f"the older one → exit {older.wait()}: {older.explain()[:200]}")
        newer.release()
        self.outcome.schedule.append(f"the newer one → exit {newer.wait()}: {newer.explain()[:200]}")

    def copy(self) -> None:
        """The state folder is copied after a kill, and the copy started beside the original."""
        self.struck("kill")
        original, copied = self.flow.folder / ".scribengin", self.flow.folder / "copied"
        shutil.copytree(original, copied, symlinks=True)
        driver = self.start(state=copied)
        status = driver.wait()
        self._note(f"exit {status} from a copy: {driver.codes}")
        if (status, driver.codes[:1]) != (2, ["state-copied"]):
            self.outcome.wrong.append(f"a copy of the state was not refused: exit {status}: {driver.explain()}")

    def moved(self) -> None:
        """As on another machine that shares the output: the copy cannot see the original, and both go on."""
        self.struck("kill")
        original, copied, away = (self.flow.folder / name for name in (".scribengin", "copied", "away"))
        shutil.copytree(original, copied, symlinks=True)
        original.rename(away)
        driver = self.start(self.strike("kill", "decide.after"), state=copied)
        self._note(f"exit {driver.wait()} from a copy that cannot see the original")
        copied.rename(self.flow.folder / "copied-away")
        away.rename(original)
        driver = self.start()
        status = driver.wait()
        self._note(f"exit {status}")
        if status == 0:
            return
        # refused, or fenced by what the copy has published: the copy goes on alone
        original.rename(away)
        (self.flow.folder / "copied-away").rename(copied)
        self._state = copied

    def edit(self) -> None:
        """The plan changes while a Batch is undecided, or decided and not published."""
        self.struck("kill")
        before = self.flow.flow.read_text()
        self.flow.flow.write_text(self.flow.text(edited=True))
        driver = self.start()
        status = driver.wait()
        self._note(f"exit {status} after the edit")
        if status == 2:
            self.flow.flow.write_text(before)
        elif status:
            self.outcome.wrong.append(f"an edited flow ended with {status}: {driver.explain()}")

    # --- the end ---

    def _judge(self, result: dict[str, Any]) -> None:
        (query,) = result["queries"]
        if not result["ledger"]["balanced"]:
            self.outcome.wrong += result["ledger"]["violations"]
        flow = self.flow if self._disk is None else FaultFlow(self._disk.seen(self.flow.folder), *self._flow_fields())
        findings: Findings = flow.judge(ledger=query["rows"])
        if findings:
            self.outcome.wrong.append(str(findings))
        self.outcome.rows = query["rows"]["out"]
        status, wrong = run_audit(self.flow.flow, state=self._state, wrap=self._wrap, path=self._path)
        if status:
            self.outcome.wrong.append(f"audit exits with {status}: {wrong}")

    def _flow_fields(self) -> tuple[str, str, bool]:
        return self.flow.kind, self.flow.format, self.flow.partitioned

    def _end(self, readers: list[ReaderProcess]) -> None:
        for reader in readers:
            sight = reader.finish()
            self.outcome.looks += sight.looks
            self.outcome.wrong += [f"a foreign reader: {text}" for text in sight.wrong]

    # --- the ground ---

    @property
    def _main_state(self) -> Path:
        return self.flow.folder / ".scribengin" / "struck" / "main"

    def _small_folder(self) -> Path:
        name = "both" if self.cell.kind == "coins" else "kept"
        return self.flow.out if self.cell.point == "out" else self._main_state / name / "decisions"

    def _seen(self, sink: str) -> Path:
        folder = self.flow.out / sink
        return folder if self._disk is None else self._disk.seen(folder)

    def _wrap(self, command: Sequence[str]) -> list[str]:
        return list(command) if self._disk is None else self._disk.wrap(command, self.flow.folder)

    def _fold_early(self) -> None:
        """Logs fold after two records each, not after a thousand: in every Python process of the run."""
        folder = self.flow.folder / "site"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_SMALL_CHUNK)
        self._path = [str(folder)]


WAYS: dict[str, Callable[[_Case], None]] = {
    "kill": _Case.kill,
    "chain": _Case.chain,
    "die": _Case.die,
    "enospc": _Case.enospc,
    "recovery": _Case.recovery,
    "full": _Case.full,
    "two": _Case.two,
    "copy": _Case.copy,
    "moved": _Case.moved,
    "edit": _Case.edit,
}
