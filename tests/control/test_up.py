"""`scribengin server dev` as a person uses it: real processes, a real ZooKeeper, real Spark; killed where it hurts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
import pytest

from harness.dev_plane import end_all
from scribengin.client.client import Client
from scribengin.core.errors import Refused
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {odd: {from: numbers, python: "steps:odd"}}
sinks: {kept: {from: odd, type: files, path: out, format: json}}
"""
STEPS = """\
from scribengin import record


@record
def odd(row):
    return row["id"] % 2 == 1
"""


@dataclass
class Person:
    """Somebody in a folder with a flow, and a home of his own."""

    folder: Path
    files: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "data").mkdir()
        (self.folder / "flow.yaml").write_text(FLOW)
        (self.folder / "steps.py").write_text(STEPS)

    @property
    def home(self) -> Path:
        return self.folder.with_name("home")

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"SCRIBENGIN_HOME": str(self.home)}

    def says(self, *words: str, status: int = 0) -> Any:
        """A command with --json: its result; of one that ends otherwise its problems."""
        command = [sys.executable, "-m", "scribengin.cli", *words, "--json"]
        ended = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == status, f"{words}: {ended.stdout} {ended.stderr}"
        said = json.loads(ended.stdout)
        return said["result"] if not status else said["problems"]

    @contextmanager
    def up(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """`scribengin server dev`, until it answers."""
        log = (self.folder / "up.log").open("a")
        command = [sys.executable, "-m", "scribengin.cli", "server", "dev", *words]
        with log, subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, text=True) as process:
            try:
                until(lambda: (self.home / "up.json").exists() or process.poll() is not None, "up", 120)
                assert process.poll() is None, (self.folder / "up.log").read_text()
                yield process
            finally:
                process.kill()

    def adds(self, count: int = 100) -> None:
        """A file of records comes."""
        path = self.folder / "data" / f".{self.files}"
        path.write_text("".join(f'{{"id": {self.files * count + n}}}\n' for n in range(count)))
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def finds(self) -> list[int]:
        """What has come out."""
        files = (self.folder / "out").glob("part-*")
        return sorted(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())

    def worker(self) -> psutil.Process:
        """The process that serves the flow."""
        (tier,) = self.says("status", "numbers")["tiers"]
        return psutil.Process(tier["process"]["pid"])


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path / "flow")
    yield person
    end_all(person.home)  # what a test has left


def until(what: Callable[[], Any], said: str, wait_s: float = 180) -> None:
    look_until(what, said, wait_s, 0.2)


@pytest.mark.timeout(900)
def test_a_flow_is_submitted_and_outlives_its_worker_and_its_master(person: Person) -> None:
    assert person.says("list", status=2)[0]["code"] == "not-up"
    with person.up() as up:
        person.adds()
        assert person.says("apply", "flow.yaml", "--wait", "4m")["version"] == 1
        assert person.says("apply", "flow.yaml")["changed"] is False
        until(lambda: len(person.finds()) == 50, "the first file's records")

        # programs see the same by REST, and may do the same
        url = json.loads((person.home / "up.json").read_text())["http"]
        with Client([url], user="program") as client:
            assert json.loads(msgspec.json.encode(client.flows())) == person.says("list", "--master", url)
            assert [(master.http, master.leads) for master in client.masters_up()] == [(url, True)]
            seen = client.flow("numbers").wanted.revision
            client.want("numbers", "running", expected=seen)
            with pytest.raises(Refused, match="nothing was changed"):
                client.want("numbers", "stopped", expected=seen)
            assert [event.kind for _, event in zip(range(2), client.events(), strict=False)] == ["flows", "flow"]
        noted = [json.loads(line) for line in (person.home / "audit.log").read_text().splitlines()]
        assert [(line["who"], line["what"], line["outcome"]) for line in noted if line["who"] == "program"] == [
            ("program", "running", "done"),
            ("program", "stopped", "revision-stale"),
        ]

        # a worker is killed: another takes its place, and nothing is lost or doubled
        person.worker().kill()
        person.adds()
        until(lambda: len(person.finds()) == 100, "the second file's records, by the next worker")
        (tier,) = person.says("status", "numbers")["tiers"]
        assert (tier["worker"], tier["state"]) == ("numbers.main-2", "running")

        # the master and its ZooKeeper are killed: the worker goes on, and the next master adopts it
        worker = person.worker()
        up.kill()
        up.wait()
        assert worker.is_running()
    (person.home / "up.json").unlink()
    with person.up() as up:
        person.adds()
        until(lambda: len(person.finds()) == 150, "the third file's records")
        until(lambda: person.says("list")[0]["state"] == "running", "running again")
        assert person.worker() == worker, "adopted, not started again"

        # paused, nothing is read; resumed, all of it
        person.says("pause", "numbers", "--wait", "4m")
        person.adds()
        time.sleep(3)  # that nothing happens can only be waited for
        assert len(person.finds()) == 150
        person.says("resume", "numbers", "--wait", "4m")
        until(lambda: len(person.finds()) == 200, "the fourth file's records")

        # another version of the code takes over
        (person.folder / "steps.py").write_text(STEPS.replace("== 1", "== 0"))
        assert person.says("apply", "flow.yaml", "--wait", "4m")["version"] == 2
        person.adds()
        until(lambda: len(person.finds()) == 250, "the fifth file's records")
        assert person.finds() == sorted([*range(1, 400, 2), *range(400, 500, 2)])

        assert [each["version"] for each in person.says("history", "numbers")] == [2, 1]
        assert any(each["file"].endswith("run.log") for each in person.says("logs", "numbers"))

        # Ctrl-C ends all of it in order
        worker = person.worker()
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0, (person.folder / "up.log").read_text()
        assert not worker.is_running()
    with person.up() as up:
        person.adds()
        until(lambda: len(person.finds()) == 300, "the sixth file's records, after a start as if nothing had been")
        assert person.finds()[-50:] == list(range(500, 600, 2))
        assert person.says("delete", "numbers", status=2)[0]["code"] == "flow-not-stopped"
        assert person.says("stop", "numbers", "--wait", "4m")[0]["status"]["state"] == "stopped"
        person.says("delete", "numbers")
        assert person.says("list") == []
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0
    home = person.environment["SCRIBENGIN_HOME"]
    left = [each for each in psutil.process_iter(["environ"]) if (each.info["environ"] or {}).get("SCRIBENGIN_HOME") == home]
    assert left == [], "nothing of it is left"
