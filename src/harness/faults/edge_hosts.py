"""Hosts that write lines and rotate their file in every known way."""

from __future__ import annotations

import gzip
import random
import shutil
import threading
import time
from typing import IO, TYPE_CHECKING

from harness.edge_plane import log_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROTATIONS = ("rename", "shift", "dated", "late", "gzip", "gzip-later", "copytruncate", "copytruncate-gzip", "delete")
"""`rename`: to a number that is never used again. `shift`: `.1` to `.2` and so on. `dated`: to a name with a date. `late`: the program
writes on into the renamed file for a while. `gzip`: renamed and compressed at once; `gzip-later`: the one before is compressed.
`copytruncate`: copied, then truncated; the copy may be compressed. `delete`: the file is deleted while it is open, after all was read."""
_PART_SHARE = 0.2
"""of writes come in two parts, as lines that exceed the buffer of a program do"""


class RotatingHost(threading.Thread):
    """Writes lines into `access.log` until `end`.

    Args:
        folder: Where the host's folder is made.
        name: Of the host, and of its agent.
        rate: Lines a second.
        rotate_s: The mean time between rotations.
        seed: Of all choices.
        rotations: Which ways to rotate are used.
        is_read: Whether the agent has read that many lines.

    Attributes:
        number: The number of the next line.
        rotated: The ways in which it was rotated.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        rate: float,
        rotate_s: float,
        seed: int,
        rotations: tuple[str, ...] = ROTATIONS,
        is_read: Callable[[int], bool] = lambda _: False,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.path = folder / name / "access.log"
        self.number = 0
        self.rotated: list[str] = []
        self.fault: BaseException | None = None
        self._rate, self._rotate_s, self._kinds, self._is_read = rate, rotate_s, rotations, is_read
        self._random = random.Random(f"{seed} {name}")
        self._ended = threading.Event()
        self._files = 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = self.path.open("ab", buffering=0)

    def run(self) -> None:
        """Write until `end`."""
        try:
            self._write()
        except BaseException as error:
            self.fault = error
            raise
        finally:
            self._file.close()

    def end(self) -> None:
        """Write no more, and wait for the last line."""
        self._ended.set()
        self.join()

    def _write(self) -> None:
        now = time.monotonic()
        begun_s, rotate_at = now, now + self._random.uniform(0.5, 1.5) * self._rotate_s
        while not self._ended.is_set():
            now = time.monotonic()
            self._lines(min(self.number + 2000, int((now - begun_s) * self._rate) + 1))
            if now >= rotate_at:
                rotate_at = now + self._random.uniform(0.5, 1.5) * self._rotate_s
                self._rotate(self._random.choice(self._kinds))
            self._ended.wait(0.02)

    def _lines(self, until: int) -> None:
        if until <= self.number:
            return
        data = b"".join(log_line(self.name, number) for number in range(self.number, until))
        cut = self._random.randrange(len(data)) if self._random.random() < _PART_SHARE else 0
        if cut:
            self._file.write(data[:cut])
            time.sleep(self._random.uniform(0.0, 0.05))
        self._file.write(data[cut:])
        self.number = until

    def _rotate(self, kind: str) -> None:
        self._files += 1
        match kind:
            case "copytruncate" | "copytruncate-gzip":
                copy = self._beside(f".{self._files}")
                shutil.copyfile(self.path, copy)
                self._file.truncate(0)
                if kind.endswith("gzip"):
                    _compress(copy)
            case "delete":
                if not self._is_read(self.number):
                    return
                self.path.unlink()
                self._reopen()
            case "shift":
                for nth in sorted(self._shifted(), reverse=True):
                    self._beside(f".old.{nth}").rename(self._beside(f".old.{nth + 1}"))
                self.path.rename(self._beside(".old.1"))
                self._reopen()
            case _:
                target = self._beside(f"-20261129-{self._files:05d}" if kind == "dated" else f".{self._files}")
                before = self._last
                self.path.rename(target)
                self._last = target
                if kind == "late":
                    self._lines(self.number + 1 + self._random.randrange(20))
                    time.sleep(self._random.uniform(0.0, 0.3))
                    self._lines(self.number + 1 + self._random.randrange(20))
                self._reopen()
                if kind == "gzip":
                    _compress(target)
                    self._last = None
                elif kind == "gzip-later" and before is not None and before.exists():
                    _compress(before)
        self.rotated.append(kind)

    _last: Path | None = None

    def _shifted(self) -> list[int]:
        return [int(path.suffix[1:]) for path in self.path.parent.glob("access.log.old.*")]

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)

    def _reopen(self) -> None:
        self._file.close()
        self._file = self.path.open("ab", buffering=0)


def _compress(path: Path) -> None:
    """As logrotate does: into a file beside it, which then takes the name; the other one is removed."""
    draft = path.with_name(f".{path.name}.gz")
    draft.write_bytes(gzip.compress(path.read_bytes(), 1))
    draft.rename(path.with_name(f"{path.name}.gz"))
    path.unlink()
