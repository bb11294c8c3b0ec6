"""The keys for encrypted packs: several at a time, so that a new key can encrypt while old keys still decrypt.

A keyring file has one line `ID BASE64` per key: 16, 24 or 32 bytes, for AES-128, AES-192 and AES-256. Empty lines and lines that begin with
`#` are ignored. The key of the last line encrypts; appending a line rotates keys without a stop, because the file is read again whenever it
has changed. A last line without a line feed may be incomplete: it counts only if its key has 16 or 32 bytes, which no part of a longer key
decodes to.

No error, `repr` or notice shows a key or a line, because users may swap the two words.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import ScribenginError, SinkError, SourceError, Unreachable
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_BYTES = (16, 24, 32)
FILE_BYTES = 1024 * 1024
"""the maximum size of a keyring file"""
_ID = re.compile(r"[A-Za-z0-9_.\-]{1,64}\Z")
_HOW = "a line is `ID BASE64`, such as `k1 ` followed by the output of `openssl rand -base64 32`"

_Sign = tuple[int, int, int]
"""(mtime_ns, size, inode)"""


class _KeyringError(ValueError):
    """An error in a keyring, with its remedy; the caller makes it an error of a source or of a sink."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class Keyring:
    """Keys by their ids, and the one that encrypts. `Keyring(path)` reads a file, `Keyring.of(keys, use)` uses the keys themselves.

    The file is read when a key is first needed. Pickling includes the path, not the content, and the receiver reads the file again; keys
    that were passed directly are pickled with their values. Safe for several threads.
    """

    def __init__(self, path: str | Path) -> None:
        self._path: Path | None = Path(path)
        self._given: Mapping[str, Secret | str] = {}
        self._use: str | None = None
        self._read: tuple[_Sign, _Keys] | None = None

    @classmethod
    def of(cls, keys: Mapping[str, Secret | str], use: str | None = None) -> Keyring:
        """Build it from keys in base64. `use` is the id of the key that encrypts; it may be left out for a single key.

        Raises SourceError with the code `keyring` for an invalid key or id, and for a `use` that is not one of the ids.
        """
        ring = cls.__new__(cls)
        ring._path, ring._given, ring._use, ring._read = None, dict(keys), use, None
        try:
            ring._keys()
        except _KeyringError as error:
            raise SourceError(f"the keys: {error}", remedy=error.remedy, code="keyring") from None
        return ring

    def writing(self) -> tuple[str, bytes]:
        """(id, key) of the key that encrypts now. Raises SinkError with the code `keyring` if the file does not determine it."""
        try:
            keys = self._keys()
        except FileNotFoundError:
            raise SinkError(
                f"the keyring {self._path} does not exist", remedy="create it: " + _HOW + "; or correct `keyring:`", code="keyring"
            ) from None
        except (OSError, _KeyringError) as error:
            raise self._as_fault(error, SinkError) from None
        return keys.writes, keys.by_id[keys.writes]

    def key(self, id: str) -> bytes:
        """The key of that id.

        Raises Unreachable with the code `key-missing` if the file or the key does not exist; the engine then retries, so no record is lost.
        Raises SourceError with the code `keyring` for a file that is not a keyring or cannot be read.
        """
        remedy = f"restore the key {id}; no data is lost: packs encrypted with it stay in the channel, and the Batch is retried"
        try:
            keys = self._keys()
        except FileNotFoundError:
            raise Unreachable(
                f"the keyring {self._path} does not exist; its key {id} is needed", remedy=remedy, code="key-missing"
            ) from None
        except (OSError, _KeyringError) as error:
            raise self._as_fault(error, SourceError) from None
        if id not in keys.by_id:
            raise Unreachable(f"{self} does not have key {id}; found {', '.join(keys.by_id)}", remedy=remedy, code="key-missing")
        return keys.by_id[id]

    def notices(self) -> list[str]:
        """Warnings on the keyring. Empty for keys that were passed directly, and for a missing file."""
        if self._path is None:
            return []
        found = []
        try:
            if stat.S_IMODE(self._path.stat().st_mode) & 0o077:
                found.append(f"users other than the owner can read or write the keyring {self._path}; run: chmod 600 {self._path}")
            if (line := self._keys().unfinished) is not None:
                found.append(f"line {line} of the keyring {self._path} is not used yet: it has no line feed and is not a complete key")
        except (OSError, _KeyringError):
            pass  # `writing` and `key` report it
        return found

    def __repr__(self) -> str:
        return f"the keyring {self._path}" if self._path is not None else f"the keys {', '.join(self._given)}"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self._path, "given": self._given, "use": self._use}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path, self._given, self._use, self._read = state["path"], state["given"], state["use"], None

    def _keys(self) -> _Keys:
        """The keys, read again if the file has changed. Raises OSError and _KeyringError."""
        if self._path is None:
            if self._read is None:
                self._read = (0, 0, 0), _of_mapping(self._given, self._use)
            return self._read[1]
        read = self._read
        if read is None or read[0] != _sign(self._path.stat()):
            with self._path.open("rb") as file:
                # from the open file, and before it is read: what is appended meanwhile is read the next time
                sign = _sign(os.fstat(file.fileno()))
                data = file.read(FILE_BYTES + 1)
            self._read = read = sign, _of_file(data)
        return read[1]

    def _as_fault(self, error: OSError | _KeyringError, kind: type[ScribenginError]) -> ScribenginError:
        if isinstance(error, _KeyringError):
            return kind(f"{self}: {error}", remedy=error.remedy, code="keyring")
        return kind(f"{self} cannot be read: {error.strerror or error}", remedy="allow the flow's user to read it", code="keyring")


