"""Go programs that tests and demos need: built once with the Go of this machine, and kept in the user's cache by version."""

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
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_ENDS_WITHIN_S = 3600.0
_INSTALLED = "/usr/local/go/bin"
"""the folder of Go's own installation instructions, which is not on the PATH unless the last step was done"""


def built(package: str, version: str, tell: Callable[[str], None] = lambda _line: None) -> Path:
    """The program of a Go package, such as `example.org/tools/cmd/thing`. It is built if the cache lacks it, which takes minutes.

    Any number of processes may call it at the same time.

    Args:
        package: the package.
        version: its version.
        tell: called with a message before a build.

    Raises:
        EnvironmentFault: there is no Go, or the build fails.
    """
    name = package.rpartition("/")[2]

    def build(scratch: Path) -> None:
        words = ["install", "-trimpath", "-ldflags=-s -w", f"{package}@{version}"]
        run_go(require_go(package), words, scratch, f"build {package}@{version}", {"GOBIN": str(scratch)})

    return cached_program(name, version, build, tell)


def cached_program(name: str, version: str, build: Callable[[Path], None], tell: Callable[[str], None]) -> Path:
    """The path of a program in the cache. It is built if the cache lacks it.

    Args:
        name: its name.
        version: its version.
        build: called with a new folder, into which it builds the program under its name.
        tell: called with a message before a build.

    Raises:
        EnvironmentFault: the cache cannot be written, or what `build` raises.
    """
    folder = cache_folder() / "go"
    program = folder / f"{name}-{version}"
    if program.exists():
        return program
    make_folder(folder)
    lock_file, scratch = folder / f"lock-{name}", folder / f".building-{name}"
    with explained(f"{lock_file} cannot be written"), lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            tell(f"building {name} {version} into {folder}")
            remove_tree(scratch)
            make_folder(scratch)
            try:
                build(scratch)
                (scratch / name).replace(program)
            finally:
                remove_tree(scratch)
    return program


def installed_go() -> list[str]:
    """The paths of Go on this machine, the one on the PATH first."""
    return [found for found in (shutil.which("go"), shutil.which("go", path=_INSTALLED)) if found is not None]


def require_go(what: str) -> str:
    """The path of Go. `what`: what needs it. Raises EnvironmentFault: there is none."""
    for found in installed_go():
        return found
    raise EnvironmentFault(
        f"{what} must be built with Go, but there is no `go` on the PATH", remedy="install Go (1.24 or newer)", code="server-missing"
    )


def run_go(go: str, words: Sequence[str], folder: Path, purpose: str, variables: Mapping[str, str] | None = None) -> str:
    """Run Go.

    Args:
        go: its path.
        words: the command.
        folder: the folder in which it runs.
        purpose: what it does, for the message of an error, such as `build …`.
        variables: further environment variables.

    Returns:
        What it has printed.

    Raises:
        EnvironmentFault: it fails.
    """
    environment = {**os.environ, "GOFLAGS": "", **(variables or {})}
    ended = subprocess.run([go, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_ENDS_WITHIN_S)
    if ended.returncode:
        output = " ".join(f"{ended.stdout} {ended.stderr}".split())[-600:]
        raise EnvironmentFault(f"Go cannot {purpose}: {output}", remedy="check that Go can download its modules", code="server-missing")
    return ended.stdout
