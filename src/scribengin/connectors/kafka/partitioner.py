"""The partition of a key: chosen as by the JVM clients, so that equal keys of other programs are in the same partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


def partitions_of(keys: pa.BinaryArray, count: int) -> NDArray[np.int32]:
    """The partition of each key among `count`, for all keys at once; the result for null is meaningless.

    `murmur2`, made positive, modulo the count: org.apache.kafka.common.utils.Utils and BuiltInPartitioner.partitionForKey of kafka-clients.
    """
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def murmur2(keys: pa.BinaryArray) -> NDArray[np.uint32]:
    """The 32-bit hash of each key; for null, that of an empty one.

    >>> import pyarrow as pa
    >>> [int(h) for h in murmur2(pa.array([b"21", b"foobar"])).view(np.int32)]
    [-973932308, -790332482]
    """
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = np.frombuffer(keys.buffers()[2], np.uint8) if keys.buffers()[2] is not None else np.zeros(0, np.uint8)
    data = np.concatenate([data, np.zeros(4, np.uint8)])
    with np.errstate(over="ignore"):
        hashes = _SEED ^ lengths.astype(np.uint32)
        words = lengths // 4
        for nth in range(int(words.max(initial=0))):
            there = np.nonzero(words > nth)[0]
            k = _word(data, starts[there] + 4 * nth) * _M
            k = (k ^ (k >> np.uint32(24))) * _M
            hashes[there] = (hashes[there] * _M) ^ k
        rest = lengths % 4
        there = np.nonzero(rest)[0]
        left = _word(data, starts[there] + 4 * words[there]) & np.uint32(0xFFFFFFFF) >> (32 - 8 * rest[there]).astype(np.uint32)
        hashes[there] = (hashes[there] ^ left) * _M
        hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
        return hashes ^ (hashes >> np.uint32(15))


def _word(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The four bytes at each position, as a little-endian number."""
    b = [data[at + nth].astype(np.uint32) for nth in range(4)]
    word: NDArray[np.uint32] = b[0] | b[1] << np.uint32(8) | b[2] << np.uint32(16) | b[3] << np.uint32(24)
    return word
