"""The flows cut into tiers, channels between them: the same Queries, records and judge as those over files.

`front` reads and takes each record through Python; `back` writes. Each kind can be cut in several ways (`cut`). Rows that are late have no
place here: when a row counts as late, how the flow is cut decides too.
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
"""They stand where a flow over files has its format. `apart`: channels in folders, and a driver for each tier, one after the other.
`spill` and `drop`: topics, with `durability: store_on_failure` and `best_effort`."""
OVER_KAFKA = frozenset({"tiers-kafka", "tiers-spill", "tiers-drop"})
DURABILITIES = {"tiers-spill": "store_on_failure", "tiers-drop": "best_effort"}
"""route → that of its edges; of the others it is `end_to_end`"""
TIER_KINDS = ("tail", "coins", "filter", "aggregate", "dedupe", "fork", "union", "group", "members")
"""`fork`: all rows to two sinks in tiers of their own; `union`: two tiers beside each other, into one; `group`: the channel goes to a group
of two folders; `members`: the sink does."""
RECUT_KINDS = frozenset({"tail", "coins", "filter", "fork", "union"})
"""kinds without state: they can go on when they are cut otherwise"""
_IN_FOLDERS, _WHOLE = frozenset({"group", "members"}), frozenset({"tail", "fork"})
MEMBERS = ("m1", "m2")
_HALVES = """  left: {from: records, filter: seq % 2 = 0}
  right: {from: records, filter: seq % 2 <> 0}
  both: {from: [left, right]}
"""
_MORE = {"fork": STATELESS, "union": replace(STATELESS, steps=_HALVES, last="both"), "group": STATELESS, "members": STATELESS}
_MIDDLE = {"filter": ("some",), "aggregate": ("windows",), "dedupe": ("once",), "union": ("left", "right", "both")}
"""kind → what stands between `records` and the last Python step"""
CUTS = 3
"""ways to cut a flow: the one it begins with, in one piece, and otherwise"""


def lives_on(kind: str, route: str) -> bool:
    """True where flows of that kind are tried on that route. What is dropped can be told by the input's records only where each is a row
    of the channel."""
    if route == "tiers-drop":
        return kind in _WHOLE
    if route == "tiers-spill":
        return kind in RECUT_KINDS
    return route != "tiers-kafka" or kind not in _IN_FOLDERS


def commits_by_unit(kind: str, route: str) -> bool:
    """True where channels are topics that are waited for, and no Query with state feeds one: then its tasks commit by themselves."""
    return route == "tiers-kafka" and kind != "aggregate"


@dataclass(kw_only=True)
class TierFlow(FaultFlow):
    """`route` is one of TIER_ROUTES; over Kafka the channels are topics at `bootstrap`, which `remove` takes away."""

    route: str
    bootstrap: str = ""
    cut: int = 0
    """below CUTS"""
    life: str = field(default_factory=lambda: uuid4().hex[:12])
    """part of the topics' names"""

    @property
    def name(self) -> str:
        """Its own in each life: topics have it in theirs."""
        return f"struck_{self.life}" if self.bootstrap else "struck"

    @property
    def tiers(self) -> tuple[str, ...]:
        """In the order of the flow."""
        return tuple(self._placed(edited=False)) or ("main",)

    @property
    def apart(self) -> bool:
        """True where each tier has a driver of its own."""
        return self.route == "tiers-apart"

    @property
    def by_unit(self) -> bool:
        """See `commits_by_unit`."""
        return commits_by_unit(self.kind, self.route)

    @property
    def ordered(self) -> bool:
        """False: across a channel order is not promised."""
        return False

    @property
    def sinks(self) -> tuple[str, ...]:
        """As over files; a fork has two."""
        return ("kept", "side") if self.kind == "fork" else super().sinks

    @property
    def places(self) -> tuple[str, ...]:
        """Of a group of outputs, each member's."""
        return tuple(f"{member}/kept" for member in MEMBERS) if self.kind == "members" else self.sinks

    def remove(self) -> None:
        """Take the topics away, with the markers."""
        if self.bootstrap:
            Topics(self.bootstrap).remove(f"scribengin-{self.name}-")

    def take_away(self, member: str) -> None:
        """Put a file in the place of a channel's folder."""
        home = self.folder / member
        if home.exists():
            home.rename(home.with_name(f"{member}.gone"))
        home.touch()

    def give_back(self, member: str) -> None:
        """And the folder back."""
        home = self.folder / member
        home.unlink()
        gone = home.with_name(f"{member}.gone")
        if gone.exists():
            gone.rename(home)

    def text(self, *, edited: bool = False) -> str:
        """As over files, with a Python step in front, and the cuts. The step that an edit brings stands before the last Python step."""
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
        """Tier → its nodes; {}: one piece."""
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
        """Of what is cut. Small packs, so that a Batch has several."""
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
        """Each branch of a fork has all of it."""
        if self.kind != "fork":
            return super()._compare(found)
        findings = Findings()
        for sink in self.sinks:
            of_sink = super()._compare([each for each in found if each.group.startswith(f"{sink}/")])
            for name in Findings.__slots__:
                getattr(findings, name).extend(getattr(of_sink, name))
        return findings

    def judge(self, *, ledger: dict[str, Any] | None = None, out: Path | None = None) -> Findings:
        """As over files. Where edges may drop rows, `ledger` says how many they have: so many are missing."""
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
