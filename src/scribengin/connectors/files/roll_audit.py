"""Verification of the compactor's output: merged files are complete and have all rows of their segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.reading_again import read_again
from scribengin.connectors.files.roll_state import folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.connectors.files.sink_folders import LineageFolder


class Rolled:
    """For one lineage. Each merged file is read once, when the first of its segments is checked."""

    def __init__(self, top: Path, lineage: LineageFolder, format: str) -> None:
        self._top = top
        self._lineage = lineage
        self._format = format
        self._seen = -1
        self._outputs: dict[str, tuple[Mapping[str, Any], list[str] | None]] = {}
        """name → (its record, its errors, or None if it was not read yet)"""
        self._inputs: dict[tuple[int, str], str] = {}
        self._removed: dict[str, int] = {}
        self._learn()

    @property
    def names(self) -> set[str]:
        """The names of all merged files, including those that were merged meanwhile."""
        self._learn()
        return set(self._outputs)

    def may_be_gone(self, number: int, name: str) -> bool:
        """Whether the file of a Batch was deleted with its expired folder."""
        return number <= self._removed.get(folder_of(name), -1)

    def verify(self, number: int, file: Mapping[str, Any]) -> tuple[int, list[str]]:
        """(rows found, errors) for a hidden segment, or for the file that it was merged into."""
        if (number, file["staged"]) not in self._inputs:
            said = read_again(self._lineage.hidden_file(number, file), file, "")
            if said[0] or not said[1]:
                return said
            self._learn()  # it may have been merged while it was read
            if (number, file["staged"]) not in self._inputs:
                return said
        name = self._inputs[number, file["staged"]]
        output, wrong = self._outputs[name]
        if wrong is not None:  # reported already, with the first of its segments
            return (0 if wrong else file["rows"]), []
        draft = self._lineage.path / output["draft"]
        if not (self._top / name).exists() and draft.exists():
            wrong = [f"{name} is merged, but not renamed yet; the next run of the folder's maintenance owner renames it"]
        elif not (self._top / name).exists() and self.may_be_gone(output["inputs"][-1][0], name):
            wrong = []
        else:
            _, wrong = read_again(self._top / name, output, self._format)
            rows = sum(rows for _, _, _, rows in output["inputs"])
            if rows != output["rows"]:
                wrong = [*wrong, f"{name} holds {output['rows']} rows; expected {rows}, the merged ones"]
        self._outputs[name] = (output, wrong)
        return (0 if wrong else file["rows"]), wrong

    def _learn(self) -> None:
        for number, turn in self._lineage.merges.since(self._seen + 1):
            self._seen = number
            for output in turn["outputs"]:
                self._outputs[output["name"]] = (output, None)
                self._inputs.update(((batch, staged), output["name"]) for batch, _, staged, _ in output["inputs"])
            for each in turn["removed"]:
                self._removed[each["folder"]] = max(each["through"], self._removed.get(each["folder"], -1))
