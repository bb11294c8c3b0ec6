"""Quotas on the registry's twin: what people write holds for all flows with the label, what cannot be is refused beside it."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.control import flow_requests
from scribengin.control.quota_records import list_quotas, remove_quota, set_quota
from scribengin.control.worker_reports import IDLE_S, WorkerWatch
from scribengin.core.errors import Refused
from scribengin.local.rate_limit import RateLimit
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.memory import MemoryRegistry, MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Share, TierSpec
from scribengin.registry.tree import QUOTA, SHARE
from scribengin.watching.progress import TierProgress
from scribengin.watching.telemetry import Board
from scribengin.worker.registry_watch import LiveLimits
from tests.control.hands import Plane
from tests.looking import look_until

SEARCH = "team=search"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def plane(store: MemoryStore) -> Plane:
    return Plane(store.client)


def applied(plane: Plane, flow: str, cores: int = 1, memory_bytes: int = 0, **labels: str) -> None:
    specs = {"main": TierSpec(cores=cores, memory_bytes=memory_bytes)}
    given = labels or {"team": "search"}
    flow_requests.apply(
        plane.person, flow_requests.Submission(flow, "0", "flow.yaml", "/base", specs, labels=given), state=lambda _: "/state", by="me"
    )


def test_executors_are_counted_each(plane: Plane) -> None:
    set_quota(plane.person, SEARCH, cores=5, by="ann")
    specs = {"main": TierSpec(cores=2, executors=3)}
    wide = flow_requests.Submission("wide", "0", "flow.yaml", "/base", specs, labels={"team": "search"})
    flow_requests.apply(plane.person, wide, state=lambda _: "/state", by="me")
    said = "it needs 6 cores in total, but quota team=search allows 5"
    assert plane.comes_to("wide", "starting", lambda status: "quota" in status.reason).reason == said
    set_quota(plane.person, SEARCH, cores=6, by="ann")
    plane.comes_to("wide", "running")
    assert list_quotas(plane.person)[0]["taken"]["cores"] == 6


def test_helpers_come_as_far_as_there_is_room_and_the_flow_runs_without_the_others(plane: Plane) -> None:
    set_quota(plane.person, SEARCH, cores=2, by="ann")
    specs = {"main": TierSpec(workers=3)}
    shared = flow_requests.Submission("shared", "0", "flow.yaml", "/base", specs, labels={"team": "search"})
    flow_requests.apply(plane.person, shared, state=lambda _: "/state", by="me")
    plane.comes_to("shared", "running", lambda _: len(plane.workers()) == 2)
    plane.rests()
    assert plane.status("shared").reason.startswith("tier main: 2 of 3 workers are running; main~")
    assert list_quotas(plane.person)[0]["taken"]["cores"] == 2
    set_quota(plane.person, SEARCH, cores=3, by="ann")
    plane.comes_to("shared", "running", lambda status: not status.reason)
    assert plane.workers() == ["shared.main-1", "shared.main~2-1", "shared.main~3-1"]


class Counting:
    """A client, and how often it was asked for something."""

    def __init__(self, client: MemoryRegistry) -> None:
        self._client = client
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in ("read", "children", "read_many", "children_many"):
            return found

        def counted(what: Any) -> Any:
            self.requests += 1
            return found(what)

        return counted


def test_a_list_takes_as_few_requests_for_many_flows_as_for_one(plane: Plane) -> None:
    set_quota(plane.person, SEARCH, cores=9, by="ann")

    def asked() -> tuple[int, list[str]]:
        client = Counting(plane.person)
        (row,) = list_quotas(client)  # type: ignore[arg-type]
        return client.requests, [flow["flow"] for flow in row["flows"]]

    applied(plane, "orders")
    applied(plane, "other", team="web")
    plane.comes_to("orders", "running")
    before = asked()
    for flow in ("clicks", "visits"):
        applied(plane, flow)
        plane.comes_to(flow, "running")
    assert (before[1], asked()) == (["orders"], (before[0], ["clicks", "orders", "visits"]))


def share(plane: Plane, flow: str) -> Share | None:
    found = read_record(plane.person, SHARE(flow))
    return found.record if isinstance(found, Stored) else None


def test_what_does_not_fit_waits_says_for_what_and_starts_when_it_fits(plane: Plane, store: MemoryStore) -> None:
    set_quota(plane.person, SEARCH, cores=2, by="ann")
    for flow, labels in (("orders", {"team": "search"}), ("clicks", {"team": "search"}), ("other", {"team": "web"})):
        applied(plane, flow, cores=2, **labels)
    plane.comes_to("orders", "running")
    plane.comes_to("other", "running")
    waiting = plane.comes_to("clicks", "starting", lambda status: "waits" in status.reason)
    assert waiting.reason == "waits for quota team=search: it needs 2 cores; in use: 2 of 2"
    assert waiting.next.endswith("scribengin quota set team=search --cores 4")
    (row,) = list_quotas(plane.person)
    assert (row["taken"]["cores"], row["over"]) == (2, False)
    assert [(flow["flow"], flow["cores"], flow["waits"]) for flow in row["flows"]] == [("clicks", 0, True), ("orders", 2, False)]
    # what is lost is started again, and its place is kept meanwhile: also for the next master
    plane.lose("orders", "main")
    plane.registry.close()
    plane.registry = store.client()
    plane.master = plane.another(plane.registry)
    plane.comes_to("orders", "running", lambda _: "orders.main-2" in plane.workers())
    plane.rests()
    assert plane.run("clicks", "main") == 0
    plane.want("orders", "stopped")
    plane.comes_to("clicks", "running")
    assert plane.node("orders", "main") == ""


def test_more_is_allowed_and_who_waits_starts_and_less_ends_nobody(plane: Plane) -> None:
    set_quota(plane.person, SEARCH, memory_bytes=3 * 2**30, by="ann")
    for flow in ("orders", "clicks"):
        applied(plane, flow, memory_bytes=2 * 2**30)
    plane.comes_to("clicks", "starting", lambda status: "in use: 2.0 GiB of 3.0 GiB" in status.reason)
    set_quota(plane.person, SEARCH, memory_bytes=4 * 2**30, cores=8, by="ann")
    plane.comes_to("clicks", "running")
    before = plane.workers()
    set_quota(plane.person, SEARCH, memory_bytes=2**30, by="ann")
    plane.rests()
    assert plane.status("orders").state == plane.status("clicks").state == "running"
    assert plane.workers() == before
    (row,) = list_quotas(plane.person)
    assert (row["over"], row["cores"]) == (True, 8), "what is not said stays"
    remove_quota(plane.person, SEARCH)
    assert list_quotas(plane.person) == []


def test_rows_are_divided_among_those_that_run_and_a_worker_hears_of_it(plane: Plane, store: MemoryStore) -> None:
    set_quota(plane.person, SEARCH, rows_per_s=900, by="ann")
    for flow in ("orders", "clicks", "visits"):
        applied(plane, flow)
        plane.comes_to(flow, "running")
    assert [share(plane, flow) for flow in ("orders", "clicks", "visits")] == [Share(rows_per_s=300.0, quota=SEARCH)] * 3
    live = LiveLimits(store.client(), "orders")
    try:
        assert (live().share, live().quota, live().flow) == (RateLimit(rows_per_s=300.0), SEARCH, RateLimit())
        plane.want("visits", "stopped")
        plane.comes_to("visits", "stopped")
        plane.rests()
        look_until(lambda: live().share == RateLimit(rows_per_s=450.0), "the share of two", 120)
        store.write_raw(SHARE("orders").path, b"{")
        live._followed.refresh()
        assert live().share == RateLimit(rows_per_s=450.0)
    finally:
        live.close()
    plane.rests()
    assert share(plane, "orders") == Share(rows_per_s=450.0, quota=SEARCH), "it was set aside, and is told again"
    remove_quota(plane.person, SEARCH)
    plane.rests()
    assert share(plane, "clicks") == Share()
    before = plane.hands.sync()
    plane.rests()
    assert plane.hands.sync() == before, "nothing is written again and again"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{", "is not valid JSON"),
        (b'{"cores": 0}', "has cores not above 0"),
        (b'{"cores": "two"}', "does not fit"),
        (b'{"rows_per_s": -5}', "rows"),
    ],
)
def test_a_quota_that_cannot_be_is_refused_beside_it_and_nothing_more_starts_under_it(
    store: MemoryStore, plane: Plane, raw: bytes, why: str
) -> None:
    applied(plane, "orders")
    applied(plane, "other", team="web")
    plane.comes_to("orders", "running")
    set_quota(plane.person, "team=none", cores=1, by="ann")
    store.write_raw(QUOTA(SEARCH).path, raw)
    refused = plane.comes_to("orders", "running", lambda status: bool(status.refused)).refused
    there = plane.person.read(QUOTA(SEARCH).path)
    assert why in refused[QUOTA(SEARCH).path]["why"]
    assert refused[QUOTA(SEARCH).path]["version"] == (there.version if there is not None else None)
    assert QUOTA(SEARCH).path in plane.master.problems
    assert plane.status("other").refused == {}
    applied(plane, "clicks")
    assert why in plane.comes_to("clicks", "starting", lambda status: "no further flow starts" in status.reason).reason
    plane.lose("orders", "main")
    plane.comes_to("orders", "running", lambda _: "orders.main-2" in plane.workers())
    assert why in next(row["refused"] for row in list_quotas(plane.person) if row["quota"] == SEARCH)
    set_quota(plane.person, SEARCH, cores=4, by="ann")
    assert plane.comes_to("clicks", "running").refused == {}
    assert plane.comes_to("orders", "running", lambda status: not status.refused).refused == {}
    assert QUOTA(SEARCH).path not in plane.master.problems


def test_what_is_no_quota_is_refused_and_what_others_keep_there_stays(store: MemoryStore, plane: Plane) -> None:
    for name, bounds, code in (
        ("search", {"cores": 1}, "quota-name"),
        ("team=a/b", {"cores": 1}, "quota-name"),
        ("team=", {"cores": 1}, "quota-name"),
        (SEARCH, {}, "quota-value"),
        (SEARCH, {"cores": 0}, "quota-value"),
        (SEARCH, {"memory_bytes": -1}, "quota-value"),
        (SEARCH, {"rows_per_s": float("nan")}, "quota-value"),
        (SEARCH, {"cores": 3, "off": ("cores",)}, "quota-value"),
    ):
        with pytest.raises(Refused) as refused:
            set_quota(plane.person, name, **bounds, by="ann")  # type: ignore[arg-type]
        assert refused.value.code == code, (name, bounds)
    with pytest.raises(Refused) as unknown:
        remove_quota(plane.person, SEARCH)
    assert unknown.value.code == "quota-unknown"
    set_quota(plane.person, "team=none", cores=1, by="ann")
    store.write_raw(QUOTA(SEARCH).path, b'{"format": 1, "cores": 3, "note": "by hand"}')
    set_quota(plane.person, SEARCH, rows_per_s=5, off=("cores",), by="ann")
    there = plane.person.read(QUOTA(SEARCH).path)
    assert isinstance(there, RegistryEntry)
    assert (there.value["note"], there.value["rows_per_s"], "cores" in there.value) == ("by hand", 5, False)
    with pytest.raises(Refused):
        set_quota(plane.person, SEARCH, off=("rows_per_s",), by="ann")


def test_who_reads_nothing_for_a_minute_is_idle_and_who_reads_is_not_and_of_others_nobody_knows(plane: Plane) -> None:
    from scribengin.local.contract import QueryView

    clock = [1000.0]
    board = Board(lambda: clock[0])
    dispatcher = type("AlertDispatcher", (), {"evaluate": lambda *_: None})()
    watch = WorkerWatch(plane.person, board, dispatcher)
    set_quota(plane.person, SEARCH, rows_per_s=900, by="ann")
    for flow in ("orders", "clicks", "visits"):
        applied(plane, flow)
        plane.comes_to(flow, "running")
    plane.rests()

    def tells(flow: str, rows: int) -> None:
        query = QueryView("kept", "running", rows_in=rows)
        board.take(TierProgress(flow=flow, tier="main", run=1, version=1, at=clock[0], phase="running", queries=(query,)))

    def idle() -> dict[str, bool]:
        watch.seen(plane.master.cycle(), plane.master._election.term)
        return watch.idle()

    tells("orders", 5)
    tells("clicks", 5)
    clock[0] += 10
    tells("orders", 50)
    tells("clicks", 5)
    assert idle() == {"orders": False}
    clock[0] += IDLE_S - 5
    tells("orders", 50)
    tells("clicks", 5)
    assert idle() == {"orders": False, "clicks": True}
    clock[0] += 20
    tells("orders", 50)
    tells("clicks", 6)
    assert idle() == {"orders": True, "clicks": False}


def test_a_share_goes_with_its_flow(plane: Plane) -> None:
    set_quota(plane.person, SEARCH, rows_per_s=900, by="ann")
    applied(plane, "orders")
    plane.comes_to("orders", "running")
    assert share(plane, "orders") is not None
    plane.want("orders", "stopped")
    plane.comes_to("orders", "stopped")
    flow_requests.delete(plane.person, "orders")
    assert plane.person.read(SHARE("orders").path) is None
    plane.person.commit(put(plane.person, SHARE("orders"), Share()))
