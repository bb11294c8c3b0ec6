"""The life of one pod on a node: its volumes, its containers and its status, until it is deleted."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.kubernetes.api import ApiError
from harness.kubernetes.containers import ContainerBuilder, NotConfigured
from harness.kubernetes.probes import ContainerProbes
from harness.kubernetes.processes import ContainerProcess, not_started, now
from harness.kubernetes.volumes import HOST_IP, NotMounted, PodVolumes
from scribengin.core.storage import make_folder, remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.kubernetes.api import Json
    from harness.kubernetes.kubelet import ScriptedKubelet

_TICK_S = 1.0
"""the longest time between two checks of a pod; what happens to it is handled at once"""
_DEFAULT_GRACE_S = 30
_BACK_OFF_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""the waiting times before the restarts of a container; the last one is that of all further ones"""
_MESSAGE_BYTES, _MESSAGE_LOG_BYTES, _MESSAGE_LINES = 4096, 2048, 80
"""the limits of a container's last message: in its file, and from its log"""
_TERMINAL = ("Succeeded", "Failed")


@dataclass
class _Container:
    """One container of a pod, with all its runs."""

    spec: Json
    init: bool
    restarts: int = 0
    process: ContainerProcess | None = None
    """the newest run; None while the next one is waited for"""
    probes: ContainerProbes | None = None
    """those of the newest run"""
    ended: dict[str, object] | None = None
    """how the newest run ended; None while it runs"""
    before: dict[str, object] | None = None
    """how the run before ended"""
    waiting: tuple[str, str] = ("PodInitializing", "")
    """the reason and the message while nothing runs"""
    due: float = 0.0
    """when it may be restarted"""
    events: set[str] = field(default_factory=set)
    """the reasons of waiting that had an event"""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    @property
    def ready(self) -> bool:
        """True if it runs and its probes succeed."""
        return self.running and self.probes is not None and self.probes.ready

    def status(self) -> Json:
        """As `containerStatuses` has it."""
        if self.running:
            assert self.process is not None
            state: Json = {"running": {"startedAt": self.process.started_at}}
        elif self.ended is not None:
            state = {"terminated": self.ended}
        else:
            reason, message = self.waiting
            state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        done = self.init and self.ended is not None and self.ended["exitCode"] == 0
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": f"test://{self.spec['image']}" if self.process else "",
            "ready": (self.ready and not self.init) or done,
            "started": self.running and self.probes is not None and self.probes.started,
            "restartCount": self.restarts,
            "state": state,
            "lastState": {"terminated": self.before} if self.before else {},
            **({"containerID": f"process://{self.process.pid}"} if self.process else {}),
        }


@dataclass(frozen=True)
class _Ending:
    """A pod ends: by a deletion, or with a reason of the kubelet's own."""

    kill_at: float
    reason: str = ""
    message: str = ""
    conditions: tuple[Json, ...] = ()


