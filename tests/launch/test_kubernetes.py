"""Workers in a real Kubernetes control plane. Its nodes are scripted: they run pods as processes of this machine, and fail on demand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from launch_benches import SPARK_PROGRAM, WITHIN_S, KubernetesBench, one

from scribengin.core.errors import EnvironmentFault, Unreachable
from scribengin.core.process import within
from scribengin.core.secret import Secret
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.kubernetes import RIGHTS
from scribengin.launch.kubernetes_cluster import KubernetesApi

if TYPE_CHECKING:
    from harness.kubernetes import ScriptedKubelet

W = "tweets.main-1"
STARTS_WITHIN_S = 400.0
"""seconds in which Spark starts on a busy machine"""


def test_the_rights_that_are_documented_are_enough(kubernetes: KubernetesBench) -> None:
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": [*verbs]} for resource, verbs in RIGHTS.items()]
    kubernetes.bind("node", rules)
    config = kubernetes.plane.service_account_config(kubernetes.namespace, "node")
    launcher = kubernetes.launcher(config=config)
    launcher.start(kubernetes.order(W, "say=HIDDEN", secrets={"HIDDEN": Secret("wordless-secret", "${HIDDEN}")}))
    kubernetes.until(launcher, W, lambda seen: seen.state == "running")
    assert within(WITHIN_S, lambda: "wordless-secret" in "".join(Path(path).read_text() for path in launcher.logs(W)))
    launcher.stop(W, 60.0)
    kubernetes.until(launcher, W, lambda seen: seen.is_over)
    launcher.forget(W)
    assert launcher.observe() == []
    assert len(launcher.logs(W)) == 1, "the output is kept"
    launcher.close()


def test_an_account_without_rights_is_refused_and_nothing_starts(kubernetes: KubernetesBench) -> None:
    kubernetes.bind("half", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [*RIGHTS["configmaps"]]}])
    launcher = kubernetes.launcher(config=kubernetes.plane.service_account_config(kubernetes.namespace, "half"))
    with pytest.raises(EnvironmentFault, match=r"refuses to create secret.* in namespace") as caught:
        launcher.start(kubernetes.order(W))
    assert caught.value.code == "kubernetes-refused"
    assert kubernetes.launcher().observe() == []
    kubernetes.launcher().start(kubernetes.order(W))
    kubernetes.until(kubernetes.launcher(), W, lambda seen: seen.state == "running")


def test_an_invalid_pod_is_rejected_and_may_start_later(kubernetes: KubernetesBench) -> None:
    template = {"spec": {"nodeSelector": {"disk": "not a value"}}}
    with pytest.raises(EnvironmentFault, match=r"not a value") as caught:
        kubernetes.launcher(template=template).start(kubernetes.order(W))
    assert caught.value.code == "kubernetes-rejected"
    launcher = kubernetes.launcher()
    assert launcher.observe() == []
    launcher.start(kubernetes.order(W))
    kubernetes.until(launcher, W, lambda seen: seen.state == "running")


def test_a_quota_that_is_used_up_is_told(kubernetes: KubernetesBench) -> None:
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.memory": "10Mi"}}}
    path = f"/api/v1/namespaces/{kubernetes.namespace}/resourcequotas"
    kubernetes.plane.api.create(path, quota)
    try:

        def used_up() -> bool:
            try:
                kubernetes.launcher().start(kubernetes.order(W))
            except EnvironmentFault as error:
                return error.code == "launcher-full" and "exceeded quota: small" in error.message
            kubernetes.clear()
            return False

        assert within(WITHIN_S, used_up), "the quota did not come into force"
    finally:
        kubernetes.plane.api.delete(f"{path}/small")


def test_a_start_that_was_killed_half_way_is_completed(kubernetes: KubernetesBench, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, create = kubernetes.launcher(), KubernetesApi.create

    class KilledError(Exception):
        pass

    def killed_at(kind: str) -> Any:
        def made(self: KubernetesApi, found: Any) -> Any:
            if type(found).__name__ == kind:
                raise KilledError
            return create(self, found)

        return made

    for number, kind in enumerate(("Secret", "Pod"), 1):
        worker = f"tweets.main-{number}"
        monkeypatch.setattr(KubernetesApi, "create", killed_at(kind))
        with pytest.raises(KilledError):
            launcher.start(kubernetes.order(worker))
        monkeypatch.setattr(KubernetesApi, "create", create)
        (seen,) = [each for each in kubernetes.launcher().observe() if each.worker == worker]
        assert seen.state == "starting"
        kubernetes.launcher().start(kubernetes.order(worker))
        kubernetes.until(launcher, worker, lambda seen: seen.state == "running")
        assert kubernetes.beginnings(worker) == 1


def test_a_pod_that_somebody_deletes_is_gone_and_is_not_started_again(kubernetes: KubernetesBench) -> None:
    launcher = kubernetes.launcher()
    launcher.start(kubernetes.order(W))
    kubernetes.until(launcher, W, lambda seen: seen.state == "running")
    kubernetes.plane.api.delete(kubernetes.pod_path(W))
    seen = kubernetes.until(launcher, W, lambda seen: seen.is_over)
    assert (seen.state, seen.status) == ("gone", None)
    assert "its pod was deleted, by a user" in seen.reason
    kubernetes.launcher().start(kubernetes.order(W))
    assert kubernetes.until(launcher, W, lambda seen: True).state == "gone"
    assert kubernetes.beginnings(W) == 1


def test_a_worker_whose_record_was_deleted_ends(kubernetes: KubernetesBench) -> None:
    launcher = kubernetes.launcher()
    launcher.start(kubernetes.order(W))
    kubernetes.until(launcher, W, lambda seen: seen.state == "running")
    path = kubernetes.pod_path(W)
    kubernetes.plane.api.delete(path.replace("/pods/", "/configmaps/"))
    # Kubernetes itself deletes what the record owned
    assert within(WITHIN_S, lambda: kubernetes.plane.api.find(path) is None)
    assert kubernetes.launcher().observe() == []


def test_why_a_worker_does_not_start_is_told_and_it_starts_when_that_is_mended(
    kubernetes: KubernetesBench, kubelet: ScriptedKubelet
) -> None:
    kubelet.missing_images.add("nowhere/image:9")
    launcher = kubernetes.launcher(image="nowhere/image:9")
    launcher.start(kubernetes.order(W))
    seen = kubernetes.until(launcher, W, lambda seen: "its image cannot be pulled" in seen.reason)
    assert (seen.state, "imagePullSecrets" in seen.reason) == ("starting", True)
    kubelet.missing_images.clear()
    kubernetes.until(launcher, W, lambda seen: seen.state == "running" and seen.reason == "")

    huge = kubernetes.order("tweets.huge-1", spark={"spark.driver.memory": "9000g"})
    launcher.start(huge)
    seen = kubernetes.until(launcher, "tweets.huge-1", lambda seen: bool(seen.reason))
    assert seen.reason.startswith("no host has room for it (Unschedulable: 0/1 nodes are available")
    launcher.stop("tweets.huge-1", 5.0)
    seen = kubernetes.until(launcher, "tweets.huge-1", lambda seen: seen.is_over)
    assert (seen.state, seen.reason) == ("gone", "it was requested to stop before it had a host")

    volume = {"name": "v", "configMap": {"name": "not-there"}}
    other = kubernetes.launcher(template={"spec": {"volumes": [volume]}})
    other.start(kubernetes.order("tweets.volume-1"))
    seen = kubernetes.until(other, "tweets.volume-1", lambda seen: bool(seen.reason))
    assert "FailedMount" in seen.reason
    assert "not-there" in seen.reason


def test_why_a_worker_ended_is_told(kubernetes: KubernetesBench, kubelet: ScriptedKubelet) -> None:
    launcher = kubernetes.launcher()
    workers = [f"tweets.main-{number}" for number in range(1, 4)]
    for worker in workers:
        launcher.start(kubernetes.order(worker))
        kubernetes.until(launcher, worker, lambda seen: seen.state == "running")
    names = [kubernetes.pod_path(worker).rpartition("/")[2] for worker in workers]
    kubelet.oom(names[0], kubernetes.namespace)
    kubelet.evict(names[1], kubernetes.namespace)
    kubelet.kill_container(names[2], kubernetes.namespace)
    seen = [kubernetes.until(launcher, worker, lambda seen: seen.is_over) for worker in workers]
    assert [(each.state, each.status) for each in seen] == [("exited", -9), ("gone", None), ("exited", -9)]
    assert "used more memory than its limit" in seen[0].reason
    assert "its host has evicted it: The node was low on resource" in seen[1].reason
    assert "signal 9" in seen[2].reason


def test_a_host_that_does_not_answer_is_given_up(
    kubernetes: KubernetesBench, kubelet: ScriptedKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scribengin.launch.kubernetes._LATE_S", 1.0)
    launcher = kubernetes.launcher()
    launcher.start(kubernetes.order(W, "deaf"))
    kubernetes.until(launcher, W, lambda seen: seen.state == "running")
    path = kubernetes.pod_path(W)
    kubelet.freeze()
    try:
        launcher.stop(W, 1.0)
        assert kubernetes.until(launcher, W, lambda seen: True).stopping
        seen = kubernetes.until(launcher, W, lambda seen: seen.is_over)
        assert (seen.state, seen.status) == ("gone", None)
        assert "does not report that it has ended; if it runs there, its lease keeps it from writing" in seen.reason
        launcher.forget(W)
        assert launcher.observe() == []
    finally:
        kubelet.thaw()
    assert within(WITHIN_S, lambda: kubernetes.plane.api.find(path) is None)


def test_an_api_that_does_not_answer_starts_nothing(kubernetes: KubernetesBench, tmp_path: Path) -> None:
    text = kubernetes.plane.kubeconfig.read_text().replace(kubernetes.plane.server, "https://127.0.0.1:1")
    (tmp_path / "config").write_text(text)
    launcher = kubernetes.launcher(config=tmp_path / "config")
    for call in (lambda: launcher.start(kubernetes.order(W)), launcher.observe, lambda: launcher.stop(W, 1.0), lambda: launcher.kill(W)):
        with pytest.raises(Unreachable, match=r"does not answer at https://127\.0\.0\.1:1"):
            call()
    assert kubernetes.launcher().observe() == []


@pytest.mark.timeout(900)
def test_spark_requests_executors_as_pods_which_end_with_the_driver(kubernetes: KubernetesBench, driver_rights: str) -> None:
    launcher = kubernetes.launcher(service_account=driver_rights)
    argv = (sys.executable, str(SPARK_PROGRAM), str(kubernetes.folder / f"{W}.diary"), "count=1000")
    settings = {"spark.driver.memory": "512m", "spark.ui.enabled": "false"}
    launcher.start(LaunchOrder(W, argv, memory_bytes=512 * 2**20, executors=2, spark=settings))

    def executors() -> list[dict[str, Any]]:
        found = kubernetes.plane.api.get(f"/api/v1/namespaces/{kubernetes.namespace}/pods", labelSelector="spark-role=executor")["items"]
        return [each for each in found if each["status"]["phase"] == "Running"]

    assert within(STARTS_WITHIN_S, lambda: "counted 1000" in kubernetes.diary(W)), launcher.observe()
    kubernetes.until(launcher, W, lambda seen: seen.state == "running")
    assert within(WITHIN_S, lambda: len(executors()) == 2)
    owners = {each["metadata"]["ownerReferences"][0]["name"] for each in executors()}
    assert owners == {kubernetes.pod_path(W).rpartition("/")[2]}
    assert not any(each["spec"].get("automountServiceAccountToken") for each in executors())
    launcher.kill(W)
    seen = kubernetes.until(launcher, W, lambda seen: seen.is_over)
    assert (seen.state, seen.status) == ("exited", -9)
    assert within(WITHIN_S, lambda: not executors())


@pytest.mark.timeout(900)
def test_what_hinders_an_executor_is_told(kubernetes: KubernetesBench, driver_rights: str) -> None:
    launcher = kubernetes.launcher(service_account=driver_rights)
    argv = (sys.executable, str(SPARK_PROGRAM), str(kubernetes.folder / f"{W}.diary"))
    launcher.start(LaunchOrder(W, argv, memory_bytes=2**50, spark={"spark.driver.memory": "512m", "spark.ui.enabled": "false"}))
    name = kubernetes.pod_path(W).rpartition("/")[2]
    reason = f"executor {name}-exec-1: no host has room for it (Unschedulable: "

    def told() -> bool:
        (seen,) = launcher.observe()
        return seen.state == "running" and seen.reason.startswith(reason)

    assert within(STARTS_WITHIN_S, told), launcher.observe()


def test_how_a_worker_ended_stays_as_the_first_launcher_has_recorded_it(kubernetes: KubernetesBench) -> None:
    first, second = kubernetes.launcher(), kubernetes.launcher()
    first.start(kubernetes.order(W))
    kubernetes.until(second, W, lambda seen: seen.state == "running")
    records, _ = second._objects(60.0)  # read before the end
    first.stop(W, 60.0)
    seen = kubernetes.until(first, W, lambda seen: seen.is_over)
    assert (seen.state, seen.status) == ("exited", 0)
    assert within(WITHIN_S, lambda: not first._objects(0.0)[1]), "its pod is let go"
    assert second._seen(records[0], None, []) == seen, "by a record that was read before"
    assert one(kubernetes.launcher(), W) == seen
