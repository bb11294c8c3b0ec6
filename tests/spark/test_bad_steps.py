"""What is wrong with steps is told before the first Batch where that can be; a bad step costs its records, never the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import InputError
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: bad
sources:
  rows: {type: files, path: data, format: json, schema: "n BIGINT"}
steps:
  worked: {from: rows, python: {function: "steps:work", time_limit: 1s}}
sinks:
  kept: {from: worked, type: files, path: out, format: json}
"""


def test_what_only_spark_can_check_is_told_with_its_place_before_anything_is_read(folder: FlowFolder) -> None:
    folder.steps("def work(row):\n    return row\n").flow(
        FLOW.replace(
            "sinks:", "  odd: {from: worked, filter: length(n) = array(1)}\n  more: {from: worked, select: {r: sqrt(array(n))}}\nsinks:"
        )
        + "  a: {from: odd, type: files, path: a, format: json}\n  b: {from: more, type: files, path: b, format: json}\n"
    )
    folder.data("data/a.jsonl", [{"n": 1}])
    with pytest.raises(InputError) as caught:
        folder.run()

    told = [problem for problem in caught.value.problems if problem.severity == "error"]
    assert [problem.place.line for problem in told] == [8, 9]
    assert all("DATATYPE_MISMATCH" not in problem.message and "SQLSTATE" not in problem.message for problem in told)
    assert not (folder.path / "out").exists()


def test_a_module_that_raises_at_import_is_told_with_its_line(folder: FlowFolder) -> None:
    folder.steps("import math\n\nLIMIT = math.sqrt(-1)\n\ndef work(row):\n    return row\n").flow(FLOW)
    folder.data("data/a.jsonl", [{"n": 1}])
    with pytest.raises(InputError) as caught:
        folder.run()

    (problem,) = [problem for problem in caught.value.problems if problem.severity == "error"]
    assert "ValueError" in problem.message
    assert "steps.py:3" in problem.message


def test_a_step_that_hangs_exits_prints_or_answers_nonsense_costs_its_own_records(folder: FlowFolder) -> None:
    folder.steps("""
import sys
import time


def work(row):
    match row["n"]:
        case 1:
            while True:
                pass
        case 2:
            sys.exit("enough")
        case 3:
            return "nonsense"
        case 4:
            print("chatter " * 10_000)
        case 5:
            return [row, 7]
        case 6:
            raise KeyboardInterrupt
        case 7:
            time.sleep(60)
    return row
""").flow(FLOW)
    folder.data("data/a.jsonl", [{"n": n} for n in range(9)])
    ran(folder)

    assert folder.read("out") == [{"n": 0}, {"n": 4}, {"n": 8}]
    found = [(letter.line, letter.reason, letter.exception, letter.code_line[:9]) for letter in letters(folder, "bad", "kept")]
    assert [(line, reason, kind) for line, reason, kind, _ in found] == [
        (2, "time-limit", "StepTimeout"),
        (3, "raised", "SystemExit"),
        (4, "raised", "TypeError"),
        (6, "raised", "TypeError"),
        (7, "raised", "KeyboardInterrupt"),
        (8, "time-limit", "StepTimeout"),
    ]
    assert found[0][3] == "steps.py:"


CHAIN = """
version: 1
name: chain
sources:
  rows: {type: files, path: data, format: json, schema: "n BIGINT, word STRING"}
steps:
  first:  {from: rows, python: "steps:first", schema: "n BIGINT, size DOUBLE, at TIMESTAMP"}
BETWEEN
  second: {from: INPUT, python: "steps:second", schema: "n BIGINT, seen STRING"}
sinks:
  kept: {from: second, type: files, path: out, format: json}
"""


def test_a_next_that_finds_nothing_costs_its_own_record_and_tells_its_line(folder: FlowFolder) -> None:
    """Python's own loops take a StopIteration for the end of the records."""
    folder.steps("""
STEPS = (3, 6)


def work(row):
    return {"n": next(step for step in STEPS if step > row["n"])}
""").flow(FLOW)
    folder.data("data/a.jsonl", [{"n": n} for n in (1, 8, 4, 7, 2, 9)])
    ran(folder)
    assert sorted(row["n"] for row in folder.read("out")) == [3, 3, 6]
    told = [(letter.row, letter.reason, letter.message, letter.code_line) for letter in letters(folder, "bad", "kept")]
    assert [each[1:] for each in told] == [("raised", "StopIteration: ", "steps.py:6")] * 3


@pytest.mark.parametrize("between", ["", "  middle: {from: first, filter: true}"])
def test_a_step_gives_what_its_schema_says_whoever_reads_it(folder: FlowFolder, between: str) -> None:
    folder.steps("""
import datetime as dt

from scribengin import to


def first(row):
    n = row["n"]
    at = dt.datetime(2026, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    match n:
        case 0:
            return {"n": n, "size": 1.5, "at": at}
        case 1:
            return {"n": n, "size": 2}
        case 2:
            return {"n": n, "size": 1.5, "at": at, "surplus": 1}
        case 3:
            return {"n": str(n), "size": 1.5, "at": at}
        case 4:
            return [{"n": n, "size": 0.5, "at": None}, {"n": n, "size": "big", "at": at}, {"n": n, "size": None, "at": at}]


def second(row):
    return {"n": row["n"], "seen": repr((row["size"], row["at"] and (row["at"].hour, row["at"].tzinfo is dt.timezone.utc)))}
""").flow(CHAIN.replace("BETWEEN", between).replace("INPUT", "middle" if between else "first"))
    folder.data("data/a.jsonl", [{"n": n, "word": "w"} for n in range(6)])
    result = ran(folder)

    assert [(row["n"], row["seen"]) for row in folder.read("out")] == [
        (0, "(1.5, (0, True))"),
        (1, "(2.0, None)"),
        (4, "(0.5, None)"),
        (4, "(None, (0, True))"),
    ]
    told = [(letter.step, letter.reason, letter.line) for letter in letters(folder, "chain", "kept")]
    assert told == [("first", "surplus-key", 3), ("first", "wrong-type", 4), ("first", "wrong-type", 5)]
    counts = result.queries[0].nodes["first"]
    assert (counts.rows_in, counts.made, counts.out, counts.filtered, counts.dead) == (6, 2, 4, 1, 3)
