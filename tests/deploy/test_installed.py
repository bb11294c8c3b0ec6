"""Helm installs the chart over a real API server, in a namespace that enforces the restricted Pod Security Standard. Masters run as pods of
the kubelet of the tests: with the secrets, TLS, tokens and names that the chart gives them."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from scribengin.api.token_file import TokenFile
from scribengin.core.process import within
from scribengin.embedded.server import free_ports
from scribengin.embedded.zookeeper import ZooKeeper
from tests.deploy.chart import CHART, NAMESPACE, helm

kubernetes = pytest.importorskip("harness.kubernetes")

if TYPE_CHECKING:
    from pathlib import Path

# the names that DNS has in a cluster. All pods have the address 127.0.0.1, and two masters cannot share a port of it
_NAMES = """
import re, socket
_name = re.compile(r"scribengin-[a-z]+-([0-9])[.]scribengin-[a-z]+[.]flows[.]svc[.]cluster[.]local")
def _address(host):
    known = _name.fullmatch(host) if isinstance(host, str) else None
    return f"127.0.0.{int(known[1]) + 1}" if known else host
_resolve, _bind = socket.getaddrinfo, socket.socket.bind
socket.getaddrinfo = lambda host, *rest, **named: _resolve(_address(host), *rest, **named)
socket.socket.bind = lambda self, at: _bind(self, (_address(at[0]), *at[1:]) if isinstance(at, tuple) else at)
"""
_SUBJECTS = ",".join(f"DNS:*.scribengin-{kind}.flows.svc.cluster.local" for kind in ("masters", "nodes"))
_WITHIN_S = 240.0


@pytest.mark.timeout(900)
def test_masters_are_installed_upgraded_and_removed_in_a_restricted_namespace(tmp_path: Path) -> None:
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "sitecustomize.py").write_text(_NAMES)
    path = os.pathsep.join([str(tmp_path / "names"), *sys.path])
    key, certificate = tmp_path / "tls.key", tmp_path / "tls.crt"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=flows",
    ]
    subprocess.run(
        [*command, "-addext", f"subjectAltName={_SUBJECTS}", "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    tokens = TokenFile(tmp_path / "tokens.json")
    own, service = tokens.add("ann", "editor", {}), tokens.add("service", "viewer", {})
    secrets: dict[str, dict[str, bytes]] = {
        "registry-login": {"login": b"flows:some-long-password"},
        "first-tokens": {"tokens.json": tokens.path.read_bytes()},
        "service-token": {"token": service.encode()},
        "api-tls": {"tls.key": key.read_bytes(), "tls.crt": certificate.read_bytes(), "ca.crt": certificate.read_bytes()},
    }
    (port,) = free_ports(1)
    entry = [sys.executable, "-m", "scribengin.worker.image_entry"]
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        kubernetes.KubeCluster(tmp_path / "kube") as cluster,
        kubernetes.ScriptedKubelet(cluster, entrypoints={"scribengin:0.1.0": entry}, environment={"PYTHONPATH": path}),
    ):
        api = cluster.api
        cluster.create_namespace(NAMESPACE)
        api.patch(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
        for name, data in secrets.items():
            texts = {key: b64encode(value).decode() for key, value in data.items()}
            api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": {"name": name}, "data": texts})
        values: dict[str, Any] = {
            "registry": {"address": f"zk://{zookeeper.address}/flows", "existingSecret": "registry-login"},
            "state": "hdfs://namenode:8020/flows",
            "tls": {"existingSecret": "api-tls"},
            "tokens": {"existingSecret": "first-tokens"},
            "token": {"existingSecret": "service-token"},
            "masters": {"persistence": {"enabled": False}, "port": port},
            "nodes": {"replicas": 0},  # they need the launcher, which has tests of its own
            "networkPolicy": {"enabled": True},
        }
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        to = ("--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig))

        def pods() -> list[Any]:
            found: list[Any] = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
            return found

        def is_up(generation: int) -> bool:
            now = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/scribengin-master")["status"]
            is_new = now.get("observedGeneration") == generation and now.get("currentRevision") == now.get("updateRevision")
            return is_new and now.get("readyReplicas") == 2

        def events() -> list[str]:
            return [each["message"] for each in api.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"] if each["type"] != "Normal"]

        def listed(number: int, token: str) -> subprocess.CompletedProcess[str]:
            master = f"https://scribengin-master-{number}.scribengin-masters.flows.svc.cluster.local:{port}"
            environment = {**os.environ, "PYTHONPATH": path, "SCRIBENGIN_TOKEN": token, "SCRIBENGIN_CERTIFICATES": str(certificate)}
            words = [sys.executable, "-m", "scribengin.cli", "list", "--master", master]
            return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

        installed = helm("install", "scribengin", CHART, *to, "--values", tmp_path / "values.yaml")
        assert installed.returncode == 0, installed.stderr
        assert within(_WITHIN_S, lambda: is_up(1)), events()
        for number in (0, 1):
            assert listed(number, own).returncode == listed(number, service).returncode == 0, listed(number, own).stderr
            assert "token-unknown" in listed(number, f"{own}x").stderr
        first = {pod["metadata"]["uid"] for pod in pods()}
        upgraded = helm("upgrade", "scribengin", CHART, *to, "--values", tmp_path / "values.yaml", "--set", "masters.keepVersions=7")
        assert upgraded.returncode == 0, upgraded.stderr
        assert within(_WITHIN_S, lambda: is_up(2)), events()
        assert len(pods()) == 2
        assert not first & {pod["metadata"]["uid"] for pod in pods()}
        assert listed(0, own).returncode == 0
        removed = helm("uninstall", "scribengin", *to)
        assert removed.returncode == 0, removed.stderr
        assert within(_WITHIN_S, lambda: not pods())
