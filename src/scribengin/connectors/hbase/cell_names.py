"""The names of the cells in which columns are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class CellNames:
    """A column is stored in `family` under its own name, or in the cell that `columns` names for it."""

    family: str
    columns: Mapping[str, str]

    def cell(self, column: str) -> str:
        """The cell of a column, as FAMILY:QUALIFIER."""
        return self.columns.get(column, f"{self.family}:{column}")

    def families(self, columns: Iterable[str]) -> list[str]:
        """The families of the cells of these columns, without duplicates."""
        return list(dict.fromkeys(self.cell(name).partition(":")[0] for name in columns))

    def unlike(self, columns: Iterable[str], lack: str) -> list[str]:
        """Errors of the options for these columns. `lack` completes the message for a name that is not a column: "which …"."""
        names = list(columns)
        found = [f'`columns` names "{name}", which {lack}' for name in self.columns if name not in names]
        seen: dict[str, str] = {}
        for name in names:
            cell = self.cell(name)
            family, colon, qualifier = cell.partition(":")
            if not (family and colon and qualifier):
                found.append(f'column "{name}" goes to "{cell}", which is not FAMILY:QUALIFIER')
            elif (other := seen.setdefault(cell, name)) != name:
                found.append(f'columns "{other}" and "{name}" go to the same cell, {cell}')
        return found
