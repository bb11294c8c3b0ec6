"""How the bytes of a file become records: character sets, lines, records of several lines, and records that are too long.

Blocks are cut at the last line end, and lines are counted by `bytes.count`: nothing is done for each line, except for records of several
lines. Positions are those of the file; payloads are UTF-8.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import EnvironmentFault
from scribengin.wire.frames import LINE_FEED, FrameKind, mark_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TOO_LONG_HEAD = 64 * 1024
"""the bytes of a record that is too long which are kept"""
_UTF8_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = {
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """A character set of files. `newline` ends a line, at a multiple of `unit` bytes; if `passes`, the bytes are UTF-8, or not valid, and
    stay as they are."""

    name: str
    newline: bytes = LINE_FEED
    unit: int = 1
    passes: bool = True

    def text(self, raw: bytes) -> bytes:
        """The bytes as UTF-8. What is not valid in the character set becomes U+FFFD."""
        return raw if self.passes else raw.decode(self.name, "replace").encode()

    def last_end(self, block: bytes) -> int:
        """Where the last whole line of a block ends; 0 if there is none."""
        at = block.rfind(self.newline)
        while at > 0 and at % self.unit:
            at = block.rfind(self.newline, 0, at + len(self.newline) - 1)
        return 0 if at < 0 or at % self.unit else at + len(self.newline)

    def first_end(self, block: bytes, start: int = 0) -> int:
        """Where the first line of a block from `start` on ends; 0 if it does not."""
        at = block.find(self.newline, start)
        while at >= 0 and at % self.unit:
            at = block.find(self.newline, at + 1)
        return 0 if at < 0 else at + len(self.newline)

    def ends(self, block: bytes) -> Iterator[int]:
        """Where each line of a block ends."""
        end = self.first_end(block)
        while end:
            yield end
            end = self.first_end(block, end)


def encoding_for(name: str, beginning: bytes) -> tuple[TextEncoding, int]:
    """The encoding of a file, and the bytes of its byte order mark.

    Args:
        name: As the flow has it; `utf-16` and `utf-32` are little-endian if the file has no byte order mark.
        beginning: The first bytes of the file.

    Raises:
        EnvironmentFault: No such encoding.
    """
    plain = name.lower().replace("_", "-").removesuffix("-bom")
    try:
        known = codecs.lookup(plain).name
        if known in {"utf-16", "utf-32"}:
            known = next((wide for wide in _WIDE_BOMS if wide.startswith(known) and beginning.startswith(_WIDE_BOMS[wide])), f"{known}-le")
        if known in {"utf-8", "utf-8-sig", "ascii"}:
            return TextEncoding("utf-8"), len(_UTF8_BOM) if beginning.startswith(_UTF8_BOM) else 0
        newline = "\n".encode(known)
    except (LookupError, UnicodeError) as error:
        remedy = "use a name that Python knows, such as utf-8, utf-16le or latin-1"
        raise EnvironmentFault(f"encoding: {name!r} is not known", remedy=remedy) from error
    bom = _WIDE_BOMS.get(known, b"")
    return TextEncoding(known, newline, len(newline), passes=False), len(bom) if bom and beginning.startswith(bom) else 0


@dataclass(slots=True)
class RecordRun:
    """Records at the beginning of a block: `size` bytes of the file."""

    payload: bytes
    count: int
    lines: int
    size: int
    mark: bytes = LINE_FEED
    kind: FrameKind = "records"


class RecordCutter:
    """Cuts the records of one character set.

    Args:
        encoding: Of the file.
        multiline: `start` or `continue`: a regular expression for lines, anything of a line that matches; `lines`: the most of a record.
            Empty: each line is a record.
        max_record: The largest record in bytes of the file.
    """

    def __init__(self, encoding: TextEncoding, multiline: Mapping[str, Any] | str, max_record: int) -> None:
        self.encoding = encoding
        self.max_record = max_record
        self._begins: Callable[[bytes], bool] | None = None
        self._most_lines = 0
        if not isinstance(multiline, str):
            self._begins = _begins(multiline)
            self._most_lines = int(multiline.get("lines", 500))

    @property
    def joins(self) -> bool:
        """Whether a record may have several lines."""
        return self._begins is not None

    def cut(self, block: bytes, *, ended: bool = False, quiet: bool = False, first: bool = False) -> list[RecordRun]:
        """The records of a block that begins with one.

        Args:
            block: Bytes of a file. What is not in the answer is to be read again, with what follows.
            ended: Nothing follows the block: its last line is whole.
            quiet: Nothing followed it for a time: a record of several lines is whole.
            first: Only one record.
        """
        runs: list[RecordRun] = []
        at = 0
        while at < len(block) and not (first and runs):
            rest = block[at:] if at else block
            start, stop = self._too_long(rest, ended=ended)
            if start < 0:
                end = len(rest) if ended else self.encoding.last_end(rest)
                runs += self._records(rest[:end] if end < len(rest) else rest, whole=ended or quiet, first=first)
                break
            if start:
                runs += self._records(rest[:start], whole=True, first=first)
            if not stop or (first and runs):
                break
            runs.append(self.too_long(rest[start : min(stop, start + TOO_LONG_HEAD)], stop - start))
            at += stop
        return runs

    def too_long(self, head: bytes, size: int) -> RecordRun:
        """A record of `size` bytes that is too long, of which only the first bytes are kept."""
        whole = head[:TOO_LONG_HEAD]
        return RecordRun(self.encoding.text(whole).removesuffix(LINE_FEED), 1, 1, size, kind="too_long")

    def _too_long(self, block: bytes, *, ended: bool) -> tuple[int, int]:
        """Where the first line of more than `max_record` bytes begins, or -1, and where it ends, or 0 if that is not in the block."""
        newline, most = self.encoding.newline, self.max_record
        if len(block) <= most:
            return -1, 0
        at = 0
        if self.encoding.unit > 1:
            for end in self.encoding.ends(block):
                if end - at - len(newline) > most:
                    return at, end
                at = end
        else:
            while at + most < len(block):
                last = block.rfind(newline, at, at + most + len(newline))
                if last < 0:
                    end = block.find(newline, at + most)
                    return at, end + len(newline) if end >= 0 else len(block) if ended else 0
                at = last + len(newline)
        return (at, len(block) if ended else 0) if len(block) - at > most else (-1, 0)

    def _records(self, region: bytes, *, whole: bool, first: bool) -> list[RecordRun]:
        if not region:
            return []
        if self._begins is not None:
            return self._joined(region, whole=whole, first=first)
        if first and (end := self.encoding.first_end(region)):
            region = region[:end]
        text = self.encoding.text(region)
        if not text.endswith(LINE_FEED):
            text += LINE_FEED
        count = text.count(LINE_FEED)
        return [RecordRun(text, count, count, len(region))]

    def _joined(self, region: bytes, *, whole: bool, first: bool) -> list[RecordRun]:
        """Records of several lines; the last one only if it is whole, or has as many lines or bytes as one may have."""
        assert self._begins is not None
        records: list[bytes] = []
        lines: list[bytes] = []
        at = begin = counted = 0
        ends = [*self.encoding.ends(region)]
        if not ends or ends[-1] < len(region):
            ends.append(len(region))
        for end in ends:
            line = self.encoding.text(region[at:end]).removesuffix(LINE_FEED)
            if lines and (self._begins(line) or len(lines) >= self._most_lines or end - begin > self.max_record):
                records.append(LINE_FEED.join(lines))
                counted += len(lines)
                lines, begin = [], at
                if first:
                    break
            lines.append(line)
            at = end
        if lines and whole and not (first and records):
            records.append(LINE_FEED.join(lines))
            counted, begin = counted + len(lines), len(region)
        if not records:
            return []
        mark = LINE_FEED if counted == len(records) else mark_for(records)
        return [RecordRun(mark.join(records) + mark, len(records), counted, begin, mark)]


def _begins(multiline: Mapping[str, Any]) -> Callable[[bytes], bool]:
    """Whether a line begins a record."""
    word = "start" if multiline.get("start") else "continue"
    try:
        search = re.compile(str(multiline[word]).encode()).search
    except (KeyError, re.error) as error:
        found = f"multiline.{word}: {multiline.get(word)!r} is not a valid regular expression: {error}"
        raise EnvironmentFault(found, remedy="write one such as start: '^\\d{4}-' or continue: '^\\s'") from error
    return (lambda line: search(line) is not None) if word == "start" else (lambda line: search(line) is None)
