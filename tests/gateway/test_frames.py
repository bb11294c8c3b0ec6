"""Frames of agents: what is stored, and every answer that an agent gets."""

from __future__ import annotations

import http.client
import threading
from typing import TYPE_CHECKING

import pytest

from scribengin.gateway import server as gateway_server
from scribengin.gateway.directory import AgentTokens
from scribengin.wire.frames import encode_frame, find_frames
from tests.gateway.gateways import LANE, DirectoryInMemory, StoreInMemory, frame, gateway, lane_of
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.gateways import RunningGateway


@pytest.fixture
def store() -> StoreInMemory:
    return StoreInMemory()


@pytest.fixture
def directory() -> DirectoryInMemory:
    return DirectoryInMemory()


@pytest.fixture
def one(store: StoreInMemory, directory: DirectoryInMemory) -> Iterator[RunningGateway]:
    with gateway(store, directory) as running:
        yield running


def test_frames_are_stored_before_they_are_answered(one: RunningGateway, store: StoreInMemory) -> None:
    answer = one.frames(frame(0, "a", "b") + frame(2, "c"))
    assert (answer.status_code, answer.json()) == (200, {"stored": 3})
    assert store.records() == [b"a", b"b", b"c"]
    (arrival,) = store.arrivals
    assert (arrival.agent, arrival.incarnation, arrival.sequence, arrival.next, arrival.committed) == ("web1", "i1", 0, 3, 0)


def test_the_bytes_of_frames_are_stored_as_they_came(one: RunningGateway, store: StoreInMemory) -> None:
    body = frame(0, "a") + frame(1, "b")
    one.frames(body, Scribengin_Committed="7")
    assert (store.arrivals[0].frames, store.arrivals[0].committed) == (body, 7)


def test_frames_that_are_stored_are_not_stored_again(one: RunningGateway, store: StoreInMemory) -> None:
    one.frames(frame(0, "a", "b"))
    again = one.frames(frame(0, "a", "b"))
    assert (again.status_code, again.json()) == (200, {"stored": 2})
    assert store.records() == [b"a", b"b"]


def test_of_frames_that_are_stored_in_part_the_rest_is_stored(one: RunningGateway, store: StoreInMemory) -> None:
    one.frames(frame(0, "a", "b"))
    answer = one.frames(frame(0, "a", "b") + frame(2, "c"))
    assert (answer.status_code, answer.json()) == (200, {"stored": 3})
    assert store.records() == [b"a", b"b", b"c"]


def test_frames_behind_a_gap_are_refused_with_what_is_stored(one: RunningGateway, store: StoreInMemory) -> None:
    one.frames(frame(0, "a", "b"))
    answer = one.frames(frame(5, "f"))
    assert answer.status_code == 409
    assert answer.json()["stored"] == 2
    assert store.records() == [b"a", b"b"]


def test_an_agent_that_nothing_is_known_of_may_begin_at_any_number(one: RunningGateway, store: StoreInMemory) -> None:
    answer = one.frames(frame(70, "x"), Scribengin_Committed="70")
    assert (answer.status_code, answer.json()) == (200, {"stored": 71})
    assert (store.arrivals[0].sequence, store.arrivals[0].committed) == (70, 70)


def test_a_new_incarnation_begins_at_its_own_number(one: RunningGateway) -> None:
    one.frames(frame(0, "a", "b"))
    assert one.frames(frame(0, "x"), incarnation="i2").json() == {"stored": 1}


def test_a_request_without_frames_asks_for_the_position(one: RunningGateway, store: StoreInMemory) -> None:
    one.frames(frame(0, "a", "b"))
    assert one.frames(b"").json() == {"stored": 2}
    assert len(store.arrivals) == 1


def test_what_is_committed_comes_with_the_answer(one: RunningGateway, store: StoreInMemory) -> None:
    one.frames(frame(0, "a", "b"))
    store.committed["web1", "i1"] = 2
    look_until(lambda: one.frames(b"").json() == {"stored": 2, "committed": 2}, "the commit is known", 60)


def test_what_waits_is_stored_in_one_append(one: RunningGateway, store: StoreInMemory) -> None:
    store.gate.clear()
    answers: list[int] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(one.frames(frame(0, "x"), agent=f"a{n}").status_code)) for n in range(20)]
    for thread in threads:
        thread.start()
    writer = look_until(lambda: one.app._writers.get(LANE), "the lane has a writer", 60)
    look_until(lambda: one.app.counters.frames == 20 and writer.queued_bytes > 0, "all wait", 60)
    store.gate.set()
    for thread in threads:
        thread.join()
    assert answers == [200] * 20
    assert len(store.arrivals) == 20
    assert store.appends < 20


