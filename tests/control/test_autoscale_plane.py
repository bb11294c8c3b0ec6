"""A tier with `autoscale` under a master: from the reports of its workers to other workers. No Spark, no processes, a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from scribengin.api.views import RegistryView
from scribengin.control import flow_records, flow_requests
from scribengin.control.alerting import AlertDispatcher
from scribengin.control.autoscale import RULES
from scribengin.control.event_history import read_happened
from scribengin.control.operation_requests import list_operations
from scribengin.control.rate_limits import set_limit
from scribengin.control.worker_reports import WorkerWatch
from scribengin.core.errors import Refused
from scribengin.local.contract import QueryView
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import AutoscaleSpec, Host, TierSpec
from scribengin.registry.tree import AUTOSCALE, HOST
from scribengin.watching.progress import TierProgress
from scribengin.watching.telemetry import Board
from tests.control.obedient import LOG, Plane

if TYPE_CHECKING:
    from typing import Literal

    from scribengin.control.world import RunId
    from scribengin.registry.records import Operation, TierSize

RATE = 1_000.0
"""rows that an executor reads in a second"""


def submission(mode: Literal["advise", "act"] = "act", package: str = "0") -> flow_requests.Submission:
    scale = AutoscaleSpec(lag_s=60.0, min=1, max=8, mode=mode)
    tiers = {"edge": TierSpec(), "core": TierSpec(feeders=("edge",), autoscale=scale)}
    return flow_requests.Submission("f", package, "flow.yaml", "/base", tiers)


@dataclass
class Busy:
    """A flow of two tiers, of which one has `autoscale`, and reports of its workers: `arriving` rows a second come to it."""

    mode: Literal["advise", "act"] = "act"
    arriving: float = 3_000.0
    plane: Plane = field(default_factory=Plane)
    read: float = 0.0
    waiting: float = 0.0
    worked_s: float = 0.0
    state_partitions: int | None = None

    def __post_init__(self) -> None:
        self.board = Board(lambda: self.plane.now)
        self.apply()
        self._watch()

    def apply(self, package: str = "0") -> flow_requests.Applied:
        effects = {"f": "in place"}
        said = submission(self.mode, package)
        return flow_requests.apply_all(self.plane.person, [said], None, state=lambda _: "/state", by="me", effects=effects)[0]

    def _watch(self) -> None:
        registry = self.plane.registry
        self.plane.master._watch = WorkerWatch(registry, self.board, AlertDispatcher(registry, self.board, LOG))

    def another_master(self) -> None:
        self.plane.kill_master()
        self._watch()

    def executors(self) -> int:
        _, spec = flow_records.wanted(self.plane.person, "f")
        assert spec is not None
        return spec.tiers["core"].executors

    def worker(self) -> str:
        return str(next(tier["worker"] for tier in flow_records.describe(self.plane.person, "f")["tiers"] if tier["tier"] == "core"))

    def size(self) -> TierSize:
        found = read_record(self.plane.person, AUTOSCALE("f"))
        assert isinstance(found, Stored)
        size: TierSize = found.record.tiers["core"]
        return size

    def passes(self, seconds: float) -> Busy:
        end = self.plane.now + seconds
        run = self.worker()
        while self.plane.now < end:
            began = self.plane.now
            self.plane.turn()
            spent_s = self.plane.now - began
            self.waiting += self.arriving * spent_s
            if self.worker() != run:
                run, self.read, self.worked_s = self.worker(), 0.0, 0.0
            taken = min(self.waiting, RATE * self.executors() * spent_s)
            self.waiting -= taken
            self.read += taken
            self.worked_s += taken / RATE
            self._report(run)
        return self

    def _report(self, worker: str) -> None:
        query = QueryView(
            "kept",
            "running",
            rows_in=round(self.read),
            lag_rows=round(self.waiting),
            lag_s=self.waiting / self.arriving if self.waiting else None,
            phases_total_s={"process": self.worked_s / self.executors()},
            tasks_s=self.worked_s,
            state_partitions=self.state_partitions,
        )
        number = int(worker.rpartition("-")[2])
        self.board.take(TierProgress(flow="f", tier="core", run=number, version=1, at=0.0, phase="running", queries=(query,)))


def test_a_tier_that_is_behind_gets_more_executors_and_keeps_them_when_the_flow_comes_again() -> None:
    busy = Busy().passes(180)
    assert (busy.executors(), busy.worker()) == (2, "f.core-2")
    tiers = {tier["tier"]: tier for tier in flow_records.describe(busy.plane.person, "f")["tiers"]}
    assert (tiers["edge"]["worker"], tiers["edge"]["autoscale"]) == ("f.edge-1", None), "the other tier continues"
    shown = tiers["core"]["autoscale"]
    assert (shown["executors"], shown["advised"], shown["verdict"], shown["mode"]) == (2, 2, "wait", "act")
    assert shown["change"].startswith("from 1 to 2: the lag is ")
    (seen,) = [tier.autoscale for tier in RegistryView(busy.plane.person).flow("f").tiers if tier.tier == "core"]
    assert seen is not None
    assert (seen.executors, seen.min, seen.max, seen.lag_s, seen.change) == (2, 1, 8, 60.0, shown["change"])
    (event,) = [event for event in read_happened(busy.plane.person, "f") if event.by == "autoscale"]
    assert event.why == f"tier core, executors {shown['change']}"
    assert busy.apply().changed is False
    assert busy.apply("1").version == 3
    assert busy.executors() == 2


def test_it_grows_until_it_keeps_up_and_shrinks_when_the_load_has_ended() -> None:
    busy = Busy().passes(1800)
    assert busy.executors() in (4, 5, 6)
    assert busy.waiting / busy.arriving < 60
    busy.arriving = 10.0
    assert busy.passes(3600).executors() == 1


def test_state_of_too_few_partitions_is_distributed_once_before_the_larger_tier_starts() -> None:
    done: list[tuple[str, str, dict[str, object], int]] = []

    def part(id_: RunId, operation: Operation) -> str:
        done.append((id_.tier, operation.kind, dict(operation.arguments), operation.version))
        busy.state_partitions = 8
        return ""

    busy = Busy(plane=Plane(part=part), state_partitions=2)
    assert busy.passes(240).executors() == 2
    assert done == [], "two tasks can work on two partitions"
    assert busy.passes(400).executors() == 4
    assert done == [("core", "repartition", {"partitions": 8}, 3)]
    assert busy.size().change.endswith("its state is distributed over 8 partitions instead of 2")
    assert busy.passes(1200).executors() in (5, 6, 7, 8)
    assert len(done) == 1
    (operation,) = list_operations(busy.plane.person, "f")
    assert (operation.step, operation.by) == ("done", "autoscale")


def test_another_master_respects_the_cool_down() -> None:
    busy = Busy().passes(180)
    changed_at = busy.size().changed_at
    assert changed_at is not None
    busy.another_master()
    busy.passes(RULES.cool_down_s - 60 - (busy.plane.now - changed_at))
    assert (busy.executors(), busy.size().changed_at) == (2, changed_at)
    busy.passes(120)
    assert busy.executors() == 4
    assert (busy.size().changed_at or 0.0) - changed_at >= RULES.cool_down_s


def test_advice_changes_nothing_and_is_written_when_it_changes() -> None:
    busy = Busy("advise").passes(240)
    assert (busy.executors(), busy.worker()) == (1, "f.core-1")
    size = busy.size()
    assert (size.verdict, size.executors, size.present, size.changed_at) == ("grow", 2, 1, None)
    before = busy.plane.store.revision
    busy.passes(300)
    assert busy.plane.store.revision == before


def test_nothing_is_decided_while_a_person_limits_or_pauses_the_flow() -> None:
    busy = Busy("advise").passes(240)
    set_limit(busy.plane.person, "f", "", "", rows_per_s=10)
    busy.passes(10)
    assert (busy.size().verdict, busy.size().executors) == ("wait", 1)
    assert "scribengin limit f" in busy.size().why
    set_limit(busy.plane.person, "f", "", "")
    assert busy.passes(10).size().verdict == "grow"
    flow_requests.want(busy.plane.person, "f", "paused", by="me")
    assert busy.passes(10).size().why == "the flow is wanted paused"


def test_a_tier_that_cannot_have_executors_is_refused() -> None:
    plane = Plane()
    plane.person.commit(HOST("here").create(Host(host="pc7")))
    with pytest.raises(Refused) as refused:
        flow_requests.apply(plane.person, submission(), state=lambda _: "/state", by="me")
    assert refused.value.code == "scale-executors"
    assert "on here Spark runs inside the worker, so tier core cannot have the executors" in refused.value.message
    plane.person.commit(HOST("there").create(Host(host="pc8", spark="spark://pc8:7077")))
    assert flow_requests.apply(plane.person, submission(), state=lambda _: "/state", by="me").changed is True
