"""The id of a row, as text, and the provenance of its record. Needs no array library: what works with ids of single rows imports this, what
works with batches of rows `formats.origins`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

_WAYS = re.compile(r"(?:[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?~)+")
"""prefix of a label: the inputs by which its rows came to sinks with several inputs"""
_ROW = re.compile(r"(.*[+@]\d+(?:\.\d+)?)(?:~([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?))?(?:~\d+)?(\.\d+)?", re.DOTALL)

SEQUENCE_FACTOR = 0x9E3779B97F4A7C15
"""odd, so that two sequences of one label never give the same number"""
MIX_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""shift and factor of each round of splitmix64's finalizer, which ends with MIX_LAST_SHIFT"""
MIX_LAST_SHIFT = 31
_WHOLE = (1 << 64) - 1


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


def is_chosen(label: str, sequence: int, share: float) -> bool:
    """True if that record is among the share (0 to 1) of all records whose provenance is kept: `Origins.chosen` for one record."""
    if share <= 0 or label.endswith("/"):
        return False
    mixed = (sequence * SEQUENCE_FACTOR + label_hash(without_ways(label))) & _WHOLE
    for shift, factor in MIX_ROUNDS:
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _WHOLE
    return share >= 1 or mixed ^ (mixed >> MIX_LAST_SHIFT) < chosen_below(share)


def chosen_below(share: float) -> int:
    """The number below which the mixed numbers of the records of a share (0 to less than 1) are."""
    return int(share * 2.0**53) << 11


@lru_cache(maxsize=4096)
def label_hash(label: str) -> int:
    """A number, 0 to 2^64 - 1, for a label; the same everywhere."""
    return int.from_bytes(blake2b(label.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
