"""A sink's record of its own writes, in its folder of the state, because the place itself cannot report them."""

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
    """The record of a Batch that the place has accepted. `tries` is the number of times that writing its rows was started."""

    hash: str
    term: int
    rows: int
    tries: int = 1


class Marks:
    """The marks of one lineage.

    <work>/claim.json                       the owner of the rows at the place
    <work>/<lineage>/staged/<batch>/…       rows of Batches that are not written yet
    <work>/<lineage>/written/<batch>.json   a BatchMark; a numbered log
    <work>/<lineage>/begun.json             the Batch that is being written, and how often that was started
    """

    def __init__(self, work: Path, lineage: str) -> None:
        self._path = work / lineage
        self.log = NumberedLog(self._path / "written", "written")

    def read(self, number: int) -> BatchMark | None:
        """The mark of a Batch; None if it is not marked."""
        body = self.log.read(number)
        return None if body is None else msgspec.convert(body, BatchMark)

    def newest(self) -> tuple[int, BatchMark] | None:
        """The newest Batch with its mark; None if there is none."""
        number = self.log.newest()
        mark = None if number is None else self.read(number)
        return None if number is None or mark is None else (number, mark)

    def put(self, number: int, mark: BatchMark) -> BatchMark:
        """Write a mark durably, unless the Batch has one; returns the stored mark."""
        stored: BatchMark = msgspec.convert(self.log.put(number, msgspec.to_builtins(mark)), BatchMark)
        if self.log.wants_folding(number, gaps=True):
            self.log.fold(_summarize)
        return stored

    def begin(self, number: int) -> int:
        """Record durably that writing a Batch starts; returns the number of times that this was recorded, including now."""
        file = self._path / "begun.json"
        data = read_or_none(file)
        body = {"number": -1, "tries": 0} if data is None else unseal(data, "begun", _FORMAT, file)
        tries: int = body["tries"] + 1 if body["number"] == number else 1
        replace(file, seal("begun", _FORMAT, {"number": number, "tries": tries}))
        return tries

    def folder(self, number: int) -> Path:
        """The folder in which tasks stage the rows of a Batch."""
        return self._path / "staged" / f"{number:010d}"

    def drop_staged(self, before: int) -> None:
        """Delete the staged rows of Batches with numbers below `before`."""
        for name in names_in(self._path / "staged"):
            if name.isdigit() and int(name) < before:
                remove_tree(self._path / "staged" / name)


def read_claim(work: Path) -> dict[str, Any] | None:
    """The `owner` and `lineage` of the rows that were last written to the place; None if there are none."""
    file = work / "claim.json"
    data = read_or_none(file)
    claim: dict[str, Any] | None = None if data is None else unseal(data, "claim", _FORMAT, file)
    return claim


def write_claim(work: Path, owner: str, lineage: str) -> None:
    """Store the owner and lineage of the rows durably."""
    replace(work / "claim.json", seal("claim", _FORMAT, {"owner": owner, "lineage": lineage}))


def _summarize(summary: Any | None, records: Iterable[Any]) -> dict[str, int]:
    so_far: dict[str, int] = summary or {"batches": 0, "rows": 0}
    for record in records:
        so_far = {"batches": so_far["batches"] + 1, "rows": so_far["rows"] + record["rows"]}
    return so_far
