"""Splits the bytes of a file into blocks of whole records, in bounded memory."""

from __future__ import annotations

import bz2
import re
import zlib
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from scribengin.core.units import show_bytes
from scribengin.formats.blocks import DamageBlock, LineBlock, count_lines
from scribengin.formats.constants import PAYLOAD_BYTES
from scribengin.formats.csv_records import RFC_4180, CsvBlock, split_records, whole_records_end
from scribengin.formats.dialect import AUTO, Transcoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import Self

    from scribengin.formats.dialect import Dialect, LineEnd


BOM = b"\xef\xbb\xbf"


class Damage(NamedTuple):
    """The end of a byte stream if the file cannot be read to its end."""

    reason: str
    message: str


class Hole(NamedTuple):
    """A run of NUL bytes among the chunks of a text."""

    length: int

    def block(self, file: str, offset: int, line: int | None, find_line: Callable[[int], int | None] | None = None) -> DamageBlock:
        """The block that reports the hole.

        Args:
            file: The file.
            offset: The position of the hole.
            line: The number of the line that begins, or continues, after it; None if it is not known.
            find_line: Finds the number on request.
        """
        message = (
            f"{self.length} NUL bytes are not read: the file was truncated while its writer continued (as with copytruncate), or cut off "
            "by a crash"
        )
        return DamageBlock(file, "hole", message, offset, line, b"", find_line)


_HOLE_BYTES = 16
_HOLE = re.compile(rb"\0{%d,}" % _HOLE_BYTES)


def marking_holes(chunks: Iterable[bytes | Damage]) -> Iterator[bytes | Damage | Hole]:
    """The chunks, with a Hole for each run of NUL bytes that is not text. Costs one scan for NUL bytes."""
    held = 0  # NUL bytes at the end of the received bytes
    for chunk in chunks:
        if isinstance(chunk, Damage) or (not held and b"\0" not in chunk):
            yield from _nulls(held)
            held = 0
            yield chunk
            continue
        text = chunk.lstrip(b"\0")
        held += len(chunk) - len(text)
        if not text:
            continue
        yield from _nulls(held)
        size = len(text)
        text = text.rstrip(b"\0")
        held = size - len(text)
        at = 0
        for found in _HOLE.finditer(text):
            yield text[at : found.start()]
            yield Hole(found.end() - found.start())
            at = found.end()
        yield text[at:]
    yield from _nulls(held)


def _nulls(count: int) -> Iterator[bytes | Hole]:
    if count:
        yield Hole(count) if count >= _HOLE_BYTES else b"\0" * count


_COUNTED_BYTES = 2**18
"""number of bytes that are counted at a time; they stay in a core's cache"""