class PodRunner:
    """A thread that makes one pod of a node what the API server wants it to be, and reports its status."""

    def __init__(self, kubelet: ScriptedKubelet, pod: Json) -> None:
        """Start the thread."""
        self._kubelet = kubelet
        self._api = kubelet.cluster.api
        self._pod = pod
        self.key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self.uid: str = pod["metadata"]["uid"]
        self.folder: Path = kubelet.folder / "pods" / self.uid
        self._path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self._volumes = PodVolumes(kubelet.cluster, pod, self.folder, kubelet.name)
        self._mounted = False
        self._containers = [
            *(_Container(spec, init=True) for spec in pod["spec"].get("initContainers", [])),
            *(_Container(spec, init=False, waiting=("ContainerCreating", "")) for spec in pod["spec"]["containers"]),
        ]
        self._policy: str = pod["spec"].get("restartPolicy", "Always")
        self._started_at = now()
        self._began = time.monotonic()
        self._ending: _Ending | None = None
        self._asked_to_end = False
        self._gone = False
        self._closed = False
        self._recorded: set[str] = set()
        self._reported: Json = {}
        self._times: dict[str, str] = {}
        """when each condition of the reported status has changed"""
        self._finished: Json | None = None
        """the status after which nothing runs any more"""
        previous = pod.get("status", {})
        if previous.get("phase") in _TERMINAL:  # it ended on this node before this kubelet
            self._finished = previous
        self._wake = threading.Event()
        self._wake.set()
        self._thread = threading.Thread(target=self._run, name=f"pod-{self.key}", daemon=True)
        self._thread.start()

    # What others tell the runner.

    def update(self, pod: Json) -> None:
        """The pod has changed in the API server."""
        self._pod = pod
        self.wake()

    def removed(self) -> None:
        """The pod exists no more in the API server."""
        self._gone = True
        self.wake()

    def wake(self) -> None:
        """Check the pod at once."""
        self._wake.set()

    def process_of(self, container: str | None = None) -> ContainerProcess:
        """The running process of a container; of the first one if no name is given. Raises LookupError."""
        for each in self._containers:
            if each.process is not None and each.running and container in (None, each.name):
                return each.process
        raise LookupError(f"no container of the pod {self.key} is running")

    def log_of(self, container: str, *, previous: bool = False) -> tuple[Path | None, bool]:
        """The log file of a container's newest run, and whether it still runs; None if there is no such run.

        Args:
            container: its name.
            previous: take the run before.
        """
        for each in self._containers:
            if each.name == container:
                path = self._log(each, each.restarts - 1 if previous else each.restarts)
                return (path if path.exists() else None), each.running and not previous
        return None, False

    def evict(self, message: str) -> None:
        """End the pod as a kubelet does whose node lacks a resource."""
        moment = now()
        disrupted = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": message,
            "lastTransitionTime": moment,
        }
        self.event("Warning", "Evicted", message)
        self._ending = _Ending(time.monotonic(), "Evicted", message, (disrupted,))
        self.wake()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all containers."""
        for each in self._containers:
            if each.process is not None:
                each.process.send(number)

    def close(self) -> None:
        """Kill all containers, without a word to the API server."""
        self._closed = True
        self.wake()
        self._thread.join()
        for each in self._containers:
            if each.process is not None:
                each.process.send(signal.SIGKILL)

    def event(self, kind: str, reason: str, message: str) -> None:
        """Record an event of the pod, once for each message."""
        if f"{reason} {message}" in self._recorded:
            return
        self._recorded.add(f"{reason} {message}")
        self._kubelet.event(self._pod, kind, reason, message)

    # The thread.

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(_TICK_S)
            self._wake.clear()
            if self._kubelet.frozen:
                continue
            try:
                if self._check():
                    return
            except ApiError as error:
                self._kubelet.note(f"{self.key}: {error}")

    def _check(self) -> bool:
        """Do what is due now. Returns True if the pod exists no more. Raises ApiError."""
        if self._gone:
            self._signal_all(signal.SIGKILL)
            if any(each.running for each in self._containers):
                return False
            remove_tree(self.folder / "volumes")
            self._kubelet.forget(self.uid)
            return True
        self._collect()
        meta = self._pod["metadata"]
        if "deletionTimestamp" in meta:
            return self._check_deletion(meta)
        if self._finished is not None:
            self._report(self._finished)
            return False
        if self._ending is None:
            self._check_deadline()
        if self._ending is not None:
            self._check_ending(self._ending)
            return False
        if not self._reported:
            self._report(self._status())  # before volumes and images are waited for
        self._advance()
        self._report(self._status())
        return False

    def _check_deletion(self, meta: Json) -> bool:
        grace = meta.get("deletionGracePeriodSeconds", _DEFAULT_GRACE_S)
        kill_at = time.monotonic() + grace
        if self._ending is None or self._ending.reason:
            self._ending = _Ending(kill_at)
            self._asked_to_end = False
            for each in self._containers:
                if each.running:
                    self.event("Normal", "Killing", f"Stopping container {each.name}")
        elif kill_at < self._ending.kill_at:  # it was deleted again, with less grace
            self._ending = _Ending(kill_at)
        if not self._ended_all(self._ending, grace):
            return False
        self._report(self._finished or self._final())
        with self._gone_if_missing():
            self._api.delete(self._path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})
            self.removed()
        return False

    def _check_deadline(self) -> None:
        deadline = self._pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None and time.monotonic() - self._began > deadline:
            message = "Pod was active on the node longer than the specified deadline"
            self.event("Normal", "DeadlineExceeded", message)
            grace = self._pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
            self._ending = _Ending(time.monotonic() + grace, "DeadlineExceeded", message)

    def _check_ending(self, ending: _Ending) -> None:
        if self._ended_all(ending, max(0.0, ending.kill_at - time.monotonic())):
            self._finished = self._final(ending)
            self._report(self._finished)

    def _ended_all(self, ending: _Ending, grace: float) -> bool:
        """True if no container runs any more. They get SIGTERM first, and SIGKILL when their time is over."""
        if not any(each.running for each in self._containers):
            self._collect()
            return True
        if time.monotonic() >= ending.kill_at or not grace:
            self._signal_all(signal.SIGKILL)
        elif not self._asked_to_end:
            self._signal_all(signal.SIGTERM)
        self._asked_to_end = True
        return False

    def _signal_all(self, number: signal.Signals) -> None:
        for each in self._containers:
            if each.process is not None:
                each.process.send(number)

    def _collect(self) -> None:
        """Take notice of the runs that have ended."""
        for each in self._containers:
            if each.process is not None and not each.process.running and each.ended is None:
                message = self._last_words(each)
                each.ended = {**each.process.terminated(), **({"message": message} if message else {})}

    def _last_words(self, container: _Container) -> str:
        """What a container has left in its termination file, or the end of its log if the specification says so."""
        assert container.process is not None
        file = self._volumes.termination_file(container.spec)
        written = file.read_bytes()[:_MESSAGE_BYTES] if file.exists() else b""
        if not written and container.process.exit_code and container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            lines = self._log(container, container.restarts).read_bytes().splitlines(keepends=True)[-_MESSAGE_LINES:]
            written = b"".join(lines)[-_MESSAGE_LOG_BYTES:]
        return written.decode(errors="replace")

    def _advance(self) -> None:
        """Mount the volumes, start the containers that may start, and restart those that have ended."""
        if not self._mounted:
            try:
                make_folder(self.folder / "logs")
                self._volumes.prepare()
            except NotMounted as error:
                self.event("Warning", "FailedMount", str(error))
                return
            self._mounted = True
        for each in self._containers:
            if each.init:
                if each.ended is not None and each.ended["exitCode"] == 0:
                    continue
                self._advance_one(each)
                return
            self._advance_one(each)

    def _advance_one(self, container: _Container) -> None:
        if container.running:
            return
        if container.ended is not None:
            if not self._restarts(container):
                return
            container.before, container.ended, container.process = container.ended, None, None
            container.due = time.monotonic() + _BACK_OFF_S[min(container.restarts, len(_BACK_OFF_S) - 1)]
            container.waiting = ("CrashLoopBackOff", f"back-off restarting failed container {container.name} in pod {self.key}")
        if time.monotonic() < container.due:
            self._later(container.due)
        elif self._has_image(container):
            self._start(container)

    def _restarts(self, container: _Container) -> bool:
        assert container.ended is not None
        if container.init:
            return self._policy != "Never"
        return self._policy == "Always" or (self._policy == "OnFailure" and container.ended["exitCode"] != 0)

    def _later(self, due: float) -> None:
        timer = threading.Timer(max(0.0, due - time.monotonic()), self.wake)
        timer.daemon = True
        timer.start()

    def _has_image(self, container: _Container) -> bool:
        image = container.spec["image"]
        if image not in self._kubelet.missing_images:
            return True
        message = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'
        if "ErrImagePull" not in container.events:
            container.events.add("ErrImagePull")
            container.waiting = ("ErrImagePull", message)
            self.event("Warning", "Failed", f'Failed to pull image "{image}": {message}')
            self._later(time.monotonic() + 0.5)
        else:
            container.waiting = ("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {message}')
            self.event("Normal", "BackOff", f'Back-off pulling image "{image}"')
        return False

    def _start(self, container: _Container) -> None:
        builder = ContainerBuilder(
            self._pod,
            self._volumes,
            node=self._kubelet.name,
            server_port=self._kubelet.cluster.port,
            images=self._kubelet.images,
            folder=self.folder,
        )
        try:
            launch = builder.launch_of(container.spec)
        except NotConfigured as error:
            container.waiting = ("CreateContainerConfigError", str(error))
            self.event("Warning", "Failed", f"Error: {error}")
            return
        if container.before is not None:
            container.restarts += 1
        file = self._volumes.termination_file(container.spec)
        make_folder(file.parent)
        file.unlink(missing_ok=True)
        try:
            container.process = ContainerProcess(
                launch.command,
                environment=launch.environment,
                folder=launch.folder,
                log=self._log(container, container.restarts),
                guard=self._kubelet.guard,
                ended=self.wake,
            )
        except OSError as error:
            container.ended = not_started(error)
            self.wake()
            return
        process = container.process
        container.probes = ContainerProbes(
            container.spec,
            process,
            launch,
            changed=self.wake,
            failed=lambda kind, message: self._probe_failed(process, kind, message),
        )
        self._kubelet.event(self._pod, "Normal", "Started", f"Started container {container.name}")

    def _probe_failed(self, process: ContainerProcess, kind: str, message: str) -> None:
        """Record the failure of a probe; without a kind, the container is ended as in a deletion.

        Args:
            process: the run of the container.
            kind: the kind of the probe.
            message: the message of the event.
        """
        if kind:
            self.event("Warning", "Unhealthy", message)
            return
        self.event("Normal", "Killing", message)
        process.send(signal.SIGTERM)
        grace = self._pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
        timer = threading.Timer(grace, process.send, (signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def _log(self, container: _Container, run: int) -> Path:
        return self.folder / "logs" / f"{container.name}-{run}.log"

    # The status.

    def _status(self) -> Json:
        """The status as it is now; it is kept if nothing will run any more."""
        main = [each for each in self._containers if not each.init]
        failed_init = any(
            each.init and each.ended and each.ended["exitCode"] != 0 and not self._restarts(each) for each in self._containers
        )
        waits = any(each.init and not (each.ended and each.ended["exitCode"] == 0) for each in self._containers)
        ended = [each for each in main if each.ended is not None and not self._restarts(each)]
        if failed_init:
            phase = "Failed"
        elif waits or any(each.ended is None and not each.running and each.before is None for each in main):
            phase = "Pending"
        elif len(ended) == len(main):
            phase = "Failed" if any(each.ended and each.ended["exitCode"] != 0 for each in ended) else "Succeeded"
        else:
            phase = "Running"
        status = self._made(phase)
        if phase in _TERMINAL:
            self._finished = status
        return status

    def _final(self, ending: _Ending | None = None) -> Json:
        """The status of a pod whose containers were ended."""
        main = [each for each in self._containers if not each.init]
        whole = all(each.ended is not None and each.ended["exitCode"] == 0 for each in main)
        for each in self._containers:
            if each.ended is None:
                each.ended = {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": now()}
        if ending is None:
            return self._made("Succeeded" if whole and self._policy != "Always" else "Failed")
        return self._made("Failed", reason=ending.reason, message=ending.message, conditions=ending.conditions)

    def _made(self, phase: str, *, reason: str = "", message: str = "", conditions: tuple[Json, ...] = ()) -> Json:
        initialized = all(each.ended is not None and each.ended["exitCode"] == 0 for each in self._containers if each.init)
        main = [each for each in self._containers if not each.init]
        ready = all(each.ready for each in main)
        done = {"reason": "PodCompleted"} if phase == "Succeeded" else {"reason": "PodFailed"} if phase == "Failed" else {}
        unready = done or {"reason": "ContainersNotReady"}
        states: dict[str, tuple[bool, Any]] = {
            "PodReadyToStartContainers": (self._mounted and phase not in _TERMINAL, {}),
            "Initialized": (initialized, {}),
            "ContainersReady": (ready, {} if ready else unready),
            "Ready": (ready, {} if ready else unready),
        }
        return {
            "phase": phase,
            "startTime": self._started_at,
            "hostIP": HOST_IP,
            "hostIPs": [{"ip": HOST_IP}],
            "podIP": HOST_IP,
            "podIPs": [{"ip": HOST_IP}],
            **({"reason": reason} if reason else {}),
            **({"message": message} if message else {}),
            "conditions": [
                *({"type": kind, "status": str(true), **more} for kind, (true, more) in states.items()),
                *conditions,
            ],
            "initContainerStatuses": [each.status() for each in self._containers if each.init],
            "containerStatuses": [each.status() for each in main],
        }

    def _report(self, status: Json) -> None:
        """Send the status, if it has changed here or in the API server. Raises ApiError."""
        if status == self._reported and not self._was_overwritten(status):
            return
        old = {each["type"]: each for each in self._reported.get("conditions", [])}
        moment = now()
        sent = dict(status)
        sent["conditions"] = [
            each if each.get("lastTransitionTime") else {**each, "lastTransitionTime": self._since(old.get(each["type"]), each, moment)}
            for each in status.get("conditions", [])
        ]
        with self._gone_if_missing():
            self._api.patch(f"{self._path}/status", {"metadata": {"uid": self.uid}, "status": sent})
        self._reported = status
        self._times = {each["type"]: each["lastTransitionTime"] for each in sent["conditions"]}

    def _was_overwritten(self, status: Json) -> bool:
        """True if a controller has changed a condition: the pods of a silent node are no longer ready."""
        seen = {each["type"]: each["status"] for each in self._pod.get("status", {}).get("conditions", [])}
        return any(seen.get(each["type"], each["status"]) != each["status"] for each in status.get("conditions", []))

    @contextmanager
    def _gone_if_missing(self) -> Iterator[None]:
        """Around a request for the pod itself: it may have been deleted by force."""
        try:
            yield
        except ApiError as error:
            if error.status != 404:
                raise
            self.removed()

    def _since(self, old: Json | None, new: Json, moment: str) -> str:
        if old is not None and old["status"] == new["status"]:
            return str(self._times.get(new["type"], moment))
        return moment
