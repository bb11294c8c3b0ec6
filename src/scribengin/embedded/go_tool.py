"""Go programs that tests and demos need: built once with the Go of this machine, and kept in the cache by version."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from scribengin.core.cache import cache_folder
from scribengin.core.errors import EnvironmentFault
from scribengin.core.storage import explained, make_folder, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BUILT_WITHIN_S = 1800.0
_INSTALLED = "/usr/local/go/bin"
"""the folder of Go's own installation instructions; without their last step it is not on the PATH"""


def built(package: str, version: str, tell: Callable[[str], None] = lambda _line: None) -> Path:
    """The program of a package, such as `example.org/tools/cmd/thing`; if the cache lacks it, it is built, which takes minutes.

    Any number of processes may ask at once. `tell` gets a line before a build. Raises EnvironmentFault if there is no Go, or the build
    fails.
    """
    name = package.rpartition("/")[2]
    folder = cache_folder() / "go"
    program = folder / f"{name}-{version}"
    if program.exists():
        return program
    make_folder(folder)
    with explained(f"{folder / 'lock'} cannot be written"), (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            tell(f"building {name} {version} into {folder}")
            _build(package, version, program)
    return program


def _build(package: str, version: str, program: Path) -> None:
    go = shutil.which("go") or shutil.which("go", path=_INSTALLED)
    if go is None:
        raise EnvironmentFault(
            f"{package} must be built with Go, but there is no `go` on the PATH",
            remedy="install Go (1.24 or newer)",
            code="server-missing",
        )
    scratch = program.parent / ".building"
    remove_tree(scratch)
    make_folder(scratch)
    try:
        command = [go, "install", "-trimpath", "-ldflags=-s -w", f"{package}@{version}"]
        environment = {**os.environ, "GOBIN": str(scratch), "GOFLAGS": ""}
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_BUILT_WITHIN_S)
        if made.returncode:
            said = " ".join(made.stderr.split())[-600:]
            raise EnvironmentFault(
                f"Go cannot build {package}@{version}: {said}", remedy="check that Go can download its modules", code="server-missing"
            )
        (scratch / package.rpartition("/")[2]).replace(program)
    finally:
        remove_tree(scratch)