DAMAGED = {
    "no frame": (lambda body: b"hello" + body, "no frame begins here"),
    "a bit": (lambda body: body[:-1] + bytes([body[-1] ^ 1]), "the checksum of a frame differs"),
    "torn": (lambda body: body[:-3], "bytes, of which"),
    "a head": (lambda body: body[:20], "the bytes end in the head of a frame"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_frames_are_refused_with_the_reason(one: RunningGateway, store: StoreInMemory, kind: str) -> None:
    damage, why = DAMAGED[kind]
    answer = one.frames(damage(frame(0, "a")))
    assert answer.status_code == 400
    assert why in answer.json()["message"]
    second = one.frames(frame(0, "a") + damage(frame(1, "b")))
    assert second.status_code == 400
    assert second.json()["message"].startswith("frame 2, at byte ")
    assert not store.arrivals


def test_numbers_with_a_gap_inside_a_request_are_refused(one: RunningGateway, store: StoreInMemory) -> None:
    answer = one.frames(frame(0, "a") + frame(2, "c"))
    assert answer.status_code == 400
    assert "begins at record 2; expected 1" in answer.json()["message"]
    assert not store.arrivals


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"agent": ""}, "Scribengin-Agent is missing"),
        ({"agent": "gateway/x"}, "not a valid name"),
        ({"incarnation": ""}, "Scribengin-Incarnation is missing"),
        ({"Scribengin_Committed": "-4"}, "not a valid number"),
        ({"query": "?wait=ever"}, "expected stored or committed"),
        ({"query": "?deadline=5"}, "deadline=5 is not valid"),
        ({"query": "?deadline=2d"}, "at most 1h"),
    ],
)
def test_a_request_that_is_not_valid_is_refused_with_the_reason(one: RunningGateway, headers: dict[str, str], why: str) -> None:
    answer = one.frames(frame(0, "a"), **headers)
    assert answer.status_code == 400
    assert why in answer.json()["message"]


def test_an_unknown_lane_is_not_found(one: RunningGateway) -> None:
    answer = one.http.post(
        "/edge/v1/lanes/web.none/frames", content=frame(0, "a"), headers={"Scribengin-Agent": "a", "Scribengin-Incarnation": "i"}
    )
    assert (answer.status_code, answer.json()["message"]) == (404, 'no flow here has the lane "web.none"')


def test_an_unknown_address_and_another_method_are_refused(one: RunningGateway) -> None:
    assert one.http.get("/nothing").status_code == 404
    assert one.http.get(f"/edge/v1/lanes/{LANE}/frames").status_code == 405
    assert one.http.post("/edge/v1/config").status_code == 405


def test_a_body_that_is_too_large_is_refused(one: RunningGateway, store: StoreInMemory) -> None:
    answer = one.frames(bytes(gateway_server.MOST_BODY + 1))
    assert answer.status_code == 413
    assert "accepted are up to 16,777,216" in answer.json()["message"]

    def parts() -> Iterator[bytes]:
        for _ in range(20):
            yield bytes(2**20)

    headers = {"Scribengin-Agent": "web1", "Scribengin-Incarnation": "i1"}
    unannounced = one.http.post(f"/edge/v1/lanes/{LANE}/frames", content=parts(), headers=headers)
    assert unannounced.status_code == 413
    assert not store.arrivals
    assert one.app._held == 0


def test_bodies_that_would_fill_the_memory_are_refused(one: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_server, "MOST_HELD", 100)
    answer = one.frames(frame(0, "x" * 200))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_client_that_leaves_within_its_body_leaves_nothing(one: RunningGateway, store: StoreInMemory) -> None:
    made = http.client.HTTPConnection("127.0.0.1", one.server.port)
    made.putrequest("POST", f"/edge/v1/lanes/{LANE}/frames")
    for name, value in {"Scribengin-Agent": "a", "Scribengin-Incarnation": "i", "Content-Length": "1000"}.items():
        made.putheader(name, value)
    made.endheaders(b"SGF1")
    look_until(lambda: one.app._held == 1000, "the body is under way", 60)
    made.close()
    look_until(lambda: one.app._held == 0, "the body is dropped", 60)
    assert not store.arrivals


