"""What every code means that no text of a flow makes alone: those of states, machines, stores, the control plane and command lines.

`everything` is these and the codes of the flow file: all that a message can end with. docs/problems.md and `scribengin explain` show them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.cli.code_catalog import commands, machine, plane, runs, stores
from scribengin.plan import problem_catalog
from scribengin.spec import problems

if TYPE_CHECKING:
    from scribengin.spec.problem_entry import ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (*commands.CATALOG, *machine.CATALOG, *runs.CATALOG, *stores.CATALOG, *plane.CATALOG)
FAMILY = "-*"
"""A code that ends so stands for all that begin so: what is behind it comes from another program."""


def everything() -> dict[str, ProblemEntry]:
    """Code → entry, of all codes."""
    return {entry.code: entry for entry in (*problems.CATALOG, *problem_catalog.CATALOG, *CATALOG)}


def entry_of(code: str) -> ProblemEntry | None:
    """The entry of a code, or of its family; None if there is none."""
    entries = everything()
    begun = [entry for entry in entries.values() if entry.code.endswith(FAMILY) and code.startswith(entry.code.removesuffix("*"))]
    return entries.get(code) or (begun[0] if begun else None)
