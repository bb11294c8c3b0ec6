"""Workers in Kubernetes: each is a pod, whose executors are pods too, which Spark itself requests.

The state of a launcher is in the cluster, none on its own disk but copies of output: so a node may itself run in a pod, and the next node,
with the same scope, has the workers of the earlier one.

A worker's record is a ConfigMap, which owns its Secret and its Pod. It is created first, under a name that follows from the worker's id: so
of two starts one creates it, and a start that was killed half-way is completed by the next. When the pod exists, its identity is written
into the record: from then on no start creates another one, whatever becomes of the pod.

`stop` deletes the pod, with the grace: Kubernetes sends SIGTERM, and kills it when the grace is over, also if no launcher runs then. A
finalizer keeps the pod's object until its exit status is in the record. A kill is a stop with the shortest grace, one second.

A host that does not answer cannot report that a pod has ended. Its worker is `gone` half a minute after the deletion was due: it may still
run, and its lease decides whether it writes.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from lightkube.models.core_v1 import ContainerState
from lightkube.resources.core_v1 import ConfigMap, Pod, Secret

from scribengin.core.errors import EnvironmentFault, Unreachable
from scribengin.core.storage import explained, make_folder, replace
from scribengin.launch.contract import KILLED, ObservedWorker, end_of, killed_text
from scribengin.launch.kubernetes_cluster import DRIVER, KubernetesApi
from scribengin.launch.kubernetes_pod import FINALIZER, ORDER, ROLE, SCOPE, WORKER, object_name, pod_of, record_of, secret_of
from scribengin.launch.process_launcher import log_path, logs_of, prune_logs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from lightkube.models.core_v1 import ContainerStatus

    from scribengin.launch.contract import LaunchOrder
    from scribengin.launch.kubernetes_cluster import KubernetesCluster

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_LOOK_S = 1.0
"""seconds for which an answer of the API is used again: a node observes its workers twice a second"""
_EVENTS_S = 5.0
"""seconds after which a pod that does not start is looked up in the events, and between two look-ups"""
_BEGUN_WITHIN_S = 60.0
_LATE_S = 30.0
"""seconds after the time of a deletion until a host that does not report it is given up"""
_SIGKILL = 137
"""the exit code of a container that was killed"""
_POD, _STOP, _ENDED = "scribengin.io/pod", "scribengin.io/stop", "scribengin.io/ended"
"""annotations of a record: the identity of its pod, the request to stop, how the worker ended"""
RIGHTS = {
    "pods": ("create", "get", "list", "patch", "delete"),
    "configmaps": ("create", "get", "list", "patch", "delete"),
    "secrets": ("create", "delete"),
    "pods/log": ("get",),
    "events": ("list",),
}
"""what the account of a node needs in the namespace of its workers: resource → verbs"""
_OVER = ("Succeeded", "Failed")
_WAITING = {
    "ErrImagePull": ("its image cannot be pulled", "check the image's name, and that the cluster may pull it: imagePullSecrets"),
    "ImagePullBackOff": ("its image cannot be pulled", "check the image's name, and that the cluster may pull it: imagePullSecrets"),
    "InvalidImageName": ("its image has no valid name", "correct --kubernetes-image"),
    "ErrImageNeverPull": ("its image is not on the host", "load it there, or allow pulling: imagePullPolicy"),
    "CreateContainerConfigError": ("its container cannot be configured", "see its Secrets and ConfigMaps, and those of the pod template"),
    "CreateContainerError": ("its container cannot be created", "see the events of the pod: kubectl describe pod"),
    "RunContainerError": ("its container cannot be started", "check --kubernetes-python: it is the path of Python in the image"),
}
"""why a container waits → what it means, and what to do"""
_ENDS = {
    "OOMKilled": ("its container used more memory than its limit", "raise spark.driver.memoryOverhead, or lower spark.driver.memory"),
    "Evicted": ("its host has evicted it", "request the memory and the disk that it uses, or give the host more"),
    "Preempting": ("a pod of a higher priority took its place", "give it a priorityClassName in the pod template"),
    "DeadlineExceeded": ("it ran longer than the activeDeadlineSeconds of its pod", "take the limit out of the pod template"),
    "StartError": ("its container could not be started", "check --kubernetes-python: it is the path of Python in the image"),
    "ContainerCannotRun": ("its container could not be started", "check --kubernetes-python: it is the path of Python in the image"),
    "NodeShutdown": ("its host was shut down", "it continues on another host"),
    "Terminated": ("its host was shut down", "it continues on another host"),
    "UnexpectedAdmissionError": ("its host did not accept it", "see the events of the pod: kubectl describe pod"),
}
"""why a pod or its container ended → what it means, and what to do"""
_UNSCHEDULABLE = "request less memory or fewer cores, or add hosts; see nodeSelector and tolerations in the pod template"


class _Stop(msgspec.Struct, frozen=True):
    """A request to stop a worker: when it is killed, in seconds since the epoch, and the grace."""

    dies_at_s: float
    grace_s: float


class _Ended(msgspec.Struct, frozen=True):
    """How a worker ended; see `ObservedWorker`."""

    state: Literal["exited", "gone"]
    since_s: float
    status: int | None = None
    reason: str = ""
    process: str = ""


class KubernetesLauncher:
    """A launcher whose workers are pods of a Kubernetes cluster; see `Launcher`.

    `scope` names the control plane and the node: launchers with the same scope have the same workers. `folder` has the output of the
    workers as it was last fetched.
    """

    def __init__(self, folder: Path, cluster: KubernetesCluster, scope: str) -> None:
        """Create it. Raises EnvironmentFault: the folder cannot be created."""
        for part in (folder, folder / "logs"):
            make_folder(part)
        with explained(f"the permissions of {folder} cannot be set"):
            folder.chmod(0o700)
        self._logs = folder / "logs"
        self._cluster = cluster
        self._api = KubernetesApi(cluster)
        self._scope = sha256(scope.encode()).hexdigest()[:16]
        self._lock = threading.Lock()
        self._asked_s = 0.0
        self._answer: tuple[list[ConfigMap], list[Pod]] = ([], [])
        self._first_s: dict[str, float] = {}
        """uid of an object, and why it is watched → when this launcher first saw it so, by the monotonic clock"""
        self._events: dict[str, tuple[float, str]] = {}
        """uid of a pod → when its events were read, and the last warning"""

    def start(self, order: LaunchOrder) -> None:
        """Create a pod, unless the order was begun before; see `Launcher.start`. Raises EnvironmentFault also if the API refuses it."""
        name = object_name(self._scope, order.worker)
        record = self._api.create(record_of(order, self._cluster, self._scope))
        created = record is not None
        if record is None:
            record = self._api.get(ConfigMap, name)
        if record is None or _annotations(record).keys() & {_POD, _STOP, _ENDED}:
            return
        try:
            self._api.create(secret_of(order, self._scope, record))
            pod = self._api.create(pod_of(order, self._cluster, self._scope, record)) or self._api.get(Pod, name)
        except (EnvironmentFault, ValueError):
            if created:  # nothing was started, and the next start of this worker may
                for kind in (Secret, ConfigMap):
                    with suppress(EnvironmentFault, Unreachable):
                        self._api.delete(kind, name)
            raise
        if pod is not None:
            self._annotate(record, {_POD: _uid(pod)})
        self._asked_s = 0.0

    def stop(self, worker: str, grace_s: float) -> None:
        """Delete a worker's pod with a grace, unless an earlier end was requested; see `Launcher.stop`."""
        self._stop(worker, grace_s)

    def kill(self, worker: str) -> None:
        """Delete a worker's pod with a grace of one second, the shortest that Kubernetes confirms; see `Launcher.kill`."""
        self._stop(worker, 0.0)

    def observe(self) -> list[ObservedWorker]:
        """The workers of this scope; see `Launcher.observe`. Records how workers ended. Raises Unreachable: the API does not answer;
        EnvironmentFault: it refuses."""
        return self._observe(_LOOK_S)

    def logs(self, worker: str) -> tuple[str, ...]:
        """The files of this host with the output of the worker, oldest first; see `Launcher.logs`. The end of the pod's output is
        fetched."""
        self._fetch_log(worker)
        return logs_of(self._logs, worker)

    def forget(self, worker: str) -> None:
        """Delete the objects of a worker; see `Launcher.forget`."""
        seen = next((each for each in self._observe(0.0) if each.worker == worker), None)
        if seen is None or not seen.is_over:
            return
        name = object_name(self._scope, worker)
        self._api.patch(Pod, name, {"metadata": {"finalizers": None}})
        self._api.delete(Pod, name)
        self._api.delete(Secret, name)
        self._api.delete(ConfigMap, name)  # last: until then another launcher can do this
        self._asked_s = 0.0
        prune_logs(self._logs, {each.worker for each in self._observe(0.0)})

    def close(self) -> None:
        """Close the connections to the API; see `Launcher.close`."""
        self._api.close()

    # --- pieces ---

    def _stop(self, worker: str, grace_s: float) -> None:
        name = object_name(self._scope, worker)
        record, pod = self._api.get(ConfigMap, name), self._api.get(Pod, name)
        asked = _Stop(time.time() + grace_s, grace_s)
        if record is not None:
            before = _annotation(record, _STOP, _Stop)
            if _annotation(record, _ENDED, _Ended) is not None or (before is not None and before.dies_at_s <= asked.dies_at_s):
                return
            self._annotate(record, {_STOP: msgspec.json.encode(asked).decode()})
        if pod is not None and not _is_over(pod):
            self._delete_pod(pod, grace_s, keep=record is not None)
        self._asked_s = 0.0

    def _delete_pod(self, pod: Pod, grace_s: float, *, keep: bool) -> None:
        """Delete a pod. `keep`: keep its object until its exit status is recorded."""
        if keep and not _is_deleted(pod):  # later no finalizer may be added
            kept = (pod.metadata.finalizers if pod.metadata is not None else None) or []
            self._api.patch(Pod, _name(pod), {"metadata": {"finalizers": [*kept, FINALIZER]}})
        self._api.delete(Pod, _name(pod), grace_s=max(1, math.ceil(grace_s)))  # with 0 the API would not wait for the host

    def _observe(self, age_s: float) -> list[ObservedWorker]:
        """The workers of this scope, by an answer of the API that may be `age_s` seconds old."""
        with self._lock:
            records, pods = self._objects(age_s)
            drivers = {_name(pod): pod for pod in pods if _labels(pod).get(ROLE) == "driver"}
            executors: dict[str, list[Pod]] = {}
            for pod in pods:
                if _labels(pod).get(ROLE) == "executor":
                    executors.setdefault(_labels(pod).get(WORKER, ""), []).append(pod)
            found = [self._seen(record, drivers.get(_name(record)), executors.get(_name(record), [])) for record in records]
            known = {_name(record) for record in records}
            for name, pod in drivers.items():
                if name not in known and not _is_over(pod) and not _is_deleted(pod):  # its record was deleted
                    found.append(self._live(pod, [], "", stopping=False))
            there = {*map(_uid, records), *map(_uid, pods)}
            self._first_s = {key: at_s for key, at_s in self._first_s.items() if key.split()[0] in there}
            self._events = {uid: event for uid, event in self._events.items() if uid in there}
        return sorted(found, key=lambda seen: seen.worker)

    def _objects(self, age_s: float) -> tuple[list[ConfigMap], list[Pod]]:
        """The records and the pods of this scope."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= age_s or not self._asked_s:
            # the pods last: a pod that is missing then was not created after its record was read
            records = self._api.list(ConfigMap, {SCOPE: self._scope, ROLE: "record"})
            self._answer = (records, self._api.list(Pod, {SCOPE: self._scope}))
            self._asked_s = now_s
        return self._answer

    def _seen(self, record: ConfigMap, pod: Pod | None, executors: Sequence[Pod]) -> ObservedWorker:
        """A worker with a record."""
        worker, order = _annotations(record).get(WORKER, _name(record)), _annotations(record).get(ORDER, "")
        stop, ended = _annotation(record, _STOP, _Stop), _annotation(record, _ENDED, _Ended)
        if ended is None:
            ended = self._end(record, pod, stop)
            if ended is not None:
                ended = msgspec.structs.replace(ended, process="" if pod is None else _where(pod))
                if not self._record_end(worker, record, pod, ended):  # another launcher was first, and may know more
                    there = self._api.get(ConfigMap, _name(record))
                    if there is not None:
                        return self._seen(there, pod, executors)
        if ended is not None:
            facts = (ended.since_s, ended.process, None, ended.status, ended.reason, stop is not None)
            return ObservedWorker(worker, ended.state, order, *facts)
        if pod is None:
            return ObservedWorker(worker, "starting", order, _created_s(record))
        if stop is not None and not _is_deleted(pod):  # the launcher that was to delete it was killed
            self._delete_pod(pod, stop.dies_at_s - time.time(), keep=True)
        return self._live(pod, executors, order, stopping=stop is not None)

    def _end(self, record: ConfigMap, pod: Pod | None, stop: _Stop | None) -> _Ended | None:
        """How a worker has ended; None if it has not."""
        if pod is None:
            if _POD in _annotations(record):
                by = "" if stop is not None else ", by a user or because its host was drained; it continues in a new one"
                return _Ended("gone", time.time(), None, f"its pod was deleted{by}")
            if self._since_s(record, "begun") < _BEGUN_WITHIN_S and stop is None:
                return None
            return _Ended("gone", time.time(), None, "it did not start: its launcher was killed, or it was requested to stop before")
        if _is_over(pod):
            status, reason = outcome_of(pod, None if stop is None else stop.grace_s)
            return _Ended("gone" if status is None else "exited", _ended_s(pod), status, reason)
        if not _is_deleted(pod) or pod.metadata is None:
            return None
        host = _host(pod)
        if not host:
            return _Ended("gone", time.time(), None, "it was requested to stop before it had a host")
        if self._since_s(pod, "deleted") < (pod.metadata.deletionGracePeriodSeconds or 0) + _LATE_S:
            return None
        return _Ended(
            "gone", time.time(), None, f"host {host} does not report that it has ended; if it runs there, its lease keeps it from writing"
        )

    def _record_end(self, worker: str, record: ConfigMap, pod: Pod | None, ended: _Ended) -> bool:
        """Write down how a worker has ended, and let its pod go if it was kept for that. Returns False, and does nothing, if the record has
        changed since it was read."""
        if pod is not None and _is_over(pod):
            self._fetch_log(worker)
        version = record.metadata.resourceVersion if record.metadata is not None else None
        change = {"resourceVersion": version, "annotations": {_ENDED: msgspec.json.encode(ended).decode()}}
        self._asked_s = 0.0
        if not self._api.patch(ConfigMap, _name(record), {"metadata": change}):
            return False
        kept = [] if pod is None or pod.metadata is None else pod.metadata.finalizers or []
        if FINALIZER in kept:
            self._api.patch(Pod, _name(record), {"metadata": {"finalizers": [each for each in kept if each != FINALIZER]}})
        return True

    def _live(self, pod: Pod, executors: Sequence[Pod], order: str, *, stopping: bool) -> ObservedWorker:
        """A worker whose pod has not ended."""
        worker, running = _annotations(pod).get(WORKER, _name(pod)), _state(pod).running
        stopping = stopping or _is_deleted(pod)
        if running is not None:
            # Spark in the driver waits for its executors without an error
            reason = next((f"executor {_name(each)}: {why}" for each in executors if (why := self._waits(each))), "")
            since_s = _moment_s(running.startedAt)
            return ObservedWorker(worker, "running", order, since_s, _where(pod), reason=reason, stopping=stopping)
        return ObservedWorker(worker, "starting", order, _created_s(pod), _where(pod), reason=self._waits(pod), stopping=stopping)

    def _waits(self, pod: Pod) -> str:
        """Why a pod does not run yet, with what to do; empty if nothing is known to hinder it."""
        if reason := waiting_reason(pod):
            return reason
        container = _container(pod)
        if pod.status is None or pod.status.phase != "Pending" or (container is not None and container.ready):
            return ""
        if self._since_s(pod, "pending") < _EVENTS_S:
            return ""
        read_s, text = self._events.get(_uid(pod), (-math.inf, ""))
        if time.monotonic() - read_s >= _EVENTS_S:
            warnings = [event for event in self._api.events(_name(pod)) if event.type == "Warning"]
            text = f"{warnings[-1].reason}: {_line(warnings[-1].message)}" if warnings else ""
            self._events[_uid(pod)] = (time.monotonic(), text)
        return text

    def _fetch_log(self, worker: str) -> None:
        """Fetch the end of a pod's output into its file. What was fetched before stays if that fails."""
        try:
            text = self._api.log(object_name(self._scope, worker), DRIVER)
        except (Unreachable, EnvironmentFault):  # its host does not answer
            return
        if text is not None:
            replace(log_path(self._logs, worker), text.encode())

    def _annotate(self, record: ConfigMap, annotations: Mapping[str, str]) -> None:
        self._api.patch(ConfigMap, _name(record), {"metadata": {"annotations": {**annotations}}})

    def _since_s(self, found: Pod | ConfigMap, why: str) -> float:
        """The seconds since this launcher first asked this of the object: the clocks of hosts differ."""
        now_s = time.monotonic()
        return now_s - self._first_s.setdefault(f"{_uid(found)} {why}", now_s)


