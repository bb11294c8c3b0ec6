"""The input `journal`: entries of the systemd journal, as `journalctl` prints them, each a JSON object with the names of the journal's
fields.

A field is a text. The journal prints a value that is not valid UTF-8 as an array of bytes: it becomes text, with `\\xNN` for bytes that
are no UTF-8. A field that occurs several times in an entry is an array of texts. `--all` is passed, without which `journalctl` prints
null for values of more than 4,096 bytes.

The position is the cursor of the last entry of a frame, as the tag `journal_cursor` of its origin (`journalctl --cursor` finds the place
by it): after a crash the journal is read on behind the newest frame that is durable, so that no entry is lost or read twice. If that
entry is no longer in the journal, it is read on at the next one that is. (The entry of the cursor is asked for again and skipped by its
cursor: with `--after-cursor`, `journalctl` before systemd 255 skips an entry too many where the one of the cursor is gone, or does not
match.)
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.agent.inputs import InputReport, RecordChunk
from scribengin.agent.inputs.children import ChildRuns
from scribengin.agent.inputs.line_streams import LineCutter, cut_lines, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scribengin.agent.inputs.line_streams import RecordBlock
    from scribengin.wire.frames import FrameOrigin
    from scribengin.wire.protocol import LaneConfig

IDENTITY = "journal"
CURSOR_TAG = "journal_cursor"
_CURSOR = re.compile(rb'"__CURSOR"\s*:\s*"((?:[^"\\]|\\.)*)"')
_NOT_TEXT = re.compile(rb'"\s*:\s*[\[n{0-9tf]')
"""before a value that is not a text, or within a text that quotes JSON"""
_NO_ENTRY = re.compile(rb"^[^{\n]", re.MULTILINE)
"""before a line such as `-- Logs begin at …`, which older releases print; hints on missing rights come only without `--quiet`"""
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def plain_entry(line: bytes) -> bytes:
    """An entry of `journalctl -o json` with texts and arrays of texts only, in one line; one that is not valid JSON stays as it is.

    >>> plain_entry(b'{"MESSAGE":[104,105,255],"A":["x",[121]],"B":null}')
    b'{"MESSAGE":"hi\\\\\\\\xff","A":["x","y"],"B":null}'
    """
    try:
        return _encode({name: _text(value) for name, value in _decode(line).items()})
    except (msgspec.MsgspecError, ValueError, TypeError):
        return line


def _text(value: Any) -> Any:
    if isinstance(value, list):
        if value and all(isinstance(each, int) for each in value):
            return bytes(value).decode("utf-8", "backslashreplace")
        return [_text(each) for each in value]
    return value


def cursor_of(entries: bytes) -> str:
    """The cursor of the last of some entries; empty if they have none."""
    start = entries.rfind(b"\n", 0, len(entries) - 1) + 1
    found = _CURSOR.search(entries, start)
    return found[1].decode("ascii", "replace") if found else ""


class JournalInput:
    """Entries of the journal; see `scribengin.agent.inputs.RecordInput`."""

    def __init__(self, lane: LaneConfig, positions: Mapping[str, FrameOrigin]) -> None:
        self._lane = lane
        position = positions.get(IDENTITY)
        self._cursor = position.tags.get(CURSOR_TAG, "") if position is not None else ""
        self._skip = self._cursor
        """the entry that is printed first, and was read before"""
        self._taken_cursor = self._cursor
        """of the last entry that `poll` has returned"""
        self._waiting: list[bytes] = []
        """entries that wait for more, up to the linger: chunks with different cursors are not joined later"""
        self._size = 0
        self._due = 0.0
        self.runs = ChildRuns(self._command())
        self._cutters = {"stdout": LineCutter(lane), "stderr": LineCutter(lane)}

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        """Entries that are new."""
        if not self.runs.pid:
            self.runs.command = self._command()
            self._skip = self._cursor
        chunks: list[RecordChunk] = []
        for name, data in self.runs.read(most_bytes):
            if not data:  # an entry that is cut off is printed again
                self._cutters[name] = LineCutter(self._lane)
                continue
            for block in self._cutters[name].feed(data):
                if name == "stderr":
                    self.runs.last_words = block.payload.decode("utf-8", "backslashreplace").strip().rpartition("\n")[2][:200]
                else:
                    chunks += self._chunks(block)
        if self._waiting and (2 * self._size > self._lane.frame_bytes or time.monotonic() >= self._due):
            chunks += self._taken()
        return chunks

    def wait(self, timeout_s: float) -> None:
        """Until there is an entry, or the time is over."""
        if self._waiting:
            timeout_s = max(0.0, min(timeout_s, self._due - time.monotonic()))
        self.runs.wait(timeout_s)

    def report(self) -> InputReport:
        """Why the journal is not read, or what `journalctl` says of it."""
        message = self.runs.message
        if self.runs.pid:
            message = f"journalctl: {self.runs.last_words}" if self.runs.last_words else ""
        elif "cannot be started" in message:
            message += "; this host may have no systemd: then use another input"
        return InputReport(files=1 if self.runs.pid else 0, message=message)

    def close(self) -> None:
        """End `journalctl`."""
        self.runs.close()

    def _command(self) -> list[str]:
        options = self._lane.options
        command = ["journalctl", "--output=json", "--follow", "--all", "--no-pager"]
        if self._cursor:
            command += ["--no-tail", f"--cursor={self._cursor}"]
        else:
            command.append("--lines=0" if options.get("from") == "end" else "--no-tail")
        command += [f"--unit={unit}" for unit in options.get("units") or ()]
        return command + [str(match) for match in options.get("matches") or ()]

    def _chunks(self, block: RecordBlock) -> Iterator[RecordChunk]:
        entries = block.payload
        if block.kind == "records" and _NO_ENTRY.search(entries):
            entries = b"".join(line for line in entries.splitlines(keepends=True) if line.startswith(b"{"))
        if self._skip:
            first, feed, rest = entries.partition(b"\n")
            if cursor_of(first + feed) == self._skip:
                entries = rest
            self._skip = ""
        if not entries:
            return
        if block.kind != "records":
            yield from self._taken()
            yield self._chunk(block)
            return
        self._cursor = cursor_of(entries) or self._cursor
        if _NOT_TEXT.search(entries):
            lines = entries.split(b"\n")
            entries = b"\n".join(plain_entry(line) if _NOT_TEXT.search(line) else line for line in lines)
        if self._size + len(entries) > self._lane.frame_bytes:
            yield from self._taken()
        if not self._waiting:
            self._due = time.monotonic() + self._lane.linger_s
        self._waiting.append(entries)
        self._size += len(entries)

    def _taken(self) -> Iterator[RecordChunk]:
        """What has waited for more entries."""
        entries, self._waiting, self._size = b"".join(self._waiting), [], 0
        for piece in cut_lines(entries, self._lane):
            yield self._chunk(piece)

    def _chunk(self, block: RecordBlock) -> RecordChunk:
        self._taken_cursor = cursor_of(block.payload) or self._taken_cursor
        if block.kind != "records":
            self._cursor = self._taken_cursor
        origin = origin_of(self._lane, "journal", identity=IDENTITY, tags={CURSOR_TAG: self._taken_cursor})
        return RecordChunk(block.payload, block.count, origin, time.time_ns() // 1_000_000, kind=block.kind)


def open(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> JournalInput:  # noqa: ARG001
    """The input of a lane; its arguments are those of `scribengin.agent.inputs.open_input`."""
    return JournalInput(lane, positions)
