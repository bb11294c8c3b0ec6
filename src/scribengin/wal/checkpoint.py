"""What a log keeps beside its frames: who it is (`log.json`), how far it is durable and acknowledged (`durable`), and the positions of
files whose frames are no longer in it (`checkpoint`)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import google_crc32c
import msgspec

from scribengin.core.errors import StateError
from scribengin.wire.frames import FrameOrigin  # noqa: TC001  msgspec evaluates the annotations

if TYPE_CHECKING:
    from scribengin.wal.files import LogFolder

FORMAT = 1
_LOG, _CHECKPOINT, _MARKS = "log.json", "checkpoint", "durable"
_NEW_FOLDER = "move the folder away: the agent then starts a new log, and reads files again from their beginning"


class LogIdentity(msgspec.Struct, frozen=True):
    """The content of `log.json`, which never changes."""

    format: int
    incarnation: str
    base: int = 0
    """the number of the first record that the log ever had"""


class LogCheckpoint(msgspec.Struct, frozen=True):
    """Positions as they are after the records before `at`, all of which were durable when it was written."""

    incarnation: str
    at: int
    acknowledged: int
    positions: dict[str, FrameOrigin]


def read_identity(folder: LogFolder) -> LogIdentity | None:
    """The identity of the log in a folder; None if there is none. Raises StateError if it cannot be read, or has a newer format."""
    data = folder.content(_LOG)
    if data is None:
        return None
    where = folder.path / _LOG
    try:
        identity = msgspec.json.decode(data, type=LogIdentity)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StateError(f"{where} is damaged, so the log has no identity: {error}", remedy=_NEW_FOLDER) from None
    if identity.format != FORMAT:
        found = f"{where}: a log of format {identity.format}; this release reads format {FORMAT}"
        raise StateError(found, remedy=f"run the release that wrote it, or {_NEW_FOLDER}")
    return identity


def write_identity(folder: LogFolder, identity: LogIdentity) -> None:
    """Write it durably."""
    folder.put(_LOG, msgspec.json.encode(identity) + b"\n")


def no_identity(folder: LogFolder, name: str) -> StateError:
    """The error if there are segments and no identity."""
    return StateError(f"{folder.path / _LOG} is missing, and {name} is there: the log has no identity", remedy=_NEW_FOLDER)


def read_checkpoint(folder: LogFolder, incarnation: str) -> tuple[LogCheckpoint | None, str]:
    """The checkpoint, and what is wrong with it; None if it is missing or cannot be used."""
    data = folder.content(_CHECKPOINT)
    if data is None:
        return None, ""
    crc, _, body = data.partition(b"\n")
    fault = f"{folder.path / _CHECKPOINT} is damaged"
    try:
        if int(crc, 16) != google_crc32c.value(body):
            return None, fault
        checkpoint = msgspec.json.decode(body, type=LogCheckpoint)
    except (msgspec.MsgspecError, ValueError):
        return None, fault
    return (checkpoint, "") if checkpoint.incarnation == incarnation else (None, f"{folder.path / _CHECKPOINT} is of another log")


def write_checkpoint(folder: LogFolder, checkpoint: LogCheckpoint) -> int:
    """Write it durably; returns its bytes. Raises OSError."""
    body = msgspec.json.encode(checkpoint)
    data = b"%08x\n%b" % (google_crc32c.value(body), body)
    folder.put(_CHECKPOINT, data)
    return len(data)


class DurableMark:
    """How far the log is durable and acknowledged, in a file of two places that are written in turn: whatever a crash does to the one being
    written, the other one holds.

    Frames are read, and so sent, only when the mark is durable too. Therefore damage after the mark is what a power loss did to bytes that
    no gateway has seen: they are cut, and their numbers used again. Damage before it is a loss, and is reported as one.
    """

    _PLACE = struct.Struct("<4sQQQ")
    _MAGIC = b"SGM1"
    _APART = 4096
    """bytes between the places, so that one write of the disk never meets both"""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._turn = 0
        self._handle = -1

    def create(self) -> None:
        """Make the file, durably, with everything at zero."""
        self._handle = self._folder.open(_MARKS, create=True)
        self._folder.write(self._handle, bytes(2 * self._APART), 0)
        self.write(0, 0)

    def read(self) -> tuple[int, int] | None:
        """The newest mark: durable and acknowledged; None if it cannot be read, and then the file is made anew by `write`."""
        found = []
        data = self._folder.content(_MARKS) or b""
        for at in (0, self._APART):
            place = data[at : at + self._PLACE.size]
            crc = data[at + self._PLACE.size : at + self._PLACE.size + 4]
            if len(crc) == 4 and int.from_bytes(crc, "little") == google_crc32c.value(place) and place.startswith(self._MAGIC):
                _, turn, durable, acknowledged = self._PLACE.unpack(place)
                found.append((turn, durable, acknowledged))
        if not found:
            return None
        self._turn, durable, acknowledged = max(found)
        return durable, acknowledged

    def write(self, durable: int, acknowledged: int, *, sync: bool = True) -> None:
        """Set the mark. Without `sync` a crash of the machine may bring back the one before. Raises OSError; then either one holds."""
        if self._handle < 0:
            try:
                self._handle = self._folder.open(_MARKS)
            except FileNotFoundError:
                self._handle = self._folder.open(_MARKS, create=True)
                self._folder.sync_names()
        turn = self._turn + 1
        place = self._PLACE.pack(self._MAGIC, turn, durable, acknowledged)
        data = place + google_crc32c.value(place).to_bytes(4, "little")
        self._folder.write(self._handle, data, self._APART * (turn % 2))
        if sync:
            self._folder.sync(self._handle)
            self._turn = turn

    def close(self) -> None:
        """Give up the file."""
        if self._handle >= 0:
            self._folder.close(self._handle)
            self._handle = -1
