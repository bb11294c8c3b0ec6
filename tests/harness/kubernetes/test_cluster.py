"""The control plane itself: its rights, its start and its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError as Refused
from lightkube.resources.core_v1 import ConfigMap, Pod

from harness.kubernetes import KubeCluster
from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import birth_of, within

sys.path.insert(0, str(Path(__file__).parent))

from conftest import WITHIN_S, give_rights, state_of

if TYPE_CHECKING:
    from conftest import Bench


def client_of(kubeconfig: Path, namespace: str) -> Client:
    return Client(config=KubeConfig.from_file(kubeconfig), namespace=namespace, trust_env=False)


def test_an_account_may_do_what_its_roles_say_and_nothing_else(bench: Bench) -> None:
    bench.cluster.api.create(f"{bench.path}/configmaps", {"metadata": {"name": "flow"}, "data": {"key": "value"}})
    give_rights(bench, "reader", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])
    with client_of(bench.cluster.service_account_config(bench.namespace, "reader"), bench.namespace) as client:
        assert client.get(ConfigMap, "flow").data == {"key": "value"}
        with pytest.raises(Refused, match=f"system:serviceaccount:{bench.namespace}:reader") as refused:
            list(client.list(Pod))
        assert refused.value.status.code == 403
        with pytest.raises(Refused, match="forbidden"):
            client.delete(ConfigMap, "flow")


def test_the_kubeconfig_is_an_administrators(bench: Bench) -> None:
    bench.pod("one", ["true"])
    bench.wait_phase("one", "Succeeded")
    with client_of(bench.cluster.kubeconfig, bench.namespace) as client:
        assert [pod.metadata.name for pod in client.list(Pod) if pod.metadata] == ["one"]


IN_POD = """
from lightkube import Client
from lightkube.resources.core_v1 import ConfigMap
print(Client().get(ConfigMap, "flow").data)
"""


def test_a_program_in_a_pod_is_the_pods_account(bench: Bench) -> None:
    bench.cluster.api.create(f"{bench.path}/configmaps", {"metadata": {"name": "flow"}, "data": {"key": "value"}})
    give_rights(bench, "reader", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])
    bench.pod("one", ["python", "-c", IN_POD], more={"serviceAccountName": "reader"})
    bench.wait_phase("one", "Succeeded", "Failed")
    assert bench.log("one") == "{'key': 'value'}\n"


@pytest.mark.timeout(400)
def test_pods_run_on_while_the_api_server_is_gone(bench: Bench, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    bench.pod("one", ["sh", "-c", f"until [ -e {stop} ]; do sleep 0.1; done; exit 5"])
    bench.wait_phase("one", "Running")
    pid = bench.node.pid_of("one", bench.namespace)
    bench.cluster.kill("kube-apiserver")
    assert not bench.cluster.answers()
    assert birth_of(pid)
    stop.touch()
    assert within(WITHIN_S, lambda: not birth_of(pid))
    bench.cluster.restart("kube-apiserver")
    assert within(WITHIN_S, bench.cluster.answers)
    assert state_of(bench.wait_phase("one", "Failed"))["terminated"]["exitCode"] == 5
    bench.pod("two", ["true"])
    bench.wait_phase("two", "Succeeded")


LEAVE = """
import sys, time
from pathlib import Path
from harness.kubernetes import KubeCluster, ScriptedKubelet

cluster = KubeCluster(Path(sys.argv[1]))
cluster.start()
node = ScriptedKubelet(cluster)
node.start()
code = "import subprocess, time; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); time.sleep(1000)"
main = {"name": "main", "image": "any", "command": ["python", "-c", code]}
cluster.api.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "one"}, "spec": {"containers": [main]}})
while True:
    time.sleep(0.1)
    try:
        child = int(cluster.api.text("/api/v1/namespaces/default/pods/one/log"))
        break
    except Exception:
        pass
print(*(each.process.pid for each in cluster.processes.values()), node.pid_of("one"), child, flush=True)
time.sleep(1000)
"""


@pytest.mark.timeout(400)
def test_nothing_runs_on_when_the_test_is_killed(tmp_path: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", LEAVE, str(tmp_path / "kube")], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        pids = [int(word) for word in program.stdout.readline().split()]
        assert len(pids) == 6
        assert all(birth_of(pid) for pid in pids)
    finally:
        program.send_signal(signal.SIGKILL)
        program.communicate()
    assert within(WITHIN_S, lambda: not any(birth_of(pid) for pid in pids))


def test_a_start_that_fails_shows_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "kube").mkdir()
    (tmp_path / "kube" / "etcd").write_text("not a folder")
    cluster = KubeCluster(tmp_path / "kube")
    with pytest.raises(EnvironmentFault, match=r"etcd ended while it started(.|\n)*the end of its log(.|\n)*not a directory"):
        cluster.start()
    assert not cluster.processes
