"""Several masters, one of which falls silent, is behind, or ends in the middle."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from fastapi import FastAPI

from scribengin.api.idempotency import MOST, Once, StoredAnswer, WriteClaim
from scribengin.api.serving import Listen, open_listener
from scribengin.control import flow_requests
from scribengin.core.errors import Refused, Unreachable
from scribengin.registry.records import Host, TierSpec
from scribengin.registry.tree import HOST, HOST_UP

if TYPE_CHECKING:
    import httpx2
    from conftest import Bench, Served


def submitted(bench: Bench) -> None:
    """A flow that somebody has submitted before."""
    submission = flow_requests.Submission("numbers", "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(bench.person, submission, state=lambda _: "/state", by="bob")


def test_a_write_through_one_master_is_seen_through_any_other(bench: Bench) -> None:
    first, second = bench.master(), bench.master()
    submitted(bench)
    one, other = bench.client(first), bench.client(second)
    assert other.flow("numbers").wanted.state == "running"
    second.registry.lag()
    one.want("numbers", "paused")
    assert other.flow("numbers").wanted.state == "paused"


def test_a_client_asks_the_next_master_where_one_is_silent(bench: Bench) -> None:
    first, second = bench.master(), bench.master()
    submitted(bench)
    client = bench.client(first, second)
    first.registry.cut()
    client.want("numbers", "paused")
    assert client.masters[0] == second.url, "the one that answered is asked first from now on"
    second.registry.cut()
    with pytest.raises(Unreachable, match=r"no master answers .*in memory|no master answers"):
        client.flows()


def test_a_master_without_its_registry_is_not_ready_and_lives(bench: Bench) -> None:
    master = bench.master()
    assert master.ask("GET", "/readyz").json()["state"] == "ok"
    master.registry.cut()
    told = master.ask("GET", "/readyz")
    assert (told.status_code, told.json()["code"], told.headers["Retry-After"]) == (503, "unreachable", "1")
    assert master.ask("GET", "/livez").status_code == 200


def test_a_write_that_its_master_did_not_end_is_done_by_the_next_after_a_while(bench: Bench) -> None:
    master = bench.master()
    submitted(bench)
    now = [1_000.0]
    once = Once(master.registry, lambda: now[0])
    once.begin("ann", "k", "asked")
    with pytest.raises(Refused) as told:
        once.begin("ann", "k", "asked")
    assert told.value.code == "key-busy"
    now[0] += 3600
    assert not hasattr(once.begin("ann", "k", "asked"), "status"), "a claim, not an answer"


def test_a_write_whose_answer_is_too_large_to_be_kept_is_not_done_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = bench.master(), bench.master()
    submitted(bench)

    def pause(master: Served) -> httpx2.Response:
        return master.ask("PUT", "/v1/flows/numbers/wanted", json={"state": "paused"}, headers={"Idempotency-Key": "k"})

    monkeypatch.setattr("scribengin.api.idempotency.LONGEST_BYTES", 1)
    assert pause(first).status_code == 200
    bench.client(second).want("numbers", "running")
    again = pause(second)
    assert (again.status_code, again.json()["code"], again.headers.get("Idempotency-Replayed")) == (422, "answer-large", "true")
    assert "was executed before" in again.json()["detail"]
    assert bench.client(second).flow("numbers").wanted.state == "running"


def test_a_refusal_that_is_too_large_to_be_kept_is_checked_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.api.idempotency.LONGEST_BYTES", 1)
    once = Once(bench.master().registry)
    claim = once.begin("ann", "k", "asked")
    assert isinstance(claim, WriteClaim)
    claim.settle(StoredAnswer(422, b"{}"))
    assert isinstance(once.begin("ann", "k", "asked"), WriteClaim)


def test_no_more_than_a_thousand_are_kept(bench: Bench) -> None:
    master = bench.master()
    now = [1_000.0]
    once = Once(master.registry, lambda: now[0])
    for number in range(MOST + 100):
        now[0] += 1
        once.begin("ann", f"k{number}", "asked")
    once.prune()
    assert len(bench.person.children("requests")) == MOST
    now[0] += 86_402
    once.prune()
    assert bench.person.children("requests") == ()


def test_a_write_whose_master_was_cut_off_in_the_middle_is_done_once_by_the_next(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.api.plane.ABANDONED_S", 1.0)
    first, second = bench.master(), bench.master()
    submitted(bench)
    client = bench.client(first, second)
    before = bench.store.nodes["flows/numbers/desired"].version
    first.registry.mute()  # its note that the write is under way takes effect, and it does not learn of it
    client.want("numbers", "paused")
    assert bench.store.nodes["flows/numbers/desired"].version == before + 1
    assert client.flow("numbers").wanted.state == "paused"
    assert client.masters[0] == second.url


def test_a_node_that_answers_with_something_else_is_shown_as_one_that_is_silent(bench: Bench) -> None:
    master = bench.master()
    with open_listener(Listen()) as listener, listener.serve(FastAPI()):
        bench.person.commit(HOST("a").create(Host(host="h")))
        up = HOST_UP.kind(host=socket.gethostname(), http=listener.url)
        bench.person.commit(HOST_UP("a").create(up, ephemeral=True))
        view = master.ask("GET", "/v1/nodes/a").json()
    assert (view["node"]["node"], view["now"]) == ("a", None)
    assert view["silent"]
