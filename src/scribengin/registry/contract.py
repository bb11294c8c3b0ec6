"""The contract of the registry: small records on paths below one root, shared by masters, workers and operators. The control plane is built
on it.

Records
    A record is one JSON object of at most `RECORD_BYTES`, written with sorted keys. `format` is its format number (1 if it is absent).
    A folder is a record too, an empty one: `{}`. Missing folders above a new record are created with it. A value that cannot be read
    as a record is `Damaged`: a value like any other, never an exception (`registry.record_io` sets it aside). A program that replaces a
    record keeps keys that it does not know, and leaves unknown children unchanged; a record of a newer format is not replaced.

Writes
    `commit` does all its writes or none, in one atomic step. A `Replace` is based on the value that was read and succeeds only
    if that value is still present (compare-and-set); so does a `Require`, which writes nothing.

Terms
    A `Term` is a right to write that a newer one ends: the leader's, or that of a tier's lease (`registry.lease`). `commit(…, term=…)`
    checks the right *in the same step* as it writes, so a writer that was suspended, was cut off, or does not know its successor yet,
    changes nothing and gets FencedError. Never check the right first and write afterwards: it may end between the two.
    `Term.number` increases with each holder, and can fence other things, too (a topic, a folder, a table).

Sessions
    A client has a session. Its ephemeral records exist as long as the session. A session is CONNECTED; SUSPENDED while no server answers:
    it may still be alive, and so may its records; LOST once a server has reported its end, or the client was closed. SUSPENDED is not LOST.
    The least time for which a session lives is known from the client's own clock: `RegistrySession.left_s`, counted from the last request
    that was *sent* and answered, so that a process that was suspended and resumed needs no request to know it. A new session, with another
    id, replaces a lost one automatically; ephemeral records are not restored.
    That clock decides when to stop, not which process may write: a server that dies can forget the last half tick, and clocks drift. Terms
    decide.

Reading
    A client never reads anything older than what it has read or written before, whichever server answers, also in a new session. To see
    what *other clients* have written, `sync` first. A revision numbers the states of the whole registry: `sync(at_least=r)` before reading,
    with `r` from another client's write, shows that write.

Watching
    A watch calls `wake` some time after the record, or the names of its children, may have changed, and whenever the session was suspended,
    resumed or lost. It gives no other information: read again, and decide from what is read. Several changes may give one call, and a call
    may come without a change. `wake` runs in a thread of the client: it sets an event or fills a queue, and never calls the registry.

Failing
    Unreachable: nothing was done; try again. Unsettled (an Unreachable): the connection broke during a commit, which may have taken
    effect: read with this client to see whether it did. Conflict: the record is not the one that was read. Forbidden: this client has no
    access right for this. After all of these the client can still be used.

Two modules implement it: `registry.zookeeper` and, for tests, `registry.memory`. `tests/registry` tests every sentence above on both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, Flag
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.core.errors import EnvironmentFault, FencedError, Refused, ScribenginError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

RECORD_BYTES = 100_000
"""limit of one record in bytes; with large records ZooKeeper answers slowly, and takes long to start"""
COMMIT_BYTES = 900_000
"""limit of all records of one commit in bytes; a ZooKeeper closes the connection over a message of 1 MiB"""

_NAME = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+")
"""the characters that ZooKeeper accepts in a name"""


class Conflict(ScribenginError):
    """The record at `path` is not the one that the writer has read: nothing was written. Read again and decide again."""

    code = "registry-conflict"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{shown(path)} {what}", remedy="read it again and repeat the change on its present version")
        self.path = path


class Unsettled(Unreachable):
    """The connection broke during a commit: it took effect wholly, or not at all. Read the records to see which."""

    code = "registry-unsettled"


class Forbidden(EnvironmentFault):
    """This client's login has no access right for the operation, or was rejected."""

    code = "registry-forbidden"


class May(Flag):
    """Access rights on one record. CREATE and DELETE concern its children; ADMIN concerns the access rights themselves."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


@dataclass(frozen=True, slots=True)
class Grant:
    """The access rights of one login. `who` is in ZooKeeper's form: `digest:user:HASH`, `sasl:name`, `x509:CN=…` or `world:anyone`."""

    who: str
    may: May

    def __str__(self) -> str:
        return f"{self.who} ({', '.join(str(right.name).lower() for right in May if right in self.may)})"


ANYONE = "world:anyone"


