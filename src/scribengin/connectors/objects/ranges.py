"""An object as a file that supports reads and seeks, by range requests."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scribengin.core.store import Store

AHEAD = 4 * 2**20
"""minimum bytes of one request, if the object is that long: a request costs as much as some MB"""


class RangedFile(io.RawIOBase):
    """A file over one object. Raises the store's errors, including FileNotFoundError. Used by one thread at a time."""

    def __init__(self, store: Store, key: str, size: int, ahead: int = AHEAD) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._ahead = ahead
        self._at = 0
        self._held = (0, b"")
        """the bytes in memory: (start, bytes)"""

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to that position; makes no request."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """At most `size` bytes; all remaining ones if it is negative."""
        left = max(0, self._size - self._at)
        size = left if size is None or size < 0 else min(size, left)
        if not size:
            return b""
        begin, held = self._held
        if not begin <= self._at or self._at + size > begin + len(held):
            held = self._store.range(self._key, self._at, min(self._size, self._at + max(size, self._ahead)))
            begin = self._at
            self._held = (begin, held)
        data = held[self._at - begin : self._at - begin + size]
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Like `read`, into a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
