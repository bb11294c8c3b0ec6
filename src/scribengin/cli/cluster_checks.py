"""The checks of `doctor --cluster`: what workers need of a YARN, Kubernetes or Spark standalone cluster.

The servers are asked first, then a job is run as a worker is: the rights of a user, the ports between hosts and what is installed on them
are known for certain only by a job. It is not run if a check before it has found that it cannot succeed.
"""

from __future__ import annotations

import base64
import pickle
import platform
import re
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from scribengin.cli.findings import Finding, State, check_files, is_missing
from scribengin.core.errors import EnvironmentFault, ScribenginError, Unreachable
from scribengin.core.java import OLDEST
from scribengin.core.secret import Secret
from scribengin.core.storage import make_folder, remove_tree
from scribengin.core.units import show_bytes, show_duration
from scribengin.launch.cluster_job import MEMORY_MIB, ClusterJob, HostReport, JobResult, JobRun, cause_of
from scribengin.launch.cluster_probe import GATHER_S, LATE, TASKS, clock_lead
from scribengin.launch.standalone import SparkCluster, StandaloneLauncher
from scribengin.launch.yarn import YarnLauncher
from scribengin.launch.yarn_cluster import ResourceManagers, YarnCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scribengin.cli.cluster_options import Cluster
    from scribengin.launch.contract import Launcher
    from scribengin.launch.kubernetes_cluster import KubernetesCluster
    from scribengin.launch.yarn_cluster import YarnQueue
    from scribengin.local.connection_checks import NodePlace

CLOCK_S = 5.0
"""the difference between two clocks that is reported, in seconds"""
_PLACE_S = 30.0
"""seconds that a host waits for each source and sink"""
_OVERHEAD_MIB = 384
"""the least that Spark adds to the memory of a container"""
_DEFAULT_MIB = 1024 + _OVERHEAD_MIB
"""the container of a driver or executor without `memory`"""
_JOB_MIB = (1 + TASKS) * (MEMORY_MIB + _OVERHEAD_MIB)
_MIB = 2**20
_FILE, _TEXT = "machine", "written by scribengin doctor"
_APPLICATION = re.compile(r"application_\w+")
_CLOCK_REMEDY = (
    "run an NTP client on all hosts. Leases do not depend on clocks, but times in `status`, watermarks with `ahead`, Kerberos (5 min) and "
    "S3 (15 min) do"
)
_PORTS_REMEDY = (
    "executors must reach the driver: open its ports between the hosts (spark.driver.port, spark.driver.blockManager.port), or name an "
    "address that they reach: --spark-conf spark.driver.host=HOST"
)
_SAME_PATH = "install Python and Scribengin under the same path on all hosts of the cluster"
_CAUSES = (
    (re.compile(r"PYTHON_VERSION_MISMATCH|different minor version"), "install the same minor version of Python on all hosts"),
    (re.compile(r"Cannot run program|cannot start \S+"), _SAME_PATH),
    (
        re.compile(r"Could not find or load main class org\.apache\.spark|No module named '?pyspark"),
        f"{_SAME_PATH}, with the extra `spark`",
    ),
    (re.compile(r"Max number of executor failures|Connection refused|Failed to connect to|connection timed out"), _PORTS_REMEDY),
    (re.compile(r"masters are unresponsive"), "check that --spark-master is the address that the master's web page shows"),
)
"""causes of a failed job: pattern, and what to do"""


