"""What a sink remembers of its own writes, in its folder of the state: the place itself tells nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.numbered_log import NumberedLog
from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, read_or_none, remove_tree, replace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FORMAT = 1


class BatchMark(msgspec.Struct, frozen=True):
    """A Batch that the place has taken. `tries`: how often its rows were begun to be handed over."""

    hash: str
    term: int
    rows: int
    tries: int = 1


class Marks:
    """The marks of one lineage.

    <work>/claim.json                       whose rows the place holds
    <work>/<lineage>/staged/<batch>/…       rows of Batches that are not handed over yet
    <work>/<lineage>/written/<batch>.json   a Mark; a numbered log
    <work>/<lineage>/begun.json             the Batch that is being handed over, and how often that was begun
    """

    def __init__(self, work: Path, lineage: str) -> None:
        self._path = work / lineage
        self.log = NumberedLog(self._path / "written", "written")

    def read(self, number: int) -> BatchMark | None:
        """Of that Batch, or None."""
        body = self.log.read(number)
        return None if body is None else msgspec.convert(body, BatchMark)

    def newest(self) -> tuple[int, BatchMark] | None:
        """The last one."""
        number = self.log.newest()
        mark = None if number is None else self.read(number)
        return None if number is None or mark is None else (number, mark)

    def put(self, number: int, mark: BatchMark) -> BatchMark:
        """Write it durably, if none stands there; returns the one that does."""
        stored: BatchMark = msgspec.convert(self.log.put(number, msgspec.to_builtins(mark)), BatchMark)
        if self.log.wants_folding(number, gaps=True):
            self.log.fold(_summarize)
        return stored

    def begin(self, number: int) -> int:
        """Note durably that the Batch is going to be handed over; returns how often that was noted, now too."""
        file = self._path / "begun.json"
        data = read_or_none(file)
        body = {"number": -1, "tries": 0} if data is None else unseal(data, "begun", _FORMAT, file)
        tries: int = body["tries"] + 1 if body["number"] == number else 1
        replace(file, seal("begun", _FORMAT, {"number": number, "tries": tries}))
        return tries

    def folder(self, number: int) -> Path:
        """Where tasks stage the rows of a Batch."""
        return self._path / "staged" / f"{number:010d}"

    def drop_staged(self, before: int) -> None:
        """Delete what was staged for Batches with smaller numbers."""
        for name in names_in(self._path / "staged"):
            if name.isdigit() and int(name) < before:
                remove_tree(self._path / "staged" / name)


def read_claim(work: Path) -> dict[str, Any] | None:
    """`owner` and `lineage` of the rows that the place was given last; None where it was given none."""
    file = work / "claim.json"
    data = read_or_none(file)
    claim: dict[str, Any] | None = None if data is None else unseal(data, "claim", _FORMAT, file)
    return claim


def write_claim(work: Path, owner: str, lineage: str) -> None:
    """Durably."""
    replace(work / "claim.json", seal("claim", _FORMAT, {"owner": owner, "lineage": lineage}))


def _summarize(summary: Any | None, records: Iterable[Any]) -> dict[str, int]:
    so_far: dict[str, int] = summary or {"batches": 0, "rows": 0}
    for record in records:
        so_far = {"batches": so_far["batches"] + 1, "rows": so_far["rows"] + record["rows"]}
    return so_far
