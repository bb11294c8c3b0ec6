"""An option that must be given: where it is missing or empty a problem names the line, for every type of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.connectors import catalog
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.options import NodeType

TYPES = [*catalog.source_types().values(), *catalog.sink_types().values()]
REQUIRED = [pytest.param(each, o.name, id=f"{each.role}-{each.type}-{o.name}") for each in TYPES for o in each.options if o.required]
SOURCE = """\
version: 1
name: needs
sources:
  end: {OPTIONS, schema: "id BIGINT"}
sinks:
  kept: {from: end, type: console}
"""
SINK = """\
version: 1
name: needs
sources: {numbers: {type: sequence}}
sinks:
  end: {OPTIONS, from: numbers, delivery: at_least_once}
"""


def said(folder: Path, declared: NodeType, **changed: str | None) -> list[tuple[int, str, str]]:
    """(line, code, message) of each error of a flow with that node."""
    given = {option.name: option.example for option in declared.options if option.required} | changed
    options = ", ".join([f"type: {declared.type}", *(f"{name}: {value}" for name, value in given.items() if value is not None)])
    text = (SOURCE if declared.role == "source" else SINK).replace("OPTIONS", options)
    path = folder / "flow.yaml"
    path.write_text(text)
    _, problems = validate_file(path, {})
    return [(each.place.line, each.code, each.message) for each in problems if each.severity == "error"]


@pytest.mark.parametrize(("declared", "name"), REQUIRED)
def test_one_that_is_missing_is_told_at_its_node(tmp_path: Path, declared: NodeType, name: str) -> None:
    line = 4 if declared.role == "source" else 5
    assert [(at, code) for at, code, message in said(tmp_path, declared, **{name: None}) if f"`{name}`" in message] == [
        (line, "missing-key")
    ]


@pytest.mark.parametrize("value", ["''", "null", "' '"])
@pytest.mark.parametrize(("declared", "name"), REQUIRED)
def test_one_that_is_empty_is_told_at_its_node(tmp_path: Path, declared: NodeType, name: str, value: str) -> None:
    line = 4 if declared.role == "source" else 5
    found = [code for at, code, message in said(tmp_path, declared, **{name: value}) if at == line and f"`{name}`" in message]
    assert found in (["wrong-kind"], ["bad-value"]), found