class LineFinder:
    """Finds line numbers of an uncompressed file by counting line ends, only on request. It continues from the last request, and uses known
    line counts of blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._line = 1

    def __call__(self, offset: int) -> int | None:
        """The number, from 1, of the line that begins at `offset`; None if the file cannot be read any more."""
        if offset < self._offset:
            self._offset, self._line = 0, 1
        piece = memoryview(bytearray(_COUNTED_BYTES))
        try:
            with self._path.open("rb", buffering=0) as file:
                file.seek(self._offset)
                while self._offset < offset:
                    size = file.readinto(piece[: min(_COUNTED_BYTES, offset - self._offset)])
                    if not size:
                        return None
                    self._line += count_lines(piece[:size])
                    self._offset += size
        except OSError:
            return None
        return self._line

    def known(self, offset: int) -> int | None:
        """The number of the line that begins at `offset`, if nothing must be read for it; otherwise None."""
        return self._line if offset == self._offset else None

    def passed(self, block: LineBlock) -> None:
        """Count the lines of a block, if it begins where the last count ended and their number is known."""
        if block.offset == self._offset and block.known_lines is not None:
            self._offset += len(block.data)
            self._line += block.known_lines


@dataclass(frozen=True, slots=True)
class Cutter:
    """Splits the content of `file` into blocks of whole lines. A line of more than `max_record` bytes becomes a DamageBlock and is never
    held in memory whole. Without `find_line` the lines are counted on the way."""

    file: str
    max_record: int
    find_line: Callable[[int], int | None] | None = None
    first_line: int = 1
    """number of the first line of the chunks, if lines are counted on the way"""
    end: LineEnd = AUTO
    """the line separator"""

    def cut(self, chunks: Iterable[bytes | Damage | Hole], offset: int) -> Iterator[LineBlock | DamageBlock]:
        """Split a content. `chunks` begin at the start of a line, `offset` bytes into the content. A Damage ends them, and discards the
        unfinished line; a Hole ends a line."""
        mark = self.end.mark
        line = None if self.find_line is not None else self.first_line
        rest = b""
        long: _Long | None = None
        at_start = offset == 0
        for chunk in chunks:
            if isinstance(chunk, Damage):
                if long is not None:
                    yield self._too_long(long, line)
                    rest = b""
                yield DamageBlock(self.file, chunk.reason, chunk.message, offset, line, rest[:PAYLOAD_BYTES], self.find_line)
                return
            if isinstance(chunk, Hole):
                if long is not None:
                    yield self._too_long(long, line)
                elif rest:
                    yield from self._blocks(rest, offset, line)
                long, rest, offset = None, b"", offset + len(rest)
                yield chunk.block(self.file, offset, line, self.find_line)
                offset += chunk.length
                at_start = False
                continue
            data = chunk
            if at_start or long is not None:
                data, rest = rest + data, b""
            if at_start:
                if len(data) < len(BOM) and BOM.startswith(data):
                    rest = data
                    continue
                at_start = False
                if data.startswith(BOM):
                    data, offset = data[len(BOM) :], offset + len(BOM)
            if long is not None:
                end = data.find(mark) + len(mark)
                if end < len(mark):
                    rest = _begun(data, mark)
                    long.length += len(data) - len(rest)
                    offset += len(data) - len(rest)
                    continue
                long.length += end - len(mark)
                offset += end
                yield self._too_long(long, line)
                long, data, line = None, data[end:], line and line + 1
            whole, rest = self._divided(rest, data)
            yield from self._blocks(whole, offset, line)
            line = line and line + count_lines(whole, mark)
            offset += len(whole)
            while len(rest) > self.max_record and mark in rest:  # a CSV quote that is never closed
                end = rest.find(mark) + len(mark)
                end += self._end(rest[end:])
                yield from self._blocks(rest[:end], offset, line)
                line = line and line + count_lines(rest[:end], mark)
                rest, offset = rest[end:], offset + end
            if len(rest) > self.max_record:
                head, length, rest = rest[:PAYLOAD_BYTES], len(rest), _begun(rest, mark)
                long = _Long(offset, head, length - len(rest))
                offset += long.length
        if long is not None:
            yield self._too_long(long, line)
        elif rest:
            yield from self._blocks(rest, offset, line)

    def _divided(self, rest: bytes, data: bytes) -> tuple[bytes, bytes]:
        """The whole records of `rest` followed by `data`, and the remaining bytes."""
        end = self._end(data)
        if end:
            return b"".join((rest, memoryview(data)[:end])) if rest else data[:end], data[end:]
        data = rest + data
        end = self._end(data)  # a record may begin in one and end in the other
        return data[:end], data[end:]

    def _end(self, data: bytes) -> int:
        """The end of the last whole record of `data`."""
        mark = self.end.mark
        return data.rfind(mark) + len(mark) if mark in data else 0

    def _blocks(self, data: bytes, offset: int, line: int | None) -> Iterator[LineBlock | DamageBlock]:
        """`data` as one block, or as several blocks around its overlong lines."""
        mark = self.end.mark
        begin = at = 0
        while len(data) - at > self.max_record:
            end = data.rfind(mark, at, at + self.max_record + len(mark))
            if end >= 0:
                at = end + len(mark)
                continue
            end = data.find(mark, at)
            end = len(data) if end < 0 else end
            if at > begin:
                yield LineBlock(self.file, data[begin:at], offset + begin, line, self.find_line, self.end)
            line = line and line + count_lines(data[begin:at], mark)
            yield self._too_long(_Long(offset + at, data[at : min(end, at + PAYLOAD_BYTES)], end - at), line)
            line = line and line + 1
            begin = at = end + len(mark)
        if begin < len(data):
            finder = self.find_line if isinstance(self.find_line, LineFinder) else None
            known = finder.known(offset + begin) if finder is not None else line
            block = LineBlock(self.file, data[begin:], offset + begin, known, self.find_line, self.end)
            yield block
            if finder is not None:
                finder.passed(block)

    def _too_long(self, long: _Long, line: int | None) -> DamageBlock:
        message = (
            f"the record has {show_bytes(long.length)}, more than `max_record` ({show_bytes(self.max_record)}); its first 64 KiB are kept"
        )
        return DamageBlock(self.file, "too-long", message, long.offset, line, long.head, self.find_line)


@dataclass(frozen=True, slots=True)
class CsvCutter(Cutter):
    """Splits CSV into blocks of whole records, which may contain line ends. A quote that is not closed within `max_record` ends with its
    line."""

    dialect: Dialect = RFC_4180
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Take the line separator from the dialect."""
        object.__setattr__(self, "end", self.dialect.line_end)

    def _divided(self, rest: bytes, data: bytes) -> tuple[bytes, bytes]:
        data = rest + data
        end = self._end(data)
        return data[:end], data[end:]

    def _end(self, data: bytes) -> int:
        return whole_records_end(data, self.dialect)

    def _blocks(self, data: bytes, offset: int, line: int | None) -> Iterator[LineBlock | DamageBlock]:
        mark = self.dialect.line_end.mark
        begin = at = 0
        records = split_records(data, self.dialect) if len(data) > self.max_record else ()
        for record in records:
            length = len(record)
            if length > self.max_record + len(mark):
                if at > begin:
                    yield self._block(data[begin:at], offset + begin, line)
                line = line and line + count_lines(data[begin:at], mark)
                yield self._too_long(_Long(offset + at, record[:PAYLOAD_BYTES], length), line)
                line = line and line + count_lines(record, mark)
                begin = at + length
            at += length
        if begin < len(data):
            yield self._block(data[begin:], offset + begin, line)

    def _block(self, data: bytes, offset: int, line: int | None) -> CsvBlock:
        return CsvBlock(self.file, data, offset, line, self.find_line, dialect=self.dialect, header=self.header)