class _Keys:
    """The content of a keyring. `unfinished` is the number of a last line that is ignored because it may be incomplete."""

    __slots__ = ("by_id", "unfinished", "writes")

    def __init__(self, by_id: Mapping[str, bytes], writes: str, unfinished: int | None = None) -> None:
        self.by_id = by_id
        self.writes = writes
        self.unfinished = unfinished

    def __repr__(self) -> str:
        return f"<{', '.join(self.by_id)}; {self.writes} writes>"


def _sign(found: os.stat_result) -> _Sign:
    return found.st_mtime_ns, found.st_size, found.st_ino


def _of_file(data: bytes) -> _Keys:
    if len(data) > FILE_BYTES:
        raise _KeyringError(f"it is longer than {FILE_BYTES} bytes", "write the path of a keyring: " + _HOW)
    by_id: dict[str, bytes] = {}
    writes, unfinished = None, None
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8", "replace").strip()
        if not text or text.startswith("#"):
            continue
        last = number == len(lines)
        try:
            id, key = _of_line(text)
            if last and len(key) == 24:
                raise _KeyringError(
                    "has no line feed, so its key of 24 bytes may be part of a key of 32 bytes", "end the line with a line feed"
                )
            if by_id.get(id, key) != key:
                raise _KeyringError("has the id of an earlier line, but another key", "give each key its own id")
        except _KeyringError as error:
            if last and by_id:
                unfinished = number
                continue
            raise _KeyringError(f"line {number} {error}", error.remedy) from None
        by_id[id] = key
        writes = id
    if writes is None:
        raise _KeyringError("it has no key", "add one: " + _HOW)
    return _Keys(by_id, writes, unfinished)


def _of_mapping(given: Mapping[str, Secret | str], use: str | None) -> _Keys:
    by_id = {}
    for number, (id, value) in enumerate(given.items(), 1):
        try:
            _, by_id[id] = _of_line(f"{id} {value.reveal() if isinstance(value, Secret) else value}")
        except _KeyringError as error:
            raise _KeyringError(f"the {number}. {error}", error.remedy) from None
    if not by_id:
        raise _KeyringError("there is no key", "add one: {k1: ${secret:env/KEY}}")
    if use is None:
        if len(by_id) > 1:
            raise _KeyringError(
                f"there are {len(by_id)}, but no `use` that names the one that encrypts", f"add `use:` {' or '.join(by_id)}"
            )
        use = next(iter(by_id))
    if use not in by_id:
        raise _KeyringError(f"`use: {use}` is not one of the keys; they are {', '.join(by_id)}", "use one of them, or add the key")
    return _Keys(by_id, use)


def _of_line(text: str) -> tuple[str, bytes]:
    words = text.split()
    if len(words) != 2:
        raise _KeyringError(f"has {len(words)} {'word' if len(words) == 1 else 'words'}; expected `ID BASE64`", _HOW)
    id, value = words
    if not _ID.match(id):
        raise _KeyringError("does not begin with a valid id: 1 to 64 letters, digits, `_`, `.`, `-`", _HOW)
    try:
        key = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _KeyringError("has a key that is not valid base64", _HOW) from None
    if len(key) not in KEY_BYTES:
        raise _KeyringError(f"has a key of {len(key)} bytes; keys have 16, 24 or 32", _HOW)
    return id, key
