"""An object as a file that can be read and sought in, by requests for ranges of it."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scribengin.core.store import Store

AHEAD = 4 * 2**20
"""bytes that one request asks for at least, as far as the object goes: a request costs as much as some MB take"""


class RangedFile(io.RawIOBase):
    """Raises what the store raises, FileNotFoundError too. One thread at a time."""

    def __init__(self, store: Store, key: str, size: int, ahead: int = AHEAD) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._ahead = ahead
        self._at = 0
        self._held = (0, b"")
        """(where it begins, bytes)"""

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Where the next byte comes from."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go there; costs nothing by itself."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes; all that is left where it is negative."""
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
        """As `read`, into a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
