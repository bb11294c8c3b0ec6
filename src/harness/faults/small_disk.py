"""A disk of some kilobytes without root rights: a tmpfs in a user and mount namespace, which commands enter."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class SmallDisk:
    """A disk of `size` at `folder`, for commands that `wrap` wraps. A context manager; the contents are lost at its end."""

    def __init__(self, folder: Path, size: str) -> None:
        self._folder = folder
        self._size = size
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SmallDisk:
        self._folder.mkdir(parents=True, exist_ok=True)
        script = 'mount -t tmpfs -o "size=$1" small "$2" && echo ready && exec cat'
        command = ["unshare", "-rm", "sh", "-c", script, "sh", self._size, str(self._folder)]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != b"ready\n":
            raise OSError(f"no small disk on {self._folder}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._keeper is not None:
            self._keeper.communicate(timeout=10)

    def wrap(self, command: Sequence[str], cwd: Path) -> list[str]:
        """The command that runs `command` in `cwd` so that it sees the disk."""
        enter = ["nsenter", "-t", str(self._pid), "-U", "-m", "--preserve-credentials"]
        return [*enter, "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(cwd), *command]

    def seen(self, path: Path) -> Path:
        """A path of the wrapped commands, as a process outside sees it."""
        return Path(f"/proc/{self._pid}/root{path}")

    def grow(self, size: str) -> None:
        """Enlarge the disk."""
        subprocess.run(self.wrap(["mount", "-o", f"remount,size={size}", str(self._folder)], Path("/")), check=True)

    @property
    def _pid(self) -> int:
        assert self._keeper is not None
        return self._keeper.pid


@cache
def no_small_disk() -> str:
    """The reason why this machine cannot provide such a disk; empty if it can."""
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        return "unshare and nsenter are not there (Linux only)"
    ended = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "small", "/tmp"], capture_output=True, check=False)
    return f"no namespace for a small disk: {ended.stderr.decode().strip()}" if ended.returncode else ""
