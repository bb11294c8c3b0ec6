"""The places of a flow that was built in Python: the line of the call that made each node."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.problems import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path as Folder

    from scribengin.spec.model import Flow
    from scribengin.spec.places import Path


_DATA: ContextVar[Folder | None] = ContextVar("data", default=None)


@contextmanager
def data_in(folder: Folder | None) -> Iterator[None]:
    """Make `folder` the base of data paths of flows that are created inside; None: the folder of the file that creates them."""
    before = _DATA.set(folder)
    try:
        yield
    finally:
        _DATA.reset(before)


def data_folder() -> Folder | None:
    """The folder that `data_in` sets here."""
    return _DATA.get()


@dataclass(frozen=True, slots=True)
class CallPlaces:
    """`spec.places.Places` for calls: the place of every path inside a node is that of the call that made the node."""

    whole: Place
    nodes: Mapping[str, Place]

    @staticmethod
    def of(flow: Flow, whole: Place) -> CallPlaces:
        """The places of a flow; `whole` is the place of everything that belongs to no node."""
        return CallPlaces(whole, flow.calls)

    def key(self, path: Path) -> Place:
        """The place of the call that made the node."""
        of_node = len(path) > 1 and path[0] in ("sources", "steps", "sinks")
        return self.nodes.get(str(path[1]), self.whole) if of_node else self.whole

    def value(self, path: Path) -> Place:
        """The place of the call that made the node."""
        return self.key(path)

    def inside(self, path: Path, offset: int) -> Place:  # noqa: ARG002 - a call has no text to look into
        """The place of the call that made the node."""
        return self.key(path)


def caller() -> Place:
    """The place in the user's code that called into Scribengin."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "scribengin":
        frame = frame.f_back
    column = 0
    for index, (_, _, start, _) in enumerate(frame.f_code.co_positions()):
        if index == frame.f_lasti // 2:
            column = start or 0
    return Place(frame.f_code.co_filename, frame.f_lineno, column + 1)
