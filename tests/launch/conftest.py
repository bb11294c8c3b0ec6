"""Benches of launchers; what a test leaves running is ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # benches, which the modules here use

from benches import MemoryBench, ProcessBench

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def local(tmp_path: Path) -> Iterator[ProcessBench]:
    bench = ProcessBench(tmp_path)
    yield bench
    bench.clear()


@pytest.fixture
def memory() -> MemoryBench:
    return MemoryBench()


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no launcher has started."""
    with subprocess.Popen([sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(60)"]) as child:
        yield child
        child.kill()
