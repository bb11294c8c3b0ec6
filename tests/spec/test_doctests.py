from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import scribengin.spec


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(scribengin.spec.__path__)])
def test_the_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"scribengin.spec.{name}")).failed == 0
