"""Dead letters of a flow: counts, and pages. Works whether the flow runs or not."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import Refused
from scribengin.plan.graph import base
from scribengin.state.dead_letters import dated_letters, repaired_keys
from scribengin.state.decisions import moment
from scribengin.state.lineage import read_lineage
from scribengin.state.replays import Replays, waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from scribengin.state.contract import DeadLetter
    from scribengin.state.decisions import BatchDeadLetters
    from scribengin.state.folder import QueryFolder
    from scribengin.state.replays import Key


KEY = re.compile(r"[a-z][a-z0-9_]*:\d+:\d+")
"""the form of a dead letter's key; see `key_text`"""
_FIGURES = ("count", "asked", "replayed", "repaired")
_LOOK_S = 20.0
"""seconds after which the search for the dead letters of one page ends"""


@dataclass(frozen=True, slots=True)
class Which:
    """A selection of dead letters. A field that is empty selects all.

    `step` is a step, or one utility as `step.name`. `prefix` is the beginning of a dead letter's id, a whole record id, or a key
    (`key_text`). `since` (inclusive) and `until` (exclusive) are limits, in ISO 8601, of when its Batch was decided.
    """

    query: str = ""
    step: str = ""
    reason: str = ""
    prefix: str = ""
    since: str = ""
    until: str = ""

    def fits(self, letter: DeadLetter) -> bool:
        """True if this dead letter is selected; its query, Batch and key are checked separately."""
        named = letter.id.startswith(self.prefix) or letter.record == self.prefix or KEY.fullmatch(self.prefix) is not None
        return named and self.step in ("", letter.step, base(letter.step)) and self.reason in ("", letter.reason)

    def fits_key(self, query: str, key: Key) -> bool:
        """False if the selection names the key of another dead letter."""
        return KEY.fullmatch(self.prefix) is None or self.prefix == key_text(query, key)

    def fits_batch(self, letters: BatchDeadLetters) -> bool:
        """True if dead letters of that Batch may be selected."""
        if not self.since and not self.until:
            return True
        at = moment(letters.decided_at)
        return not (self.since and at < moment(self.since)) and not (self.until and at >= moment(self.until))


def key_text(query: str, key: Key) -> str:
    """The key of a dead letter, such as `kept:12:3`: dead letter 3 of Batch 12 of that query, in its present lineage."""
    return f"{query}:{key[0]}:{key[1]}"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of dead letters, the oldest Batch of a query first. `after` requests the next page; empty if there is none."""

    letters: tuple[DeadLetter, ...]
    after: str
    told: tuple[Mapping[str, str], ...] = ()
    """for each dead letter its `key`, the `lineage` in which the key is valid, and its `state` (see LetterStates)"""


def sum_over_queries(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The groups of `count_letters`, with those of several queries added up: a step that several queries share rejects a record in each of
    them."""
    found: dict[tuple[str, str, bool], dict[str, Any]] = {}
    for group in groups:
        row = found.setdefault((group["step"], group["reason"], group["gone"]), {**group, "queries": [], **dict.fromkeys(_FIGURES, 0)})
        row["queries"].append(group["query"])
        for figure in _FIGURES:
            row[figure] += group[figure]
        row["last"] = max(row["last"], group["last"])
    return sorted(found.values(), key=lambda row: -row["count"])


