"""Places for flows that were made as values: every path is its own place, offsets are columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import Place

if TYPE_CHECKING:
    from scribengin.spec.places import Path


class PathPlaces:
    """The file is `flow.yaml`, the line counts the paths that were asked for, the column is the offset plus 1."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def key(self, path: Path) -> Place:
        return self.inside(path, 0)

    def value(self, path: Path) -> Place:
        return self.inside(path, 0)

    def inside(self, path: Path, offset: int) -> Place:
        if path not in self.paths:
            self.paths.append(path)
        return Place("flow.yaml", self.paths.index(path) + 1, offset + 1)

    def path_at(self, place: Place) -> Path:
        """The path whose place it is."""
        return self.paths[place.line - 1]
