"""The names that a user's module imports: `from scribengin import record, batch, frame, to`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Form = Literal["record", "batch", "frame"]
_F = TypeVar("_F")
_MARK = "__scribengin_form__"


def record(function: _F) -> _F:
    """Mark a function (or a class with `__call__` and `open`) that receives one dict.

    It returns a dict; True to keep the record, False or None to drop it; a list or generator of dicts; or `to("branch", row)`.
    """
    setattr(function, _MARK, "record")
    return function


def batch(function: _F) -> _F:
    """Mark a function that receives a `pyarrow.RecordBatch` and returns one (or an iterable of them)."""
    setattr(function, _MARK, "batch")
    return function


def frame(function: _F) -> _F:
    """Mark a function that receives a Spark DataFrame and returns one. Only its input and output are counted, and it has no dead
    letters."""
    setattr(function, _MARK, "frame")
    return function


def form_of(function: object) -> Form:
    """The form in which `function` receives rows: that of its mark, else `record`."""
    form: Form = getattr(function, _MARK, "record")
    return form


@dataclass(frozen=True, slots=True)
class To:
    """A row and the branch it goes to."""

    branch: str
    row: dict[str, Any]


def to(branch: str, row: dict[str, Any]) -> To:
    """Send `row` to `step.branch` instead of to the step's own readers."""
    return To(branch, row)