class ClusterChecks:
    """The checks of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        state: Path | None,
        *,
        places: Sequence[NodePlace],
        spark: Mapping[str, str],
        within_s: float,
        machine: bool,
    ) -> None:
        """Prepare the checks.

        Args:
            cluster: the cluster.
            state: the folder of the state, which all its hosts must reach; None if it is not known.
            places: sources and sinks that its hosts must reach.
            spark: settings of Spark for the job.
            within_s: the seconds that the job may take.
            machine: True if this machine has what the job needs.
        """
        self._cluster = cluster
        self._state = state
        self._places = places
        self._spark = spark
        self._within_s = within_s
        self._machine = machine
        self._found: list[Finding] = []
        self._lead_s: tuple[float, float] | None = None
        """by how many seconds the clock of the cluster's web page is ahead of this machine's, at least and at most"""

    def findings(self) -> list[Finding]:
        """Run the checks, which takes a minute or two. Reports progress on stderr."""
        if isinstance(self._cluster, YarnCluster):
            self._check_yarn(self._cluster)
        elif isinstance(self._cluster, SparkCluster):
            self._check_standalone(self._cluster)
        else:
            self._check_kubernetes(self._cluster)
        return self._found

    def _add(self, check: str, state: State, found: str, remedy: str = "") -> None:
        self._found.append(Finding(check, state, found, "" if state == "ok" else remedy))

    def _add_fault(self, check: str, error: ScribenginError) -> None:
        self._add(check, "missing", error.message, error.remedy)

    # --- YARN ---

    def _check_yarn(self, cluster: YarnCluster) -> None:
        managers = ResourceManagers(cluster.web, cluster.user)
        self._add("settings", "ok", f"{cluster.conf}: ResourceManager at {' or '.join(cluster.web)}")
        try:
            self._check_manager(managers)
            self._check_nodes(managers)
            self._check_clock(managers.web)
            self._check_queue(managers, self._spark.get("spark.yarn.queue") or cluster.queue or "default")
        except (EnvironmentFault, Unreachable) as error:
            self._add_fault("ResourceManager", error)
            return
        home = self._check_home(cluster.file_system or "file:///", cluster.user)

        def clean(run: JobRun) -> None:
            """Spark's driver deletes the files of its application. They stay if it never started."""
            found = _APPLICATION.match(run.seen.process) if run.seen is not None else None
            if found is not None and home is not None:
                remove_tree(home / ".sparkStaging" / found[0])

        self._check_job(managers.web, self._state or home, lambda folder: YarnLauncher(folder, cluster), clean)

    def _check_manager(self, managers: ResourceManagers) -> None:
        state = managers.state()
        found = f"{managers.web}: {state.state}, YARN {state.resource_manager_version}"
        if not state.is_active:
            remedy = "wait until it is active, and see its log; of several, one must be active"
            self._add("ResourceManager", "missing", f"{found}, {state.ha_state or 'unknown'}", remedy)
        else:
            self._add("ResourceManager", "ok", found)

    def _check_nodes(self, managers: ResourceManagers) -> None:
        nodes = managers.nodes()
        found = f"{nodes.active} active; free: {nodes.available_cores} cores, {show_bytes(nodes.available_mib * _MIB)}"
        if not nodes.active:
            self._add("nodes", "missing", "no NodeManager is active", "start the NodeManagers, and see their logs")
        elif nodes.unhealthy or nodes.lost:
            found += f"; {nodes.unhealthy} unhealthy, {nodes.lost} lost"
            self._add("nodes", "warning", found, f"see the reason of each: {managers.web}/cluster/nodes/unhealthy, or …/lost")
        elif nodes.available_mib < _JOB_MIB:
            self._add("nodes", "warning", f"{found}; the job requests {_JOB_MIB} MiB", "wait for free memory, or end other applications")
        else:
            self._add("nodes", "ok", found)

    def _check_queue(self, managers: ResourceManagers, name: str) -> None:
        queues = managers.queues()
        if queues is None:
            self._add("queue", "ok", f"{name}: only a submission shows whether it can be used (not the CapacityScheduler)")
            return
        queue = next((each for each in queues if name in (each.queue_name, each.path)), None)
        if queue is None:
            known = ", ".join(each.queue_name for each in queues)
            self._add("queue", "missing", f"there is no queue {name}", f"name one of the cluster's queues with --yarn-queue: {known}")
        else:
            self._add_queue(name, queue)

    def _add_queue(self, name: str, queue: YarnQueue) -> None:
        largest_mib = 0 if queue.maximum_allocation is None else queue.maximum_allocation.memory
        used = f"{queue.absolute_used_capacity:.0f} % of the cluster used, of at most {queue.absolute_max_capacity:.0f} %"
        found = f"{name}: {queue.state}; {used}" + (f"; containers up to {largest_mib} MiB" if largest_mib else "")
        if queue.state != "RUNNING":
            self._add("queue", "missing", found, "have the queue started, or use another one: --yarn-queue")
        elif queue.absolute_used_capacity >= queue.absolute_max_capacity:
            self._add("queue", "warning", found, "the queue is full: applications wait for room; end others, or use another queue")
        elif 0 < largest_mib < _DEFAULT_MIB:
            remedy = (
                f"a driver or executor without `memory` requests {_DEFAULT_MIB} MiB: set `memory` and `spark.driver.memory` of tiers, or "
                "raise yarn.scheduler.maximum-allocation-mb"
            )
            self._add("queue", "warning", found, remedy)
        else:
            self._add("queue", "ok", found)

    def _check_home(self, file_system: str, user: str) -> Path | None:
        """Check the folder of this user, from which containers get their files. Returns it; None if it is not in HDFS, or not usable."""
        if not file_system.startswith("hdfs://"):
            if file_system.startswith("file:"):
                remedy = "set fs.defaultFS in core-site.xml to a file system that all hosts reach"
                self._add("HDFS", "warning", f"fs.defaultFS is {file_system}: the files of an application stay on this machine", remedy)
            else:
                self._add("HDFS", "ok", f"fs.defaultFS is {file_system}: only a submission shows whether it can be used")
            return None
        from scribengin.connectors.hdfs.path import HdfsPath

        try:
            home = HdfsPath.of(f"{file_system.rstrip('/')}/user/{user}")
            before = home.exists()
        except ValueError as error:
            self._add("HDFS", "missing", str(error), "correct fs.defaultFS in core-site.xml")
            return None
        except ScribenginError as error:
            self._add_fault("HDFS", error)
            return None
        finding = check_files("HDFS", home)
        if "AccessControlException" in finding.found:
            remedy = f"have the folder made for this user: hdfs dfs -mkdir -p /user/{user}; hdfs dfs -chown {user} /user/{user}"
            finding = Finding("HDFS", "missing", finding.found, remedy)
        self._found.append(finding)
        if not before:
            with suppress(ScribenginError):
                home.remove(all_in_it=False)
        return home if finding.state == "ok" else None

    # --- standalone ---

    def _check_standalone(self, cluster: SparkCluster) -> None:
        try:
            state = cluster.read_state()
        except Unreachable as error:
            self._add_fault("Spark master", error)
            return
        self._add("Spark master", "ok", f"{cluster.master}: {state.status}, web page {cluster.web}")
        alive, others = state.alive, len(state.workers) - len(state.alive)
        cores, memory_mib = sum(worker.coresfree for worker in alive), sum(worker.memoryfree for worker in alive)
        found = f"{len(alive)} alive; free: {cores} cores, {show_bytes(memory_mib * _MIB)}"
        if not alive:
            self._add("nodes", "missing", "the cluster has no Spark worker that is alive", "start its workers, and see their logs")
        elif not any(worker.coresfree and worker.memoryfree >= MEMORY_MIB for worker in alive):
            remedy = "wait for free resources, or end other applications"
            self._add("nodes", "missing", f"{found}: no worker has room for an executor of a core and {MEMORY_MIB} MiB", remedy)
        elif others:
            self._add("nodes", "warning", f"{found}; {others} not alive", f"see which, and why: {cluster.web}")
        else:
            self._add("nodes", "ok", found)
        self._check_clock(cluster.web)
        self._check_job(cluster.web, self._state, lambda folder: StandaloneLauncher(folder, cluster), lambda _: None)

    # --- Kubernetes ---

    def _check_kubernetes(self, cluster: KubernetesCluster) -> None:
        from scribengin.launch.kubernetes import RIGHTS, KubernetesLauncher
        from scribengin.launch.kubernetes_cluster import KubernetesApi

        server = cluster.access.cluster.server
        api = KubernetesApi(cluster)
        try:
            refused = [f"{verb} {resource}" for resource, verbs in RIGHTS.items() for verb in verbs if not api.may(verb, resource)]
        except (EnvironmentFault, Unreachable) as error:
            self._add_fault("Kubernetes API", error)
            return
        finally:
            api.close()
        self._add("Kubernetes API", "ok", f"{server} answers")
        if refused:
            remedy = f"bind the Role of the Helm chart to this account, in namespace {cluster.namespace}"
            self._add("rights", "missing", f"namespace {cluster.namespace}: this account may not {', '.join(refused)}", remedy)
        else:
            self._add("rights", "ok", f"namespace {cluster.namespace}: pods, config maps, secrets, output and events")
        scope = f"doctor {uuid4().hex}"
        self._check_job(server, self._state, lambda folder: KubernetesLauncher(folder, cluster, scope), lambda _: None)

    # --- all of them ---

    def _check_clock(self, web: str) -> None:
        self._lead_s = clock_lead(web)
        if self._lead_s is not None:
            self._add_clock("clock", [(web, self._lead_s)])

    def _add_clock(self, check: str, leads: Sequence[tuple[str, tuple[float, float]]]) -> None:
        """Add the finding of the clock that is furthest from this machine's. `leads`: host, and by how many seconds its clock is ahead, at
        least and at most."""
        host, (low, high) = max(leads, key=lambda each: _least(*each[1]))
        least_s = _least(low, high)
        if least_s > CLOCK_S:
            side = "ahead of" if low > 0 else "behind"
            self._add(check, "warning", f"{host} is {least_s:.0f} s or more {side} this machine", _CLOCK_REMEDY)
        else:
            most_s = max(max(abs(low), abs(high)) for _, (low, high) in leads)
            self._add(check, "ok", f"within {max(1.0, most_s):.0f} s of this machine")

    def _check_job(self, web: str, place: Path | None, launcher: Callable[[Path], Launcher], clean: Callable[[JobRun], None]) -> None:
        """Run the job, and add what it has found.

        Args:
            web: a page of the cluster, whose server's clock is compared.
            place: a folder that all hosts must reach; None if none is known.
            launcher: makes the launcher, over a folder.
            clean: called at the end.
        """
        if not self._machine or is_missing(self._found):
            self._add("job", "warning", "not run, because of what is missing", "correct that, and check again")
            return
        from scribengin.local.connection_checks import check_node_places

        with tempfile.TemporaryDirectory(prefix="scribengin-doctor-") as folder, _prepared(place) as files:
            check = partial(check_node_places, self._places, within_s=_PLACE_S)
            places = base64.b64encode(pickle.dumps(check)).decode() if self._places else ""
            job = ClusterJob(
                clock=web,
                folder="" if files is None else str(files),
                file=_FILE,
                text=_TEXT,
                within_s=self._within_s,
                spark=self._spark,
                places=Secret(places, "places"),
            )
            run = JobRun(launcher(Path(folder)), job)
            click.echo(f"running a job of two tasks on the cluster, up to {show_duration(self._within_s)}", err=True)
            try:
                result = run.run(lambda state: click.echo(f"  {state}", err=True))
            except ScribenginError as error:
                self._add_fault("job", error)
                return
            finally:
                with suppress(ScribenginError):
                    clean(run)
        self._add_result(result, web, place)

    def _add_result(self, result: JobResult, web: str, place: Path | None) -> None:
        reports = result.reports
        if not reports.tasks or reports.driver is None:
            self._found.append(job_fault(result, self._within_s, web))
            return
        executors = len({(task.host, task.process) for task in reports.tasks})
        hosts = ", ".join(sorted({task.host for task in reports.tasks}))
        took = show_duration(result.ended_s - result.begun_s)
        found = f"driver on {reports.driver.host}, two tasks in {executors} executor{'s' * (executors > 1)} on {hosts}, {took} in all"
        remedy = (
            f"of {TASKS} executors one did not start within {GATHER_S:g} s, so that fewer hosts were checked: see whether the cluster has "
            "room for it, or the queue limits its users"
        )
        self._add("job", "ok" if executors == TASKS else "warning", found, remedy)
        everyone = (reports.driver, *reports.tasks)
        self._add_versions(everyone)
        self._add_clock("host clocks", [(each.host, self._host_lead(each, result)) for each in everyone])
        if place is not None and all(each.scribengin for each in everyone):
            faults = {each.host: each.fault for each in everyone if each.fault}
            if faults:
                remedy = "all hosts must reach it under this name, with what its client needs (`hdfs-native`, `s3` settings), as this user"
                self._add("host files", "missing", "; ".join(f"{host}: {fault}" for host, fault in faults.items()), remedy)
            else:
                self._add("host files", "ok", f"{place}: the driver and the tasks read the file of this machine, and wrote their own")

        self._add_reached(everyone)

    def _add_reached(self, everyone: Sequence[HostReport]) -> None:
        """Add a finding for each source and sink."""
        for place in self._places:
            seen = [(host.host, each) for host in everyone for each in host.reached if each.node in (place.node, "")]
            wrong = [(host, each) for host, each in seen if each.state in ("wrong", "unreached")]
            check = f"{place.role} {place.node}"
            if wrong:
                found = _by_value((each.says, host) for host, each in wrong)
                self._add(check, "missing", found, wrong[0][1].remedy or "make it reachable from all hosts of the cluster")
            elif seen:
                self._add(check, "ok", _by_value((each.says, host) for host, each in seen))

    def _add_versions(self, everyone: Sequence[HostReport]) -> None:
        here = platform.python_version()
        other = any(_minor(each.python) != _minor(here) for each in everyone)
        found = _by_value((f"{each.python} ({each.executable})", each.host) for each in everyone)
        option = "--yarn-python" if isinstance(self._cluster, YarnCluster) else "the image"
        remedy = f"use the same minor version as on this machine ({here}): {option}"
        self._add("host Python", "warning" if other else "ok", found, remedy)
        for name, package in (("Scribengin", "scribengin"), ("PySpark", "pyspark")):
            versions = [getattr(each, package) for each in everyone]
            found = _by_value((getattr(each, package) or "cannot be imported", each.host) for each in everyone)
            mine = _version(package)
            wanted = "scribengin[spark]" if package == "scribengin" else package
            remedy = f"install it there: {everyone[0].executable} -m pip install '{wanted}=={mine}'"
            state: State = "missing" if not all(versions) else "warning" if any(each != mine for each in versions) else "ok"
            self._add(f"host {name}", state, found, remedy)
        found = _by_value((each.java or "not found", each.host) for each in everyone)
        old = any(each.java and int(each.java.partition(".")[0]) < OLDEST for each in everyone)
        self._add("host Java", "warning" if old else "ok", found, f"install Java {OLDEST} or newer on all hosts")

    def _host_lead(self, report: HostReport, result: JobResult) -> tuple[float, float]:
        """By how many seconds a host's clock is ahead of this machine's, at least and at most: by the time of the cluster's web page, if
        both have read it, and because the report was made while the job ran."""
        low, high = report.at_s - result.ended_s, report.at_s - result.begun_s
        if report.lead_s is not None and self._lead_s is not None:
            low, high = max(low, self._lead_s[0] - report.lead_s[1]), min(high, self._lead_s[1] - report.lead_s[0])
        return low, high


