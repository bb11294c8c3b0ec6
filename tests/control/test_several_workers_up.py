"""A tier with several workers under `scribengin server dev`: killed, added and taken away while they stage parts of one Batch."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.control.test_watching_up import Bench, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 80_000
"""of a file: with their words some 9 MiB, which two workers share"""
FLOW = """\
version: 1
name: shared
sources: {numbers: {type: files, path: data, format: json, split: 1MiB, settle: 0s, schema: "id BIGINT, word STRING"}}
steps: {even: {from: numbers, python: "steps:even"}}
sinks: {kept: {from: even, type: files, path: out, format: json}}
tiers: {core: {steps: [even, kept], workers: 2, resources: {cores: 1}}}
"""
STEPS = """\
import time
from pathlib import Path

HOLD = Path("HERE")


def even(row):
    while row["id"] % 1000 == 0 and HOLD.exists():
        time.sleep(0.05)
    return row["id"] % 2 == 0 and {**row, "word": "even"}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    (bench.folder / "flow.yaml").write_text(FLOW)
    (bench.folder / "steps.py").write_text(STEPS.replace("HERE", str(tmp_path / "hold")))
    (bench.folder / "data").mkdir()
    yield bench
    bench.clears()


class Shared:
    """The flow, of which each further file becomes a Batch."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.files = 0
        self.hold = bench.folder.parent / "hold"

    def adds_a_file(self) -> None:
        draft = self.bench.folder / "data" / ".draft"
        word = "w" * 80
        draft.write_text("".join(f'{{"id": {self.files * ROWS + n}, "word": "{word}"}}\n' for n in range(ROWS)))
        draft.rename(draft.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def tiers(self) -> dict[str, Any]:
        return {tier["tier"]: tier for tier in self.bench.says("status", "shared")["tiers"]}

    def page(self, tier: str) -> dict[str, Any]:
        """What a worker says of itself; {} where it does not answer."""
        try:
            answer = httpx2.get(f"{self.tiers()[tier]['http']}/json", timeout=60, trust_env=False)
        except (KeyError, httpx2.HTTPError):
            return {}
        found: dict[str, Any] = answer.json()
        return found

    def is_through(self) -> None:
        """All rows of all files are out, once."""
        until(lambda: len(self.ids()) >= self.files * ROWS // 2, f"the rows of {self.files} files")
        assert self.ids() == list(range(0, self.files * ROWS, 2))

    def ids(self) -> list[int]:
        paths = (self.bench.folder / "out").glob("part-*")
        return sorted(json.loads(line)["id"] for path in paths for line in path.read_text().splitlines())

    def workers_of(self, batch: int) -> int:
        record = self.bench.home / "state/shared/core/kept/decisions" / f"{batch:010d}.json"
        return int(json.loads(record.read_text())["body"]["ran"].get("workers", 1))

    def is_killed(self, tier: str) -> None:
        os.kill(self.tiers()[tier]["process"]["pid"], signal.SIGKILL)

    def is_held_in_both(self) -> None:
        """A Batch is under way, and the helper stages its part of it."""
        self.hold.touch()
        self.adds_a_file()
        until(lambda: self.page("core~2").get("stages"), "the helper at work")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_workers_that_are_killed_added_and_taken_away_in_the_middle_of_a_batch_lose_and_double_nothing(bench: Bench) -> None:
    shared = Shared(bench)
    with bench.up():
        bench.says("apply", "flow.yaml", "--wait", "4m")
        until(lambda: shared.page("core").get("helpers") == 1, "the helper")
        shared.adds_a_file()
        shared.is_through()
        assert shared.workers_of(0) == 2

        shared.is_held_in_both()
        shared.is_killed("core~2")
        shared.hold.unlink()
        shared.is_through()
        until(lambda: shared.page("core").get("helpers") == 1, "the next helper")

        shared.is_held_in_both()
        shared.is_killed("core")
        shared.hold.unlink()
        shared.is_through()
        until(lambda: shared.page("core").get("helpers") == 1, "the helper, at who holds the lease now")

        shared.is_held_in_both()
        bench.says("scale", "shared.core", "--workers", "1")
        shared.hold.unlink()
        shared.is_through()
        until(lambda: shared.tiers()["core~2"]["state"] == "ended", "the helper gone")
        bench.says("scale", "shared.core", "--workers", "3")
        until(lambda: shared.page("core").get("helpers") == 2, "two helpers")
        assert bench.says("status", "shared")["status"]["state"] == "running"
        bench.says("scale", "shared.core", "--workers", "each")  # there is one host
        until(lambda: shared.page("core").get("helpers") == 0, "no helper")
        assert (shared.tiers()["core"]["workers"], shared.tiers()["core"]["wanted_workers"]) == ("each", 1)
        shared.adds_a_file()
        shared.is_through()
        bench.says("drain", "shared", "--wait", "4m")
        assert bench.says("audit", "flow.yaml", "--state", str(bench.home / "state"))["ledger"]["violations"] == []
