"""One OpenSearch for all tests of this folder, and one Elasticsearch, real ones. That costs a start of half a minute: `make test` asks it
for the contracts alone (`both_servers`), `make test-long` for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2
import pytest

from scribengin.embedded.elasticsearch import Elasticsearch
from scribengin.embedded.opensearch import OpenSearch

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Index:
    """An index of its own, and its records, as a person sees them."""

    type: str
    """of the connector"""
    address: str
    name: str
    http: httpx2.Client

    @property
    def options(self) -> dict[str, Any]:
        return {"server": [self.address], "index": self.name, "records": f"{self.name}-records"}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"{self.address}/{self.name}{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def documents(self) -> list[dict[str, Any]]:
        self.ask("POST", "/_refresh")
        hits = self.ask("POST", "/_search", {"size": 10_000, "version": True, "query": {"match_all": {}}})["hits"]["hits"]
        return [hit["_source"] for hit in hits]


both_servers = pytest.mark.both_servers
"""of tests that are no long ones with the second server either"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before the long ones are left out."""
    for item in items:
        asked = getattr(item, "callspec", None)
        if asked is not None and asked.params.get("server") == "elasticsearch" and item.get_closest_marker("both_servers") is None:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", params=["opensearch", "elasticsearch"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearch | Elasticsearch]:
    kind = OpenSearch if request.param == "opensearch" else Elasticsearch
    with kind(tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture
def index(server: OpenSearch | Elasticsearch) -> Iterator[Index]:
    with httpx2.Client(timeout=60) as http:
        own = Index("opensearch" if isinstance(server, OpenSearch) else "elasticsearch", server.uri, f"t{uuid4().hex}", http)
        yield own
        http.delete(f"{own.address}/{own.name}*")
        http.delete(f"{own.address}/_index_template/scribengin-{own.name}*")
