"""docs/kafka.md: its commands work one after the other, over a real broker, and its messages are those of the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands, write_named

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/kafka.md"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_quick_start_does_what_it_says(tmp_path: Path) -> None:
    write_named(tmp_path, PAGE)
    lines = "".join(block.text for block in blocks_of(PAGE) if block.language == "sh").splitlines()
    # what a reader would see on the screen
    lines[lines.index("python look.py")] += " | tee looked.txt"
    try:
        run_commands(lines, tmp_path)
    finally:
        command = [sys.executable, "-m", "scribengin.cli", "dev-services", "status", "kafka", "--json"]
        status = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).stdout)
        subprocess.run([*command[:-2][:3], "dev-services", "stop", "kafka"], cwd=tmp_path, capture_output=True, check=False)
    assert status["result"]["services"][0]["state"] == "stopped"
    assert (tmp_path / "looked.txt").read_text() == "500 messages, 500 different orders\n"


def test_the_messages_on_the_page_are_those_of_the_code() -> None:
    """Each cell of the first column is a message with … where the code fills in."""
    table = (ROOT / PAGE).read_text().partition("## What it says, and what to do")[2].partition("\n## ")[0]
    told = re.findall(r"^\| (.+?) \| `([a-z-]+)` \|", table, re.MULTILINE)
    assert len(told) > 10
    code = "".join(path.read_text() for path in (ROOT / "src/scribengin").rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # texts that go over several lines
    for message, name in told:
        assert f'"{name}"' in code, name
        for part in re.split(r"…", message.replace("`", "")):
            assert part.strip(' ":;') in code.replace("`", ""), f"{message}: {part!r}"


@pytest.mark.parametrize(
    ("row", "dictionaries"),
    [
        ("fixed, for readers", [("client", "READER"), ("source", r"READER \|")]),
        ("fixed, for writers", [("transaction", "own")]),
        ("preset, may be changed", [("client", "return")]),
    ],
)
def test_the_settings_on_the_page_are_those_of_the_code(row: str, dictionaries: list[tuple[str, str]]) -> None:
    told = re.search(rf"^\| {row} \| (.+?) \|", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert told
    given = set()
    for module, dictionary in dictionaries:
        code = (ROOT / f"src/scribengin/connectors/kafka/{module}.py").read_text()
        (body,) = re.findall(rf'{dictionary} (?:= )?\{{\n(\s+"[a-z]+\.[a-z].*?)\}}', code, re.DOTALL)
        given |= set(re.findall(r'^\s+"([a-z._]+)":', body, re.MULTILINE)) - {"error_cb", "bootstrap.servers"}
    if row == "preset, may be changed":
        given |= {"enable.sparse.connections", "fetch.queue.backoff.ms"}
    assert set(re.findall(r"`([a-z._]+)`", told[1])) == given


def test_the_reasons_of_dead_letters_are_those_of_the_code() -> None:
    table = (ROOT / PAGE).read_text().partition("| reason | what it is |")[2].partition("\n\n")[0]
    told = set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))
    code = (ROOT / "src/scribengin/connectors/kafka/outgoing.py").read_text()
    assert told == set(re.findall(r'Bad\(index, "([a-z-]+)"', code))
