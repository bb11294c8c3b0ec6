"""Configuration and reports of agents, the list of agents, metrics, and TLS."""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING

import httpx2
import pytest

from harness.kubernetes.certificates import CertificateAuthority
from scribengin.core.errors import EnvironmentFault, Refused
from scribengin.gateway.directory import AgentTokens, FileDirectory
from scribengin.gateway.serving import GatewayListen, names_of_certificate
from tests.gateway.gateways import LANE, DirectoryInMemory, StoreInMemory, frame, gateway, lane_of
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway.gateways import RunningGateway


@pytest.fixture
def store() -> StoreInMemory:
    return StoreInMemory()


@pytest.fixture
def directory() -> DirectoryInMemory:
    return DirectoryInMemory()


@pytest.fixture
def one(store: StoreInMemory, directory: DirectoryInMemory) -> Iterator[RunningGateway]:
    with gateway(store, directory) as running:
        yield running


def test_an_agent_gets_its_configuration_once(one: RunningGateway) -> None:
    answer = one.http.get("/edge/v1/config?agent=web1&group=web")
    assert answer.json()["revision"] == "r1"
    assert list(answer.json()["lanes"]) == [LANE]
    for revision in ("r1", '"r1"'):
        again = one.http.get("/edge/v1/config?agent=web1&group=web", headers={"If-None-Match": revision})
        assert (again.status_code, again.content) == (304, b"")
    assert one.http.get("/edge/v1/config?agent=web1&group=web", headers={"If-None-Match": "r0"}).status_code == 200
    assert one.http.get("/edge/v1/config").status_code == 400


def test_a_report_is_answered_with_the_revision_and_the_positions(one: RunningGateway, store: StoreInMemory) -> None:
    one.frames(frame(0, "a", "b"))
    store.committed["web1", "i1"] = 1
    report = {"agent": "web1", "group": "web", "lanes": {LANE: {"incarnation": "i1", "read": 5}, "web.gone": {}}}

    def answered() -> bool:
        answer = one.http.post("/edge/v1/report", json=report).json()
        return bool(answer == {"revision": "r1", "lanes": {LANE: {"stored": 2, "committed": 1}}})

    look_until(answered, "the commit is in the answer", 60)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"agent": 5}', b'{"lanes": {"x": {"read": "many"}}}', b"[" * 100_000])
def test_a_report_that_is_not_valid_is_refused(one: RunningGateway, body: bytes) -> None:
    answer = one.http.post("/edge/v1/report", content=body)
    assert answer.status_code == 400
    assert "is not a valid report" in answer.json()["message"]


def test_the_list_of_agents_and_metrics_are_for_administrators(one: RunningGateway, directory: DirectoryInMemory) -> None:
    one.http.post("/edge/v1/report", json={"agent": "web1", "host": "h1", "release": "0.1", "lanes": {LANE: {"read": 5, "committed": 2}}})
    directory.tokens = AgentTokens.of_text("web1: one\nops: two admin", "t")
    for path in ("/edge/v1/agents", "/metrics"):
        assert one.http.get(path).status_code == 401
        assert one.http.get(path, headers={"Authorization": "Bearer one"}).status_code == 403
    (row,) = one.http.get("/edge/v1/agents", headers={"Authorization": "Bearer two"}).json()["agents"]
    assert (row["agent"], row["host"], row["release"], row["lanes"][LANE]["backlog"]) == ("web1", "h1", "0.1", 3)
    assert one.http.get("/health").status_code == 200


def test_a_thousand_agents_are_listed(tmp_path: Path, store: StoreInMemory) -> None:
    """The figure is in benchmarks/edge_gateway.py."""
    directory = FileDirectory([], tmp_path)
    writes: list[int] = []
    directory._save = lambda: writes.append(len(directory.agents()))  # type: ignore[method-assign]
    began = time.monotonic()
    with gateway(store, directory) as one:
        for turn in range(2):
            for n in range(1000):
                report = {"agent": f"web{n:04}", "lanes": {LANE: {"read": turn}}}
                assert one.http.post("/edge/v1/report", json=report).status_code == 200
        rows = one.http.get("/edge/v1/agents").json()["agents"]
    assert [row["agent"] for row in rows] == [f"web{n:04}" for n in range(1000)]
    assert {row["lanes"][LANE]["backlog"] for row in rows} == {1}
    assert len(writes) <= 2 + (time.monotonic() - began) / 10, "all reports are written together, at most every 10 s"


