"""docs/postgres.md: its commands work one after the other, over a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands, write_named

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/postgres.md"


@pytest.mark.timeout(600)
def test_the_quick_start_does_what_it_says(public_path: Path) -> None:
    write_named(public_path, PAGE)
    lines = "".join(block.text for block in blocks_of(PAGE) if block.language == "sh").splitlines()
    lines[lines.index("python look.py")] += " | tee looked.txt"
    try:
        run_commands(lines, public_path)
    finally:
        stop = [sys.executable, "-m", "scribengin.cli", "services", "stop", "postgres"]
        subprocess.run(stop, cwd=public_path, capture_output=True, check=False)
    assert (public_path / "looked.txt").read_text() == "500 rows, 500 different orders\n"


def test_the_codes_on_the_page_are_those_of_the_code() -> None:
    table = (ROOT / PAGE).read_text().partition("## What it says, and what to do")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| .+? \| `([a-z-]+)` \|", table, re.MULTILINE))
    folder = ROOT / "src/scribengin/connectors/postgres"
    code = "".join(path.read_text() for path in folder.glob("*.py"))
    assert told == set(re.findall(r'"((?:postgres|secret|output)-[a-z-]+)"', code)) - {"postgres-rule"}