def outcome_of(pod: Pod, grace_s: float | None) -> tuple[int | None, str]:
    """How a pod that is over has ended.

    Args:
        pod: a pod whose phase is Succeeded or Failed.
        grace_s: the grace of the request to stop it; None if there was none.

    Returns:
        The exit status (0 to 255, the negative number of a signal, or None if it is unknown), and the reason; empty for status 0.
    """
    assert pod.status is not None
    ended = _state(pod).terminated
    status = None if ended is None else ended.exitCode
    if grace_s == 0.0:
        return KILLED, killed_text(grace_s)
    for said, message in ((ended.reason if ended else None, ended.message if ended else None), (pod.status.reason, pod.status.message)):
        if said in _ENDS:
            what, remedy = _ENDS[said]
            # a program that never ran has no exit status of its own
            known = KILLED if said == "OOMKilled" else None
            return known, f"{what}{_after(message)}; {remedy}"
    if status is None:
        return None, f"its exit status is unknown{_after(pod.status.message or pod.status.reason)}"
    if status == _SIGKILL and grace_s is not None:
        return KILLED, killed_text(grace_s)
    return end_of(status) if status else (0, "")


def waiting_reason(pod: Pod) -> str:
    """Why a pod does not start, with what to do, as its own status tells it; empty if the status names no obstacle."""
    waiting = _state(pod).waiting
    if waiting is not None and waiting.reason in _WAITING:
        what, remedy = _WAITING[waiting.reason]
        return f"{what} ({waiting.reason}{_after(waiting.message)}); {remedy}"
    for condition in (pod.status.conditions if pod.status is not None else None) or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return f"no host has room for it (Unschedulable{_after(condition.message)}); {_UNSCHEDULABLE}"
    return ""


