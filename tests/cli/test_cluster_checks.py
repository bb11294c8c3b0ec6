"""What `doctor --cluster` says of clusters that are not as they should be: servers of these tests answer as theirs do."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.cli.cluster_checks import ClusterChecks, job_fault
from scribengin.cli.main import main
from scribengin.embedded.server import free_ports
from scribengin.launch.cluster_job import JobResult, cause_of, reports_of
from scribengin.launch.cluster_probe import MARK, clock_lead
from scribengin.launch.contract import ObservedWorker
from scribengin.launch.standalone import SparkCluster
from scribengin.launch.yarn_cluster import YarnCluster
from scribengin.local.connection_checks import NodePlace
from tests.served import served_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scribengin.cli.findings import Finding

QUEUE: dict[str, Any] = {
    "queueName": "default",
    "queuePath": "root.default",
    "state": "RUNNING",
    "absoluteUsedCapacity": 10.0,
    "absoluteMaxCapacity": 100.0,
    "maximumAllocation": {"memory": 8192, "vCores": 8},
}
INFO, METRICS, SCHEDULER = "/ws/v1/cluster/info", "/ws/v1/cluster/metrics", "/ws/v1/cluster/scheduler"
WORKER = {"state": "ALIVE", "cores": 4, "coresfree": 2, "memoryfree": 2048}


def scheduler(*queues: dict[str, Any], kind: str = "capacityScheduler") -> dict[str, Any]:
    return {"scheduler": {"schedulerInfo": {"type": kind, "queueName": "root", "queues": {"queue": list(queues)}}}}


def answers(**others: Any) -> dict[str, Any]:
    """The answers of a ResourceManager that has nothing wrong, but for `others`."""
    whole = {
        "info": {"clusterInfo": {"state": "STARTED", "haState": "ACTIVE", "resourceManagerVersion": "3.5.0"}},
        "metrics": {"clusterMetrics": {"activeNodes": 3, "availableMB": 9000, "availableVirtualCores": 9}},
        "scheduler": scheduler(QUEUE, {"queueName": "small", "queuePath": "root.dev.small", "state": "STOPPED"}),
    } | others
    return {INFO: whole["info"], METRICS: whole["metrics"], SCHEDULER: whole["scheduler"]}


@contextmanager
def served(pages: Mapping[str, Any], *, ahead_s: float = 0.0) -> Iterator[str]:
    """A server with these pages; its clock is ahead by so many seconds."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = pages.get(self.path)
            data = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(data)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate((time.time() if timestamp is None else timestamp) + ahead_s, usegmt=True)

        def log_message(self, *_: object) -> None:
            pass

    with served_by(Page) as web:
        yield web


def checked(cluster: SparkCluster | YarnCluster) -> dict[str, Finding]:
    """The findings without a job."""
    checks = ClusterChecks(cluster, None, places=[], spark={}, within_s=60.0, machine=False)
    found = checks.findings()
    assert all(bool(each.remedy) == (each.state != "ok") for each in found), found
    return {each.check: each for each in found}


def yarn_findings(folder: Path, pages: Mapping[str, Any], *, queue: str = "", ahead_s: float = 0.0) -> dict[str, Finding]:
    with served(pages, ahead_s=ahead_s) as web:
        return checked(YarnCluster(folder, (web,), queue))


def test_a_cluster_with_nothing_wrong(tmp_path: Path) -> None:
    found = yarn_findings(tmp_path, answers())
    assert [(check, each.state) for check, each in found.items()] == [
        ("settings", "ok"),
        ("ResourceManager", "ok"),
        ("nodes", "ok"),
        ("clock", "ok"),
        ("queue", "ok"),
        ("HDFS", "warning"),  # there is no core-site.xml
        ("job", "warning"),
    ]
    assert found["nodes"].found == "3 active; free: 9 cores, 8.8 GiB"
    assert "fs.defaultFS is file:///" in found["HDFS"].found
    assert found["job"].found == "not run, because of what is missing"


@pytest.mark.parametrize(
    ("others", "queue", "check", "state", "words"),
    [
        ({"info": {"clusterInfo": {"state": "STARTED", "haState": "STANDBY"}}}, "", "ResourceManager", "missing", "STANDBY"),
        ({"info": {"clusterInfo": {"state": "INITED", "haState": "INITIALIZING"}}}, "", "ResourceManager", "missing", "INITIALIZING"),
        ({"info": b"<html>log in</html>"}, "", "ResourceManager", "missing", "cannot be read"),
        ({"metrics": {"clusterMetrics": {"activeNodes": 0}}}, "", "nodes", "missing", "no NodeManager is active"),
        (
            {"metrics": {"clusterMetrics": {"activeNodes": 2, "unhealthyNodes": 1, "lostNodes": 3, "availableMB": 9000}}},
            "",
            "nodes",
            "warning",
            "1 unhealthy, 3 lost",
        ),
        ({"metrics": {"clusterMetrics": {"activeNodes": 1, "availableMB": 100}}}, "", "nodes", "warning", "the job requests 2688 MiB"),
        ({}, "etl", "queue", "missing", "there is no queue etl"),
        ({}, "small", "queue", "missing", "small: STOPPED"),
        ({}, "root.dev.small", "queue", "missing", "STOPPED"),
        ({"scheduler": scheduler({**QUEUE, "absoluteUsedCapacity": 100.0})}, "", "queue", "warning", "100 % of the cluster used"),
        ({"scheduler": scheduler({**QUEUE, "maximumAllocation": {"memory": 1024}})}, "", "queue", "warning", "up to 1024 MiB"),
        ({"scheduler": scheduler({**QUEUE, "queueName": "dev", "queues": {"queue": [QUEUE]}})}, "", "queue", "ok", "RUNNING"),
        ({"scheduler": scheduler(kind="fairScheduler")}, "etl", "queue", "ok", "only a submission"),
    ],
)
def test_what_is_wrong_with_yarn_is_found(tmp_path: Path, others: dict[str, Any], queue: str, check: str, state: str, words: str) -> None:
    found = yarn_findings(tmp_path, answers(**others), queue=queue)[check]
    assert (found.state, words in found.found) == (state, True), found


