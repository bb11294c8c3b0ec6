"""The main path: files → Python steps → files, run in parts, each record once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.state.dead_letters import read_letters
from scribengin.state.folder import StateFolder

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: numbers
sources:
  numbers: {type: files, path: data, format: json, schema: "n BIGINT, word STRING"}
steps:
  even: {from: numbers, python: "steps:even"}
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


def test_every_record_comes_out_once_over_two_runs_and_new_files(folder: FlowFolder) -> None:
    folder.flow(FLOW).steps(STEPS).data("data/a.jsonl", [{"n": n, "word": f"w{n}"} for n in range(10)])
    first = folder.run()
    folder.data("data/b.jsonl", [{"n": n, "word": f"w{n}"} for n in range(10, 20)])
    second = folder.run()
    third = folder.run()

    assert [result.state for result in (first, second, third)] == ["finished"] * 3
    assert folder.read("out") == [{"n": n, "word": f"W{n}"} for n in range(0, 20, 2)]
    assert second.queries[0].this_run.out == 5
    assert third.queries[0].this_run.rows_in == 0
    assert third.queries[0].rows.out == 10
    assert third.balanced


def test_a_record_that_raises_is_a_dead_letter_with_its_bytes_place_and_line_of_code(folder: FlowFolder) -> None:
    folder.flow(FLOW).steps(STEPS)
    folder.data("data/a.jsonl", [{"n": 2, "word": "a"}, {"n": 4, "word": None}, {"n": "six", "word": "c"}, {"n": 8, "word": "d"}])
    result = folder.run()

    assert folder.read("out") == [{"n": 2, "word": "A"}, {"n": 8, "word": "D"}]
    assert result.balanced
    letters = {letter.step: letter for letter in read_letters(StateFolder(folder.path / ".scribengin", "numbers").query("kept"))}
    raised, malformed = letters["louder"], letters["numbers"]
    assert (raised.reason, raised.exception, raised.code_line, raised.line) == ("raised", "AttributeError", "steps.py:7", 2)
    assert raised.payload == b'{"n": 4, "word": null}'
    assert raised.file.endswith("a.jsonl")
    assert (malformed.line, malformed.payload) == (3, b'{"n": "six", "word": "c"}')


def test_filters_in_sql_give_what_filters_in_python_give(folder: FlowFolder) -> None:
    native = FLOW.replace('python: "steps:even"', "filter: n % 2 = 0, require: {worded: word IS NOT NULL}")
    folder.flow(native).steps(STEPS)
    folder.data("data/a.jsonl", [{"n": n, "word": None if n == 4 else f"w{n}"} for n in range(8)])
    result = folder.run()

    assert [row["n"] for row in folder.read("out")] == [0, 2, 6]
    (letter,) = read_letters(StateFolder(folder.path / ".scribengin", "numbers").query("kept"))
    assert (letter.step, letter.reason, letter.line, letter.payload) == ("even", "require", 5, b'{"n": 4, "word": null}')
    assert result.queries[0].rows.dead == 1
    assert result.balanced


def test_a_value_that_sql_cannot_take_costs_only_its_record(folder: FlowFolder) -> None:
    folder.flow(FLOW.replace('python: "steps:even"', "select: [CAST(word AS BIGINT) AS n, word]")).steps(STEPS)
    folder.data("data/a.jsonl", [{"n": n, "word": "x" if n == 37 else str(n)} for n in range(100)])
    result = folder.run()

    assert [row["n"] for row in folder.read("out")] == [n for n in range(100) if n != 37]
    (letter,) = read_letters(StateFolder(folder.path / ".scribengin", "numbers").query("kept"))
    assert (letter.step, letter.reason, letter.line) == ("even", "sql-error", 38)
    assert "CAST_INVALID_INPUT" in letter.message
    assert result.balanced
