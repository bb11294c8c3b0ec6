"""Alerts as they are sent: real targets, a registry in memory, a clock that the test turns."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from harness.manual_clock import ManualClock
from scribengin.control.alerting import AlertDispatcher, execute, post
from scribengin.control.world import FlowSeen, ObservedTier, Wish
from scribengin.core.errors import Refused
from scribengin.registry.lease import Election
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import AlertSettings, AlertSpec
from scribengin.registry.tree import ALERTS
from scribengin.watching.alerts import AlertNotice
from scribengin.watching.telemetry import Board

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
NOTICE = AlertNotice("tweets", "stuck", "firing", "no progress for 1m", "no Batch", "2026-01-01T00:00:00+00:00")


@dataclass
class Web:
    """A web server that keeps what it is sent."""

    got: list[dict[str, Any]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """status of the next ones; 200 where none is left"""
    hangs: threading.Event | None = None

    def __post_init__(self) -> None:
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if web.hangs is not None:
                    web.hangs.wait(120)
                web.got.append(body)
                self.send_response(web.answers.pop(0) if web.answers else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        if self.hangs is not None:
            self.hangs.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


def flow(*, goal: str = "running", **alerts: AlertSpec) -> FlowSeen:
    return FlowSeen("tweets", Wish(1, goal, 1), {"main": ObservedTier("main")}, watched=AlertSettings(alerts=alerts))  # type: ignore[arg-type]


class House:
    """Masters one after the other, over one registry; no worker says anything."""

    def __init__(self, *seen: FlowSeen) -> None:
        self.clock, self.store = ManualClock(), MemoryStore()
        self.flows = {each.name: each for each in seen}
        self.takes_over()

    def takes_over(self) -> None:
        if hasattr(self, "election"):
            self.election.close()
            self.dispatcher.close()
        self.registry = self.store.client()
        self.election = Election(self.registry, {"id": "m"})
        assert self.election.acquire()
        self.dispatcher = AlertDispatcher(self.registry, Board(self.clock), LOG)

    def looks(self, after_s: float = 3.0) -> None:
        self.clock.advance(seconds=after_s)
        self.dispatcher.evaluate(self.flows, self.election.term)

    def written(self) -> list[str]:
        found = read_record(self.registry, ALERTS("tweets"))
        return sorted(found.record.alerts) if isinstance(found, Stored) else []


def until(what: Callable[[], Any], said: str) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, f"never came: {said}"
        time.sleep(0.01)


def states(web: Web) -> list[str]:
    return [each["state"] for each in web.got]


def test_an_alert_is_sent_when_it_fires_and_when_it_ends_and_once_each(web: Web) -> None:
    house = House(flow(stuck=AlertSpec(when="no progress for 1m", webhook=web.url)))
    house.looks()
    house.looks(30)
    assert house.dispatcher.standing("tweets")[0]["state"] == "pending"
    house.looks(40)
    until(lambda: web.got, "the firing one")
    for _ in range(5):
        house.looks()
    assert states(web) == ["firing"]
    assert web.got[0]["value"].startswith("no worker of main has reported for 1m")
    house.flows = {"tweets": flow(goal="stopped", stuck=AlertSpec(when="no progress for 1m", webhook=web.url))}
    house.looks()
    until(lambda: len(web.got) == 2, "the resolved one")
    assert states(web) == ["firing", "resolved"]


def test_the_next_master_knows_what_was_told_and_sends_nothing_twice(web: Web) -> None:
    house = House(flow(stuck=AlertSpec(when="no progress for 1m", webhook=web.url)))
    house.looks()
    house.looks(61)
    until(lambda: web.got, "the firing one")

    def is_written() -> bool:
        house.looks()
        return house.written() == ["stuck"]

    until(is_written, "the record")
    for _ in range(3):
        house.takes_over()
        house.looks()
        house.looks(120)
        assert house.dispatcher.standing("tweets")[0]["state"] == "firing"
    assert states(web) == ["firing"]


def test_a_master_that_ended_before_it_wrote_has_the_next_one_send_again_once(web: Web) -> None:
    house = House(flow(stuck=AlertSpec(when="no progress for 1m", webhook=web.url)))
    house.looks()
    house.looks(61)
    until(lambda: web.got, "the firing one")
    assert house.written() == []
    house.takes_over()
    house.looks()
    house.looks(61)
    until(lambda: len(web.got) == 2, "it once more")
    assert states(web) == ["firing", "firing"]


def test_a_target_that_hangs_holds_up_neither_the_master_nor_other_alerts(web: Web, tmp_path: Path) -> None:
    web.hangs = threading.Event()
    mark = tmp_path / "told"
    stuck = "no progress for 1m"
    house = House(
        flow(
            hook=AlertSpec(when=stuck, webhook=web.url),
            command=AlertSpec(when=stuck, command=("touch", str(mark))),
        )
    )
    house.looks()
    begun = time.monotonic()
    house.looks(61)
    assert time.monotonic() - begun < 60, "the target hangs for twice as long"
    until(mark.exists, "the command beside it")
    assert web.got == []


def test_an_alert_that_left_the_flow_file_fires_no_more(web: Web) -> None:
    house = House(flow(stuck=AlertSpec(when="no progress for 1m", webhook=web.url)))
    house.looks()
    house.looks(61)
    until(lambda: web.got, "the firing one")
    house.flows = {"tweets": flow()}
    house.looks()
    house.looks()
    assert house.dispatcher.standing("tweets") == []
    assert house.written() == []


def test_a_test_goes_through_each_target_and_says_which_failed(web: Web) -> None:
    web.answers = [404]
    house = House(
        flow(stuck=AlertSpec(when="no progress for 1m", webhook=web.url, command=("false",)), other=AlertSpec(when="no progress for 1m"))
    )
    house.looks()
    found = {(each["alert"], each["target"]): each["message"] for each in house.dispatcher.test("tweets")}
    assert found == {
        ("stuck", "log"): "",
        ("stuck", "webhook"): "it answered 404",
        ("stuck", "command"): "it ended with status 1",
        ("other", "log"): "",
    }
    assert states(web) == ["test"]
    assert [each["alert"] for each in house.dispatcher.test("tweets", "other")] == ["other"]
    with pytest.raises(Refused, match='no alert "stack"'):
        house.dispatcher.test("tweets", "stack")


def test_a_webhook_is_tried_again_where_it_may_help(web: Web) -> None:
    web.answers = [503, 429, 200]
    assert post(web.url, NOTICE, (0.0, 0.01, 0.01)) == ""
    assert len(web.got) == 3
    web.answers = [400, 200]
    assert post(web.url, NOTICE, (0.0, 0.01)) == "it answered 400"
    assert "Connect" in post("http://127.0.0.1:1/", NOTICE, (0.0,))


def test_a_command_has_the_facts_in_its_environment_and_no_secret_of_the_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_LOGIN", "user:secret")
    out = tmp_path / "env"
    assert execute(("sh", "-c", f"env > {out}"), NOTICE) == ""
    env = dict(line.split("=", 1) for line in out.read_text().splitlines() if "=" in line)
    assert (env["SCRIBENGIN_ALERT_NAME"], env["SCRIBENGIN_ALERT_STATE"]) == ("stuck", "firing")
    assert "secret" not in out.read_text()


def test_a_command_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "late"
    said = execute(("sh", "-c", f"(sleep 2; touch {mark}) & wait"), NOTICE, 0.3)
    assert "was killed" in said
    time.sleep(2.5)  # that nothing comes can only be waited for
    assert not mark.exists()
    assert "cannot be started" in execute(("no-such-program",), NOTICE)
