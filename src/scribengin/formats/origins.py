"""The origins of rows: the coordinates of each row's record in its first source, for a batch of rows at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from scribengin.formats.row_ids import MIX_LAST_SHIFT, MIX_ROUNDS, SEQUENCE_FACTOR, chosen_below, label_hash, without_ways

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from scribengin.formats.row_ids import Trail


_CHILD, _LARGEST = 1 << 16, 0x7FFFFFFF
_SEQUENCE, _NTH = np.uint64(SEQUENCE_FACTOR), np.uint64(0xD6E8FEB86659FD93)
"""odd, so that two rows of one record never give the same number; as for SEQUENCE_FACTOR"""
_ROUNDS = tuple((np.uint64(shift), np.uint64(factor)) for shift, factor in MIX_ROUNDS)
_LAST_SHIFT = np.uint64(MIX_LAST_SHIFT)


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of rows: row i comes from record `sequences[i]` of the stream `labels[streams[i]]`, and is the `nth[i]`-th row made of
    that record, from 0.

    A label ends in the separator before the number: `tweets/a.jsonl[0:4096]+`, `tweets/topic-0@`. Label and number are the same whenever
    the row is made again. `trails[streams[i]]` is the record's provenance: a label is listed once for each.
    """

    labels: Sequence[str]
    streams: NDArray[np.int32]
    sequences: NDArray[np.int64]
    nth: NDArray[np.int32]
    trails: Sequence[Trail]

    def __len__(self) -> int:
        return len(self.streams)

    def ids(self) -> list[str]:
        """The id of each row: `tweets/topic-0@17`, `tweets/topic-0@17.1`."""
        labels = self.labels
        ids = [f"{labels[stream]}{sequence}" for stream, sequence in zip(self.streams.tolist(), self.sequences.tolist(), strict=True)]
        for index in np.flatnonzero(self.nth).tolist():
            ids[index] = f"{ids[index]}.{self.nth[index]}"
        return ids

    @staticmethod
    def of(label: str, sequences: NDArray[np.int64]) -> Origins:
        """Records of one stream without provenance, one row each."""
        return Origins([label], np.zeros(len(sequences), np.int32), sequences, np.zeros(len(sequences), np.int32), [()])

    def numbered(self, made_of: Sequence[int]) -> Origins:
        """The origins with a new number for each row but the first among adjacent rows that were made of the same record.

        `made_of`: the record of each row. In the first tier the numbers are 1, 2, …. A row that came through a channel may have a number
        already, which is kept: the new one is in the lower half.
        """
        same = np.asarray(made_of)
        again = np.flatnonzero(same[1:] == same[:-1]) + 1
        if not len(again):
            return self
        # the first row of a run is the last row before it that is not in `again`
        first = np.arange(len(same))
        first[again] = 0
        nth = self.nth.astype(np.int64)
        above = (nth[again] + 1) * _CHILD if any(self.trails) else 0
        nth[again] = (above + again - np.maximum.accumulate(first)[again]) & _LARGEST
        return replace(self, nth=nth.astype(np.int32))

    def taken(self, stay: Sequence[int] | NDArray[np.int64]) -> Origins:
        """The origins of the rows with these indexes."""
        at = np.asarray(stay, np.int64)
        return Origins(self.labels, self.streams[at], self.sequences[at], self.nth[at], self.trails)

    def digest(self) -> int:
        """A number, 0 to 2^64 - 1, for the set of these coordinates.

        It is the sum, modulo 2^64, of one number per row: it does not depend on the order of the rows, and the digest of a whole is the sum
        of those of its parts, however it is divided. Trails do not count. It detects lost and duplicated rows, not forgeries.
        """
        return int(self.marks().sum(dtype=np.uint64))

    def marks(self) -> NDArray[np.uint64]:
        """One number per row, the same whenever the row is made again; `digest` is their sum."""
        labels = np.array([label_hash(label) for label in self.labels], np.uint64)
        # wrapping arithmetic of unsigned arrays; the finalizer is splitmix64's
        mixed = self.sequences.astype(np.uint64)
        mixed *= _SEQUENCE
        mixed += labels[0] if len(labels) == 1 else labels[self.streams]
        if self.nth.any():
            mixed += self.nth.astype(np.uint64) * _NTH
        return _mixed(mixed)

    def chosen(self, share: float) -> NDArray[np.int64]:
        """The indexes of the rows whose record is among that share (0 to 1) of all records: the same records everywhere.

        Rows that do not come from single records, whose labels end in `/`, are never chosen.
        """
        if share <= 0 or not len(self):
            return np.empty(0, np.int64)
        labels = np.array([label_hash(without_ways(label)) for label in self.labels], np.uint64)
        mixed = _mixed(self.sequences.astype(np.uint64) * _SEQUENCE + labels[self.streams])
        records = np.array([not label.endswith("/") for label in self.labels])[self.streams]
        return np.flatnonzero(records & ((mixed < np.uint64(chosen_below(share))) if share < 1 else True))

    @staticmethod
    def joined(parts: Sequence[Origins]) -> Origins:
        """The origins of several batches of rows (at least one), one after the other."""
        if len(parts) == 1:
            return parts[0]
        numbers: dict[tuple[str, Trail], int] = {}
        streams = []
        for part in parts:
            own = [numbers.setdefault(known, len(numbers)) for known in zip(part.labels, part.trails, strict=True)]
            streams.append(np.array(own, np.int32)[part.streams])
        return Origins(
            [label for label, _ in numbers],
            np.concatenate(streams),
            np.concatenate([part.sequences for part in parts]),
            np.concatenate([part.nth for part in parts]),
            [trail for _, trail in numbers],
        )


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Distribute the numbers evenly over all values; in place."""
    for shift, factor in _ROUNDS:
        numbers ^= numbers >> shift
        numbers *= factor
    numbers ^= numbers >> _LAST_SHIFT
    return numbers
