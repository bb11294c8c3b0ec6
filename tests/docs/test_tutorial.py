"""The tutorial, typed as it stands: its commands in order, its files where it gives them, and what it says that they print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import blocks_of


@pytest.mark.timeout(900)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    folder, printed = tmp_path, ""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": ""}
    for block in blocks_of("docs/tutorial.md"):
        if block.file:
            (folder / block.file).write_text(block.text)
        elif block.language == "sh":
            script = f"set -eu\n{block.text}"
            ended = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False)
            printed = ended.stdout + ended.stderr
            assert ended.returncode == 0, f"{block}\n{printed}"
            folder = tmp_path / "weblog"
        else:
            assert set(block.text.splitlines()) <= set(printed.splitlines()), f"{block}\n{printed}"
