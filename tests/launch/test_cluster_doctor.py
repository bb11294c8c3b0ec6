"""`doctor --cluster` against a real YARN, Kubernetes and standalone cluster, and what it finds if a part of them is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.core.process import within
from scribengin.launch.yarn_cluster import Application, yarn_user

if TYPE_CHECKING:
    from pathlib import Path

    from launch_benches import KubernetesBench

    from scribengin.embedded.standalone import StandaloneCluster
    from scribengin.embedded.yarn import Yarn

WITHIN_S = 600.0
HOSTS = ("host Python", "host Scribengin", "host PySpark", "host Java", "host clocks", "host files")
FLOW = """\
version: 1
name: numbers
sources: {{numbers: {{type: files, path: data, format: json, schema: "id BIGINT"}}}}
sinks: {{kept: {{from: numbers, type: {sink}, format: json}}}}
"""


def doctor(folder: Path, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit status, and the findings by name."""
    command = [sys.executable, "-m", "scribengin.cli", "doctor", "--json", "--timeout", f"{WITHIN_S:.0f}s", *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=2 * WITHIN_S)
    assert ended.returncode in (0, 3), ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    assert all(problem["remedy"] for problem in answer["problems"])
    return ended.returncode, {each["check"]: each for each in answer["result"]["checks"]}


