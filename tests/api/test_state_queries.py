"""The table of state queries, and what one more takes: a handler (`last_batches.py`), an entry with its route, models, and a call."""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest
from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api import app
from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.api.serving import Listen
from scribengin.api.state_queries import QUERIES, RegisteredQuery, StateNeed, StateQuery, registered, role_of
from scribengin.api.state_routes import answer_routes, from_state
from scribengin.client.client import Client
from scribengin.client.models import Submit
from scribengin.client.transport import part
from scribengin.connectors.contract import BatchId
from scribengin.core.errors import Refused
from scribengin.core.secret import Secret
from scribengin.registry.contract import Create
from scribengin.registry.record_io import put
from scribengin.registry.records import Run
from scribengin.registry.tree import LEASE, MASTERS, RUN
from scribengin.state.contract import Decision
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import open_lineage

if TYPE_CHECKING:
    from conftest import Bench, Served


# its models


@dataclass(frozen=True, slots=True)
class BatchRow:
    query: str
    batch: int
    dead: int


@dataclass(frozen=True, slots=True)
class LastBatches:
    flow: str
    batches: tuple[BatchRow, ...]


# its entry, and its route

BATCHES = RegisteredQuery("last-batches", Role.VIEWER, "tests.api.last_batches:last_batches")


def batch_routes(may: Callable[[Role], Any]) -> APIRouter:
    routes = APIRouter(prefix="/v1/flows/{flow}", tags=["flows"])

    @routes.get("/last-batches", response_model=LastBatches)
    def batches(flow: str, asked: Annotated[ApiRequest, may(role_of("last-batches"))]) -> Response:
        return from_state(asked, "last-batches", flow, {"most": 10}, LastBatches)

    return routes


# its call


class BatchesClient(Client):
    def last_batches(self, name: str) -> LastBatches:
        return self._get(f"/v1/flows/{part(name)}/last-batches", LastBatches)


@pytest.fixture
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUERIES, "last-batches", BATCHES)

    def both(may: Callable[[Role], Any]) -> APIRouter:
        routes = APIRouter()
        routes.include_router(answer_routes(may))
        routes.include_router(batch_routes(may))
        return routes

    monkeypatch.setattr(app, "answer_routes", both)


def decides(master: "Served", batches: int) -> None:
    """So many Batches in the state of the flow."""
    folder = StateFolder(master.plane.packages.folder.parent / "state", "numbers").query("kept")
    lineage = open_lineage(folder, owner="", fingerprint="f", state_fingerprint="", sources=["numbers"])
    for batch in range(batches):
        Decisions(folder.decisions).decide(Decision(BatchId("numbers", "kept", lineage.id, batch, 1), "hash", "f", (), ()))


@pytest.mark.usefixtures("_added")
def test_a_query_is_added_with_a_handler_an_entry_a_route_and_a_call(bench: "Bench") -> None:
    viewer, editor = bench.tokens.add("vera", "viewer", {}), bench.tokens.add("edda", "editor", {})
    master = bench.master(listen=Listen(asks=True))
    package = bench.package()
    bench.client(token=editor).apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    client = bench.stack.enter_context(BatchesClient([master.url], token=Secret(viewer, "a test's")))
    assert client.last_batches("numbers").batches == ()

    decides(master, 12)
    assert client.last_batches("numbers") == LastBatches("numbers", tuple(BatchRow("kept", batch, 0) for batch in range(11, 1, -1)))
    with pytest.raises(Refused, match='no flow "nobody"'):
        client.last_batches("nobody")
    assert master.ask("GET", "/v1/flows/numbers/last-batches").status_code == 401, "the role is that of its entry"


@pytest.mark.usefixtures("_added")
def test_a_query_that_is_added_is_asked_where_the_state_is(bench: "Bench") -> None:
    master = bench.master()
    package = bench.package()
    bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    person = bench.person
    person.commit(put(person, RUN("numbers", "main"), Run(number=1, node="b", asked_at=0.0, generation=1)))
    person.commit(Create(LEASE("numbers", "main").path, {"host": "far", "pid": 7}, ephemeral=True))
    assert master.ask("GET", "/v1/flows/numbers/last-batches").json()["code"] == "state-elsewhere"
    person.commit(Create(MASTERS("m2").path, {"id": "m2", "host": "far", "http": "http://far:1"}, ephemeral=True))
    answer = master.ask("GET", "/v1/flows/numbers/last-batches")
    assert (answer.status_code, answer.headers["location"]) == (307, "http://far:1/v1/flows/numbers/last-batches")


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_has_a_handler(name: str) -> None:
    assert callable(pkgutil.resolve_name(registered(name).handler))


def test_queries_that_need_no_state_are_those_that_change_no_position() -> None:
    needs = {name: query.needs_state for name, query in QUERIES.items() if query.needs_state is not StateNeed.YES}
    optional, no = StateNeed.OPTIONAL, StateNeed.NO
    assert {name for name, need in needs.items() if need is optional} == {"topology", "rollback"}
    assert {name for name, need in needs.items() if need is no} == {"limit", "pack", "graph", "text", "file", "check-text"}


def test_a_query_of_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(Refused, match='"unravel" is not known here') as refused:
        registered("unravel")
    assert refused.value.code == "node-old"


def test_masters_and_nodes_of_the_version_before_use_the_same_keys() -> None:
    """A newer node answers an older master; an older node answers `node-old`, or what it knows."""
    older = b'{"what":"dead","flow":"a","flows":["a"],"revision":7,"state":"/s","versions":{},"arguments":{},"submits":[],"answer":true}'
    query = StateQuery("dead", "a", flows=("a",), revision=7, state="/s")
    assert msgspec.json.decode(older, type=StateQuery) == query
    assert msgspec.json.decode(msgspec.json.encode(query)) | {"answer": True} == msgspec.json.decode(older)
