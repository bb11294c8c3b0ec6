"""Services of a project, by the command line, each call a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scribengin.core.cache import cache_folder
from scribengin.core.process import Process, birth_of, within
from scribengin.embedded import services
from scribengin.embedded.kafka import read_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Call = Callable[..., dict[str, Any]]


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Call]:
    """`call("start", "kafka")` runs `scribengin dev-services start kafka --json` in a folder; what is up in the end is stopped."""

    def run(*words: str, status: int = 0) -> dict[str, Any]:
        command = [sys.executable, "-m", "scribengin.cli", "dev-services", *words, "--json"]
        settings = os.environ | {"SCRIBENGIN_CACHE": str(cache_folder())}
        # a pipe for its output: a service that kept it open would let this wait for ever
        ended = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False, timeout=300)
        assert ended.returncode == status, ended.stdout + ended.stderr
        answer: dict[str, Any] = json.loads(ended.stdout)
        assert answer["ok"] is (status == 0)
        return answer

    yield run
    services.stop(services.NAMES, tmp_path / ".scribengin")


def only(answer: dict[str, Any]) -> dict[str, Any]:
    (row,) = answer["result"]["services"]
    assert isinstance(row, dict)
    return row


def test_services_live_on_until_they_are_stopped(call: Call, tmp_path: Path) -> None:
    kafka, zookeeper = call("start")["result"]["services"]
    assert (kafka["name"], kafka["state"], zookeeper["name"], zookeeper["state"]) == ("kafka", "running", "zookeeper", "running")
    host, _, port = kafka["address"].rpartition(":")
    assert read_metadata(host, int(port), timeout_s=30.0).nodes == {1: kafka["address"]}
    assert sorted(path.name for path in (tmp_path / ".scribengin" / "services").iterdir()) == ["kafka", "lock", "zookeeper"]
    for row in (kafka, zookeeper):
        assert row["log"].startswith(str(tmp_path / ".scribengin" / "services" / row["name"]))
    assert call("status")["result"]["services"] == [kafka, zookeeper]
    assert call("start")["result"]["services"] == [kafka, zookeeper]
    stopped = call("stop")["result"]["services"]
    assert [(row["state"], row["pid"]) for row in stopped] == [("stopped", None), ("stopped", None)]
    assert call("stop")["result"]["services"] == stopped
    assert call("status")["result"]["services"] == stopped
    assert [birth_of(row["pid"]) for row in (kafka, zookeeper)] == [None, None]


def test_a_service_that_died_is_told_as_dead_and_comes_back_at_its_address(call: Call) -> None:
    first = only(call("start", "zookeeper"))
    os.kill(first["pid"], signal.SIGKILL)
    assert within(60.0, lambda: birth_of(first["pid"]) is None)
    services_of = call("status", "zookeeper", status=1)
    assert (only(services_of)["state"], only(services_of)["pid"]) == ("dead", None)
    (problem,) = services_of["problems"]
    assert problem["code"] == "service-dead"
    assert problem["remedy"] == f"read {first['log']}, then: scribengin dev-services start zookeeper"
    again = only(call("start", "zookeeper"))
    assert again["address"] == first["address"]
    assert again["pid"] != first["pid"]


def test_a_service_that_hangs_is_told_as_silent(call: Call) -> None:
    row = only(call("start", "zookeeper"))
    os.kill(row["pid"], signal.SIGSTOP)
    try:
        answer = call("status", "zookeeper", status=1)
    finally:
        os.kill(row["pid"], signal.SIGCONT)
    assert (only(answer)["state"], only(answer)["pid"]) == ("silent", row["pid"])
    assert [problem["code"] for problem in answer["problems"]] == ["service-silent"]


def test_stopping_strikes_no_process_that_was_given_a_dead_services_number(call: Call, tmp_path: Path) -> None:
    home = tmp_path / ".scribengin" / "services" / "zookeeper"
    with subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(60)"]) as foreign:
        (home / "run").mkdir(parents=True)
        (home / "run" / "zookeeper.pid.json").write_bytes(msgspec.json.encode(Process(foreign.pid, "before the machine started anew")))
        (home / "service.json").write_text('{"wanted": "up", "since": "2026-01-01T00:00:00+00:00"}')
        assert only(call("status", "zookeeper", status=1))["state"] == "dead"
        assert only(call("stop", "zookeeper"))["state"] == "stopped"
        assert foreign.poll() is None
        foreign.kill()


def test_where_nothing_was_started_status_and_stop_say_stopped_and_make_nothing(call: Call, tmp_path: Path) -> None:
    assert [row["state"] for row in call("status")["result"]["services"]] == ["stopped", "stopped"]
    assert not (tmp_path / ".scribengin").exists()
    assert [row["state"] for row in call("stop")["result"]["services"]] == ["stopped", "stopped"]


def test_two_starts_at_once_start_one(call: Call, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scribengin.cli", "dev-services", "start", "zookeeper", "--json"]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    rows = [only(json.loads(child.communicate()[0])) for child in both]
    assert rows[0] == rows[1]
    assert rows[0]["state"] == "running"
