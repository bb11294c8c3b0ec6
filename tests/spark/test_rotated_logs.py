"""Logs that are rotated between two runs, through the sink: each line once, and an audit that agrees."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING

import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.core.types import parse_schema
from scribengin.state.source_log import SourceLog
from tests.spark.test_stateless_steps import ran

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: logs
sources:
  lines: {{type: files, path: "{path}", format: text, schema: value STRING, growing: true}}
sinks:
  kept: {{from: lines, type: files, path: out, format: text}}
"""


def lines(folder: Path) -> list[str]:
    return sorted(line for part in (folder / "out").glob("part-*") for line in part.read_text().splitlines())


@pytest.mark.parametrize("path", ["log/app.log*", "log/app.log"])
def test_a_log_that_is_renamed_copied_or_compressed_between_runs_is_read_once(folder: FlowFolder, path: str) -> None:
    log = folder.path / "log"
    log.mkdir()
    live = log / "app.log"
    folder.flow(FLOW.format(path=path))
    live.write_text("a\nb\n")
    ran(folder)
    live.rename(log / "app.log.1")  # and nothing is written yet
    ran(folder)
    with (log / "app.log.1").open("a") as file:
        file.write("c\n")
    live.write_text("d\n")
    ran(folder)
    assert lines(folder.path) == ["a", "b", "c", "d"]

    shutil.copyfile(live, log / "app.log.2")  # copied and cut, and longer than before
    live.write_text("e and more than there was\nf\n")
    ran(folder)
    with live.open("a") as file:
        file.write("g\n")
    (log / "app.log.3.gz").write_bytes(gzip.compress(live.read_bytes()))
    live.write_text("h\n")
    ran(folder)
    assert lines(folder.path) == ["a", "b", "c", "d", "e and more than there was", "f", "g", "h"]


def test_a_log_that_is_rotated_after_a_kill_is_read_where_it_is_then(folder: FlowFolder) -> None:
    log = folder.path / "log"
    log.mkdir()
    live = log / "app.log"
    folder.flow(FLOW.format(path="log/app.log"))
    live.write_text("a\n")
    ran(folder)
    with live.open("a") as file:
        file.write("b\n")
    # what a run does that is killed as soon as its next entry is logged
    (logged,) = folder.path.glob(".scribengin/**/sources/lines")
    entries = SourceLog(logged.parent, "lines")
    given = {"path": "log/app.log", "format": "text", "growing": True}
    reader = open_source("files", ConnectorContext("lines", folder.path, given, parse_schema("value STRING"))).reader()
    reader.restore(entries.entries())
    assert entries.append(entries.length(), reader.split(BatchLimits(), final=True))

    (log / "app.log.1.gz").write_bytes(gzip.compress(live.read_bytes()))
    live.write_text("c\n")
    ran(folder)
    assert lines(folder.path) == ["a", "b", "c"]
