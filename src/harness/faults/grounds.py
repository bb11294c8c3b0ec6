"""What a store at one end of a flow brings to the campaign: its routes, the flows over them, where they are struck."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.core.faults import POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from harness.faults.flows import FaultFlow
    from harness.faults.outcomes import Life

Places = dict[str, tuple[str, ...]]
"""way to strike → points"""
_EDITED = ("batch.entry", "stage.after", "decide.before", "decide.after", "publish.record.after")
_MOVED = ("stage.after", "decide.after", "publish.record.after", "commit.before")


@dataclass(frozen=True, slots=True)
class Ground:
    """`routes` stand where a flow over files has its format."""

    title: str
    """of its table in the report"""
    routes: tuple[str, ...]
    kinds: tuple[str, ...]
    decisive: tuple[str, ...]
    """where a kill leaves work to a recovery, and where a successor has decided already"""
    places: Mapping[str, Places]
    """route → where it is struck"""
    make: Callable[[Life, Path, ExitStack], FaultFlow] = field(compare=False)
    """the flow of a life, with a server of its own, which it may strike; ended by the stack"""
    partitioned: tuple[bool, ...] = (False,)


def store_places(decisive: tuple[str, ...], *, beside: tuple[str, ...] = (), lacks: tuple[str, ...] = ("publish.renamed",)) -> Places:
    """For a sink into a store, whose server may be struck: it passes all points but those that it `lacks`, and those `beside`."""
    points = (*(point for point in POINTS if point not in lacks), *beside)
    recovering = [point for point in points if point.startswith(("recovery.", "publish."))]
    return {
        "kill": points,
        "die": points,
        "recovery": ("lease.taken", "batch.entry", *recovering, *beside, "commit.before"),
        "two": points,
        "zombie": ("stage.mid_write", "stage.closed", "decide.before", *decisive),
        "moved": _MOVED,
        "edit": _EDITED,
        "server": ("source.logged", "stage.before", "stage.mid_write", "stage.closed", "decide.before", *decisive),
    }
