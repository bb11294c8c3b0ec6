"""Reads YAML text to located nodes, with every fault as a Problem. libyaml parses; scalars are typed by YAML 1.2."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Callable


# Explains libyaml's syntax errors in terms of the flow file, with a remedy.


_INDICATORS = {
    "@": "an @ cannot begin a value",
    "`": "a backtick cannot begin a value",
    "%": "a % cannot begin a value",
}


def explain(error: yaml.MarkedYAMLError, text: str) -> tuple[str, str, int]:
    """(message, remedy, offset of the character in the text)."""
    mark = error.problem_mark or error.context_mark
    offset = min(mark.index, len(text)) if mark else 0
    opened = error.context_mark.index if error.context_mark else offset
    problem, context = error.problem or "", error.context or ""
    line = _line_at(text, offset)
    if "\t" in (text[offset : offset + 1], text[opened : opened + 1]) or "tab character" in problem:
        tab = text.find("\t", text.rfind("\n", 0, offset) + 1)
        return "a tab indents this line; YAML allows only spaces", "replace the tab with spaces", tab if tab >= 0 else offset
    if "cannot start any token" in problem:
        found = text[offset : offset + 1]
        return _INDICATORS.get(found, f"{found} cannot begin a value"), "quote the value", offset
    if "mapping values are not allowed" in problem:
        return _stray_colon(text, offset)
    if "could not find expected ':'" in problem:
        return _key_without_colon(text, opened)
    if "quoted scalar" in context and "end of stream" in problem:
        return (
            f"the {_quote_name(text, opened)} that opens here is never closed",
            "close it; to write a quote inside the text, double it",
            opened,
        )
    if "quoted scalar" in context and "escape" in problem:
        escape = offset if text[offset] == "\\" else offset - 1
        remedy = r"write \\ for a backslash, or use single quotes, in which a backslash has no special meaning"
        return f"{text[escape : escape + 2]} is not a valid escape in a double-quoted text", remedy, escape
    if "flow mapping" in context or "flow sequence" in context:
        return _flow(text, offset, opened, context)
    if "block scalar" in context:
        found = text[opened]
        return (
            f"a value that begins with {found} is a text block, whose text starts on the next line",
            f"quote the value if the {found} belongs to it",
            opened,
        )
    if "sequence entries are not allowed" in problem:
        return "a list with - must start on its own line", "put each - item on its own line, or write [a, b]", offset
    if "block mapping" in context:
        before = text[:offset].rstrip(" ")
        if before.endswith(("'", '"')) and not before.endswith("\n"):
            return "the quoted value ends before this", "double a quote that belongs to the text, or quote the whole value", offset
        if not line[: _column(text, offset)].strip():
            return (
                "the indentation of this line does not match a line above it",
                "indent all keys of one mapping by the same number of spaces",
                offset,
            )
        return "a key was expected here", "quote the value if this belongs to it", offset
    if "block collection" in context:
        item = "begin each item with - at the same indentation, or end the list by indenting less"
        if re.match(r"\s*[\w.-]+\s*:", line):
            dash = _column(text, opened) + 1
            return (
                f"this line has a name and no dash, and line {text.count(chr(10), 0, opened) + 1} begins a list",
                f"sources, steps and sinks are written without a dash: remove the one in column {dash} there; or {item}",
                offset,
            )
        return "a list item was expected here", item, offset
    if "node content" in problem:
        return f"{text[offset : offset + 1] or 'the end'} found; a value was expected", "if it is text, quote it", offset
    return f"not valid YAML: {' '.join(filter(None, (context, problem)))}", "if it is text, quote the value", offset


def _line_at(text: str, offset: int) -> str:
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    return text[start : end if end >= 0 else len(text)]


def _column(text: str, offset: int) -> int:
    return offset - (text.rfind("\n", 0, offset) + 1)


def _quote_name(text: str, offset: int) -> str:
    return "double quote" if text[offset : offset + 1] == '"' else "single quote"


def _stray_colon(text: str, offset: int) -> tuple[str, str, int]:
    """Explain `: ` where no key is possible: it is in a text, or an earlier line has no space after its colon, or has both a value and
    children."""
    line = _line_at(text, offset)
    before = text[: offset - _column(text, offset)].rstrip().rpartition("\n")[2]
    glued = re.match(r"\s*(?:- )?([A-Za-z_][\w-]*):(\S.*)\Z", before)
    if glued and not line[: _column(text, offset)].strip().count(": "):
        where = text.rindex(before, 0, offset) + glued.start(2)
        return f'there is no space after "{glued.group(1)}:"', "write a space after the colon", where
    if ": " in line[: _column(text, offset)] or "- " in line[: _column(text, offset)].lstrip()[:2]:
        return "a value without quotes cannot contain `: `", "quote the value", offset
    return (
        "this key is indented under a line that already has a value",
        "indent it like the keys beside it, or quote the text above",
        offset,
    )


def _key_without_colon(text: str, offset: int) -> tuple[str, str, int]:
    line = _line_at(text, offset)
    glued = re.match(r"\s*(?:- )?([A-Za-z_][\w-]*):(\S)", line)
    if glued:
        where = offset - _column(text, offset) + glued.start(2)
        return f'there is no space after "{glued.group(1)}:"', "write a space after the colon", where
    return (
        f'"{line.strip()}" is not a key and not a list item',
        "write `key: value`; indent the following lines of a long text more than its key",
        offset,
    )


def _flow(text: str, offset: int, opened: int, context: str) -> tuple[str, str, int]:
    open_, close = ("{", "}") if "mapping" in context else ("[", "]")
    found = text[offset : offset + 1]
    if found in ("]", "}") and found != close:
        return f"expected {close} for the {open_} before it, found {found}", f"close with {close}", offset
    if not found or "\n" in text[opened:offset]:
        return f"the {open_} that opens here is never closed", f"close it with {close}", opened
    if found == "{" and text[offset - 1 : offset] == "$":
        return f"inside {open_} {close} a value with ${{…}} needs quotes", "quote the value", offset - 1
    if found == ":":
        return "a value without quotes cannot contain `: `", "quote the value", offset
    return f"a comma or {close} was expected here", f"close with {close}, or quote the value", offset


# A YAML document as located nodes: the content, with its start and end in the text.


@dataclass(slots=True, eq=False)
class Scalar:
    """A scalar. `value` is the text without quotes and escapes; `style` is `''` (plain), `'`, `"`, `|` or `>`.

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
    """A mapping with entries in order, unique by key. `flow` is True for `{…}`."""

    entries: dict[str, tuple[Scalar, Node]]
    start: int
    flow: bool


