"""What every test gets: none of the caller's Scribengin settings, and one hypothesis profile."""

import os

import pytest
from hypothesis import settings

settings.register_profile("scribengin", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("scribengin")


@pytest.fixture(autouse=True)
def _no_settings_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("SCRIBENGIN_"):
            monkeypatch.delenv(name)
