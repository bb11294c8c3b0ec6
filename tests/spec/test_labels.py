"""`labels`: names and values by which flows are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.connectors import catalog
from scribengin.spec.dump import dump_flow
from scribengin.spec.parse import parse_flow

FLOW = """\
version: 1
name: labelled
labels: {team: shop, stage: "test, no"}
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: rows, type: files, path: out, format: json}}
"""
TYPES = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}


def parsed(text: str):  # type: ignore[no-untyped-def]
    return parse_flow(text, "flow.yaml", folder=Path(), environment={}, **TYPES)


def test_labels_are_read_and_written_back() -> None:
    found = parsed(FLOW.replace("test, no", "test 1"))
    assert found.ok
    assert dict(found.flow.labels) == {"team": "shop", "stage": "test 1"}
    assert parsed(dump_flow(found.flow, **TYPES)).flow == found.flow


@pytest.mark.parametrize("given", ["{Team: shop}", '{team: "a,b"}', f"{{team: {'x' * 64}}}", "shop", "{team: [a]}"])
def test_what_is_no_label_is_told_with_its_place(given: str) -> None:
    found = parsed(FLOW.replace('{team: shop, stage: "test, no"}', given))
    assert [problem.place.line for problem in found.problems if problem.severity == "error"] == [3]
