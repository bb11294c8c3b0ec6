"""Which column stands in which cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class CellNames:
    """A column stands in `family` under its own name, or where `columns` says."""

    family: str
    columns: Mapping[str, str]

    def cell(self, column: str) -> str:
        """FAMILY:QUALIFIER."""
        return self.columns.get(column, f"{self.family}:{column}")

    def families(self, columns: Iterable[str]) -> list[str]:
        """Those that these columns stand in, each once."""
        return list(dict.fromkeys(self.cell(name).partition(":")[0] for name in columns))

    def unlike(self, columns: Iterable[str], lack: str) -> list[str]:
        """What is wrong with them for these columns. `lack`: what is said of a column that is none of them."""
        names = list(columns)
        found = [f'`columns` names "{name}", which {lack}' for name in self.columns if name not in names]
        seen: dict[str, str] = {}
        for name in names:
            cell = self.cell(name)
            family, colon, qualifier = cell.partition(":")
            if not (family and colon and qualifier):
                found.append(f'column "{name}" goes to "{cell}", which is no FAMILY:QUALIFIER')
            elif (other := seen.setdefault(cell, name)) != name:
                found.append(f'columns "{other}" and "{name}" go to one cell, {cell}')
        return found
