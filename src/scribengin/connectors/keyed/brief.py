"""Short ids for rows that are known by what they were made of, where that is long: 24 letters, of the stream and of the number in it.

A stream of several files has their names in its label, and each of its rows would bring it to the store. There it is paid for more than
once: an index of search keeps the ids of a segment in memory, on disk and in its log, and looks each new one up among them. It keeps ids
that are Base64 by their bytes, 18 of these; they grow with the number, so one look tells that a segment has none of what comes.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MOST_BYTES = 24
"""before the number; `tweets/topic-0@` and `orders/orders.jsonl+` stay as they are"""
_DIGEST_BYTES, _NUMBER_BYTES = 12, 6
"""of a hundred million streams two have the same digest with a probability of 10 ** -13"""
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_SHIFTS = np.arange(8 * _NUMBER_BYTES - 6, -1, -6)
_DIGITS = "0123456789."


def brief_ids(ids: pa.Array) -> pa.Array:
    """Each by itself and always to the same (STRING); two ids that differ still do.

    >>> brief_ids(pa.array(["orders/orders.jsonl+17", "tweets/a.parquet[0:-1] … d.parquet[0:-1] (4 files)+17"])).to_pylist()
    ['orders/orders.jsonl+17', 'zCuASAY_87qwWLG1AAAAAAAR']
    """
    if len(ids):
        begin = _begin(ids[0].as_py())
        if pc.all(pc.starts_with(ids, begin)).as_py() and (found := _numbered(begin, ids)) is not None:
            return found
    return pa.array([_brief(id_) for id_ in ids.to_pylist()], pa.string())


def _numbered(begin: str, ids: pa.Array) -> pa.Array | None:
    """Of ids that begin so, all at once; None where something else than a number follows in any."""
    rest = pc.binary_replace_slice(ids, 0, len(begin.encode()), "")
    try:
        numbers = rest.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    # 017 is not 17, and -17 has another beginning
    if not numbers.cast(pa.string()).equals(rest) or pc.min(numbers).as_py() < 0 or pc.max(numbers).as_py() >> 8 * _NUMBER_BYTES:
        return None
    if (digest := _digest(begin)) is None:
        return ids
    spelt = np.empty((len(ids), len(digest) + len(_SHIFTS)), np.uint8)
    spelt[:, : len(digest)] = np.frombuffer(digest.encode(), np.uint8)
    spelt[:, len(digest) :] = _LETTERS[(numbers.to_numpy()[:, None] >> _SHIFTS) & 63]
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * spelt.shape[1]
    return pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(spelt)])


def _brief(id_: str) -> str:
    begin = _begin(id_)
    rest = id_[len(begin) :]
    digest = _digest(begin)
    if digest is None:
        return id_
    if rest.isdigit() and rest == str(number := int(rest)) and not number >> 8 * _NUMBER_BYTES:
        return digest + urlsafe_b64encode(number.to_bytes(_NUMBER_BYTES, "big")).decode()
    return f"{digest}+{rest}"


def _begin(id_: str) -> str:
    return id_.rstrip(_DIGITS)


@lru_cache(1024)
def _digest(begin: str) -> str | None:
    """Of what stands before a number; None where that is short."""
    spelt = begin.encode()
    if len(spelt) <= _MOST_BYTES:
        return None
    return urlsafe_b64encode(blake2b(spelt, digest_size=_DIGEST_BYTES).digest()).decode()
