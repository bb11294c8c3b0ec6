"""The tokens of the API, as records of the registry that contain only hashes.

A token is shown once, when it is made; only its scrypt hash is stored. All masters read the same records, again for each request: a revoked
token is rejected everywhere at once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.api.auth import Role, Who, invalid_token
from scribengin.client.models import TokenRow
from scribengin.control.record_validation import again
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.core.time_text import now_text
from scribengin.registry.contract import Conflict, Delete, Replace
from scribengin.registry.record_io import Stored, names, read_record, read_records
from scribengin.registry.records import ConsoleSession, Token
from scribengin.registry.tree import SESSION, TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scribengin.client.models import RoleName
    from scribengin.registry.contract import Registry
    from scribengin.registry.record_io import Spot

_TOKEN = re.compile(r"sgt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,62}")
_COST = 2**12
"""cost of scrypt, with blocks of 1 KiB: 4 MiB and some 10 ms. A token has 256 random bits, so that it cannot be guessed whatever the
cost"""
_REMEMBERED = 10_000
_FOLDER, _SESSIONS = "tokens", "sessions"
SESSION_S = 12 * 3600
"""seconds until a browser's session is over"""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token, and its record under `id`. The id is derived from the name: a name has one token at a time."""

    id: str
    token: str
    record: Token


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A new session of a browser: its secret, which is available only now, and its user."""

    secret: str
    until: str
    who: Who


class TokenProver:
    """Verifies tokens. Thread-safe. scrypt runs once for each token.

    Args:
        read: id → the record of the token; None if there is none.
    """

    def __init__(self, read: Callable[[str], Token | None]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._proven: dict[bytes, str] = {}
        """SHA-256 of a verified token → its stored hash"""

    def prove(self, token: str) -> Token | None:
        """The record of a token; None if the token is unknown, revoked or expired."""
        found = _TOKEN.fullmatch(token)
        kept = None if found is None else self._read(found[1])
        if found is None or kept is None or not kept.hash or _is_over(kept.until):
            return None
        digest = hashlib.sha256(token.encode()).digest()
        with self._lock:
            proven = self._proven.get(digest)
        if proven != kept.hash:
            try:
                stretched = _stretched(found[2], bytes.fromhex(kept.salt))
                same = hmac.compare_digest(stretched, bytes.fromhex(kept.hash))
            except ValueError:  # the record was written by hand
                return None
            if not same:
                return None
            with self._lock:
                if len(self._proven) >= _REMEMBERED:
                    self._proven.clear()
                self._proven[digest] = kept.hash
        return kept


class Tokens:
    """The tokens of a registry. Thread-safe."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._prover = TokenProver(self._record)

    def add(self, name: str, role: RoleName, labels: Mapping[str, str], *, until: str = "", by: str = "") -> str:
        """Make a token.

        Args:
            name: its name.
            role: its role.
            labels: it has access only to flows with all of these; empty: all flows.
            until: its expiry, ISO 8601 with a zone; empty: it does not expire.
            by: the user, for the record.

        Returns:
            The token, which is available only now.

        Raises:
            Refused: the name is taken or not valid, or the expiry is not valid.
        """
        made = make_token(name, role, labels, until=until, by=by)

        def attempt() -> None:
            if any(row.name == name for row in self.rows()):
                raise taken(name)
            there = self._registry.read(TOKEN(made.id).path)
            spot = TOKEN(made.id)
            self._registry.commit(spot.create(made.record) if there is None else Replace(there, made.record.dump()))

        again(attempt)
        return made.token

    def remove(self, name: str) -> None:
        """Revoke a token. Raises Refused if there is no token of that name."""

        def attempt() -> None:
            found = [each for each in self._stored() if each.record.name == name]
            if not found:
                raise unknown(name, [row.name for row in self.rows()])
            self._registry.commit(*(each.replace(replace(each.record, hash="", salt="", removed=now_text())) for each in found))

        again(attempt)

    def rows(self) -> list[TokenRow]:
        """The tokens by name, expired ones included."""
        found = [
            TokenRow(each.entry.path.rpartition("/")[2], record.name, record.role, record.at, dict(record.labels), record.until)
            for each in self._stored()
            for record in [each.record]
        ]
        return sorted(found, key=lambda row: row.name)

    def there(self) -> bool:
        """True if there is any token that gives access to the API, as far as the registry's client has seen."""
        return any(each.record.role != "agent" for each in self._stored())

    def prove(self, token: str) -> Who | None:
        """The caller to whom a token belongs; None if the token is unknown or expired. It uses what the registry's client has seen: call
        `sync` before."""
        kept = self._prover.prove(token)
        return None if kept is None else _who(kept)

    # Sessions of browsers. A session has a secret of its own, so that the token is not kept where web pages are.

    def open_session(self, token: str) -> OpenedSession:
        """Open a session with a token. Sessions that are over are deleted. Raises Refused if the token is unknown or expired, or gives no
        access to the API."""
        kept = self._prover.prove(token)
        if kept is None:
            raise invalid_token()
        _who(kept).check(Role.VIEWER)
        now = datetime.now(UTC)
        secret, until = secrets.token_urlsafe(32), (now + timedelta(seconds=SESSION_S)).isoformat(timespec="seconds")
        spots = [SESSION(name) for name in names(self._registry, _SESSIONS) if SESSION.fits(name)]
        over = [each for each in read_records(self._registry, spots) if isinstance(each, Stored) and _is_over(each.record.until)]
        for each in over:
            with suppress(Conflict):  # another master has deleted it
                self._registry.commit(Delete(each.entry.path))
        id_ = token.removeprefix("sgt_")[:12]
        self._registry.commit(_session(secret).create(ConsoleSession(token=id_, at=now.isoformat(timespec="seconds"), until=until)))
        return OpenedSession(secret, until, _who(kept))

    def prove_session(self, secret: str) -> Who | None:
        """The user of a session; None if the session is over, or its token was revoked. It uses what the registry's client has seen: call
        `sync` before."""
        there = read_record(self._registry, _session(secret))
        if not isinstance(there, Stored) or _is_over(there.record.until) or not TOKEN.fits(there.record.token):
            return None
        kept = self._record(there.record.token)
        return None if kept is None or not kept.hash or _is_over(kept.until) else _who(kept)

    def close_session(self, secret: str) -> None:
        """End a session, if it is not over."""
        with suppress(Conflict):
            self._registry.commit(Delete(_session(secret).path))

    def _record(self, id_: str) -> Token | None:
        there = read_record(self._registry, TOKEN(id_))
        return there.record if isinstance(there, Stored) else None

    def _stored(self) -> list[Stored[Token]]:
        ids = [name for name in names(self._registry, _FOLDER) if TOKEN.fits(name)]
        found = read_records(self._registry, [TOKEN(id_) for id_ in ids])
        return [each for each in found if isinstance(each, Stored) and each.record.hash]


