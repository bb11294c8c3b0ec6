"""Chromium for the tests of the console: the one of this machine, or Debian's package, which root installs."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.cache import cache_folder
from scribengin.core.errors import EnvironmentFault
from scribengin.core.storage import explained, make_folder

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "SCRIBENGIN_BROWSER"
"""the environment variable with the path of a browser"""
NAMES = ("chromium", "chromium-browser", "google-chrome")
_INSTALLED_WITHIN_S = 1200.0
_ANSWERS_WITHIN_S = 120.0
_REMEDY = f"install Chromium (on Debian: apt-get install chromium), or set {VARIABLE} to the path of a browser"


def find_browser() -> Path | None:
    """The path of the browser: SCRIBENGIN_BROWSER, else the first of NAMES on the PATH. None if there is none.

    Raises:
        EnvironmentFault: SCRIBENGIN_BROWSER is not the path of a program.
    """
    if given := os.environ.get(VARIABLE):
        if shutil.which(given) is None:
            raise _fault(f"{VARIABLE} is {given}, which is not a program")
        return Path(given)
    return next((Path(path) for path in map(shutil.which, NAMES) if path is not None), None)


def require_browser(tell: Callable[[str], None] = lambda _line: None) -> Path:
    """The path of the browser. Root installs Debian's package first if there is none, which takes a minute or more.

    Any number of processes may call it at the same time.

    Args:
        tell: called with a message before an installation.

    Raises:
        EnvironmentFault: there is no browser, it does not run, or the installation fails.
    """
    found = find_browser()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        folder = cache_folder()
        make_folder(folder)
        lock_file = folder / "lock-browser"
        with explained(f"{lock_file} cannot be written"), lock_file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (found := find_browser()) is None:
                tell("installing Debian's package chromium")
                _install()
                found = find_browser()
    if found is None:
        raise _fault("no browser was found")
    _run([str(found), "--version"], _ANSWERS_WITHIN_S)  # Ubuntu's program of this name only asks for a snap
    return found


def _install() -> None:
    deadline = time.monotonic() + _INSTALLED_WITHIN_S
    wait = ("-o", f"DPkg::Lock::Timeout={_INSTALLED_WITHIN_S:.0f}")
    for words in (("update",), ("install", "-y", "--no-install-recommends", "chromium")):
        _run(["apt-get", "-q", *wait, *words], deadline - time.monotonic())


def _run(command: list[str], within_s: float) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=within_s
        )
    except OSError as error:
        raise _fault(f"{command[0]} cannot run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _fault(f"{' '.join(command)} did not end within {within_s:.0f} s") from error
    if ended.returncode:
        output = " ".join(f"{ended.stdout} {ended.stderr}".split())[-600:]
        raise _fault(f"{' '.join(command)} ended with {ended.returncode}: {output}")


def _fault(message: str) -> EnvironmentFault:
    return EnvironmentFault(message, remedy=_REMEDY, code="server-missing")