def not_ok(found: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The findings that are not ok, but for what depends on how full this machine is."""
    return {check: each for check, each in found.items() if each["state"] != "ok" and check not in ("memory", "state", "scratch")}


def in_yarn(yarn: Yarn, folder: Path, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    return doctor(folder, "--cluster", "yarn", "--yarn-conf", str(yarn.conf), *words)


def left_behind(yarn: Yarn) -> list[str]:
    """What jobs have left in the folder of this user in HDFS."""
    home = HdfsPath.of(f"{yarn.hdfs.uri}/user/{yarn_user()}")
    staging = home / ".sparkStaging"
    found = [*(home.iterdir() if home.exists() else ()), *(staging.iterdir() if staging.exists() else ())]
    return [str(path) for path in found if path.name != ".sparkStaging"]


def flow_of(folder: Path, sink: str) -> Path:
    (folder / "data").mkdir()
    (folder / "data" / "a.jsonl").write_text('{"id": 1}\n')
    (folder / "flow.yaml").write_text(FLOW.format(sink=sink))
    return folder / "flow.yaml"


@pytest.mark.timeout(1500)
def test_a_whole_yarn_is_well_and_its_hosts_reach_the_flow(yarn: Yarn, tmp_path: Path) -> None:
    state, flow = f"{yarn.hdfs.uri}/doctor-state", flow_of(tmp_path, f'hdfs, url: "{yarn.hdfs.uri}/numbers"')
    status, found = in_yarn(yarn, tmp_path, "--state", state, "--flow", str(flow), "--yarn-queue", "default")
    assert not_ok(found) == {}
    assert status == 0
    assert found["job"]["found"].startswith("driver on ")
    assert f"{sys.version_info.major}.{sys.version_info.minor}." in found["host Python"]["found"]
    assert state in found["host files"]["found"]
    assert [found[check]["found"].partition(" on ")[0] for check in ("source numbers", "sink kept")] == ["exists", "answers"]
    assert [*HdfsPath.of(state).iterdir()] == []
    assert left_behind(yarn) == []


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("words", "check", "found", "remedy"),
    [
        pytest.param(("--yarn-queue", "no-such-queue"), "queue", "there is no queue no-such-queue", "--yarn-queue: default", id="queue"),
        pytest.param(
            ("--yarn-python", "/no/python"), "job", "cannot start /no/python", "--yarn-python", id="Python", marks=pytest.mark.long
        ),
        pytest.param(
            ("--spark-conf", "spark.executor.memory=64g"),
            "job",
            "a container can have 8192 MB",
            "request less memory",
            id="memory",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_keeps_workers_from_running_in_yarn_is_found(
    yarn: Yarn, tmp_path: Path, words: tuple[str, str], check: str, found: str, remedy: str
) -> None:
    status, findings = in_yarn(yarn, tmp_path, *words)
    assert status == 3
    assert (findings[check]["state"], found in findings[check]["found"], remedy in findings[check]["remedy"]) == ("missing", True, True)
    assert not any(each in findings for each in HOSTS)
    assert left_behind(yarn) == []


@pytest.mark.timeout(900)
def test_hdfs_in_safe_mode_and_a_user_without_a_folder_are_found(yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yarn.hdfs.admin("-safemode", "enter")
    try:
        status, findings = in_yarn(yarn, tmp_path, "--state", f"{yarn.hdfs.uri}/state")
    finally:
        yarn.hdfs.admin("-safemode", "leave")
    assert status == 3
    for check in ("state", "HDFS"):
        assert (findings[check]["state"], "safe mode" in findings[check]["found"]) == ("missing", True)
    assert findings["job"]["found"] == "not run, because of what is missing"
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody-of-these-tests")
    status, findings = in_yarn(yarn, tmp_path)
    assert (status, findings["HDFS"]["state"]) == (3, "missing")
    assert "hdfs dfs -mkdir -p /user/nobody-of-these-tests" in findings["HDFS"]["remedy"]


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_an_interrupted_check_leaves_no_application_and_no_files(yarn: Yarn, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scribengin.cli", "doctor", "--cluster", "yarn", "--yarn-conf", str(yarn.conf)]
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "its driver runs" in line:
                process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    applications = msgspec.convert(yarn.resource_manager.read("/ws/v1/cluster/apps")["apps"]["app"], list[Application])
    assert [each.id for each in applications if each.name == "scribengin-doctor" and each.is_live] == []
    assert within(WITHIN_S, lambda: left_behind(yarn) == []), left_behind(yarn)
    assert [*(tmp_path / "tmp").iterdir()] == []


@pytest.mark.timeout(1500)
def test_a_whole_standalone_cluster_is_well_and_its_hosts_reach_the_flow(cluster: StandaloneCluster, tmp_path: Path) -> None:
    words = ("--cluster", "standalone", "--spark-master", cluster.address, "--spark-web", cluster.web)
    flow = flow_of(tmp_path, "files, path: out")
    status, found = doctor(tmp_path, *words, "--state", str(tmp_path / "state"), "--flow", str(flow))
    assert not_ok(found) == {}
    assert status == 0
    assert {*HOSTS, "Spark master", "nodes", "clock", "job", "source numbers", "sink kept"} <= found.keys()
    assert [*(tmp_path / "state").iterdir()] == []
    assert within(WITHIN_S, lambda: not cluster.read_state()["activeapps"])


def in_kubernetes(bench: KubernetesBench, *words: str, config: Path | None = None) -> tuple[int, dict[str, dict[str, str]]]:
    options = {"config": config or bench.plane.kubeconfig, "namespace": bench.namespace, "image": "scribengin", "api": bench.plane.server}
    options |= {"python": sys.executable, "service-account": "driver"}
    given = [str(word) for name, value in options.items() for word in (f"--kubernetes-{name}", value)]
    return doctor(bench.folder, "--cluster", "kubernetes", *given, *words)


def pods_of(bench: KubernetesBench) -> list[str]:
    return [each["metadata"]["name"] for each in bench.plane.api.get(f"/api/v1/namespaces/{bench.namespace}/pods")["items"]]


@pytest.mark.timeout(1500)
def test_a_whole_kubernetes_is_well_and_its_hosts_reach_the_flow(kubernetes: KubernetesBench, driver_rights: str) -> None:
    assert driver_rights == "driver"
    flow = flow_of(kubernetes.folder, f"files, path: {kubernetes.folder}/out")
    status, found = in_kubernetes(kubernetes, "--state", str(kubernetes.folder / "state"), "--flow", str(flow))
    assert not_ok(found) == {}
    assert status == 0
    assert found["job"]["found"].startswith("driver on ")
    assert {"rights", "source numbers", "sink kept", *HOSTS} <= found.keys()
    assert pods_of(kubernetes) == []


@pytest.mark.timeout(900)
def test_what_keeps_workers_from_running_in_kubernetes_is_found(kubernetes: KubernetesBench) -> None:
    kubernetes.bind("viewer", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}])
    config = kubernetes.plane.service_account_config(kubernetes.namespace, "viewer")
    status, found = in_kubernetes(kubernetes, config=config)
    assert (status, found["rights"]["state"]) == (3, "missing")
    assert "this account may not create pods, patch pods, delete pods, create configmaps" in found["rights"]["found"]
    assert "bind the Role of the Helm chart" in found["rights"]["remedy"]
    assert not any(each in found for each in HOSTS)
    status, found = in_kubernetes(kubernetes, "--spark-conf", "spark.driver.memory=900g", "--timeout", "20s")
    assert (status, found["job"]["state"]) == (3, "missing")
    assert pods_of(kubernetes) == []
