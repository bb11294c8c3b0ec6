"""Short ids for rows whose id is their origin, if that is long: 24 characters, from the stream and the number in it.

The label of a stream of several files contains their names, and each of its rows would send it to the store, where it costs several times.
A search index keeps the ids of a segment in memory, on disk and in its log, and looks each new one up among them. It stores Base64 ids as
bytes, 18 for these; they increase with the number, so one comparison shows that a segment contains none of the new ids.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MOST_BYTES = 24
"""characters before the number; `tweets/topic-0@` and `orders/orders.jsonl+` are not shortened"""
_DIGEST_BYTES, _NUMBER_BYTES = 12, 6
"""digest size: among a hundred million streams two have the same digest with a probability of 10 ** -13"""
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_SHIFTS = np.arange(8 * _NUMBER_BYTES - 6, -1, -6)
_DIGITS = "0123456789."


def brief_ids(ids: pa.Array) -> pa.Array:
    """Shortens each id independently, and always to the same value (STRING); different ids stay different.

    >>> brief_ids(pa.array(["orders/orders.jsonl+17", "tweets/a.parquet[0:-1] … d.parquet[0:-1] (4 files)+17"])).to_pylist()
    ['orders/orders.jsonl+17', 'zCuASAY_87qwWLG1AAAAAAAR']
    """
    if len(ids):
        begin = _begin(ids[0].as_py())
        if pc.all(pc.starts_with(ids, begin)).as_py() and (found := _numbered(begin, ids)) is not None:
            return found
    return pa.array([_brief(id_) for id_ in ids.to_pylist()], pa.string())


def _numbered(begin: str, ids: pa.Array) -> pa.Array | None:
    """The ids with this beginning, all at once; None if one of them continues with anything but a number."""
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
    """The digest of the part before a number; None if that is short."""
    spelt = begin.encode()
    if len(spelt) <= _MOST_BYTES:
        return None
    return urlsafe_b64encode(blake2b(spelt, digest_size=_DIGEST_BYTES).digest()).decode()
