"""Places of a flow that was read from YAML text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.spec.nodes import Mapping, Node, Scalar, Sequence
from scribengin.spec.offsets import offset_in_text

if TYPE_CHECKING:
    from scribengin.core.problems import Place
    from scribengin.spec.document import Document
    from scribengin.spec.fill import Filled
    from scribengin.spec.places import Path


@dataclass(slots=True)
class DocumentPlaces:
    """`spec.places.Places` over a Document. A path that does not exist gives its nearest existing parent."""

    document: Document
    filled: dict[int, Filled] = field(default_factory=dict)
    """id of a scalar with `${…}` → its text after filling in"""
    spelled: dict[str, str] = field(default_factory=dict)
    """name of an edge (`a -> b`) → how the document writes it"""

    def key(self, path: Path) -> Place:
        """The place of the key itself; for an item of a list, the place where the item begins."""
        start = 0
        node = self.document.root
        for part in path:
            if isinstance(node, Mapping) and (written := self._written(node, part)) in node.entries:
                key, node = node.entries[written]
                start = key.start
            elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
                start = node.start
            else:
                break
        return self.document.place(start)

    def value(self, path: Path) -> Place:
        """The place where the value begins."""
        node = self._nearest(path)
        return self.document.place(node.start if node else 0)

    def inside(self, path: Path, offset: int) -> Place:
        """The place of character `offset` of the text at `path`."""
        node = self._nearest(path)
        return self.inside_node(node, offset) if isinstance(node, Scalar) else self.value(path)

    def inside_node(self, scalar: Scalar, offset: int) -> Place:
        """The place of character `offset` of that scalar's text, after `${…}` was filled in."""
        if id(scalar) in self.filled:
            offset = self.filled[id(scalar)].written(offset)
        found = offset_in_text(self.document.text, scalar, offset)
        return self.document.place(scalar.start if found is None else found)

    def _nearest(self, path: Path) -> Node | None:
        node = self.document.root
        for part in path:
            if isinstance(node, Mapping) and (written := self._written(node, part)) in node.entries:
                node = node.entries[written][1]
            elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
            else:
                break
        return node

    def _written(self, node: Mapping, part: str | int) -> str:
        name = str(part)
        return name if name in node.entries else self.spelled.get(name, name)
