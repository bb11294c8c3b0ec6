"""`multiline`: text in which several lines form one record, such as a log with stack traces, split in bounded memory."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

from scribengin.connectors.files.splitting import BOM, Damage, Hole
from scribengin.core.units import show_bytes
from scribengin.formats.blocks import DamageBlock
from scribengin.formats.constants import PAYLOAD_BYTES
from scribengin.formats.spans import SpanBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_WINDOW_BYTES = 2**16


class MultilineCutter:
    """Splits the content of a file before each line that contains a match of `start`; the lines before the first such line are also a
    record. A record of more than `max_record` bytes becomes a DamageBlock and is never held in memory whole. Used for one file."""

    def __init__(self, file: str, start: str, max_record: int, first_line: int | None = 1) -> None:
        """`first_line` counts from 1; None if it is not known."""
        self._file = file
        self._search = re.compile(start.encode()).search
        self._max_record = max_record
        self._line = first_line
        self._offset = 0
        """starts of the finished records"""
        self._ready: list[bytes] = []
        self._open: list[bytes] = []
        """lines of the open record, or its first bytes if it is too long"""
        self._size = self._lines = 0
        """size of that record"""

    def cut(self, chunks: Iterable[bytes | Damage | Hole], offset: int) -> Iterator[SpanBlock | DamageBlock]:
        """Split a content. `chunks` begin at the start of a record, `offset` bytes into the content. A Damage ends them, and includes the
        last record."""
        self._offset = offset
        rest, inside = b"", False  # `inside`: in a line that is longer than a record may be
        for number, chunk in enumerate(chunks):
            if isinstance(chunk, Damage):
                self._add(rest)
                yield from self._given()
                head = b"".join(self._open)[:PAYLOAD_BYTES]
                yield DamageBlock(self._file, chunk.reason, chunk.message, self._offset, self._line, head)
                return
            if isinstance(chunk, Hole):
                yield from self._all(rest, inside=inside)
                yield chunk.block(self._file, self._offset, self._line)
                rest, inside = b"", False
                self._pass(chunk.length, 0)
                continue
            data = rest + chunk
            if number == 0 and offset == 0 and data.startswith(BOM):
                data, self._offset = data[len(BOM) :], len(BOM)
            lines = data.split(b"\n")
            rest = lines.pop()
            for line in lines:
                if not inside and self._size and self._search(line):
                    yield from self._close()
                self._add(line + b"\n")
                self._lines += 1
                inside = False
            if len(rest) > self._max_record:
                if not inside and self._size and self._search(rest):
                    yield from self._close()
                self._add(rest)
                rest, inside = b"", True
            yield from self._given()
        yield from self._all(rest, inside=inside)

    def _all(self, rest: bytes, *, inside: bool) -> Iterator[SpanBlock | DamageBlock]:
        """Finish with the last line, which has no line end."""
        if rest and not inside and self._size and self._search(rest):
            yield from self._close()
        self._add(rest)
        if self._size:
            yield from self._close()
        yield from self._given()

    def _add(self, data: bytes) -> None:
        """Add a line to the open record. Once the record is too long, only its first bytes are kept."""
        self._size += len(data)
        if self._size <= self._max_record:
            self._open.append(data)
        elif sum(map(len, self._open)) < PAYLOAD_BYTES or len(self._open) > 1:
            self._open = [b"".join([*self._open, data])[:PAYLOAD_BYTES]]

    def _close(self) -> Iterator[SpanBlock | DamageBlock]:
        """End the open record. If it is too long it is returned at once, after the records before it."""
        if self._size <= self._max_record:
            self._ready.append(b"".join(self._open))
        else:
            yield from self._given()
            size, most = show_bytes(self._size), show_bytes(self._max_record)
            message = f"the record has {size}, more than `max_record` ({most}); its first 64 KiB are kept"
            yield DamageBlock(self._file, "too-long", message, self._offset, self._line, self._open[0][:PAYLOAD_BYTES])
            self._pass(self._size, self._lines)
        self._open, self._size, self._lines = [], 0, 0

    def _given(self) -> Iterator[SpanBlock]:
        """The finished records."""
        if not self._ready:
            return
        content = b"".join(self._ready)
        bounds = list(accumulate(map(len, self._ready), initial=0))
        ends = [end - record.endswith(b"\n") for end, record in zip(bounds[1:], self._ready, strict=True)]
        yield SpanBlock(self._file, content, self._offset, self._line, content=content, starts=bounds[:-1], ends=ends)
        self._ready = []
        self._pass(len(content), content.count(b"\n"))

    def _pass(self, size: int, lines: int) -> None:
        self._offset += size
        self._line = self._line and self._line + lines


def whole_records_end(path: Path, begin: int, end: int, start: str, max_record: int) -> int:
    """The end of the last complete record: the start of the last line with a match of `start`. Searches backwards.

    Args:
        path: The file.
        begin: The start of the search; the start of a record.
        end: The end of the search; the end of a line.
        start: The regular expression of the first line of a record.
        max_record: The maximum size of a record, in bytes.

    Returns:
        The position; `begin` if there is no complete record, `end` if the last record is already too long.
    """
    search = re.compile(start.encode()).search
    with path.open("rb") as file:
        size = _WINDOW_BYTES
        while True:
            at = max(begin, end - size)
            file.seek(at)
            data = file.read(end - at)
            lines = data.split(b"\n")
            if at > begin:
                at += len(lines.pop(0)) + 1
            starts = list(accumulate((len(line) + 1 for line in lines), initial=at))
            last = next((place for place, line in zip(reversed(starts[:-1]), reversed(lines), strict=True) if line and search(line)), None)
            if last is not None:
                return last
            if end - size <= begin:
                return begin
            if size > max_record:
                return end
            size *= 2
