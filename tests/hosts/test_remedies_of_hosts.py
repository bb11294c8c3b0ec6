"""Commands that start masters and nodes: typed as a remedy prints them, what was refused works while they are up. Over a real ZooKeeper."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from fastapi import FastAPI
from starlette.testclient import TestClient

from scribengin.api.node_pages import NodePages
from scribengin.api.progress import router
from scribengin.api.state_routing import HERE, locate_state
from scribengin.api.tokens import Tokens
from scribengin.cli.commands import master, node, up
from scribengin.cli.main import main
from scribengin.control import flow_requests
from scribengin.control.alerting import AlertDispatcher
from scribengin.control.worker_reports import WorkerWatch
from scribengin.core.errors import Refused, Unreachable
from scribengin.core.secret import Secret
from scribengin.registry.access import RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.contract import Create
from scribengin.registry.records import Host, Run, TierSpec
from scribengin.registry.tree import HOST, HOST_UP, LEADER, RUN
from scribengin.watching.telemetry import Board
from tests.looking import look_until
from tests.plugins.remedies import mentions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plane import Plane

    from scribengin.embedded.zookeeper import ZooKeeper
    from scribengin.registry.contract import Registry

    Typed = Callable[..., dict[str, Any]]
    WhileUp = Callable[[Callable[[], None], list[str]], None]

pytestmark = pytest.mark.timeout(300)
EVERYWHERE = "0.0.0.0"
FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {both: {from: numbers, utilities: ["small:odd", "small:even"], order: free, on_error: drop}}
sinks: {kept: {from: both, type: files, path: out, format: json}}
"""


@pytest.fixture
def typed(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    """What a command says with --json, as a person who has the login of the registry."""
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_LOGIN_FILE", str(plane.login_file))
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))

    def run(*words: str) -> dict[str, Any]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*words, "--json"])
        return {**json.loads(capfd.readouterr().out), "status": ended.value.code}

    return run


@pytest.fixture
def while_up(typed: Typed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> WhileUp:
    """Runs a command that is up until it is asked to end, and ends it when what is to be done beside it is done."""

    def does(beside: Callable[[], None], words: list[str]) -> None:
        done = []

        class Asked:
            def wait(self) -> None:
                beside()
                done.append(True)

        @contextmanager
        def until_asked() -> Iterator[Asked]:
            yield Asked()

        for module in (master, node, up):
            monkeypatch.setattr(module, "until_asked", until_asked)
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert (ended.value.code, done) == (0, [True]), capfd.readouterr().err

    return does


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, Path]:
    """For all names of this machine, signed by itself."""
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=a"]
    names = f"subjectAltName=IP:127.0.0.1,DNS:{socket.gethostname()}"
    subprocess.run([*command, "-addext", names, "-keyout", key, "-out", pem], check=True, capture_output=True)
    return {"--tls-certificate": pem, "--tls-key": key}


def commands_of(remedy: str, **filled: object) -> list[list[str]]:
    """The commands of a remedy, with what is written in capitals filled in; FILE is that of the option before it."""
    found = [list(mention.words) for mention in mentions(remedy)]
    assert found, remedy
    files = filled.pop("FILE", {})
    assert isinstance(files, dict)
    return [
        [str(files.get(words[at - 1], word) if word == "FILE" else filled.get(word, word)) for at, word in enumerate(words)]
        for words in found
    ]


def remedy_of(said: dict[str, Any], code: str) -> str:
    """Of the one problem."""
    [problem] = said["problems"]
    assert problem["code"] == code, problem
    return str(problem["remedy"])


