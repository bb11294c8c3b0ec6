"""`reset`: removes the state of a flow, so that it reads everything again. What is removed is kept for a week, as far as that is
possible."""

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
from scribengin.local.preflight import with_trash_remedy
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
"""Terms must never start over: an old driver that was suspended would look like a new one."""
_EVERY_S = 3600.0
"""seconds between two checks of the trash of a running flow"""


@dataclass(frozen=True, slots=True)
class LostQuery:
    """The data of a query that a reset would remove. `positions`: source → entries of its log that Batches have taken."""

    query: str
    tier: str
    batches: int
    positions: Mapping[str, int]
    dead_letters: int
    replays: int
    repairs: int = 0
    """dead letters that were repaired and not yet replayed"""
    made: bool = True
    """False if no sink of the flow uses it any more: then its output is not looked for"""
    damaged: str = ""
    """why it cannot be counted; empty if it can"""

    def as_json(self) -> dict[str, Any]:
        """The query as JSON, for a result."""
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
    """The output of a sink that would be removed. `items` counts files, or rows if there are no files. `restorable` is True if an undo can
    restore it."""

    sink: str
    place: str
    items: int
    restorable: bool
    earlier: tuple[Unaccounted, ...] = ()
    """the part that was written by lineages of which the state has no record: a run has added to their output"""

    def as_json(self) -> dict[str, Any]:
        """The output as JSON, for a result."""
        return asdict(self) | {"earlier": [asdict(each) for each in self.earlier]}

    def __str__(self) -> str:
        what = f"{self.items:,} {'files' if self.restorable else 'files or rows'}"
        earlier = f", among them {' and '.join(map(str, self.earlier))}" if self.earlier else ""
        return f"sink {self.sink}: {what} in {self.place}{earlier}" + ("" if self.restorable else ", which are deleted permanently")


@dataclass(frozen=True, slots=True)
class Reset:
    """The reset of a flow. `tiers` are those of the flow, and those that it had earlier; `sinks` are those whose output is
    removed too."""

    flow: Flow
    tiers: tuple[StateFolder, ...]
    made: frozenset[str] = frozenset()
    """the queries that the flow has now"""
    sinks: Mapping[str, SinkConnector] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(declared: Flow, tiers: Sequence[tuple[Flow, StateFolder]], *, outputs: bool) -> Reset:
        """Prepare a reset.

        Args:
            declared: The flow.
            tiers: Each tier's part of the flow, and the folder of its state.
            outputs: True to remove the output of its sinks too.
        """
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
        """The root folder of the flow's state."""
        return self.tiers[0].root

    @property
    def trash(self) -> Trash:
        """The trash in which removed data is kept."""
        return Trash(self.root, self.flow.name)

    def lost(self) -> tuple[list[LostQuery], list[LostOutput]]:
        """The data that the reset would remove. Changes nothing. Raises Refused if a sink's place contains output of others."""
        owner = _owner(self.root)
        queries = [replace(_lost(tier, query), made=query.name in self.made) for tier in self.tiers for query in tier.queries()]
        try:
            known = known_lineages(self.root, self.flow.name)
        except (Refused, StateError):
            known = None  # a reset must be possible for a damaged state too, which does not show which outputs are its own
        outputs = []
        for id_, sink in self.sinks.items():
            with with_trash_remedy(self.root, self.flow.name):
                items = sink.clear(owner=owner, flow=self.flow.name, dry_run=True)
            others = sink.unaccounted(known) if known is not None and items and finds_unaccounted(sink) else ()
            earlier = tuple(each for each in others if each.is_of_lineage)
            outputs.append(LostOutput(id_, self.places[id_], items, can_restore(sink), earlier))
        return queries, outputs

    def run(self, lost: Sequence[Mapping[str, Any]]) -> Discarded:
        """Remove the state, and the output of the sinks. Takes the leases of all tiers; raises Refused if one of them runs. Idempotent: it
        may be interrupted at any point and repeated. `lost` describes what is removed, for the record."""
        with take_leases(self.tiers):
            return self._run(lost)

    def undo(self, id_: str = "") -> Discarded:
        """Restore what the newest reset has removed, or the one with that id. Takes the leases of all tiers.

        Raises Refused if there is no such reset, if the flow has run since, or if a tier runs.
        """
        self.trash.find(id_)  # if there is nothing to restore, the leases must not create a folder
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
        """The sink of an output. Raises Refused if the flow no longer has it, or has it at another place."""
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
        # state is removed before outputs: after an interruption in between, the next run refuses the outputs instead of duplicating them
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
        """The files and folders of the state, without what is kept for ever, and without channels, which are places of sinks."""
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
    """Empties a flow's trash while it runs, at most once an hour. Used by the threads of all its queries."""

    def __init__(self, prepared: PreparedFlow, now_s: Callable[[], float] = time.monotonic) -> None:
        """The first check is after an hour, because a run empties the trash before it starts."""
        self._prepared = prepared
        self._now_s = now_s
        self._lock = threading.Lock()
        self._due_s = now_s() + _EVERY_S

    def empty_old(self) -> None:
        """Delete expired data, at most once an hour; cheap to call after every Batch."""
        with self._lock:
            if self._now_s() < self._due_s:
                return
            self._due_s = self._now_s() + _EVERY_S
        empty_trash(self._prepared)


def empty_trash(prepared: PreparedFlow) -> None:
    """Delete for good what has been in a flow's trash for a week. What a store does not delete now is tried again the next time. The caller
    holds the lease of a tier."""

    @cache
    def sinks() -> dict[str, SinkConnector]:
        return {id_: sink for tier in prepared.tiers for id_, sink in open_sinks(tier.plan.flow).items()}

    Trash(prepared.root, prepared.name).drop_expired(drop=partial(_drop_outputs, sinks))


def _drop_outputs(sinks: Callable[[], Mapping[str, SinkConnector]], expired: Discarded) -> bool:
    """Delete for good the outputs of a removal that are in the trash of their places. The output of a sink that the flow no longer has
    stays there, because it is not known how to reach the place.

    Args:
        sinks: Returns the sinks of the flow; called only if there are outputs.
        expired: The removal.

    Returns:
        False if a store does not delete them now.
    """
    try:
        for output in expired.outputs:
            if (sink := _sink_of(sinks(), output)) is not None:
                sink.drop_trash(expired.id)
    except ScribenginError:
        return False
    return True


def _sink_of(sinks: Mapping[str, SinkConnector], output: KeptOutput) -> TrashSink | None:
    """The sink of an output; None if the flow no longer has it, or has it at another place."""
    sink = sinks.get(output.sink)
    return sink if sink is not None and has_trash(sink) and sink.place == output.place else None


def _lost(tier: StateFolder, query: QueryFolder) -> LostQuery:
    """Count what would be removed of a query. It works for a damaged state too, because a reset must be possible for it."""
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
    expired = read_expired(query)
    gone = expired.letters + count_purged(query, expired, last)
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
    """The installation whose outputs may be removed; empty for a copied state folder, whose outputs belong to the original, and if the
    record is damaged. Changes nothing unless `read` does."""
    try:
        return read(root)
    except NewerRecord:
        raise
    except (Refused, StateError):
        return ""
