"""The answered requests of a decided Batch, recorded beside its staged rows as the answers arrive: a later attempt sends only the others.

One line for each request, appended in one write and not synced: after a power failure some requests are sent again, with the same keys.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.storage import explained, make_folder, read_or_none

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from scribengin.connectors.http.staged import RowsRequest

NAME = "answered"


class AnsweredRows(msgspec.Struct, frozen=True, array_like=True):
    """Rows `first` to `first + rows` of a task output. With a `reason` the server never accepts them."""

    unit: int
    first: int
    rows: int
    reason: str = ""
    message: str = ""


class RequestProgress:
    """For one Batch. A context manager: closes its file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: int | None = None
        found = (read_or_none(self._path) or b"").splitlines()
        self._answers: dict[tuple[int, int, int], AnsweredRows] = {}
        self._split: set[tuple[int, int]] = set()
        """(task output, row) after which a request was split into halves"""
        for line in found:
            try:
                self._remember(msgspec.json.decode(line, type=AnsweredRows))
            except msgspec.DecodeError:
                continue  # its end was truncated: the request is sent again
        self.resumed = len(self._answers)
        """requests that were answered before"""

    def __enter__(self) -> RequestProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            os.close(self._file)

    def of(self, request: RowsRequest) -> AnsweredRows | None:
        """The recorded answer of exactly this request."""
        return self._answers.get((request.unit, request.first, len(request)))

    def was_halved(self, request: RowsRequest) -> bool:
        """True if a part of it was answered, and so it was split."""
        return any((request.unit, row) in self._split for row in range(request.first, request.first + len(request)))

    def note(self, request: RowsRequest, reason: str = "", message: str = "") -> None:
        """Record an answer."""
        answer = AnsweredRows(request.unit, request.first, len(request), reason, message)
        self._remember(answer)
        with explained(f"{self._path} cannot be written"):
            if self._file is None:
                make_folder(self._path.parent)
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.write(self._file, msgspec.json.encode(answer) + b"\n")

    def _remember(self, answer: AnsweredRows) -> None:
        self._answers[answer.unit, answer.first, answer.rows] = answer
        self._split.add((answer.unit, answer.first))
