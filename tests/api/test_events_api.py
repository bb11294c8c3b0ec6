"""Events by REST: what becomes of flows, told as it becomes, and after any break."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import httpx2
import pytest

from scribengin.api import events
from scribengin.control import flow_records, flow_requests
from scribengin.core.errors import Refused, ScribenginError
from scribengin.registry.contract import Delete
from scribengin.registry.records import TierSpec
from scribengin.registry.tree import DESIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Bench

    from scribengin.client.client import Client, Event
    from scribengin.control.worker_reports import WorkerWatch

WAIT_S = 120
pytestmark = pytest.mark.timeout(400)  # a stream that says nothing is waited for


class Listener:
    """Somebody who listens, in a thread."""

    def __init__(self, client: Client, after: int = 0) -> None:
        self.events: list[Event] = []
        self._stream: Iterator[Event] = client.events(after)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(ScribenginError, RuntimeError):  # the test is over
            for event in self._stream:
                self.events.append(event)

    def flows(self) -> list[tuple[str, str]]:
        return [(event.change.flow.flow, event.change.flow.wanted) for event in self.events if event.change is not None]

    def hears(self, what: Callable[[Listener], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not what(self):
            assert time.monotonic() < deadline, self.events
            time.sleep(0.02)


def submitted(bench: Bench, flow: str) -> None:
    submission = flow_requests.Submission(flow, "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(bench.person, submission, state=lambda _: "/state", by="bob")


def test_who_listens_hears_all_flows_and_then_each_change(bench: Bench) -> None:
    bench.master()
    submitted(bench, "a")
    submitted(bench, "b")
    listener = Listener(bench.client())
    listener.hears(lambda it: it.flows() == [("a", "running"), ("b", "running")])
    assert (listener.events[0].kind, listener.events[0].names) == ("flows", ("a", "b"))
    flow_requests.want(bench.person, "b", "paused", by="bob")
    listener.hears(lambda it: it.flows()[-1] == ("b", "paused"))
    submitted(bench, "c")
    listener.hears(lambda it: it.flows()[-1] == ("c", "running"))
    bench.person.commit(Delete(DESIRED("a").path))
    listener.hears(lambda it: it.events[-1].kind == "deleted")
    assert listener.flows()[-1][0] == "a"


def test_who_comes_again_hears_what_has_changed_meanwhile_from_any_master(bench: Bench) -> None:
    first, second = bench.master(), bench.master()
    for flow in ("a", "b", "c"):
        submitted(bench, flow)
    before = Listener(bench.client(first))
    before.hears(lambda it: len(it.flows()) == 3)
    flow_requests.want(bench.person, "c", "paused", by="bob")
    before.hears(lambda it: len(it.flows()) == 4)
    last = before.events[-1].id
    flow_requests.want(bench.person, "a", "stopped", by="bob")
    after = Listener(bench.client(second), last)
    after.hears(lambda it: ("a", "stopped") in it.flows())
    assert ("b", "running") not in after.flows(), "what has not changed is not told again"
    assert after.events[0].names == ("a", "b", "c")


def test_no_change_is_missed_in_a_storm_of_them_with_breaks(bench: Bench) -> None:
    """Each break comes at once after an event; what the id promises must hold whatever was on its way."""
    bench.master()
    flows = [f"f{number}" for number in range(10)]
    for flow in flows:
        submitted(bench, flow)
    ended = threading.Event()

    def storm() -> None:
        for round_ in range(30):
            for flow in flows:
                flow_requests.want(bench.person, flow, "paused" if round_ % 2 else "stopped", by="bob")
            time.sleep(0.05)
        ended.set()

    threading.Thread(target=storm, daemon=True).start()
    known: dict[str, tuple[int, str]] = {}
    after, client = 0, bench.client()
    deadline = time.monotonic() + WAIT_S
    while not ended.is_set() or any(known.get(flow, (0, ""))[1] != "paused" for flow in flows):
        assert time.monotonic() < deadline, known
        for number, event in enumerate(client.events(after)):
            after = event.id
            if event.change is not None and event.change.revision >= known.get(event.change.flow.flow, (0, ""))[0]:
                known[event.change.flow.flow] = (event.change.revision, event.change.flow.wanted)
            if number >= 3 or (ended.is_set() and all(known.get(flow, (0, ""))[1] == "paused" for flow in flows)):
                break
    assert {flow: flow_records.read_flow(bench.person, flow).desired.state for flow in flows} == {
        flow: state for flow, (_, state) in known.items()
    }


def test_a_stream_goes_on_by_another_master(bench: Bench) -> None:
    from contextlib import ExitStack

    with ExitStack() as stack:
        outer, bench.stack = bench.stack, stack
        first = bench.master()
        bench.stack = outer
        second = bench.master()
        submitted(bench, "a")
        listener = Listener(bench.client(first, second))
        listener.hears(lambda it: len(it.flows()) == 1)
    flow_requests.want(bench.person, "a", "paused", by="bob")  # the first master has ended
    listener.hears(lambda it: it.flows()[-1] == ("a", "paused"))


def test_more_streams_than_a_master_can_have_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.api.events.MOST_STREAMS", 1)
    bench.master()
    submitted(bench, "a")
    Listener(bench.client()).hears(lambda it: bool(it.events))
    with pytest.raises(Refused) as told:
        next(iter(bench.client().events()))
    assert told.value.code == "too-many"


def test_figures_are_sent_of_all_flows_and_then_of_those_whose_figures_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events.FiguresWatcher, "is_due", lambda _self: True)
    now = {"heard_s": 0.1, "silent": [], "rows_in_per_s": 5.0}
    rows = [{"flow": "a", "now": dict(now)}, {"flow": "b", "now": dict(now)}, {"flow": "c", "now": None}]
    watch = SimpleNamespace(leads=lambda: True, overview=lambda: rows)
    figures = events.FiguresWatcher(cast("WorkerWatch", watch))

    def new() -> list[str]:
        before = figures.number
        figures.refresh()
        assert figures.flows is not None
        return [name for name, each in figures.flows.items() if each.number > before]

    assert new() == ["a", "b", "c"]
    rows[0]["now"]["heard_s"] = 0.9  # type: ignore[index]
    assert new() == [], "that time passes is nothing new"
    rows[1]["now"]["rows_in_per_s"] = 6.0  # type: ignore[index]
    assert new() == ["b"]
    rows[0]["now"]["silent"] = ["main"]  # type: ignore[index]
    rows[0]["now"]["heard_s"] = 99.0  # type: ignore[index]
    assert new() == ["a"]
    watch.leads = lambda: False
    figures.refresh()
    assert figures.flows is None


def test_a_stream_with_figures_has_those_that_the_caller_may_see(bench: Bench) -> None:
    submitted(bench, "a")
    token = bench.tokens.add("ann", "viewer", {"team": "shop"})
    master = bench.master()
    assert master.plane.watch is not None
    master.plane.watch.overview = lambda: [{"flow": "a", "now": None}]  # type: ignore[method-assign]

    def first(headers: dict[str, str], kinds: tuple[str, ...]) -> tuple[str, str]:
        with httpx2.stream("GET", f"{master.url}/v1/events?figures=true", headers=headers, timeout=WAIT_S) as stream:
            kind = ""
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                if line.startswith("data: ") and kind in kinds:
                    return kind, line.removeprefix("data: ")
        raise AssertionError

    assert first({}, ("figures", "beat")) == ("figures", '[{"flow":"a","now":null}]')
    assert first({"Authorization": f"Bearer {token}"}, ("figures", "beat")) == ("beat", "null")
