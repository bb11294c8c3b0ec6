"""What a YARN with rights, labels and full queues does with workers: who may not submit, who waits, and where containers run."""

from __future__ import annotations

import json
import sys
import urllib.request
from contextlib import contextmanager
from functools import partial
from getpass import getuser
from typing import TYPE_CHECKING

import launch_benches
import pytest
from launch_benches import SMALL, SPARK_PROGRAM, all_over

from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.core.process import within
from scribengin.embedded.yarn import Yarn
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.yarn import YarnLauncher
from scribengin.launch.yarn_cluster import YarnCluster
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

WITHIN_S = 600.0
until = partial(launch_benches.until, within_s=WITHIN_S)
NODE_MIB = 3072
ME, LABEL = getuser(), "fast"
RIGHTS = {
    "yarn.acl.enable": "true",
    "yarn.admin.acl": ME,
    "yarn.node-labels.enabled": "true",
    # by default it is 0, which is then everybody's
    "yarn.cluster.max-application-priority": 10,
}
SUBMITTERS = {
    # a blank is nobody; by default everybody may submit to the root, and so to all queues
    "root.acl_submit_applications": " ",
    "root.acl_administer_queue": " ",
    "root.default.acl_submit_applications": ME,
    "root.default.acl_administer_queue": ME,
}
LABELS = {
    f"root.accessible-node-labels.{LABEL}.capacity": 100,
    "root.default.accessible-node-labels": LABEL,
    f"root.default.accessible-node-labels.{LABEL}.capacity": 100,
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """A YARN with two nodes, of which the second has a label, and in which only this user may submit."""
    folder = tmp_path_factory.mktemp("limited")
    settings = RIGHTS | {"yarn.node-labels.fs-store.root-dir": (folder / "labels").as_uri()}
    with Yarn(folder / "yarn", nodes=2, memory_mib=NODE_MIB, settings=settings, scheduler=SUBMITTERS) as yarn:
        put(yarn, "POST", "/ws/v1/cluster/add-node-labels", {"nodeLabelInfo": [{"name": LABEL, "exclusivity": True}]})
        yarn.resource_manager.kill()
        # the scheduler refuses labels that do not exist yet
        again = Yarn(folder / "yarn", nodes=2, memory_mib=NODE_MIB, settings=settings, scheduler=SUBMITTERS | LABELS)
        again.start()
        port = again.nodes[1].address.rpartition(":")[2]
        nodes = [each["id"] for each in again.resource_manager.read("/ws/v1/cluster/nodes")["nodes"]["node"]]
        labelled = {"nodeToLabels": [{"nodeId": next(id_ for id_ in nodes if id_.endswith(f":{port}")), "labels": [LABEL]}]}
        put(again, "POST", "/ws/v1/cluster/replace-node-to-labels", labelled)
        yield again
        again.stop()


def put(yarn: Yarn, method: str, path: str, body: object) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    url = f"{yarn.uri}{path}?user.name={ME}"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers, method=method), timeout=120) as answer:
        assert answer.status == 200


@contextmanager
def launcher_of(folder: Path, yarn: Yarn, **options: str) -> Iterator[YarnLauncher]:
    """A launcher. What it has started is killed."""
    launcher = YarnLauncher(folder, YarnCluster.of(yarn.conf, **options))  # type: ignore[arg-type]

    try:
        yield launcher
    finally:
        assert within(WITHIN_S, lambda: all_over(launcher))


def order(
    folder: Path, worker: str, *words: str, mib: int = 512, spark: Mapping[str, str] | None = None, executors: int = 1
) -> LaunchOrder:
    argv = (sys.executable, str(SPARK_PROGRAM), str(folder / f"{worker}.diary"), *words)
    return LaunchOrder(worker, argv, {}, {}, memory_bytes=mib * 2**20, executors=executors, spark=SMALL | dict(spark or {}))


def diary(folder: Path, worker: str) -> str:
    path = folder / f"{worker}.diary"
    return path.read_text() if path.exists() else ""


def containers(yarn: Yarn, node: int) -> int:
    """The number of containers that run on a node, by its own list."""
    found = yarn.nodes[node].read("/ws/v1/node/containers")["containers"] or {}
    return sum(each["state"] == "RUNNING" for each in found.get("container", []))


