"""Pods in a real Kubernetes: what arrives in them, what is reported of them, and what goes wrong on a node."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scribengin.core.process import birth_of, within
from scribengin.embedded.server import free_ports

sys.path.insert(0, str(Path(__file__).parent))

from conftest import WITHIN_S, state_of

if TYPE_CHECKING:
    from conftest import Bench, Json

READ = """
import os, pathlib, sys
print(pathlib.Path("/etc/flow/flow.yaml").read_text())
print(pathlib.Path(sys.argv[1]).read_text(), os.environ["GREETING"], os.environ["KEY"], os.environ["NAME"], os.environ["IP"])
print(os.environ["PLAIN"], os.environ["AT"])
sys.exit(3)
"""


def test_a_pod_gets_its_configmap_and_its_secret_and_its_log_and_exit_code_come_back(bench: Bench) -> None:
    api = bench.cluster.api
    api.create(f"{bench.path}/configmaps", {"metadata": {"name": "flow"}, "data": {"flow.yaml": "path: /etc/flow/x", "greeting": "hello"}})
    secret = {"metadata": {"name": "keys"}, "data": {"key": base64.b64encode(b"s3cret").decode()}}
    api.create(f"{bench.path}/secrets", secret)
    bench.pod(
        "one",
        ["python", "-c", READ, "$(AT)/key"],
        env=[
            {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "flow", "key": "greeting"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "PLAIN", "value": "$(GREETING) $$(GREETING)"},
            {"name": "AT", "value": "/etc/keys"},
        ],
        volumeMounts=[{"name": "flow", "mountPath": "/etc/flow"}, {"name": "keys", "mountPath": "/etc/keys"}],
        more={"volumes": [{"name": "flow", "configMap": {"name": "flow"}}, {"name": "keys", "secret": {"secretName": "keys"}}]},
    )
    pod = bench.wait_phase("one", "Failed")
    first, second, third = bench.log("one").splitlines()
    volume = bench.node.folder / "pods" / pod["metadata"]["uid"] / "volumes"
    assert first == f"path: {volume}/flow/x"
    assert second == "s3cret hello s3cret one 127.0.0.1"
    assert third == f"hello $(GREETING) {volume}/keys"
    ended = state_of(pod)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert bench.log("one", tailLines="1").startswith("hello $")
    assert bench.log("one", limitBytes="4") == "path"


def test_a_pod_that_succeeds_is_not_started_again(bench: Bench) -> None:
    bench.pod("one", ["true"], more={"restartPolicy": "OnFailure"})
    pod = bench.wait_phase("one", "Succeeded")
    assert state_of(pod)["terminated"]["reason"] == "Completed"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_container_that_fails_is_started_again(bench: Bench, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    bench.pod("one", ["sh", "-c", f"echo run >> {runs}; exit 7"], more={"restartPolicy": "Always"})
    pod = bench.wait_for("one", lambda pod: pod["status"].get("containerStatuses", [{"restartCount": 0}])[0]["restartCount"] >= 3)
    status = pod["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert within(WITHIN_S, lambda: len(runs.read_text().splitlines()) > status["restartCount"])
    uid = pod["metadata"]["uid"]
    bench.cluster.api.delete(f"{bench.path}/pods/one")
    bench.wait_gone("one")
    logs = list((bench.node.folder / "pods" / uid / "logs").iterdir())
    assert len(logs) - len(runs.read_text().splitlines()) in (0, 1), "the last one may have been ended before it wrote"


def test_a_command_that_does_not_exist_fails(bench: Bench) -> None:
    bench.pod("one", ["/no/such/program"])
    assert state_of(bench.wait_phase("one", "Failed"))["terminated"]["reason"] == "StartError"


@pytest.mark.parametrize(
    ("code", "policy", "message"),
    [
        ("echo said > /dev/termination-log; exit 1", "File", "said\n"),
        ("echo logged; exit 1", "File", None),
        ("echo logged; exit 1", "FallbackToLogsOnError", "logged\n"),
        ("echo logged", "FallbackToLogsOnError", None),
    ],
)
def test_the_last_message_of_a_container(bench: Bench, code: str, policy: str, message: str | None) -> None:
    bench.pod("one", ["sh", "-c", code], terminationMessagePolicy=policy)
    assert state_of(bench.wait_phase("one", "Failed", "Succeeded"))["terminated"].get("message") == message


def test_init_containers_run_first(bench: Bench) -> None:
    shared = [{"name": "shared", "mountPath": "/shared"}]
    first = {"name": "first", "image": "any", "command": ["sh", "-c", "echo made > /shared/file"], "volumeMounts": shared}
    volumes = [{"name": "shared", "emptyDir": {}}]
    bench.pod("one", ["cat", "/shared/file"], volumeMounts=shared, more={"initContainers": [first], "volumes": volumes})
    bench.wait_phase("one", "Succeeded")
    assert bench.log("one") == "made\n"


def test_a_claimed_volume_is_a_folder_that_outlives_the_pod(bench: Bench, tmp_path: Path) -> None:
    bench.cluster.create_volume_claim(bench.namespace, "data", tmp_path / "data")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    bench.pod("one", ["sh", "-c", "echo kept > /data/file"], volumeMounts=mounts, more={"volumes": volumes})
    bench.wait_phase("one", "Succeeded")
    assert (tmp_path / "data" / "file").read_text() == "kept\n"


def test_the_pods_of_a_stateful_set_have_claims_of_their_own(bench: Bench) -> None:
    pods = {
        "metadata": {"labels": {"app": "store"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "any",
                    "command": ["sh", "-c", "echo $HOSTNAME >> /data/names; cat /data/names; sleep 1000"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "terminationGracePeriodSeconds": 1,
        },
    }
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    spec = {
        "serviceName": "store",
        "replicas": 2,
        "selector": {"matchLabels": {"app": "store"}},
        "template": pods,
        "volumeClaimTemplates": [claim],
    }
    sets = f"/apis/apps/v1/namespaces/{bench.namespace}/statefulsets"
    bench.cluster.api.create(sets, {"metadata": {"name": "store"}, "spec": spec})
    bench.wait_log("store-0", "store-0\n")
    bench.wait_log("store-1", "store-1\n")
    bench.cluster.api.delete(f"{bench.path}/pods/store-1")
    bench.wait_log("store-1", "store-1\nstore-1\n")
    assert bench.log("store-0") == "store-0\n"
    bench.cluster.api.delete(f"{sets}/store")
    bench.wait_gone("store-0")
    bench.wait_gone("store-1")


def test_an_image_that_is_missing_is_waited_for(bench: Bench) -> None:
    bench.node.missing_images.add("lost")
    bench.pod("one", ["true"], image="lost")
    pod = bench.wait_for("one", lambda pod: "ImagePullBackOff" in str(pod["status"]))
    assert pod["status"]["phase"] == "Pending"
    bench.wait_event("BackOff", "lost")
    bench.node.missing_images.clear()
    bench.wait_phase("one", "Succeeded")


def test_a_pod_that_asks_for_more_than_the_node_has_is_not_scheduled(bench: Bench) -> None:
    bench.pod("one", ["true"], resources={"requests": {"cpu": "64"}})
    bench.wait_event("FailedScheduling", "Insufficient cpu")
    assert bench.wait_phase("one", "Pending")["spec"].get("nodeName") is None


def test_a_missing_configmap_keeps_a_pod_waiting(bench: Bench) -> None:
    volumes = [{"name": "flow", "configMap": {"name": "flow"}}]
    bench.pod("one", ["cat", "/flow/key"], volumeMounts=[{"name": "flow", "mountPath": "/flow"}], more={"volumes": volumes})
    bench.wait_event("FailedMount", 'configmap "flow" not found')
    assert state_of(bench.wait_phase("one", "Pending"))["waiting"]["reason"] == "ContainerCreating"
    bench.cluster.api.create(f"{bench.path}/configmaps", {"metadata": {"name": "flow"}, "data": {"key": "came"}})
    bench.wait_phase("one", "Succeeded")
    assert bench.log("one") == "came"


def test_a_container_whose_memory_runs_out_is_killed(bench: Bench) -> None:
    bench.pod("one", ["sleep", "1000"])
    bench.wait_phase("one", "Running")
    bench.node.oom("one", bench.namespace)
    ended = state_of(bench.wait_phase("one", "Failed"))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_an_evicted_pod_says_why(bench: Bench) -> None:
    bench.pod("one", ["sleep", "1000"])
    bench.wait_phase("one", "Running")
    pid = bench.node.pid_of("one", bench.namespace)
    bench.node.evict("one", bench.namespace)
    status = bench.wait_phase("one", "Failed")["status"]
    assert status["reason"] == "Evicted"
    assert "low on resource: memory" in status["message"]
    assert "DisruptionTarget" in [each["type"] for each in status["conditions"]]
    assert birth_of(pid) is None


def test_a_pod_is_ready_when_its_probe_succeeds_and_not_before(bench: Bench, tmp_path: Path) -> None:
    served, (port,) = tmp_path / "served", free_ports(1)
    probe = {"httpGet": {"path": "/ready", "port": "web"}, "periodSeconds": 1, "failureThreshold": 1}
    command = ["python", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(served)]
    served.mkdir()
    bench.pod("one", command, readinessProbe=probe, ports=[{"name": "web", "containerPort": port}])
    bench.wait_event("Unhealthy", "statuscode: 404")
    assert not bench.wait_phase("one", "Running")["status"]["containerStatuses"][0]["ready"]
    (served / "ready").touch()
    bench.wait_for("one", lambda pod: pod["status"]["containerStatuses"][0]["ready"])
    (served / "ready").unlink()
    bench.wait_for("one", lambda pod: not pod["status"]["containerStatuses"][0]["ready"])


def test_a_container_that_does_not_live_is_started_again(bench: Bench, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    alive.touch()
    probe = {"exec": {"command": ["test", "-e", str(alive)]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60}
    bench.pod("one", ["sleep", "1000"], livenessProbe=probe, more={"restartPolicy": "Always", "terminationGracePeriodSeconds": 1})
    bench.wait_for("one", lambda pod: "running" in str(pod["status"]))
    alive.unlink()
    pod = bench.wait_for("one", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"])
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 143
    bench.wait_event("Killing", "failed liveness probe")


POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("asked", flush=True)))
print("ready", flush=True)
time.sleep(1000)
"""
STUBBORN = POLITE.replace("sys.exit(print", "(print")


