import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory where there is one: these trials sync thousands of files, and one of them notes what was synced."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="scribengin-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
