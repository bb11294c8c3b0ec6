import os
from pathlib import Path

import httpx2
import pytest

from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import birth_of, within
from scribengin.embedded import server as no_root
from scribengin.embedded.elasticsearch import Elasticsearch
from scribengin.embedded.opensearch import OpenSearch

BOTH = pytest.mark.parametrize("kind", [OpenSearch, pytest.param(Elasticsearch, marks=pytest.mark.long)])


@pytest.mark.long
@BOTH
@pytest.mark.timeout(300)
def test_a_server_keeps_what_it_acknowledged_over_a_kill_and_is_found_again(
    public_path: Path, kind: type[OpenSearch | Elasticsearch]
) -> None:
    with kind(public_path / "server") as server, httpx2.Client(base_url=server.uri, timeout=60, trust_env=False) as http:
        server.start()  # it is up already
        for number in range(5):
            http.put(f"/kept/_doc/{number}", json={"n": number}).raise_for_status()
        again = kind(public_path / "server")
        assert (again.pid, again.uri) == (server.pid, server.uri)
        server.kill()
        assert not server.answers()
        assert server.pid is None
        server.start()
        http.post("/kept/_refresh").raise_for_status()
        assert http.get("/kept/_count").json()["count"] == 5
        # two of one machine must not become one cluster
        with kind(public_path / "another") as another:
            assert httpx2.get(f"{another.uri}/kept", trust_env=False).status_code == 404
            assert len(http.get("/_cat/nodes?h=name").text.splitlines()) == 1
    assert not again.answers()
    with kind(public_path / "server") as server:
        node = server.pid
        assert node is not None
    assert server.pid is None
    assert birth_of(node) is None


@pytest.mark.long
def test_a_node_goes_with_its_launcher(public_path: Path) -> None:
    with Elasticsearch(public_path / "server") as server:
        node = server.pid
        assert node is not None
        assert server._server is not None
        assert server._server.process.pid != node
        server._server.kill()
        assert within(60, lambda: birth_of(node) is None)


@pytest.mark.parametrize("kind", [OpenSearch, Elasticsearch])
def test_a_port_that_is_taken_is_told(tmp_path: Path, kind: type[OpenSearch | Elasticsearch]) -> None:
    import socket

    server = kind(tmp_path / "server")
    host, _, port = server.address.partition(":")
    with socket.create_server((host, int(port))), pytest.raises(EnvironmentFault) as told:
        server.start()
    assert told.value.code == "port-taken"


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root needs no other user")
def test_where_root_can_have_no_namespace_elasticsearch_runs_for_nobody(public_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(no_root, "_may_have_a_namespace", lambda: False)
    with Elasticsearch(public_path) as server:
        assert server.answers()
        assert (public_path / "data").stat().st_uid == 65534
