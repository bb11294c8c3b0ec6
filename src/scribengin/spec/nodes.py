"""A YAML document as located nodes: the content, with its start and end in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Scalar:
    """`value` is the text without quotes and escapes; `style` is `''` (plain), `'`, `"`, `|` or `>`.

    `start` and `end` are character offsets of the whole scalar in the document, quotes included.
    """

    value: str
    style: str
    start: int
    end: int

    @property
    def plain(self) -> bool:
        """True if it has no quotes: only then it may be a number, a boolean or null."""
        return not self.style


@dataclass(slots=True, eq=False)
class Mapping:
    """Entries in order, unique by key. `flow` is true for `{…}`."""

    entries: dict[str, tuple[Scalar, Node]]
    start: int
    flow: bool


@dataclass(slots=True, eq=False)
class Sequence:
    """Items in order. `flow` is true for `[…]`."""

    items: list[Node]
    start: int
    flow: bool


Node = Scalar | Mapping | Sequence

_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}


def resolve_plain(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar by the core schema of YAML 1.2: `yes`, `on` and `12:30` are texts.

    >>> resolve_plain("0o17"), resolve_plain("yes"), resolve_plain("1e3"), resolve_plain("~"), resolve_plain("012")
    (15, 'yes', 1000.0, None, 12)
    """
    if text in _WORDS:
        word: float | bool | None = _WORDS[text]
        return word
    if text[0] not in "+-.0123456789":
        return text
    if _INT.match(text):
        return int(text) if len(text) < 4000 else text
    if text.startswith("0o") and re.match(r"0o[0-7]+\Z", text):
        return int(text[2:], 8)
    if text.startswith("0x") and re.match(r"0x[0-9a-fA-F]+\Z", text):
        return int(text[2:], 16)
    return float(text) if _FLOAT.match(text) else text


def kind_of(node: Node) -> str:
    """Return how messages name the found value: `a list`, `a mapping`, `nothing`, `the number 7`, `the text "x"`."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    value = resolve_plain(node.value) if node.plain else node.value
    if value is None:
        return "nothing" if not node.value else f"{node.value} (nothing)"
    if isinstance(value, bool):
        return f"the boolean {node.value}"
    if isinstance(value, (int, float)):
        return f"the number {node.value}"
    return f"the text {shorten(node.value)}"


def shorten(text: str, limit: int = 60) -> str:
    """Return the text in quotes on one line, cut if it is long."""
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= limit else f'"{line[: limit - 1]}…"'