def test_a_deleted_pod_may_end_by_itself(bench: Bench) -> None:
    bench.pod("one", ["python", "-c", POLITE])
    bench.wait_log("one", "ready")
    uid = bench.wait_phase("one", "Running")["metadata"]["uid"]
    bench.cluster.api.delete(f"{bench.path}/pods/one")
    bench.wait_gone("one")
    assert (bench.node.folder / "pods" / uid / "logs" / "main-0.log").read_text() == "ready\nasked\n"


def test_a_deleted_pod_that_does_not_end_is_killed_after_its_grace(bench: Bench) -> None:
    bench.pod("one", ["python", "-c", STUBBORN], more={"terminationGracePeriodSeconds": 2})
    bench.wait_log("one", "ready")
    pid = bench.node.pid_of("one", bench.namespace)
    bench.cluster.api.delete(f"{bench.path}/pods/one")
    bench.wait_gone("one")
    assert birth_of(pid) is None


def test_a_pod_ends_at_its_deadline(bench: Bench) -> None:
    bench.pod("one", ["sleep", "1000"], more={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1})
    assert bench.wait_phase("one", "Failed")["status"]["reason"] == "DeadlineExceeded"


def test_a_pod_ends_with_its_owner(bench: Bench) -> None:
    owner = bench.cluster.api.create(f"{bench.path}/configmaps", {"metadata": {"name": "owner"}})["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    bench.pod("one", ["sleep", "1000"], more={"metadata": {"ownerReferences": [reference]}, "terminationGracePeriodSeconds": 1})
    bench.wait_phase("one", "Running")
    bench.cluster.api.delete(f"{bench.path}/configmaps/owner")
    bench.wait_gone("one")


def is_ready(pod: Json) -> bool:
    return {"Ready": "True"}.items() <= {each["type"]: each["status"] for each in pod["status"]["conditions"]}.items()


def test_a_silent_node_is_not_ready_and_comes_back(bench: Bench) -> None:
    def ready() -> str:
        conditions = bench.cluster.api.get("/api/v1/nodes/node-1")["status"]["conditions"]
        return next(each["status"] for each in conditions if each["type"] == "Ready")

    bench.pod("one", ["sleep", "1000"])
    bench.wait_phase("one", "Running")
    pid = bench.node.pid_of("one", bench.namespace)
    bench.node.freeze(stop_processes=True)
    try:
        assert within(WITHIN_S, lambda: ready() == "Unknown")
        bench.wait_for("one", lambda pod: not is_ready(pod))
        assert "T" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    finally:
        bench.node.thaw()
    assert within(WITHIN_S, lambda: ready() == "True")
    bench.wait_for("one", is_ready)
    assert bench.node.pid_of("one", bench.namespace) == pid
    bench.cluster.api.delete(f"{bench.path}/pods/one", {"gracePeriodSeconds": 1})
    bench.wait_gone("one")
