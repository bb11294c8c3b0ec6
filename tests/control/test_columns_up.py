"""Columns that change under `scribengin server dev`: real processes, a real ZooKeeper, real Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.test_up import Person, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOW = """\
version: 1
name: orders
sources: {orders: {type: files, path: data, format: json, schema: {fields: "id BIGINT", evolve: add}}}
sinks: {kept: {from: orders, type: files, path: out, format: json}}
"""


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path / "flow")
    (person.folder / "flow.yaml").write_text(FLOW)
    yield person
    person.clears()


def comes(person: Person, name: str, *rows: dict[str, Any]) -> None:
    path = person.folder / "data" / f".{name}"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path.rename(path.with_name(f"{name}.jsonl"))


def rows(person: Person) -> list[dict[str, Any]]:
    files = (person.folder / "out").glob("part-*")
    return sorted((json.loads(line) for file in files for line in file.read_text().splitlines()), key=lambda row: row["id"])


def events(person: Person) -> list[str]:
    return [each["says"] for each in person.says("events", "orders") if each["what"] == "columns"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_new_column_is_an_event_and_is_taken_in_by_the_next_worker(person: Person) -> None:
    with person.up():
        comes(person, "a", {"id": 1}, {"id": 2, "note": "new"})
        person.says("apply", "flow.yaml", "--wait", "4m")
        until(lambda: events(person), "the event")
        assert len(events(person)) == 1
        assert events(person)[0].startswith('source orders: column "note" (STRING) is new, first in ')
        assert events(person)[0].endswith(": taken in at the next start")
        (noticed,) = person.says("status", "orders")["noticed"]
        assert (noticed["tier"], noticed["column"], noticed["batch"], noticed["now"]) == ("main", "note", 0, "taken in at the next start")

        # the next worker has the column, and tells it once
        (tier,) = person.says("status", "orders")["tiers"]
        person.says("stop", "orders", "--wait", "4m")
        assert len(events(person)) == 1, "it is known of a flow that does not run"
        person.says("resume", "orders", "--wait", "4m")
        comes(person, "b", {"id": 3, "note": "kept"})
        until(lambda: len(rows(person)) == 3, "the third row")
        assert rows(person) == [{"id": 1}, {"id": 2}, {"id": 3, "note": "kept"}]
        until(lambda: person.says("status", "orders")["noticed"][0]["now"] == "taken in", "what becomes of it")
        assert len(events(person)) == 1
        assert person.says("status", "orders")["tiers"][0]["worker"] != tier["worker"]


TYPED = """\
version: 1
name: orders
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {named: {from: orders, select: {id: "cast(id AS %s)"}}}
sinks: {kept: {from: named, type: files, path: out, format: json}}
"""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("back", [False, True], ids=["there", "and back"])
def test_other_columns_than_a_folder_holds_need_a_word_that_is_an_event(person: Person, *, back: bool) -> None:
    flow = person.folder / "flow.yaml"
    flow.write_text(TYPED % "BIGINT")
    with person.up():
        comes(person, "a", {"id": 1})
        person.says("apply", "flow.yaml", "--wait", "4m")
        until(lambda: rows(person) == [{"id": 1}], "the first row")
        flow.write_text(TYPED % "STRING")
        person.says("apply", "flow.yaml")
        until(lambda: person.says("status", "orders")["status"]["state"] == "failed", "the refusal")
        (tier,) = person.says("status", "orders")["tiers"]
        assert 'column "id" is a number in' in tier["cause"]
        assert "--accept columns" in tier["remedy"] + tier["cause"]

        # the same version with the word is no other version, and starts again
        done = person.says("apply", "flow.yaml", "--accept", "columns", "--wait", "4m")
        assert (done["version"], done["changed"]) == (2, True)
        comes(person, "b", {"id": 2})
        until(lambda: len(list((person.folder / "out").glob("part-*"))) == 2, "the second row")
        lines = "".join(file.read_text() for file in (person.folder / "out").glob("part-*")).replace(" ", "").split()
        assert sorted(lines) == ['{"id":"2"}', '{"id":1}']
        until(lambda: events(person), "the event")
        (said,) = events(person)
        assert said.startswith('sink "kept" writes different columns from now on, accepted by ')
        assert said.endswith("existing files stay unchanged: a reader of the whole output finds both")
        (row,) = person.says("status", "orders")["accepted"]
        assert (row["tier"], row["sink"], row["columns"]) == ("main", "kept", "id STRING")

        if not back:
            return

        # one word, one version: back again is refused again
        flow.write_text(TYPED % "BIGINT")
        person.says("apply", "flow.yaml")
        until(lambda: person.says("status", "orders")["status"]["state"] == "failed", "the next refusal")
        assert person.says("apply", "flow.yaml", "--accept", "columns", "--accept", "again", "--wait", "4m")["changed"] is True
        assert len(rows_raw(person)) == 2


def rows_raw(person: Person) -> list[str]:
    return [line for file in (person.folder / "out").glob("part-*") for line in file.read_text().splitlines()]
