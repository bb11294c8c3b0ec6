"""Intents: the input of a Batch, recorded before any of it runs. Needed if its task outputs commit one by one.

A decision would come too late for these: what the first task output commits stays committed. So all drivers of a lineage agree beforehand
on what a Batch reads and how many task outputs it has; the first record of a number wins, as with decisions.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import StateError
from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, put_if_absent, read_or_none
from scribengin.state.contract import SourceRange

if TYPE_CHECKING:
    from pathlib import Path

_KIND, _FORMAT = "intent", 1


@dataclass(frozen=True, slots=True)
class Intent:
    """The recorded input of a Batch.

    `units` is the number of task outputs that commit one by one, 0 if the Batch commits as a whole. `input_hash` covers what is read, not
    the plan: a committed task output remains valid after a change of the flow, and the others run with the new plan. `plan` is the one with
    which the Batch began. `order` has the sources in the order in which their streams are the Batch's task outputs; empty if there is only
    one source. `in_tail` is True if the vector engine runs the Batch's SQL steps: all task outputs of a Batch must agree on that, because
    their counts depend on it.
    """

    number: int
    sources: tuple[SourceRange, ...]
    units: int
    input_hash: str
    plan: str
    order: tuple[str, ...] = ()
    in_tail: bool = False


class Intents:
    """The intents of one lineage of a query."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, intent: Intent) -> Intent:
        """Write the intent durably, unless there is one with its number; returns the stored one.

        The caller must look for a decision of that number afterwards: if there is one, the intent had been dropped before.
        """
        body = asdict(intent)
        if put_if_absent(self._path(intent.number), seal(_KIND, _FORMAT, body)):
            return intent
        stored = self.read(intent.number)
        if stored is None:
            raise StateError(
                f"{self._path(intent.number)} existed and was deleted",
                remedy="another driver has taken over; stop this driver and restart the flow",
            )
        return stored

    def read(self, number: int) -> Intent | None:
        """The intent of Batch `number`, or None."""
        data = read_or_none(self._path(number))
        if data is None:
            return None
        body = unseal(data, _KIND, _FORMAT, self._path(number))
        sources = tuple(SourceRange(**each) for each in body["sources"])
        order, in_tail = tuple(body["order"]), body.get("in_tail", False)  # missing in records from the time when Spark ran all SQL steps
        return Intent(body["number"], sources, body["units"], body["input_hash"], body["plan"], order, in_tail)

    def drop(self, before: int) -> None:
        """Delete the intents of Batches below `before`, which are decided."""
        for name in names_in(self._folder):
            if name.endswith(".json") and int(name[:10]) < before:
                with suppress(FileNotFoundError):
                    (self._folder / name).unlink()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}.json"
