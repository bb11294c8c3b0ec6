"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import scribengin

SOURCES = Path(scribengin.__file__).parent
WITH_EXAMPLES = sorted(path.relative_to(SOURCES.parent) for path in SOURCES.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=str)
def test_the_examples_in_docstrings_hold(path: Path) -> None:
    found = doctest.testmod(importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__")))
    assert (found.failed, found.attempted > 0) == (0, True)
