"""A quota as a person uses it: real processes, a real ZooKeeper, real Spark."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.control.test_up import FLOW, Person, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path / "flow")
    (person.folder / "flow.yaml").write_text(FLOW + "labels: {team: search}\ntiers: {only: {steps: [odd], resources: {memory: 512MiB}}}\n")
    yield person
    person.clears()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_flow_waits_for_its_quota_then_reads_at_the_rate_of_its_part(person: Person) -> None:
    with person.up("--cores", "1"):
        person.adds(30)
        person.says("quota", "set", "team=search", "--memory", "256MiB", "--rate", "20")
        person.says("apply", "flow.yaml")
        until(lambda: "quota team=search allows" in person.says("status", "numbers")["status"]["reason"], "it says what it waits for")
        (row,) = person.says("quota", "list")
        assert [(flow["flow"], flow["waits"]) for flow in row["flows"]] == [("numbers", True)]
        person.says("quota", "set", "team=search", "--memory", "1GiB")
        until(lambda: len(person.finds()) == 15, "the first file's records")
        (row,) = person.says("quota", "list", "team=search")
        assert (row["flows"][0]["memory_bytes"], row["flows"][0]["rows_per_s"], row["over"]) == (512 * 2**20, 20.0, False)
        worker = person.worker()
        if sys.platform == "linux":
            spark = next(child for child in worker.children(recursive=True) if "java" in child.name())
            assert len(worker.cpu_affinity()) == len(spark.cpu_affinity()) == 1
            assert set(worker.cpu_affinity()) <= os.sched_getaffinity(0)
        assert psutil.Process(worker.pid).is_running()
        person.says("quota", "remove", "team=search")
        assert person.says("quota", "list") == []
