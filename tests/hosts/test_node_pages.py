"""What a node serves, and masters pass on: its page, the logs of its workers, their own pages; to whom, and what where it is away."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

import httpx2
import pytest
from plane import until
from starlette.requests import Request

from scribengin.api.node_pages import NodePages
from scribengin.api.serving import Listen
from scribengin.api.token_file import TokenFile
from scribengin.api.tokens import Tokens
from scribengin.control.home import Home
from scribengin.core.errors import Refused, Unreachable
from scribengin.core.secret import Secret
from scribengin.hosts.node import NodeHost, reached_at, worker_order
from scribengin.hosts.node_door import NodeGate, check_door
from scribengin.hosts.up import House
from scribengin.registry.access import DigestLogin, RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.records import WorkerOrder
from scribengin.registry.tree import HOST_HTTP, HOST_JSON, HOST_UP

if TYPE_CHECKING:
    from pathlib import Path

    from plane import Plane

pytestmark = pytest.mark.timeout(300)


def address_of(plane: Plane, node: str) -> str:
    there = plane.registry.read(HOST_UP(node).path)
    assert isinstance(there, RegistryEntry)
    return str(there.value["http"])


def gets(url: str, token: str = "", **headers: str) -> httpx2.Response:
    shown = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
    return httpx2.get(url, headers=shown, trust_env=False, timeout=60)


@pytest.mark.long
def test_a_node_shows_itself_its_workers_and_their_logs_and_masters_pass_it_on(plane: Plane) -> None:
    plane.master("m1")
    plane.node("a", cores=4)
    plane.apply("tweets", edge=())
    plane.comes_to("tweets", "running")
    http = address_of(plane, "a")
    assert [plane.registry.read(spot("a").path).value["url"] for spot in (HOST_HTTP, HOST_JSON)] == [http, f"{http}/json"]

    said = gets(f"{http}/json").json()
    assert (said["node"], said["lease"]["held"], said["master"]["id"]) == ("a", True, "m1")
    assert said["capacity"]["cores"] == {"has": 4, "given": 1}
    [worker] = said["workers"]
    assert (worker["state"], worker["pid"]) == ("running", plane.worker("tweets", "edge").pid)
    assert [(each["worker"], each["ask"]) for each in said["orders"]] == [(worker["worker"], "run")]
    shown = gets(http).text
    assert f'<a href="/workers/{worker["worker"]}">' in shown
    assert f'<a href="{said["master"]["http"]}">' in shown

    # its logs, by a master that does not see the files
    log = plane.folder / "a/workers/logs" / f"{worker['worker']}.log"
    with log.open("a") as file:
        file.write("the worker has said this\n")
    [found] = plane.says("logs", "tweets", "-n", "1")
    assert (found["node"], found["file"], found["lines"]) == ("a", str(log), ["the worker has said this"])
    view = plane.says("node", "describe", "a")
    assert (view["node"]["state"], view["now"]["workers"][0]["worker"]) == ("up", worker["worker"])

    # its worker's own page
    master = said["master"]["http"]
    assert gets(f"{http}/workers/{worker['worker']}/json").json()["rows"] == 17
    assert "17" in gets(f"{http}/workers/{worker['worker']}").text
    assert gets(f"{master}/v1/flows/tweets/workers/{worker['worker']}").json()["rows"] == 17
    assert gets(f"{master}/v1/flows/tweets/workers/tweets.edge-99").json()["code"] == "worker-unknown"
    assert gets(f"{http}/workers/tweets.edge-99/json").json()["code"] == "worker-unknown"

    # a page of the master, linked to the node's
    view = gets(f"{master}/v1/master").json()
    assert (view["id"], view["leads"], view["states"]) == ("m1", True, {"running": 1})
    assert view["term"] > 0
    assert view["cycle"]["flows"] == 1
    assert any("is started on a" in each["what"] for each in view["decided"])
    assert f'<a href="{http}">' in gets(master).text

    # away: that is told, and the rest is shown
    plane.kill("a")
    until(lambda: plane.registry.read(HOST_UP("a").path) is None, "a is away")
    [told] = plane.says("logs", "tweets")
    assert (told["lines"], "node a is unavailable" in told["problem"]) == ([], True)
    view = plane.says("node", "describe", "a")
    assert (view["node"]["state"], view["now"], "away" in view["silent"]) == ("away", None, True)
    assert gets(f"{master}/v1/flows/tweets/workers/{worker['worker']}").json()["code"] == "node-away"


def test_beyond_its_machine_a_node_asks_for_the_masters_key_or_a_token(plane: Plane) -> None:
    entrance = ConnectionSettings(plane.address, plane.login)
    key = entrance.host_key("a")
    assert key is not None
    tokens = Tokens(plane.registry)
    viewer, narrow = tokens.add("ann", "viewer", {}), tokens.add("bob", "admin", {"team": "web"})
    with NodeHost(Home(plane.folder / "a"), "a", entrance, listen=Listen("0.0.0.0", insecure=True)) as node:
        url = f"http://127.0.0.1:{node.url.rpartition(':')[2]}"
        other = entrance.host_key("b")
        assert other is not None
        for path in ("/", "/json", "/workers/tweets.edge-1/logs"):
            assert gets(url + path).json()["code"] == "token-missing"
            assert gets(url + path, token=other.reveal()).json()["code"] == "token-unknown", "another node's key"
            assert gets(url + path, token=narrow).json()["code"] == "role-lacking"
            for good in (key.reveal(), viewer):
                assert gets(url + path, token=good).status_code == 200
        assert gets(f"{url}/workers/A.b-1/logs", token=viewer).status_code == 200, "no flow can have that name"
        tokens.remove("ann")
        assert gets(f"{url}/json", token=viewer).json()["code"] == "token-unknown"
        assert gets(f"{url}/etc", token=key.reveal()).status_code == 404
        # a master with the key comes in, by the name of the host; one without does not
        assert NodePages(plane.registry, entrance.host_key).status_of("a")["node"] == "a"
        with pytest.raises(Unreachable, match="rejects this master"):
            NodePages(plane.registry, lambda _node: Secret("wrong", "a test's")).status_of("a")
    with pytest.raises(Unreachable, match="node a is unavailable"):
        NodePages(plane.registry, entrance.host_key).status_of("a")
    with pytest.raises(Refused, match="plain text"), NodeHost(Home(plane.folder / "b"), "b", entrance, listen=Listen("0.0.0.0")):
        pass


def test_a_node_that_answers_on_its_own_machine_only_is_told_as_that(plane: Plane) -> None:
    plane.registry.commit(
        HOST_UP("far").create(HOST_UP.kind(host="far.example", pid=os.getpid(), http="http://127.0.0.1:1"), ephemeral=True)
    )
    with pytest.raises(Unreachable, match=r"answers on its own machine far\.example only"):
        NodePages(plane.registry).status_of("far")


def test_the_key_of_a_node_is_its_own_and_nobody_beyond_is_let_near_without_one(tmp_path: Path) -> None:
    login = DigestLogin(Secret("masters:a-long-random-text", "file"))
    entrance = ConnectionSettings(RegistryAddress(("a:1",), "/x"), login)
    keys = {str(key.reveal()) for key in (entrance.host_key("a"), entrance.host_key("b")) if key is not None}
    assert len(keys) == 2
    assert not any("long-random" in key for key in keys)
    assert ConnectionSettings(RegistryAddress(("a:1",), "/x"), insecure=True).host_key("a") is None
    with pytest.raises(Refused, match="no token exists"):
        check_door(Listen("0.0.0.0", insecure=True), has_key=False)
    check_door(Listen(), has_key=False)


def test_where_no_key_tells_masters_from_people_operators_look_into_states(plane: Plane) -> None:
    tokens = Tokens(plane.registry)
    gate = NodeGate(plane.registry, Listen("0.0.0.0", insecure=True), None, tokens)

    def shows(token: str) -> Request:
        return Request({"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]})

    viewer, operator = (shows(tokens.add(role, role, {})) for role in ("viewer", "operator"))
    gate.check(viewer)
    gate.check_master(operator)
    with pytest.raises(Refused, match="operator"):
        gate.check_master(viewer)


def test_up_asks_at_the_page_of_its_node_too(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    token = TokenFile(home.tokens).add("ann", "viewer", {})
    with House(home, listen=Listen(asks=True)) as house, home.registry() as registry:
        there = registry.read(HOST_UP("local").path)
        assert isinstance(there, RegistryEntry)
        assert gets(f"{there.value['http']}/json").json()["code"] == "token-missing"
        view = gets(f"{house.url}/v1/nodes/local", token=token).json()
        assert (view["now"]["node"], view["silent"]) == ("local", ""), "its master comes in with the key"


def test_masters_reach_a_node_over_tls_that_they_know_who_signs(plane: Plane) -> None:
    pem, key = plane.folder / "cert.pem", plane.folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", pem], check=True, capture_output=True)
    entrance = ConnectionSettings(plane.address, plane.login)
    with NodeHost(Home(plane.folder / "a"), "a", entrance, listen=Listen(certificate=pem, key=key, asks=True)) as node:
        assert node.url.startswith("https://127.0.0.1:")
        assert NodePages(plane.registry, entrance.host_key, certificates=pem).status_of("a")["node"] == "a"
        with pytest.raises(Unreachable, match="node a does not answer at https"):
            NodePages(plane.registry, entrance.host_key).status_of("a")


@pytest.mark.parametrize(
    ("listen", "host"),
    [(Listen(), "127.0.0.1"), (Listen("10.1.2.3"), "10.1.2.3"), (Listen("0.0.0.0"), socket.gethostname())],
    ids=["loopback", "one", "all"],
)
def test_workers_of_other_hosts_reach_those_of_a_node_where_its_page_is_reached(tmp_path: Path, listen: Listen, host: str) -> None:
    entrance = ConnectionSettings(RegistryAddress.parse("zk://127.0.0.1:1/scribengin"))
    make = worker_order(Home(tmp_path), "here", entrance, host=reached_at(listen))
    assert make("f.core~2-1", WorkerOrder(ask="run")).environment["SCRIBENGIN_REACHED_AT"] == host


def test_a_worker_that_runs_elsewhere_gets_none_of_the_variables_of_its_nodes_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_WORKER_KEY", "of this host")
    entrance = ConnectionSettings(RegistryAddress.parse("zk://127.0.0.1:1/scribengin"))
    order = worker_order(Home(tmp_path), "here", entrance, away=True)("f.core-1", WorkerOrder(ask="run"))
    assert {name: value for name, value in order.environment.items() if value is not None} == {
        "SCRIBENGIN_HOME": "home",
        "SCRIBENGIN_NODE": "here",
        "SCRIBENGIN_REGISTRY": order.environment["SCRIBENGIN_REGISTRY"],
    }