def job_fault(result: JobResult, within_s: float, web: str) -> Finding:
    """Why the tasks of a job did not end.

    Args:
        result: how the job ended.
        within_s: the seconds that it was given.
        web: the cluster's web page.
    """
    reports, seen = result.reports, result.seen
    found = _APPLICATION.match(seen.process) if seen is not None else None
    more = f"read the output of its containers: {web}/cluster/app/{found[0]}" if found else f"read the output of its executors: {web}"
    if reports.failed not in ("", LATE):
        cause = cause_of(reports.failed)
        return Finding("job", "missing", f"it failed: {cause}", _remedy_of(reports.failed) or more)
    if seen is not None and seen.is_over and reports.driver is None:
        reason, _, remedy = (seen.reason or "it ended without a report").partition("; ")
        return Finding("job", "missing", f"it failed: {reason}", remedy or _remedy_of(seen.reason + result.output) or more)
    if reports.driver is None:
        why = "" if seen is None or not (seen.reason or seen.process) else f": {seen.reason or seen.process}"
        remedy = "wait until the cluster has room for it, or allow more time with --timeout"
        return Finding("job", "missing", f"it has not started within {show_duration(within_s)}{why}", remedy)
    where = f"its driver runs on {reports.driver.host}"
    if reports.executors is None:
        return Finding("job", "missing", f"{where}, and Spark has not started: {seen.reason if seen else ''}".rstrip(": "), more)
    if reports.executors == 0:
        return Finding("job", "missing", f"{where}, and no executor has connected to it", f"{_PORTS_REMEDY}. {more[0].upper()}{more[1:]}")
    return Finding("job", "missing", f"{where}, and its tasks have not ended within {show_duration(within_s)}", more)


def _remedy_of(text: str) -> str:
    return next((remedy for pattern, remedy in _CAUSES if pattern.search(text)), "")


@contextmanager
def _prepared(place: Path | None) -> Iterator[Path | None]:
    """A folder in `place` with a file, for the hosts; deleted in the end. None if there is no place."""
    if place is None:
        yield None
        return
    folder = (place / f".doctor.{uuid4().hex}").absolute()
    try:
        make_folder(folder)
        (folder / _FILE).write_bytes(_TEXT.encode())
        yield folder
    finally:
        with suppress(ScribenginError, OSError):
            remove_tree(folder)


def _least(low: float, high: float) -> float:
    """The least distance from 0 of what is between the bounds."""
    return 0.0 if low <= 0 <= high else min(abs(low), abs(high))


def _minor(python: str) -> str:
    return python.rpartition(".")[0]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _by_value(pairs: Iterator[tuple[str, str]]) -> str:
    """Each value with its hosts: `3.11.7 on a, b; 3.12.1 on c`."""
    hosts: dict[str, list[str]] = {}
    for value, host in pairs:
        if host not in hosts.setdefault(value, []):
            hosts[value].append(host)
    return "; ".join(f"{value} on {', '.join(names)}" for value, names in hosts.items())