def make_token(name: str, role: RoleName, labels: Mapping[str, str], *, until: str = "", by: str = "") -> IssuedToken:
    """A new token, which is not stored yet; see `Tokens.add`."""
    if not _NAME.fullmatch(name):
        raise Refused(f'"{name}" is not a valid name of a token', remedy=f"a name matches {_NAME.pattern}", code="token-name")
    if until and _time(until) is None:
        raise Refused(
            f'"{until}" is not a valid time', remedy="write ISO 8601 with a zone, such as 2027-01-31T12:00:00+00:00", code="token-until"
        )
    id_ = hashlib.sha256(name.encode()).hexdigest()[:12]
    secret, salt = secrets.token_urlsafe(32), secrets.token_bytes(16)
    record = Token(
        name=name, role=role, salt=salt.hex(), hash=_stretched(secret, salt).hex(), at=now_text(), by=by, labels=dict(labels), until=until
    )
    return IssuedToken(id_, f"sgt_{id_}_{secret}", record)


def taken(name: str) -> Refused:
    """The error for a name that is taken."""
    return Refused(f'there is a token "{name}" already', remedy=f"remove it first: scribengin token remove {name}", code="token-taken")


def unknown(name: str, known: Iterable[str]) -> Refused:
    """The error for an unknown name."""
    near = did_you_mean(name, list(known)) or "see: scribengin token list"
    return Refused(f'there is no token "{name}"', remedy=near, code="token-unknown-name")


def shown_record(value: Mapping[str, object]) -> dict[str, object]:
    """A token's record for display, without the values that would help to guess the token."""
    return {key: each for key, each in value.items() if key not in ("salt", "hash")}


def _session(secret: str) -> Spot[ConsoleSession]:
    return SESSION(hashlib.sha256(secret.encode()).hexdigest())


def _who(token: Token) -> Who:
    return Who(token.name, Role[token.role.upper()], token.labels)


def _is_over(until: str) -> bool:
    """True if the time has passed; an invalid time, written by hand, counts as passed."""
    if not until:
        return False
    end = _time(until)
    return end is None or datetime.now(UTC) >= end


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _stretched(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, n=_COST, r=8, p=1, maxmem=2**26)
