"""A group of two as the conformance suite drives one sink: Batches 0 to 2 go to the first member, later ones to the two in turn, so that
the numbers at each have gaps. The suite says when a Batch runs and under which Term; in a flow it is the group that chooses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.abilities import is_chained, offers
from scribengin.connectors.contract import Place
from scribengin.connectors.group import make_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import BatchId, Decided, Published, Refusal
    from scribengin.core.types import Schema

_FIRST = 2
"""up to this Batch all go to the first member: an older Term is fenced by the Batch before"""


class Alternating:
    """See the module. `options`: those of each member, with defaults; `open_` opens a member's sink."""

    exactly_once = True

    def __init__(
        self,
        type_: str,
        options: tuple[Mapping[str, Any], ...],
        folder: Path,
        open_: Callable[[str, Place], Any] = catalog.open_sink,
    ) -> None:
        members = tuple((f"m{nth}", 1.0, each) for nth, each in enumerate(options))
        place = Place("kept", folder, flow="flow", work=folder / "work", members=members)
        self.group: Any = make_sink(type_, place, open_)

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        self.group.prepare(owner=owner, lineage=lineage, adopt=adopt)

    def look_at_place(self) -> None:
        self.group.look_at_place()

    def unlike(self, schema: Schema) -> list[str]:
        return list(self.group.unlike(schema))

    def behind(self, units: int) -> Mapping[str, Any]:
        return {name: sink.behind(units) if is_chained(sink) else {} for name, sink in self.group._sinks.items()}

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:
        return self.group.chosen({"member": _member(batch)}).stream(batch, unit, attempt, schema)

    def publish(self, decided: Decided) -> None:
        self.group.publish(_chosen(decided))

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        self.group.recover(None if decided is None else _chosen(decided), lineage=lineage, before=before)

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        return iter(self.group.audit(lineage=lineage, decided=map(_chosen, decided)))

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        return int(self.group.clear(owner=owner, flow=flow, dry_run=dry_run))


class OfferingAlternating(Alternating):
    """Of members that take or refuse rows behind the decision."""

    on_error = "dead_letter"

    def offer(self, decided: Decided, refuse: Callable[[Refusal], None]) -> None:
        assert offers(self.group)
        self.group.offer(_chosen(decided), refuse)


def _member(batch: BatchId) -> str:
    return "m0" if batch.number <= _FIRST else f"m{batch.number % 2}"


def _chosen(decided: Decided) -> Decided:
    name = _member(decided.batch)
    return replace(decided, behind={"member": name, "cost": 1.0, "why": "its turn", "behind": decided.behind[name]})
