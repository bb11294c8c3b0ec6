"""The flows in tiers with channels between them: the same queries, records and checks as for files.

`front` reads, and passes each record through Python; `back` writes. Each kind can be divided in several ways (`cut`). There are no late
rows: whether a row is late depends on the tiers, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from harness.faults.flows import STATELESS, FaultFlow, FlowKind
from harness.faults.topics import Topics
from scribengin.testing.checker import Findings
from scribengin.testing.records import RecordKey, make_record

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.testing.checker import Found

TIER_ROUTES = ("tiers-folder", "tiers-kafka", "tiers-apart", "tiers-spill", "tiers-drop")
"""the routes, which take the place of the format. `apart`: channels in folders, and a driver for each tier, one after the other. `spill`
and `drop`: topics, with `durability: store_on_failure` and `best_effort`"""
OVER_KAFKA = frozenset({"tiers-kafka", "tiers-spill", "tiers-drop"})
DURABILITIES = {"tiers-spill": "store_on_failure", "tiers-drop": "best_effort"}
"""route → durability of its channels; `end_to_end` for the others"""
TIER_KINDS = ("tail", "coins", "filter", "aggregate", "dedupe", "fork", "union", "group", "members")
"""`fork`: all rows to two sinks in tiers of their own; `union`: two parallel tiers, merged into one; `group`: the channel leads to a group
of two folders; `members`: the sink does"""
RECUT_KINDS = frozenset({"tail", "coins", "filter", "fork", "union"})
"""kinds without state, which can continue after the division into tiers changed"""
_IN_FOLDERS, _WHOLE = frozenset({"group", "members"}), frozenset({"tail", "fork"})
MEMBERS = ("m1", "m2")
_HALVES = """  left: {from: records, filter: seq % 2 = 0}
  right: {from: records, filter: seq % 2 <> 0}
  both: {from: [left, right]}
