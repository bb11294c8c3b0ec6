"""Helm installs the chart over a real API server, in a namespace that enforces the restricted Pod Security Standard. Masters and a node
run as pods of the kubelet of the tests: with the secrets, TLS, tokens and names that the chart gives them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harness import kubernetes
from harness.control_programs import numbers_flow
from scribengin.api.token_file import TokenFile
from scribengin.core.process import within
from scribengin.embedded.server import free_ports
from scribengin.embedded.zookeeper import ZooKeeper
from tests.deploy.chart import CHART, NAMESPACE, helm

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
_RESOURCES = "{executors: 1, cores: 1, memory: 512MiB, spark: {spark.driver.memory: 512m}}"
_SUBJECTS = ",".join(f"DNS:*.scribengin-{kind}.flows.svc.cluster.local" for kind in ("masters", "nodes"))
_WITHIN_S = 240.0


@pytest.mark.timeout(900)
def test_it_is_installed_runs_a_flow_is_upgraded_and_removed_in_a_restricted_namespace(tmp_path: Path) -> None:
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
    port, door = free_ports(2)
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
            "sharedVolume": {"existingClaim": "shared", "mountPath": "/shared-by-all-pods"},
            "state": "/shared-by-all-pods/flows",
            "workers": {"python": sys.executable, "api": cluster.server},
            "tls": {"existingSecret": "api-tls"},
            "tokens": {"existingSecret": "first-tokens"},
            "token": {"existingSecret": "service-token"},
            "masters": {"persistence": {"enabled": False}, "port": port},
            "nodes": {"replicas": 1, "port": door},
            "networkPolicy": {"enabled": True},
        }
        cluster.create_volume_claim(NAMESPACE, "shared", tmp_path / "shared")
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        to = ("--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig))

        def pods() -> list[Any]:
            found: list[Any] = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
            return found

        def is_up(generation: int) -> bool:
            for name, replicas, least in (("scribengin-master", 2, generation), ("scribengin-node", 1, 1)):
                now = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{name}")["status"]
                is_new = now.get("observedGeneration", 0) >= least and now.get("currentRevision") == now.get("updateRevision")
                if not is_new or now.get("readyReplicas") != replicas:
                    return False
            return True

        def events() -> list[str]:
            return [each["message"] for each in api.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"] if each["type"] != "Normal"]

        def listed(number: int, token: str, *words: str) -> subprocess.CompletedProcess[str]:
            master = f"https://scribengin-master-{number}.scribengin-masters.flows.svc.cluster.local:{port}"
            environment = {**os.environ, "PYTHONPATH": path, "SCRIBENGIN_TOKEN": token, "SCRIBENGIN_CERTIFICATES": str(certificate)}
            command = [sys.executable, "-m", "scribengin.cli", *(words or ("list",)), "--master", master]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        installed = helm("install", "scribengin", CHART, *to, "--values", tmp_path / "values.yaml")
        assert installed.returncode == 0, installed.stderr
        assert within(_WITHIN_S, lambda: is_up(1)), events()
        for number in (0, 1):
            assert listed(number, own).returncode == listed(number, service).returncode == 0, listed(number, own).stderr
            assert "token-unknown" in listed(number, f"{own}x").stderr
        nodes = listed(0, own, "node", "list")
        assert "scribengin-node-0" in nodes.stdout, nodes.stderr
        data, out = tmp_path / "data", tmp_path / "out"
        data.mkdir()
        (data / "a.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(100)))
        (tmp_path / "flow.yaml").write_text(numbers_flow("numbers", data, f"type: files, path: {out}", _RESOURCES))
        applied = listed(0, own, "apply", str(tmp_path / "flow.yaml"), "--wait", "8m")
        assert applied.returncode == 0, (applied.stderr, listed(0, own, "status", "numbers").stdout)

        def kept() -> list[int]:
            return sorted(json.loads(line)["id"] for path in out.glob("part-*") for line in path.read_text().splitlines())

        assert within(_WITHIN_S, lambda: kept() == list(range(1, 100, 2))), listed(0, own, "status", "numbers").stdout
        assert {"numbers-all-1", "scribengin-node"} <= {re.sub("-[0-9a-f]*$", "", pod["metadata"]["name"]) for pod in pods()}
        stopped = listed(0, own, "stop", "numbers", "--wait")
        assert stopped.returncode == 0, stopped.stderr
        assert within(_WITHIN_S, lambda: len(pods()) == 3), [pod["metadata"]["name"] for pod in pods()]
        first = {pod["metadata"]["uid"] for pod in pods() if "-master-" in pod["metadata"]["name"]}
        upgraded = helm("upgrade", "scribengin", CHART, *to, "--values", tmp_path / "values.yaml", "--set", "masters.keepVersions=7")
        assert upgraded.returncode == 0, upgraded.stderr
        assert within(_WITHIN_S, lambda: is_up(2)), events()
        assert len(pods()) == 3
        assert not first & {pod["metadata"]["uid"] for pod in pods()}
        assert listed(0, own).returncode == 0
        removed = helm("uninstall", "scribengin", *to)
        assert removed.returncode == 0, removed.stderr
        assert within(_WITHIN_S, lambda: not pods())