def test_a_full_channel_answers_429_until_records_are_committed(store: StoreInMemory, directory: DirectoryInMemory) -> None:
    directory.known[LANE] = lane_of(capacity_bytes=10)
    with gateway(store, directory) as one:
        assert one.frames(frame(0, "a")).status_code == 200
        answer = one.frames(frame(1, "b"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
        assert answer.json()["stored"] == 1
        assert "accepted are up to 10" in answer.json()["message"]
        store.committed["web1", "i1"] = 1
        look_until(lambda: one.frames(frame(1, "b")).status_code == 200, "there is room", 60)
    assert store.records() == [b"a", b"b"]


def test_a_channel_that_cannot_be_written_answers_503_and_then_stores(one: RunningGateway, store: StoreInMemory) -> None:
    store.fault = "the disk is full"
    answer = one.frames(frame(0, "a"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["message"] == "the disk is full"
    assert one.http.get("/health").json()["faults"] == {LANE: "the disk is full"}
    store.fault = ""
    assert one.frames(frame(0, "a")).json() == {"stored": 1}
    assert one.http.get("/health").json()["faults"] == {}


def test_an_append_that_failed_after_it_stored_is_found_stored(one: RunningGateway, store: StoreInMemory) -> None:
    store.after_append = "the answer was lost"
    assert one.frames(frame(0, "a")).status_code == 503
    store.after_append = ""
    assert one.frames(frame(0, "a")).json() == {"stored": 1}
    assert store.records(once=True) == [b"a"]


def test_a_channel_that_cannot_be_opened_answers_503_and_is_opened_later(store: StoreInMemory) -> None:
    from scribengin.core.errors import Unreachable
    from scribengin.gateway.server import GatewayApp
    from scribengin.gateway.serving import GatewayListen, GatewayServer
    from tests.gateway.gateways import MemoryChannel, RunningGateway

    store.fault = "no broker answers"

    def opened(_name: str, _lane: object) -> MemoryChannel:
        if store.fault:
            raise Unreachable(store.fault)
        return MemoryChannel(store)

    import httpx2

    app = GatewayApp(DirectoryInMemory(), opened)
    with GatewayServer(app, GatewayListen()) as server, httpx2.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        one = RunningGateway(server, client, app)
        answer = one.frames(frame(0, "a"))
        assert (answer.status_code, answer.json()["message"]) == (503, "no broker answers")
        store.fault = ""
        look_until(lambda: one.frames(frame(0, "a")).status_code == 200, "the channel is open", 60)
    assert store.records() == [b"a"]
    assert store.closed == 1


def test_an_error_of_the_gateway_shows_no_traceback(
    one: RunningGateway, store: StoreInMemory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: bytes) -> None:
        raise RuntimeError("inner")

    monkeypatch.setattr(gateway_server, "_spans", broken)
    answer = one.frames(frame(0, "a"))
    assert (answer.status_code, answer.json()) == (500, {"message": "the gateway failed; its log says why"})
    assert "RuntimeError: inner" in capsys.readouterr().out
    assert one.app._held == 0


def test_a_paused_lane_answers_503(store: StoreInMemory, directory: DirectoryInMemory) -> None:
    directory.known[LANE] = lane_of(paused=True)
    with gateway(store, directory) as one:
        answer = one.frames(frame(0, "a"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        directory.known[LANE] = lane_of()
        assert one.frames(frame(0, "a")).status_code == 200


def test_a_lane_with_another_channel_is_opened_again(one: RunningGateway, store: StoreInMemory, directory: DirectoryInMemory) -> None:
    one.frames(frame(0, "a"))
    directory.known[LANE] = lane_of(channel={"kind": "memory", "path": "elsewhere"})
    assert one.frames(frame(1, "b")).status_code == 200
    look_until(lambda: store.closed == 1, "the first channel is closed", 60)


# Tokens.


def test_without_a_valid_token_nothing_is_stored(store: StoreInMemory, directory: DirectoryInMemory) -> None:
    directory.tokens = AgentTokens.of_text("web1: one\nweb2: two\nedge-*: many", "tokens")
    with gateway(store, directory) as one:
        missing = one.frames(frame(0, "a"))
        assert (missing.status_code, missing.headers["www-authenticate"]) == (401, 'Bearer realm="scribengin"')
        assert one.frames(frame(0, "a"), Authorization="Bearer wrong").status_code == 401
        other = one.frames(frame(0, "a"), Authorization="Bearer two")
        assert (other.status_code, other.json()["message"]) == (403, 'the token of "web2" is not valid for the agent "web1"')
        assert not store.arrivals
        assert one.frames(frame(0, "a"), Authorization="Bearer one").status_code == 200
        assert one.frames(frame(0, "a"), agent="edge-7", Authorization="Bearer many").status_code == 200
        directory.tokens = AgentTokens.of_text("web2: two", "tokens")
        assert one.frames(frame(1, "b"), Authorization="Bearer one").status_code == 401


# Waiting for the commit.


def test_a_sender_may_wait_for_the_commit(one: RunningGateway, store: StoreInMemory) -> None:
    answers = []
    thread = threading.Thread(target=lambda: answers.append(one.frames(frame(0, "a"), query="?wait=committed&deadline=60s")))
    thread.start()
    look_until(lambda: store.arrivals, "it is stored", 60)
    store.committed["web1", "i1"] = 1
    thread.join()
    assert (answers[0].status_code, answers[0].json()) == (200, {"stored": 1, "committed": 1})


def test_a_deadline_without_a_commit_is_answered_with_504(one: RunningGateway, store: StoreInMemory) -> None:
    answer = one.frames(frame(0, "a"), query="?wait=committed&deadline=100ms")
    assert answer.status_code == 504
    assert answer.json() == {"stored": 1, "message": "the records were not committed within 0.1 s"}
    assert store.records() == [b"a"]


def test_a_deadline_without_an_append_is_answered_with_504(one: RunningGateway, store: StoreInMemory) -> None:
    store.gate.clear()
    try:
        answer = one.frames(frame(0, "a"), query="?deadline=100ms")
        assert (answer.status_code, answer.json()["message"]) == (504, "the records were not stored within 0.1 s")
    finally:
        store.gate.set()


# Two gateways over one channel.


def test_frames_that_another_gateway_stored_are_stored_once(store: StoreInMemory) -> None:
    with gateway(store, name="g1") as first, gateway(store, name="g2") as second:
        body = frame(0, "a", "b")
        assert second.frames(frame(0, "x"), agent="other").status_code == 200
        assert first.frames(body).json() == {"stored": 2}
        assert second.frames(body + frame(2, "c")).json() == {"stored": 3}
        assert first.frames(frame(3, "d")).json() == {"stored": 4}
        assert second.frames(body).json() == {"stored": 3}
    assert [each for each in store.records() if each != b"x"] == [b"a", b"b", b"c", b"d"]


def test_frames_behind_a_gap_of_both_gateways_are_refused(store: StoreInMemory) -> None:
    with gateway(store, name="g1") as first, gateway(store, name="g2") as second:
        first.frames(frame(0, "a"))
        answer = second.frames(frame(4, "e"))
        assert (answer.status_code, answer.json()["stored"]) == (409, 1)


def test_frames_of_which_the_other_gateway_stored_more_meanwhile_are_read_once(store: StoreInMemory) -> None:
    """Neither gateway knows what the other one stored a moment ago: both store, and the numbers tell the reader."""
    with gateway(store, name="g1") as first, gateway(store, name="g2") as second:
        second.frames(frame(0, "a"))
        first.frames(frame(1, "b"))
        second.frames(frame(1, "b"))
    assert store.records(once=True) == [b"a", b"b"]


# The end.


def test_what_is_under_way_is_answered_at_the_end(store: StoreInMemory) -> None:
    store.gate.clear()
    answers = []
    with gateway(store) as one:
        thread = threading.Thread(target=lambda: answers.append(one.frames(frame(0, "a")).status_code))
        thread.start()
        look_until(lambda: one.app.counters.frames == 1, "it is under way", 60)
        stopping = threading.Thread(target=one.server.stop)
        stopping.start()
        look_until(one.app._stopping.is_set, "it stops", 60)
        store.gate.set()
        thread.join()
        stopping.join()
    assert answers == [200]
    assert store.records() == [b"a"]


def test_who_waits_for_a_commit_at_the_end_is_answered(store: StoreInMemory) -> None:
    answers = []
    with gateway(store) as one:
        thread = threading.Thread(target=lambda: answers.append(one.frames(frame(0, "a"), query="?wait=committed&deadline=10m")))
        thread.start()
        look_until(lambda: store.arrivals, "it is stored", 60)
        one.server.stop()
        thread.join()
    assert (answers[0].status_code, answers[0].json()) == (504, {"stored": 1, "message": "the gateway stops"})


def test_a_compressed_frame_is_stored_as_it_came(one: RunningGateway, store: StoreInMemory) -> None:
    (found,) = find_frames(frame(0, "a"))
    assert found.head is not None
    for codec in ("gzip", "zstd", "lz4"):
        from dataclasses import replace

        body = encode_frame(replace(found.head, codec=codec), b"a\n")
        assert one.frames(body, agent=codec).status_code == 200
    assert store.records() == [b"a"] * 3
