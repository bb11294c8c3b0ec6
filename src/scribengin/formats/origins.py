"""The origins of rows: the coordinates of each row's record in its first source, for a batch of rows at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_CHILD, _LARGEST = 1 << 16, 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a record's provenance: the tier, query and Batch that read it, the host, the time in milliseconds since 1970, and the
    member of a group that it came through (empty if none)."""

    tier: str
    query: str
    batch: int
    host: str
    time_ms: int
    member: str = ""


Trail = tuple[Hop, ...]
"""first to last"""

_SEQUENCE, _NTH = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
"""odd, so that two sequences of one label, or two rows of one record, never give the same number"""
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_WAYS = re.compile(r"(?:[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?~)+")
"""prefix of a label: the inputs by which its rows came to sinks with several inputs"""


_ROW = re.compile(r"(.*[+@]\d+(?:\.\d+)?)(?:~([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?))?(?:~\d+)?(\.\d+)?", re.DOTALL)


def without_ways(label: str) -> str:
    """The label, or id, without the inputs by which its rows came to sinks with several inputs: that of the record itself.

    >>> without_ways("a~r.big~tweets/a.jsonl+17")
    'tweets/a.jsonl+17'
    """
    found = _WAYS.match(label)
    return label if found is None else label[found.end() :]


def split_id(id_: str) -> tuple[str, str]:
    """Split a row id, as passed to sinks, into the record and the input by which the row reached a sink with several inputs. The record is
    empty if the row was not made from a single record.

    >>> split_id("tweets/a.jsonl+17"), split_id("tweets/a.jsonl+17~r.big~5.1")
    (('tweets/a.jsonl+17', ''), ('tweets/a.jsonl+17.1', 'r.big'))
    >>> split_id("9c0d/4/tweets-0/17")
    ('', '')
    """
    found = _ROW.fullmatch(id_)
    return ("", "") if found is None else (found[1] + (found[3] or ""), found[2] or "")


def is_of(id_: str, record: str) -> bool:
    """True if the row of that id was made of that record, by whatever input it came: it has the record's id, or is a further row of it.

    >>> is_of("tweets/a.jsonl+17.1", "tweets/a.jsonl+17"), is_of("tweets/a.jsonl+170", "tweets/a.jsonl+17")
    (True, False)
    """
    row = without_ways(split_id(id_)[0] or id_)
    return row == record or row.startswith(f"{record}.")


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
        labels = np.array([_hashed(label) for label in self.labels], np.uint64)
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
        labels = np.array([_hashed(without_ways(label)) for label in self.labels], np.uint64)
        mixed = _mixed(self.sequences.astype(np.uint64) * _SEQUENCE + labels[self.streams])
        records = np.array([not label.endswith("/") for label in self.labels])[self.streams]
        return np.flatnonzero(records & ((mixed < np.uint64(int(share * 2.0**53) << 11)) if share < 1 else True))

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


@lru_cache(maxsize=4096)
def _hashed(label: str) -> int:
    return int.from_bytes(blake2b(label.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
