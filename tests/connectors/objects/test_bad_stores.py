"""What is wrong with a store, or with how it is asked: each client says what is to be done, and none shows a secret."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import pytest

from harness.object_stores import options
from scribengin.connectors.delta.stored import StorePlace
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.options import SINK
from scribengin.connectors.objects.s3 import Uploads
from scribengin.core.errors import ScribenginError, SinkError, Unreachable
from tests.connectors.postgres.tls_door import Authority, TlsDoor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.objects.s3 import S3Store
    from scribengin.embedded.objects import ObjectServer

HOUR_S = 3600


def asked(address: ObjectsAddress) -> dict[str, ScribenginError | None]:
    """What each of the three clients says: obstore in four ways, our own requests, and deltalake."""
    store: S3Store = address.open()  # type: ignore[assignment]
    ways = {
        "get": lambda: store.get("x"),
        "put": lambda: store.put("x", b""),
        "list": lambda: list(store.list()),
        "head": lambda: store.head("x"),
        "begin": lambda: Uploads(store).begin("x"),
        "table": lambda: StorePlace(address).open(),
    }
    said: dict[str, ScribenginError | None] = {}
    for way, ask in ways.items():
        try:
            ask()
        except ScribenginError as error:
            said[way] = error
        else:
            said[way] = None
    return said


def at(server: ObjectServer, prefix: str, **more: Any) -> ObjectsAddress:
    return ObjectsAddress.of("kept", SINK.filled(options(server, prefix) | more))


@pytest.mark.parametrize(
    ("given", "kind", "code", "remedy"),
    [
        ({"url": "s3://nowhere/x"}, SinkError, "objects-bucket", "create the bucket, or correct"),
        ({"config": {"access_key_id": "nobody"}}, SinkError, "objects-login", "correct the access key"),
        ({"config": {"secret_access_key": "wr0ng"}}, SinkError, "objects-login", "correct the access key"),
        ({"config": {"session_token": "old"}}, SinkError, "objects-login", "correct the access key"),
        ({"region": "eu-west-7"}, SinkError, "objects-login", "`region`"),
        ({"endpoint": "http://127.0.0.1:9"}, Unreachable, "objects-away", "check that the store is up"),
    ],
)
def test_each_mistake_is_told_by_each_client(
    server: ObjectServer, prefix: str, given: dict[str, Any], kind: type[ScribenginError], code: str, remedy: str
) -> None:
    login = options(server)["config"]
    for way, told in asked(at(server, prefix, **given | {"config": login | given.get("config", {})})).items():
        if way == "head" and kind is SinkError:
            continue  # its answer has no text: see below
        assert isinstance(told, kind), way
        assert (told.code, told.node) == (code, "kept"), way
        assert remedy in told.remedy
        assert f'"kept": {given.get("url", "s3://objects/")}' in str(told)
        assert login["secret_access_key"] not in str(told)
        assert "wr0ng" not in str(told)
        assert "\x1b" not in str(told)


def test_an_answer_without_a_text_is_no_reason_to_ask_again(server: ObjectServer, prefix: str) -> None:
    login = options(server)["config"] | {"secret_access_key": "wr0ng"}
    told = asked(at(server, prefix, config=login))["head"]
    assert isinstance(told, SinkError)
    assert told.code == "objects-rights"
    assert "access key" in told.remedy


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("trust"), "ours")


@pytest.fixture
def guarded(server: ObjectServer, authority: Authority, tmp_path: Path) -> Iterator[str]:
    """The server behind TLS."""
    authority.give(tmp_path / "server.pem", address="127.0.0.1")
    with TlsDoor(tmp_path / "server.pem", int(server.address.rpartition(":")[2])) as door:
        yield f"https://127.0.0.1:{door.port}"


def test_a_certificate_is_trusted_where_it_is_said_and_else_told(
    server: ObjectServer, prefix: str, guarded: str, authority: Authority, tmp_path: Path
) -> None:
    others = Authority(tmp_path, "others")
    for trusted in ({}, {"ca_file": str(others.path)}):
        before_s = time.monotonic()
        for way, told in asked(at(server, prefix, endpoint=guarded, **trusted)).items():
            assert isinstance(told, SinkError), way
            assert told.code == "objects-trust", (way, told)
            assert told.remedy == "set `ca_file` to the certificate authority to trust"
            assert guarded in str(told)
        assert time.monotonic() - before_s < 60
    both = tmp_path / "both.pem"
    both.write_bytes(others.path.read_bytes() + authority.path.read_bytes())
    for path in (authority.path, both):
        assert not any(asked(at(server, f"{prefix}/{path.stem}", endpoint=guarded, ca_file=str(path))).values())


def test_a_file_of_authorities_that_is_none_is_told(server: ObjectServer, prefix: str, guarded: str, tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("no certificate")
    for path in ("none.pem", "missing.pem"):
        where = at(server, prefix, endpoint=guarded, ca_file=str(tmp_path / path))
        for ask in (lambda where=where: where.open().get("x"), StorePlace(where).open):
            with pytest.raises(SinkError) as told:
                ask()
            assert f"ca_file {tmp_path / path} " in str(told.value)
            assert told.value.code == "objects-trust"


class Proxy(BaseHTTPRequestHandler):
    """Answers itself, that there is nothing."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(urlsplit(self.path).netloc + urlsplit(self.path).path)
        self.send_response(404)
        answer = b"<Error><Code>NoSuchKey</Code></Error>"
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def test_the_bucket_stands_in_the_servers_name_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
        for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        given = {"url": "s3://shop/x", "endpoint": "http://store.example:9", "config": {"access_key_id": "a", "secret_access_key": "b"}}
        for path_style, begin in ((False, "shop.store.example:9/x/"), (True, "store.example:9/shop/x/")):
            where = ObjectsAddress.of("kept", SINK.filled(given | {"path_style": path_style}))
            Proxy.asked.clear()
            assert where.open().get("y") is None
            assert Proxy.asked == [f"{begin}y"]
            with suppress(SinkError):
                StorePlace(where).open()
            assert Proxy.asked[1].startswith(f"{begin}_delta_log/")
        proxy.shutdown()


BY_A_WRONG_CLOCK = """
import json, sys
from tests.connectors.objects.test_bad_stores import asked
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.options import SINK

said = asked(ObjectsAddress.of("kept", SINK.filled(json.load(sys.stdin))))
print(json.dumps({way: told and [type(told).__name__, told.code, str(told), told.remedy] for way, told in said.items()}))
"""


@pytest.fixture(scope="module")
def shifting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that sets a process's clock wrong."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make a wrong clock with")
    library = tmp_path_factory.mktemp("clock") / "shifted.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, Path(__file__).with_name("shifted.c")], check=True, timeout=60)
    return library


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are loaded before others on Linux")
@pytest.mark.parametrize("shift_s", [0, HOUR_S, -HOUR_S])
def test_a_clock_that_is_wrong_by_an_hour_is_told(server: ObjectServer, prefix: str, shifting: Path, shift_s: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BY_A_WRONG_CLOCK],
        input=json.dumps(options(server, prefix)),
        env=os.environ | {"LD_PRELOAD": str(shifting), "SHIFT": str(shift_s)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    if not shift_s:
        assert not any(said.values())
        return
    del said["head"]  # its answer has no text
    for kind, code, message, remedy in said.values():
        assert (kind, code) == ("SinkError", "objects-clock")
        assert "RequestTimeTooSkewed" in message
        assert "set this machine's clock" in remedy
