"""docs/deploy.md: what it lets a reader type works, beside a control plane that is up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from doc_pages import blocks_of, run_commands

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/deploy.md"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_commands_of_the_page_work_beside_one_that_is_up(tmp_path: Path) -> None:
    first, second, *_ = (block.text for block in blocks_of(PAGE) if block.language in ("", "sh"))
    assert first == "scribengin server dev\n"
    home = tmp_path / "home"
    settings = os.environ | {"SCRIBENGIN_HOME": str(home)}
    with subprocess.Popen([sys.executable, "-m", "scribengin.cli", "server", "dev"], cwd=tmp_path, env=settings) as up:
        try:
            deadline = time.monotonic() + 120
            while not (home / "up.json").exists():
                assert time.monotonic() < deadline
                assert up.poll() is None
                time.sleep(0.2)
            run_commands(second.splitlines(), tmp_path, SCRIBENGIN_HOME=str(home))
            up.send_signal(signal.SIGINT)
            assert up.wait(120) == 0
        finally:
            up.kill()
