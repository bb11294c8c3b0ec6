"""How the tests of the console find a browser."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness import browser
from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of the PATH; the cache is beside it, and the user is not root."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("SCRIBENGIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return folder


def program(path: Path, text: str = "exit 0") -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_variable_comes_before_the_path(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert browser.find_browser() is None
    chrome = program(programs / "google-chrome")
    assert browser.require_browser() == chrome
    chromium = program(programs / "chromium")
    assert browser.require_browser() == chromium
    own = program(tmp_path / "own")
    monkeypatch.setenv(browser.VARIABLE, str(own))
    assert browser.require_browser() == own


def test_without_a_browser_the_fault_says_how_to_get_one(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs / "apt-get", "exit 1")  # this user may not use it
    with pytest.raises(EnvironmentFault, match="no browser was found") as told:
        browser.require_browser()
    assert "apt-get install chromium" in told.value.remedy
    assert browser.VARIABLE in told.value.remedy
    monkeypatch.setenv(browser.VARIABLE, "/no/such/browser")
    with pytest.raises(EnvironmentFault, match="SCRIBENGIN_BROWSER is /no/such/browser, which is not a program"):
        browser.require_browser()


def test_a_browser_that_does_not_run_is_a_fault(programs: Path) -> None:
    program(programs / "chromium-browser", "echo 'requires the chromium snap' >&2; exit 1")
    with pytest.raises(EnvironmentFault, match="chromium-browser --version ended with 1: requires the chromium snap"):
        browser.require_browser()


def test_root_installs_the_package_once(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    asked, chromium = tmp_path / "asked", programs / "chromium"
    install = f"case \"$*\" in *install*) echo '#!/bin/sh' > {chromium}; /bin/chmod 755 {chromium};; esac"
    program(programs / "apt-get", f'echo "$DEBIAN_FRONTEND $*" >> {asked}\n{install}')
    said: list[str] = []
    assert browser.require_browser(said.append) == chromium
    assert browser.require_browser(said.append) == chromium
    assert said == ["installing Debian's package chromium"]
    update, install = asked.read_text().splitlines()
    assert update.startswith("noninteractive ")
    assert update.endswith(" update")
    assert install.endswith(" install -y --no-install-recommends chromium")


def test_an_installation_that_fails_is_a_fault(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(programs / "apt-get", "echo 'no network' >&2; exit 100")
    with pytest.raises(EnvironmentFault, match="update ended with 100: no network"):
        browser.require_browser()
