"""docs/http.md and docs/spark-writers.md: their commands work one after the other; their codes are those of the code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands, write_named

from scribengin.embedded.server import free_ports

if TYPE_CHECKING:
    from pathlib import Path


def lines_of(page: str) -> list[str]:
    return "".join(block.text for block in blocks_of(page) if block.language == "sh").splitlines()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_quick_start_with_http_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", str(free_ports(1)[0]))
    page = "docs/http.md"
    write_named(tmp_path, page)
    lines = lines_of(page)
    lines[lines.index("python look.py")] += " | tee looked.txt"
    run_commands(["trap 'kill $(jobs -p) || true' EXIT", *lines], tmp_path)
    # of the large ones those of c7 are refused, two of each two hundred
    assert json.loads((tmp_path / "looked.txt").read_text())["orders"] == 500 - 10


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_quick_start_with_a_writer_of_spark_does_what_it_says(tmp_path: Path) -> None:
    page = "docs/spark-writers.md"
    write_named(tmp_path, page)
    lines = lines_of(page)
    lines[lines.index("python look.py")] += " | tee looked.txt"
    run_commands(lines, tmp_path)
    assert (tmp_path / "looked.txt").read_text() == "500 rows\n"


@pytest.mark.parametrize(
    ("page", "folder", "pattern"),
    [("docs/http.md", "http", r'"((?:http|secret)-[a-z-]+)"'), ("docs/spark-writers.md", "spark", r'"((?:spark)-[a-z-]+)"')],
)
def test_the_codes_on_the_pages_are_those_of_the_code(page: str, folder: str, pattern: str) -> None:
    table = (ROOT / page).read_text().partition("## What it says, and what to do")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| .+? \| `([a-z-]+)` \|", table, re.MULTILINE))
    files = (ROOT / "src/scribengin/connectors" / folder).glob("*.py")
    code = "".join(path.read_text() for path in files if path.name != "checks.py")  # whose codes are on docs/problems.md
    plain = (ROOT / "src/scribengin/connectors/plain/sink.py").read_text()
    assert told - set(re.findall(r'code="(output-[a-z-]+)"', plain)) == set(re.findall(pattern, code))
