"""The common part of writers to a store: a file whose bytes are passed on and summed up."""

from __future__ import annotations

import io
import zlib
from abc import ABC, abstractmethod
from typing import IO, Any, cast


class CountingFile(io.RawIOBase):
    """A file that passes its bytes on, and counts and sums them up."""

    def __init__(self, hand_on: Any) -> None:
        self._hand_on = hand_on
        self.size = 0
        self.crc = 0

    def writable(self) -> bool:
        """See `io.RawIOBase`; True."""
        return True

    def write(self, data: Any) -> int:
        """Pass on the bytes."""
        self._hand_on(data)
        size = memoryview(data).nbytes
        self.size += size
        self.crc = zlib.crc32(data, self.crc)
        return size

    def tell(self) -> int:
        """The position after the last written byte."""
        return self.size


class CountedWriter(ABC):
    """The part of a StoreWriter that counts the written bytes and their checksum."""

    def __init__(self) -> None:
        self._file = CountingFile(self._write)

    @property
    def file(self) -> IO[bytes]:
        """See StoreWriter."""
        return cast("IO[bytes]", self._file)

    @property
    def size(self) -> int:
        """See StoreWriter."""
        return self._file.size

    @property
    def crc(self) -> int:
        """See StoreWriter."""
        return self._file.crc

    @abstractmethod
    def _write(self, data: Any) -> None:
        """Send the bytes, now or with later ones."""