def test_a_worker_without_room_is_starting_with_yarns_words_and_a_remedy_and_starts_when_room_comes(limited: Yarn, tmp_path: Path) -> None:
    with launcher_of(tmp_path / "node", limited) as launcher:
        holds, waits = "tweets.holds-1", "tweets.waits-1"
        launcher.start(order(tmp_path, holds, mib=1792))  # 768 for the driver and 2048 for the executor, of 3072
        assert within(WITHIN_S, lambda: containers(limited, 0) == 2)
        launcher.start(order(tmp_path, waits))
        seen = until(launcher, waits, lambda seen: "waits for room" in seen.reason)
        assert seen.state == "starting"
        assert "; free resources" in seen.reason, "the next action"
        assert "AM" in seen.reason, "YARN's own words"
        launcher.kill(holds)
        seen = until(launcher, waits, lambda seen: seen.state == "running")
        assert seen.reason == ""
        assert seen.since_s > 1e9, "YARN says since when, if it knows who asks"
        assert any(path.endswith(".container.log") for path in launcher.logs(waits)), "and where its output is"
        assert within(WITHIN_S, lambda: "up " in diary(tmp_path, waits))


def test_a_user_without_rights_is_told_which_and_a_user_without_folder_too(
    limited: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    with launcher_of(tmp_path / "node", limited) as launcher:
        launcher.start(order(tmp_path, "tweets.main-1"))
        seen = until(launcher, "tweets.main-1", lambda seen: seen.is_over)
        assert (seen.state, seen.status) == ("gone", None)
        assert seen.reason == ("it was not submitted to YARN: user ann may not write to its folder in HDFS; create /user/ann for it")
        monkeypatch.setenv("HADOOP_USER_NAME", ME)
        home = HdfsPath.of(f"{limited.hdfs.uri}/user/ann")
        home.make()
        home._asked(lambda raw: raw.set_owner(home.inside, "ann", "ann"), "failed to give")
        monkeypatch.setenv("HADOOP_USER_NAME", "ann")
        launcher.start(order(tmp_path, "tweets.main-2"))
        seen = until(launcher, "tweets.main-2", lambda seen: seen.is_over)
        assert (seen.state, seen.status) == ("gone", None)
        assert seen.reason.endswith(": user ann may not submit to the queue default; use another queue, or have the rights given")


def test_executors_run_on_the_nodes_with_the_label_and_an_unknown_label_is_told(limited: Yarn, tmp_path: Path) -> None:
    with launcher_of(tmp_path / "node", limited) as launcher:
        labelled, lost = "tweets.labelled-1", "tweets.lost-1"
        launcher.start(order(tmp_path, labelled, "count=1000", spark={"spark.yarn.executor.nodeLabelExpression": LABEL}))
        assert within(WITHIN_S, lambda: "counted 1000" in diary(tmp_path, labelled))
        assert (containers(limited, 0), containers(limited, 1)) == (1, 1), "the driver is on the node without the label"
        launcher.kill(labelled)
        until(launcher, labelled, lambda seen: seen.is_over)
        launcher.start(order(tmp_path, lost, spark={"spark.yarn.am.nodeLabelExpression": "no-such-label"}))
        seen = until(launcher, lost, lambda seen: seen.is_over)
        assert seen.reason.startswith("it was not submitted to YARN: the queue default may not use the node label no-such-label; "), (
            seen.reason
        )


def test_executors_come_and_go_with_the_work_and_the_priority_is_that_of_the_tier(limited: Yarn, tmp_path: Path) -> None:
    dynamic = {
        "spark.yarn.priority": "5",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "5s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    }
    assert accepted(tmp_path / "flow.yaml", dynamic)
    with launcher_of(tmp_path / "node", limited) as launcher:
        worker, most = "tweets.dynamic-1", 0
        launcher.start(order(tmp_path, worker, "work=8", spark=dynamic))

        def worked() -> bool:
            nonlocal most
            most = max(most, containers(limited, 0))
            return "worked 8" in diary(tmp_path, worker)

        assert within(WITHIN_S, worked)
        assert most == 3, "a driver and two executors, of which the order names one"
        assert within(WITHIN_S, lambda: containers(limited, 0) == 1), "none of them is left without work"
        (found,) = [
            each for each in limited.resource_manager.read(f"/ws/v1/cluster/apps?user.name={ME}")["apps"]["app"] if each["name"] == worker
        ]
        assert (found["priority"], found["state"]) == (5, "RUNNING")


def accepted(file: Path, spark: Mapping[str, str]) -> bool:
    """True if a tier may have these settings."""
    settings = ", ".join(f'{name}: "{value}"' for name, value in spark.items())
    file.write_text(f"""\
version: 1
name: shop
sources: {{orders: {{type: files, path: data, format: json, schema: "id BIGINT"}}}}
sinks: {{kept: {{from: orders, type: files, path: out, format: json}}}}
tiers: {{all: {{steps: [kept], resources: {{executors: 1, spark: {{{settings}}}}}}}}}
""")
    return not validate_file(file, {})[1]
