"""Workers in a real YARN, and what is told of applications that end."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from launch_benches import SMALL, SPARK_PROGRAM, all_over, until

from scribengin.core.errors import EnvironmentFault, Unreachable
from scribengin.core.process import within
from scribengin.core.secret import Secret
from scribengin.embedded.server import free_ports
from scribengin.embedded.yarn import Yarn
from scribengin.launch.contract import LaunchOrder, ObservedWorker
from scribengin.launch.records import Stopping
from scribengin.launch.yarn import YarnClientLauncher, YarnLauncher, outcome_of, submission_fault
from scribengin.launch.yarn_cluster import Application, ResourceManagers, YarnCluster
from tests.served import served_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


WITHIN_S = 240.0


@pytest.fixture
def launchers(yarn: Yarn, tmp_path: Path) -> Iterator[Callable[[], YarnLauncher]]:
    """Makes launchers over one folder. What they have started is killed."""
    cluster = YarnCluster.of(yarn.conf)
    yield lambda: YarnLauncher(tmp_path / "node", cluster)
    launcher = YarnLauncher(tmp_path / "node", cluster)
    assert within(WITHIN_S, lambda: all_over(launcher))


def order(folder: Path, worker: str, *words: str, secret: str = "") -> LaunchOrder:
    argv = (sys.executable, str(SPARK_PROGRAM), str(folder / f"{worker}.diary"), *words)
    secrets = {"HIDDEN": Secret(secret, "${HIDDEN}")} if secret else {}
    return LaunchOrder(worker, argv, {"SHOWN": "plain"}, secrets, memory_bytes=512 * 2**20, spark=SMALL)


@pytest.mark.timeout(900)
def test_workers_run_end_and_are_killed_as_applications(yarn: Yarn, launchers: Callable[[], YarnLauncher], tmp_path: Path) -> None:
    launcher = launchers()
    runs, ends, dies = "tweets.main-1", "tweets.main-2", "Tweets.Main-3"
    ordered = order(tmp_path, runs, "count=1000", "say=HIDDEN", "say=SHOWN", secret="wordless-secret")
    launcher.start(ordered)
    launcher.start(ordered)
    launchers().start(ordered)
    launcher.start(order(tmp_path, ends, "exit=7"))
    launcher.start(order(tmp_path, dies, "die"))
    assert next(seen for seen in launcher.observe() if seen.worker == runs).state == "starting"

    seen = until(launcher, runs, lambda seen: seen.state == "running")
    assert (seen.order, seen.status, seen.reason, seen.stopping) == (ordered.digest, None, "", False)
    assert within(WITHIN_S, lambda: "up " in (tmp_path / f"{runs}.diary").read_text())
    assert "counted 1000\n" in (tmp_path / f"{runs}.diary").read_text()

    seen = until(launcher, ends, lambda seen: seen.is_over)
    assert (seen.state, seen.status, seen.reason) == ("exited", 7, "ended with status 7")
    seen = until(launcher, dies, lambda seen: seen.is_over)
    assert (seen.state, seen.status) == ("exited", -9)
    assert "signal 9" in seen.reason

    # another launcher, which has the folder only
    other = launchers()
    assert [(seen.worker, seen.state) for seen in other.observe()] == [(dies, "exited"), (runs, "running"), (ends, "exited")]
    # the container's own output: Spark's JVM copies what Python prints, in its own time
    assert within(WITHIN_S, lambda: "wordless-secret\nplain\n" in "".join(Path(path).read_text() for path in other.logs(runs)))
    applications = json.dumps(yarn.resource_manager.read("/ws/v1/cluster/apps"))
    assert applications.count('"id": "application_') == 3, "a start that is repeated starts nothing"
    assert "wordless-secret" not in applications
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    assert not any(b"wordless-secret" in command for command in commands)

    other.stop(runs, 500.0)
    assert next(seen for seen in other.observe() if seen.worker == runs).stopping
    other.kill(runs)
    seen = until(other, runs, lambda seen: seen.is_over)
    assert (seen.state, seen.status, seen.reason) == ("exited", -9, "killed, as requested")
    for worker in (runs, ends, dies):
        launcher.forget(worker)
    assert launcher.observe() == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_worker_without_records_is_shown_and_killed(launchers: Callable[[], YarnLauncher], tmp_path: Path) -> None:
    launcher, worker = launchers(), "tweets.main-1"
    launcher.start(order(tmp_path, worker))
    until(launcher, worker, lambda seen: seen.state == "running")
    for path in (tmp_path / "node" / "workers" / worker).iterdir():
        path.unlink()
    (tmp_path / "node" / "workers" / worker).rmdir()
    seen = until(launcher, worker, lambda seen: seen.state == "running")
    assert (seen.order, seen.process.startswith("application_")) == ("", True)
    launcher.kill(worker)
    assert within(WITHIN_S, lambda: launcher.observe() == [])


@pytest.mark.timeout(600)
def test_in_client_mode_the_driver_is_a_process_of_this_machine(yarn: Yarn, tmp_path: Path) -> None:
    launcher, worker = YarnClientLauncher(tmp_path / "node", YarnCluster.of(yarn.conf, client=True)), "tweets.main-9"
    launcher.start(order(tmp_path, worker, "count=1000", "exit=7"))
    try:
        assert within(WITHIN_S, lambda: launcher.observe()[0].is_over), launcher.logs(worker)
        (seen,) = launcher.observe()
        assert (seen.state, seen.status) == ("exited", 7), [Path(path).read_text()[-2000:] for path in launcher.logs(worker)]
        assert "counted 1000\n" in (tmp_path / f"{worker}.diary").read_text(), "by an executor in YARN"
    finally:
        launcher.kill(worker)
        launcher.close()
    names = [each["name"] for each in yarn.resource_manager.read("/ws/v1/cluster/apps")["apps"]["app"]]
    assert names.count("pyspark-shell") == 1, "the application of its executors"


@pytest.mark.timeout(300)
def test_a_queue_that_does_not_exist_is_told(yarn: Yarn, tmp_path: Path) -> None:
    launcher = YarnLauncher(tmp_path / "node", YarnCluster.of(yarn.conf, queue="no-such-queue"))
    launcher.start(order(tmp_path, "tweets.main-1"))
    seen = until(launcher, "tweets.main-1", lambda seen: seen.is_over)
    assert (seen.state, seen.status) == ("gone", None)
    assert seen.reason == "it failed in YARN: the queue no-such-queue does not exist; name one of the cluster's queues: --yarn-queue"


@pytest.mark.timeout(300)
def test_memory_that_no_container_can_have_is_told(yarn: Yarn, tmp_path: Path) -> None:
    launcher = YarnLauncher(tmp_path / "node", YarnCluster.of(yarn.conf))
    launcher.start(LaunchOrder("tweets.main-1", (sys.executable, str(SPARK_PROGRAM)), memory_bytes=64 * 2**30, spark=SMALL))
    seen = until(launcher, "tweets.main-1", lambda seen: seen.is_over)
    assert (seen.state, seen.status) == ("gone", None)
    assert seen.reason.startswith("it was not submitted to YARN: a container can have 8192 MB of memory, and 65536 MB was requested for")


def test_an_application_that_was_accepted_after_the_last_answer_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, worker = YarnLauncher(tmp_path / "node", YarnCluster(tmp_path, ("http://127.0.0.1:1",))), "tweets.main-1"
    records = tmp_path / "node" / "workers" / worker
    records.mkdir()
    (records / "start.json").write_text('{"tag": "this-start"}')
    accepted, client = list[Application](), [ObservedWorker(worker, "running")]
    monkeypatch.setattr(launcher._managers, "tagged", lambda _tag: [*accepted])
    monkeypatch.setattr(launcher._managers, "check_active", lambda: None)
    monkeypatch.setattr(launcher._children, "observe", lambda: client)
    assert [seen.state for seen in launcher.observe()] == ["starting"]
    accepted.append(Application("application_1_1", worker, "RUNNING", application_tags="all,this-start"))
    client[0] = ObservedWorker(worker, "exited", status=0)
    assert [seen.state for seen in launcher.observe()] == ["running"], "an answer from before the end of the client says nothing"


def test_nothing_is_started_if_yarn_does_not_answer(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    launcher = YarnLauncher(tmp_path / "node", YarnCluster(tmp_path, (f"http://127.0.0.1:{port}",)))
    with pytest.raises(Unreachable, match=f"does not answer at http://127.0.0.1:{port}"):
        launcher.start(order(tmp_path, "tweets.main-1"))
    assert not list((tmp_path / "node" / "workers").iterdir())


@contextmanager
def answering(answer: Callable[[str], bytes | int]) -> Iterator[str]:
    """The address of a web server of this test. `answer`: path → content, or the status of a refusal."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answer(self.path)
            if isinstance(found, int):
                self.send_error(found)
            else:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(found)

        def log_message(self, *_: object) -> None:
            pass

    with served_by(Handler) as web:
        yield web


