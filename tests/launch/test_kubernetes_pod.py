"""The objects of a worker in Kubernetes, and what is told of pods that wait or end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from lightkube import KubeConfig
from lightkube.resources.core_v1 import Pod

from scribengin.core.errors import EnvironmentFault
from scribengin.core.secret import Secret
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.kubernetes import outcome_of, waiting_reason
from scribengin.launch.kubernetes_cluster import KubernetesCluster, pod_template
from scribengin.launch.kubernetes_pod import object_name, pod_of, record_of, secret_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TEMPLATE = """
apiVersion: v1
kind: Pod
metadata:
  labels: {team: data}
spec:
  nodeSelector: {disk: ssd}
  tolerations: [{key: spot, operator: Exists, effect: NoSchedule}]
  volumes: [{name: state, persistentVolumeClaim: {claimName: state}}]
  containers:
    - name: proxy
      image: proxy:1
    - name: scribengin
      envFrom: [{secretRef: {name: passwords}}]
      volumeMounts: [{name: state, mountPath: /state}]
      resources: {limits: {cpu: 4}}
"""
HIDDEN = "wordless-secret"


def cluster(template: Mapping[str, Any] | None = None) -> KubernetesCluster:
    access = KubeConfig.from_server("https://127.0.0.1:1", namespace="flows").get()
    assert access is not None
    return KubernetesCluster(access, "flows", "registry.example/scribengin:1", template=template or {})


def order(**more: Any) -> LaunchOrder:
    given: dict[str, Any] = {
        "environment": {"SHOWN": "plain $(HOME)", "UNSET": None},
        "secrets": {"HIDDEN": Secret(HIDDEN, "${HIDDEN}")},
        "spark": {"spark.driver.memory": "512m", "spark.hadoop.fs.s3a.secret.key": Secret(HIDDEN, "${KEY}")},
        "executors": 3,
        "cores": 2,
        "memory_bytes": 2**30,
    }
    return LaunchOrder("Tweets.main-1", ("/here/python", "-m", "scribengin.worker", "Tweets.main-1"), **(given | more))


def objects(template: Mapping[str, Any] | None = None, **more: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    of, made = cluster(template), order(**more)
    record = record_of(made, of, "scope")
    assert record.metadata is not None
    record.metadata.uid = "1234"
    return record.to_dict(), secret_of(made, "scope", record).to_dict(), pod_of(made, of, "scope", record).to_dict()


def container_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    return next(each for each in pod["spec"]["containers"] if each["name"] == "scribengin")


def test_what_is_secret_is_in_the_secret_only() -> None:
    record, secret, pod = objects()
    assert HIDDEN not in json.dumps([record, pod])
    assert secret["stringData"] == {"env.HIDDEN": HIDDEN, "spark.properties": f"spark.hadoop.fs.s3a.secret.key={HIDDEN}\n"}
    assert record["data"]["env.SHOWN"] == "plain $(HOME)"
    assert "env.UNSET" not in record["data"]
    variables = {each["name"]: each for each in container_of(pod)["env"]}
    assert variables["HIDDEN"]["valueFrom"] == {"secretKeyRef": {"name": pod["metadata"]["name"], "key": "env.HIDDEN"}}
    # by reference: in a plain value Kubernetes would replace the variable
    assert variables["SHOWN"]["valueFrom"]["configMapKeyRef"]["key"] == "env.SHOWN"


def test_the_record_owns_the_secret_and_the_pod_and_a_name_is_that_of_one_worker() -> None:
    record, secret, pod = objects()
    name = record["metadata"]["name"]
    assert (secret["metadata"]["name"], pod["metadata"]["name"]) == (name, name)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "1234"}
    assert secret["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"] == [owner]
    # letters that Kubernetes does not tell apart, or does not have
    names = {object_name("scope", worker) for worker in ("a.b-1", "A.b-1", "a_b-1", "a~b-1", "x" * 199 + "1", "x" * 199 + "2")}
    assert len(names) == 6
    assert all(len(each) <= 41 and not each.startswith("-") for each in names)
    assert object_name("other", "a.b-1") != object_name("scope", "a.b-1")


def test_the_pod_runs_the_command_with_the_python_of_the_image_and_room_beside_the_heap() -> None:
    record, _, pod = objects()
    container = container_of(pod)
    assert container["command"] == ["python", "-m", "scribengin.worker", "Tweets.main-1"]
    assert pod["spec"]["restartPolicy"] == "Never"
    # 512 MiB of heap, and the least overhead
    assert container["resources"] == {"requests": {"cpu": "1", "memory": "896Mi"}, "limits": {"memory": "896Mi"}}
    settings = dict(line.split("=", 1) for line in record["data"]["spark-defaults.conf"].splitlines())
    assert settings["spark.executor.instances"] == "3"
    assert (settings["spark.executor.cores"], settings["spark.executor.memory"]) == ("2", "1024m")
    assert settings["spark.kubernetes.driver.pod.name"] == pod["metadata"]["name"]
    bigger = objects(spark={"spark.driver.memory": "2g"})[2]
    assert container_of(bigger)["resources"]["limits"]["memory"] == f"{2048 + 819}Mi"
    said = objects(spark={"spark.driver.memory": "2g", "spark.driver.memoryOverhead": "100m", "spark.driver.cores": "2"})[2]
    assert container_of(said)["resources"]["requests"] == {"cpu": "2", "memory": "2148Mi"}
    with pytest.raises(ValueError, match="'much' is not a valid size"):
        objects(spark={"spark.driver.memory": "much"})


def test_drivers_and_executors_extend_the_template(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(TEMPLATE)
    record, _, pod = objects(pod_template(tmp_path / "pod.yaml"))
    executor = json.loads(record["data"]["executor-pod.json"])
    for each in (pod, executor):
        spec = each["spec"]
        assert each["metadata"]["labels"]["team"] == "data"
        assert spec["nodeSelector"] == {"disk": "ssd"}
        keys = [toleration["key"] for toleration in spec["tolerations"]]
        assert keys == ["spot", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        assert [container["name"] for container in spec["containers"]] == ["proxy", "scribengin"]
        assert spec["volumes"][0]["name"] == "state"
        container = container_of(each)
        assert container["envFrom"] == [{"secretRef": {"name": "passwords"}}]
        assert container["volumeMounts"][0] == {"name": "state", "mountPath": "/state"}
        assert container["resources"]["limits"]["cpu"] == 4
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert spec["securityContext"]["runAsNonRoot"] is True
    assert container_of(pod)["resources"]["limits"]["memory"] == "896Mi"
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert "image" not in container_of(executor), "Spark sets it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Deployment\n", "kind: Pod"),
        ("- a\n", "kind: Pod"),
        ("kind: Pod\nspec: {nodeSelectr: {a: b}}\n", "unknown fields: spec.nodeSelectr"),
        (
            "kind: Pod\nspec: {containers: [{name: scribengin, env: [{name: A, valu: b}]}]}\n",
            r"unknown fields: spec\.containers\[0\]\.env\[0\]\.valu",
        ),
        ("kind: Pod\nspec: {tolerations: 5}\n", "tolerations"),
        ("kind: [\n", "pod template"),
    ],
)
def test_an_invalid_template_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pod.yaml").write_text(text)
    with pytest.raises(EnvironmentFault, match=words) as caught:
        pod_template(tmp_path / "pod.yaml")
    assert caught.value.code == "kubernetes-settings"


def test_a_kubeconfig_that_gives_no_access_is_refused(tmp_path: Path) -> None:
    for text in ("", "a: [", "clusters: []\ncontexts: []\n", "- 1\n"):
        (tmp_path / "config").write_text(text)
        with pytest.raises(EnvironmentFault, match="no access to a Kubernetes cluster"):
            KubernetesCluster.of("image", config=str(tmp_path / "config"))
    with pytest.raises(EnvironmentFault, match="no access"):
        KubernetesCluster.of("image", config=str(tmp_path / "none"))


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [status(state)]}


def status(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "scribengin", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}


@pytest.mark.parametrize(
    ("found", "grace_s", "result", "words"),
    [
        (ended(0, "Completed"), None, 0, ""),
        (ended(7), None, 7, "ended with status 7"),
        (ended(137), None, -9, "signal 9"),
        (ended(143), 20.0, -15, "signal 15"),
        (ended(137), 20.0, -9, "it did not stop within 20 s of the stop request"),
        (ended(0, "Completed"), 0.0, -9, "killed, as requested"),
        (ended(137, "OOMKilled"), None, -9, "more memory than its limit; raise spark.driver.memoryOverhead"),
        (ended(128, "StartError", 'exec: "pyton": not found'), None, None, 'exec: "pyton": not found; check --kubernetes-python'),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            None,
            None,
            "low on resource: memory;",
        ),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, None, None, "activeDeadlineSeconds"),
        ({"phase": "Failed"}, None, None, "its exit status is unknown"),
    ],
)
def test_how_a_pod_ended_is_told_with_a_remedy(found: dict[str, Any], grace_s: float | None, result: int | None, words: str) -> None:
    seen = outcome_of(Pod.from_dict({"status": found}), grace_s)
    assert seen[0] == result
    assert words in seen[1]
    assert bool(seen[1]) == (result != 0)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"phase": "Pending", "containerStatuses": [status({"waiting": {"reason": "ContainerCreating"}})]}, ""),
        (
            {"containerStatuses": [status({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})]},
            "its image cannot be pulled (ImagePullBackOff: not found); check the image's name",
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: 1 Insufficient memory."}
                ]
            },
            "no host has room for it (Unschedulable: 0/1 nodes: 1 Insufficient memory); request less",
        ),
    ],
)
def test_why_a_pod_waits_is_told_with_a_remedy(found: dict[str, Any], words: str) -> None:
    reason = waiting_reason(Pod.from_dict({"status": found}))
    assert reason.startswith(words)
    assert bool(reason) == bool(words)
