"""A Batch that several workers of a tier stage is what one of them would have made of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.contract import SourceStream
from scribengin.local.contract import RunSettings
from scribengin.local.helping import open_stager
from scribengin.local.prepare import prepare
from scribengin.spark import shares
from scribengin.spark.compiled import Part
from scribengin.spark.shares import divided
from scribengin.spark.user_code import pack
from scribengin.state.dead import read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.spark.shares import Helper, Share, Staged, Stager
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: numbers
sources:
  numbers: {type: files, path: data, format: json, split: 64KiB, schema: "n BIGINT, word STRING"}
steps:
  even: {from: numbers, STEP}
  louder: {from: even, python: "steps:louder"}
sinks:
  kept: {from: louder, type: files, path: out, format: json}
"""
STEPS = """
def even(row):
    return row["n"] % 2 == 0


def louder(row):
    return {**row, "word": row["word"].upper()}
"""
MIB = 2**20


def streams(*sizes: int) -> tuple[SourceStream, ...]:
    return tuple(SourceStream(f"s{number}", {}, bytes=size) for number, size in enumerate(sizes))


def test_streams_are_divided_in_their_order_into_parts_of_about_one_size() -> None:
    assert divided({"a": streams(*[8 * MIB] * 6)}, 3) == [Part({"a": (0, 2)}, 0), Part({"a": (2, 4)}, 2), Part({"a": (4, 6)}, 4)]
    assert divided({"a": streams(30 * MIB, 10 * MIB, 10 * MIB, 10 * MIB)}, 2) == [Part({"a": (0, 1)}, 0), Part({"a": (1, 4)}, 1)]


def test_a_part_may_hold_streams_of_several_sources() -> None:
    parts = divided({"a": streams(8 * MIB, 8 * MIB, 8 * MIB), "b": streams(8 * MIB)}, 2)
    assert parts == [Part({"a": (0, 2)}, 0), Part({"a": (2, 3), "b": (0, 1)}, 2)]
    assert [part.end for part in parts] == [2, 4]


@pytest.mark.parametrize("sizes", [(), (100 * MIB,), (MIB, MIB)], ids=["none", "one", "small"])
def test_what_would_not_pay_stays_whole(sizes: tuple[int, ...]) -> None:
    assert len(divided({"a": streams(*sizes)}, 4)) == 1


class Beside:
    """One helper in this process: it stages in a thread of its own. `broken`: its shares come to nothing."""

    def __init__(self, stager: Stager, *, broken: bool = False) -> None:
        self._stager = stager
        self._broken = broken
        self.staged: list[Share] = []
        self.errors: list[Exception] = []
        self.dropped = 0

    def take(self, query: str, digest: str) -> list[Helper]:
        assert self._stager.digests[query] == digest
        return [self]

    def begin(self, share: Share) -> None:
        self._answer: list[Staged] = []

        def work() -> None:
            try:
                self._answer.append(self._stager.stage(share))
                self.staged.append(share)
            except Exception as error:
                self.errors.append(error)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def answer(self) -> Staged | None:
        self._thread.join()
        return None if self._broken or not self._answer else self._answer[0]

    def drop(self) -> None:
        self.dropped += 1


@pytest.fixture
def divide_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "LEAST_BYTES", 1)


def helper(spark: SparkSession, folder: FlowFolder, **settings: Any) -> Beside:
    flow = prepare(folder.path / "flow.yaml", state=None)
    return Beside(open_stager(spark, flow.tiers[0], pack(flow.plan.flow.code_folder, flow.here), RunSettings()), **settings)


def fill(folder: FlowFolder, step: str) -> FlowFolder:
    """Three files, a stream each; in each a record that cannot be read, and some that a step cannot take."""
    folder.flow(FLOW.replace("STEP", step)).steps(STEPS)
    for number in range(3):
        rows = [{"n": n, "word": None if n % 500 == 0 else f"w{n:060}"} for n in range(number * 1000, number * 1000 + 1000)]
        folder.data(f"data/{number}.jsonl", [*rows, '{"n": "six"}'])
    return folder


STEP = {
    "record": 'python: "steps:even"',
    "vector": "filter: n % 2 = 0",
    "native": "filter: n % 2 = 0 AND hash(word) IS NOT NULL",
}


@pytest.mark.usefixtures("divide_small")
@pytest.mark.parametrize("broken", [False, True], ids=["helps", "gone"])
@pytest.mark.parametrize("step", STEP)
def test_rows_letters_and_counts_are_those_of_one_worker(folder: FlowFolder, spark: SparkSession, step: str, broken: bool) -> None:
    beside = helper(spark, fill(folder, STEP[step]), broken=broken)
    result = folder.run(helpers=beside)

    assert not beside.errors
    (share,) = beside.staged
    assert share.inputs.part == Part({"numbers": (2, 3)}, 2)
    assert beside.dropped == 1
    assert folder.read("out") == [{"n": n, "word": f"W{n:060}"} for n in range(0, 3000, 2) if n % 500]
    assert result.balanced
    state = StateFolder(folder.path / ".scribengin", "numbers").query("kept")
    letters = sorted((letter.step, letter.line) for letter in read_letters(state))
    assert letters == sorted([("louder", line) for line in (1, 501)] * 3 + [("numbers", 1001)] * 3)
    newest = Decisions(state.decisions).newest()
    assert newest is not None
    assert sorted(receipt.unit for receipt in newest.receipts) == [0, 1, 2]
    assert (newest.counts["numbers"].rows_in, newest.counts["kept"].out) == (3003, 1494)
