"""What flows into keyed stores have in common: the server may refuse rows behind the decision, so they are struck there too."""

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
    """The server does not answer, or not as one that is well."""


@dataclass(kw_only=True)
class KeyedFlow(ServedFlow):
    """Its places the flow makes itself."""

    @property
    def decisive(self) -> tuple[str, ...]:
        """As over files, but for renames; and while rows are sent."""
        return KEYED_DECISIVE

    @property
    def mode(self) -> str:
        """What the sink's options end in, by the route."""
        return f", mode: upsert, key: [{self.key}]" if self.key else ""


def keyed_ground(title: str, routes: tuple[str, ...], make: Callable[[Life, Path, ExitStack], KeyedFlow]) -> Ground:
    """Struck alike on all of its routes."""
    return Ground(title, routes, KINDS, KEYED_DECISIVE, dict.fromkeys(routes, store_places(KEYED_DECISIVE, beside=OFFER_POINTS)), make)
