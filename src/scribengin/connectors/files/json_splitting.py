"""JSON that is not one object per line: one list, consecutive values, or a list inside a document, in bounded memory.

Only brackets, commas and quotes are examined, some hundred kilobytes at a time: the contents of a record are left to the decoder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scribengin.connectors.files.splitting import BOM, Damage
from scribengin.core.units import show_bytes
from scribengin.formats.blocks import DamageBlock
from scribengin.formats.constants import PAYLOAD_BYTES
from scribengin.formats.spans import JsonBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_OPEN, _CLOSE = frozenset(b"{["), frozenset(b"}]")
_CHANGE = np.zeros(256, np.int8)
_CHANGE[list(_OPEN)] = 1
_CHANGE[list(_CLOSE)] = -1
_MARK = np.zeros(256, bool)
_MARK[list(b"{}[],:")] = True
_BLANK = b" \t\r\n"
_CUT = "Input data was truncated"
_LOOKED_LINES = 50


def shape_of(head: bytes) -> str:
    """`array`, `concatenated` or `lines`, detected from the start of a file (`shape: auto`)."""
    head = head.removeprefix(BOM).lstrip(_BLANK)
    if head[:1] == b"[":
        return "array"
    if head[:1] != b"{" or not _fault(head.partition(b"\n")[0]):
        return "lines"
    return "concatenated" if misshapen(head) or _next_to(head) else "lines"


def misshapen(head: bytes) -> str:
    """A sentence about a file that is not one object per line, with the option that reads it; empty if the file may be one. `head` are its
    first bytes. For a correct file this costs the parsing of one record."""
    found = _over_lines(head.removeprefix(BOM).lstrip(_BLANK))
    if found is None:
        return ""
    shape, lists = found
    if shape == "array":
        return "the file is one JSON list, not one object per line: set json: {shape: array}"
    if len(lists) == 1:
        return (
            "the file is one JSON document over several lines, not one object per line: set json: {shape: concatenated}, or, for a "
            f'record from each item of its list, json: {{records: "$.{lists[0]}[*]"}}'
        )
    return "the file is JSON over several lines, not one object per line: set json: {shape: concatenated}"


def options_for(head: bytes) -> tuple[dict[str, str], str]:
    """The keys of the option `json` that read a file with this beginning (none for lines), and a further note, or an empty text."""
    head = head.removeprefix(BOM).lstrip(_BLANK)
    first, _, rest = head.partition(b"\n")
    found = _over_lines(head)
    if found is not None:
        shape, lists = found
        return ({"records": f"$.{lists[0]}[*]"}, "") if len(lists) == 1 else ({"shape": shape}, "")
    if _next_to(head):
        return {"shape": "concatenated"}, ""
    if head[:1] == b"{" and not rest.strip(_BLANK) and not _fault(first):
        lists = _lists(msgspec.json.decode(first))
        if len(lists) == 1:
            return {}, f'the file is one document; for a record from each item of its list: json: {{records: "$.{lists[0]}[*]"}}'
    return {}, ""


def _over_lines(head: bytes) -> tuple[str, list[str]] | None:
    """The shape of a file that is one list, or values over several lines, and the keys of the first value that contain lists of objects;
    None for a file that may be lines."""
    if head[:1] not in (b"[", b"{"):
        return None
    first, _, rest = head.partition(b"\n")
    fault = _fault(first)
    if head[:1] == b"[":
        return ("array", []) if fault == _CUT or (not fault and not rest.strip(_BLANK)) else None
    if fault != _CUT or b"\n" not in head:  # a line that is longer than what was read may be one object
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(head.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        if len(head) < PAYLOAD_BYTES or any(line[:1] == b"{" and not _fault(line) for line in rest.split(b"\n", _LOOKED_LINES)[:-1]):
            return None  # a line that was cut off, among others
        value = {}
    return "concatenated", _lists(value)


def _lists(value: dict[str, Any]) -> list[str]:
    return [key for key, inner in value.items() if isinstance(inner, list) and inner and isinstance(inner[0], dict)]


def _next_to(head: bytes) -> bool:
    """True if a second object begins on the line of the first."""
    line = head.partition(b"\n")[0].decode("utf-8", "replace")
    try:
        _, end = json.JSONDecoder().raw_decode(line)
    except (ValueError, RecursionError):
        return False
    return line[:1] == "{" and line[end:].lstrip()[:1] == "{"


def _fault(text: bytes) -> str:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return str(error) or "?"
    return ""


@dataclass
class JsonCutter:
    """Splits the content of `file` into blocks of records: consecutive values (`keys` None), or the items of the list that the keys lead to
    from the top of each value. A record of more than `max_record` bytes becomes a DamageBlock and is never held in memory whole. If
    brackets do not match, or the file is truncated, the rest of it is one DamageBlock. Used for one file."""

    file: str
    max_record: int
    keys: tuple[str, ...] | None = None

    _held: bytearray = field(default_factory=bytearray)
    """the bytes from `_base` on that are still needed"""
    _base: int = 0
    _line: int = 1
    """the number of the line of the byte at `_base`"""
    _depth: int = 0
    _in_text: bool = False
    _odd: bool = False
    """True if the bytes so far end in an odd number of backslashes"""
    _begin: int | None = 0
    """start of the open record; None outside the list of records"""
    _on_path: int = 0
    """the number of open brackets that lead to the records"""
    _key: bool = False
    """True if the next value belongs to the next key"""
    _found: bool = False
    """True if the top value contained the list"""
    _mark: int = 0
    """position after the last bracket, comma or colon that was examined"""
    _head: bytes | None = None
    """first bytes of a record that is already too long"""

    def cut(self, chunks: Iterable[bytes | Damage], offset: int = 0) -> Iterator[JsonBlock | DamageBlock]:
        """`chunks` are the whole content, from its start."""
        self._base = self._mark = offset
        self._begin = offset if self.keys is None else None
        first = True
        for chunk in chunks:
            if isinstance(chunk, Damage):
                yield self._damage(chunk.reason, chunk.message)
                return
            if first:
                first = False
                if chunk.startswith(BOM):
                    chunk = chunk[len(BOM) :]  # noqa: PLW2901 (the chunk without its mark)
                    self._base = self._mark = offset = len(BOM)
                    self._begin = offset if self.keys is None else None
            start = self._base + len(self._held)
            self._held += chunk
            try:
                yield from self._take(chunk, start)
            except _ShapeError as error:
                yield self._damage("malformed", f"{error}; nothing after byte {error.at} is read", error.at)
                return
            self._forget(start + len(chunk))
        yield from self._end()

    # --- one chunk ---

    def _take(self, chunk: bytes, start: int) -> Iterator[JsonBlock | DamageBlock]:
        at, kinds, before = self._marks(chunk, start)
        below = np.flatnonzero(before + _CHANGE[kinds] < 0)
        if len(below):
            wrong = int(below[0])
            yield from self._between(at[:wrong], kinds[:wrong], before[:wrong])
            raise _ShapeError("a closing bracket has no opening one", int(at[wrong]))
        yield from self._between(at, kinds, before)

    def _between(self, at: NDArray[np.int64], kinds: NDArray[np.uint8], before: NDArray[np.int64]) -> Iterator[JsonBlock | DamageBlock]:
        """The records up to these marks, in order."""
        after = before + _CHANGE[kinds]
        if self.keys is None:
            ends = at[(after == 0) & (before == 1)] + 1
            if len(ends):
                yield from self._records(ends, ends)
            return
        deep = len(self.keys) + 1
        near = np.minimum(before, after) <= deep
        at, kinds, before, after = at[near], kinds[near], before[near], after[near]
        closing = np.flatnonzero(after == deep - 1)
        separating = (kinds == _COMMA) & (before == deep)
        index = 0
        while index < len(at):
            if self._begin is not None:
                following = closing[np.searchsorted(closing, index) :]
                until = int(following[0]) if len(following) else len(at)
                ends = at[index:until][separating[index:until]]
                if len(following):
                    ends = np.append(ends, at[until])
                if len(ends):
                    yield from self._records(ends, ends + 1, closed=bool(len(following)))
                if not len(following):
                    return
                self._begin = None
                index = until
            yield from self._step(int(at[index]), int(kinds[index]), int(before[index]), int(after[index]))
            index += 1

    def _marks(self, chunk: bytes, start: int) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
        """The brackets, commas and colons outside texts: (their positions, their kinds, the number of brackets that are open
        before each)."""
        bytes_ = np.frombuffer(chunk, np.uint8)
        quotes = np.flatnonzero(bytes_ == _QUOTE)
        if self._odd or b"\\" in chunk:
            slashes = bytes_ == _BACKSLASH
            index = np.arange(len(bytes_))
            last = np.maximum.accumulate(np.where(slashes, -1, index))
            before_quote = np.where(quotes > 0, last[quotes - 1], -1)
            runs = quotes - 1 - before_quote + (self._odd & (before_quote < 0))
            quotes = quotes[runs % 2 == 0]
            tail = len(bytes_) - 1 - int(last[-1])
            self._odd = bool((tail + (self._odd and last[-1] < 0)) % 2)
        at = np.flatnonzero(_MARK[bytes_])
        inside = (np.searchsorted(quotes, at) + self._in_text) % 2 == 1
        self._in_text = bool((len(quotes) + self._in_text) % 2)
        at = at[~inside]
        kinds = bytes_[at]
        after = self._depth + np.cumsum(_CHANGE[kinds], dtype=np.int64)
        before = after - _CHANGE[kinds]
        if len(after):
            self._depth = int(after[-1])
        return at + start, kinds, before

    def _records(self, ends: NDArray[np.int64], begins: NDArray[np.int64], *, closed: bool = False) -> Iterator[JsonBlock | DamageBlock]:
        """The records that end there; the next one begins at `begins`. `closed`: the last one ends with its list, and may be empty."""
        assert self._begin is not None
        starts = np.append(self._begin, begins[:-1])
        self._begin = int(begins[-1])
        if self._head is not None:
            yield self._too_long(int(starts[0]), int(ends[0] - starts[0]), self._head)
            self._head = None
            starts, ends = starts[1:], ends[1:]
            if not len(ends):
                return
        if closed and not self._held[starts[-1] - self._base : ends[-1] - self._base].strip(_BLANK):
            starts, ends = starts[:-1], ends[:-1]
        long = np.flatnonzero(ends - starts > self.max_record)
        last = 0
        for index in (*long.tolist(), len(ends)):
            if index > last:
                yield self._block(starts[last:index], ends[last:index])
            if index < len(ends):
                begin, length = int(starts[index]), int(ends[index] - starts[index])
                at = begin - self._base
                yield self._too_long(begin, length, bytes(self._held[at : at + min(length, PAYLOAD_BYTES)]))
            last = index + 1

    def _block(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> JsonBlock:
        first = int(starts[0])
        content = bytes(self._held[first - self._base : int(ends[-1]) - self._base])
        return JsonBlock.of(self.file, content, first, self._line_of(first), (starts - first).tolist(), (ends - first).tolist())

    def _step(self, at: int, kind: int, before: int, after: int) -> Iterator[DamageBlock]:
        """Handle a bracket, comma or colon outside the list of records."""
        assert self.keys is not None
        deep = len(self.keys)
        if before == 0 and (stray := bytes(self._held[self._mark - self._base : at - self._base]).strip(_BLANK)):
            raise _ShapeError(f"found {_shown(stray)} between values", self._mark)
        if after > before and before == self._on_path and (before == 0 or self._key):
            if kind == ord("[") and before == deep:
                self._begin, self._found = at + 1, True
            elif kind == ord("{") and before < deep:
                self._on_path = before + 1
            elif before == 0:
                found, what = ("an object", "concatenated") if kind == ord("{") else ("a list", "array")
                raise _ShapeError(f"found {found}, expected {self._asked}; set json: {{shape: {what}}}", at)
        if kind == _COLON and before == self._on_path:
            self._key = _text(bytes(self._held[self._mark - self._base : at - self._base])) == self.keys[before - 1]
        elif kind == _COMMA and before == 0:
            raise _ShapeError("found a comma between values", at)
        elif before >= self._on_path:
            self._key = False
        if after < before:
            self._on_path = min(self._on_path, after)
            if after == 0 and not self._found:
                yield self._damage("missing", f"a value of the file has no list at {self._asked}", at)
            self._found = self._found and after > 0
        self._mark = at + 1

    @property
    def _asked(self) -> str:
        keys = "".join(f".{key}" for key in self.keys or ())
        return f"${keys}[*]" if keys else "a list"

    # --- between chunks, and the end ---

    def _forget(self, behind: int) -> None:
        """Discard bytes that are not needed any more, including a record that is too long."""
        if self._begin is not None:
            if self._head is None and behind - self._begin > self.max_record:
                at = self._begin - self._base
                self._head = bytes(self._held[at : at + PAYLOAD_BYTES])
            needed = behind if self._head is not None else self._begin
        else:
            needed = self._mark if behind - self._mark <= self.max_record else behind
            self._mark = max(self._mark, needed)
        self._line += self._held.count(b"\n", 0, needed - self._base)
        del self._held[: needed - self._base]
        self._base = needed

    def _end(self) -> Iterator[JsonBlock | DamageBlock]:
        behind = self._base + len(self._held)
        if self._depth or self._in_text:
            what = "a record" if self._begin is not None and self._depth > (0 if self.keys is None else len(self.keys) + 1) else "its list"
            yield self._damage("truncated", f"the file ends inside of {what if self.keys is not None else 'a record'}")
        elif self._begin is not None and self._held.strip(_BLANK):  # not a bracket: the decoder reports it
            yield from self._records(np.array([behind]), np.array([behind]))
        elif self._begin is None and self._held[max(0, self._mark - self._base) :].strip(_BLANK):
            yield self._damage("malformed", f"found {_shown(bytes(self._held).strip(_BLANK))} after the last value")

    def _damage(self, reason: str, message: str, at: int | None = None) -> DamageBlock:
        begin = at if at is not None else self._base if self._begin is None else self._begin
        if self._head is not None:
            return DamageBlock(self.file, reason, message, begin, None, self._head)
        held = max(0, begin - self._base)
        return DamageBlock(self.file, reason, message, begin, self._line_of(begin), bytes(self._held[held : held + PAYLOAD_BYTES]))

    def _too_long(self, begin: int, length: int, head: bytes) -> DamageBlock:
        message = f"the record has {show_bytes(length)}, more than `max_record` ({show_bytes(self.max_record)}); its first 64 KiB are kept"
        return DamageBlock(self.file, "too-long", message, begin, self._line_of(begin) if begin >= self._base else None, head)

    def _line_of(self, offset: int) -> int:
        return self._line + self._held.count(b"\n", 0, max(0, offset - self._base))


class _ShapeError(ValueError):
    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def _text(key: bytes) -> Any:
    try:
        return msgspec.json.decode(key)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _shown(text: bytes) -> str:
    shown = text[:40].decode("utf-8", "replace")
    return f"{shown!r}{'…' * (len(text) > 40)}"
