"""A bench: masters' APIs on real sockets, over one registry in memory."""

from __future__ import annotations

import json
import random
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import structlog
from fastapi._compat import v2
from pydantic import ConfigDict, TypeAdapter

from scribengin.api import planner
from scribengin.api.app import make_app
from scribengin.api.audit import AuditLog
from scribengin.api.plane import Plane
from scribengin.api.planner import Planner, from_others
from scribengin.api.serving import Listen, open_listener
from scribengin.api.tokens import Tokens
from scribengin.cli.main import main
from scribengin.client.client import Client
from scribengin.control.alerting import AlertDispatcher
from scribengin.control.worker_reports import WorkerWatch
from scribengin.core.secret import Secret
from scribengin.packages.make import make_package
from scribengin.packages.store import PackageStore
from scribengin.registry.memory import MemoryStore
from scribengin.watching.telemetry import Board
from tests.api.forked import forking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scribengin.packages.package import Package
    from scribengin.registry.memory import MemoryRegistry

FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {odd: {from: numbers, filter: id % 2 = 1}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""


@dataclass
class Served:
    """One master's API: its URL, and the registry client that it stands on."""

    url: str
    registry: MemoryRegistry
    packages: PackageStore
    plane: Plane

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """As any program may."""
        return httpx2.request(method, self.url + path, trust_env=False, timeout=60, **more)


@dataclass
class Bench:
    """Any number of masters on one registry; each with a folder of its own."""

    folder: Path
    stack: ExitStack
    flow: str = FLOW
    each: int = 1
    """so many masters where a test asks for one; then each request comes to any of them"""
    store: MemoryStore = field(default_factory=MemoryStore)
    masters: list[Served] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.person = self.store.client()
        self.tokens = Tokens(self.person)
        self.audit = self.folder / "audit.log"
        self.dice = random.Random(1)

    def master(self, *, listen: Listen | None = None) -> Served:
        """One more; or several, of which one is given."""
        made = [self._master(listen) for _ in range(self.each)]
        return made[0]

    @property
    def any_master(self) -> Served:
        """One of them, by chance; the lead may have gone to another one before, and one of the others may be behind."""
        if self.each > 1:
            taken = self.dice.choice(self.masters)
            self.store.expire(taken.registry)
            self.dice.choice(self.masters).registry.lag()
        return self.dice.choice(self.masters)

    def _master(self, listen: Listen | None) -> Served:
        home = self.folder / f"home{len(self.masters)}"
        listen = listen or Listen()
        listen.check_transport()
        there = bool(self.tokens.rows())
        listen.check_tokens(there=there)
        listener = self.stack.enter_context(open_listener(listen))
        registry, packages = self.store.client(), PackageStore(home / "packages")
        fetch = from_others(packages, lambda: [master.url for master in self.masters if master.url != listener.url])
        board = Board()
        dispatcher = AlertDispatcher(registry, board, structlog.get_logger())
        self.stack.callback(dispatcher.close)
        plane = Plane(
            registry,
            packages,
            Planner(packages.folder, fetch=fetch),
            str(home / "state"),
            listen.gate(Tokens(registry), there=there),
            leads=lambda: not self.masters,
            audit=AuditLog(self.audit),
            watch=WorkerWatch(registry, board, dispatcher),
        )
        self.stack.enter_context(listener.serve(make_app(plane)))
        served = Served(listener.url, registry, packages, plane)
        self.masters.append(served)
        return served

    def client(self, *masters: Served, token: str | None = None) -> Client:
        """Of these masters; of all where none is named."""
        secret = None if token is None else Secret(token, "a test's")
        if self.each > 1 and not masters:
            return self.stack.enter_context(Roaming(self, secret))
        return self.stack.enter_context(Client([master.url for master in masters or self.masters], token=secret, user="ann"))

    def package(self, text: str = FLOW, **files: str) -> Package:
        """Of a folder with that flow."""
        folder = self.folder / "written"
        folder.mkdir(exist_ok=True)
        for name, content in {"flow.yaml": text, **files}.items():
            (folder / name).write_text(content)
        return make_package(folder, {}).package


class Roaming(Client):
    """A client that asks another master each time, and finds one of them cut off now and then."""

    def __init__(self, bench: Bench, token: Secret | None) -> None:
        super().__init__([master.url for master in bench.masters], token=token, user="ann")
        self._bench = bench

    @contextmanager
    def _answer(self, *some: Any, **more: Any) -> Iterator[httpx2.Response]:
        first = self._bench.any_master
        others = [master.url for master in self._bench.masters if master is not first]
        self.masters = [first.url, *self._bench.dice.sample(others, len(others))]
        silent = self._bench.dice.random() < 0.2
        if silent:
            first.registry.cut()
        try:
            with super()._answer(*some, **more) as answer:
                yield answer
        finally:
            if silent:
                first.registry.mend()


@pytest.fixture(scope="session", autouse=True)
def _types_are_compiled_once() -> Iterator[None]:
    """FastAPI compiles the type of each parameter and each answer for each application anew, a sixth of a second for each master."""
    made: dict[str, TypeAdapter[Any]] = {}

    def compiled(type_: Any, *, config: ConfigDict | None = None) -> TypeAdapter[Any]:
        key = f"{type_!r} {config!r}"
        if key not in made:
            made[key] = TypeAdapter(type_, config=config)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2, "TypeAdapter", compiled)
        yield


@pytest.fixture(scope="session")
def _forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with forking(tmp_path_factory.mktemp("forked")) as popen:
        yield popen


@pytest.fixture(scope="module", autouse=True)
def _planners_start_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the file that is about the processes in which masters plan they are started as a master starts them."""
    if request.path.name == "test_problems_api.py":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": request.getfixturevalue("_forking")}))
        yield


@pytest.fixture(scope="module")
def long_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all tests of a file."""
    with ExitStack() as stack:
        yield Bench(tmp_path_factory.mktemp("bench"), stack)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(tmp_path, stack)


@pytest.fixture
def says(capfd: pytest.CaptureFixture[str], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """What a command says with --json, beside the first master of the bench, and its exit status as `status`."""
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "nobody"))

    def run(*words: str) -> dict[str, Any]:
        monkeypatch.setenv("SCRIBENGIN_MASTER", bench.masters[0].url)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*words, "--json"])
        return {**json.loads(capfd.readouterr().out), "status": ended.value.code}

    return run
