"""Splits the bytes of a file into blocks of whole records, in bounded memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from scribengin.core.units import show_bytes
from scribengin.formats.blocks import DamageBlock, LineBlock, count_lines
from scribengin.formats.csv_records import RFC_4180, CsvBlock, split_records, whole_records_end
from scribengin.formats.dialect import AUTO, Transcoder
from scribengin.formats.figures import PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

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
        """The text that reports it; `line` is the line that begins, or continues, after it."""
        message = (
            f"{self.length} NUL bytes are not read: the file was truncated while its writer continued (as with copytruncate), or cut off "
            "by a crash"
        )
        return DamageBlock(file, "hole", message, offset, line, b"", find_line)


_HOLE_BYTES = 16
_HOLE = re.compile(rb"\0{%d,}" % _HOLE_BYTES)


def marking_holes(chunks: Iterable[bytes | Damage]) -> Iterator[bytes | Damage | Hole]:
    """The same chunks, with a Hole for each run of NUL bytes that is not text. Costs one scan for NUL bytes."""
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
"""bytes at a time, which stay in a core's cache"""


class LineFinder:
    """Finds line numbers of an uncompressed file by counting line ends, only on request, continuing from the last request; uses known line
    counts of blocks."""

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
        """The same if nothing has to be read for it; else None."""
        return self._line if offset == self._offset else None

    def passed(self, block: LineBlock) -> None:
        """Count the block, if it begins where the last count ended and its number of lines is known."""
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
        """`chunks` begin at the start of a line, `offset` bytes into the content. A Damage ends them, and discards the unfinished line; a
        Hole ends a line."""
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
    """The same for CSV, whose records may contain line ends. A quote that is not closed within `max_record` ends with its line."""

    dialect: Dialect = RFC_4180
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """The line separators are set by the dialect."""
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
    """An overlong line: its start, its first bytes, and its length as far as it was read."""

    offset: int
    head: bytes
    length: int


def take_header(chunks: Iterator[bytes | Damage], dialect: Dialect) -> tuple[bytes, int, int, Iterator[bytes | Damage]]:
    """The first record that is not a comment and not blank, without BOM and line end; the number of bytes and lines up to its end; and the
    chunks after it."""
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
    """The number of bytes of the first lines, and the chunks after them."""
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
    """The chunks of a file in that encoding, converted to UTF-8."""
    transcode = Transcoder(encoding)
    for chunk in chunks:
        if isinstance(chunk, Damage):
            yield chunk
            return
        yield transcode(chunk)
    yield transcode(b"", final=True)
