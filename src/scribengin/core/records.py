"""Sealed records: small JSON files with a kind, a format number and a checksum, so that a torn or edited one is detected.

`{"kind":"decision","format":1,"crc32":"0badcafe","body":…}`: the checksum covers the body's bytes as they are in the file.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgspec

from scribengin.core.errors import StateError
from scribengin.core.remedies import start_over

_ENCODER = msgspec.json.Encoder(order="deterministic")
_HEAD = re.compile(rb'\{"kind":"([a-z-]+)","format":([1-9]\d*),"crc32":"([0-9a-f]{8})","body":')
_END = b"}\n"


def canonical(body: Any) -> bytes:
    """The canonical JSON text of a value: keys sorted, no blanks."""
    return _ENCODER.encode(body)


def seal(kind: str, format: int, body: Any) -> bytes:
    """The bytes of a record.

    Args:
        kind: The kind of the record: lower-case words, joined by `-`.
        format: The number of its format, from 1.
        body: JSON (texts, numbers, lists, mappings with text keys).
    """
    text = canonical(body)
    return b'{"kind":"%s","format":%d,"crc32":"%08x","body":' % (kind.encode(), format, zlib.crc32(text)) + text + _END


class NewerRecord(StateError):
    """A record that a newer version has written. It is not damaged: the newer version reads it."""


def unseal(data: bytes, kind: str, format: int, where: object, *, without: str = "") -> Any:
    """The body of a record.

    Args:
        data: The bytes of the record.
        kind: The expected kind.
        format: The newest format that is accepted.
        where: The place of the record, for messages.
        without: What to do if there is no backup; the default is to start over.

    Raises:
        StateError: The record is torn, edited, or of another kind; a NewerRecord if it has a newer format.
    """
    head = _HEAD.match(data)
    remedy = f"restore the file from a backup; without one, {without or start_over()}"
    if head is None or not data.endswith(_END):
        raise StateError(f"{where} is torn: its {len(data)} bytes are not a valid {kind} record", remedy=remedy)
    found, number, crc = head[1].decode(), int(head[2]), head[3].decode()
    if found != kind:
        raise StateError(f"{where} holds a {found} record; expected a {kind} record", remedy=remedy)
    if number > format:
        raise NewerRecord(
            f"{where} was written by a newer Scribengin (format {number}; this version reads up to {format})",
            remedy="run the newer version",
        )
    text = data[head.end() : -len(_END)]
    if f"{zlib.crc32(text):08x}" != crc:
        raise StateError(f"{where} was changed after it was written: its checksum is {zlib.crc32(text):08x}; expected {crc}", remedy=remedy)
    return msgspec.json.decode(text)