@dataclass(slots=True, eq=False)
class Sequence:
    """A list with items in order. `flow` is True for `[…]`."""

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
    """The found value as messages name it: `a list`, `a mapping`, `nothing`, `the number 7`, `the text "x"`."""
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
    """The text in quotes on one line, cut if it is long."""
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= limit else f'"{line[: limit - 1]}…"'


_event_reader: Callable[[str], Any] = yaml.Loader
"""returns the events of a text; uses libyaml if PyYAML was built with it, which is ten times as fast"""
if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    _event_reader = CParser
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COMMENT = re.compile(r"[ \t]+#(?=[^\s#])")
"""a `#` directly followed by a character, as in `#hashtag`; after the `#` of a real comment comes a space"""
_DEEPEST = 100


class Document:
    """One YAML text. `root` is None if the text has no readable content; `problems` then contain the reason."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text.removeprefix("\ufeff")
        self.file = file
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._lines = [0, *(found.end() for found in _LINE_BREAK.finditer(self.text))]
        forbidden = _FORBIDDEN.search(self.text)
        if forbidden:
            code = f"U+{ord(forbidden.group()):04X}"
            self.problem("yaml-character", forbidden.start(), f"the character {code} is not allowed in a YAML file", "take it out")
            return
        try:
            self.root = _Composer(self).compose()
        except yaml.MarkedYAMLError as error:
            message, remedy, offset = explain(error, self.text)
            self.problem("yaml-syntax", offset, message, remedy)
        except _UnusedFeatureError as stop:
            self.problem("yaml-feature", stop.offset, stop.message, stop.remedy)

    def place(self, offset: int) -> Place:
        """Line and column, from 1, of a character of the text."""
        line = bisect_right(self._lines, offset)
        return Place(self.file, line, offset - self._lines[line - 1] + 1)

    def problem(self, code: str, offset: int, message: str, remedy: str, *, warning: bool = False) -> None:
        """Report a Problem at a character of the text."""
        self.problem_at(code, self.place(offset), message, remedy, warning=warning)

    def problem_at(self, code: str, place: Place, message: str, remedy: str, *, warning: bool = False) -> None:
        """Report a Problem at a place."""
        self.problems.append(Problem(code, place, message, remedy, "warning" if warning else "error"))


class _UnusedFeatureError(Exception):
    """The text has a YAML feature that flow files do not use; reading stops there."""

    def __init__(self, offset: int, message: str, remedy: str) -> None:
        super().__init__(message)
        self.offset, self.message, self.remedy = offset, message, remedy


class _Composer:
    """Builds nodes from libyaml's events, by recursive descent. Under `x-…` keys everything is allowed, without warnings."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._text = document.text
        self._next: Callable[[], Any] = _event_reader(document.text).get_event
        self._anchors: dict[str, Node] = {}
        self._depth = 0
        self._free = 0

    def compose(self) -> Node | None:
        self._next()  # the stream's start
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        root = self._node(self._next())
        self._next()  # the document's end
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            message = "a second YAML document begins here"
            raise _UnusedFeatureError(after.start_mark.index, message, "write one flow per file: take out the line `---`")
        return root

    def _node(self, event: Any) -> Node:
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _UnusedFeatureError(
                    start,
                    f"the alias *{event.anchor} has no anchor before it",
                    f"define the anchor &{event.anchor} before it, or quote the text",
                )
            return self._anchors[event.anchor]
        if event.tag is not None:
            raise _UnusedFeatureError(
                start, f"the tag {event.tag} is not allowed in a flow file", "take it out; to write a text, quote the value"
            )
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _UnusedFeatureError(start, f"this is nested more than {_DEEPEST} levels deep", "use fewer levels")
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(event.value, event.style or "", start, end)
        elif isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(event)
        else:
            node = self._sequence(event)
        self._depth -= 1
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _value(self, event: Any) -> Node:
        node = self._node(event)
        if isinstance(node, Scalar) and not node.style and not self._free:
            self._check_comment(node)
        return node

    def _check_comment(self, node: Scalar) -> None:
        comment = _COMMENT.match(self._text, node.end)
        if comment and isinstance(resolve_plain(node.value), str):
            message = f"` #` after {shorten(node.value)} starts a comment: the rest of the line is not part of the value"
            remedy = "quote the value, or write the comment on a line of its own"
            self._document.problem("comment-in-value", comment.end() - 1, message, remedy, warning=True)

    def _sequence(self, start: Any) -> Sequence:
        items: list[Node] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(event))
        return Sequence(items, start.start_mark.index, bool(start.flow_style))

    def _mapping(self, start: Any) -> Mapping:
        entries: dict[str, tuple[Scalar, Node]] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event)
            self._free += key.value.startswith("x-")
            value = self._value(self._next())
            self._free -= key.value.startswith("x-")
            if key.value in entries:
                first = self._document.place(entries[key.value][0].start)
                message = f'duplicate key "{key.value}"; first defined in line {first.line}'
                self._document.problem("duplicate-key", key.start, message, "keep one of the two")
            else:
                entries[key.value] = (key, value)
        return Mapping(entries, start.start_mark.index, bool(start.flow_style))

    def _key(self, event: Any) -> Scalar:
        offset = event.start_mark.index
        if not isinstance(event, yaml.ScalarEvent):
            raise _UnusedFeatureError(offset, "a key must be a word, not a list, a mapping or an alias", "if it is text, quote it")
        if event.value == "<<" and not event.style:
            raise _UnusedFeatureError(
                offset, "`<<` is not supported: YAML 1.2 has no merge keys", "write the keys out, or put them under `defaults`"
            )
        key = self._node(event)
        assert isinstance(key, Scalar)
        return key
