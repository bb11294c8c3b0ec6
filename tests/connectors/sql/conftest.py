"""The database of examples/sql-database, as an installed package would be found: here, and in child processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[3] / "examples" / "sql-database" / "src"


@pytest.fixture(scope="session", autouse=True)
def _example() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        yield
