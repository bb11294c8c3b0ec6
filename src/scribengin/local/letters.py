"""Dead letters of a flow: counted, and page by page. Works while the flow runs and while it does not."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import Refused
from scribengin.state.dead import letters_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scribengin.state.contract import DeadLetter
    from scribengin.state.folder import QueryFolder

_LOOK_S = 20.0
"""how long is looked for the letters of one page"""


@dataclass(frozen=True, slots=True)
class Which:
    """Those that are meant: of a Query, of a step, of a reason, or whose id begins so. Empty: of any."""

    query: str = ""
    step: str = ""
    reason: str = ""
    prefix: str = ""

    def fits(self, letter: DeadLetter) -> bool:
        """Whether this one is meant; of which Query it is was asked before."""
        return letter.id.startswith(self.prefix) and self.step in ("", letter.step) and self.reason in ("", letter.reason)


@dataclass(frozen=True, slots=True)
class Page:
    """Letters, the oldest Batch of a Query first. `after` goes on behind them; empty where there are no more."""

    letters: tuple[DeadLetter, ...]
    after: str


def count_letters(queries: Sequence[QueryFolder], folder: Path) -> list[dict[str, Any]]:
    """A row for each Query, step and reason, as `dead list --json` prints them; `folder` is where the flow's paths start."""
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for query in queries:
        for _, _, letter in letters_from(query):
            key = (letter.query, letter.step, letter.reason)
            if key not in groups:
                named = dict(zip(("query", "step", "reason"), key, strict=True))
                groups[key] = {**named, "count": 0, "example": letter.message, "place": place_of(letter, folder)}
            groups[key]["count"] += 1
    return sorted(groups.values(), key=lambda row: (row["query"], -row["count"]))


def read_page(
    queries: Sequence[QueryFolder], which: Which, *, after: str = "", limit: int = 100, now: Callable[[], float] = time.monotonic
) -> Page:
    """The next letters behind `after`, which an earlier page gave. It may hold fewer than `limit`, and even none, where it has taken long
    to find them and there may be more: `after` says so.

    Raises Refused where `after` is none that a page gave, or there is no such Query any more.
    """
    begin_query, begin_batch, begin_place = _begin(queries, after)
    until_s = now() + _LOOK_S
    found: list[DeadLetter] = []
    for number, query in enumerate(queries[begin_query:], begin_query):
        first = number == begin_query
        for batch, place, letter in letters_from(query, begin_batch if first else 0, begin_place if first else 0):
            if which.fits(letter):
                found.append(letter)
            if len(found) == limit or now() > until_s:
                return Page(tuple(found), f"{query.name}:{batch}:{place + 1}")
    return Page(tuple(found), "")


def _begin(queries: Sequence[QueryFolder], after: str) -> tuple[int, int, int]:
    """(index of the Query, Batch, how many of its letters were told)."""
    if not after:
        return 0, 0, 0
    name, *numbers = after.split(":")
    names = [query.name for query in queries]
    if name not in names or len(numbers) != 2 or not all(each.isascii() and each.isdecimal() and len(each) < 16 for each in numbers):
        raise Refused(
            f'no page of letters ended at "{after[:200]}"', remedy="begin at the first page: without `after`", code="page-unknown"
        )
    return names.index(name), int(numbers[0]), int(numbers[1])


def place_of(letter: DeadLetter, folder: Path) -> str:
    """`data/a.jsonl line 7`, as exact as it is known; a file below the flow's folder is named from there."""
    parts = [letter.file.removeprefix(f"{folder.absolute()}/") or letter.source]
    parts += [f"{what} {number}" for what, number in (("line", letter.line), ("row", letter.row)) if number is not None]
    if len(parts) == 1 and letter.offset is not None:
        parts.append(f"byte {letter.offset}")
    return " ".join(filter(None, parts))
