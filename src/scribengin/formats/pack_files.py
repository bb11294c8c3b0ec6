"""A file of packs, for channels that are folders: frames of a u32 length, little-endian, and a pack. Nothing ends the file, so that a crash
in the midst of writing costs the last frame and no other.

Frames cannot be found from the middle: a range begins where a frame begins.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, NamedTuple

from scribengin.formats.contract import Bad
from scribengin.formats.figures import PAYLOAD_BYTES
from scribengin.formats.pack_header import PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".packs"
FRAME_BYTES = 256 * 2**20
"""how long the pack of one frame may be"""
_LENGTH = struct.Struct("<I")


class PackFileEncoder:
    """Writes packs to one open file. It keeps nothing back: what the file has been given is whole frames."""

    suffix = SUFFIX

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, value: bytes) -> int:
        """Append one pack; returns how many bytes the file grew by. Raises OSError, ValueError for more than 256 MiB."""
        if not PREFIX_BYTES <= len(value) <= FRAME_BYTES:
            raise ValueError(f"a frame holds a pack of {PREFIX_BYTES} to {FRAME_BYTES} bytes, not {len(value)}")
        self._file.write(_LENGTH.pack(len(value)))
        self._file.write(value)
        return _LENGTH.size + len(value)

    def close(self) -> None:
        """Nothing ends the form. The caller flushes and syncs the file."""


class PackFrame(NamedTuple):
    """`offset` is where the frame begins. `value` is its pack; where `fault` says why there is none, the bytes from `offset` on, 64 KiB at
    most, and nothing behind it can be read."""

    offset: int
    value: bytes
    fault: Bad | None = None


def pack_frames(file: IO[bytes], start: int, end: int) -> Iterator[PackFrame]:
    """The frames of bytes `start`, where one begins, to `end`. No more than the range has is ever allocated. Raises OSError."""
    offset = start
    while offset < end:
        file.seek(offset)
        head = file.read(min(_LENGTH.size, end - offset))
        if len(head) < _LENGTH.size:
            fault = Bad(0, "truncated", f"the file ends within the length of the frame at {offset}")
            break
        (length,) = _LENGTH.unpack(head)
        if not PREFIX_BYTES <= length <= FRAME_BYTES:
            fault = Bad(0, "damaged", f"the frame at {offset} says {length} bytes; a pack has {PREFIX_BYTES} to {FRAME_BYTES}")
            break
        value = file.read(min(length, end - offset - _LENGTH.size))
        if len(value) < length:
            fault = Bad(0, "truncated", f"the frame at {offset} says {length} bytes, of which {len(value)} are there")
            break
        yield PackFrame(offset, value)
        offset += _LENGTH.size + length
    else:
        return
    file.seek(offset)
    yield PackFrame(offset, file.read(min(PAYLOAD_BYTES, end - offset)), fault)
