"""The flows cut into tiers, channels between them: the same Queries, records and judge as those over files.

`front` reads and takes each record through Python; `back` writes. `filter` and `aggregate` have a third tier between. Rows that are late
have no place here: when a row counts as late, how the flow is cut decides too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec

from scribengin.testing.faults.flows import FaultFlow
from scribengin.testing.faults.topics import Topics
from scribengin.testing.records import Key, make_record

TIER_ROUTES = ("tiers-folder", "tiers-kafka", "tiers-apart")
"""They stand where a flow over files has its format. `apart`: channels in folders, and a driver for each tier, one after the other."""
TIER_KINDS = ("tail", "coins", "filter", "aggregate", "dedupe")
_MIDDLE = {"filter": ("some",), "aggregate": ("windows",)}
"""kind → what stands in a tier of its own"""


@dataclass(kw_only=True)
class TierFlow(FaultFlow):
    """`route` is one of TIER_ROUTES; with `tiers-kafka` the channels are topics at `bootstrap`, which `remove` takes away."""

    route: str
    bootstrap: str = ""
    life: str = field(default_factory=lambda: uuid4().hex[:12])
    """part of the topics' names"""

    @property
    def name(self) -> str:
        """Its own in each life: topics have it in theirs."""
        return f"struck_{self.life}" if self.bootstrap else "struck"

    @property
    def tiers(self) -> tuple[str, ...]:
        """In the order of the flow."""
        return ("front", "middle", "back") if self.kind in _MIDDLE else ("front", "back")

    @property
    def apart(self) -> bool:
        """True where each tier has a driver of its own."""
        return self.route == "tiers-apart"

    @property
    def by_unit(self) -> bool:
        """True where a channel is a topic: what feeds it has no state, so that its tasks commit by themselves."""
        return self.route == "tiers-kafka"

    @property
    def ordered(self) -> bool:
        """False: across a channel order is not promised."""
        return False

    def remove(self) -> None:
        """Take the topics away, with the markers."""
        if self.bootstrap:
            Topics(self.bootstrap).remove(f"scribengin-{self.name}-")

    def text(self, *, edited: bool = False) -> str:
        """As over files, with a Python step in front, and the cuts. The step that an edit brings stands behind them."""
        whole = super().text(edited=edited)
        head, steps = whole.replace("\n  records: {", "\n  arrived: {", 1).split("steps:\n", 1)
        text = f'{head}steps:\n  records: {{from: arrived, python: "steps:copied"}}\n{steps}'
        behind = [*(["again"] if edited else []), "done", *self.sinks]
        middle = _MIDDLE.get(self.kind, ())
        own = [] if middle or self.kind != "dedupe" else ["once"]
        placed = {"front": ["records"], **({"middle": list(middle)} if middle else {}), "back": [*own, *behind]}
        text += f"tiers: {msgspec.json.encode({tier: {'steps': nodes} for tier, nodes in placed.items()}).decode()}\n"
        return text + f"edges: {msgspec.json.encode(self._edges(behind[0])).decode()}\n"

    def _edges(self, behind: str) -> dict[str, Any]:
        """Small packs, so that a Batch has several."""
        first = next(iter(_MIDDLE.get(self.kind, ())), "once" if self.kind == "dedupe" else behind)
        edges = [f"records -> {first}"] + [f"{first} -> {behind}"] * (self.kind in _MIDDLE)
        channel = {"channel": {"type": "kafka", "bootstrap": self.bootstrap, "partitions": 2}} if self.bootstrap else {}
        return {edge: {"pack": {"rows": 7}} | channel for edge in edges}

    def _row(self, part: int, seq: int) -> dict[str, Any]:
        return make_record(Key(self.run, part, seq)) | {"ts": self._time(part, seq)}
