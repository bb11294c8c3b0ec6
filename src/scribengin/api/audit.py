"""The audit log: who requested which change, when, and with which outcome. One JSON object per line, append-only; no secrets."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.storage import make_folder

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class AuditLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the audit log. `outcome` is `done`, or the code of the problem. `revision`: of the registry afterwards. `again`: the
    answer to an earlier request with the same idempotency key was repeated."""

    at: str
    who: str
    address: str
    what: str
    target: str
    outcome: str
    revision: int = 0
    again: bool = False


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
        line = msgspec.json.encode(AuditLine(now, who, address, what, target, outcome, revision, again)) + b"\n"
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