def count_letters(
    queries: Sequence[QueryFolder], folder: Path, which: Which | None = None, made: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Count dead letters by query, step and reason, as `dead-letter list --json` prints them.

    Args:
        queries: The folders of the queries.
        folder: The folder of the flow, to which places are relative.
        which: The selection; None for all.
        made: The names of the queries that the flow has now; groups of other queries are `gone`. None if that is not known.

    Returns:
        One row for each group. Of its `count`, `replayed` were replayed in a committed Batch, `asked` wait for that, and `repaired` were
        repaired and no replay is requested yet.
    """
    which = which or Which()
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for query in queries:
        states = LetterStates(query)
        for batch, place, letter in dated_letters(query, wanted=which.fits_batch):
            if not which.fits(letter) or not which.fits_key(query.name, (batch.batch, place)):
                continue
            key = (letter.query, letter.step, letter.reason)
            if key not in groups:
                named = dict(zip(("query", "step", "reason"), key, strict=True))
                groups[key] = {
                    **named,
                    **dict.fromkeys(_FIGURES, 0),
                    "key": key_text(query.name, (batch.batch, place)),
                    "example": letter.message,
                    "place": place_of(letter, folder),
                }
                groups[key]["first"] = batch.decided_at
                groups[key]["gone"] = made is not None and query.name not in made
            groups[key]["count"] += 1
            groups[key]["last"] = batch.decided_at
            state = states.of((batch.batch, place))
            if state:
                groups[key][state.partition(",")[0]] += 1
    return sorted(groups.values(), key=lambda row: (row["query"], -row["count"]))


class LetterStates:
    """The states of the dead letters of a query: requested, replayed, repaired."""

    def __init__(self, query: QueryFolder) -> None:
        lineage = read_lineage(query)
        self.lineage = "" if lineage is None else lineage.id
        self._asked = {} if lineage is None else Replays(query.replays).asked(lineage.id)
        self._waiting = {request.number for request in waiting(query)} if self._asked else set()
        self._repaired = repaired_keys(query)

    def is_replayed(self, key: Key) -> bool:
        """True if its replay is known to be committed in a Batch; a request alone is not enough."""
        request = self._asked.get(key)
        return request is not None and request.number not in self._waiting

    def asked(self, key: Key) -> bool:
        """True if its replay was requested, committed or not."""
        return key in self._asked

    def of(self, key: Key) -> str:
        """The state of a dead letter: `asked` if its replay waits for a run, `replayed` if that is committed, each with `, repaired` if it
        was repaired; `repaired` alone if no replay is requested yet; empty if nothing was done."""
        request = self._asked.get(key)
        if request is not None:
            said = "replayed" if self.is_replayed(key) else "asked"
            return f"{said}, repaired" if key in request.repaired else said
        return "repaired" if key in self._repaired else ""


def read_page(
    queries: Sequence[QueryFolder], which: Which, *, after: str = "", limit: int = 100, now: Callable[[], float] = time.monotonic
) -> Page:
    """Read the next page of dead letters.

    It may have fewer than `limit`, or even none, if the search has taken long and there may be more: then `after` of the page is not empty.

    Args:
        queries: The folders of the queries.
        which: The selection.
        after: `Page.after` of the previous page; empty for the first page.
        limit: The most dead letters on the page.
        now: A monotonic clock, in seconds.

    Raises:
        Refused: No page ended at `after`, or the query no longer exists.
    """
    begin_query, begin_batch, begin_place = _begin(queries, after)
    until_s = now() + _LOOK_S
    found: list[DeadLetter] = []
    told: list[Mapping[str, str]] = []
    for number, query in enumerate(queries[begin_query:], begin_query):
        first = number == begin_query
        states = LetterStates(query)
        begin = begin_place if first else 0
        for letters, place, letter in dated_letters(query, begin_batch if first else 0, which.fits_batch):
            batch = letters.batch
            if first and batch == begin_batch and place < begin:
                continue
            if which.fits(letter) and which.fits_key(query.name, (batch, place)):
                found.append(letter)
                key = (batch, place)
                told.append({"key": key_text(query.name, key), "lineage": states.lineage, "state": states.of(key)})
            if len(found) == limit or now() > until_s:
                return Page(tuple(found), f"{query.name}:{batch}:{place + 1}", tuple(told))
    return Page(tuple(found), "", tuple(told))


def _begin(queries: Sequence[QueryFolder], after: str) -> tuple[int, int, int]:
    """The first dead letter of the page: (index of the query, Batch, place in it)."""
    if not after:
        return 0, 0, 0
    name, *numbers = after.split(":")
    names = [query.name for query in queries]
    if name not in names or len(numbers) != 2 or not all(each.isascii() and each.isdecimal() and len(each) < 16 for each in numbers):
        raise Refused(f'no page of dead letters ends at "{after[:200]}"', remedy="omit `after` to get the first page", code="page-unknown")
    return names.index(name), int(numbers[0]), int(numbers[1])


def place_of(letter: DeadLetter, folder: Path) -> str:
    """The place of a dead letter's record, such as `data/a.jsonl line 7`, as precise as it is known. A file below `folder` is named
    relative to it."""
    parts = [letter.file.removeprefix(f"{folder.absolute()}/") or letter.source]
    parts += [f"{what} {number}" for what, number in (("line", letter.line), ("row", letter.row)) if number is not None]
    if len(parts) == 1 and letter.offset is not None:
        parts.append(f"byte {letter.offset}")
    return " ".join(filter(None, parts))
