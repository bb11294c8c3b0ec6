"""Records as bytes: one JSON object, keys sorted, no blanks; a folder has no bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.errors import Refused
from scribengin.core.records import canonical
from scribengin.registry.contract import COMMIT_BYTES, RECORD_BYTES, Create, Replace, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.registry.contract import Write


def encode(path: str, value: Mapping[str, Any]) -> bytes:
    """A record's bytes. Raises Refused if there are more than RECORD_BYTES."""
    data = canonical(value) if value else b""
    if len(data) > RECORD_BYTES:
        largest = max(value, key=lambda key: len(canonical(value[key])))
        raise Refused(
            f"{shown(path)} would have {len(data):,} bytes, most of them in {largest!r}; up to {RECORD_BYTES:,} are allowed",
            remedy="keep only small shared values in the registry, and the rest in files",
            code="registry-large",
        )
    return data


def decode(data: bytes) -> dict[str, Any] | str:
    """The value; or why these bytes are not a record, in words that end a sentence. Records larger than those that are written can still be
    read."""
    if not data.strip():
        return {}
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"is not valid JSON: {error}"
    if not isinstance(value, dict):
        return f"is not a JSON object but {data[:60]!r}"
    number = value.get("format", 1)
    if type(number) is not int or number < 1:
        return f"has a format that is not a number of 1 or more: {number!r}"
    return value


def check_size(writes: Sequence[Write], data: Sequence[bytes]) -> None:
    """Raise Refused if the records of one commit have more than COMMIT_BYTES in total."""
    if (total := sum(map(len, data))) > COMMIT_BYTES:
        count = sum(isinstance(write, Create | Replace) for write in writes)
        raise Refused(
            f"{count} records of one commit have {total:,} bytes in total; up to {COMMIT_BYTES:,} are allowed",
            remedy="write them in several steps",
            code="registry-large",
        )


def data_of(writes: Sequence[Write]) -> list[bytes]:
    """The bytes of each write; none for those without a value. Raises Refused as `encode` and `check_size` do."""
    data = [encode(write.path, write.value) if isinstance(write, Create | Replace) else b"" for write in writes]
    check_size(writes, data)
    return data
