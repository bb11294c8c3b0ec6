"""What a Batch has taken of a channel, as its feeder counts it: for each Batch of the feeder rows, and the order-free digest of their ids.

`{lineage: {Batch: [rows, digest]}}`; the Batch's number is text, as JSON has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.formats.contract import Handed
from scribengin.formats.origins import DIGESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Taken = Mapping[str, Mapping[str, tuple[int, int] | list[int]]]


NOT_WHOLE = Handed("", -1, 0, 0)
"""what was no whole pack, and became a dead letter: nobody knows what it held"""


def taken_of(handed: Iterable[Handed]) -> dict[str, dict[str, list[int]]]:
    """Of what a task has read."""
    taken: dict[str, dict[str, list[int]]] = {}
    for each in handed:
        _add(taken, each.lineage, str(each.batch), each.rows, each.digest)
    return taken


def together(parts: Iterable[Mapping[str, Taken]]) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Source → what all tasks have taken of it."""
    whole: dict[str, dict[str, dict[str, list[int]]]] = {}
    for part in parts:
        for source, taken in part.items():
            for lineage, batches in taken.items():
                for batch, (rows, digest) in batches.items():
                    _add(whole.setdefault(source, {}), lineage, batch, rows, digest)
    return whole


def _add(taken: dict[str, dict[str, list[int]]], lineage: str, batch: str, rows: int, digest: int) -> None:
    sums = taken.setdefault(lineage, {}).setdefault(batch, [0, 0])
    sums[0] += rows
    sums[1] = (sums[1] + digest) % DIGESTS
