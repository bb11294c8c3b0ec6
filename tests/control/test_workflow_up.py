"""Two flows that meet at a folder, under `scribengin server dev`: real processes, real ZooKeeper, real Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.control.test_watching_up import Bench, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST, FILES = 2, 24
MAKE = """\
version: 1
name: make
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT", max_files: 1, settle: 0s}}
sinks: {made: {from: numbers, type: files, path: made, format: json, trigger: 500ms}}
"""
TAKE = """\
version: 1
name: take
sources:
  made: {type: files, path: made, format: json, schema: "id BIGINT", max_files: 1, settle: 0s, high_water: {bytes: 2KiB}}
sinks: {taken: {from: made, type: files, path: taken, format: json, trigger: 1500ms}}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    for name, text in (("make", MAKE), ("take", TAKE)):
        (bench.folder / f"{name}.yaml").write_text(text)
    (bench.folder / "flow.yaml").unlink()
    (bench.folder / "data").mkdir()
    adds(bench, range(FIRST))
    yield bench
    bench.clears()


def adds(bench: Bench, files: range) -> None:
    for number in files:
        lines = "".join(f'{{"id": {number * 100 + n}}}\n' for n in range(100))
        draft = bench.folder / "data" / f".{number:02}"
        draft.write_text(lines)
        draft.rename(draft.with_name(f"{number:02}.jsonl"))  # nobody may see a part of it


def ids(folder: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for path in folder.glob("part-*") for line in path.read_text().splitlines())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_reader_that_is_slow_holds_back_who_feeds_it_and_both_are_drained_in_order_with_nothing_lost(bench: Bench) -> None:
    with bench.up():
        bench.says("apply", "make.yaml", "take.yaml", "--wait", "4m")
        part = bench.says("status", "take")["workflow"]
        assert (part["flows"], [each["feeding"] for each in part["fed_by"]]) == (["make", "take"], ["make"])

        until(lambda: len(ids(bench.folder / "taken")) == FIRST * 100, "the first files' records")
        adds(bench, range(FIRST, FILES))

        def held() -> bool:
            reason = bench.says("status", "make")["status"]["reason"]
            return reason.startswith(("paused: ", "throttled to ")) and "take.made, which reads made" in reason

        until(held, "the feeder held back")
        until(lambda: bench.asks("/v1/flows/make/metrics")["tiers"][0]["queries"][0]["state"] == "paused", "the feeder's Query paused")
        graph = bench.says("graph", "make")
        assert graph["edges"][0]["place"] == f"folder {bench.folder}/made"
        assert graph["edges"][0]["waits"]["bytes"] > 0
        (done,) = bench.says("drain", "take", "--workflow", "--wait", "4m")
        assert (done["flows"], done["step"]) == (["make", "take"], "done")
        assert ids(bench.folder / "made") == ids(bench.folder / "taken") == list(range(FILES * 100))
        assert {flow: bench.says("status", flow)["status"]["state"] for flow in ("make", "take")} == {"make": "stopped", "take": "stopped"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_reader_that_was_stopped_holds_its_feeder_within_its_capacity_until_it_is_resumed(bench: Bench) -> None:
    """Nobody looks at its source any more: what waits is measured, and grows by what the feeder says that it wrote."""
    many = 40
    with bench.up():
        bench.says("apply", "make.yaml", "take.yaml", "--wait", "4m")
        until(lambda: len(ids(bench.folder / "taken")) == FIRST * 100, "the first files' records")
        bench.says("stop", "take", "--wait", "4m")
        taken = ids(bench.folder / "taken")
        adds(bench, range(FIRST, many))

        def held() -> bool:
            reason = bench.says("status", "make")["status"]["reason"]
            return reason.startswith("paused: ") and "take is stopped since " in reason

        until(held, "the feeder paused, and why")
        until(lambda: bench.asks("/v1/flows/make/metrics")["tiers"][0]["queries"][0]["state"] == "paused", "the feeder's Query paused")
        made = ids(bench.folder / "made")
        assert made == list(range(len(made)))
        assert len(made) < many * 100
        waits = bench.says("graph", "make")["edges"][0]["waits"]
        assert waits["bytes"] >= 4096
        assert ids(bench.folder / "taken") == taken

        bench.says("resume", "take", "--wait", "4m")
        until(lambda: len(ids(bench.folder / "taken")) > len(taken), "the reader goes on")
        until(lambda: len(ids(bench.folder / "made")) > len(made), "the feeder goes on by itself")
        (done,) = bench.says("drain", "take", "--workflow", "--wait", "8m")
        assert done["step"] == "done"
        assert ids(bench.folder / "made") == ids(bench.folder / "taken") == list(range(many * 100))
