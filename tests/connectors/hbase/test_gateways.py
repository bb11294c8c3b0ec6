"""HBase behind doors that a REST server cannot be itself in the tests: one that asks who we are, one with TLS."""

from __future__ import annotations

from base64 import b64encode
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest

from scribengin.connectors.contract import BatchLimits
from scribengin.core.errors import ScribenginError, SinkError, SourceError
from scribengin.core.secret import Secret
from tests.connectors.hbase.conftest import BOTH
from tests.connectors.hbase.test_sink import rows_of, written
from tests.connectors.hbase.test_source import all_of, keys, names, source
from tests.connectors.postgres.tls_door import Authority, TlsDoor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.connectors.hbase.conftest import Table

PREFIX = "/gateway/hbase"
LOGIN = {"user": "reader", "password": Secret("hunter2", "env/LOGIN")}


class Gateway:
    """Lets `reader` do all, `guest` nothing, and others not in. `left`: requests that it still lets through; None: all."""

    url: str
    left: int | None = None

    def refuses(self, authorization: str) -> int:
        known = {f"Basic {b64encode(f'{user}:hunter2'.encode()).decode()}": user for user in ("reader", "guest")}
        if self.left is not None:
            self.left -= 1
        user = known.get(authorization)
        return 401 if user is None else 403 if user == "guest" or (self.left is not None and self.left < 0) else 0


@contextmanager
def gateway(address: str) -> Iterator[Gateway]:
    door = Gateway()
    client = httpx2.Client(timeout=60, trust_env=False)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, content = door.refuses(self.headers.get("Authorization", "")), dict[str, str](), b""
            if not status:
                path = self.path.removeprefix(PREFIX)
                given = {name: self.headers[name] for name in ("Accept", "Content-Type") if name in self.headers}
                answer = client.request(self.command, f"{address}{path}", content=body, headers=given)
                status, content = answer.status_code, answer.content
                if "location" in answer.headers:
                    headers["Location"] = f"{door.url}{urlsplit(answer.headers['location']).path}"
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    door.url = f"http://127.0.0.1:{server.server_port}{PREFIX}"
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield door
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        client.close()


def test_through_a_gateway_that_asks_who_we_are_rows_are_written_and_read(table: Table, tmp_path: Path) -> None:
    with gateway(table.address) as door:
        given = {"server": [door.url], "config": LOGIN}
        assert written(table, tmp_path, rows_of(*range(9)), **given) == []
        read = source(table, "key STRING, id INT", page=2, **given)
        assert len(keys(read, all_of(read.reader()))) == 9


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ({}, 401),
        ({"user": "reader", "password": Secret("hunter3", "env/LOGIN")}, 401),
        ({"user": "guest", "password": Secret("hunter2", "env/LOGIN")}, 403),
    ],
)
def test_who_may_not_in_is_told_without_the_password(table: Table, tmp_path: Path, config: dict[str, Any], status: int) -> None:
    table.make()
    with gateway(table.address) as door:
        given = {"server": [door.url], "config": config}
        with pytest.raises(SourceError, match=f'source "in": .* answered GET .* with {status}') as by_source:
            source(table, **given).resolve_schema()
        with pytest.raises(SinkError, match=f'sink "out": .* answered .* with {status}') as by_sink:
            written(table, tmp_path, rows_of(1), **given)
    for told in (by_source.value, by_sink.value):
        assert isinstance(told, ScribenginError)
        assert told.code == "hbase-login"
        assert told.remedy.startswith("correct `config`: user and password")
        assert "hunter" not in f"{told} {told.remedy}"


def test_a_right_that_is_taken_away_in_the_midst_of_a_range_is_told_at_once(table: Table) -> None:
    table.make()
    names(table, *range(20))
    with gateway(table.address) as door:
        read = source(table, page=2, server=[door.url], config=LOGIN)
        (stream,) = all_of(read.reader())
        blocks = read.read(stream)
        next(blocks)
        door.left = 2
        with pytest.raises(SourceError, match="with 403") as told:
            list(blocks)
    assert told.value.code == "hbase-login"


@BOTH
def test_a_certificate_that_nobody_trusts_is_told_and_one_that_is_named_is_taken(table: Table, tmp_path: Path) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    ours.give(tmp_path / "server.pem", address="127.0.0.1")
    table.make()
    names(table, 1, 2)
    with TlsDoor(tmp_path / "server.pem", int(table.server.rpartition(":")[2])) as door:
        kind = "https" if table.server == table.address else "thrift+tls"
        url = f"{kind}://127.0.0.1:{door.port}"
        configs: list[dict[str, str]] = [{}, {"ca": str(others.path)}]
        for config in configs:
            with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED") as told:
                source(table, server=[url], config=config).reader()
            assert told.value.code == "hbase-trust"
            assert told.value.remedy == "name the CA file that signed its certificate: config: {ca: /path/to/ca.pem}"
            with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED") as told_too:
                written(table, tmp_path, rows_of(1), server=[url], config=config)
            assert told_too.value.code == "hbase-trust"
        trusting = source(table, server=[url], config={"ca": str(ours.path)})
        assert keys(trusting, trusting.reader().split(BatchLimits())) == ["k001", "k002"]
        other = replace(table, name=f"{table.name}b")
        assert written(other, tmp_path, rows_of(1), server=[url], config={"ca": str(ours.path)}) == []


@pytest.mark.parametrize("kind", ["https", "thrift+tls"])
@pytest.mark.parametrize("what", ["is not there", "is no certificate"])
def test_a_ca_that_is_none_is_told(table: Table, tmp_path: Path, what: str, kind: str) -> None:
    if what == "is no certificate":
        (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(SourceError, match=r"ca\.pem") as told:
        source(table, server=[f"{kind}://127.0.0.1:9"], config={"ca": str(tmp_path / "ca.pem")}).reader()
    assert told.value.code == "hbase-config"
    assert told.value.remedy
