"""A farm of real workers for each test that asks; what it leaves running is ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # farm, which the modules here use

from farm import Farm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with Farm(tmp_path) as farm:
        yield farm
