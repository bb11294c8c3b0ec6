"""`reset`: a flow forgets what it has done, and reads everything again. What is removed is kept for a week, as far as it can be."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from scribengin.connectors.abilities import can_restore, finds_unaccounted, has_trash
from scribengin.connectors.contract import BESIDE_OUTPUTS
from scribengin.core.errors import Refused, ScribenginError, StateError
from scribengin.core.records import NewerRecord
from scribengin.core.storage import names_in
from scribengin.local.move_queries import open_left_sinks
from scribengin.local.positions import decided_ends
from scribengin.local.preflight import saying_what_is_in_the_trash
from scribengin.local.prepare import open_sinks
from scribengin.local.stored_queries import letters_waiting
from scribengin.plan.graph import query_sinks
from scribengin.state.columns import CHANNELS_FOLDER
from scribengin.state.dead_letters import count_purged, read_expired, repaired_keys
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder, known_owner, read_owner, renew_owner
from scribengin.state.lease import take_leases
from scribengin.state.ledger import read_totals
from scribengin.state.topology import known_lineages, read_topology, tiers_with_state
from scribengin.state.trash import Discarded, KeptOutput, Trash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import SinkConnector, TrashSink, Unaccounted
    from scribengin.local.prepare import PreparedFlow
    from scribengin.spec.model import Flow
    from scribengin.state.folder import QueryFolder

_STAYS = ("lock", "terms")
"""Terms must never begin again: an old driver that sleeps would look like a new one."""
_EVERY_S = 3600.0
"""between two looks at the trash of a flow that runs"""


@dataclass(frozen=True, slots=True)
class LostQuery:
    """What a Query has done, and would forget. `positions`: source → entries of its log that Batches are through with."""

    query: str
    tier: str
    batches: int
    positions: Mapping[str, int]
    dead_letters: int
    replays: int
    repairs: int = 0
    """dead letters that a person has changed, and that are not replayed yet"""
    made: bool = True
    """False if no sink of the flow makes it any more: then what it wrote is not looked for"""
    damaged: str = ""
    """why it cannot be counted"""

    def as_json(self) -> dict[str, Any]:
        """Its form in a result."""
        return {
            "query": self.query,
            "tier": self.tier,
            "batches": self.batches,
            "positions": dict(self.positions),
            "dead_letters": self.dead_letters,
            "replays": self.replays,
            "repairs": self.repairs,
            "damaged": self.damaged,
        }

    def __str__(self) -> str:
        positions = f" (with the positions of {', '.join(self.positions)})" if self.positions else ""
        said = [f"{self.batches:,} Batch{'es' * (self.batches != 1)}{positions}"]
        if self.dead_letters:
            said.append(f"{self.dead_letters:,} dead letter{'s' * (self.dead_letters != 1)}")
        if self.repairs:
            said.append(f"{self.repairs:,} repair{'s' * (self.repairs != 1)} of dead letters, not replayed yet")
        if self.replays:
            said.append(f"{self.replays:,} replay{'s' * (self.replays != 1)} that no Batch has processed yet")
        stays = "" if self.made else "; no sink of the flow uses it any more, and its output is kept"
        what = f"of {', '.join(said)}" if not self.damaged else f"which cannot be counted: {self.damaged}"
        return f"query {self.query}: the ledger and state {what}{stays}"


@dataclass(frozen=True, slots=True)
class LostOutput:
    """What a sink has written, and would be removed. `items` are files, or rows if there are no files; `restorable`: `undo` brings it
    back."""

    sink: str
    place: str
    items: int
    restorable: bool
    earlier: tuple[Unaccounted, ...] = ()
    """of it, what lineages have written of which the state does not know: a run has added to them"""

    def as_json(self) -> dict[str, Any]:
        """Its form in a result."""
        return asdict(self) | {"earlier": [asdict(each) for each in self.earlier]}

    def __str__(self) -> str:
        what = f"{self.items:,} {'files' if self.restorable else 'files or rows'}"
        earlier = f", among them {' and '.join(map(str, self.earlier))}" if self.earlier else ""
        return f"sink {self.sink}: {what} in {self.place}{earlier}" + ("" if self.restorable else ", which are deleted permanently")


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset of a flow would remove, and how. `tiers` are the flow's own, and those that it had earlier; `sinks` those whose outputs
    go too."""

    flow: Flow
    tiers: tuple[StateFolder, ...]
    made: frozenset[str] = frozenset()
    """the Queries that sinks of the flow, and channels, make now"""
    sinks: Mapping[str, SinkConnector] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(declared: Flow, tiers: Sequence[tuple[Flow, StateFolder]], *, outputs: bool) -> Reset:
        """`tiers`: each tier's part of the flow, and the folder of its state."""
        own = {folder.tier: folder for _, folder in tiers}
        first = tiers[0][1]
        earlier = [tier for tier in tiers_with_state(first.root, declared.name) if tier.tier not in own]
        places = {id_: sink.place for flow, _ in tiers for id_, sink in flow.sinks.items()}
        sinks: dict[str, SinkConnector] = {}
        if outputs:
            sinks = {id_: sink for flow, _ in tiers for id_, sink in open_sinks(flow).items()}
            places |= {id_: sink.place for id_, sink in sinks.items() if has_trash(sink)}
            if (cuts := read_topology(first.root, declared.name)) is not None:
                left = {channel.id: channel for channel in cuts.channels if channel.id not in sinks}
                options = {id_: channel.sink for id_, channel in left.items()}
                places |= {id_: channel.place for id_, channel in left.items()}
                sinks |= open_left_sinks(declared, first.root, first.query("reset"), first.tier, (), options)
        made = frozenset(name for flow, _ in tiers for name in query_sinks(flow))
        return Reset(declared, (*own.values(), *earlier), made, sinks, places)

    @property
    def root(self) -> Path:
        """Of the state."""
        return self.tiers[0].root

    @property
    def trash(self) -> Trash:
        """Where what is removed is kept."""
        return Trash(self.root, self.flow.name)

    def lost(self) -> tuple[list[LostQuery], list[LostOutput]]:
        """What would be removed, without changing anything. Raises Refused if a sink's place holds what others have written."""
        owner = _owner(self.root)
        queries = [replace(_lost(tier, query), made=query.name in self.made) for tier in self.tiers for query in tier.queries()]
        try:
            known = known_lineages(self.root, self.flow.name)
        except (Refused, StateError):
            known = None  # a reset is there for a state that is damaged too: then nothing tells which outputs are its own
        outputs = []
        for id_, sink in self.sinks.items():
            with saying_what_is_in_the_trash(self.root, self.flow.name):
                items = sink.clear(owner=owner, flow=self.flow.name, dry_run=True)
            others = sink.unaccounted(known) if known is not None and items and finds_unaccounted(sink) else ()
            earlier = tuple(each for each in others if each.is_of_lineage)
            outputs.append(LostOutput(id_, self.places[id_], items, can_restore(sink), earlier))
        return queries, outputs

    def run(self, lost: Sequence[Mapping[str, Any]]) -> Discarded:
        """Under leases, which it takes: remove it. Raises Refused if a tier runs. May be killed at any point and done again."""
        with take_leases(self.tiers):
            return self._run(lost)

    def undo(self, id_: str = "") -> Discarded:
        """Under leases, which it takes: bring back what the newest reset has removed, or the one of that id. Raises Refused if there is
        none, where the flow has run since, or where a tier runs."""
        self.trash.find(id_)  # where there is nothing to bring back the leases leave no folder
        with take_leases(self.tiers):
            found = self.trash.find(id_)
            if found.owner != _owner(self.root):
                raise Refused(
                    f"the data removed by {found.id} belongs to another installation: this state folder is a copy",
                    remedy="run the flow from the original folder",
                    code="state-foreign",
                )
            outputs = [self._kept_sink(each, found) for each in found.outputs]
            self.trash.check_back(found)
            for sink in outputs:
                sink.check_back(found.id)
            for sink in outputs:
                sink.move_back(found.id)
            self.trash.restore(found)
        return found

    def _kept_sink(self, output: KeptOutput, found: Discarded) -> TrashSink:
        """The sink that an output is of. Raises Refused if the flow has it no more, or elsewhere."""
        sink = _sink_of(self.sinks, output)
        if sink is None:
            raise Refused(
                f'the output of sink "{output.sink}" removed by {found.id} is in the trash of {output.place}, and the flow no longer has '
                "that sink there",
                remedy="add the sink with that place to the flow again",
                code="trash-missing",
            )
        return sink

    def _run(self, lost: Sequence[Mapping[str, Any]]) -> Discarded:
        owner = _owner(self.root, read_owner)
        trash = self.trash
        trash.drop_expired(drop=partial(_drop_outputs, lambda: self.sinks))
        for sink in self.sinks.values():
            sink.clear(owner=owner, flow=self.flow.name, dry_run=True)
        discarded = trash.begin(owner, lost)
        # state goes before outputs: killed in between, the next run refuses the outputs instead of doubling them
        for place in self._state():
            discarded = trash.move(discarded, place)
        if not owner:  # a copy of a state folder becomes an installation of its own
            renew_owner(self.root)
        for id_, sink in self.sinks.items():
            if not can_restore(sink):
                sink.clear(owner=owner, flow=self.flow.name)
            elif has_trash(sink):
                discarded = trash.note_output(discarded, KeptOutput(id_, sink.place))
                sink.move_to_trash(discarded.id, owner=owner, flow=self.flow.name)
            elif sink.path.exists():
                kept = sink.path / BESIDE_OUTPUTS / discarded.id
                discarded = trash.note(discarded, kept, sink.path)
                sink.move_away(kept, owner=owner, flow=self.flow.name)
        trash.complete(discarded)
        return discarded

    def _state(self) -> Iterator[Path]:
        """All of it, but what stays for ever, and channels, which are places of sinks."""
        for tier in self.tiers:
            for name in sorted(names_in(tier.path)):
                if name not in _STAYS:
                    yield tier.path / name
        folder = self.root / self.flow.name
        tiers = {tier.path.name for tier in self.tiers}
        for name in sorted(names_in(folder)):
            if name not in tiers and name != CHANNELS_FOLDER:
                yield folder / name


