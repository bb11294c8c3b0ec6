"""Reads nodes by the declarations of `keys` and `core.options`, and reports every Problem."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.core.problems import did_you_mean
from scribengin.core.secret import Secret
from scribengin.spec.foreign_terms import join_word, old_word, translate
from scribengin.spec.variables import fill
from scribengin.spec.yaml_document import Mapping, Node, Scalar, Sequence, kind_of, resolve_plain, shorten
from scribengin.spec.yaml_places import DocumentPlaces

if TYPE_CHECKING:
    from collections.abc import Collection
    from collections.abc import Mapping as Mapping_
    from pathlib import Path

    from scribengin.spec.yaml_document import Document

NAME_PATTERN = r"[a-z][a-z0-9_]{0,62}"
NAME = re.compile(rf"{NAME_PATTERN}\Z")
"""the ids of nodes, and the names of flows, queries and branches"""


class DocumentReader:
    """Reads one document once. Methods that read a value return None if they reported a Problem instead. Their `what` is the name of the
    value in messages, `example` a valid value for the remedy."""

    def __init__(self, document: Document, environment: Mapping_[str, str], folder: Path) -> None:
        self.document = document
        self.environment = environment
        self.folder = folder
        self.places = DocumentPlaces(document)
        self.unresolved: dict[str, None] = {}
        self._texts: dict[int, str | Secret | None] = {}

    def error(self, code: str, at: Node | int, message: str, remedy: str) -> None:
        """Report an error at a node, or at a character of the document."""
        self.document.problem(code, at if isinstance(at, int) else at.start, message, remedy)

    def error_inside(self, code: str, at: Scalar, offset: int, message: str, remedy: str) -> None:
        """Report an error at character `offset` of a scalar's text."""
        place = self.places.inside_node(at, offset)
        self.document.problem_at(code, place, message, remedy)

    @property
    def errors(self) -> int:
        """The number of errors so far."""
        return sum(problem.severity == "error" for problem in self.document.problems)

    def mapping(self, node: Node, what: str, example: str) -> Mapping | None:
        """The node as a mapping."""
        if isinstance(node, Mapping):
            return node
        self.error("wrong-kind", node, f"{what} is {kind_of(node)}, not a mapping", f"write {example}")
        return None

    def items(self, node: Node, what: str, example: str) -> list[Node] | None:
        """The items of a list, or a single scalar as a list of one."""
        if isinstance(node, Sequence):
            return node.items
        if isinstance(node, Scalar) and not self._is_nothing(node):
            return [node]
        self.error("wrong-kind", node, f"{what} is {kind_of(node)}, not a list", f"write {example}")
        return None

    def scalar(self, node: Node, what: str, example: str) -> Scalar | None:
        """The node as a scalar that is not empty."""
        if isinstance(node, Scalar) and not self._is_nothing(node):
            return node
        if isinstance(node, Scalar):
            self.error("wrong-kind", node, f"{what} has no value", f"give one, such as {example}, or take the key out")
        else:
            self.error("wrong-kind", node, f"{what} is {kind_of(node)}, not a single value", f"write {example}")
        return None

    def text(self, node: Node, what: str, example: str) -> str | None:
        """The text of a scalar, with `${…}` filled in; numbers and booleans as written. A secret is an error."""
        scalar = self.scalar(node, what, example)
        if scalar is None:
            return None
        value = self._filled(scalar)
        if isinstance(value, Secret):
            remedy = "write ${env:NAME} for a value that is not secret; only options that are declared as secret take ${secret:…}"
            self.error("secret-misplaced", scalar, f"{what} is not a secret option; a secret there would be printed", remedy)
            return None
        if value is not None and not value.strip():
            self.error("wrong-kind", scalar, f"{what} is empty", f"give a value, such as {example}, or take the key out")
            return None
        return value

    def raw_text(self, node: Node, what: str, example: str) -> str | None:
        """Read a text like `text`, but also accept an empty or blank text in quotes."""
        if isinstance(node, Scalar) and node.style and not node.value.strip():
            return node.value
        return self.text(node, what, example)

    def secret(self, node: Node, what: str, example: str) -> str | Secret | None:
        """The text of a scalar, or a Secret if it contains `${secret:…}`."""
        scalar = self.scalar(node, what, example)
        return None if scalar is None else self._filled(scalar)

    def typed(self, node: Node, what: str, example: str) -> str | int | float | bool | None:
        """The value of a scalar by YAML's core schema; a text in quotes is typed only if `${…}` was filled in."""
        value = self.text(node, what, example)
        if value is None or not isinstance(node, Scalar):
            return None
        return resolve_plain(value) if node.plain or id(node) in self.places.filled else value

    def name(self, node: Node, what: str, example: str) -> str | None:
        """A name that is valid as an id."""
        text = self.text(node, what, example)
        return text if text is not None and self.check_name(text, node, what) else None

    def check_name(self, text: str, at: Node, what: str) -> bool:
        """True if `text` is a valid id; otherwise report a Problem with a valid name."""
        if NAME.match(text):
            return True
        better = re.sub(r"\W+|_+", "_", text.lower(), flags=re.ASCII).strip("_").lstrip("0123456789_")[:63]
        better = f'write "{better}": ' if NAME.match(better) else ""
        rule = "start with a lower-case letter, then use lower-case letters, digits and _; at most 63 characters"
        self.error("bad-name", at, f"{what} cannot be {shorten(text)}", f"{better}{rule}")
        return False

    def choice(self, node: Node, what: str, choices: Collection[str], example: str) -> str | None:
        """The text of a scalar that must be one of `choices`."""
        text = self.text(node, what, example or next(iter(choices)))
        if text is None or text in choices:
            return text
        remedy = join_word(text, choices) or suggest(text, choices) or translate(text) or f"write one of {', '.join(choices)}"
        self.error("bad-choice", node, f"{what} cannot be {shorten(text)}", remedy)
        return None

    def _is_nothing(self, scalar: Scalar) -> bool:
        return scalar.plain and resolve_plain(scalar.value) is None

    def _filled(self, scalar: Scalar) -> str | Secret | None:
        """The scalar's text with its references filled in. Errors are reported once, and the result is None."""
        if "$" not in scalar.value:
            return scalar.value
        if id(scalar) not in self._texts:
            self._texts[id(scalar)] = self._fill(scalar)
        return self._texts[id(scalar)]

    def _fill(self, scalar: Scalar) -> str | Secret | None:
        filled = fill(scalar.value, self.environment, self.folder)
        for fault in filled.faults:
            self.error_inside(fault.code, scalar, fault.offset, fault.message, fault.remedy)
            if fault.reference:
                self.unresolved[fault.reference] = None
        if filled.spans:
            self.places.filled[id(scalar)] = replace(filled, text="")  # the places need no text, and must not keep a secret
        if filled.faults:
            return None
        return Secret(filled.text, scalar.value) if filled.secret else filled.text


def fold(word: str) -> str:
    """A word in the spelling of keys: lower case with underscores."""
    return word.lower().replace("-", "_").replace(" ", "_")


def exact(word: str, known: Collection[str]) -> str:
    """`did you mean …?` if `word` is a word of `known` in another spelling, or its name in another system; else an empty text."""
    folded = fold(word)
    return f'did you mean "{folded}"?' if folded in known else old_word(word, known)


def suggest(word: str, known: Collection[str]) -> str:
    """`did you mean …?` with the word of `exact`, or else with the most similar word of `known`; empty if there is none."""
    return exact(word, known) or did_you_mean(word, known)
