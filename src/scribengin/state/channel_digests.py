"""What a Batch has taken of a channel, as its feeder counts it: for each unit of each Batch of the feeder rows, and the order-free digest
of their ids.

`{lineage: {Batch: {unit: [rows, digest]}}}`; Batch and unit are text, as JSON has them, and a unit that packs do not say is -1.
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
"""what was no whole pack, and became a dead letter: its contents are unknown"""


def taken_of(handed: Iterable[Handed]) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Of what a task has read."""
    taken: dict[str, dict[str, dict[str, list[int]]]] = {}
    for each in handed:
        _add(taken, each.lineage, str(each.batch), str(each.unit), (each.rows, each.digest))
    return taken


def together(parts: Iterable[Mapping[str, Taken]]) -> dict[str, dict[str, dict[str, dict[str, list[int]]]]]:
    """Source → what all tasks have taken of it."""
    whole: dict[str, dict[str, dict[str, dict[str, list[int]]]]] = {}
    for part in parts:
        for source, taken in part.items():
            for lineage, batches in taken.items():
                for batch, said in batches.items():
                    for unit, sums in by_unit(said).items():
                        _add(whole.setdefault(source, {}), lineage, batch, str(unit), sums)
    return whole


def by_unit(said: TakenUnits) -> dict[int, Sums]:
    """What was taken of each unit of a Batch."""
    return {int(unit): (rows, digest) for unit, (rows, digest) in said.items()}


def added(first: Sums, second: Sums) -> Sums:
    """The sum of both."""
    return first[0] + second[0], (first[1] + second[1]) % DIGESTS


def in_all(units: Mapping[int, Sums]) -> Sums:
    """The sum over all units."""
    whole = (0, 0)
    for sums in units.values():
        whole = added(whole, sums)
    return whole


def _add(taken: dict[str, dict[str, dict[str, list[int]]]], lineage: str, batch: str, unit: str, sums: Sums) -> None:
    units = taken.setdefault(lineage, {}).setdefault(batch, {})
    before = units.get(unit, [0, 0])
    units[unit] = list(added((before[0], before[1]), sums))
