"""Columns of sinks that differ from those of their folders: refused, unless an operator has accepted exactly these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.state.columns import Accepted, accept, is_used, read_accepted, record_acceptance_used

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scribengin.core.types import Schema
    from scribengin.local.prepare import PreparedFlow
    from scribengin.state.columns import ColumnsAcceptance


_READERS = {
    "parquet": "a reader of all files as one table fails or loses a column",
    "json": "a reader of the whole output finds both",
    "csv": "a reader that goes by position mistakes one column for another",
}


class Accepting:
    """The column changes that one start of a flow accepts. Nothing is written before `keep`."""

    def __init__(self, prepared: PreparedFlow, word: ColumnsAcceptance | None = None) -> None:
        """`word` is the acceptance of this start; it has no effect for tiers that have started with it before."""
        self._root, self._flow = prepared.root, prepared.plan.flow
        self._word = word
        self._tiers = [tier.plan.tier for tier in prepared.tiers]
        self._open = {tier for tier in self._tiers if word is not None and not is_used(self._root, self._flow.name, tier, word)}
        self._known = read_accepted(self._root, self._flow.name, self._flow.sinks)
        self._new: dict[str, Accepted] = {}

    def takes(self, tier: str, sink: str, schema: Schema, differences: Sequence[str]) -> bool:
        """True if the sink may write these columns.

        Args:
            tier: The tier of the sink.
            sink: The id of the sink.
            schema: All columns that it would write.
            differences: How they differ from those in its folder, one sentence each.
        """
        known, path = self._known.get(sink), str(self._flow.sinks[sink].options["path"])
        if known is not None and known.columns == str(schema) and known.path == path:
            return True
        if self._word is None or tier not in self._open:
            return False
        self._new[sink] = Accepted(sink, str(schema), tuple(differences), self._word.at, self._word.by, path)
        return True

    def keep(self, say: Callable[[str], None]) -> None:
        """Store the accepted columns at the start of the flow. `say` receives a sentence for each sink. The caller holds the leases of the
        flow's tiers in this process."""
        for each in self._new.values():
            accept(self._root, self._flow.name, each)
            say(accepted_text(accepted_row(each, self._format(each.sink))))
        if self._word is not None:
            for tier in self._open:
                record_acceptance_used(self._root, self._flow.name, tier, self._word)

    def _format(self, sink: str) -> str:
        return str(self._flow.sinks[sink].options.get("format", ""))


def accepted_rows(root: Path, flow: str, sinks: Mapping[str, Any]) -> list[dict[str, object]]:
    """The newest acceptance of each sink as rows for `status`, ordered by time. `sinks` are the sinks of the flow, by id."""
    found = read_accepted(root, flow, sinks).values()
    rows = [accepted_row(each, str(sinks[each.sink].options.get("format", ""))) for each in found]
    return sorted(rows, key=lambda row: (str(row["at"]), str(row["sink"])))


def accepted_row(each: Accepted, format: str) -> dict[str, object]:
    """The acceptance of one sink as a JSON object."""
    return {
        "sink": each.sink,
        "columns": each.columns,
        "instead": list(each.instead),
        "readers": _READERS.get(format, ""),
        "at": each.at,
        "by": each.by,
    }


def accepted_text(row: Mapping[str, Any]) -> str:
    """A row of `accepted_rows` for people, on one line."""
    by = f", accepted by {row['by']}" if row["by"] else ", as accepted"
    readers = f": {row['readers']}" if row["readers"] else ""
    said = f'sink "{row["sink"]}" writes different columns from now on{by}: {", ".join(row["instead"])}'
    return f"{said}; existing files stay unchanged{readers}"
