"""A tier is put between two that run, and taken out again, under `scribengin server dev`: real processes, killed at each step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psutil
import pytest

from scribengin.core import faults
from tests.control.test_up import Person, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHAIN = """\
version: 1
name: chain
sources: {n: {type: files, path: data, format: json, schema: "id BIGINT", max_files: 1, settle: 0s}}
steps:
  a: {from: n, filter: id >= 0}
  b: {from: a, select: {id: id, twice: id * 2}}
  c: {from: b, filter: id >= 0}
sinks: {kept: {from: c, type: files, path: out, format: json}}
tiers: {x: {steps: [a]}, y: {steps: [b]}, z: {steps: [c]}}
"""
INSERTED = CHAIN.replace("  c: {from: b,", "  m: {from: b, select: {id: id, more: twice + 1}}\n  c: {from: m,").replace(
    "z: {", "w: {steps: [m]}, z: {"
)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path / "flow")
    (person.folder / "flow.yaml").write_text(CHAIN)
    yield person
    person.clears()


def killed(person: Person, tier: str) -> None:
    """The process that serves the tier now, where one does."""
    for row in person.says("status", "chain")["tiers"]:
        if row["tier"] == tier and row["process"] is not None:
            try:
                psutil.Process(row["process"]["pid"]).kill()
            except psutil.NoSuchProcess:
                return


def is_done(person: Person, operations: int) -> bool:
    rows = person.says("operation", "list", "chain")
    assert all(row["error"] == "" for row in rows)
    return [row["step"] for row in rows] == ["done"] * operations


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_tier_is_put_between_two_that_run_and_taken_out_again_whoever_is_killed(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    struck = tmp_path / "struck"
    struck.mkdir()
    points = ("move.left", "move.adopted")  # each in another worker
    monkeypatch.setenv(faults.VARIABLE, ",".join([f"once={struck}", *(f"{point}:die" for point in points)]))
    with person.up() as up:
        for _ in range(3):
            person.adds()
        assert person.says("apply", "flow.yaml", "--wait", "4m")["version"] == 1
        for _ in range(20):
            person.adds()
        (person.folder / "flow.yaml").write_text(INSERTED)
        applied = person.says("apply", "flow.yaml")
        assert applied["flows"][0]["effect"] == "drain"
        killed(person, "z")
        up.kill()
        up.wait()
    (person.home / "up.json").unlink()
    with person.up():
        until(lambda: is_done(person, 1), "the move, by the third worker that tries")
        assert {path.name for path in struck.iterdir()} == set(points)
        for _ in range(5):
            person.adds()
        until(lambda: len(person.finds()) == 28 * 100, "all that came till then")

        (person.folder / "flow.yaml").write_text(CHAIN)
        for _ in range(5):
            person.adds()
        assert person.says("apply", "flow.yaml", "--wait", "4m")["version"] == 3
        until(lambda: len(person.finds()) == 33 * 100, "all of it, by way of the tiers that are left")
        assert is_done(person, 2)
        assert person.finds() == list(range(33 * 100)), "each once"
        rows = [json.loads(line) for file in (person.folder / "out").glob("part-*") for line in file.read_text().splitlines()]
        with_more = sorted(row["id"] for row in rows if "more" in row)
        assert with_more == list(range(with_more[0], with_more[-1] + 1)), "the tier was there from one Batch's end to another's"
        assert 500 <= len(with_more) < 33 * 100
        person.says("stop", "chain", "--wait", "4m")
        audit = person.says("audit", "flow.yaml", "--state", str(person.home / "state"))
        assert audit["ledger"]["balanced"] is True