class SessionState(Enum):
    """The state of a session's connection."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RegistrySession:
    """A client's session at one moment. `left_s`: seconds for which it certainly lives; 0 or less once it may have expired. `servers`:
    those of the registry, as `host:port`; none for one in memory."""

    id: int
    link: SessionState
    left_s: float
    servers: tuple[str, ...] = ()

    @property
    def lives(self) -> bool:
        """True if the session certainly lives now."""
        return self.link is not SessionState.LOST and self.left_s > 0


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A server of the registry. `mode`: `leader`, `follower`, `observer` or `standalone`; empty if it does not serve, and `problem` says
    why. `version`: its release. `clients`: its number of connections."""

    server: str
    mode: str = ""
    version: str = ""
    clients: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """A record as it was read.

    Attributes:
        path: its path.
        value: the JSON object.
        version: the number of its replacements.
        made: the revision of its creation.
        changed: the revision of its last change.
        session: the session of an ephemeral record; 0 for others.
        revision: the record had this value at this revision, or later.
    """

    path: str
    value: Mapping[str, Any]
    version: int
    made: int
    changed: int
    session: int
    revision: int

    @property
    def format(self) -> int:
        """The format number of its value."""
        number: int = self.value.get("format", 1)
        return number


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record whose value cannot be read. `why` is the end of a sentence: "is not valid JSON: …"."""

    path: str
    raw: bytes
    why: str
    version: int
    changed: int
    session: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a record; missing folders above it are created. Raises a Conflict if the record exists already, even as a folder.

    It has the access rights of the record above it, and `grants` in addition; its creator therefore needs CREATE there, and ADMIN to read
    them. An ephemeral record is removed with this client's session, and has no children. For a `numbered` one the path is a prefix: ten
    digits follow, higher than those of all earlier ones in its folder.
    """

    path: str
    value: Mapping[str, Any]
    ephemeral: bool = False
    numbered: bool = False
    grants: tuple[Grant, ...] = ()


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace the value that was read. Raises Refused if that has a newer format, which may contain what this program does not know."""

    was: RegistryEntry | Damaged
    value: Mapping[str, Any]

    def __post_init__(self) -> None:
        written = self.value.get("format", 1)
        if isinstance(self.was, RegistryEntry) and self.was.format > written:
            raise Refused(
                f"{shown(self.was.path)} was written by a newer Scribengin (format {self.was.format}, this one writes {written}): "
                "it is left unchanged",
                remedy="run the newer version",
                code="registry-newer-format",
            )

    @property
    def path(self) -> str:
        """The path of the record."""
        return self.was.path


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a record that has no children. With `version`, only if it has this version."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Require:
    """Commit the other writes only if this record exists and, with `version`, has this version."""

    path: str
    version: int | None = None


Write = Create | Replace | Delete | Require


@dataclass(frozen=True, slots=True)
class Term:
    """A right to write. `right` is the path of the ephemeral record of its holder, `number` the revision that created that record. `fence`
    is the version of the record `fence_of(right)`, which each new holder replaces: a commit can check it."""

    right: str
    number: int
    fence: int


@dataclass(frozen=True, slots=True)
class CommittedWrite:
    """The result of a commit. `revision`: a client that has synced to it sees the writes. `paths`: the final path of each write, in
    order."""

    revision: int
    paths: tuple[str, ...]


class RegistryWatch(Protocol):
    """An active watch."""

    def close(self) -> None:
        """End the watch; a call to `wake` that is under way may still finish after that."""


class Registry(Protocol):
    """A client of the registry. Every method may be called from any thread. Paths are relative to the root (`flows/tweets/desired`; the
    root is ``). `read`, `children`, `sync` and `commit` wait for a server up to the session's time and then raise Unreachable; in a closed
    client they raise it at once."""

    def read(self, path: str) -> RegistryEntry | Damaged | None:
        """The record; None if it does not exist."""

    def read_many(self, paths: Sequence[str]) -> list[RegistryEntry | Damaged | None]:
        """The records, in the order of the paths, in few requests. Each is as it was at some moment of this call, not all at the same
        moment."""

    def children(self, path: str) -> tuple[str, ...]:
        """The names one level below, sorted; empty if the record does not exist."""

    def children_many(self, paths: Sequence[str]) -> list[tuple[str, ...]]:
        """The names below each path, in few requests; see `read_many`."""

    def commit(self, *writes: Write, term: Term | None = None) -> CommittedWrite:
        """Do all writes or none, under a Term if one is given. See *Writes*, *Terms* and *Failing* above. Raises Refused before anything is
        sent if a record, or all of them, are too large."""

    def sync(self, *, at_least: int | None = None) -> int:
        """Wait until everything is visible that was committed before this call, or before the revision `at_least`. The latter costs no
        request if this client has reached it. Returns the revision that is reached; later reads see this one or a newer one."""

    def watch(self, path: str, wake: Callable[[], None]) -> RegistryWatch:
        """Call `wake` after changes at the path, from now on. A reader that reads after this call, and after each call of `wake`, misses
        nothing."""

    def watch_below(self, path: str, wake: Callable[[str | None], None]) -> RegistryWatch:
        """Call `wake` after changes at the path and anywhere below it: with the path of a record that was created, replaced or removed, or
        with None if any record may have changed. It is one watch, whatever the number of records; otherwise like `watch`."""

    def session(self) -> RegistrySession:
        """The session at this moment, without a request."""

    def close(self) -> None:
        """End the session: its ephemeral records are removed at once. Closing twice is allowed."""


def fence_of(right: str) -> str:
    """The path of the record that is replaced each time a lease is acquired: it names the last holder."""
    return f"{right}.term"


def refusal(term: Term) -> FencedError:
    """The error for a commit under a Term that has ended."""
    return FencedError(
        f"nothing was written: the lease {shown(term.right)} (term {term.number}) was released or taken by a newer holder",
        remedy="this process stops acting; the present holder of the lease continues",
    )


def check_path(path: str) -> None:
    """Raise ValueError if the path is not valid below the root. Names from users are checked when they are read; this check finds bugs."""
    if path and not all(_NAME.fullmatch(name) and name not in (".", "..") for name in path.split("/")):
        raise ValueError(f"not a path below the registry's root: {path!r}")


def parent_of(path: str) -> str:
    """The path of the folder above."""
    return path.rpartition("/")[0]


def is_below(path: str, folder: str) -> bool:
    """True if the path is the folder, or below it. All paths are below the root."""
    return not folder or path == folder or path.startswith(f"{folder}/")


def shown(path: str) -> str:
    """The name of a path in messages."""
    return f"the registry's record {path}" if path else "the registry's root"


def distinct(writes: Sequence[Write]) -> None:
    """Raise ValueError if two writes concern the same path: their meaning would depend on their order."""
    paths = [write.path for write in writes if not (isinstance(write, Create) and write.numbered)]
    if len(set(paths)) < len(paths):
        raise ValueError(f"several writes of one commit concern the same record: {paths}")