def test_metrics_count_what_was_answered(one: RunningGateway) -> None:
    body = frame(0, "a", "b")
    one.frames(body)
    one.frames(body)
    one.frames(b"damaged")
    one.records(b"{}")
    text = one.http.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['scribengin_gateway_requests_total{route="frames",status="200"}'] == "2"
    assert lines['scribengin_gateway_requests_total{route="frames",status="400"}'] == "1"
    assert lines["scribengin_gateway_frames_total"] == "2"
    assert lines["scribengin_gateway_duplicates_total"] == "1"
    assert lines["scribengin_gateway_records_total"] == "1"
    assert int(lines[f'scribengin_gateway_appended_bytes_total{{lane="{LANE}"}}']) > len(body)
    assert lines[f'scribengin_gateway_channel_up{{lane="{LANE}"}}'] == "1"
    from prometheus_client.parser import text_string_to_metric_families

    assert {family.type for family in text_string_to_metric_families(text)} == {"counter", "gauge"}


def test_answers_do_not_wait_for_the_acknowledgement_of_their_first_packet(one: RunningGateway) -> None:
    one.http.get("/health")
    connections = list(one.server._server.server_state.connections)
    assert connections
    for each in connections:
        assert each.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # type: ignore[union-attr]


# TLS.


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "ca")


def context(authority: CertificateAuthority, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.certificate))
    if pair is not None:
        made.load_cert_chain(*pair)
    return made


def test_a_certificate_stands_for_a_token(
    authority: CertificateAuthority, store: StoreInMemory, directory: DirectoryInMemory, tmp_path: Path
) -> None:
    directory.tokens = AgentTokens.of_text("web2: two", "t")
    certificate, key = authority.issue("server", "gateway")
    listen = GatewayListen(certificate=certificate, key=key, client_ca=authority.certificate)
    other = CertificateAuthority(tmp_path / "other").issue("web1", "web1")
    with gateway(store, directory, listen, verify=context(authority, authority.issue("web1", "web1"))) as one:
        assert one.server.url.startswith("https://")
        assert one.frames(frame(0, "a")).status_code == 200
        assert one.frames(frame(0, "a"), agent="kubernetes").status_code == 200  # one of its other names
        refused = one.frames(frame(0, "a"), agent="web9")
        assert (refused.status_code, refused.json()["message"]) == (403, 'the certificate of "web1" is not valid for the agent "web9"')
        assert one.frames(frame(0, "a"), agent="web2", Authorization="Bearer two").status_code == 200
        assert one.records(b"{}").status_code == 200
        assert one.http.get("/edge/v1/agents").status_code == 403
        with httpx2.Client(base_url=one.server.url, trust_env=False, verify=context(authority)) as plain:
            assert plain.get("/edge/v1/config?agent=web1").status_code == 401
        with (
            httpx2.Client(base_url=one.server.url, trust_env=False, verify=context(authority, other)) as stranger,
            pytest.raises(httpx2.HTTPError),
        ):
            stranger.get("/edge/v1/config?agent=web1")
    assert {each.agent for each in store.arrivals} == {"web1", "kubernetes", "web2", "gateway/web1"}


def test_a_certificate_that_replaces_the_first_one_is_used(
    authority: CertificateAuthority, store: StoreInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scribengin.gateway.serving._RENEW_S", 0.05)
    certificate, key = authority.issue("server", "first")
    with gateway(store, None, GatewayListen(certificate=certificate, key=key), verify=context(authority)) as one:

        def shown() -> str:
            with (
                socket.create_connection(("127.0.0.1", one.server.port)) as plain,
                context(authority).wrap_socket(plain, server_hostname="localhost") as secure,
            ):
                return names_of_certificate(secure.getpeercert() or {})[0]

        assert shown() == "first"
        authority.issue("server", "second")
        look_until(lambda: shown() == "second", "the new certificate is shown", 60)


def test_other_hosts_need_tls_and_tokens(authority: CertificateAuthority) -> None:
    certificate, key = authority.issue("server", "gateway")
    with pytest.raises(Refused, match="plain text"):
        GatewayListen("0.0.0.0").check(tokens=True)
    with pytest.raises(Refused, match="no token or client certificate is required"):
        GatewayListen("0.0.0.0", certificate=certificate, key=key).check(tokens=False)
    GatewayListen("0.0.0.0", certificate=certificate, key=key).check(tokens=True)
    GatewayListen("0.0.0.0", certificate=certificate, key=key, client_ca=authority.certificate).check(tokens=False)
    GatewayListen("0.0.0.0", insecure=True).check(tokens=False)
    with pytest.raises(EnvironmentFault, match="TLS cannot use"):
        GatewayListen(certificate=certificate, key=certificate).check(tokens=True)


def test_two_lanes_do_not_share_positions(store: StoreInMemory, directory: DirectoryInMemory) -> None:
    directory.known["web.second"] = lane_of()
    with gateway(store, directory) as one:
        one.frames(frame(0, "a"))
        headers = {"Scribengin-Agent": "web1", "Scribengin-Incarnation": "i9"}
        assert one.http.post("/edge/v1/lanes/web.second/frames", content=frame(0, "b"), headers=headers).json() == {"stored": 1}
        assert sorted(one.app._writers) == [LANE, "web.second"]
