"""Verbs that touch data, as a person uses them: real processes, a real ZooKeeper, real Spark. One `up` for all of them."""

from __future__ import annotations

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


@pytest.mark.timeout(900)
def test_a_flow_is_planned_goes_back_is_set_and_goes_on(person: Person) -> None:
    with person.up():
        person.adds()
        plan = person.says("apply", "flow.yaml", "--dry-run")
        assert [change["what"] for change in plan["flows"][0]["changes"]] == ["flow"]
        assert person.says("list") == []
        assert person.says("apply", "flow.yaml", "--plan", plan["hash"], "--wait", "4m")["changed"] is True
        assert person.says("apply", "flow.yaml", "--plan", plan["hash"], status=2)[0]["code"] == "plan-stale"
        until(lambda: len(person.finds()) == 50, "the first file's records")

        # back to before the first Batch: told first, then done, and the rows stand there twice
        told = person.says("rewind", "numbers", "--to-batch", "-1", status=2)[0]
        assert (told["code"], "sink kept (out) gets up to 50 rows again" in told["message"]) == ("unsaid", True)
        assert person.says("rewind", "numbers", "--to-batch", "7", "--yes", status=2)[0]["code"] == "batch-unknown"
        done = person.says("rewind", "numbers", "--to-batch", "-1", "--yes", "--wait", "4m")
        assert (done["operation"], done["step"]) == ("1", "done")
        until(lambda: len(person.finds()) == 100, "all of it again")
        assert person.finds() == sorted([*range(1, 100, 2)] * 2)
        (operation,) = person.says("ops", "numbers")
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
