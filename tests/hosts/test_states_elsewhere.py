"""A flow's state that does not lie with the master: a node that has it is asked, or it is told which may have it."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest

from scribengin.api import planner
from scribengin.api.node_pages import NodePages
from scribengin.api.serving import Listen
from scribengin.api.state_queries import StateQuery
from scribengin.api.state_routing import HERE, StateLocation, locate_state
from scribengin.control import flow_requests
from scribengin.control.home import Home
from scribengin.core.errors import Refused, Unreachable
from scribengin.hosts.node import NodeHost
from scribengin.packages.make import make_package
from scribengin.packages.package import PackedFlow, build_package
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.memory import MemoryStore
from scribengin.registry.records import Host, Run, TierSpec
from scribengin.registry.tree import HOST, HOST_UP, RUN

if TYPE_CHECKING:
    from pathlib import Path

    from plane import Plane

pytestmark = pytest.mark.timeout(300)
FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {odd: {from: numbers, filter: FILTER}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""


def test_nodes_are_asked_those_of_the_workers_first_and_who_does_not_answer_is_named(tmp_path: Path) -> None:
    registry = MemoryStore().client()
    submission = flow_requests.Submission("tweets", "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(registry, submission, state=lambda _: str(tmp_path / "state"), by="me")
    asked = []

    def has(node: str, flow: str) -> bool:
        asked.append((node, flow))
        if node == "silent":
            raise Unreachable("it is away")
        return node == "there"

    assert locate_state(registry, "tweets", has) == HERE, "it never ran: it has none"
    assert asked == []
    for name in ("a", "silent", "there"):
        registry.commit(HOST(name).create(Host(host=name)))
    registry.commit(RUN("tweets", "main").create(Run(number=1, node="silent", asked_at=0.0, generation=1)))
    assert locate_state(registry, "tweets", has) == StateLocation(node="there")
    assert [node for node, _ in asked] == ["silent", "a", "there"]
    with pytest.raises(Refused, match=r"not on this host.*may be on silent \(it is away\)") as told:
        locate_state(registry, "tweets", lambda node, flow: has(node, flow) and node == "a")
    assert told.value.code == "state-elsewhere"
    asked.clear()
    with pytest.raises(Refused, match=r"may be on silent \(not asked.*there \(not asked"):
        locate_state(registry, "tweets", has, within_s=0)
    assert asked == []
    assert locate_state(registry, "tweets", lambda _node, _flow: False) == HERE, "all say that they have none: there is none yet"
    (tmp_path / "state/tweets").mkdir(parents=True)
    asked.clear()
    assert (locate_state(registry, "tweets", has), asked) == (HERE, []), "it lies here"


def test_a_node_looks_into_states_for_masters_and_for_nobody_else(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Spark: what there is to be found is that nothing was read yet."""
    entrance, folder = ConnectionSettings(plane.address, plane.login), plane.folder / "flow"
    folder.mkdir()
    home, state = Home(plane.folder / "a"), plane.folder / "states"

    def packed(filter_: str) -> str:
        (folder / "flow.yaml").write_text(FLOW.replace("FILTER", filter_))
        package = make_package(folder, {}).package
        home.packages.put([package.data], package.id)
        return package.id

    submission = flow_requests.Submission("numbers", packed("id % 2 = 1"), "flow.yaml", str(folder), {"main": TierSpec()})
    flow_requests.apply(plane.registry, submission, state=lambda _: str(state), by="me")

    def looking(verb: str, **arguments: object) -> StateQuery:
        return StateQuery(verb, "numbers", arguments, ("numbers",), state=str(state), revision=plane.registry.sync())

    with NodeHost(home, "a", entrance, listen=Listen()) as node:
        pages = NodePages(plane.registry, entrance.host_key)
        assert pages.has_state("a", "numbers") is False
        (state / "numbers").mkdir(parents=True)
        assert pages.has_state("a", "numbers") is True
        with pytest.raises(Refused, match='no flow "letters"'):
            pages.has_state("a", "letters")

        assert pages.ask("a", looking("offsets")) == []
        with pytest.raises(Refused) as told:
            pages.ask("a", looking("rewind", to_time=None, to_batch=1, query=None))
        assert told.value.code == "rewind-nothing", "its problems are the planner's"

        with pytest.raises(Refused, match='"unravel" is not known here') as told:
            pages.ask("a", looking("unravel"))
        assert (told.value.code, "update Scribengin on the node" in told.value.remedy) == ("node-old", True)

        with pytest.raises(Unreachable, match="rejects this master"):
            NodePages(plane.registry).ask("a", looking("offsets"))
        blind = httpx2.post(f"{node.url}/states", content=b"{}", trust_env=False)
        assert (blind.status_code, blind.json()["code"]) == (403, "role-lacking")
        key = entrance.host_key("a")
        assert key is not None
        headers = {"Authorization": f"Bearer {key.reveal()}"}
        for body, status, code in ((b"{", 422, "body"), (b'{"what": 1}', 422, "body"), (b" " * 300_000, 413, "body-large")):
            answer = httpx2.post(f"{node.url}/states", content=body, headers=headers, trust_env=False)
            assert (answer.status_code, answer.json()["code"]) == (status, code)

        # two questions at a time, whoever asks
        slow = build_package("numbers", "0", [PackedFlow("numbers", "flow.py")], [], {"flow.py": b"import time\ntime.sleep(8)\n"})
        home.packages.put([slow.data], slow.id)
        flow_requests.apply(plane.registry, replace(submission, package=slow.id, path="flow.py"), state=lambda _: str(state), by="me")
        monkeypatch.setattr(planner, "TURN_S", 0.1)
        asks = msgspec.json.encode(looking("graph"))
        with ThreadPoolExecutor(3) as threads:
            posted = threads.map(
                lambda _: httpx2.post(f"{node.url}/states", content=asks, headers=headers, trust_env=False, timeout=60), range(3)
            )
            assert sorted(answer.json()["code"] == "too-many" for answer in posted) == [False, False, True]


class Holds(BaseHTTPRequestHandler):
    """A node that answers when it may."""

    asked, may = threading.Semaphore(0), threading.Event()

    def do_POST(self) -> None:
        self.asked.release()
        self.may.wait(60)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"7")

    def log_message(self, *_: object) -> None:
        pass


def test_a_master_asks_nodes_for_two_questions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryStore().client()
    monkeypatch.setattr(planner, "TURN_S", 0.1)
    question = StateQuery("graph", "numbers", flows=("numbers",))
    with ThreadingHTTPServer(("127.0.0.1", 0), Holds) as server, ThreadPoolExecutor(2) as threads:
        threading.Thread(target=server.serve_forever).start()
        try:
            up = HOST_UP.kind(host=socket.gethostname(), http=f"http://127.0.0.1:{server.server_port}")
            registry.commit(HOST_UP("a").create(up, ephemeral=True))
            pages = NodePages(registry)
            asks = [threads.submit(pages.ask, "a", question) for _ in range(2)]
            assert all(Holds.asked.acquire(timeout=60) for _ in asks)
            with pytest.raises(Refused) as told:
                pages.ask("a", question)
            assert told.value.code == "too-many"
            Holds.may.set()
            assert [each.result() for each in asks] == [7, 7]
            assert pages.ask("a", question) == 7
        finally:
            Holds.may.set()
            server.shutdown()