class TrashKeeper:
    """Empties a flow's trash while it runs, at most once an hour; for the threads of all its Queries."""

    def __init__(self, prepared: PreparedFlow, now_s: Callable[[], float] = time.monotonic) -> None:
        """Its trash was emptied before it started."""
        self._prepared = prepared
        self._now_s = now_s
        self._lock = threading.Lock()
        self._due_s = now_s() + _EVERY_S

    def empty_old(self) -> None:
        """Cheap to call after every Batch."""
        with self._lock:
            if self._now_s() < self._due_s:
                return
            self._due_s = self._now_s() + _EVERY_S
        empty_trash(self._prepared)


def empty_trash(prepared: PreparedFlow) -> None:
    """Delete for good what a flow's trash has held for a week; what a store does not let go now, next time. Wants the lease of a tier."""

    @cache
    def sinks() -> dict[str, SinkConnector]:
        return {id_: sink for tier in prepared.tiers for id_, sink in open_sinks(tier.plan.flow).items()}

    Trash(prepared.root, prepared.name).drop_expired(drop=partial(_drop_outputs, sinks))


def _drop_outputs(sinks: Callable[[], Mapping[str, SinkConnector]], expired: Discarded) -> bool:
    """Delete for good what sinks' places hold of it; False if a store does not let it go now. Of a sink that the flow has no more it
    stays there: nothing says how the place is reached. `sinks` is called if there is something."""
    try:
        for output in expired.outputs:
            if (sink := _sink_of(sinks(), output)) is not None:
                sink.drop_trash(expired.id)
    except ScribenginError:
        return False
    return True


