"""Workers in YARN. In Spark's cluster mode, the default, each is an application whose driver runs in the container of its application
master. In client mode the driver is a process of this machine, and only its executors are containers.

In cluster mode:

The application is submitted by Spark's own client, `spark-submit`, which the process launcher runs and supervises on this machine as it
does a worker: so an order begins at most one submission, and how that ended is known to every later launcher. From then on YARN has the
worker: it outlives the client, this machine and the launcher.

An application has two tags: one for all workers of the folder, and one for the one start of the worker. By them it is found again, also
if the client was killed after YARN had accepted the application. YARN starts the driver once (`spark.yarn.maxAppAttempts` is 1): the next
try is another worker, which the control plane orders. Who sets more attempts has two drivers of one worker for a moment; their leases
decide which one writes.

YARN can only kill a driver, not ask it to end. So `stop` writes down when the worker is to be killed; a worker of a control plane reads
the request in its own order in the registry.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace as replace_fields
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import FIRST_COMPILER_ONLY, find_java, spark_home
from scribengin.core.secret import Secret
from scribengin.core.storage import put_if_absent, read_or_none, replace
from scribengin.launch import container
from scribengin.launch.contract import KILLED, ObservedWorker, end_of, killed_text
from scribengin.launch.process_launcher import (
    LOG_BYTES,
    LOOPBACK_DRIVER,
    ORPHAN_GRACE_S,
    Children,
    LauncherHere,
    executor_settings,
    log_path,
)
from scribengin.launch.process_launcher import NAME as SETTINGS
from scribengin.launch.records import WorkerRecords
from scribengin.launch.yarn_cluster import Application, KerberosLogin, ResourceManagers
from scribengin.launch.yarn_python import FOLDER, LINK, PACK, PythonStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scribengin.launch.contract import LaunchOrder, State
    from scribengin.launch.records import Stopping
    from scribengin.launch.yarn_cluster import YarnCluster

_ANSWER_S = 5.0
_LOOK_S = 1.0
"""seconds for which an answer of YARN is used again: a node observes its workers twice a second"""
_ANSWER_BYTES = 2**26
_LOG_TAIL = 2**20
"""the bytes of a container's output that are fetched"""
_MEMORY_EXCEEDED = (-103, -104)
"""the exit codes of containers that YARN has ended because of their virtual or physical memory"""
_NODE_LOST = -100
_SESSION_WITHIN = "9m"
"""less than the ten minutes after which YARN itself ends an application master that has not registered"""
_START, _TAG = "start.json", "yarn-tag"
_PRINCIPAL, _KEYTAB = "spark.kerberos.principal", "spark.kerberos.keytab"
_USER_STATUS = re.compile(r"User application exited with (?:status )?(\d+)")
_CONTAINER_STATUS = re.compile(r"exited with\s+exitCode: (-?\d+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_CONTAINER = re.compile(r"container_\w+")
_NO_ROOM = re.compile(r"not yet activated|waiting for resources|Skipping AM assignment|(?:resource|capacity) limit|has reached its maximum")
_NUMBERS = re.compile(r"^\[[^\]]*\] | *(?:Details :|Last Node which was processed).*$")
"""the time, the resources and the host in what YARN says of an application that waits: they change with each heartbeat of a host"""
_FRAME = re.compile(
    rb"\A(?:(?:Container: |LogAggregationType: |LogType:|LogLastModifiedTime:|LogLength:|LogContents:|={9,}).*\n)+"
    rb"|End of LogType:[^\n]*\n\*+\s*\Z"
)
"""what a NodeManager writes around the output of a container"""
_FAULTS = (
    (
        re.compile(r"submitted by user \S+ to unknown queue: ?(\S+)"),
        "the queue {0} does not exist",
        "name one of the cluster's queues: --yarn-queue",
    ),
    (
        re.compile(r"User (\S+) (?:cannot|does not have permission to) submit \S+ (?:to )?queue (\S+)"),
        "user {0} may not submit to the queue {1}",
        "use another queue, or have the rights given",
    ),
    (
        re.compile(r"Required (executor|AM) memory \((.+?)\).* is above the max threshold \((.+?)\)"),
        "a container can have {2} of memory, and {1} was requested for the {0}",
        "request less memory, or raise yarn.scheduler.maximum-allocation-mb and yarn.nodemanager.resource.memory-mb",
    ),
    (
        re.compile(rf"File does not exist: (\S+/{re.escape(FOLDER)}/python-\S+)"),
        "the Python archive {0} was deleted",
        "leave that folder to Scribengin: the next worker uploads it again",
    ),
    (
        re.compile(r"login\.LoginException: ([^\n]+)"),
        "the Kerberos login failed: {0}",
        "check --yarn-principal, --yarn-keytab and krb5.conf with: kinit -kt FILE PRINCIPAL",
    ),
    (
        re.compile(r"Client cannot authenticate via:\s*\[[^\]]*KERBEROS[^\]]*\]|Failed to find any Kerberos tgt"),
        "the cluster asks for a Kerberos login",
        "name one with --yarn-principal and --yarn-keytab; or run kinit as the user of the node, and again before the ticket ends",
    ),
    (
        re.compile(
            r"queue=(\S+) doesn't have permission to access all labels in resource request\. labelExpression of resource request=(\S+?)\."
        ),
        "the queue {0} may not use the node label {1}",
        "use another label (spark.yarn.am.nodeLabelExpression, spark.yarn.executor.nodeLabelExpression) or queue, or have the rights given",
    ),
    (re.compile(r"Name node is in safe mode"), "HDFS is in safe mode", "wait until it has left it, or read: hdfs dfsadmin -safemode get"),
    (re.compile(r"Permission denied: user=(\S+?),"), "user {0} may not write to its folder in HDFS", "create /user/{0} for it"),
)
"""causes of a failed submission in the output of Spark's client: pattern, what it means, and what to do"""


class _Start(msgspec.Struct, frozen=True):
    tag: str


class YarnLauncher:
    """A launcher whose workers are applications of a YARN cluster; see `Launcher`.

    `folder` has the records of the workers, and their output as it was last fetched. One process at a time may use the folder of a host.
    """

    def __init__(self, folder: Path, cluster: YarnCluster, *, log_bytes: int = LOG_BYTES, orphan_grace_s: float = ORPHAN_GRACE_S) -> None:
        self._children = Children(folder, log_bytes=log_bytes, orphan_grace_s=orphan_grace_s)
        self._cluster = cluster
        self._managers = ResourceManagers(cluster.web, cluster.user)
        self._store = None if cluster.archive is None else PythonStore(cluster.file_system, cluster.user, cluster.web)
        self._asked_s, self._answer = 0.0, list[Application]()
        self._tag = _folder_tag(self._children.folder)

    def start(self, order: LaunchOrder) -> None:
        """Submit an application, unless the order was begun before; see `Launcher.start`."""
        check_login(order, self._cluster)
        self._applications()  # nothing is started if YARN does not answer: a client would try for a quarter of an hour
        if WorkerRecords(self._children.folder / "workers" / order.worker).keeper() is None:
            self.ship()

        def program(records: Path) -> tuple[Sequence[str], Mapping[str, str | None]]:
            tag = f"scribengin-{secrets.token_hex(12)}"
            replace(records / _START, msgspec.json.encode(_Start(tag)))
            replace(records / container.ENVIRONMENT, _environment(order, self._cluster), private=True)
            return self._submission(order, records, tag)

        self._children.start(order, master="yarn", settings=self._settings(order), environment={}, program=program)
        self._asked_s = 0.0

    def ship(self) -> tuple[str, bool]:
        """Make the Python of the workers available in HDFS, if it is an archive, and delete archives that nothing uses any more.

        Returns:
            Its URL, empty if it is not an archive; and whether it was uploaded now.

        Raises:
            EnvironmentFault: HDFS does not answer, or refuses it.
        """
        if self._store is None or self._cluster.archive is None:
            return "", False
        place, uploaded = self._store.put(self._cluster.archive)
        self._store.clean(self._managers, self._cluster.archive.digest)
        return str(place), uploaded

    def stop(self, worker: str, grace_s: float) -> None:
        """Kill a worker that has not ended after `grace_s` seconds; see `Launcher.stop`. A launcher does that when it observes."""
        seen = next((each for each in self._observe(0.0) if each.worker == worker), None)
        if seen is None or seen.is_over:
            return
        records = self._records(worker)
        before = records.stopping()
        if records.folder.is_dir() and (before is None or time.monotonic() + grace_s < before.dies_at_s):
            records.write_stopping(grace_s)

    def kill(self, worker: str) -> None:
        """Kill a worker's application, and a client that still submits it; see `Launcher.kill`."""
        records = self._records(worker)
        if records.folder.is_dir():
            records.write_stopping(0.0)
        self._children.kill(worker)
        for application in self._applications():
            if application.is_live and application.name == worker:
                self._managers.kill(application.id)
                self._asked_s = 0.0

    def observe(self) -> list[ObservedWorker]:
        """The workers of this folder; see `Launcher.observe`. Kills those whose time has come. Raises Unreachable: YARN does not answer."""
        return self._observe(_LOOK_S)

    def logs(self, worker: str) -> tuple[str, ...]:
        """The files of this host with the output of the worker and of its submission, oldest first; see `Launcher.logs`. The end of the
        output of the driver's container is fetched from its NodeManager."""
        folder = self._children.folder / "logs"
        output = log_path(folder, f"{worker}.container")
        application = self._by_worker([worker], self._applications()).get(worker)
        if application is not None and application.am_container_logs:
            with suppress(OSError):  # its NodeManager is gone, or YARN has deleted the output: what was fetched before stays
                text = _container_output(application.am_container_logs)
                if text:
                    replace(output, text)
        return (*self._children.logs(worker), *([str(output)] if output.exists() else []))

    def forget(self, worker: str) -> None:
        """Remove a worker's record; see `Launcher.forget`."""
        seen = next((each for each in self._observe(0.0) if each.worker == worker), None)
        if seen is not None and seen.is_over:
            self._children.forget(worker)

    def close(self) -> None:
        """Release the resources of the launcher; see `Launcher.close`."""
        self._children.close()

    # --- pieces ---

    def _observe(self, age_s: float) -> list[ObservedWorker]:
        """The workers of this folder, by an answer of YARN that may be `age_s` seconds old."""
        here = {seen.worker: seen for seen in self._children.observe()}
        applications = self._applications(age_s)
        mine = self._by_worker(here, applications)
        if any(here[worker].state not in ("starting", "running") for worker in here.keys() - mine.keys()):
            # a client has ended, perhaps after the answer, or the answer came from a ResourceManager that recovers: YARN may know the
            # application now
            self._managers.check_active()
            applications = self._applications()
            mine = self._by_worker(here, applications)
        found = [self._seen(seen, mine.get(worker)) for worker, seen in here.items()]
        known = {application.id for application in mine.values()}
        for application in applications:
            if not application.is_live or application.id in known:
                continue
            if application.name in here:
                self._managers.kill(application.id)  # of an earlier start, whose end was recorded
            else:  # its records are lost
                where = f"{application.id} in YARN"
                found.append(ObservedWorker(application.name, _state_of(application), "", application.started_time / 1000, where))
        return sorted(found, key=lambda seen: seen.worker)

    def _records(self, worker: str) -> WorkerRecords:
        return WorkerRecords(self._children.folder / "workers" / worker)

    def _applications(self, age_s: float = 0.0) -> list[Application]:
        """The applications of this folder, newest first; the answer may be `age_s` seconds old."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= age_s or not self._asked_s:
            self._answer = sorted(self._managers.tagged(self._tag), key=lambda each: each.started_time, reverse=True)
            self._asked_s = now_s
        return self._answer

    def _by_worker(self, workers: Iterable[str], applications: Sequence[Application]) -> dict[str, Application]:
        """Worker → the application of its present start, if YARN has it."""
        tags = {worker: self._start_tag(worker) for worker in workers}
        return {each.name: each for each in applications if each.name in tags and tags[each.name] in each.application_tags.split(",")}

    def _start_tag(self, worker: str) -> str:
        """The tag of the worker's present start; empty if there is no record of it."""
        data = read_or_none(self._records(worker).folder / _START)
        with suppress(msgspec.DecodeError):
            return "" if data is None else msgspec.json.decode(data, type=_Start).tag
        return ""

    def _seen(self, here: ObservedWorker, application: Application | None) -> ObservedWorker:
        """A worker with records. `here` is the client that submits it, as a process of this machine."""
        worker, stopping = here.worker, self._records(here.worker).stopping()
        if application is None:
            return self._submitted(here, stopping is not None)
        where = f"{application.id} in YARN"
        started_s, ended_s = application.started_time / 1000, application.finished_time / 1000
        if application.is_live:
            if stopping is not None and stopping.dies_at_s <= time.monotonic():
                self._managers.kill(application.id)
            state = _state_of(application)
            reason = _waiting(application.diagnostics) if state == "starting" else ""
            return ObservedWorker(worker, state, here.order, started_s, where, None, None, reason, stopping is not None)
        status, reason = outcome_of(application, stopping)
        return ObservedWorker(
            worker,
            "gone" if status is None else "exited",
            here.order,
            ended_s,
            where,
            None,
            status,
            reason,
            stopping is not None,
            here.strays,
        )

    def _submitted(self, here: ObservedWorker, stopping: bool) -> ObservedWorker:
        """A worker of which YARN has no application: it is being submitted, or its submission failed, or YARN no longer knows it."""
        if here.state in ("starting", "running"):
            return ObservedWorker(here.worker, "starting", here.order, here.since_s, "its submission to YARN", stopping=stopping)
        if here.state == "exited" and stopping:
            return replace_fields(here, stopping=True)
        if here.state == "exited" and here.status == 0:
            reason = "YARN no longer knows its application: the ResourceManager was started without its state, or forgot it"
        else:
            fault = submission_fault(_tail(self._children.logs(here.worker)))
            reason = f"it was not submitted to YARN: {fault or here.reason}"
        return ObservedWorker(here.worker, "gone", here.order, here.since_s, "", None, None, reason, stopping, here.strays)

    def _settings(self, order: LaunchOrder) -> dict[str, str | Secret]:
        settings = _executor_settings(order, self._cluster) | {
            "spark.yarn.maxAppAttempts": "1",
            # by default a driver that has no session after 100 s is ended; a worker starts its session at once, or reports why it cannot
            "spark.yarn.am.waitTime": _SESSION_WITHIN,
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": self._cluster.python,
            "spark.yarn.appMasterEnv.PYSPARK_DRIVER_PYTHON": self._cluster.python,
        }
        if self._cluster.archive is not None:
            settings["spark.yarn.config.gatewayPath"] = str(spark_home())  # Spark's jars are those of the archive
            settings["spark.yarn.config.replacementPath"] = self._cluster.archive.spark_home
            settings.pop("spark.executorEnv.PYTHONPATH", None)  # a path of this machine
        elif path := os.environ.get("PYTHONPATH"):
            settings["spark.yarn.appMasterEnv.PYTHONPATH"] = path  # so that the container can import what this process can
        if self._cluster.local:
            settings["spark.yarn.appMasterEnv.SPARK_LOCAL_IP"] = "127.0.0.1"
        return settings

    def _submission(self, order: LaunchOrder, records: Path, tag: str) -> tuple[Sequence[str], Mapping[str, str | None]]:
        """The command and the environment of the client. `tag`: the tag of this start."""
        private = f"{records / container.ENVIRONMENT}#{container.ENVIRONMENT}"
        tags, archives = [self._tag, tag], list[str]()
        if self._store is not None and self._cluster.archive is not None:
            tags.append(self._cluster.archive.tag)
            archives = [f"--archives={self._store.folder / self._cluster.archive.name}#{LINK}"]  # besides those of spark.yarn.dist.archives
        command = [
            str(spark_home() / "bin" / "spark-submit"),
            "--master=yarn",
            "--deploy-mode=cluster",
            f"--name={order.worker}",
            f"--properties-file={records / SETTINGS}",
            f"--files={private}",  # besides those of spark.yarn.dist.files
            # these take precedence over the settings of a flow
            *archives,
            f"--conf=spark.yarn.tags={','.join(tags)}",
            "--conf=spark.yarn.submit.waitAppCompletion=false",
            container.__file__,
            *order.argv[1:],
        ]
        environment = {"HADOOP_CONF_DIR": str(self._cluster.conf), "YARN_CONF_DIR": None, "SPARK_HOME": str(spark_home())}
        environment |= {"JAVA_HOME": str(find_java().home), "SPARK_CONF_DIR": None, "PYSPARK_SUBMIT_ARGS": None}
        environment |= {"SPARK_SUBMIT_OPTS": " ".join([*FIRST_COMPILER_ONLY, "-XX:+UseSerialGC"])}
        return command, environment | ({"SPARK_LOCAL_IP": "127.0.0.1"} if self._cluster.local else {})


class YarnClientLauncher(LauncherHere):
    """A launcher whose workers are processes of this machine, with executors in YARN: Spark's client mode. The workers end with the
    machine."""

    def __init__(self, folder: Path, cluster: YarnCluster, *, log_bytes: int = LOG_BYTES, orphan_grace_s: float = ORPHAN_GRACE_S) -> None:
        super().__init__(folder, log_bytes=log_bytes, orphan_grace_s=orphan_grace_s)
        self._cluster = cluster

    def start(self, order: LaunchOrder) -> None:
        """Start a worker; see `Launcher.start`. Raises Unreachable: YARN does not answer."""
        check_login(order, self._cluster)
        ResourceManagers(self._cluster.web, self._cluster.user).check_active()  # Spark would try for a quarter of an hour
        settings = _executor_settings(order, self._cluster)
        environment = {"HADOOP_CONF_DIR": str(self._cluster.conf)}
        if self._cluster.local:
            settings |= LOOPBACK_DRIVER
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._children.start(order, master="yarn", settings=settings, environment=environment)


def _executor_settings(order: LaunchOrder, cluster: YarnCluster) -> dict[str, str | Secret]:
    """Spark's settings for the executors of a worker, in both modes."""
    settings = executor_settings(order) | {
        "spark.executor.instances": str(order.executors),
        # by default a session waits up to 30 s for its executors; here the lease and the recovery need none
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.yarn.jars": f"local:{spark_home()}/jars/*",
        "spark.executorEnv.PYSPARK_PYTHON": cluster.python,
    }
    if cluster.login is not None:
        settings[_PRINCIPAL] = cluster.login.principal
        settings[_KEYTAB] = str(cluster.login.keytab.absolute())
    if cluster.queue:
        settings["spark.yarn.queue"] = cluster.queue
    if cluster.local:
        settings["spark.executorEnv.SPARK_LOCAL_IP"] = "127.0.0.1"
    return settings


def check_login(order: LaunchOrder, cluster: YarnCluster) -> None:
    """Raise EnvironmentFault if a worker's Kerberos login, of its flow or of the node, cannot be used."""
    own = {
        name: value.reveal() if isinstance(value, Secret) else value for name in (_PRINCIPAL, _KEYTAB) if (value := order.spark.get(name))
    }
    if not own:
        if cluster.login is not None:
            cluster.login.check()
        return
    if len(own) < 2:
        raise EnvironmentFault(
            f"the flow sets only {', '.join(own)}", remedy=f"set {_PRINCIPAL} and {_KEYTAB} of the tier, or neither", code="yarn-kerberos"
        )
    login = KerberosLogin(own[_PRINCIPAL], Path(own[_KEYTAB]))
    login.check()
    if login.name != cluster.user:
        raise EnvironmentFault(
            f"the flow's principal is the user {login.name} in YARN, and this node manages the applications of {cluster.user}",
            remedy=f"start a node for it: --yarn-principal {login.principal} --yarn-keytab FILE",
            code="yarn-kerberos",
        )


def outcome_of(application: Application, stopping: Stopping | None) -> tuple[int | None, str]:
    """How an application ended.

    Args:
        application: an application that is not live.
        stopping: the request to stop its worker; None if there was none.

    Returns:
        Its exit status (0 to 255, the negative number of a signal, or None if it is unknown), and the reason; empty for status 0.
    """
    said = " ".join(application.diagnostics.split())
    if application.state == "KILLED":
        if stopping is None:
            return KILLED, f"it was killed in YARN: {said or 'without a reason'}"
        return KILLED, killed_text(stopping.grace_s)
    if application.final_status == "SUCCEEDED":
        return 0, ""
    if found := _USER_STATUS.search(said):
        return end_of(int(found[1]))
    if found := _NO_PROGRAM.search(said):
        return 127, _unstartable(found[1])
    if found := _CONTAINER_STATUS.search(said):
        code = int(found[1])
        if code in _MEMORY_EXCEEDED:
            return KILLED, "YARN ended its container, which used more memory than requested; raise spark.driver.memoryOverhead"
        if code == _NODE_LOST:
            return None, "the host of its container is lost"
        if code < 0:
            return None, f"YARN ended its container ({code}): {said}"
        status, reason = end_of(code)
        return status, reason if status < 0 else f"{reason}: {said}"
    return None, f"it failed in YARN: {submission_fault(said) or said or 'without a reason'}"


def _unstartable(program: str) -> str:
    """Why a host cannot start a Python, and what to do."""
    if program.startswith(f"./{LINK}/"):
        return (
            f"its host cannot start {program.removeprefix(f'./{LINK}/')} of the Python archive: it is made for another system, or a link "
            f"to a Python that the host does not have, as in a packed venv; {PACK}"
        )
    return f"its host cannot start {program}; install Python and Scribengin there, or name another path: --yarn-python"


def submission_fault(output: str) -> str:
    """Why a submission failed, with what to do, from the output of Spark's client or YARN's own words; the last line that names an
    exception, if the cause is not known."""
    for pattern, what, remedy in _FAULTS:
        if found := pattern.search(output):
            return f"{what.format(*found.groups())}; {remedy.format(*found.groups())}"
    causes = [
        line.strip() for line in output.splitlines() if re.match(r"(Caused by: |Exception in thread .* )?[\w.$]+(Exception|Error)\b", line)
    ]
    return causes[-1] if causes else ""


def _tail(files: Sequence[str]) -> str:
    """The end of the last of the files; empty if there is none."""
    if not files:
        return ""
    with Path(files[-1]).open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
        return file.read().decode(errors="replace")


def _waiting(diagnostics: str) -> str:
    """Why an application does not run yet, in YARN's own words, with what to do if its queue has no room."""
    said = _NUMBERS.sub("", " ".join(diagnostics.split()))
    if not _NO_ROOM.search(said):
        return said
    return f"waits for room in its queue: {said.rstrip('.')}; free resources there, use another queue (--yarn-queue), or request less"


def _state_of(application: Application) -> State:
    """The state of the worker of a live application."""
    return "running" if application.state == "RUNNING" else "starting"


def _folder_tag(folder: Path) -> str:
    """The tag of all workers of a folder. It follows from the name of this host and the path, so that it is the same again if the folder is
    lost; and is written down, so that it stays when the host gets another name."""
    text = f"{socket.gethostname()} {folder}"
    put_if_absent(folder / _TAG, f"scribengin-{sha256(text.encode()).hexdigest()[:16]}".encode())
    return (folder / _TAG).read_text(encoding="utf-8")


def _environment(order: LaunchOrder, cluster: YarnCluster) -> bytes:
    """The variables of the worker, with secrets, for a file that only its user may read."""
    hidden = {name: secret.reveal() for name, secret in order.secrets.items()}
    python = {} if cluster.archive is None else {container.EXECUTOR_PYTHON: cluster.python}
    return msgspec.json.encode({**order.environment, **hidden, container.SPARK_MASTER: "yarn", **python})


def _container_output(logs: str) -> bytes:
    """The end of what a container has printed. `logs`: the address of the page that shows it. Raises OSError."""
    place, found = urlsplit(logs), _CONTAINER.search(logs)
    if found is None:
        return b""
    parts = []
    for name in ("stdout", "stderr"):
        url = f"{place.scheme}://{place.netloc}/ws/v1/node/containerlogs/{found[0]}/{name}?size=-{_LOG_TAIL}"
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
            parts.append(_FRAME.sub(b"", answer.read(_ANSWER_BYTES)))
    return b"".join(parts)
