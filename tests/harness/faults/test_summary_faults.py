"""A summary counts each record once, though the driver dies between the decision and all that follows from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

FLOW = """
version: 1
name: totals
sources: {n: {type: sequence, rows: 100, max_rows: 40, splits: 2}}
sinks: {sums: {from: n, type: summary, sql: "SELECT count(*) AS n, sum(id) AS total, max(id) AS last FROM rows"}}
"""


def scribengin(folder: Path, *arguments: str, fault: str = "") -> tuple[int, Any]:
    command = [sys.executable, "-m", "scribengin.cli", *arguments, "--json"]
    environment = os.environ | ({"SCRIBENGIN_FAULT": fault} if fault else {})
    # a session of its own: the fault strikes the whole process group
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300, start_new_session=True
    )
    return ended.returncode, json.loads(ended.stdout)["result"] if ended.stdout else None


@pytest.mark.long
def test_a_driver_that_dies_behind_a_decision_has_counted_its_batch_once(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    status, _ = scribengin(tmp_path, "run", "flow.yaml", "--once", fault="decide.after@2:kill")
    assert status == -9
    _, between = scribengin(tmp_path, "summary", "flow.yaml")
    assert between["summaries"][0]["rows"] == [{"n": 80, "total": sum(range(80)), "last": 79}]
    status, result = scribengin(tmp_path, "run", "flow.yaml", "--once")
    assert (status, result["ledger"]["balanced"]) == (0, True)
    assert result["summaries"][0]["rows"] == [{"n": 100, "total": sum(range(100)), "last": 99}]
