"""Tokens that are made while no control plane runs: a file in the home, from which the next master moves them into the registry."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations
from contextlib import contextmanager, suppress
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from scribengin.api.tokens import Tokens, make_token, taken, unknown
from scribengin.client.models import RoleName, TokenRow
from scribengin.core.errors import StateError
from scribengin.core.storage import explained, make_folder, read_or_none
from scribengin.registry.contract import Conflict
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import Token
from scribengin.registry.tree import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.registry.contract import Registry


class _Entry(msgspec.Struct, frozen=True):
    id: str
    name: str
    role: RoleName
    salt: str
    hash: str
    at: str
    labels: Mapping[str, str] = {}
    until: str = ""


class _Tokens(msgspec.Struct, frozen=True):
    tokens: tuple[_Entry, ...] = ()
    format: int = 1


class TokenFile:
    """A file of tokens. Its entries are not valid before a master has moved them (`move_to`). The file contains no secret."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, name: str, role: RoleName, labels: Mapping[str, str], *, until: str = "") -> str:
        """Add a token to the file; see `Tokens.add`."""
        made = make_token(name, role, labels, until=until)
        with self._writing() as before:
            if any(entry.name == name for entry in before.tokens):
                raise taken(name)
            record = made.record
            entry = _Entry(made.id, name, role, record.salt, record.hash, record.at, dict(labels), until)
            self._write(_Tokens((*before.tokens, entry)))
        return made.token

    def move_to(self, registry: Registry, skip: Callable[[str, str], None] = lambda _name, _why: None) -> list[str]:
        """Write the entries into the registry, to which they belong from then on. The file is renamed to `NAME.moved`.

        Args:
            registry: where tokens are.
            skip: called with the name of an entry that cannot be moved, and the reason; not for one that was revoked there.

        Returns:
            The names of those that were moved; entries that the registry already has, or that were revoked there, are left out.

        Raises:
            StateError: the file is not valid.
            Unreachable: the registry does not answer.
        """
        if read_or_none(self.path) is None:
            return []
        with self._writing() as mine:
            known = {row.name for row in Tokens(registry).rows()}
            moved = []
            for entry in mine.tokens:
                if not TOKEN.fits(entry.id):
                    skip(entry.name, f'its id "{entry.id}" is not a valid id of a token')
                    continue
                spot = TOKEN(entry.id)
                there = read_record(registry, spot)
                was_removed = isinstance(there, Stored) and "" < there.record.removed < entry.at
                if entry.name in known or (there is not None and not was_removed):
                    is_same = isinstance(there, Stored) and there.record.hash == entry.hash
                    if entry.name in known and not is_same:
                        skip(entry.name, "the registry has another token of that name")
                    continue
                kept = Token(
                    name=entry.name,
                    role=entry.role,
                    salt=entry.salt,
                    hash=entry.hash,
                    at=entry.at,
                    labels=entry.labels,
                    until=entry.until,
                )
                with suppress(Conflict):  # another master moves the same file
                    registry.commit(there.replace(kept) if isinstance(there, Stored) else spot.create(kept))
                    moved.append(entry.name)
            with explained(f"{self.path} cannot be moved aside"):
                self.path.replace(self.path.with_name(f"{self.path.name}.moved"))
        return moved

    def remove(self, name: str) -> None:
        """Remove a token from the file. Raises Refused if there is no token of that name."""
        with self._writing() as before:
            kept = tuple(entry for entry in before.tokens if entry.name != name)
            if len(kept) == len(before.tokens):
                raise unknown(name, [entry.name for entry in kept])
            self._write(_Tokens(kept))

    def rows(self) -> list[TokenRow]:
        """The entries, by name. Raises StateError if the file is not a valid file of tokens."""
        entries = sorted(self._read().tokens, key=lambda entry: entry.name)
        return [TokenRow(entry.id, entry.name, entry.role, entry.at, dict(entry.labels), entry.until) for entry in entries]

    def _read(self) -> _Tokens:
        data = read_or_none(self.path)
        if data is None:
            return _Tokens()
        try:
            return msgspec.json.decode(data, type=_Tokens)
        except msgspec.DecodeError as error:
            raise StateError(
                f"{self.path} is not a valid file of tokens: {error}",
                remedy="restore it, or delete it and make new ones: scribengin token add NAME --role ROLE",
                code="tokens",
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[_Tokens]:
        """Hold a lock, so that there is one writer at a time. Yields the present entries."""
        make_folder(self.path.parent)
        lock = self.path.with_name(f"{self.path.name}.lock")
        with explained(f"{lock} cannot be written"), lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield self._read()

    def _write(self, tokens: _Tokens) -> None:
        """Write the file atomically, readable by this user only."""
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
