"""A Batch that several workers of a tier stage is what one of them would have made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.connectors.contract import SourceStream
from scribengin.spark import portions
from scribengin.spark.compiled_query import BatchPart
from scribengin.spark.portions import divided
from scribengin.state.dead_letters import read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from tests.beside import helper_beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    assert divided({"a": streams(*[8 * MIB] * 6)}, 3) == [
        BatchPart({"a": (0, 2)}, 0),
        BatchPart({"a": (2, 4)}, 2),
        BatchPart({"a": (4, 6)}, 4),
    ]
    assert divided({"a": streams(30 * MIB, 10 * MIB, 10 * MIB, 10 * MIB)}, 2) == [BatchPart({"a": (0, 1)}, 0), BatchPart({"a": (1, 4)}, 1)]


def test_a_part_may_hold_streams_of_several_sources() -> None:
    parts = divided({"a": streams(8 * MIB, 8 * MIB, 8 * MIB), "b": streams(8 * MIB)}, 2)
    assert parts == [BatchPart({"a": (0, 2)}, 0), BatchPart({"a": (2, 3), "b": (0, 1)}, 2)]
    assert [part.end for part in parts] == [2, 4]


@pytest.mark.parametrize("sizes", [(), (100 * MIB,), (MIB, MIB)], ids=["none", "one", "small"])
def test_what_would_not_pay_stays_whole(sizes: tuple[int, ...]) -> None:
    assert len(divided({"a": streams(*sizes)}, 4)) == 1


@pytest.fixture
def divide_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "LEAST_BYTES", 1)


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
    beside = helper_beside(spark, fill(folder, STEP[step]), broken=broken)
    result = folder.run(helpers=beside)

    assert not beside.errors
    (portion,) = beside.staged
    assert portion.inputs.part == BatchPart({"numbers": (2, 3)}, 2)
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


@pytest.mark.usefixtures("divide_small")
def test_a_batch_goes_to_the_member_of_a_group_that_whoever_decides_has_chosen(folder: FlowFolder, spark: SparkSession) -> None:
    fill(folder, STEP["record"])
    members = "{members: [{at: %s, name: near}, {at: %s, name: far, cost: 2}]}" % (folder.path / "near", folder.path / "far")  # noqa: UP031
    text = (folder.path / "flow.yaml").read_text().replace("format: json}\n", "format: json, to: disks}\n")
    folder.flow(f"{text}groups:\n  disks: {members}\n")
    for name in ("near", "far"):
        (folder.path / name).mkdir()
    beside = helper_beside(spark, folder)
    assert folder.run(helpers=beside).balanced
    assert (beside.errors, len(beside.staged)) == ([], 1)
    assert len(folder.read("near/out")) == 1494


@pytest.mark.usefixtures("divide_small")
def test_what_may_look_at_several_rows_is_run_whole(folder: FlowFolder, spark: SparkSession) -> None:
    whole = "\n\nfrom scribengin import frame\n\n\n@frame\ndef whole(rows):\n    return rows.where('n % 2 = 0')\n"
    fill(folder, "python: 'steps:whole'").steps(STEPS + whole)
    beside = helper_beside(spark, folder)
    assert folder.run(helpers=beside).balanced
    assert (beside.errors, beside.staged) == ([], [])
