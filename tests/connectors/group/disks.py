"""What tests of groups share: members that are folders, which go away and come back, and a clock that they move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Disks:
    """Each member lies in a folder of its name below `folder`."""

    folder: Path

    def take_away(self, member: str) -> None:
        """A file stands where the folder was, as if the disk were not what it was: root may write to any folder, never to this."""
        (self.folder / member).rename(self.folder / f"{member}.gone")
        (self.folder / member).touch()

    def give_back(self, member: str) -> None:
        (self.folder / member).unlink()
        (self.folder / f"{member}.gone").rename(self.folder / member)
