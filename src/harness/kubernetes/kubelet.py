"""A node of a cluster, whose pods run as processes of this machine, and which fails as a test demands."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from harness.kubernetes.api import ApiError
from harness.kubernetes.containers import Images
from harness.kubernetes.log_server import LogServer
from harness.kubernetes.pod import PodRunner
from harness.kubernetes.processes import SessionGuard, now
from harness.kubernetes.volumes import HOST_IP
from scribengin.core.process import within
from scribengin.core.storage import make_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from harness.kubernetes.api import Json
    from harness.kubernetes.cluster import KubeCluster
    from harness.kubernetes.containers import Entrypoint

VERSION = "v1.35.4"
OUT_OF_MEMORY = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 64Mi. Container main was using 512Mi, request is 0, "
    "has larger consumption of memory. "
)
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_HEARTBEAT_S = 2.0
_AGAIN_S = 0.5
_READY_WITHIN_S = 120.0
_ALLOCATABLE_PODS = "110"


class ScriptedKubelet:
    """A kubelet of a node. A context manager: the node exists inside the block.

    It really runs each container as a process of this machine, in a session of its own, with the volumes as folders (see volumes.py), and
    reports what a kubelet reports. All pods have the address 127.0.0.1. Containers are not limited to their memory: `oom` says when one
    exceeds it.
    """

    def __init__(
        self,
        cluster: KubeCluster,
        name: str = "node-1",
        *,
        cpus: float = 4,
        memory_mib: int = 8192,
        entrypoints: Mapping[str, Entrypoint] | None = None,
        environment: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare it.

        Args:
            cluster: a running cluster.
            name: the name of the node.
            cpus: its capacity for the scheduler.
            memory_mib: its capacity for the scheduler.
            entrypoints: by image: what runs if a container has no `command` (see containers.py).
            environment: variables that all images have.
            labels: labels of the node.
        """
        self.cluster = cluster
        self.name = name
        self.folder = cluster.folder / "nodes" / name
        self.images = Images(entrypoints=entrypoints or {}, environment=environment or {})
        self.missing_images: set[str] = set()
        """images that cannot be pulled; pods wait until theirs is taken out"""
        self._labels = dict(labels or {})
        self._cpus = cpus
        self._memory_mib = memory_mib
        self._frozen = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.RLock()
        self._runners: dict[str, PodRunner] = {}
        self._threads: list[threading.Thread] = []
        self._stopped_processes = False
        self._guard: SessionGuard | None = None
        self._logs: LogServer | None = None

    # The node's life.

    def start(self) -> None:
        """Register the node, and return when the scheduler may place pods on it. Raises TimeoutError, ApiError."""
        make_folder(self.folder)
        self._guard = SessionGuard()
        try:
            self._logs = LogServer(self, self.cluster.authority.issue(f"kubelet-{self.name}", f"system:node:{self.name}"))
            self._register()
            for work in (self._send_heartbeats, self._follow_pods):
                thread = threading.Thread(target=work, name=f"{self.name}-{work.__name__}", daemon=True)
                thread.start()
                self._threads.append(thread)
            if not within(_READY_WITHIN_S, self._takes_pods):
                raise TimeoutError(f"the node {self.name} is not ready after {_READY_WITHIN_S:g} s")
        except BaseException:
            self.close()
            raise

    def _takes_pods(self) -> bool:
        with suppress(ApiError):
            return not self.cluster.api.get(self._path)["spec"].get("taints")
        return False

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    @property
    def guard(self) -> SessionGuard:
        """Kills the containers if this process is killed."""
        assert self._guard is not None
        return self._guard

    def _register(self) -> None:
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", **self._labels}
        with suppress(ApiError):  # it exists, from an earlier kubelet
            self.cluster.api.create("/api/v1/nodes", {"metadata": {"name": self.name, "labels": labels}})
        self._report_node()

    def _report_node(self) -> None:
        """Report the node's capacity, address and health. Raises ApiError."""
        assert self._logs is not None
        moment = now()
        capacity = {
            "cpu": f"{round(self._cpus * 1000)}m",
            "memory": f"{self._memory_mib}Mi",
            "pods": _ALLOCATABLE_PODS,
            "ephemeral-storage": "100Gi",
        }
        healthy = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [
                {"type": kind, "status": value, "reason": "Scripted", "lastHeartbeatTime": moment, "lastTransitionTime": moment}
                for kind, value in healthy.items()
            ],
            "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": self.name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.port}},
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "processes of this machine",
                "kernelVersion": os.uname().release,
                "containerRuntimeVersion": "process://1.0",
                "kubeletVersion": VERSION,
                "kubeProxyVersion": "",
                "bootID": self.name,
                "machineID": self.name,
                "systemUUID": self.name,
            },
        }
        self.cluster.api.patch(f"{self._path}/status", {"status": status})

    def _send_heartbeats(self) -> None:
        while not self._closed.is_set():
            if not self.frozen:
                try:
                    self._renew()
                    self._report_node()
                except ApiError as error:
                    self.note(f"heartbeat: {error}")
            self._closed.wait(_HEARTBEAT_S)

    def _renew(self) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": moment}
        try:
            self.cluster.api.patch(f"{_LEASES}/{self.name}", {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
            self.cluster.api.create(_LEASES, {"metadata": {"name": self.name}, "spec": spec})

    def _follow_pods(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow_once()
            except ApiError as error:
                if not self._closed.is_set():
                    self.note(f"watch: {error}")
                    self._closed.wait(_AGAIN_S)

    def _follow_once(self) -> None:
        """List the node's pods, and follow their changes until the watch ends. Raises ApiError."""
        mine = {"fieldSelector": f"spec.nodeName={self.name}"}
        listed = self.cluster.api.get("/api/v1/pods", **mine)
        pods = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
        with self._lock:
            lost = [runner for uid, runner in self._runners.items() if uid not in pods]
        for runner in lost:
            runner.removed()
        for pod in pods.values():
            self._take("MODIFIED", pod)
        for kind, pod in self.cluster.api.watch("/api/v1/pods", listed["metadata"]["resourceVersion"], **mine):
            if self._closed.is_set():
                return
            self._take(kind, pod)

    def _take(self, kind: str, pod: Json) -> None:
        """Give a change to the pod's runner."""
        if kind == "BOOKMARK":
            return
        with self._lock:
            runner = self._runners.get(pod["metadata"]["uid"])
            if runner is None and kind != "DELETED" and not self._closed.is_set():
                self._runners[pod["metadata"]["uid"]] = PodRunner(self, pod)
        if runner is not None and kind == "DELETED":
            runner.removed()
        elif runner is not None:
            runner.update(pod)

    # What the runners of the pods need.

    @property
    def frozen(self) -> bool:
        """True between `freeze` and `thaw`."""
        return self._frozen.is_set()

    def forget(self, uid: str) -> None:
        """A pod exists no more."""
        with self._lock:
            self._runners.pop(uid, None)

    def event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        """Record an event of a pod; a failure is only noted.

        Args:
            pod: the pod.
            kind: `Normal` or `Warning`.
            reason: a word for programs.
            message: a sentence for people.
        """
        meta = pod["metadata"]
        moment = now()
        content = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self.name},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        try:
            self.cluster.api.create(f"/api/v1/namespaces/{meta['namespace']}/events", content)
        except ApiError as error:
            self.note(f"event {reason}: {error}")

    def note(self, line: str) -> None:
        """Write a line to the kubelet's own log, `kubelet.log` in its folder."""
        with suppress(OSError), (self.folder / "kubelet.log").open("a") as log:
            log.write(f"{now()} {line}\n")

    # What tests do to pods and to the node.

    def runner(self, pod: str, namespace: str = "default") -> PodRunner:
        """The newest pod of that name on this node. Raises LookupError."""
        with self._lock:
            for runner in reversed(self._runners.values()):
                if runner.key == f"{namespace}/{pod}":
                    return runner
        raise LookupError(f"{namespace}/{pod} is not on the node {self.name}")

    def pid_of(self, pod: str, namespace: str = "default", container: str | None = None) -> int:
        """The process id of a running container. Raises LookupError.

        Args:
            pod: the pod's name.
            namespace: its namespace.
            container: the container's name; the first one that runs if none is given.
        """
        return self.runner(pod, namespace).process_of(container).pid

    def oom(self, pod: str, namespace: str = "default", container: str | None = None) -> None:
        """Kill a container as the kernel does when it exceeds its memory. Raises LookupError.

        Args:
            pod: the pod's name.
            namespace: its namespace.
            container: the container's name; the first one that runs if none is given.
        """
        self.runner(pod, namespace).process_of(container).kill_for_memory()

    def kill_container(
        self, pod: str, namespace: str = "default", container: str | None = None, *, number: signal.Signals = signal.SIGKILL
    ) -> None:
        """Send a signal to a container's processes, as somebody on the node does. Raises LookupError.

        Args:
            pod: the pod's name.
            namespace: its namespace.
            container: the container's name; the first one that runs if none is given.
            number: the signal.
        """
        self.runner(pod, namespace).process_of(container).send(number)

    def evict(self, pod: str, namespace: str = "default", message: str = OUT_OF_MEMORY) -> None:
        """End a pod as a kubelet does whose node lacks memory. Raises LookupError.

        Args:
            pod: the pod's name.
            namespace: its namespace.
            message: why.
        """
        self.runner(pod, namespace).evict(message)

    def freeze(self, *, stop_processes: bool = False) -> None:
        """Be silent from now on, as a node is that lost its network: no lease, no status, no reaction to changes.

        Args:
            stop_processes: stop the containers too (SIGSTOP), as in a machine that sleeps.
        """
        self._frozen.set()
        if stop_processes:
            self._stopped_processes = True
            self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """End a freeze: report everything again, and catch up with what was missed."""
        if self._stopped_processes:
            self._stopped_processes = False
            self._signal_all(signal.SIGCONT)
        self._frozen.clear()
        for runner in self._all():
            runner.wake()

    def _signal_all(self, number: signal.Signals) -> None:
        for runner in self._all():
            runner.send(number)

    def _all(self) -> list[PodRunner]:
        with self._lock:
            return list(self._runners.values())

    def close(self) -> None:
        """End all containers, and delete the node. Does nothing if it is closed."""
        self._closed.set()
        self._frozen.clear()
        for runner in self._all():
            runner.close()
        with self._lock:
            self._runners.clear()
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._logs is not None:
            self._logs.close()
            self._logs = None
            with suppress(ApiError):
                self.cluster.api.delete(self._path)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
