"""examples/connector is what docs/connectors.md says: installed from outside, found by its entry point, exactly once."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands

if TYPE_CHECKING:
    from pathlib import Path

CONNECTOR = ROOT / "examples" / "connector"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the example, and nothing else."""
    target = tmp_path_factory.mktemp("installed")
    copy = shutil.copytree(CONNECTOR, tmp_path_factory.mktemp("source") / "connector", ignore=shutil.ignore_patterns("*.db", ".scribengin"))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(target), str(copy)], check=True, env=os.environ | {"PYTHONWARNINGS": ""})
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the example's flow, as a clone of the project has it."""
    copy = tmp_path / "examples" / "connector"
    copy.mkdir(parents=True)
    for name in ("flow.yaml", "make_orders.py"):
        shutil.copy(CONNECTOR / name, copy)
    return copy


@pytest.mark.timeout(300)
def test_rows_arrive_once_though_the_driver_dies_in_the_middle_of_its_commit(installed: Path, folder: Path) -> None:
    subprocess.run([sys.executable, "make_orders.py"], cwd=folder, check=True, capture_output=True)
    command = [sys.executable, "-m", "scribengin.cli", "run", "flow.yaml", "--once"]
    armed = os.environ | {"PYTHONPATH": str(installed), "SCRIBENGIN_FAULT": "publish.record.before:kill", "PYTHONWARNINGS": ""}
    killed = subprocess.run(command, cwd=folder, env=armed, capture_output=True, text=True, check=False, start_new_session=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not large_orders(folder)

    # what the page says, which makes more orders and goes on
    lines = "".join(block.text for block in blocks_of("examples/connector/README.md") if block.language == "sh").splitlines()
    run_commands(lines, folder.parents[1], PYTHONPATH=str(installed))

    with closing(sqlite3.connect(folder / "shop.db")) as database:
        expected = database.execute("SELECT id, customer, amount FROM orders WHERE typeof(amount) = 'real' AND amount >= 100").fetchall()
    assert large_orders(folder) == expected


def large_orders(folder: Path) -> list[tuple[int, str, float]]:
    with closing(sqlite3.connect(folder / "large.db")) as database:
        there = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'large_orders'").fetchone()
        return database.execute("SELECT id, customer, amount FROM large_orders ORDER BY rowid").fetchall() if there else []