def _sink_of(sinks: Mapping[str, SinkConnector], output: KeptOutput) -> TrashSink | None:
    """The one that an output is of; None if the flow has it no more, or elsewhere."""
    sink = sinks.get(output.sink)
    return sink if sink is not None and has_trash(sink) and sink.place == output.place else None


def _lost(tier: StateFolder, query: QueryFolder) -> LostQuery:
    """Also of a state that is damaged: it is what a reset is there for."""
    try:
        return _counted(tier, query)
    except NewerRecord:
        raise
    except StateError as error:
        return LostQuery(query.name, tier.tier, 0, {}, 0, 0, damaged=error.message)


def _counted(tier: StateFolder, query: QueryFolder) -> LostQuery:
    totals = read_totals(query)
    last = totals.last
    newest = Decisions(query.decisions).newest()
    gone = read_expired(query).letters + count_purged(query, last)
    return LostQuery(
        query.name,
        tier.tier,
        0 if newest is None else newest.batch.number + 1,
        decided_ends(query),
        max(totals.dead - gone, 0),
        letters_waiting(query),
        len(repaired_keys(query)),
    )


def _owner(root: Path, read: Callable[[Path], str] = known_owner) -> str:
    """Whose outputs may be removed; those of a copied state folder belong to the original, those of one whose record is damaged have no
    owner that is known. Changes nothing unless `read` does."""
    try:
        return read(root)
    except NewerRecord:
        raise
    except (Refused, StateError):
        return ""
