from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.spec.model import Filter
from scribengin.spec.variables import fill


def source(keys: str) -> str:
    return f"version: 1\nname: shop\nsources:\n  n: {{type: sequence, {keys}}}\nsinks:\n  k: {{from: n, type: console}}\n"


@pytest.mark.parametrize("rows", ["'${env:ROWS}'", '"${env:ROWS}"', "'${env:NONE:-12}'", "'1${env:TWO}'"])
def test_what_is_filled_in_is_typed_by_its_option(parse: Any, rows: str) -> None:
    parsed = parse(source(f"rows: {rows}"), environment={"ROWS": "12", "TWO": "2"})
    assert parsed.problems == ()
    assert parsed.flow.sources["n"].options == {"rows": 12}


def test_a_plain_value_may_hold_a_reference_outside_of_braces(parse: Any) -> None:
    text = "version: 1\nname: shop\nsources:\n  n:\n    type: sequence\n    rows: ${env:ROWS}\nsinks:\n  k: {from: n, type: console}\n"
    assert parse(text, environment={"ROWS": "12"}).flow.sources["n"].options == {"rows": 12}
    (problem,) = parse(source("rows: ${env:ROWS}")).problems
    assert "a value with ${…} needs quotes" in problem.message


def test_a_wrong_type_is_told_after_filling_in(parse: Any) -> None:
    (problem,) = parse(source("rows: '${env:ROWS}'"), environment={"ROWS": "many"}).problems
    assert problem.code == "bad-value"


def test_a_missing_variable_is_told_where_it_stands(parse: Any) -> None:
    parsed = parse(step="{from: a, filter: 'x > ${env:LIMIT}'}")
    assert [str(problem) for problem in parsed.problems] == [
        "shop.yaml:6:29: the environment variable LIMIT is not set; set it, or give a default: ${env:LIMIT:-…} [env-missing]"
    ]
    assert parsed.unresolved == ("env:LIMIT",)


def test_an_empty_variable_and_an_empty_default_are_values() -> None:
    assert fill("a${env:E}b${env:N:-}c", {"E": ""}, Path()).text == "abc"


def test_what_is_filled_in_is_not_filled_again_nor_read_as_yaml(parse: Any) -> None:
    parsed = parse(step="{from: a, filter: '${env:A}'}", environment={"A": "x: {${env:B}} #"})
    assert parsed.flow.steps["s"].action == Filter("x: {${env:B}} #")


def test_a_doubled_dollar_is_a_plain_one(parse: Any) -> None:
    parsed = parse(step='{from: a, filter: \'x = "$${env:A}" AND y = "$5"\'}')
    assert parsed.flow.steps["s"].action == Filter('x = "${env:A}" AND y = "$5"')


def test_keys_are_not_filled_in(parse: Any) -> None:
    parsed = parse(step="{from: a, aggregate: {columns: {'${env:A}': count(*)}}}")
    assert parsed.flow.steps["s"].action.columns == (("${env:A}", "count(*)"),)


@pytest.mark.parametrize("text", ["${A}", "${env:}", "${env:A", "${secret:x/A}", "${}", "${env:A-b}"])
def test_a_reference_that_means_nothing_is_told(parse: Any, text: str) -> None:
    (problem,) = parse(step=f"{{from: a, filter: '{text}'}}").problems
    assert problem.code == "fill-syntax"


def test_a_secret_may_not_stand_where_plans_and_logs_would_show_it(parse: Any) -> None:
    parsed = parse(step="{from: a, filter: 'x = \"${secret:env/PW}\"'}", environment={"PW": "hunter2"})
    assert [problem.code for problem in parsed.problems] == ["secret-misplaced"]
    assert "hunter2" not in f"{parsed}"


def test_a_place_after_a_reference_is_counted_in_the_text_as_written(parse: Any) -> None:
    parsed = parse(step='{from: a, filter: "${env:LONG} > $${env} + x"}', environment={"LONG": "a_very_long_name_of_a_column"})
    text = parsed.flow.steps["s"].action.predicate
    line = '  s: {from: a, filter: "${env:LONG} > $${env} + x"}'
    path = ("steps", "s", "filter")
    assert parsed.places.inside(path, text.index("x", 30)).column == line.index("x") + 1
    assert parsed.places.inside(path, text.index(">")).column == line.index(">") + 1
    assert parsed.places.inside(path, 5).column == line.index("$") + 1


@given(st.lists(st.one_of(st.text("ab$ "), st.just("${env:X}"), st.just("$${")), max_size=8).map("".join))
def test_every_character_outside_of_references_keeps_its_place(text: str) -> None:
    filled = fill(text, {"X": "12345"}, Path())
    if filled.faults:
        return
    inside = {at for start, end, _, _ in filled.spans for at in range(start, end)}
    for offset, char in enumerate(filled.text):
        if offset not in inside:
            assert text[filled.written(offset)] == char
