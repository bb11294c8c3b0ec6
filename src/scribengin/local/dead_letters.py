"""Dead letters of a flow: counted, and page by page. Works whether the flow runs or not."""

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
"""of a dead letter: `key_text`"""
_FIGURES = ("count", "asked", "replayed", "repaired")
_LOOK_S = 20.0
"""how long is looked for the dead letters of one page"""


@dataclass(frozen=True, slots=True)
class Which:
    """A selection of dead letters: of a Query, of a step (or one utility, `step.name`), of a reason, or whose id begins so, or whose record
    is called so, or whose key that is (`key_text`). Empty: of any. `since` and `until`: of Batches decided then, ISO 8601, the second not
    included."""

    query: str = ""
    step: str = ""
    reason: str = ""
    prefix: str = ""
    since: str = ""
    until: str = ""

    def fits(self, letter: DeadLetter) -> bool:
        """Whether this dead letter is selected; its Query, Batch and key are checked separately."""
        named = letter.id.startswith(self.prefix) or letter.record == self.prefix or KEY.fullmatch(self.prefix) is not None
        return named and self.step in ("", letter.step, base(letter.step)) and self.reason in ("", letter.reason)

    def fits_key(self, query: str, key: Key) -> bool:
        """False if the selection names the key of another dead letter."""
        return KEY.fullmatch(self.prefix) is None or self.prefix == key_text(query, key)

    def fits_batch(self, letters: BatchDeadLetters) -> bool:
        """Whether dead letters of that Batch may be selected."""
        if not self.since and not self.until:
            return True
        at = moment(letters.decided_at)
        return not (self.since and at < moment(self.since)) and not (self.until and at >= moment(self.until))


def key_text(query: str, key: Key) -> str:
    """`kept:12:3`: dead letter 3 of Batch 12 of that Query, in its present lineage."""
    return f"{query}:{key[0]}:{key[1]}"


@dataclass(frozen=True, slots=True)
class Page:
    """Dead letters, the oldest Batch of a Query first. `after` continues after them; empty if there are no more."""

    letters: tuple[DeadLetter, ...]
    after: str
    told: tuple[Mapping[str, str], ...] = ()
    """of each its `key`, the `lineage` in which that holds, its `state` (see LetterStates)"""


def by_letter(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Groups of `count_letters` with those of several Queries together: a step that several share refuses a record in each of them."""
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
    """A row for each Query, step and reason, as `dead-letter list --json` prints them; `folder` is where the flow's paths start. `replayed`
    of them have come through again, `asked` wait for that, `repaired` have been changed by a person and wait to be asked for. `made`: the
    Queries that sinks of the flow make now, all where it is not said; others are `gone`."""
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
    """The states of the dead letters of a Query: requested, replayed, repaired."""

    def __init__(self, query: QueryFolder) -> None:
        lineage = read_lineage(query)
        self.lineage = "" if lineage is None else lineage.id
        self._asked = {} if lineage is None else Replays(query.replays).asked(lineage.id)
        self._waiting = {request.number for request in waiting(query)} if self._asked else set()
        self._repaired = repaired_keys(query)

    def came_through(self, key: Key) -> bool:
        """Whether a Batch is known to have come through with its replay; asking alone does not do it."""
        request = self._asked.get(key)
        return request is not None and request.number not in self._waiting

    def asked(self, key: Key) -> bool:
        """Whether its replay was requested, done or not."""
        return key in self._asked

    def of(self, key: Key) -> str:
        """`asked` where its replay waits for a run, `replayed` where it has come through, each with `, repaired` where it was; `repaired`
        alone where that waits to be asked for; empty if nothing has been done."""
        request = self._asked.get(key)
        if request is not None:
            said = "replayed" if self.came_through(key) else "asked"
            return f"{said}, repaired" if key in request.repaired else said
        return "repaired" if key in self._repaired else ""


def read_page(
    queries: Sequence[QueryFolder], which: Which, *, after: str = "", limit: int = 100, now: Callable[[], float] = time.monotonic
) -> Page:
    """The next dead letters behind `after`, which an earlier page gave. It may hold fewer than `limit`, and even none, where it has taken
    long to find them and there may be more: `after` says so.

    Raises Refused if no page ended at `after`, or there is no such Query any more.
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
    """(index of the Query, Batch, how many of its dead letters were reported)."""
    if not after:
        return 0, 0, 0
    name, *numbers = after.split(":")
    names = [query.name for query in queries]
    if name not in names or len(numbers) != 2 or not all(each.isascii() and each.isdecimal() and len(each) < 16 for each in numbers):
        raise Refused(f'no page of dead letters ends at "{after[:200]}"', remedy="omit `after` to get the first page", code="page-unknown")
    return names.index(name), int(numbers[0]), int(numbers[1])


def place_of(letter: DeadLetter, folder: Path) -> str:
    """`data/a.jsonl line 7`, as exact as it is known; a file below the flow's folder is named from there."""
    parts = [letter.file.removeprefix(f"{folder.absolute()}/") or letter.source]
    parts += [f"{what} {number}" for what, number in (("line", letter.line), ("row", letter.row)) if number is not None]
    if len(parts) == 1 and letter.offset is not None:
        parts.append(f"byte {letter.offset}")
    return " ".join(filter(None, parts))
