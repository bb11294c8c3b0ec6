"""`max_dead`: how many records may become dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.connectors import catalog
from scribengin.spec.model import MaxDead, RecordBound
from scribengin.spec.parse import parse_flow

FLOW = """\
version: 1
name: bounded
max_dead: 1%
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: rows, type: files, path: out, format: json}}
"""
ONE, HUNDRED = RecordBound(percent=1.0), RecordBound(records=100)


def parsed(given: str):  # type: ignore[no-untyped-def]
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    return parse_flow(FLOW.replace("1%", given), "flow.yaml", folder=Path(), environment={"MOST": "1%"}, **types)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("1%", MaxDead(ONE, ONE)),
        ("1 %", MaxDead(ONE, ONE)),
        ("${env:MOST}", MaxDead(ONE, ONE)),
        ("100", MaxDead(HUNDRED, HUNDRED)),
        ("0.5%", MaxDead(RecordBound(percent=0.5), RecordBound(percent=0.5))),
        ("{run: 100, then: degrade}", MaxDead(None, HUNDRED, "degrade")),
        ("{batch: 1%, run: 100}", MaxDead(ONE, HUNDRED)),
    ],
)
def test_what_is_meant(given: str, meant: MaxDead) -> None:
    found = parsed(given)
    assert found.ok, found.problems
    assert found.flow.max_dead == meant


@pytest.mark.parametrize(
    "given", ["101%", "-1%", "half", "1.5", "-3", "1 percent", "[1%]", "{}", "{batch: 1%, than: fail}", "{then: drop}", "{then: degrade}"]
)
def test_what_is_no_bound_is_told_with_its_place(given: str) -> None:
    found = parsed(given)
    assert [problem.place.line for problem in found.problems if problem.severity == "error"] == [3]


def test_the_remedy_names_both_forms() -> None:
    (problem,) = parsed("half").problems
    assert problem.message == '`max_dead` of the flow is "half", not a percentage from 0% to 100% or a whole number'
    assert problem.remedy == "write 1%, or a number of records, such as 100"
