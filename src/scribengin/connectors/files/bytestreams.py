"""The bytes of a file, or of a range of it, decompressed, in small chunks."""

from __future__ import annotations

import bz2
import zlib
from typing import IO, TYPE_CHECKING, Any

from scribengin.connectors.files.cutting import Damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

CHUNK_BYTES = 2**18
"""bytes to read, decode and filter at a time, which stay in a core's cache. With 4 MiB, reading alone takes four times as long."""
_SCAN_BYTES = 64 * 1024


_SUFFIXES = {"gz": "gzip", "gzip": "gzip", "zst": "zstd", "zstd": "zstd", "bz2": "bzip2", "bzip2": "bzip2"}


def compression_of(path: str, option: str) -> str:
    """`none`, `gzip`, `zstd` or `bzip2`: the option, or with `auto` the one of the suffix."""
    if option != "auto":
        return option
    suffix = path.lower().rpartition(".")[2]
    return _SUFFIXES.get(suffix, "none")


def range_start(file: IO[bytes], start: int, end: int) -> int:
    """The position of the first line that begins at or after `start` and before `end`; `end` if there is none."""
    if start == 0:
        return 0
    file.seek(start - 1)
    at = start - 1
    while at < end:
        data = file.read(min(_SCAN_BYTES, end - at))
        if not data:
            break
        found = data.find(b"\n")
        if found >= 0:
            return min(at + found + 1, end)
        at += len(data)
    return end


def read_range(file: IO[bytes], start: int, end: int, size: int) -> Iterator[bytes]:
    """The lines that begin from `start` to `end`; `start` is the beginning of a line. The last line is read to its end, at most to
    `size`."""
    file.seek(start)
    at = start
    last = b""
    while at < end:
        data = file.read(min(CHUNK_BYTES, end - at))
        if not data:
            return
        at, last = at + len(data), data[-1:]
        yield data
    while at < size and last not in (b"\n", b""):
        data = file.read(min(_SCAN_BYTES, size - at))
        if not data:
            return
        found = data.find(b"\n") + 1
        data = data[:found] if found else data
        at, last = at + len(data), data[-1:]
        yield data


def read_bytes(file: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    """All bytes from `start` to `end`, whatever the line ends there."""
    file.seek(start)
    while start < end and (data := file.read(min(CHUNK_BYTES, end - start))):
        start += len(data)
        yield data


def read_compressed(file: IO[bytes], compression: str) -> Iterator[bytes | Damage]:
    """All of a gzip, zstd or bzip2 file, with one or many members. If it is truncated or corrupt: the readable part, and a Damage."""
    make, errors = _decompressors(compression)
    decompressor = make()
    begun = False
    read = 0
    gathered: list[bytes] = []
    waiting = given = 0
    saved: Any = None
    part = memoryview(b"")
    try:
        while data := memoryview(file.read(_SCAN_BYTES * 4)):
            read += len(data)
            at = 0
            while at < len(data):
                if decompressor.eof:
                    if data[at] == 0 and not bytes(data[at:]).strip(b"\0"):  # padding after the last member
                        break
                    decompressor = make()
                begun = True
                part = data[at : at + _ZSTD_STEP] if compression == "zstd" else data[at:]
                saved, given = (decompressor.copy() if compression == "gzip" else None), 0
                for out in _inflate(decompressor, part, compression):
                    gathered.append(out)
                    given += len(out)
                    waiting += len(out)
                    if waiting >= CHUNK_BYTES:
                        yield b"".join(gathered)
                        gathered, waiting = [], 0
                at += len(part) - (len(decompressor.unused_data) if decompressor.eof else 0)
    except errors as error:
        yield b"".join(gathered)
        if saved is not None:
            yield from _up_to_the_error(saved, part, given)
        yield Damage(
            "corrupt", f"the {compression} data is corrupt near byte {read} of the compressed file ({error}); nothing after it is read"
        )
        return
    if gathered:
        yield b"".join(gathered)
    if begun and not decompressor.eof:
        yield Damage("truncated", f"the {compression} file is truncated at its byte {read}; everything before it is read")


class UnpackedFile:
    """A compressed file presented as its content: it can be read from any position, by reading all that precedes it. It ends at the first
    unreadable byte."""

    def __init__(self, file: IO[bytes], compression: str) -> None:
        self._file = file
        self._compression = compression
        self._begin()

    def _begin(self) -> None:
        self._file.seek(0)
        self._chunks = (chunk for chunk in read_compressed(self._file, self._compression) if not isinstance(chunk, Damage))
        self._at, self._rest = 0, b""

    def seek(self, offset: int) -> None:
        """Continue reading at that position."""
        if offset < self._at:
            self._begin()
        while self._at < offset and self.read(offset - self._at):
            pass

    def read(self, size: int) -> bytes:
        """At most that many bytes; none at the end."""
        if not self._rest:
            self._rest = next(filter(None, self._chunks), b"")
        data, self._rest = self._rest[:size], self._rest[size:]
        self._at += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:
        """Like `read`, into a buffer; returns the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _up_to_the_error(decompressor: Any, data: memoryview, given: int) -> Iterator[bytes]:
    """The output of a gzip decompressor for `data` before it fails, which returns nothing from the call that fails: found by bisection, on
    copies. Without the first `given` bytes."""
    size = len(data)
    while size:
        attempt = decompressor.copy()
        try:
            outs = list(_inflate(attempt, data[:size], "gzip"))
        except zlib.error:
            size //= 2
            continue
        decompressor, data = attempt, data[size:]
        for out in outs:
            yield out[given:]
            given = max(0, given - len(out))
        size = min(size, len(data))


def _inflate(decompressor: Any, data: memoryview, compression: str) -> Iterator[bytes]:
    """The decompressed `data`, in parts of bounded size; for zstd in one part, which is bounded as `data` is (see _ZSTD_STEP)."""
    if compression == "gzip":
        yield decompressor.decompress(data, CHUNK_BYTES)
        # at the end it may return the bytes that follow, as `unused_data` does
        while decompressor.unconsumed_tail and not decompressor.eof:
            yield decompressor.decompress(decompressor.unconsumed_tail, CHUNK_BYTES)
        return
    if compression == "bzip2":
        yield decompressor.decompress(data, CHUNK_BYTES)
        while not decompressor.needs_input and not decompressor.eof:
            yield decompressor.decompress(b"", CHUNK_BYTES)
        return
    yield decompressor.decompress(data)


_ZSTD_STEP = 2048
"""compressed bytes at a time: a block of one repeated byte expands four bytes to 128 KiB, and the output size cannot be limited"""


def _decompressors(compression: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    if compression == "gzip":
        return lambda: zlib.decompressobj(wbits=31), (zlib.error,)
    if compression == "bzip2":
        return bz2.BZ2Decompressor, (OSError,)
    from scribengin.core.zstd import ZstdDecompressor, ZstdError

    return ZstdDecompressor, (ZstdError,)
