"""Counts of what a Batch has taken from a channel: for each task output of each upstream Batch, the rows and the order-free digest of their
ids.

As JSON: `{lineage: {Batch: {task output: [rows, digest]}}}`. Batch and task output are text, as keys in JSON are; the task output is -1 for
record batches that do not name theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.formats.constants import DIGESTS
from scribengin.formats.contract import Handed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Sums = tuple[int, int]
    """rows, and the digest of their ids"""
    TakenUnits = Mapping[str, list[int]]
    Taken = Mapping[str, Mapping[str, TakenUnits]]


NOT_WHOLE = Handed("", -1, 0, 0)
"""stands for input that was no complete record batch and became a dead letter: its contents are unknown"""


def taken_of(handed: Iterable[Handed]) -> dict[str, dict[str, dict[str, list[int]]]]:
    """The rows and digests of what a task has read."""
    taken: dict[str, dict[str, dict[str, list[int]]]] = {}
    for each in handed:
        _add(taken, each.lineage, str(each.batch), str(each.unit), (each.rows, each.digest))
    return taken


def sum_taken(parts: Iterable[Mapping[str, Taken]]) -> dict[str, dict[str, dict[str, dict[str, list[int]]]]]:
    """Add up the results of all tasks: source → the rows and digests of what was taken from it."""
    whole: dict[str, dict[str, dict[str, dict[str, list[int]]]]] = {}
    for part in parts:
        for source, taken in part.items():
            for lineage, batches in taken.items():
                for batch, said in batches.items():
                    for unit, sums in by_unit(said).items():
                        _add(whole.setdefault(source, {}), lineage, batch, str(unit), sums)
    return whole


def by_unit(said: TakenUnits) -> dict[int, Sums]:
    """Task output → the sums of what was taken of it."""
    return {int(unit): (rows, digest) for unit, (rows, digest) in said.items()}


def add_sums(first: Sums, second: Sums) -> Sums:
    """The sum of both: rows, and digests modulo `DIGESTS`."""
    return first[0] + second[0], (first[1] + second[1]) % DIGESTS


def sum_units(units: Mapping[int, Sums]) -> Sums:
    """The sum over all task outputs."""
    whole = (0, 0)
    for sums in units.values():
        whole = add_sums(whole, sums)
    return whole


def _add(taken: dict[str, dict[str, dict[str, list[int]]]], lineage: str, batch: str, unit: str, sums: Sums) -> None:
    units = taken.setdefault(lineage, {}).setdefault(batch, {})
    before = units.get(unit, [0, 0])
    units[unit] = list(add_sums((before[0], before[1]), sums))
