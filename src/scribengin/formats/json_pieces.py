"""Divides JSON lines into pieces, decodes each in one call, and checks that each line has exactly one record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scribengin.formats.blocks import count_lines, parts

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BYTES = 256 * 1024
"""how much is decoded at a time: small enough to stay in a core's cache, and to be taken again when a record is bad"""
_HIGH = np.uint8(0xF0)
"""a mask that maps every digit to the code of 0"""
REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
"""the errors that msgspec raises because of the data"""


def pieces(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Whole lines of about PIECE_BYTES, each with the number of lines before it. One piece of no bytes for no bytes."""
    if len(data) <= 2 * PIECE_BYTES:
        yield 0, data
        return
    start = first = 0
    while start < len(data):
        end = data.find(b"\n", min(start + PIECE_BYTES, len(data)) - 1) + 1 or len(data)
        piece = data[start:end]
        yield first, piece
        start, first = end, first + count_lines(piece)


def lines_of(piece: bytes) -> list[bytes]:
    r"""The lines without `\n`."""
    lines = piece.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def decode_whole(decoder: msgspec.json.Decoder[Any], data: bytes) -> list[Any] | int | None:
    """The records of `data` if all is well and each line holds exactly one; else the index of the line that msgspec stopped at, or
    None where that is not known."""
    if not data.isascii() and not _is_utf8(data):  # msgspec does not look into what it drops
        return None
    try:
        records = decoder.decode_lines(data)
    except REFUSED as error:
        return _stopped_at(str(error), data)
    return records if _one_a_line(data, len(records)) else None


_RECORD = re.compile(r" - at `(?:key` in `)?\$\[(\d+)\]")
_BYTE = re.compile(r"\(byte (\d+)\)\Z")


def _stopped_at(error: str, data: bytes) -> int | None:
    """The position in a message of msgspec: the record's index (each line before it has one record), or the byte."""
    if found := _RECORD.search(error):
        return int(found[1])
    if found := _BYTE.search(error):
        return data.count(b"\n", 0, int(found[1]))
    return None


def _is_utf8(data: bytes) -> bool:
    """Arrow's check reads some 15 GB/s, `bytes.decode` 2.5 (and creates a text that is not needed)."""
    import pyarrow as pa

    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _one_a_line(data: bytes, records: int) -> bool:
    """True if `data`, known to be `records` JSON objects with white space between, has exactly one on each line.

    No object spans a line end between `}` and `{`, because inside an object there would be a comma;
    so where all inner line ends do, each line has one object or more, and the count says that it is one.
    """
    if not data:
        return True
    if not data.startswith(b"{"):
        return False
    # the common case by comparisons alone: to find the places of line ends takes longer
    inner = between = 0
    for part in parts(data, 2):
        ends = part[1:-1] == ord("\n")
        inner += int(np.count_nonzero(ends))
        ends &= part[:-2] == ord("}")
        ends &= part[2:] == ord("{")
        between += int(np.count_nonzero(ends))
    if inner == between == records - 1:
        return True
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    ends = ends[:-1] if data.endswith(b"\n") else ends
    if len(ends) + 1 != records or not (octets[ends + 1] == ord("{")).all():
        return False
    before = octets[ends - 1]
    return bool((np.where(before == ord("\r"), octets[ends - 2], before) == ord("}")).all())


def long_times(data: bytes) -> bool:
    """True where a time of more than six decimals may stand in `data`: `:`, two signs, `.`, six more, and a digit."""
    for part in parts(data, 10):
        # a point, and seven bytes behind it a digit: of few other pairs this sum is the same
        sums = part[10:] & _HIGH
        sums += part[3:-7]
        if (sums == ord(".") + ord("0")).any():
            digits = part[10:] - np.uint8(ord("0")) < 10
            if (digits & (part[3:-7] == ord(".")) & (part[:-10] == ord(":"))).any():
                return True
    return False
