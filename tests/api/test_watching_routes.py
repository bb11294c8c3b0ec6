"""The routes of progress, metrics, intake and alerts, asked without a network."""

import asyncio
import logging
from typing import Any

import httpx2
import structlog
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse

from harness.manual_clock import ManualClock
from scribengin.api.progress import router
from scribengin.api.serving import Listen, open_listener
from scribengin.client.client import Client
from scribengin.control.alerting import AlertDispatcher
from scribengin.control.worker_reports import WorkerWatch
from scribengin.control.world import FlowSeen, ObservedTier, Wish, World
from scribengin.core.errors import ScribenginError
from scribengin.core.secret import Secret
from scribengin.local.contract import EndView, QueryView, RunView
from scribengin.registry.lease import Election, RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.records import AlertSettings, AlertSpec, Run, StatusRecord
from scribengin.registry.tree import LEASE
from scribengin.watching.progress import MOST_BYTES, ProgressBuilder, encode
from scribengin.watching.telemetry import Board

LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


class Asked:
    """A master that leads, with one flow, whose worker tells of itself over the routes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.registry = MemoryStore().client()
        self.election = Election(self.registry, {"id": "m", "http": "http://leader:1"})
        assert self.election.acquire()
        self.lease = RegistryLease(self.registry, LEASE("tweets", "main").path, {"run": 1})
        assert self.lease.acquire()
        board = Board(self.clock)
        self.leads = True
        self.watch = WorkerWatch(self.registry, board, AlertDispatcher(self.registry, board, LOG), lambda: self.leads)
        watched = AlertSettings(max_delay_s=300.0, alerts={"stuck": AlertSpec(when="no progress for 5m")})
        flow = FlowSeen("tweets", Wish(1, "running", 1), {"main": ObservedTier("main")}, StatusRecord(state="running"), watched=watched)
        self.watch.seen(World(self.clock(), {"tweets": flow}), self.election.term)
        app = FastAPI()
        app.include_router(router(self.watch))

        async def told(_request: Any, error: Any) -> JSONResponse:
            return JSONResponse({"code": error.code}, status_code=409)

        app.add_exception_handler(ScribenginError, told)
        self.transport = httpx2.ASGITransport(app=app)

    def __call__(self, method: str, path: str, **more: Any) -> httpx2.Response:
        async def ask() -> httpx2.Response:
            async with httpx2.AsyncClient(transport=self.transport, base_url="http://m") as client:
                return await client.request(method, path, **more)

        return asyncio.run(ask())

    def tells(self, query: QueryView, claim: str | None = None) -> httpx2.Response:
        builder, view = ProgressBuilder("tweets", "main", 1, 1), RunView("tweets", "running", 5.0, (query,))
        builder.note(view, self.clock())
        told = builder.build(view, self.clock())
        headers = {"Authorization": f"Claim {self.lease.claim if claim is None else claim}"}
        return self("POST", "/v1/flows/tweets/tiers/main/progress", content=encode(told), headers=headers)


def test_what_a_worker_tells_is_in_metrics_intake_and_the_scrape() -> None:
    asked = Asked()
    ends = {"sources": {"a": EndView(10, 3.0, 7)}, "sinks": {"kept": EndView(9, 2.5)}}
    assert asked.tells(QueryView("kept", "running", rows_in=10, lag_rows=7, lag_s=400.0, catch_up_s=90.0, **ends)).status_code == 204
    asked.clock.advance(seconds=2)
    found = asked("GET", "/v1/flows/tweets/metrics").json()
    assert (found["state"], found["now"]["rows_in_per_s"], found["now"]["lag_rows"]) == ("running", 3.0, 7)
    assert [sample["lag_rows"] for sample in found["series"]["main"]] == [7.0]
    answer = asked("GET", "/v1/flows/tweets/intake")
    assert (answer.json()["intake"], answer.json()["delay_s"], answer.headers["retry-after"]) == ("refusing", 402.0, "60")
    scrape = asked("GET", "/metrics").text
    assert "scribengin_master_leads 1.0" in scrape
    assert 'scribengin_flow_intake{flow="tweets",intake="refusing"} 1.0' in scrape
    assert 'scribengin_flow_delay_seconds{flow="tweets"} 402.0' in scrape
    assert 'scribengin_source_lag_rows{flow="tweets",query="kept",source="a",tier="main"} 7.0' in scrape
    (row,) = asked("GET", "/v1/metrics").json()
    assert (row["flow"], row["now"]["delay_s"]) == ("tweets", 402.0)
    assert asked.watch.delays()["tweets"].seconds == 402.0


def test_the_trend_of_a_backlog_goes_back_to_before_anyone_looked() -> None:
    asked = Asked()
    for lag in (5, 9, 9, 3):
        asked.tells(QueryView("kept", "running", lag_rows=lag, sources={"a": EndView(10, 3.0, lag)}))
        asked.clock.advance(seconds=20)
    found = asked("GET", "/v1/metrics/trends").json()
    assert (found["step_s"], len(found["flows"]["tweets"])) == (10, 60)
    assert found["flows"]["tweets"][-9:] == [5.0, None, 9.0, None, 9.0, None, 3.0, None, None]
    assert not any(found["flows"]["tweets"][:-9])


def test_attempts_say_what_failed_and_why_they_ended() -> None:
    asked = Asked()
    asked.tells(QueryView("kept", "recovering", restarts=1, batches=4, message="steps.py:12: KeyError: 'id'"))
    asked.clock.advance(seconds=5)
    run = Run(number=1, node="a", asked_at=0.0, generation=1, ended_at=asked.clock(), cause="its process ended with status 1")
    flow = FlowSeen("tweets", Wish(1, "running", 1), {"main": ObservedTier("main", run=run)})
    asked.watch.seen(World(asked.clock(), {"tweets": flow}), asked.election.term)
    (attempt,) = asked("GET", "/v1/flows/tweets/attempts").json()
    assert (attempt["tier"], attempt["worker"], attempt["batches"], attempt["restarts"]) == ("main", "tweets.main-1", 4, 1)
    assert attempt["cause"] == "its process ended with status 1"
    assert [failure["cause"] for failure in attempt["failures"]] == ["steps.py:12: KeyError: 'id'"]


def test_a_tier_that_was_taken_out_of_a_flow_is_not_missed() -> None:
    asked = Asked()
    asked.tells(QueryView("kept", "running", lag_rows=7))
    asked.clock.advance(seconds=600)
    ended = Run(number=1, node="a", asked_at=0.0, generation=1, ended_at=asked.clock())
    for wanted, silent in ((frozenset({"main"}), ["main"]), (frozenset({"other"}), None)):
        flow = FlowSeen("tweets", Wish(2, "running", 2), {"main": ObservedTier("main", run=ended)}, wanted_tiers=wanted)
        asked.watch.seen(World(asked.clock(), {"tweets": flow}), asked.election.term)
        now = asked("GET", "/v1/flows/tweets/metrics").json()["now"]
        assert (None if now is None else now["silent"]) == silent


def test_alerts_are_shown_and_tested() -> None:
    asked = Asked()
    (alert,) = asked("GET", "/v1/flows/tweets/alerts").json()
    assert (alert["alert"], alert["targets"], alert["when"]) == ("stuck", ["log"], "no progress for 5m")
    assert asked("POST", "/v1/flows/tweets/alerts/test?alert=stuck").json()[0]["ok"] is True
    assert asked("POST", "/v1/flows/tweets/alerts/test?alert=stick").json()["code"] == "alert-unknown"


def test_a_standby_says_where_the_leader_is_and_counts_for_nothing_in_a_scrape() -> None:
    asked = Asked()
    asked.tells(QueryView("kept", "running"))
    asked.leads = False
    answer = asked("GET", "/v1/flows/tweets/metrics?step=10")
    assert (answer.status_code, answer.headers["location"]) == (307, "http://leader:1/v1/flows/tweets/metrics?step=10")
    assert asked.tells(QueryView("kept", "running")).status_code == 307
    assert "scribengin_flow" not in asked("GET", "/metrics").text
    asked.election.close()
    assert asked("GET", "/v1/metrics").json()["code"] == "leader-missing"


def test_a_master_that_leads_again_knows_nothing_of_what_it_was_told_before() -> None:
    asked = Asked()
    asked.tells(QueryView("kept", "running", lag_s=9.0))
    flows = {"tweets": asked.watch._flow("tweets")}
    asked.watch.seen(World(asked.clock(), flows), asked.election.term)
    assert asked("GET", "/v1/flows/tweets/metrics").json()["now"]["delay_s"] == 9.0
    asked.election.release()
    asked.clock.advance(seconds=600)
    assert asked.election.acquire()
    asked.watch.seen(World(asked.clock(), flows), asked.election.term)
    assert asked("GET", "/v1/flows/tweets/metrics").json()["now"] is None
    assert [alert["state"] for alert in asked("GET", "/v1/flows/tweets/alerts").json()] == ["quiet"]


def test_nonsense_is_refused_and_never_a_mistake_of_ours() -> None:
    asked = Asked()
    asked.tells(QueryView("kept", "running"))
    for since in ("nan", "inf", "-inf", "1e308", "-5", "99999999999"):
        for step in ("0", "-1", "99999999999999999999"):
            assert asked("GET", f"/v1/flows/tweets/metrics?since={since}&step={step}").status_code in (200, 422)
    assert asked("GET", "/v1/flows/tweats/metrics").json()["code"] == "flow-unknown"
    assert asked.tells(QueryView("kept", "running"), claim="wrong").json()["code"] == "claim-wrong"
    headers = {"Authorization": f"Claim {asked.lease.claim}"}
    for flow, body, code in (
        ("tweets", b"{", "bad-progress"),
        ("tweets", b"x" * (MOST_BYTES + 1), "body-large"),
        ("twe%2Fets", b"{}", None),
        ("T", b"{}", "claim-wrong"),
    ):
        answer = asked("POST", f"/v1/flows/{flow}/tiers/main/progress", content=body, headers=headers)
        assert answer.status_code in (404, 409)
        assert code is None or answer.json()["code"] == code


def test_the_client_asks_the_leader_that_a_standby_names_with_its_own_token() -> None:
    tokens = []
    leader, standby = FastAPI(), FastAPI()

    @leader.get("/v1/metrics")
    def overview(request: Request) -> JSONResponse:
        tokens.append(request.headers["authorization"])
        return JSONResponse([{"flow": "tweets"}])

    with open_listener(Listen()) as first, open_listener(Listen()) as second:

        @standby.get("/v1/metrics")
        def moved() -> RedirectResponse:
            return RedirectResponse(f"{first.url}/v1/metrics", status_code=307)

        with first.serve(leader), second.serve(standby), Client([second.url], token=Secret("t0ken", "test")) as client:
            assert client.overview() == [{"flow": "tweets"}]
    assert tokens == ["Bearer t0ken"]


def test_a_worker_that_is_killed_while_it_reports_is_no_error() -> None:
    asked, answers = Asked(), []
    pieces = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    path = "/v1/flows/tweets/tiers/main/progress"
    headers = [(b"authorization", f"Claim {asked.lease.claim}".encode())]
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    scope |= {"query_string": b"", "root_path": "", "scheme": "http", "server": ("m", 80), "client": ("w", 1)}

    async def receive() -> dict[str, Any]:
        return pieces.pop(0)

    async def send(message: Any) -> None:
        answers.append(message)

    asyncio.run(asked.transport.app(scope, receive, send))  # without the change it raises, and the server prints that
    assert answers[0]["status"] == 204
    assert asked("GET", "/v1/metrics").json()[0]["now"] is None, "nothing of it is taken"
