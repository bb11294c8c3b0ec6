"""The page of each store: its commands work one after the other, over a real server, and it has every code that the store's errors have."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands, write_named

from harness.object_stores import or_skipped

if TYPE_CHECKING:
    from pathlib import Path

CONNECTORS = ROOT / "src/scribengin/connectors"


@dataclass(frozen=True)
class Page:
    name: str
    service: str
    """as `scribengin dev-services` calls it"""
    codes: str
    """begins those of its errors"""
    sources: tuple[str, ...]
    """its code, below the connectors"""
    told: str = "500 rows, 500 different orders\n"
    """by `look`, the quick start's last word"""
    look: str = "python look.py"
    elsewhere: frozenset[str] = frozenset()
    """codes that are raised elsewhere, or told elsewhere"""
    slow: bool = False
    """its server takes long to start, or another page shows the same shorter: `long`"""
    copy: str = ""
    """where the page reads the rows again to"""

    @property
    def path(self) -> str:
        return f"docs/{self.name}.md"

    def __str__(self) -> str:
        return self.name


PAGES = [
    Page(
        "postgres",
        "postgres",
        "postgres|secret|output|table",
        ("postgres", "sql"),
        elsewhere=frozenset({"postgres-rule", "table-columns", "batch-begun"}),
        copy="out/large",
    ),
    Page(
        "opensearch",
        "opensearch",
        "search|secret|store|foreign",
        ("opensearch", "keyed/http.py", "keyed/sink.py"),
        "500 documents\n",
        slow=True,
    ),
    Page(
        "cassandra",
        "cassandra",
        "cassandra",
        ("cassandra",),
        "500\n",
        slow=True,
        look='python ask.py "SELECT count(*) FROM shop.large_orders"',
    ),
    Page("hbase", "hbase", "hbase|secret", ("hbase", "keyed/http.py"), "500 rows, the first is c0/00000100\n", slow=True, copy="out/large"),
    Page("object-stores", "objects", "objects|output", ("objects",), slow=True),
    Page("hdfs", "hdfs", "hdfs", ("hdfs",), elsewhere=frozenset({"hdfs-url", "fenced", "state-remote"}), slow=True),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.long] * page.slow) for page in PAGES], ids=str)
def test_the_quick_start_does_what_it_says(public_path: Path, page: Page) -> None:
    if page.service == "objects":
        or_skipped(public_path / "none")
    write_named(public_path, page.path)
    lines = "".join(block.text for block in blocks_of(page.path) if block.language == "sh").splitlines()
    lines[lines.index(page.look)] += " | tee looked.txt"
    try:
        run_commands(lines, public_path)
    finally:
        stop = [sys.executable, "-m", "scribengin.cli", "dev-services", "stop", page.service]
        subprocess.run(stop, cwd=public_path, capture_output=True, check=False)
    assert (public_path / "looked.txt").read_text() == page.told
    if page.copy:
        assert sum(len(file.read_text().splitlines()) for file in (public_path / page.copy).glob("*.jsonl")) == 500


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_codes_on_a_page_are_those_of_the_code(page: Page) -> None:
    table = (ROOT / page.path).read_text().partition("## What it says, and what to do")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| .+? \| `([a-z-]+)` \|", table, re.MULTILINE))
    files = [file for name in page.sources for file in ([CONNECTORS / name] if name.endswith(".py") else (CONNECTORS / name).glob("*.py"))]
    files = [file for file in files if file.name != "checks.py"]  # what `validate` says is on the page of error codes
    code = "".join(file.read_text() for file in files)
    assert told - page.elsewhere == set(re.findall(rf'"((?:{page.codes})-[a-z-]+)"', code)) - page.elsewhere