def elsewhere(registry: Registry, *, node: str = "") -> None:
    """A flow whose worker runs on another host."""
    submission = flow_requests.Submission("numbers", "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(registry, submission, state=lambda _: "/nowhere", by="me")
    registry.commit(RUN("numbers", "main").create(Run(number=1, node=node or "far", asked_at=0.0, generation=1)))
    registry.commit(HOST(node or "far").create(Host(host="far")))


@pytest.mark.executes("node-away")
def test_a_node_that_is_away_is_started_by_the_command_that_says_so(plane: Plane, while_up: WhileUp) -> None:
    pages = NodePages(plane.registry, ConnectionSettings(plane.address, plane.login).host_key)
    with pytest.raises(Unreachable) as away:
        pages.status_of("a")
    [command] = commands_of(away.value.remedy, ADDRESS=plane.address)

    def beside() -> None:
        assert pages.status_of("a")["node"] == "a"

    while_up(beside, command)


@pytest.mark.executes("node-silent")
def test_a_node_that_only_its_machine_reaches_is_reached_when_it_listens(
    plane: Plane, while_up: WhileUp, certificate: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    entrance = ConnectionSettings(plane.address, plane.login)
    with closing(entrance.open()) as before:
        before.commit(Create(HOST_UP("a").path, {"host": "far", "http": "http://127.0.0.1:1"}, ephemeral=True))
        with pytest.raises(Unreachable) as silent:
            NodePages(plane.registry).status_of("a")
    [command] = commands_of(silent.value.remedy, ADDRESS=plane.address, HOST=EVERYWHERE, FILE=certificate)

    def beside() -> None:
        pages = NodePages(plane.registry, entrance.host_key, certificates=certificate["--tls-certificate"])
        assert pages.status_of("a")["node"] == "a"

    while_up(beside, command)


@pytest.mark.executes("state-elsewhere")
def test_a_state_on_another_host_is_found_by_the_master_that_is_started_there(
    plane: Plane, typed: Typed, while_up: WhileUp, certificate: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(plane.registry)
    with pytest.raises(Refused) as refused:
        locate_state(plane.registry, "numbers", lambda _node, _flow: False, masters=True)
    Tokens(plane.registry).add("ann", "viewer", {})
    [command] = commands_of(refused.value.remedy, ADDRESS=plane.address, HOST=EVERYWHERE, FILE=certificate)

    def beside() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "gethostname", lambda: "here")
            found = locate_state(plane.registry, "numbers", lambda _node, _flow: False, masters=True).master
        assert found.startswith("https://far:")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "far")
        while_up(beside, command)


@pytest.mark.executes("state-elsewhere")
def test_a_state_on_a_node_that_does_not_answer_is_found_when_that_node_lets_masters_reach_it(
    plane: Plane, while_up: WhileUp, certificate: dict[str, Path], tmp_path: Path
) -> None:
    elsewhere(plane.registry, node="a")
    pages = NodePages(
        plane.registry, ConnectionSettings(plane.address, plane.login).host_key, certificates=certificate["--tls-certificate"]
    )
    with pytest.raises(Refused) as refused:
        locate_state(plane.registry, "numbers", pages.has_state)
    [command] = commands_of(refused.value.remedy, NODE="a", ADDRESS=plane.address, HOST=EVERYWHERE, FILE=certificate)

    def beside() -> None:
        assert locate_state(plane.registry, "numbers", pages.has_state) == HERE, "it answers: there is none yet"

    while_up(beside, command)


@pytest.mark.executes("leader-missing")
def test_a_leader_that_others_do_not_reach_is_found_when_it_listens(plane: Plane, while_up: WhileUp, certificate: dict[str, Path]) -> None:
    board = Board()
    watch = WorkerWatch(plane.registry, board, AlertDispatcher(plane.registry, board, structlog.get_logger()), leads=lambda: False)
    app = FastAPI()
    app.include_router(router(watch))
    standby = TestClient(app, follow_redirects=False)
    with closing(ConnectionSettings(plane.address, plane.login).open()) as before:
        before.commit(Create(LEADER().path, {"id": "m", "host": "far", "http": "http://127.0.0.1:1"}, ephemeral=True))
        with pytest.raises(Unreachable) as missing:
            standby.get("/v1/metrics")
    Tokens(plane.registry).add("ann", "viewer", {})
    [command] = commands_of(missing.value.remedy, ADDRESS=plane.address, HOST=EVERYWHERE, FILE=certificate)

    def beside() -> None:
        look_until(watch.leader, "the master leads", 120)
        answer = standby.get("/v1/metrics")
        assert (answer.status_code, answer.headers["location"][:8]) == (307, "https://")

    while_up(beside, command)


@pytest.mark.executes("listen-open")
def test_a_node_to_which_nobody_could_show_a_token_is_open_to_the_one_that_the_command_makes(
    zookeeper: ZooKeeper, typed: Typed, while_up: WhileUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCRIBENGIN_REGISTRY_LOGIN_FILE")
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_INSECURE", "1")
    address = RegistryAddress((zookeeper.address,), f"/{tmp_path.name}")
    words = ["server", "node", "--name", "a", "--registry", str(address), "--listen", EVERYWHERE, "--insecure-api"]
    [command] = commands_of(remedy_of(typed(*words), "listen-open"), NAME="masters", ADDRESS=address)
    token = Secret(typed(*command)["result"]["token"], "a test's")

    def beside() -> None:
        with closing(ConnectionSettings(address, insecure=True).open()) as registry:
            assert NodePages(registry, token=token).status_of("a")["node"] == "a"

    while_up(beside, words)


@pytest.mark.executes("listen-open")
def test_a_master_that_asks_for_a_token_is_up_when_the_command_has_made_one(plane: Plane, typed: Typed, while_up: WhileUp) -> None:
    words = ["master", "--registry", str(plane.address), "--ask-token"]
    [command] = commands_of(remedy_of(typed(*words), "listen-open"), NAME="ann", ROLE="viewer")
    assert typed(*command)["status"] == 0

    def beside() -> None:
        assert [row.name for row in Tokens(plane.registry).rows()] == ["ann"]

    while_up(beside, words)


@pytest.mark.executes("master-missing")
def test_a_master_of_the_registry_is_started_by_the_command_that_says_so(plane: Plane, typed: Typed, while_up: WhileUp) -> None:
    words = ("pause", "x", "--registry", str(plane.address))
    [command] = commands_of(remedy_of(typed(*words), "master-missing"), ADDRESS=plane.address)

    def beside() -> None:
        assert remedy_of(typed(*words), "flow-unknown"), "a master answers"

    while_up(beside, command)


@pytest.mark.executes("spread")
def test_tiers_are_as_many_as_nodes_when_the_command_has_started_one(
    plane: Plane, typed: Typed, while_up: WhileUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBENGIN_REGISTRY", str(plane.address))
    file = tmp_path / "numbers.yaml"
    file.write_text(FLOW)
    (tmp_path / "small.py").write_text(
        "def odd(row) -> bool:\n    return row['id'] % 2 == 1\n\n\ndef even(row) -> bool:\n    return row['id'] % 2 == 0\n"
    )
    words = ("apply", str(file), "--spread")

    def beside() -> None:
        [command] = commands_of(remedy_of(typed(*words), "spread"), ADDRESS=plane.address)
        while_up(beside_both, command)

    def beside_both() -> None:
        said = typed(*words)
        assert said["status"] == 0, said["problems"]

    while_up(beside, ["master", "--registry", str(plane.address)])


@pytest.mark.executes("not-up", "master-unreachable")
@pytest.mark.parametrize("code", ["not-up", "master-unreachable"])
def test_a_control_plane_here_is_started_by_the_command_that_says_so(
    typed: Typed, while_up: WhileUp, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.delenv("SCRIBENGIN_REGISTRY_LOGIN_FILE")
    words = ("pause", "x", *(("--master", "http://127.0.0.1:1") if code == "master-unreachable" else ()))
    [command] = commands_of(remedy_of(typed(*words), code))

    def beside() -> None:
        assert remedy_of(typed("pause", "x"), "flow-unknown"), "a master answers"

    while_up(beside, command)
