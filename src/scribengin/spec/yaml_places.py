"""The places of a flow that was read from YAML text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.spec.yaml_document import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Place
    from scribengin.spec.places import Path
    from scribengin.spec.variables import Filled
    from scribengin.spec.yaml_document import Document


# Maps a character of a scalar's value to the character of the document that wrote it: through quotes, escapes and folding. YAML's rules are
# applied in reverse. Each reading is compared with the value that libyaml gave, so that a rule that does not fit gives no place instead of
# a wrong one.


_FOLD = re.compile(r"[ \t]*(?:\r\n|\r|\n)[ \t\r\n]*")
_BREAK = re.compile(r"\r\n|\r|\n")
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b", " ": " ",
    '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}

Piece = tuple[str, int]
"""a character of the value, and its offset in the document"""


def offset_in_text(text: str, scalar: Scalar, offset: int) -> int | None:
    """The offset in `text` of character `offset` of the scalar's value; for the end of the value, the offset after its last character. None
    if it cannot be determined."""
    for pieces in _readings(text, scalar):
        if "".join(piece[0] for piece in pieces) == scalar.value:
            if offset < len(pieces):
                return pieces[offset][1]
            return pieces[-1][1] + 1 if pieces else scalar.start
    return None


def _readings(text: str, scalar: Scalar) -> Iterator[list[Piece]]:
    match scalar.style:
        case "":
            yield list(_plain(text, scalar.start, scalar.end))
        case "'":
            yield list(_single_quoted(text, scalar.start + 1, scalar.end - 1))
        case '"':
            yield list(_double_quoted(text, scalar.start + 1, scalar.end - 1))
        case _:
            yield from _blocks(text, scalar)


def _folded(found: re.Match[str]) -> Iterator[Piece]:
    """The characters for folded line breaks: one break gives a space, n of them n-1 breaks; blanks around them give nothing."""
    breaks = [match.start() + found.start() for match in _BREAK.finditer(found.group())]
    if len(breaks) == 1:
        yield " ", breaks[0]
    for at in breaks[1:]:
        yield "\n", at


def _plain(text: str, at: int, end: int) -> Iterator[Piece]:
    while at < end:
        fold = _FOLD.match(text, at, end)
        if fold:
            yield from _folded(fold)
            at = fold.end()
        else:
            yield text[at], at
            at += 1


def _single_quoted(text: str, at: int, end: int) -> Iterator[Piece]:
    while at < end:
        fold = _FOLD.match(text, at, end)
        if fold:
            yield from _folded(fold)
            at = fold.end()
        else:
            yield text[at], at
            at += 2 if text[at] == "'" else 1


def _double_quoted(text: str, at: int, end: int) -> Iterator[Piece]:
    while at < end:
        fold = _FOLD.match(text, at, end)
        if fold:
            yield from _folded(fold)
            at = fold.end()
        elif text[at] != "\\":
            yield text[at], at
            at += 1
        elif text[at + 1] in "\r\n":  # an escaped break joins the lines; blank lines after it are breaks
            joined = _FOLD.match(text, at + 1, end)
            assert joined is not None
            for found in list(_BREAK.finditer(joined.group()))[1:]:
                yield "\n", at + 1 + found.start()
            at = joined.end()
        else:
            digits = _HEX_DIGITS.get(text[at + 1], 0)
            yield (chr(int(text[at + 2 : at + 2 + digits], 16)) if digits else _ESCAPES[text[at + 1]]), at
            at += 2 + digits


def _blocks(text: str, scalar: Scalar) -> Iterator[list[Piece]]:
    """The readings for each indentation that the block may have; an explicit one (`|2`) is relative to a parent that is unknown here."""
    header = _BREAK.search(text, scalar.start)
    if header is None:
        yield []
        return
    flags = text[scalar.start + 1 : header.start()].partition("#")[0]
    first = re.compile(r"(?:[ ]*(?:\r\n|\r|\n))*([ ]*)").match(text, header.end())
    deepest = len(first.group(1)) if first else 0
    for indent in range(deepest, -1, -1):
        yield _block(text, header.end(), scalar, indent, flags)


def _block(text: str, at: int, scalar: Scalar, indent: int, flags: str) -> list[Piece]:
    """The characters of a block scalar, as libyaml scans it. `kept` is the break after the last line, `blank` the breaks of empty lines
    after it."""
    pieces: list[Piece] = []
    kept: list[Piece] = []
    after_blank = False
    at, blank = _breaks(text, at, indent)
    while at < min(scalar.end, len(text)) and text[at] not in "\r\n":
        starts_blank = text[at] in " \t"
        if scalar.style == ">" and kept and not after_blank and not starts_blank:
            if not blank:
                pieces.append((" ", kept[0][1]))
        else:
            pieces += kept
        pieces += blank
        after_blank = starts_blank
        ending = _BREAK.search(text, at)
        end = ending.start() if ending else len(text)
        pieces += [(text[index], index) for index in range(at, end)]
        kept = [("\n", end)] if ending else []
        if ending is None:
            at, blank = end, []
            break
        at, blank = _breaks(text, ending.end(), indent)
    if "-" not in flags:
        pieces += kept
    if "+" in flags:
        pieces += blank
    return pieces


def _breaks(text: str, at: int, indent: int) -> tuple[int, list[Piece]]:
    """Skip the indentation and empty lines: (the offset at which the next line's text begins, the breaks before it)."""
    blank: list[Piece] = []
    while True:
        start = at
        while at < len(text) and at - start < indent and text[at] == " ":
            at += 1
        found = _BREAK.match(text, at)
        if found is None:
            short = at - start < indent
            return (len(text) if short else at), blank
        blank.append(("\n", at))
        at = found.end()


@dataclass(slots=True)
class DocumentPlaces:
    """`spec.places.Places` for a Document. A path that does not exist has the place of its nearest existing parent."""

    document: Document
    filled: dict[int, Filled] = field(default_factory=dict)
    """id of a scalar with `${…}` → its text after filling in"""
    spelled: dict[str, str] = field(default_factory=dict)
    """name of an edge (`a -> b`) → its spelling in the document"""

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
