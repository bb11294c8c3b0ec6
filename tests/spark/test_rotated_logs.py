"""Logs that are rotated between two runs, through the sink: each line once, and an audit that agrees."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING

import pytest

from scribengin.core import faults
from scribengin.local.inspect import audit_flow

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


def ran(folder: FlowFolder) -> None:
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True)


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
    (audit,) = audit_flow(folder.path / "flow.yaml").queries
    assert audit.violations == ()


def test_a_log_that_is_rotated_after_a_kill_is_read_where_it_is_then(folder: FlowFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = folder.path / "log"
    log.mkdir()
    live = log / "app.log"
    folder.flow(FLOW.format(path="log/app.log"))
    live.write_text("a\nb\n")

    def killed(point: str) -> None:
        if point == "source.logged":
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reached", killed)
        assert folder.run().state == "failed"
    (log / "app.log.1.gz").write_bytes(gzip.compress(live.read_bytes()))
    live.write_text("c\n")
    ran(folder)
    assert lines(folder.path) == ["a", "b", "c"]
