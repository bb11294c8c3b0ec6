"""Verbs that touch data, as a person uses them: real processes, a real ZooKeeper, real Spark. One `up` for all of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.control.test_up import STEPS, Person, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNTED = """\
version: 1
name: counted
sources:
  numbers: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 1s}
steps:
  per: {from: numbers, aggregate: {by: [id], window: {time: ts, size: 1m}, columns: {n: count(*)}}}
sinks:
  counts: {from: per, type: files, path: counts, format: json}
"""


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path / "flow")
    yield person
    person.clears()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_flow_is_planned_goes_back_is_set_and_goes_on(person: Person) -> None:
    with person.up():
        person.adds()
        plan = person.says("apply", "flow.yaml", "--dry-run")
        assert [change["what"] for change in plan["flows"][0]["changes"]] == ["flow"]
        assert person.says("list") == []
        assert person.says("apply", "flow.yaml", "--plan", plan["hash"], "--wait", "4m")["changed"] is True
        assert person.says("apply", "flow.yaml", "--plan", plan["hash"], status=2)[0]["code"] == "plan-stale"
        assert len(person.finds()) == 50, "it waits until the first Batch is committed"

        # back to before the first Batch: told first, then done, and the rows stand there twice
        told = person.says("offsets", "rewind", "numbers", "--to-batch", "-1", status=2)[0]
        assert (told["code"], "sink kept (out) receives up to 50 rows again" in told["message"]) == ("unsaid", True)
        assert person.says("offsets", "rewind", "numbers", "--to-batch", "7", "--yes", status=2)[0]["code"] == "batch-unknown"
        done = person.says("offsets", "rewind", "numbers", "--to-batch", "-1", "--yes", "--wait", "4m")
        assert (done["operation"], done["step"]) == ("1", "done")
        until(lambda: len(person.finds()) == 100, "all of it again")
        assert person.finds() == sorted([*range(1, 100, 2)] * 2)
        (operation,) = person.says("operation", "list", "numbers")
        assert (operation["kind"], operation["step"], operation["error"]) == ("rewind", "done", "")

        # positions are set only while it is stopped
        assert person.says("offsets", "set", "numbers", "numbers", "end", "--yes", status=2)[0]["code"] == "flow-not-stopped"
        person.says("stop", "numbers", "--wait", "4m")
        person.adds()
        assert person.says("offsets", "set", "numbers", "number", "end", "--yes", status=2)[0]["code"] == "source-unknown"
        person.says("offsets", "set", "numbers", "numbers", "end", "--yes", "--wait", "4m")
        (row,) = person.says("offsets", "show", "numbers")["sources"]
        assert (row["source"], row["logged"]) == ("numbers", 2)
        assert person.says("status", "numbers")["status"]["state"] == "stopped"
        person.says("resume", "numbers", "--wait", "4m")
        person.adds()
        until(lambda: len(person.finds()) == 150, "the third file's records, and none of the second's")
        assert person.finds()[-50:] == list(range(201, 300, 2))

        # a step is changed: the worker gives way to another one, and the plan says so
        (person.folder / "steps.py").write_text(STEPS.replace("== 1", "== 0"))
        effects = {change["what"]: change["effect"] for change in person.says("apply", "flow.yaml", "-n")["flows"][0]["changes"]}
        assert effects == {"query kept": "restart", "code": "restart"}

        # one that fails on its first Batch is no success
        person.says("stop", "numbers", "--wait", "4m")
        (person.folder / "steps.py").write_text("def odd(row):\n    raise ValueError('no such id')\n")
        flow = person.folder / "flow.yaml"
        flow.write_text(flow.read_text() + "defaults: {on_error: fail}\n")
        person.adds()
        (problem,) = person.says("apply", "flow.yaml", "--wait", "4m", status=1)
        assert problem["code"] == "not-reached"
        assert "flow numbers is failed" in problem["message"]
        assert "no such id" in problem["message"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_needs_no_new_worker_gets_none_and_a_limit_holds_while_it_runs(person: Person) -> None:
    (person.folder / "flow.yaml").write_text(COUNTED.replace("ts 1s}", "ts 1s, max_files: 1}"))
    with person.up():
        assert person.says("apply", "flow.yaml", "--wait", "4m")["version"] == 1
        (tier,) = person.says("status", "counted")["tiers"]
        first = tier["process"]["pid"]

        # how many files a Batch takes: the same process goes on with it
        flow = person.folder / "flow.yaml"
        flow.write_text(flow.read_text().replace("max_files: 1", "max_files: 3"))
        applied = person.says("apply", "flow.yaml", "--wait", "4m")
        assert (applied["version"], applied["flows"][0]["effect"]) == (2, "next Batch")
        until(lambda: person.says("status", "counted")["status"]["version"] == 2, "the next version")
        (tier,) = person.says("status", "counted")["tiers"]
        assert tier["process"]["pid"] == first

        # a comment: nothing is touched
        flow.write_text(flow.read_text() + "# a word\n")
        assert person.says("apply", "flow.yaml", "--wait", "4m")["flows"][0]["effect"] == "in place"

        # other resources: another process
        assert person.says("scale", "counted.main", "--cores", "1", "--wait", "4m")["changed"] is False
        assert person.says("scale", "counted.main", "--cores", "2", "--wait", "4m")["changed"] is True
        (tier,) = person.says("status", "counted")["tiers"]
        assert tier["process"]["pid"] != first

        # a window that counts by another column needs a new checkpoint, and a person's word
        for name, second in (("a", 10), ("b", 20)):
            path = person.folder / "data" / f".{name}"
            path.write_text(f'{{"id": 1, "ts": "2026-01-01T10:00:{second}Z"}}\n')
            path.rename(path.with_name(f"{name}.jsonl"))
        until(lambda: person.says("offsets", "show", "counted")["sources"][0]["position"] > 0, "both files")
        flow.write_text(flow.read_text().replace("size: 1m", "size: 2m"))
        told = person.says("apply", "flow.yaml", status=2)[0]
        assert told["code"] == "plan-unsaid"
        applied = person.says("apply", "flow.yaml", "--accept", "again", "--wait", "4m")
        assert applied["flows"][0]["effect"] == "new checkpoint"
        for name, minute in (("c", 10), ("d", 20), ("e", 30)):
            path = person.folder / "data" / f".{name}"
            path.write_text(f'{{"id": 1, "ts": "2026-01-01T10:{minute}:00Z"}}\n')
            path.rename(path.with_name(f"{name}.jsonl"))
        parts = person.folder / "counts"
        until(lambda: '"n":2' in "".join(each.read_text() for each in parts.glob("part-*")).replace(" ", ""), "both rows, counted anew")

        # its state is spread over more partitions, and a limit holds at once
        assert person.says("scale", "numbers", "--partitions", "3", status=2)[0]["code"] == "flow-unknown"
        done = person.says("scale", "counted", "--partitions", "3", "--wait", "4m")
        assert done["operation"] == "2"
        assert person.says("scale", "counted", "--partitions", "3")["operation"] is None
        assert person.says("operation", "list", "counted")[0]["step"] == "done"
        assert person.says("limit", "counted:numbers", "--rows-per-s", "2")["limits"] == {"numbers": {"rows_per_s": 2.0}}
        flow_position = person.says("offsets", "show", "counted")["sources"][0]["position"]
        begun = time.monotonic()
        for minute in range(40, 50):
            path = person.folder / "data" / f".{minute}"
            path.write_text(f'{{"id": 1, "ts": "2026-01-01T10:{minute}:00Z"}}\n' * 4)
            path.rename(path.with_name(f"{minute}.jsonl"))

        def read() -> int:
            return int(person.says("offsets", "show", "counted")["sources"][0]["position"]) - flow_position

        until(lambda: read() >= 3, "12 rows a Batch, the second and third after six seconds each")
        assert time.monotonic() - begun > 8
        person.says("limit", "counted:numbers", "--off")
        assert person.says("limit", "counted")["limits"] == {}