@pytest.mark.parametrize("code", [401, 403])
def test_a_user_who_may_not_is_told(tmp_path: Path, code: int) -> None:
    with answering(lambda _path: code) as web, pytest.raises(EnvironmentFault) as caught:
        YarnLauncher(tmp_path / "node", YarnCluster(tmp_path, (web,))).observe()
    assert caught.value.code == "yarn-refused"


def test_hosts_with_the_same_folder_do_not_see_each_others_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(path: str) -> bytes:
        asked.append(path.partition("applicationTags=")[2].partition("&")[0])
        return b'{"apps": null}'

    with answering(answer) as web:
        for host, folder in (("a", "node"), ("renamed", "node"), ("a", "other"), ("b", "third")):
            monkeypatch.setattr("socket.gethostname", lambda host=host: host)
            YarnLauncher(tmp_path / folder, YarnCluster(tmp_path, (web,))).observe()
        (tmp_path / "node" / "yarn-tag").unlink()  # as on another host: the same path, and none of its files
        YarnLauncher(tmp_path / "node", YarnCluster(tmp_path, (web,))).observe()
    assert asked[0] == asked[1], "it is written down"
    assert len(set(asked)) == 4


def test_a_resource_manager_that_recovers_its_applications_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers before it knows them: a worker that runs must not count as gone."""
    state = "INITIALIZING"

    def answer(path: str) -> bytes:
        return b'{"apps": null}' if "/apps?" in path else json.dumps({"clusterInfo": {"state": "STARTED", "haState": state}}).encode()

    submitted = ObservedWorker("tweets.main-1", "exited", "digest", 1.0, "", None, 0, "")
    monkeypatch.setattr("scribengin.launch.process_launcher.Children.observe", lambda _self: [submitted])
    with answering(answer) as web:
        launcher = YarnLauncher(tmp_path / "node", YarnCluster(tmp_path, (web,)))
        with pytest.raises(Unreachable, match="not active yet"):
            launcher.observe()
        state = "ACTIVE"
        (seen,) = launcher.observe()
    assert (seen.state, seen.reason.partition(":")[0]) == ("gone", "YARN no longer knows its application")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_keeps_a_driver_from_running_is_told(yarn: Yarn, launchers: Callable[[], YarnLauncher], tmp_path: Path) -> None:
    killed, unfound, unsafe = "tweets.killed-1", "tweets.unfound-1", "tweets.unsafe-1"
    launcher = launchers()
    launcher.start(order(tmp_path, killed))
    elsewhere = YarnLauncher(tmp_path / "other", YarnCluster.of(yarn.conf, python="/no/such/python"))
    elsewhere.start(order(tmp_path, unfound))
    assert (
        "cannot start /no/such/python; install Python and Scribengin there" in until(elsewhere, unfound, lambda seen: seen.is_over).reason
    )

    seen = until(launcher, killed, lambda seen: seen.state == "running")
    ResourceManagers([yarn.uri]).kill(seen.process.partition(" ")[0])
    assert "it was killed in YARN: " in (reason := until(launcher, killed, lambda seen: seen.is_over).reason)
    assert "by user" in reason

    yarn.hdfs.admin("-safemode", "enter")
    try:
        launcher.start(order(tmp_path, unsafe))
        seen = until(launcher, unsafe, lambda seen: seen.is_over)
    finally:
        yarn.hdfs.admin("-safemode", "leave")
    assert (seen.state, seen.reason) == (
        "gone",
        "it was not submitted to YARN: HDFS is in safe mode; wait until it has left it, or read: hdfs dfsadmin -safemode get",
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_kill_while_the_resource_manager_is_away_is_done_when_it_is_back(
    yarn: Yarn, launchers: Callable[[], YarnLauncher], tmp_path: Path
) -> None:
    launcher, worker = launchers(), "tweets.main-1"
    launcher.start(order(tmp_path, worker))
    until(launcher, worker, lambda seen: seen.state == "running")
    yarn.resource_manager.kill()
    with pytest.raises(Unreachable):
        launcher.kill(worker)
    yarn.start()
    seen = until(launcher, worker, lambda seen: seen.is_over)
    assert (seen.state, seen.status, seen.reason) == ("exited", -9, "killed, as requested")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_driver_that_uses_more_memory_than_requested_is_told(tmp_path: Path) -> None:
    with Yarn(tmp_path / "yarn", check_memory=True) as yarn:
        launcher, worker = YarnLauncher(tmp_path / "node", YarnCluster.of(yarn.conf)), "tweets.main-1"
        launcher.start(order(tmp_path, worker, "eat=1000"))
        seen = until(launcher, worker, lambda seen: seen.is_over)
    assert (seen.status, "raise spark.driver.memoryOverhead" in seen.reason) == (-9, True), seen.reason


def site(folder: Path, settings: dict[str, str]) -> Path:
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    (folder / "yarn-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    return folder


@pytest.mark.parametrize(
    ("settings", "web"),
    [
        ({"yarn.resourcemanager.hostname": "rm.example"}, ("http://rm.example:8088",)),
        ({"yarn.resourcemanager.hostname": "rm", "yarn.resourcemanager.webapp.address": "rm:1"}, ("http://rm:1",)),
        (
            {
                "yarn.resourcemanager.ha.rm-ids": "a, b",
                "yarn.resourcemanager.hostname.a": "one",
                "yarn.resourcemanager.webapp.address.b": "two:2",
            },
            ("http://one:8088", "http://two:2"),
        ),
        ({"yarn.http.policy": "HTTPS_ONLY", "yarn.resourcemanager.hostname": "rm"}, ("https://rm:8090",)),
    ],
    ids=["host", "address", "two", "https"],
)
def test_the_address_of_the_resource_manager_is_read_from_the_settings(
    tmp_path: Path, settings: dict[str, str], web: tuple[str, ...]
) -> None:
    assert YarnCluster.of(site(tmp_path, settings)).web == web


@pytest.mark.parametrize("text", ["<configuration/>", "<configuration>"], ids=["without one", "not XML"])
def test_settings_without_a_resource_manager_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "yarn-site.xml").write_text(text)
    with pytest.raises(EnvironmentFault) as caught:
        YarnCluster.of(tmp_path)
    assert caught.value.code == "yarn-settings"


def ended(state: str, diagnostics: str = "", final: str = "FAILED") -> Application:
    return Application("application_1_1", "w", state, final, diagnostics)


@pytest.mark.parametrize(
    ("application", "stopping", "status", "words"),
    [
        (ended("FINISHED", "", "SUCCEEDED"), None, 0, ""),
        (ended("FINISHED", "User application exited with status 7"), None, 7, "ended with status 7"),
        (ended("KILLED", "Application application_1_1 was killed by user ann at 10.0.0.1"), None, -9, "killed by user ann"),
        (ended("KILLED"), Stopping(0.0, 0.0), -9, "killed, as requested"),
        (ended("KILLED"), Stopping(0.0, 5.0), -9, "did not stop within 5 s"),
        (ended("FAILED", "AM Container for appattempt_1 exited with  exitCode: 137 Failing"), None, -9, "signal 9"),
        (ended("FAILED", "AM Container for appattempt_1 exited with  exitCode: -104 Failing"), None, -9, "spark.driver.memoryOverhead"),
        (ended("FAILED", "AM Container for appattempt_1 exited with  exitCode: -100 Failing"), None, None, "host of its container is lost"),
        (ended("FINISHED", 'java.io.IOException: Cannot run program "/no/python": error=2'), None, 127, "cannot start /no/python"),
        (ended("FAILED", "something  new\nfrom YARN"), None, None, "it failed in YARN: something new from YARN"),
    ],
)
def test_how_an_application_ended_is_told_as_of_a_process(
    application: Application, stopping: Stopping | None, status: int | None, words: str
) -> None:
    found, reason = outcome_of(application, stopping)
    assert found == status
    assert words in reason
    assert bool(reason) == (status != 0)


def test_an_unknown_cause_of_a_failed_submission_is_the_last_exception() -> None:
    assert submission_fault(
        '26/11/28 INFO Client: x\nException in thread "main" java.lang.IllegalStateException: why\n\tat a.b(C.java:1)\n'
    ) == ('Exception in thread "main" java.lang.IllegalStateException: why')
    assert submission_fault("all is well\n") == ""
