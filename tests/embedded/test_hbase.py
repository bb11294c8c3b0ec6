from pathlib import Path

import httpx2
import pytest

from scribengin.connectors.hbase.options import SINK
from scribengin.connectors.hbase.store import HBaseStore
from scribengin.core.errors import EnvironmentFault, Unreachable
from scribengin.embedded.hbase import HBase

ROWS = 50
JSON = {"Accept": "application/json"}


def kept(http: httpx2.Client) -> int:
    return len(http.get("/kept/*", headers=JSON).raise_for_status().json()["Row"])


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_it_has_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    with HBase(tmp_path / "server") as server, httpx2.Client(base_url=server.uri, timeout=60, trust_env=False) as http:
        http.put("/kept/schema", json={"name": "kept", "ColumnSchema": [{"name": "d"}]}).raise_for_status()
        for number in range(ROWS):
            http.put(f"/kept/{number}/d:n", content=b"1", headers={"Content-Type": "application/octet-stream"}).raise_for_status()
        again = HBase(tmp_path / "server")
        assert (again.pid, again.uri, again.answers()) == (server.pid, server.uri, True)
        server.kill_store()
        assert server.pid is None
        assert not server.answers()
        # the REST server is there, and must not be taken for one whose table is empty
        store = HBaseStore("out", SINK.filled({"server": [server.uri], "table": "kept"}), ())
        with pytest.raises(Unreachable) as told:
            store.is_empty()
        assert told.value.code == "hbase-away"
        server.start()
        assert kept(http) == ROWS
    assert not again.answers()
    assert again.pid is None


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    import socket

    server = HBase(tmp_path / "server")
    host, _, port = server.address.partition(":")
    with socket.create_server((host, int(port))), pytest.raises(EnvironmentFault) as told:
        server.start()
    assert told.value.code == "port-taken"
    assert server.pid is None
