"""The common parts of flows into keyed stores, whose server may refuse rows after the decision: they are struck while rows are sent,
too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.faults.flows import KINDS
from harness.faults.grounds import Ground, store_places
from harness.faults.store_flows import ServedFlow
from scribengin.core.faults import OFFER_POINTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from harness.faults.outcomes import Life

KEYED_DECISIVE = ("decide.after", *OFFER_POINTS, "publish.record.before", "publish.record.after", "commit.before")


class Away(Exception):
    """The server does not answer, or reports that it is not ready."""


@dataclass(kw_only=True)
class KeyedFlow(ServedFlow):
    """A flow that creates its places itself."""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The same as for files, without renames, and with points while rows are sent."""
        return KEYED_DECISIVE

    @property
    def mode(self) -> str:
        """The end of the sink's options, depending on the route."""
        return f", mode: upsert, key: [{self.key}]" if self.key else ""


def keyed_ground(title: str, routes: tuple[str, ...], make: Callable[[Life, Path, ExitStack], KeyedFlow]) -> Ground:
    """A Ground that is struck in the same ways on all of its routes."""
    return Ground(title, routes, KINDS, KEYED_DECISIVE, dict.fromkeys(routes, store_places(KEYED_DECISIVE, beside=OFFER_POINTS)), make)
