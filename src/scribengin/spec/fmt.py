"""Formats a flow file: indentation of 2, single spaces. Keeps comments, quotes, order and blank lines."""

from __future__ import annotations

import io
import re
import shlex
from typing import Any

from scribengin.core.errors import InputError
from scribengin.core.problems import Problem
from scribengin.spec.yaml_document import Document, Mapping, Node, Scalar

_WIDE = 1_000_000  # no line is broken again: long texts stay on one line
_TYPED = ("null", "bool", "int", "float", "timestamp")
_COMMENT = re.compile(r"^( *)#.*$", re.MULTILINE)
_LINE = re.compile(r"^( *)[^\s#].*$", re.MULTILINE)


def format_text(text: str, file: str = "flow.yaml") -> str:
    """The document, formatted. Formatting a formatted text changes nothing. Raises InputError if the text is not valid YAML."""
    before = Document(text, file)
    errors = [problem for problem in before.problems if problem.severity == "error"]
    if errors:
        raise InputError(errors)
    if before.root is None:
        return text
    from ruamel.yaml.error import YAMLError

    laid_out = text
    for _ in range(4):  # comments after values get their final columns only after the values did
        try:
            again = _comments_with_their_lines(laid_out, _round_trip(laid_out))
        except YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            raise _refusal(before, mark.index if mark else 0, "some YAML parsers reject this") from error
        if again == laid_out:
            break
        laid_out = again
    else:
        raise _refusal(before, 0, "its comments cannot be placed reliably")
    if _data(Document(laid_out, file).root) != _data(before.root):
        raise _refusal(before, 0, "formatting would change its meaning")
    return laid_out


def _refusal(document: Document, offset: int, why: str) -> InputError:
    place = document.place(min(offset, len(document.text)))
    remedy = f"first fix the problems that `scribengin validate {shlex.quote(document.file)}` reports, or format it by hand"
    return InputError([Problem("fmt-refused", place, f"the file is not formatted: {why}", remedy)])


def _round_trip(text: str) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import RoundTripConstructor
    from ruamel.yaml.representer import RoundTripRepresenter
    from ruamel.yaml.scalarstring import ScalarString

    class Written(ScalarString):
        """A number, boolean or null with its spelling: `0o7` and `1e3` stay as they are written."""

        tag = ""

    class Constructor(RoundTripConstructor):
        def written(self, node: Any) -> Written:
            scalar: Written = Written(node.value, anchor=node.anchor)
            scalar.tag = node.tag
            return scalar

    class Representer(RoundTripRepresenter):
        def written(self, scalar: Written) -> Any:
            return self.represent_scalar(scalar.tag, str(scalar), anchor=scalar.yaml_anchor())

    for name in _TYPED:
        Constructor.add_constructor(f"tag:yaml.org,2002:{name}", Constructor.written)
    Representer.add_representer(Written, Representer.written)
    yaml = YAML()
    yaml.composer.warn_double_anchors = False  # YAML allows it: the later one counts from there on
    yaml.Constructor = Constructor
    yaml.Representer = Representer
    yaml.preserve_quotes = True
    yaml.width = _WIDE
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(yaml.load(text), stream)
    lines = stream.getvalue().rstrip("\n")
    return lines + "\n"


def _comments_with_their_lines(before: str, after: str) -> str:
    """Indent each comment line like the line that had the same indentation before formatting: the next line, else the previous one."""
    own_before, own_after = _own_comments(before), _own_comments(after)
    if len(own_before) != len(own_after):  # a comment was moved to the end of a value's line, so they cannot be matched
        return after
    parts: list[str] = []
    at = 0
    for old, new in zip(own_before, own_after, strict=True):
        follows = _indent_before(before, old) == len(old.group(1)) != _indent_after(before, old)
        indent = _indent_before(after, new) if follows else _indent_after(after, new)
        parts += (after[at : new.start()], " " * (len(new.group(1)) if indent is None else indent), new.group()[len(new.group(1)) :])
        at = new.end()
    return "".join([*parts, after[at:]])


def _own_comments(text: str) -> list[re.Match[str]]:
    blocks = [(scalar.start, scalar.end) for scalar in _scalars(Document(text, "").root) if "\n" in text[scalar.start : scalar.end]]
    return [found for found in _COMMENT.finditer(text) if not any(start < found.start() < end for start, end in blocks)]


def _indent_before(text: str, comment: re.Match[str]) -> int | None:
    lines = _LINE.findall(text, 0, comment.start())
    return len(lines[-1]) if lines else None


def _indent_after(text: str, comment: re.Match[str]) -> int | None:
    line = _LINE.search(text, comment.end())
    return len(line.group(1)) if line else None


def _scalars(node: Node | None) -> list[Scalar]:
    if node is None:
        return []
    if isinstance(node, Scalar):
        return [node]
    inner = [value for _, value in node.entries.values()] if isinstance(node, Mapping) else node.items
    return [scalar for child in inner for scalar in _scalars(child)]


def _data(node: Node | None) -> Any:
    """The content of a node, without its layout."""
    if node is None or isinstance(node, Scalar):
        return node and (node.value, node.plain)
    if isinstance(node, Mapping):
        return [(key, _data(value)) for key, (_, value) in node.entries.items()]
    return [_data(item) for item in node.items]