"""
_MORE = {"fork": STATELESS, "union": replace(STATELESS, steps=_HALVES, last="both"), "group": STATELESS, "members": STATELESS}
_MIDDLE = {"filter": ("some",), "aggregate": ("windows",), "dedupe": ("once",), "union": ("left", "right", "both")}
"""kind → the nodes between `records` and the last Python step"""
CUTS = 3
"""the number of ways to divide a flow: the initial one, undivided, and another one"""


def lives_on(kind: str, route: str) -> bool:
    """True if flows of that kind are tried on that route. Dropped rows can be identified by the records of the input only if each record is
    a row of the channel."""
    if route == "tiers-drop":
        return kind in _WHOLE
    if route == "tiers-spill":
        return kind in RECUT_KINDS
    return route != "tiers-kafka" or kind not in _IN_FOLDERS


def commits_by_unit(kind: str, route: str) -> bool:
    """True if channels are topics that block their feeder, and no query with state writes to one: then its task outputs commit by
    themselves."""
    return route == "tiers-kafka" and kind != "aggregate"


@dataclass(kw_only=True)
class TierFlow(FaultFlow):
    """A flow on one of TIER_ROUTES. Over Kafka the channels are topics at `bootstrap`, which `remove` deletes."""

    route: str
    bootstrap: str = ""
    cut: int = 0
    """the index of the current division, below CUTS"""
    life: str = field(default_factory=lambda: uuid4().hex[:12])
    """part of the topics' names"""

    @property
    def name(self) -> str:
        """The name of the flow; unique for each life, because topics contain it."""
        return f"struck_{self.life}" if self.bootstrap else "struck"

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers in the order of the flow."""
        return tuple(self._placed(edited=False)) or ("main",)

    @property
    def apart(self) -> bool:
        """True if each tier has its own driver."""
        return self.route == "tiers-apart"

    @property
    def by_unit(self) -> bool:
        """See `commits_by_unit`."""
        return commits_by_unit(self.kind, self.route)

    @property
    def ordered(self) -> bool:
        """False: a channel keeps no order."""
        return False

    @property
    def sinks(self) -> tuple[str, ...]:
        """The same as for files; a fork has two sinks."""
        return ("kept", "side") if self.kind == "fork" else super().sinks

    @property
    def places(self) -> tuple[str, ...]:
        """The folders of the outputs; for a group, those of each member."""
        return tuple(f"{member}/kept" for member in MEMBERS) if self.kind == "members" else self.sinks

    def remove(self) -> None:
        """Delete the topics, and those of the commit markers."""
        if self.bootstrap:
            Topics(self.bootstrap).remove(f"scribengin-{self.name}-")

    def take_away(self, member: str) -> None:
        """Replace the folder of a channel by a file, so that it is unavailable."""
        home = self.folder / member
        if home.exists():
            home.rename(home.with_name(f"{member}.gone"))
        home.touch()

    def give_back(self, member: str) -> None:
        """Restore the folder of the channel."""
        home = self.folder / member
        home.unlink()
        gone = home.with_name(f"{member}.gone")
        if gone.exists():
            gone.rename(home)

    def text(self, *, edited: bool = False) -> str:
        """The text of the flow file: as for files, with a Python step in front, and the tiers. The step of an edit comes before the last
        Python step."""
        whole = super().text(edited=edited)
        head, steps = whole.replace("\n  records: {", "\n  arrived: {", 1).split("steps:\n", 1)
        text = f'{head}steps:\n  records: {{from: arrived, python: "steps:copied"}}\n{steps}'
        if self.kind in _IN_FOLDERS:
            at = "out/" if self.kind == "members" else ""
            text += f"groups: {{two: {{members: [{', '.join(f'{{at: {at}{member}}}' for member in MEMBERS)}]}}}}\n"
        placed = self._placed(edited=edited)
        if not placed:
            return text
        text += f"tiers: {msgspec.json.encode({tier: {'steps': nodes} for tier, nodes in placed.items()}).decode()}\n"
        return text + f"edges: {msgspec.json.encode(self._edges(placed, edited=edited)).decode()}\n"

    def _output(self, sink: str) -> str:
        return f"type: files, path: kept, format: {self.format}, to: two" if self.kind == "members" else super()._output(sink)

    def _placed(self, *, edited: bool) -> dict[str, list[str]]:
        """Tier → its nodes; empty if the flow is undivided."""
        middle, last, sinks = [*_MIDDLE.get(self.kind, ())], [*(["again"] if edited else []), "done"], [*self.sinks]
        match self.kind, self.cut:
            case _, 1:
                return {}
            case "fork", 0:
                return {"front": ["records", *last], "back": ["kept"], "side": ["side"]}
            case "fork", _:
                return {"front": ["records"], "back": [*last, "kept"], "side": ["side"]}
            case "union", 0:
                return {"front": ["records"], "left": ["left"], "right": ["right"], "back": ["both", *last, *sinks]}
            case "union", _:
                return {"front": ["records", "left", "right"], "back": ["both", *last, *sinks]}
            case "filter" | "aggregate", 0:
                return {"front": ["records"], "middle": middle, "back": [*last, *sinks]}
            case "filter" | "aggregate", _:
                return {"front": ["records", *middle], "back": [*last, *sinks]}
            case _, 0:
                return {"front": ["records"], "back": [*middle, *last, *sinks]}
        return {"front": ["records", *middle, *last], "back": sinks}

    def _edges(self, placed: dict[str, list[str]], *, edited: bool) -> dict[str, Any]:
        """The options of the channels, with small packs, so that a Batch has several."""
        tier_of = {node: tier for tier, nodes in placed.items() for node in nodes}
        channel: dict[str, Any] = {"channel": {"type": "kafka", "bootstrap": self.bootstrap, "partitions": 2}} if self.bootstrap else {}
        channel |= {"durability": DURABILITIES[self.route]} if self.route in DURABILITIES else {}
        channel |= {"channel": "folder", "to": "two"} if self.kind == "group" else {}
        return {
            f"{node} -> {reader}": {"pack": {"rows": 7}} | channel
            for node, reader in self._arrows(edited=edited)
            if tier_of[node.partition(".")[0]] != tier_of[reader]
        }

    def _arrows(self, *, edited: bool) -> list[tuple[str, str]]:
        before_done = "again" if edited else "done"
        if self.kind == "union":
            arrows = [("records", "left"), ("records", "right"), ("left", "both"), ("right", "both"), ("both", before_done)]
        else:
            nodes = ["records", *_MIDDLE.get(self.kind, ()), before_done]
            arrows = list(pairwise(nodes))
        arrows += [("again", "done")] * edited
        return arrows + [(f"done.{sink}" if self.kind == "coins" else "done", sink) for sink in self.sinks]

    def _compare(self, found: list[Found]) -> Findings:
        """Compare the rows; each branch of a fork has all of them."""
        if self.kind != "fork":
            return super()._compare(found)
        findings = Findings()
        for sink in self.sinks:
            of_sink = super()._compare([each for each in found if each.group.startswith(f"{sink}/")])
            for name in Findings.__slots__:
                getattr(findings, name).extend(getattr(of_sink, name))
        return findings

    def judge(self, *, ledger: dict[str, Any] | None = None, out: Path | None = None) -> Findings:
        """Check the outputs. If channels may drop rows, `ledger` contains the number of dropped rows: exactly that many are missing."""
        findings = super().judge(ledger=ledger, out=out)
        dropped = 0 if ledger is None else ledger.get("dropped", 0)
        if dropped == len(findings.lost):
            findings.lost = []
        elif dropped:
            findings.imbalance.append(f"{dropped} rows are told as dropped, {len(findings.lost)} are missing")
        return findings

    @property
    def _kind(self) -> FlowKind:
        return _MORE.get(self.kind) or super()._kind

    def _row(self, part: int, seq: int) -> dict[str, Any]:
        return make_record(RecordKey(self.run, part, seq)) | {"ts": self._time(part, seq)}
