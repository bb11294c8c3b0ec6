"""Reads YAML text into located nodes, with every fault as a Problem. libyaml parses; scalars are typed by YAML 1.2."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import yaml

from scribengin.core.problems import Place, Problem
from scribengin.spec.nodes import Mapping, Node, Scalar, Sequence, resolve_plain, shorten
from scribengin.spec.yaml_faults import explain

if TYPE_CHECKING:
    from collections.abc import Callable

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
        """Note a Problem at a character of the text."""
        self.problem_at(code, self.place(offset), message, remedy, warning=warning)

    def problem_at(self, code: str, place: Place, message: str, remedy: str, *, warning: bool = False) -> None:
        """Note a Problem at a place."""
        self.problems.append(Problem(code, place, message, remedy, "warning" if warning else "error"))


class _UnusedFeatureError(Exception):
    """Note a YAML feature that flow files do not use; reading stops there."""

    def __init__(self, offset: int, message: str, remedy: str) -> None:
        super().__init__(message)
        self.offset, self.message, self.remedy = offset, message, remedy


class _Composer:
    """Events to nodes, by descent. Under `x-…` keys everything is allowed, without warnings."""

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
