"""Tokens: who may come in, as a file that holds no token. A token is shown once, when it is made; kept is what scrypt makes of it."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Mapping  # noqa: TC003  msgspec looks at it
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import msgspec

from scribengin.api.access import Role, Who
from scribengin.core.errors import Refused, StateError
from scribengin.core.moments import now_text
from scribengin.core.problems import did_you_mean
from scribengin.core.storage import explained, make_folder, read_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

RoleName = Literal["viewer", "operator", "editor", "admin"]
_TOKEN = re.compile(r"sgt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,62}")
_COST = 2**12
"""of scrypt, with blocks of 1 KiB: 4 MiB and some 10 ms. A token has 256 random bits, so that nobody can guess it at any cost"""
_REMEMBERED = 1_000


class _Entry(msgspec.Struct, frozen=True):
    id: str
    name: str
    role: RoleName
    salt: str
    hash: str
    at: str
    labels: Mapping[str, str] = {}


class _Tokens(msgspec.Struct, frozen=True):
    tokens: tuple[_Entry, ...] = ()
    format: int = 1


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token, without what opens a door."""

    id: str
    name: str
    role: RoleName
    at: str
    labels: Mapping[str, str] = field(default_factory=dict)


class TokenFile:
    """The file of one or several masters. It is read again when it has changed: a token that is removed opens nothing any more, at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._tokens: dict[str, _Entry] = {}
        self._proven: dict[bytes, str] = {}
        """SHA-256 of a token that was proven → its id: scrypt runs once for each"""

    def add(self, name: str, role: RoleName, labels: Mapping[str, str]) -> str:
        """Make a token, and give it: it can be had only now. Raises Refused for a name that is taken or that breaks the rule."""
        if not _NAME.fullmatch(name):
            raise Refused(f'"{name}" can be nobody\'s name', remedy=f"a name matches {_NAME.pattern}", code="token-name")
        with self._writing() as before:
            if any(entry.name == name for entry in before.tokens):
                raise Refused(
                    f'there is a token "{name}" already', remedy=f"remove it first: scribengin token remove {name}", code="token-name"
                )
            id_, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(32), secrets.token_bytes(16)
            now = now_text()
            entry = _Entry(id_, name, role, salt.hex(), _stretched(secret, salt).hex(), now, dict(labels))
            self._write(_Tokens((*before.tokens, entry)))
        return f"sgt_{id_}_{secret}"

    def remove(self, name: str) -> None:
        """From now on it opens nothing. Raises Refused where there is none of that name."""
        with self._writing() as before:
            kept = tuple(entry for entry in before.tokens if entry.name != name)
            if len(kept) == len(before.tokens):
                near = did_you_mean(name, [entry.name for entry in kept]) or "see: scribengin token list"
                raise Refused(f'there is no token "{name}"', remedy=near, code="token-name")
            self._write(_Tokens(kept))

    def rows(self) -> list[TokenRow]:
        """Those that there are, by name. Raises StateError where the file cannot be read as one of tokens."""
        entries = sorted(self._read().tokens, key=lambda entry: entry.name)
        return [TokenRow(entry.id, entry.name, entry.role, entry.at, entry.labels) for entry in entries]

    def prove(self, token: str) -> Who | None:
        """Whose it is; None where it is nobody's. Raises as `rows`."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        digest = hashlib.sha256(token.encode()).digest()
        with self._lock:
            self._refresh()
            entry = self._tokens.get(found[1])
            proven = self._proven.get(digest)
        if entry is None:
            return None
        if proven != entry.id:
            stretched = _stretched(found[2], bytes.fromhex(entry.salt))
            if not hmac.compare_digest(stretched, bytes.fromhex(entry.hash)):
                return None
            with self._lock:
                if len(self._proven) >= _REMEMBERED:
                    self._proven.clear()
                self._proven[digest] = entry.id
        return Who(entry.name, Role[entry.role.upper()], entry.labels)

    def _refresh(self) -> None:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._tokens, self._seen = {}, None
            return
        seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if seen != self._seen:
            self._tokens, self._seen = {entry.id: entry for entry in self._read().tokens}, seen
            self._proven.clear()

    def _read(self) -> _Tokens:
        data = read_or_none(self.path)
        if data is None:
            return _Tokens()
        try:
            return msgspec.json.decode(data, type=_Tokens)
        except msgspec.DecodeError as error:
            raise StateError(
                f"{self.path} is no file of tokens: {error}",
                remedy="restore it, or delete it and make new ones: scribengin token add",
                code="tokens",
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[_Tokens]:
        """One writer at a time."""
        make_folder(self.path.parent)
        lock = self.path.with_name(f"{self.path.name}.lock")
        with explained(f"{lock} cannot be written"), lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield self._read()

    def _write(self, tokens: _Tokens) -> None:
        """For this user alone, in one step."""
        draft = self.path.with_name(f".{self.path.name}.{uuid4().hex}")
        with explained(f"{self.path} cannot be written"):
            try:
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(msgspec.json.format(msgspec.json.encode(tokens)) + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(self.path)
            finally:
                draft.unlink(missing_ok=True)


def _stretched(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, n=_COST, r=8, p=1, maxmem=2**26)
