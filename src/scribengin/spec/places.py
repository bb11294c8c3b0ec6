"""Places in a flow file: from a path of keys to `file:line:column`, also inside long texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scribengin.core.problems import Place

Path = tuple[str | int, ...]
"""keys and list indexes from the document's root: `("steps", "hot", "filter")`"""


class Places(Protocol):
    """Finds the place of a path. Every method falls back to the nearest parent that has a place, so that any path gives one."""

    def key(self, path: Path) -> Place:
        """The place of the key itself."""

    def value(self, path: Path) -> Place:
        """The place where the value begins."""

    def inside(self, path: Path, offset: int) -> Place:
        """The place of character `offset` of the scalar at `path`, through quotes, escapes, folded and block scalars."""
