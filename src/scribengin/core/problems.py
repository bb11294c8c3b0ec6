"""A Problem: one thing that is wrong in what a user wrote, with its place, the finding and the remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a text file. Line and column count from 1, columns in characters; the line is 0 if the whole file is meant."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in what a user wrote. `code` is stable and listed in docs/problems.md; `message` says what is wrong and what
    was found."""

    code: str
    place: Place
    message: str
    remedy: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        warning = "warning: " if self.severity == "warning" else ""
        return f"{self.place}: {warning}{self.message}{remedy} [{self.code}]"

    def as_json(self) -> dict[str, object]:
        """The problem as `--json` prints it: severity, code, file, line, column, message, remedy."""
        return {"severity": self.severity, "code": self.code, **asdict(self.place), "message": self.message, "remedy": self.remedy}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The text `did you mean "orders_raw"?`; empty if no known word is similar.

    >>> did_you_mean("orders-raw", ["orders_raw", "users"])
    'did you mean "orders_raw"?'
    """
    near = nearest(word, known)
    return "" if near is None else f'did you mean "{near}"?'


def suggestion(word: str, known: Iterable[str], lead: str) -> str:
    """The text `did you mean …?` if a known word is similar, otherwise `lead` with all known words; empty if there are none.

    >>> suggestion("xyz", ["orders", "users"], "there are")
    'there are orders, users'
    """
    names = list(dict.fromkeys(known))
    return did_you_mean(word, names) or (f"{lead} {', '.join(names)}" if names else "")


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """The most similar of the known words; None if none is similar enough. `alike` is the least similarity, 0 to 1."""
    names = list(known)
    near = [name for name in names if name.lower() == word.lower()] or get_close_matches(word, names, n=1, cutoff=alike)
    return near[0] if near else None