def _after(message: str | None) -> str:
    return f": {_line(message)}" if message else ""


def _line(message: str | None) -> str:
    """A text of the cluster as one line."""
    return " ".join((message or "").split()).rstrip(".")


def _where(pod: Pod) -> str:
    """Where a worker runs, for people."""
    host = _host(pod)
    return f"pod {_name(pod)}" + (f" on {host}" if host else "")


def _host(pod: Pod) -> str:
    return (pod.spec.nodeName if pod.spec is not None else None) or ""


def _container(pod: Pod) -> ContainerStatus | None:
    """The status of the container that a pod is about."""
    found = (pod.status.containerStatuses if pod.status is not None else None) or []
    # Spark may name the container of an executor itself
    return next((each for each in found if each.name in (DRIVER, "spark-kubernetes-executor")), found[0] if found else None)


def _state(pod: Pod) -> ContainerState:
    """The state of that container; one without content if there is none yet."""
    container = _container(pod)
    return ContainerState() if container is None or container.state is None else container.state


def _is_over(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in _OVER


def _is_deleted(pod: Pod) -> bool:
    return pod.metadata is not None and pod.metadata.deletionTimestamp is not None


def _ended_s(pod: Pod) -> float:
    ended = _state(pod).terminated
    return _moment_s(None if ended is None else ended.finishedAt) or time.time()


def _created_s(found: Pod | ConfigMap) -> float:
    return _moment_s(None if found.metadata is None else found.metadata.creationTimestamp)


def _moment_s(moment: datetime | None) -> float:
    """Seconds since the epoch; 0 if there is none."""
    return 0.0 if moment is None else moment.timestamp()


def _annotation(record: ConfigMap, name: str, kind: type[_Kind]) -> _Kind | None:
    """What an annotation of a record says; None if there is none, or a user has changed it into something else."""
    text = _annotations(record).get(name)
    with suppress(msgspec.DecodeError):
        return None if text is None else msgspec.json.decode(text, type=kind)
    return None


def _name(found: Pod | ConfigMap) -> str:
    return (found.metadata.name if found.metadata is not None else None) or ""


def _uid(found: Pod | ConfigMap) -> str:
    return (found.metadata.uid if found.metadata is not None else None) or ""


def _labels(found: Pod | ConfigMap) -> Mapping[str, str]:
    return (found.metadata.labels if found.metadata is not None else None) or {}


def _annotations(found: Pod | ConfigMap) -> Mapping[str, str]:
    return (found.metadata.annotations if found.metadata is not None else None) or {}
