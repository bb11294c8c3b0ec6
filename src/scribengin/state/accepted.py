"""Columns that an operator has accepted although a sink's folder held others: kept beside the flow's state, the newest of each sink.

An acceptance holds only for these columns in that folder: other columns, and files in another folder, are refused again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, read_or_none, replace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FOLDER = "_accepted"
_KIND, _FORMAT = "accepted-columns", 1
_WORD = "accepted-word"


@dataclass(frozen=True, slots=True)
class Word:
    """An operator's acceptance of the present columns, given once for all sinks of a flow. `at`: ISO 8601; it tells one word from
    another."""

    at: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    """`columns`: all columns that the sink writes from then on, as a schema. `instead`: the differences, one sentence each."""

    sink: str
    columns: str
    instead: tuple[str, ...]
    at: str
    by: str
    path: str
    """the sink's, as the flow says it: another folder has other files"""


def accept(root: Path, flow: str, accepted: Accepted) -> None:
    """Store it durably. It replaces the earlier acceptance of that sink."""
    replace(_sink(root, flow, accepted.sink), seal(_KIND, _FORMAT, asdict(accepted)))


def read_accepted(root: Path, flow: str, sinks: Iterable[str]) -> dict[str, Accepted]:
    """The acceptances of those of the sinks that have one. Raises StateError for a record that is damaged."""
    found = {}
    for sink in sinks:
        path = _sink(root, flow, sink)
        data = read_or_none(path)
        if data is not None:
            body = unseal(data, _KIND, _FORMAT, path)
            found[sink] = Accepted(body["sink"], body["columns"], tuple(body["instead"]), body["at"], body["by"], body["path"])
    return found


def use_word(root: Path, flow: str, tier: str, word: Word) -> None:
    """Record that the tier has started with it: it does not apply to later starts."""
    replace(_words(root, flow) / f"{tier}.json", seal(_WORD, _FORMAT, asdict(word)))


def is_used(root: Path, flow: str, tier: str, word: Word) -> bool:
    """Whether the tier has already started with it."""
    path = _words(root, flow) / f"{tier}.json"
    return path.name in names_in(path.parent) and unseal(path.read_bytes(), _WORD, _FORMAT, path) == asdict(word)


def _sink(root: Path, flow: str, sink: str) -> Path:
    return root / FOLDER / flow / "sinks" / f"{sink}.json"


def _words(root: Path, flow: str) -> Path:
    return root / FOLDER / flow / "words"