@pytest.mark.parametrize(("ahead_s", "words"), [(60.0, "s or more ahead of"), (-3600.0, "s or more behind"), (0.0, "within")])
def test_a_clock_that_differs_is_found(tmp_path: Path, ahead_s: float, words: str) -> None:
    found = yarn_findings(tmp_path, answers(), ahead_s=ahead_s)["clock"]
    assert (found.state, words in found.found) == ("warning" if ahead_s else "ok", True), found


def test_the_lead_of_a_clock_is_within_its_bounds() -> None:
    with served({}, ahead_s=100.0) as web:
        lead = clock_lead(web)
    assert lead is not None
    assert lead[0] <= 100.0 <= lead[1]
    assert clock_lead(f"http://127.0.0.1:{free_ports(1)[0]}") is None


def test_yarn_that_does_not_answer_is_found_and_nothing_more_is_asked(tmp_path: Path) -> None:
    found = checked(YarnCluster(tmp_path, (f"http://127.0.0.1:{free_ports(1)[0]}",)))
    assert [(check, each.state) for check, each in found.items()] == [("settings", "ok"), ("ResourceManager", "missing")]


@pytest.mark.parametrize(
    ("state", "states", "words"),
    [
        ({"status": "ALIVE", "workers": [WORKER, WORKER]}, ["ok", "ok", "ok", "warning"], "2 alive; free: 4 cores, 4.0 GiB"),
        ({"status": "ALIVE", "workers": [WORKER, {**WORKER, "state": "DEAD"}]}, ["ok", "warning", "ok", "warning"], "1 not alive"),
        ({"status": "ALIVE", "workers": []}, ["ok", "missing", "ok", "warning"], "no Spark worker that is alive"),
        ({"status": "ALIVE", "workers": [{**WORKER, "memoryfree": 100}]}, ["ok", "missing", "ok", "warning"], "no worker has room"),
        ({"status": "STANDBY", "workers": []}, ["missing"], "STANDBY, not ALIVE"),
        (None, ["missing"], "does not answer"),
    ],
)
def test_what_is_wrong_with_a_standalone_cluster_is_found(state: Any, states: list[str], words: str) -> None:
    with served({"/json/": state}) as web:
        found = checked(SparkCluster("spark://127.0.0.1:7077", web))
    assert [each.state for each in found.values()] == states
    assert words in found["nodes" if "nodes" in found else "Spark master"].found


DRIVER = {
    "role": "driver",
    "host": "a",
    "process": 1,
    "python": "3.11.7",
    "executable": "/python",
    "scribengin": "0.1.0",
    "pyspark": "4.2.0",
    "java": "17",
    "lead_s": None,
    "at_s": 0.0,
    "fault": "",
}


def output(*reports: dict[str, Any]) -> str:
    return "".join(f"a line of Spark\n{MARK}{json.dumps(each)}\n" for each in reports) + f'{MARK}{{"tasks": [{{"ro'


def ended(reason: str, state: Any = "exited", *, status: int | None = 1) -> ObservedWorker:
    return ObservedWorker("w", state, process="application_1_2 in YARN", status=status, reason=reason)


