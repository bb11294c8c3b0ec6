"""One OpenSearch for all tests of this folder, and in `make test-long` one Elasticsearch: real ones."""

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


@pytest.fixture(scope="session", params=["opensearch", pytest.param("elasticsearch", marks=pytest.mark.long)])
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
