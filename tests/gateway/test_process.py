"""A gateway in a process of its own: killed at any moment under load, ended in order, and what it refuses to start with."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

import httpx2
import pytest
from click.testing import CliRunner

from scribengin.cli.main import scribengin
from scribengin.gateway.process import address_of
from scribengin.gateway.serving import GatewayListen
from tests.gateway.gateway_process import FLOW, GatewayProcess, gateway_process, records_in
from tests.gateway.gateways import LANE, frame
from tests.looking import look_until

if TYPE_CHECKING:
    from pathlib import Path


class Sender(threading.Thread):
    """An agent that sends one record after another, again and again until it is stored."""

    def __init__(self, name: str, urls: list[str], total: int) -> None:
        super().__init__()
        self.agent = name
        self.urls = urls
        self.total = total
        self.stored = 0

    def run(self) -> None:
        headers = {"Scribengin-Agent": self.agent, "Scribengin-Incarnation": "i", "Scribengin-Committed": "0"}
        with httpx2.Client(trust_env=False, timeout=60) as client:
            while self.stored < self.total:
                body = b"".join(frame(n, f"{self.agent}-{n}") for n in range(self.stored, min(self.stored + 3, self.total)))
                for url in list(self.urls):
                    try:
                        answer = client.post(f"{url}/edge/v1/lanes/{LANE}/frames", content=body, headers=headers)
                    except httpx2.HTTPError:
                        continue
                    if answer.status_code in (200, 409):
                        self.stored = answer.json().get("stored", 0)
                        break
                else:
                    time.sleep(0.02)


def test_a_gateway_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    urls: list[str] = []
    senders = [Sender(f"a{n}", urls, 600) for n in range(3)]
    running: GatewayProcess | None = None
    try:
        for turn in range(4):
            running = GatewayProcess(tmp_path, "g1").wait_ready()
            urls[:] = [running.url]
            if turn == 0:
                for sender in senders:
                    sender.start()
            goals = {sender: min(sender.stored + 60, 600) for sender in senders}
            look_until(lambda goals=goals: all(each.stored >= goal for each, goal in goals.items()), "it stores", 60, 0.001)
            if turn < 3:
                running.kill()
        for sender in senders:
            sender.join(120)
            assert not sender.is_alive()
        assert running is not None
        assert running.end() == 0
    finally:
        urls[:] = []
        for sender in senders:
            sender.total = 0
        if running is not None and running.process.poll() is None:
            running.kill()
    found = records_in(tmp_path)
    assert found == {(f"a{n}", "i"): [f"a{n}-{k}".encode() for k in range(600)] for n in range(3)}


def test_agents_fail_over_to_another_gateway_of_the_same_channel(tmp_path: Path) -> None:
    with gateway_process(tmp_path, "g1") as first, gateway_process(tmp_path, "g2") as second:
        urls = [first.url, second.url]
        sender = Sender("a", urls, 300)
        sender.start()
        look_until(lambda: sender.stored > 50, "the first one stores", 60, 0.001)
        first.kill()
        sender.join(120)
        assert not sender.is_alive()
    assert records_in(tmp_path) == {("a", "i"): [f"a-{k}".encode() for k in range(300)]}


def test_sigterm_ends_a_gateway_with_0(tmp_path: Path) -> None:
    with gateway_process(tmp_path) as running, httpx2.Client(base_url=running.url, trust_env=False) as client:
        posted = client.post(f"/edge/v1/lanes/{LANE}/records", content=b'{"message":"a"}')
        assert posted.status_code == 200
        assert running.end() == 0
        with pytest.raises(httpx2.ConnectError):
            client.get("/health")
        assert "the gateway stops" in running.log
    ((key, records),) = records_in(tmp_path).items()
    assert key[0] == "gateway/client"
    assert records == [b'{"message":"a"}']


def test_no_token_gets_into_the_log(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("web1: very-secret-token\n")
    with gateway_process(tmp_path, "g1", "--tokens", "tokens") as running, httpx2.Client(base_url=running.url, trust_env=False) as client:
        for token in ("very-secret-token", "another-secret-token"):
            client.post(f"/edge/v1/lanes/{LANE}/records", content=b"{}", headers={"Authorization": f"Bearer {token}"})
            client.post("/edge/v1/report", content=b"}", headers={"Authorization": f"Bearer {token}"})
        running.end()
        assert "secret" not in running.log


def test_an_agent_gets_the_gateways_of_the_command_line_or_this_one(tmp_path: Path) -> None:
    with gateway_process(tmp_path) as running:
        config = httpx2.get(f"{running.url}/edge/v1/config?agent=web1", trust_env=False).json()
        assert config["gateways"] == [{"url": running.url, "cost": 1.0}]
    with gateway_process(tmp_path, "g1", "--member", "https://a:1", "--member", "https://b:1=2.5") as running:
        config = httpx2.get(f"{running.url}/edge/v1/config?agent=web1", trust_env=False).json()
        assert config["gateways"] == [{"url": "https://a:1", "cost": 1.0}, {"url": "https://b:1", "cost": 2.5}]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--listen", "0.0.0.0:0"], "tokens would be sent in plain text"),
        (["--listen", "nonsense"], '"nonsense" is not a valid address'),
        (["--listen", "127.0.0.1:99999"], "is not a valid address"),
        (["--listen", "192.0.2.1:0"], "the gateway cannot listen at 192.0.2.1:0"),
        (["--tls-certificate", "c.pem"], "TLS needs a certificate and its key"),
        (["--tls-certificate", "c.pem", "--tls-key", "k.pem"], "TLS cannot use"),
        (["--client-ca", "c.pem"], "client certificates need TLS"),
        (["--tokens", "none"], "none cannot be read"),
        (["--member", "http://a=b"], "is not a valid member"),
        (["--flow", "other.yaml"], "other.yaml"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.yaml").write_text(FLOW)
    given = ["--flow", "flow.yaml", "--insecure" if "192.0.2.1:0" in words else "--name=g", *words]
    ended = CliRunner().invoke(scribengin, ["gateway", "run", *given])
    assert ended.exit_code in (2, 3)
    assert why in " ".join(ended.output.split())
    assert "Traceback" not in ended.output


def test_insecure_allows_other_hosts(tmp_path: Path) -> None:
    GatewayListen(*address_of("0.0.0.0:1"), insecure=True).check(tokens=False)
    GatewayListen(*address_of("[::1]:1")).check(tokens=False)


def test_the_reports_of_agents_survive_a_kill(tmp_path: Path) -> None:
    with gateway_process(tmp_path) as running:
        report = {"agent": "web1", "host": "h", "lanes": {LANE: {"read": 7}}}
        assert httpx2.post(f"{running.url}/edge/v1/report", content=json.dumps(report), trust_env=False).status_code == 200
        running.kill()
    with gateway_process(tmp_path) as running:
        (agent,) = httpx2.get(f"{running.url}/edge/v1/agents", trust_env=False).json()["agents"]
    assert (agent["agent"], agent["lanes"][LANE]["backlog"]) == ("web1", 7)
