"""The audit log: who requested which change, when, and with which outcome. One JSON object per line, append-only; no secrets."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING

import msgspec

from scribengin.client.models import AuditEntries, AuditEntry
from scribengin.core.storage import make_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from structlog.typing import FilteringBoundLogger

_BLOCK_BYTES = 65_536
_MOST_BYTES = 64 * 2**20
"""of the end of the file in which one request searches"""


class AuditLog:
    """The audit log of one master. A line that cannot be written is reported in the master's log: it must not prevent, for example, that a
    flow is stopped."""

    def __init__(self, path: Path | None, log: FilteringBoundLogger | None = None) -> None:
        """Write to a file.

        Args:
            path: the file; None: nothing is written.
            log: the master's log.
        """
        self._path = path
        self._log = log
        self._lock = threading.Lock()

    def write(self, who: str, address: str, what: str, target: str, outcome: str, *, revision: int = 0, again: bool = False) -> None:
        """Append one line to the audit log and make it durable.

        Args:
            who: the caller.
            address: the caller's address.
            what: the change.
            target: what is changed, such as a flow.
            outcome: `done`, or the code of the problem.
            revision: of the registry afterwards.
            again: the answer to an earlier request with the same idempotency key was repeated.
        """
        if self._path is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = msgspec.json.encode(AuditEntry(now, who, address, what, target, outcome, revision, again)) + b"\n"
        try:
            with self._lock:
                make_folder(self._path.parent)
                handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(handle, line)
                    os.fsync(handle)
                finally:
                    os.close(handle)
        except Exception as error:
            if self._log is not None:
                self._log.error("audit line lost", line=line.decode(), message=str(error))

    def read(self, limit: int, *, who: str = "", target: str = "") -> AuditEntries:
        """The newest lines of the audit log, newest first. Reads from the end of the file, and never more than a block at once.

        Args:
            limit: the most lines.
            who: only those of this caller.
            target: only those about this target, such as a flow.
        """
        found: list[AuditEntry] = []
        searched_bytes = 0
        with suppress(FileNotFoundError):  # nothing is logged yet, or the file was moved away
            for line in () if self._path is None else lines_from_end(self._path):
                searched_bytes += len(line) + 1
                if len(found) == limit or searched_bytes > _MOST_BYTES:
                    return AuditEntries(tuple(found), complete=False)
                entry = _entry(line)
                if entry is not None and (not who or entry.who == who) and (not target or entry.target == target):
                    found.append(entry)
        return AuditEntries(tuple(found), complete=True)


def lines_from_end(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last one first. A line that is longer than a block is left out."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        rest, is_cut = b"", False
        while at > 0:
            size = min(_BLOCK_BYTES, at)
            at -= size
            file.seek(at)
            first, *others = (file.read(size) + rest).split(b"\n")
            if others and is_cut:
                others.pop(0)
                is_cut = False
            yield from reversed(others)
            rest = first
            if len(rest) > _BLOCK_BYTES:
                rest, is_cut = b"", True
        if not is_cut:
            yield rest


def _entry(line: bytes) -> AuditEntry | None:
    """A line of the log; None if it is none, as the last line after a crash may be."""
    try:
        return msgspec.json.decode(line, type=AuditEntry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
