"""What a store at one end of a flow adds to the campaign: its routes, the flows over them, and where they are struck."""

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
    """A store in the campaign. Its `routes` take the place of the format."""

    title: str
    """the title of its table in the report"""
    routes: tuple[str, ...]
    kinds: tuple[str, ...]
    decisive: tuple[str, ...]
    """points at which a kill leaves work for a recovery, and at which a successor has decided already"""
    places: Mapping[str, Places]
    """route → way → points"""
    make: Callable[[Life, Path, ExitStack], FaultFlow] = field(compare=False)
    """creates the flow of a life, with a server of its own that it may strike; the stack ends it"""
    partitioned: tuple[bool, ...] = (False,)


def store_places(decisive: tuple[str, ...], *, beside: tuple[str, ...] = (), lacks: tuple[str, ...] = ("publish.renamed",)) -> Places:
    """The points for a sink into a store whose server may be struck: all usual ones except those that it `lacks`, and those in `beside`."""
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
