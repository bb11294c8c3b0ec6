"""YAML text to located nodes, with every fault of the text as a Problem. libyaml reads the text; YAML 1.2 says what it means."""

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
"""gives the events of a text; libyaml's where PyYAML was built with it, which is ten times as fast"""
if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    _event_reader = CParser
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COMMENT = re.compile(r"[ \t]+#(?=[^\s#])")
"""a `#` with a character right behind it, as in `#hashtag`; an honest comment begins with a space"""
_DEEPEST = 100


class Document:
    """One YAML text. `root` is None where the text has no readable content; `problems` then say why."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text.removeprefix("\ufeff")
        self.file = file
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._lines = [0, *(found.end() for found in _LINE_BREAK.finditer(self.text))]
        forbidden = _FORBIDDEN.search(self.text)
        if forbidden:
            code = f"U+{ord(forbidden.group()):04X}"
            self.problem("yaml-character", forbidden.start(), f"the character {code} may not stand in a YAML file", "take it out")
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
    """A feature of YAML that flow files do not use; reading ends there."""

    def __init__(self, offset: int, message: str, remedy: str) -> None:
        super().__init__(message)
        self.offset, self.message, self.remedy = offset, message, remedy


class _Composer:
    """Events to nodes, by descent. Under `x-…` keys anything goes: no warnings there."""

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
            raise _UnusedFeatureError(after.start_mark.index, message, "keep one flow a file: take out the line `---`")
        return root

    def _node(self, event: Any) -> Node:
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _UnusedFeatureError(
                    start, f"*{event.anchor} refers to nothing before it", f"mark what is meant with &{event.anchor}, or quote the text"
                )
            return self._anchors[event.anchor]
        if event.tag is not None:
            raise _UnusedFeatureError(
                start, f"the tag {event.tag} has no meaning in a flow file", "take it out; quote a value to make it a text"
            )
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _UnusedFeatureError(start, f"this is nested more than {_DEEPEST} levels deep", "write it flatter")
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
            message = f"` #` after {shorten(node.value)} starts a comment: what follows is not part of the value"
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
                message = f'the key "{key.value}" is duplicated; first in line {first.line}'
                self._document.problem("duplicate-key", key.start, message, "keep one of the two")
            else:
                entries[key.value] = (key, value)
        return Mapping(entries, start.start_mark.index, bool(start.flow_style))

    def _key(self, event: Any) -> Scalar:
        offset = event.start_mark.index
        if not isinstance(event, yaml.ScalarEvent):
            raise _UnusedFeatureError(offset, "a key is a word here, not a list, a mapping or an alias", "quote it if it is meant as text")
        if event.value == "<<" and not event.style:
            raise _UnusedFeatureError(
                offset, "`<<` merges nothing: YAML 1.2 has no merge keys", "write the keys out, or put them under `defaults`"
            )
        key = self._node(event)
        assert isinstance(key, Scalar)
        return key
