"""Each example on the page of formats: the file, by the source, gives these rows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from doc_pages import ROOT

from scribengin.connectors import catalog
from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.formats.json_out import json_lines
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs/formats.md"
PARTS = ("My CSV", "My text", "My Parquet comes from pandas or Spark", "My JSON", "My folders and files")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    title: str
    made_by: str
    """language of the block that makes the file"""
    file: str
    source: str
    rows: str

    def __str__(self) -> str:
        return self.title


def examples() -> list[Example]:
    found = []
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE):
        if part.partition("\n")[0] not in PARTS:
            continue
        for section in re.split(r"^### ", part, flags=re.MULTILINE)[1:]:
            blocks = _FENCE.findall(section)
            title = section.partition("\n")[0]
            groups = [blocks[at : at + 3] for at in range(0, len(blocks) - len(blocks) % 3, 3)]
            for (made_by, file), (yaml, source), (rows_are, rows) in groups:
                assert (yaml, rows_are) == ("yaml", "json"), title
                assert made_by in ("", "python"), title
                found.append(Example(title, made_by, file, source, rows))
    return found


def test_the_page_has_examples() -> None:
    assert len(examples()) > 15


@pytest.mark.parametrize("example", examples(), ids=str)
def test_an_example_gives_its_rows(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if example.made_by == "python":
        exec(compile(example.file, example.title, "exec"), {})
    else:
        (tmp_path / "data").mkdir()
        (tmp_path / "data/a.csv").write_text(example.file)
    flow_file = tmp_path / "flow.yaml"
    node = example.source.partition(":")[0]
    flow_file.write_text(f"version: 1\nname: f\nsources:\n  {example.source}sinks:\n  out: {{from: {node}, type: console}}\n")
    flow, problems = validate_file(flow_file, {})
    assert not problems
    assert flow is not None
    declared = flow.sources[node]
    options = catalog.source_types()["files"].filled(declared.options)
    source: Any = open_source("files", ConnectorContext(node, tmp_path, options, declared.schema.fields if declared.schema else None))
    source.resolve_schema()
    source.check_first()
    decoder, rows = source.decoder(), []
    for stream in source.reader().split(BatchLimits(), final=True):
        for block in source.read(stream):
            found = decoder.columns(block)
            assert not found.bad
            rows += [json.loads(line) for line in json_lines(found.batch).splitlines()]
    assert rows == [json.loads(line) for line in example.rows.splitlines()]


def test_the_parse_step_on_the_page_is_right(tmp_path: Path) -> None:
    (step,) = re.findall(r"^parse: .*$", PAGE.read_text(), re.MULTILINE)
    (tmp_path / "data").mkdir()
    text = "version: 1\nname: f\nsources:\n  l: {type: files, path: data, format: text}\n"
    (tmp_path / "flow.yaml").write_text(f"{text}steps:\n  p:\n    from: l\n    {step}\nsinks:\n  out: {{from: p, type: console}}\n")
    assert not validate_file(tmp_path / "flow.yaml", {})[1]