def _begun(data: bytes, mark: bytes) -> bytes:
    """The end of `data`, which contains no separator, that may be the beginning of one."""
    return data[-1:] if len(mark) > 1 and mark.startswith(data[-1:]) else b""


@dataclass(slots=True)
class _Long:
    """An overlong line: its start, its first bytes, and its length as far as it is read."""

    offset: int
    head: bytes
    length: int


def take_header(chunks: Iterator[bytes | Damage], dialect: Dialect) -> tuple[bytes, int, int, Iterator[bytes | Damage]]:
    """Read the first record that is not a comment and not blank. Returns the record, without BOM and line end; the number of bytes and of
    lines up to its end; and the chunks after it."""
    data = b""
    for chunk in chunks:
        if isinstance(chunk, Damage):
            return b"", 0, 0, chain([data, chunk] if data else [chunk], chunks)
        data += chunk
        whole = data[: whole_records_end(data, dialect)] if len(data) <= _HEADER_BYTES else data
        if any(_names_columns(record, dialect) for record in split_records(whole.removeprefix(BOM), dialect)):
            break
    length = len(BOM) * data.startswith(BOM)
    lines, header = 0, b""
    for record in split_records(data[length:], dialect):
        length += len(record)
        lines += record.count(dialect.line_end.mark)
        if _names_columns(record, dialect):
            header = dialect.line_end.stripped(record.removesuffix(dialect.line_end.mark))
            break
    return header, length, lines, chain([data[length:]], chunks)


def _names_columns(record: bytes, dialect: Dialect) -> bool:
    return bool(record.strip()) and (dialect.comment is None or not record.startswith(dialect.comment.encode()))


_HEADER_BYTES = 2**20


def skip_lines(chunks: Iterator[bytes | Damage], count: int, end: LineEnd) -> tuple[int, Iterator[bytes | Damage]]:
    """Skip the first lines of a content.

    Args:
        chunks: The content.
        count: The number of lines to skip.
        end: The line separator.

    Returns:
        The number of bytes of these lines, and the chunks after them.
    """
    skipped, data = 0, b""
    for chunk in chunks:
        if isinstance(chunk, Damage):
            return skipped, chain([data, chunk], chunks)
        data += chunk
        while count and end.mark in data:
            at = data.find(end.mark) + len(end.mark)
            skipped, data, count = skipped + at, data[at:], count - 1
        if not count:
            return skipped, chain([data], chunks)
        if len(end.mark) == 1:
            skipped, data = skipped + len(data), b""
    return skipped + len(data), iter(())


def in_utf_8(chunks: Iterable[bytes | Damage], encoding: str) -> Iterator[bytes | Damage]:
    """The chunks, which are in that encoding, converted to UTF-8."""
    transcode = Transcoder(encoding)
    for chunk in chunks:
        if isinstance(chunk, Damage):
            yield chunk
            return
        yield transcode(chunk)
    yield transcode(b"", final=True)


# Reads the bytes of a file, or of a range of it, decompressed, in small chunks.


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
    """The position of the first line that begins in a range.

    Args:
        file: The file.
        start: The start of the range, in bytes.
        end: The end of the range, exclusive.

    Returns:
        The position; `end` if no line begins in the range.
    """
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
    """The lines that begin in a range.

    Args:
        file: The file.
        start: The start of the range, in bytes; the beginning of a line.
        end: The end of the range, exclusive.
        size: The last line is read to its end, at most to this position.
    """
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
    """The bytes of a range, whatever line ends it contains.

    Args:
        file: The file.
        start: The start of the range, in bytes.
        end: The end of the range, exclusive.
    """
    file.seek(start)
    while start < end and (data := file.read(min(CHUNK_BYTES, end - start))):
        start += len(data)
        yield data


def read_compressed(file: IO[bytes], compression: str) -> Iterator[bytes | Damage]:
    """The content of a gzip, zstd or bzip2 file with one or many members. If the file is truncated or corrupt: the readable part, and a
    Damage."""
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
    """A compressed file presented as its content. It can be read from any position; everything before is then decompressed. It ends at the
    first unreadable byte."""

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
    """The output of a gzip decompressor for `data` before it fails, without the first `given` bytes. The call that fails returns nothing,
    so the output is found by bisection, on copies of the decompressor."""
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
        # at the end the decompressor may return the bytes that follow, as `unused_data` does
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
"""number of compressed bytes at a time: a block of one repeated byte expands four bytes to 128 KiB, and the output size cannot be
limited"""


def _decompressors(compression: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    if compression == "gzip":
        return lambda: zlib.decompressobj(wbits=31), (zlib.error,)
    if compression == "bzip2":
        return bz2.BZ2Decompressor, (OSError,)
    from scribengin.core.zstd import ZstdDecompressor, ZstdError

    return ZstdDecompressor, (ZstdError,)
