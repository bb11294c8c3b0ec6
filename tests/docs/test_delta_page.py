"""docs/delta.md: its commands work one after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands, write_named

from harness.object_stores import or_skipped

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/delta.md"


STORED = "## In an object store"


def commands(*, stored: bool) -> list[str]:
    """Of the section about object stores, or of all others."""
    begin, _, rest = (ROOT / PAGE).read_text().partition(STORED)
    first = begin.count("\n")
    last = first + rest.partition("\n## ")[0].count("\n")
    found = (block for block in blocks_of(PAGE) if block.language == "sh" and stored is (first < block.line <= last))
    return "".join(block.text for block in found).splitlines()


@pytest.mark.timeout(600)
def test_the_quick_start_does_what_it_says(tmp_path: Path) -> None:
    write_named(tmp_path, PAGE)
    lines = commands(stored=False)
    lines[lines.index("python look.py")] += " | tee looked.txt"
    run_commands(lines, tmp_path)
    assert (tmp_path / "looked.txt").read_text() == "500 rows, 500 different orders\n"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_so_does_the_section_about_object_stores(public_path: Path) -> None:
    or_skipped(public_path / "none")
    write_named(public_path, PAGE)
    lines = commands(stored=True)
    lines[lines.index("python look_there.py")] += " | tee looked.txt"
    try:
        run_commands(lines, public_path)
    finally:
        stop = [sys.executable, "-m", "scribengin.cli", "dev-services", "stop", "objects"]
        subprocess.run(stop, cwd=public_path, capture_output=True, check=False)
    assert (public_path / "looked.txt").read_text() == "500 rows, 500 different orders\n"


def test_the_codes_on_the_page_are_those_of_the_code() -> None:
    table = (ROOT / PAGE).read_text().partition("## What it says, and what to do")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| .+? \| `([a-z-]+)` \|", table, re.MULTILINE))
    assert "| `objects-…` |" in table
    folder = ROOT / "src/scribengin/connectors/delta"
    code = "".join(path.read_text() for path in folder.glob("*.py"))
    assert told == set(re.findall(r'"((?:delta|output)-[a-z-]+)"', code))
