"""A flow under strikes: its starts, its growing input, its end, and the check of the result."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from harness.faults.drivers import DriverProcess, Strike, run_audit, run_status, start_run
from harness.faults.flows import FOLD_EVERY
from harness.faults.java import java_settings
from harness.faults.small_disk import SmallDisk, no_small_disk
from harness.faults.tier_flows import CUTS, TierFlow
from scribengin.state.dead_letters import read_letters
from scribengin.state.folder import StateFolder

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from harness.faults.flows import FaultFlow
    from harness.faults.outcomes import Aim, LifeOutcome
    from harness.faults.reader import ReaderProcess
    from harness.faults.workers import WorkerCluster
    from scribengin.embedded.kafka import KafkaCluster
    from scribengin.testing.checker import Findings

_SMALL_CHUNK = f"from scribengin.core import numbered_log\n\nnumbered_log.CHUNK = {FOLD_EVERY}\n"
_MAX_RESTARTS = 3


class RunningLife:
    """What the ways to strike use: the flow, its starts, and the state folder of the next start."""

    def __init__(
        self,
        flow: FaultFlow,
        outcome: LifeOutcome,
        stack: ExitStack,
        limit_s: float,
        archive: Path | None,
        stop: threading.Event,
        cluster: KafkaCluster | None = None,
        workers: WorkerCluster | None = None,
        records: int = 0,
    ) -> None:
        self._records = records
        self.flow = flow
        self.outcome = outcome
        self.disk: SmallDisk | None = None
        self.cluster = cluster
        self._workers = workers
        self.state = flow.state
        """the state folder of the next start"""
        self._stack = stack
        self._limit_s = limit_s
        self._java = java_settings(archive)
        self._stop = stop
        self._drivers: list[DriverProcess] = []
        self._path = list(flow.python_path)
        self._edited = self._recut = False

    def run(self, strike_all: Callable[[RunningLife], None]) -> None:
        """Run the whole life; `strike_all` makes the strikes."""
        aims = self.outcome.life.aims
        self.flow.write()
        if any(aim.point.startswith("fold.") for aim in aims):
            self._fold_early()
        if aims[0].way == "full":
            if reason := no_small_disk():
                self.outcome.skipped = reason
                return
            self.disk = self._stack.enter_context(SmallDisk(self._small_folder(aims[0]), "24k" if aims[0].point == "out" else "8k"))
        readers = [self.flow.watch(self._seen(sink)) for sink in self.flow.places]
        try:
            self.flow.grow(1)
            strike_all(self)
            self.flow.fill(self._records)
            self.flow.close()
            result = self._finish()
            # however a driver ends, it must not report an internal error
            self.outcome.wrong += [f"start {nth}: {each.explain()}" for nth, each in enumerate(self._drivers, 1) if "bug" in each.codes]
        finally:
            self._end(readers)
        if result is not None:
            self._judge(result)

    def random(self, place: int) -> random.Random:
        """The random numbers for the aim at this position."""
        return random.Random(f"{self.outcome.seed}/{place}")

    def start(self, strikes: Sequence[Strike] = (), *, state: Path | None = None, arguments: Sequence[str] = ()) -> DriverProcess:
        """Start a run, with enough input for its strikes. It is ended with the life, at the latest. If the life has its own workers,
        strikes apply to tasks on them only.

        Args:
            strikes: The strikes.
            state: Another state folder; None for the current one.
            arguments: Additional arguments of `run`.
        """
        batches = max((4 if strike.point.startswith("fold.") else strike.nth for strike in strikes), default=0)
        self.flow.grow(batches)
        self.outcome.schedule.append(" and ".join(map(str, strikes)) or "undisturbed")
        if isinstance(self.flow, TierFlow) and self.flow.apart:
            tier = self._run_before(self.flow.tiers, struck=bool(strikes))
            arguments = [*arguments, "--tier", tier]
        work = self.flow.folder / "starts" / f"{len(self._drivers) + 1}"
        if self._workers is not None:
            strikes, arguments = (), [*arguments, *self._workers.arguments(strikes, work)]
        return self._started(strikes, work, state, arguments)

    def _started(self, strikes: Sequence[Strike], work: Path, state: Path | None, arguments: Sequence[str]) -> DriverProcess:
        driver = start_run(
            self.flow.flow,
            strikes,
            work,
            limit_s=self._limit_s,
            stop=self._stop,
            java=self._java,
            state=state or self.state,
            arguments=arguments,
            wrap=self._wrap,
            path=self._path,
        )
        self._drivers.append(driver)
        return self._stack.enter_context(driver)

    def _run_before(self, tiers: Sequence[str], *, struck: bool) -> str:
        """The tier to start: a random one if it is struck, else the last one. The tiers before it are run to their end first."""
        chosen = self.random(len(self._drivers)).randrange(len(tiers)) if struck else len(tiers) - 1
        for tier in tiers[:chosen]:
            driver = self._started((), self.flow.folder / "starts" / f"{len(self._drivers) + 1}", None, ["--tier", tier])
            if status := driver.wait():
                self.outcome.wrong.append(f"an undisturbed start of tier {tier} ended with {status}: {driver.explain()}")
        self.note(f"tier {tiers[chosen]}")
        return tiers[chosen]

    def start_to_end(self) -> None:
        """Start a run without strikes, which must succeed."""
        driver = self.start()
        status = driver.wait()
        self.note(f"exit {status}")
        if status:
            self.outcome.wrong.append(f"an undisturbed start ended with {status}: {driver.explain()}")

    def note(self, text: str) -> None:
        """Add a text to the schedule's entry for the last start."""
        self.outcome.schedule[-1] += f" → {text}"

    def edit(self) -> None:
        """Change the plan but not the result, by adding or removing a step."""
        self._edited = not self._edited
        self.flow.flow.write_text(self.flow.text(edited=self._edited))
        self.note("the flow is edited")

    def recut(self, cut: int | None = None) -> int:
        """Change the division into tiers to the next one, or to `cut`; returns the one before."""
        assert isinstance(self.flow, TierFlow)
        self._recut = True
        before = self.flow.cut
        self.flow.cut = (before + 1) % CUTS if cut is None else cut
        self.flow.flow.write_text(self.flow.text(edited=self._edited))
        self.note(f"it is cut into {' '.join(self.flow.tiers)}")
        return before

    @property
    def tier_folder(self) -> Path:
        """The folder with the lock; that of the last tier, if there are several."""
        return self.tier_folders[-1]

    @property
    def tier_folders(self) -> list[Path]:
        """The folders with the locks."""
        tiers = self.flow.tiers if isinstance(self.flow, TierFlow) else ("main",)
        return [self.state / self.flow.name / tier for tier in tiers]

    # --- the end ---

    def _finish(self) -> dict[str, Any] | None:
        """Start the flow until it succeeds, and return its result; None if it never does."""
        for _ in range(_MAX_RESTARTS):
            driver = self.start()
            status = driver.wait()
            self.outcome.recovery_s = round(time.monotonic() - driver.began, 1)
            self.note(f"exit {status}")
            if status == 0:
                result: dict[str, Any] = driver.result["result"]
                return result
            self.outcome.wrong.append(f"an undisturbed start ended with {status}: {driver.explain()}")
        return None

    def _judge(self, result: dict[str, Any]) -> None:
        queries = [query for query in result["queries"] if {sink["sink"] for sink in query["sinks"]} <= set(self.flow.sinks)]
        rows = {name: sum(query["rows"][name] for query in queries) for name in ("out", "late", "dead")}
        audited = run_audit(self.flow.flow, state=self.state, wrap=self._wrap, path=self._path)
        if isinstance(self.flow, TierFlow):
            if self._recut:  # a query that continues in another tier counts from there
                rows["out"] = sum(audited.rows.get(sink, 0) for sink in self.flow.sinks)
            edges, why = run_status(self.flow.flow, state=self.state, path=self._path)
            self.outcome.wrong += [why] if why else []
            rows["dropped"] = sum(edge["dropped_rows"] for edge in edges)
            self.outcome.wrong += [f"{edge['stored_rows']} rows still wait in {edge['channel']}" for edge in edges if edge["stored_rows"]]
        if not result["ledger"]["balanced"]:
            self.outcome.wrong += result["ledger"]["violations"]
        if self.flow.late:
            folders = StateFolder(self.state, self.flow.name).queries()
            self.outcome.wrong += self.flow.misjudged(letter.payload for folder in folders for letter in read_letters(folder))
        findings: Findings = self.flow.judge(ledger=rows, out=self._seen(""))
        if findings:
            self.outcome.wrong.append(str(findings))
        self.outcome.rows = rows["out"]
        if audited.status:
            self.outcome.wrong.append(f"audit exits with {audited.status}: {audited.wrong}")

    def _end(self, readers: list[ReaderProcess]) -> None:
        for reader in readers:
            sight = reader.finish()
            self.outcome.looks += sight.looks
            self.outcome.wrong += [f"a foreign reader: {text}" for text in sight.wrong]

    # --- the ground ---

    def _small_folder(self, aim: Aim) -> Path:
        name = "both" if self.flow.kind == "coins" else "kept"
        return self.flow.out if aim.point == "out" else self.tier_folder / name / "decisions"

    def _seen(self, sink: str) -> Path:
        folder = self.flow.out / sink
        return folder if self.disk is None else self.disk.seen(folder)

    def _wrap(self, command: Sequence[str]) -> list[str]:
        return list(command) if self.disk is None else self.disk.wrap(command, self.flow.folder)

    def _fold_early(self) -> None:
        """Let logs fold after two records instead of a thousand, in every Python process of the run."""
        folder = self.flow.folder / "site"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_SMALL_CHUNK)
        self._path.append(str(folder))
