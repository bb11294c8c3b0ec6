"""examples/pipeline: four flows behind one another, over a real broker, a real HDFS and a real database, give each event once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = "examples/pipeline"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_commands_of_the_page_bring_each_event_to_its_end_once_however_often_they_are_given(public_path: Path) -> None:
    folder = public_path / "pipeline"
    shutil.copytree(ROOT / EXAMPLE, folder)
    first, second, last = (block.text.splitlines() for block in blocks_of(f"{EXAMPLE}/README.md") if block.language == "sh")
    second[-1] += " | tee looked.txt"
    again = [line for line in second if line.startswith("scribengin run")]
    try:
        run_commands([*first, *second, *again, "python look.py > again.txt", *last], folder)
    finally:
        stop = [sys.executable, "-m", "scribengin.cli", "dev-services", "stop"]
        subprocess.run(stop, cwd=folder, capture_output=True, check=False)
    told = (folder / "looked.txt").read_text()
    assert told == "400 payments, 400 different ones\n" + "".join(
        f"{page:<8}   400 visits\n" for page in ("basket", "home", "item", "search")
    )
    assert (folder / "again.txt").read_text() == told
