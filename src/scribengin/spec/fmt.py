"""Lays a flow file out: indentation of 2, one space where one belongs. Keeps comments, quotes, order and blank lines."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import InputError
from scribengin.spec.document import Document

if TYPE_CHECKING:
    from scribengin.spec.nodes import Node

_WIDE = 1_000_000  # no line is broken anew: a text that is long stays in its line


def format_text(text: str, file: str = "flow.yaml") -> str:
    """The same document, laid out. Formatting what was formatted changes nothing. Raises InputError where the text is no YAML."""
    before = Document(text, file)
    errors = [problem for problem in before.problems if problem.severity == "error"]
    if errors:
        raise InputError(errors)
    if before.root is None:
        return text
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.version = None
    yaml.preserve_quotes = True
    yaml.width = _WIDE
    yaml.indent(mapping=2, sequence=4, offset=2)
    laid_out = text
    for _ in range(3):  # comments settle in their columns after the values did
        stream = io.StringIO()
        yaml.dump(yaml.load(laid_out), stream)
        again = _trimmed(stream.getvalue())
        if again == laid_out:
            break
        laid_out = again
    assert _data(Document(laid_out, file).root) == _data(before.root), "fmt must not change what a file says"
    return laid_out


def _trimmed(text: str) -> str:
    return text.rstrip("\n") + "\n"


def _data(node: Node | None) -> Any:
    """What a node says, without its layout."""
    match node:
        case None:
            return None
        case _ if hasattr(node, "entries"):
            return [(key, _data(value)) for key, (_, value) in node.entries.items()]
        case _ if hasattr(node, "items"):
            return [_data(item) for item in node.items]
        case _:
            return (node.value, node.plain)