RUNNING = ObservedWorker("w", "running", process="application_1_2 in YARN")
MISMATCH = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed (b executor 1):
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12
"""


@pytest.mark.parametrize(
    ("seen", "text", "words", "remedy"),
    [
        (ObservedWorker("w", "starting", reason="waiting for resources"), "", "waiting for resources", "--timeout"),
        (None, "", "has not started within 1m00s", "--timeout"),
        (ended("it failed in YARN: the queue q does not exist; name another"), "", "the queue q does not exist", "name another"),
        (ended("its host cannot start /no/python", status=127), "", "cannot start /no/python", "under the same path"),
        (
            ended("ended with status 1"),
            "Error: Could not find or load main class org.apache.spark.deploy.yarn.ApplicationMaster",
            "status 1",
            "under the same path",
        ),
        (ended("ended with status 1"), "", "ended with status 1", "http://rm/cluster/app/application_1_2"),
        (RUNNING, output({"driver": DRIVER}), "its driver runs on a, and Spark has not started", "http://rm/cluster/app/application_1_2"),
        (RUNNING, output({"driver": DRIVER}, {"executors": 0}), "no executor has connected", "spark.driver.host"),
        (RUNNING, output({"driver": DRIVER}, {"executors": 2}), "its tasks have not ended within 1m00s", "read the output"),
        (
            ended(""),
            output({"driver": DRIVER}, {"executors": 0}, {"failed": "the time is over"}),
            "no executor has connected",
            "spark.driver.host",
        ),
        (ended(""), output({"driver": DRIVER}, {"executors": 2}, {"failed": MISMATCH}), "PYTHON_VERSION_MISMATCH", "same minor version"),
    ],
)
def test_why_a_job_failed_is_found(seen: ObservedWorker | None, text: str, words: str, remedy: str) -> None:
    found = job_fault(JobResult(reports_of(text), seen, text, 0.0, 1.0), 60.0, "http://rm")
    assert found.state == "missing"
    assert words in found.found
    assert remedy in found.remedy


def test_the_cause_of_an_exception_of_spark_is_its_innermost_line() -> None:
    assert cause_of(MISMATCH).startswith("pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH]")
    assert cause_of("no exception\nat all") == "no exception"
    assert cause_of("") == ""


def hosts(*others: dict[str, Any]) -> JobResult:
    """The result of a job whose driver has nothing wrong, and whose tasks are like it, but for `others`."""
    tasks = [{**DRIVER, "role": f"task {number}", "host": "bc"[number], **each} for number, each in enumerate(others)]
    return JobResult(reports_of(output({"driver": DRIVER}, {"tasks": tasks})), None, "", -1.0, 1.0)


@pytest.mark.parametrize(
    ("other", "check", "state", "words"),
    [
        ({}, "job", "ok", "driver on a, two tasks in 2 executors on b, c"),
        ({"host": "b"}, "job", "warning", "two tasks in 1 executor on b"),
        ({"python": "3.9.1"}, "host Python", "warning", "3.9.1 (/python) on c"),
        ({"scribengin": ""}, "host Scribengin", "missing", "cannot be imported on c"),
        ({"scribengin": "0.0.9"}, "host Scribengin", "warning", "0.0.9 on c"),
        ({"java": "11.0.1"}, "host Java", "warning", "11.0.1 on c"),
        ({"java": ""}, "host Java", "ok", "not found on c"),
        ({"at_s": 90.0}, "host clocks", "warning", "c is 89 s or more ahead of this machine"),
        ({"at_s": -90.0}, "host clocks", "warning", "c is 89 s or more behind this machine"),
        ({"fault": "no right"}, "host files", "missing", "c: no right"),
        ({"reached": [{"node": "in", "role": "source", "state": "ok", "says": "exists", "remedy": ""}]}, "source in", "ok", "exists on c"),
        (
            {"reached": [{"node": "in", "role": "source", "state": "wrong", "says": "is not there", "remedy": "make it"}]},
            "source in",
            "missing",
            "is not there on c",
        ),
        (
            {"reached": [{"node": "", "role": "source", "state": "unreached", "says": "no module", "remedy": ""}]},
            "source in",
            "missing",
            "no module on c",
        ),
    ],
)
def test_what_differs_on_a_host_is_found(tmp_path: Path, other: dict[str, Any], check: str, state: str, words: str) -> None:
    place = NodePlace("in", "source", "files", None)  # type: ignore[arg-type]  # it is not checked here
    checks = ClusterChecks(SparkCluster("spark://a:1", "http://a"), tmp_path, places=[place], spark={}, within_s=60.0, machine=True)
    checks._add_result(hosts({}, other), "http://a", tmp_path)
    (found,) = [each for each in checks._found if each.check == check]
    assert (found.state, words in found.found) == (state, True), found
    assert bool(found.remedy) == (state != "ok")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cluster", "standalone"], "--cluster standalone needs --spark-master"),
        (["--cluster", "standalone", "--yarn-queue", "q"], "--yarn-queue needs --cluster yarn"),
        (["--cluster", "yarn"], "--cluster yarn needs --yarn-conf FOLDER"),
        (["--spark-master", "spark://a:1"], "--spark-master needs --cluster standalone"),
        (["--flow", "flow.yaml"], "--flow needs --cluster"),
        (["--timeout", "5"], "Invalid value for '--timeout'"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(SystemExit) as left:
        main(["doctor", *words])
    assert left.value.code == 2
    assert says in capfd.readouterr().err


def test_settings_of_yarn_that_are_not_valid_are_a_finding(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--cluster", "yarn", "--yarn-conf", str(tmp_path), "--json"])
    assert left.value.code == 3
    answer = json.loads(capfd.readouterr().out)
    assert [each["state"] for each in answer["result"]["checks"] if each["check"] == "settings"] == ["missing"]
    (problem,) = [each for each in answer["problems"] if each["code"] == "doctor-settings"]
    assert "does not name a ResourceManager" in problem["message"]
