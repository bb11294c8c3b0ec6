"""Clients as others make them, each in a process of its own, against a gateway: those that are on the path here.

curl always is. Fluent Bit, rsyslog with omhttp, and an OpenTelemetry collector with the OTLP receiver and exporter are rare, and builds of
them differ: tests with them are long, and elsewhere the recorded requests of `test_foreign.py` stand for them.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from scribengin.gateway.directory import AgentTokens
from tests.gateway.gateways import LANE, DirectoryInMemory, StoreInMemory, gateway
from tests.gateway.test_otlp import RECORD, REQUEST
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway.gateways import RunningGateway

PATH = f"/edge/v1/lanes/{LANE}/records"


@pytest.fixture
def store() -> StoreInMemory:
    return StoreInMemory()


@pytest.fixture
def one(store: StoreInMemory) -> Iterator[RunningGateway]:
    with gateway(store, DirectoryInMemory(tokens=AgentTokens.of_text("shop: one", "t"))) as running:
        yield running


def client(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on the path")
    return found


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "client.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stored(store: StoreInMemory) -> list[Any]:
    return [json.loads(record) for record in store.records(once=True)]


@pytest.mark.parametrize(
    "words", [["-d", '{"n":1}'], ["--data-binary", "@lines"], ["--data-binary", "@large"]], ids=["-d", "lines", "large"]
)
def test_curl(one: RunningGateway, store: StoreInMemory, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "lines").write_text('{"n":1}\n{"n":2}\n')
    (tmp_path / "large").write_text('{"n":1}\n' * 400_000)  # announced with Expect: 100-continue
    command = [client("curl"), "-sS", "--fail-with-body", "-H", "Authorization: Bearer one", *words, one.server.url + PATH]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert (
        json.loads(answer.stdout)["records"]
        == len(stored(store))
        == {"-d": 1, "@lines": 2, "@large": 400_000}[words[-1] if words[-1][0] == "@" else "-d"]
    )


def test_curl_that_is_refused_gets_the_answer_and_not_a_broken_connection(
    one: RunningGateway, store: StoreInMemory, tmp_path: Path
) -> None:
    (tmp_path / "huge").write_bytes(b'{"n":1}\n' * 3_000_000)
    command = [client("curl"), "-sS", "-H", "Authorization: Bearer one", "-H", "Expect:", "--data-binary", "@huge", one.server.url + PATH]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert "accepted are up to" in json.loads(answer.stdout)["message"]


@pytest.mark.long
@pytest.mark.parametrize("how", ["json", "json_lines", "json_stream", "msgpack", "gzip"])
def test_fluent_bit(one: RunningGateway, store: StoreInMemory, tmp_path: Path, how: str) -> None:
    (tmp_path / "in.log").write_text("".join(f"line {n}\n" for n in range(1000)))
    output = {"host": "127.0.0.1", "port": one.server.port, "uri": PATH, "http_user": "shop", "http_passwd": "one"}
    output |= {"format": "json", "compress": "gzip"} if how == "gzip" else {"format": how}
    command = [client("fluent-bit"), "-i", "tail", "-p", "path=in.log", "-p", "read_from_head=true", "-o", "http", "-m", "*"]
    command += [word for key, value in output.items() for word in ("-p", f"{key}={value}")]
    with running([*command, "-f", "1"], tmp_path):
        look_until(lambda: len(store.records(once=True)) >= 1000, "all lines are stored", 60)
    records = stored(store)
    assert [record["log"] for record in records] == [f"line {n}" for n in range(1000)]
    assert all(abs(record["date"] - time.time()) < 600 for record in records)
    assert {each.agent for each in store.arrivals} == {"gateway/shop"}


@pytest.mark.long
def test_fluent_bit_keeps_what_is_refused_for_a_while(one: RunningGateway, store: StoreInMemory, tmp_path: Path) -> None:
    store.fault = "the disk is full"
    (tmp_path / "in.log").write_text("".join(f"line {n}\n" for n in range(10)))
    command = [client("fluent-bit"), "-i", "tail", "-p", "path=in.log", "-p", "read_from_head=true", "-o", "http", "-m", "*"]
    for word in (
        "host=127.0.0.1",
        f"port={one.server.port}",
        f"uri={PATH}",
        "header=Authorization Bearer one",
        "format=json",
        "retry_limit=false",
    ):
        command += ["-p", word]
    with running([*command, "-f", "1"], tmp_path):
        look_until(lambda: one.app.counters.answers.get(("records", 503)), "it is refused", 60)
        store.fault = ""
        look_until(lambda: len(store.records(once=True)) >= 10, "all lines are stored", 60)
    assert {record["log"] for record in stored(store)} == {f"line {n}" for n in range(10)}


@pytest.mark.long
def test_fluent_bit_with_otlp(one: RunningGateway, store: StoreInMemory, tmp_path: Path) -> None:
    (tmp_path / "in.log").write_text("one\ntwo\n")
    program = client("fluent-bit")
    if "opentelemetry" not in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("this build of fluent-bit has no output of that name")
    command = [program, "-i", "tail", "-p", "path=in.log", "-p", "read_from_head=true", "-o", "opentelemetry", "-m", "*"]
    for word in ("host=127.0.0.1", f"port={one.server.port}", "logs_uri=/v1/logs", "header=Authorization Bearer one"):
        command += ["-p", word]
    with running([*command, "-f", "1"], tmp_path):
        look_until(lambda: len(store.records(once=True)) >= 2, "all lines are stored", 60)
    assert [record["body"] for record in stored(store)] in (["one", "two"], [{"log": "one"}, {"log": "two"}])


RSYSLOG = """\
module(load="imfile") module(load="omhttp")
global(workDirectory="{folder}")
template(name="line" type="list" option.jsonf="on") {{ property(outname="message" name="msg" format="jsonf") }}
input(type="imfile" File="{folder}/in.log" Tag="t")
action(type="omhttp" server="127.0.0.1" serverport="{port}" restpath="{path}" usehttps="off" template="line" uid="shop" pwd="one" {more})
"""
BATCHES = {
    "single": "",
    "newline": 'batch="on" batch.format="newline" batch.maxsize="100"',
    "jsonarray": 'batch="on" batch.format="jsonarray" batch.maxsize="100"',
    "gzip": 'batch="on" batch.format="newline" compress="on"',
}


@pytest.mark.long
@pytest.mark.parametrize("how", BATCHES)
def test_rsyslog(one: RunningGateway, store: StoreInMemory, tmp_path: Path, how: str) -> None:
    binary = client("rsyslogd")
    (tmp_path / "in.log").write_text("".join(f"line {n}\n" for n in range(300)))
    config = RSYSLOG.format(folder=tmp_path, port=one.server.port, path=PATH.lstrip("/"), more=BATCHES[how])
    (tmp_path / "rsyslog.conf").write_text(config)
    checked = subprocess.run([binary, "-N1", "-f", tmp_path / "rsyslog.conf"], capture_output=True, text=True, check=False)
    if "omhttp" in checked.stderr and "could not load module" in checked.stderr:
        pytest.skip("rsyslogd has no omhttp")
    with running([binary, "-n", "-f", str(tmp_path / "rsyslog.conf"), "-i", str(tmp_path / "pid")], tmp_path):
        look_until(lambda: len(store.records(once=True)) >= 300, "all lines are stored", 60)
    assert sorted(record["message"].strip() for record in stored(store)) == sorted(f"line {n}" for n in range(300))


OTELCOL = """\
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{own}"}}}}}}}}
exporters: {{otlphttp: {{endpoint: "{url}", encoding: {encoding}, compression: {compression}, headers: {{Authorization: "Bearer one"}}}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp]}}}}
"""


@pytest.mark.long
@pytest.mark.parametrize(("encoding", "compression"), [("proto", "gzip"), ("json", "none"), ("proto", "zstd")])
def test_opentelemetry_collector(one: RunningGateway, store: StoreInMemory, tmp_path: Path, encoding: str, compression: str) -> None:
    own = free_port()
    config = OTELCOL.format(own=own, url=one.server.url, encoding=encoding, compression=compression)
    (tmp_path / "otelcol.yaml").write_text(config)
    store.fault = "the disk is full"

    def posted() -> bool:
        try:
            return httpx2.post(f"http://127.0.0.1:{own}/v1/logs", json=REQUEST, trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False

    with running([client("otelcol"), "--config", "file:otelcol.yaml"], tmp_path):
        look_until(posted, "the collector takes logs", 60)
        look_until(lambda: one.app.counters.answers.get(("logs", 503)), "the gateway refuses", 60)
        store.fault = ""
        look_until(lambda: store.arrivals, "the collector sends again", 60)
    assert stored(store) == [RECORD]
