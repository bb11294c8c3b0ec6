"""Servers that refuse to run as root, started by root."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
_NOBODYS_ID = 65534
_NOBODY = ("setpriv", f"--reuid={_NOBODYS_ID}", f"--regid={_NOBODYS_ID}", "--clear-groups")


def as_nobody_special() -> tuple[str, ...]:
    """The command prefix with which root starts such a server: as a user of a new namespace, who owns root's files; if that is not
    possible, as `nobody`, who is given its folders (`give`) and needs access to their parents. Empty for other users."""
    if os.geteuid() != 0:
        return ()
    return _NAMESPACE if _may_have_a_namespace() else _NOBODY


def give(folder: Path) -> None:
    """Give the folder, with all contents, to the user that `as_nobody_special` switches to."""
    if as_nobody_special() != _NOBODY:
        return
    os.chown(folder, _NOBODYS_ID, _NOBODYS_ID)
    for path in folder.rglob("*"):
        os.chown(path, _NOBODYS_ID, _NOBODYS_ID, follow_symlinks=False)


@cache
def _may_have_a_namespace() -> bool:
    with suppress(OSError):
        return subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    return False
