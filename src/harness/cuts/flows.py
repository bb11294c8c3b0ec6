"""Random flows, each whole and divided into tiers, with steps whose result does not depend on the order of rows, over data without late
rows.

Late rows are avoided as follows: all files of a source exist from the start, a Batch takes one file of each source, and the delay of the
watermark is longer than the time span of the data. The last files contain *closers*: rows with times far in the future, which pass every
filter and reach every branch. Rows with the time of a closer are not compared, because it depends on the tiers which of them remain in a
state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.cuts.data import EVENTS, FIRST_CLOSER, LABELS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

CODECS = ("none", "gzip", "lz4", "snappy", "zstd")
_FAR = f"id >= {FIRST_CLOSER}"
_FILTERS = (
    "id % 3 <> 1",
    "n IS NULL OR n > -40",
    "ok",
    "grp <> 'b' OR grp IS NULL",
    "length(grp) < 5 AND day >= DATE '2026-01-01'",
    "cost > 10.5",
)
_REQUIRES = {"numbered": "n IS NOT NULL", "grouped": "grp IS NOT NULL AND grp <> 'ü'", "small": "cost < 900"}
_TYPES = dict(EVENTS)
_EXACT = ("id", "grp", "n", "cost", "blob", "day", "ok", "at", "label", "k", "word")
"""columns that may be part of a key: no floating-point numbers, which have two zeros, and no maps"""


@dataclass(frozen=True, slots=True)
class Case:
    """A flow and its division into tiers. `tiers` is tier → its nodes, in the order of the flow; `edge` contains the properties of all
    channels.

    `stops_at` ends the first run of the divided flow after that number of Batches; 0 lets it run to its end.
    """

    sources: dict[str, dict[str, Any]]
    steps: dict[str, dict[str, Any]]
    sinks: dict[str, dict[str, Any]]
    tiers: dict[str, list[str]]
    edge: dict[str, Any] = field(default_factory=dict)
    data_seed: int = 0
    stops_at: int = 0

    def document(self, *, cut: bool) -> dict[str, Any]:
        """The flow file as an object, whole or divided into tiers."""
        found = {"version": 1, "name": "cuts", "sources": self.sources, "steps": self.steps, "sinks": self.sinks}
        if not cut:
            return found
        defaults = {"defaults": {"edge": self.edge}} if self.edge else {}
        return found | defaults | {"tiers": {tier: {"steps": nodes} for tier, nodes in self.tiers.items()}}


@dataclass(frozen=True, slots=True)
class _Node:
    """What later steps must know about a node. `table`: its rows are events with id and ts; `once`: no path duplicates its rows."""

    id: str
    columns: tuple[str, ...]
    table: bool = True
    stateful: bool = False
    once: frozenset[str] = frozenset()


def make_case(rng: random.Random) -> Case:
    """Make a flow with 1 or 2 sources, 2 to 7 steps and 1 to 3 sinks in 1 to 4 tiers. The checks may still refuse it."""
    maker = _Maker(rng)
    for _ in range(rng.randint(2, 7)):
        maker.step()
    maker.end()
    order = [*maker.steps, *maker.sinks]
    tiers = maker.cut(order)
    edge: dict[str, Any] = {}
    if rng.random() < 0.4:
        edge["compression"] = rng.choice(CODECS)
    if rng.random() < 0.3:
        edge["encryption"] = {"keyring": "channel.keys"}
    if rng.random() < 0.4:
        edge["pack"] = {"rows": rng.choice((1, 2, 7, 50))}
    return Case(
        maker.sources,
        maker.steps,
        maker.sinks,
        tiers,
        edge,
        rng.randint(0, 2**31),
        rng.randint(1, 6) if rng.random() < 0.3 else 0,
    )


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.sources: dict[str, dict[str, Any]] = {}
        self.steps: dict[str, dict[str, Any]] = {}
        self.sinks: dict[str, dict[str, Any]] = {}
        self._nodes: list[_Node] = [self._source("a", EVENTS, "ts")]
        self._labels = None
        if rng.random() < 0.5:
            if rng.random() < 0.6:
                self._nodes.append(self._source("b", EVENTS, "ts"))
            else:
                self._labels = self._source("labels", LABELS, "at")

    def _source(self, id_: str, columns: tuple[tuple[str, str], ...], time: str) -> _Node:
        schema = ", ".join(f"{name} {type_}" for name, type_ in columns)
        self.sources[id_] = {
            "type": "files",
            "path": f"data/{id_}",
            "format": "json",
            "schema": schema,
            "watermark": f"{time} 5h",
            "max_files": 1,
        }
        return _Node(id_, tuple(name for name, _ in columns))

    def step(self) -> None:
        """Add one step after the existing nodes."""
        makers: tuple[Callable[[str], _Node | None], ...] = (
            self._filter,
            self._filter,
            self._project,
            self._select,
            self._route,
            self._record,
            self._record,
            self._batch,
            self._parse,
            self._union,
            self._union,
            self._require,
            self._dedupe,
            self._aggregate,
            self._look_up,
            self._join,
        )
        id_ = f"s{len(self.steps)}"
        while True:
            made = self._rng.choice(makers)(id_)
            if made is not None:
                break
        branches = [replace(made, id=f"{id_}.{branch}") for branch in self._branches(id_)] or [made]
        self._nodes += branches

    def _branches(self, id_: str) -> list[str]:
        step = self.steps[id_]
        if "route" in step:
            return [step["route"][name] if name == "otherwise" else name for name in step["route"]]
        return list(step["python"].get("branches", ())) if isinstance(step.get("python"), dict) else []

    def _above(self, *, table: bool = True, has: tuple[str, ...] = ()) -> _Node | None:
        fitting = [node for node in self._nodes if (node.table or not table) and set(has) <= set(node.columns)]
        # newer nodes are chosen more often, so that flows become long
        return self._rng.choice(fitting[-3:] if self._rng.random() < 0.7 else fitting) if fitting else None

    # --- steps ---

    def _filter(self, id_: str) -> _Node | None:
        node = self._above()
        if node is None:
            return None
        fitting = [text for text in _FILTERS if all(name in node.columns for name in _TYPES if name in text.replace("(", " ").split())]
        self.steps[id_] = {"from": node.id, "filter": f"({self._rng.choice(fitting)}) OR {_FAR}"}
        return replace(node, id=id_)

    def _require(self, id_: str) -> _Node | None:
        node = self._above(has=("n", "grp", "cost"))
        if node is None:
            return None
        name = self._rng.choice(sorted(_REQUIRES))
        self.steps[id_] = {
            "from": node.id,
            "filter": f"n IS NULL OR n % 9 <> 4 OR {_FAR}",
            "require": {name: f"({_REQUIRES[name]}) OR {_FAR}"},
        }
        return replace(node, id=id_)

    def _project(self, id_: str) -> _Node | None:
        node = self._above(has=("n", "grp"))
        if node is None:
            return None
        kept = [name for name in node.columns if name in ("id", "ts", "n", "grp") or self._rng.random() < 0.8]
        made = {"n": "n + 1 AS n", "grp": "upper(grp) AS grp"}
        self.steps[id_] = {"from": node.id, "sql": f"SELECT {', '.join(made.get(name, name) for name in kept)} FROM {node.id}"}
        return replace(node, id=id_, columns=tuple(kept))

    def _select(self, id_: str) -> _Node | None:
        node = self._above(has=("n",))
        if node is None:
            return None
        kept = [name for name in node.columns if name in ("id", "ts", "n") or self._rng.random() < 0.8]
        self.steps[id_] = {"from": node.id, "select": ["n - 2 AS n" if name == "n" else name for name in kept]}
        return replace(node, id=id_, columns=tuple(kept))

    def _route(self, id_: str) -> _Node | None:
        node = self._above()
        left = [number for number in (2, 3, 5) if node is None or f"% {number}" not in node.once]
        if node is None or not left:
            return None
        # closers have every remainder, so that each branch gets some
        number = self._rng.choice(left)
        cases = {"odd": f"id % {number} = 1", "otherwise": "rest"}
        if number > 2 and self._rng.random() < 0.5:
            cases = {"odd": f"id % {number} = 1", "even": f"id % {number} = 2", "otherwise": "rest"}
        self.steps[id_] = {"from": node.id, "route": cases}
        return replace(node, id=id_, once=node.once | {f"% {number}"})

    def _record(self, id_: str) -> _Node | None:
        node = self._above(has=("n",))
        if node is None:
            return None
        kind = self._rng.choice(("changed", "doubled", "dropped", "picky", "sorted_out"))
        if kind == "sorted_out":
            if "% 7" in node.once:
                return None
            self.steps[id_] = {"from": node.id, "python": {"function": "steps:sorted_out", "branches": ["left", "right"]}}
            return replace(node, id=id_, once=node.once | {"% 7"})
        self.steps[id_] = {"from": node.id, "python": f"steps:{kind}"}
        if kind == "picky" and self._rng.random() < 0.2:
            self.steps[id_]["on_error"] = "drop"
        return replace(node, id=id_)

    def _batch(self, id_: str) -> _Node | None:
        node = self._above()
        if node is None:
            return None
        self.steps[id_] = {"from": node.id, "python": "steps:halved"}
        return replace(node, id=id_)

    def _parse(self, id_: str) -> _Node | None:
        node = self._above(has=("body",))
        if node is None:
            return None
        self.steps[id_] = {"from": node.id, "parse": {"column": "body", "format": "json", "schema": "k BIGINT, word STRING"}}
        columns = (*(name for name in node.columns if name not in ("body", "k", "word")), "k", "word")
        return replace(node, id=id_, columns=columns)

    def _union(self, id_: str) -> _Node | None:
        node = self._above(table=False)
        if node is None:
            return None
        picked = [node]
        alike = [other for other in self._nodes if other.columns == node.columns and other.id != node.id]
        picked += self._rng.sample(alike, min(len(alike), self._rng.randint(1, 2)))
        if len(picked) == 1:
            return None
        self.steps[id_] = {"from": [each.id for each in picked], "merge": {"how": "union"}}
        once = frozenset[str]().union(*(each.once for each in picked))
        return replace(node, id=id_, stateful=any(each.stateful for each in picked), once=once)

    def _dedupe(self, id_: str) -> _Node | None:
        node = self._above()
        if node is None or node.stateful:
            return None
        key = [name for name in node.columns if name in _EXACT]
        self.steps[id_] = {"from": node.id, "dedupe": {"key": key, "time": "ts", "within": "1h"}}
        return replace(node, id=id_, stateful=True)

    def _aggregate(self, id_: str) -> _Node | None:
        node = self._above(has=("n", "grp", "ts"))
        if node is None or node.stateful:
            return None
        columns = {"many": "count(*)", "total": "sum(n)", "most": "max(id)"}
        window = {"time": "ts", "size": "10m"} | ({"slide": "5m"} if self._rng.random() < 0.3 else {})
        self.steps[id_] = {"from": node.id, "aggregate": {"by": ["grp"], "window": window, "emit": "append", "columns": columns}}
        return _Node(id_, ("window_start", "window_end", "grp", *columns), table=False, stateful=True)

    def _look_up(self, id_: str) -> _Node | None:
        node = self._above(has=("grp",))
        if node is None or "words" in node.once:
            return None
        self.sources["words"] = {
            "type": "files",
            "path": "data/words",
            "format": "json",
            "schema": "grp STRING, said STRING",
            "static": True,
        }
        how = self._rng.choice(("left", "inner"))
        self.steps[id_] = {"from": [node.id, "words"], "join": {"key": ["grp"], "how": how}}
        columns = ("grp", *(name for name in node.columns if name != "grp"), "said")
        return replace(node, id=id_, columns=columns, once=node.once | {"words"})

    def _join(self, id_: str) -> _Node | None:
        node = self._above()
        if node is None or self._labels is None or node.stateful or "label" in node.columns:
            return None
        time = {node.id: "ts", "labels": "at"}
        how = self._rng.choice(("inner", "left"))
        self.steps[id_] = {"from": [node.id, "labels"], "join": {"key": ["id"], "how": how, "time": time, "within": "10m"}}
        columns = ("id", *(name for name in node.columns if name != "id"), "at", "label")
        return replace(node, id=id_, columns=columns, stateful=True)

    # --- ends and cuts ---

    def end(self) -> None:
        """Add sinks, at most three, to nodes without a successor; remove steps that then lead to no sink."""
        read = {reference for step in self.steps.values() for reference in _inputs(step)}
        loose = [node for node in self._nodes if node.id not in read and node.id not in self.sources]
        picked = loose[-3:]
        if len(picked) < 3 and self._rng.random() < 0.4:
            others = [node for node in self._nodes if node not in picked and node.id not in self.sources]
            picked += [self._rng.choice(others)] if others else []
        for number, node in enumerate(picked):
            format_ = self._rng.choice(("json", "parquet"))
            self.sinks[f"k{number}"] = {"from": node.id, "type": "files", "path": f"out/k{number}", "format": format_}
        needed: set[str] = set()
        waiting = [sink["from"] for sink in self.sinks.values()]
        while waiting:
            id_ = waiting.pop().split(".")[0]
            if id_ not in needed:
                needed.add(id_)
                waiting += _inputs(self.steps.get(id_, {"from": []}))
        self.steps = {id_: step for id_, step in self.steps.items() if id_ in needed}
        self.sources = {id_: source for id_, source in self.sources.items() if id_ in needed}
        if not any(self._is_stateful(sink["from"]) for sink in self.sinks.values()):
            for source in self.sources.values():  # else the watermark of one Batch applies to the next
                source.pop("max_files", None) if self._rng.random() < 0.7 else None
        stateless = [id_ for id_, sink in self.sinks.items() if not self._is_stateful(sink["from"])]
        if len(stateless) > 1 and self._rng.random() < 0.3:
            for id_ in stateless:
                self.sinks[id_]["together"] = "both"

    def _is_stateful(self, reference: str) -> bool:
        step = self.steps.get(reference.split(".", maxsplit=1)[0])
        if step is None:
            return False
        return bool({"dedupe", "aggregate"} & step.keys() or "time" in step.get("join", {})) or any(map(self._is_stateful, _inputs(step)))

    def cut(self, order: list[str]) -> dict[str, list[str]]:
        """Tier → nodes. No tier feeds an earlier one, so there is no cycle. Sources are sometimes named, static ones never."""
        most = self._rng.randint(1, 4)
        level: dict[str, int] = {}
        for id_ in self.sources:
            if not self.sources[id_].get("static") and self._rng.random() < 0.3:
                level[id_] = 0
        for id_ in order:
            node = self.steps.get(id_) or self.sinks[id_]
            lowest = max((level.get(reference.split(".")[0], 0) for reference in _inputs(node)), default=0)
            level[id_] = min(most - 1, lowest + self._rng.choice((0, 0, 1, 1, 2)))
        together = [id_ for id_, sink in self.sinks.items() if "together" in sink]
        for id_ in together:
            level[id_] = max(level[other] for other in together)
        tiers: dict[str, list[str]] = {}
        for number in sorted(set(level.values())):
            tiers[f"t{number}"] = [id_ for id_, of in level.items() if of == number]
        return tiers


def _inputs(node: dict[str, Any]) -> list[str]:
    given = node["from"]
    return [given] if isinstance(given, str) else list(given)
