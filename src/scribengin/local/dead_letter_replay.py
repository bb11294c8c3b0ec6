"""Replays dead letters of a flow: which ones, where they enter, which cannot be replayed, and the requests that a run processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from scribengin.core import faults
from scribengin.core.errors import Refused
from scribengin.core.remedies import flow_command, start_over
from scribengin.formats.added_columns import AddedColumns, own_decoder
from scribengin.formats.column_notices import Noticer
from scribengin.formats.lenient import LenientDecoder
from scribengin.local.dead_letters import LetterStates, key_text
from scribengin.local.preflight import query_refusal
from scribengin.local.prepare import open_sources, source_place
from scribengin.plan.graph import Graph, base
from scribengin.plan.resolve import resolve, slowest
from scribengin.spark.late_rows import LATE, instant_text, late_rule
from scribengin.spark.node_schema import NodeLayout
from scribengin.spark.offset_log import newest_of, watermark_us
from scribengin.spec.model import Join, Merge, Python, Step, Utilities
from scribengin.state.dead_letter_input import letter_decoder, record_block, row_block, row_decoder
from scribengin.state.dead_letters import Repair, dated_letters, drop_repair, read_repair, repaired_keys
from scribengin.state.decisions import Decisions
from scribengin.state.folder import known_owner
from scribengin.state.lease import read_holder
from scribengin.state.lineage import read_lineage
from scribengin.state.replays import Entering, Replays
from scribengin.state.topology import Journal, has_moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyarrow import RecordBatch

    from scribengin.connectors.contract import SourceConnector
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block, Decoder
    from scribengin.local.dead_letters import Which
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.plan.model import PlannedNode, QueryPlan
    from scribengin.spark.late_rows import WindowGrid
    from scribengin.spec.model import Action
    from scribengin.state.contract import DeadLetter
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lineage import Lineage
    from scribengin.state.replays import Key, ReplayRequest


# The replay point of a dead letter in its query, and whether the flow accepts it there. Does not need Spark.


@dataclass(frozen=True, slots=True)
class ReplayPoint:
    """Where a replay enters a query. `at` is the step that rejected the dead letter; empty for its source. `carrier` is the source in whose
    log the replay is written."""

    at: str
    carrier: str


@dataclass(frozen=True, slots=True)
class Cannot:
    """Why a dead letter is not replayed, and what an operator can do."""

    why: str
    remedy: str


EXPORT = flow_command("dead-letter export", "--to", "FILE")


@dataclass
class ReplayPoints:
    """The replay points of one query of the present flow."""

    prepared: Prepared
    query: QueryPlan
    _decoders: dict[str, Decoder] = field(default_factory=dict)
    _opened: Mapping[str, SourceConnector] = field(default_factory=dict)

    def of(self, letter: DeadLetter, *, from_start: bool) -> ReplayPoint | Cannot:
        """The replay point of a dead letter: its step, if the input row is known; otherwise its source, if a replay from there has the same
        result.

        Args:
            `letter`: The dead letter.
            from_start: True to replay it from its source in any case.
        """
        known = bool(letter.file) and (bool(letter.form) or not letter.truncated)
        if letter.source in self.query.static_sources:
            return Cannot(
                f"source {letter.source} is static: it is read as a whole when the query starts", "correct the file, then run the flow"
            )
        if known and letter.source not in self.query.sources:
            known = False
            if not letter.came:
                return Cannot(f'the query no longer reads source "{letter.source}"', f"export it: {EXPORT}")
        start = ReplayPoint("", letter.source)
        if from_start or letter.step == letter.source:
            if not known:
                return Cannot("it does not come from a single record of a source", "omit --from-start, or repair its input data")
            return start
        node = next((node for node in self.query.nodes if node.id == base(letter.step)), None)  # `step.name` of a utility
        if node is None:
            remedy = "replay it with --from-start" if known else f"export it: {EXPORT}"
            return Cannot(f'the query no longer has step "{letter.step}"', remedy)
        if node.stage in ("tail", "sink") and letter.came:
            carrier = letter.source if letter.source in self.query.sources else self._source_above(node)
            return ReplayPoint(node.id, carrier)
        if not known:
            return Cannot("neither its source record nor the input row of the step is known", "repair its input data")
        why = self._apart(letter, node)
        if not why:
            return start
        return Cannot(
            f"{why}, and the input row of the step is not known", "if its rows may be processed again, replay it with --from-start"
        )

    def taken(self, letter: DeadLetter, entrance: ReplayPoint, key: str) -> Cannot | RecordBatch | None:
        """Check whether the flow accepts a dead letter at a replay point, as far as possible without running its steps.

        Args:
            `letter`: The dead letter, with a repair applied.
            entrance: The replay point.
            key: The key of the dead letter, for commands in remedies.

        Returns:
            The one row that the flow makes of the record or input row; None if only Spark can decide that; or why it is not accepted.
        """
        block: Block | None
        if entrance.at:
            schema = self.columns_at(entrance.at)
            if schema is None:
                return None  # only Spark knows the columns: an input row that does not fit becomes a dead letter again
            block, decoder = row_block(letter, letter.came.encode()), row_decoder(schema)
        else:
            if letter.truncated:
                remedy = f"pass the whole record: {flow_command('dead-letter edit', key, '--with', 'FILE')}"
                return Cannot("its payload was truncated to 64 KiB", remedy)
            block, decoder = self._record(letter)
        if block is None:
            return Cannot(f"source {letter.source} no longer reads such records", f"export it: {EXPORT}")
        found = decoder.columns(block)
        if len(found.ordinals) == 1 and not found.bad:
            return found.batch
        where = f"step {entrance.at}" if entrance.at else f"source {letter.source}"
        what = (
            found.bad[0].message if found.bad else f"found {len(found.ordinals)} records, expected one" if found.ordinals else "it is empty"
        )
        return Cannot(f"{where} rejects it: {what}", f"repair it: {flow_command('dead-letter edit', key)}")

    def _record(self, letter: DeadLetter) -> tuple[Block | None, Decoder]:
        decoder = self.decoder(letter.source)
        return record_block(letter, decoder), letter_decoder(letter, decoder)

    def at(self, step: str, letter: DeadLetter) -> ReplayPoint:
        """The replay point at that step, or, if `step` is empty, at the source."""
        return ReplayPoint(step, letter.source)

    def decoder(self, source: str) -> Decoder:
        """The decoder of the source. Raises SourceError."""
        if source not in self._decoders:
            self._opened = self._opened or open_sources(self.prepared.plan.flow)
            self._opened[source].resolve_schema()
            decoder, declared = self._opened[source].decoder(), self.prepared.plan.flow.sources[source]
            if declared.schema is not None and declared.schema.evolve == "lenient":
                options = source_place(self.prepared.plan.flow, source).options
                own = own_decoder(decoder)
                lenient = LenientDecoder(own, Noticer(source, own.schema, options.get("format") or ""), options)
                decoder = decoder.over(lenient) if isinstance(decoder, AddedColumns) else lenient
            self._decoders[source] = decoder
        return self._decoders[source]

    def columns_at(self, step: str) -> Schema | None:
        """The input columns of a step or sink; None if only Spark knows them."""
        node = self.query.node(step)
        return self.prepared.plan.schemas.get(base(node.inputs[0])) if node.inputs else None

    def _source_above(self, node: PlannedNode) -> str:
        waiting = list(node.inputs)
        while waiting:
            id_ = base(waiting.pop(0))
            if id_ in self.query.sources:
                return id_
            waiting += self.query.node(id_).inputs
        return self.query.sources[0]

    def _apart(self, letter: DeadLetter, node: PlannedNode) -> str:
        """Why a replay from the source may have another result than one from the step; empty if it has the same. It has if a single path
        leads from the source to the step, no other node reads from it, and no step on it keeps state or makes several rows of one."""
        above = self._above(node)
        below = self.below(letter.source)
        way = above & below
        if not letter.alone:
            return "an earlier step has made several rows of the record"
        for id_ in way:
            each = self.query.node(id_)
            if each.stateful and id_ != node.id:
                return f'step "{id_}" keeps state and may already contain it'
            if id_ != node.id and isinstance(self._action(id_), Join):
                return f'join "{id_}" may have made several rows from it'
            if sum(base(input_) in way for input_ in each.inputs) > 1 or len(self._ways(each, way)) > 1:
                return f'it reaches "{id_}" on two paths'
            # `letter.alone` covers the steps of the stage in which the record died; Spark's steps end a stage
            behind = way & self.below(id_) - ({id_} if id_ != node.id or letter.reason != "require" else set())
            if self._is_python(id_) and any(self.query.node(other).stage == "native" or other == id_ for other in behind):
                return f'Python step "{id_}" may have made several rows from it'
            others = [other.id for other in self.query.nodes if id_ in map(base, other.inputs) and other.id not in way and id_ != node.id]
            if others:
                return f'it has already reached "{others[0]}"'
        return ""

    def _ways(self, node: PlannedNode, way: set[str]) -> list[str]:
        single = not isinstance(self._action(node.id), Merge)
        return [input_ for input_ in node.inputs if base(input_) in way][: 1 if single else None]

    def _is_python(self, id_: str) -> bool:
        action = self._action(id_)
        return isinstance(action, Python) or (isinstance(action, Utilities) and action.order == "fixed")

    def _action(self, id_: str) -> Action | None:
        step = self.prepared.plan.flow.node(id_)
        return step.action if isinstance(step, Step) else None

    def _above(self, node: PlannedNode) -> set[str]:
        found, waiting = {node.id}, [node]
        while waiting:
            for input_ in map(base, waiting.pop().inputs):
                if input_ not in found:
                    found.add(input_)
                    waiting.append(self.query.node(input_))
        return found

    def below(self, id_: str) -> set[str]:
        """The node and all nodes that its rows reach."""
        found = {id_}
        for node in self.query.nodes:  # in topological order
            if any(base(input_) in found for input_ in node.inputs):
                found.add(node.id)
        return found


# Whether a replayed dead letter would be late: its time, as its source reads it, is compared with the watermark of its query. Does not need
# Spark.


@dataclass(frozen=True, slots=True)
class _Door:
    """A step that keeps state, where rows of a source may be late by this column of the source."""

    column: str
    grid: WindowGrid | None
    watermark_us: int


class Lateness:
    """Checks whether dead letters would be late in one query now. A row that is in time now may be late when a run processes it, and steps
    on the way may give a row another time."""

    def __init__(self, entrances: ReplayPoints, folder: QueryFolder) -> None:
        self._entrances = entrances
        offsets = folder.checkpoint / "offsets"
        newest = newest_of(offsets) if entrances.query.stateful else None
        self._watermark_us = 0 if newest is None else watermark_us(offsets, newest)
        self._doors: dict[str, list[_Door]] = {}

    @property
    def watermark(self) -> str:
        """The watermark of the query, as ISO 8601."""
        return instant_text(pa.array([self._watermark_us], pa.timestamp("us", tz="UTC")))

    def is_late(self, source: str, row: pa.RecordBatch) -> bool:
        """True if a dead letter that enters at its source, which reads it as this row, would be late now."""
        for door in self._of(source):
            times = row.column(door.column).drop_null().cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            at = np.asarray(times.to_numpy(zero_copy_only=False), np.int64)
            ends = at if door.grid is None else door.grid.last_ends_us(at)
            if (ends <= door.watermark_us).any():
                return True
        return False

    def _of(self, source: str) -> list[_Door]:
        if source not in self._doors:
            self._doors[source] = self._stateful_entrances(source) if self._watermark_us else []
        return self._doors[source]

    def _stateful_entrances(self, source: str) -> list[_Door]:
        plan, query = self._entrances.prepared.plan, self._entrances.query
        marks, layout = resolve(Graph(plan.flow)).watermarks, NodeLayout(plan, query)
        columns = self._entrances.decoder(source).schema
        declared, below = plan.flow.sources[source].watermark, self._entrances.below(source)
        found = []
        for node in query.nodes:
            fed = [input_ for input_ in node.inputs if base(input_) in below] if node.stateful else []
            for mark in filter(None, (slowest(marks.get(base(input_), ())) for input_ in fed)):
                column = declared.column if declared is not None and mark.origin == source else mark.column
                if column in columns and columns[column].type.name == "TIMESTAMP":
                    rule = late_rule(layout.step(node.id), mark.column)
                    if rule.drops:
                        found.append(_Door(column, rule.grid, self._watermark_us - layout.lag_us(node.id)))
        return found


_LETTERS, _BYTES = 10_000, 32 * 2**20
"""the most dead letters and bytes of one request, which is processed as one Batch"""
_LISTED, _LISTED_IN_ALL = 20, 200
"""the most dead letters that are listed one by one, for one reason and in all"""


@dataclass(frozen=True, slots=True)
class ExportedLetter:
    """The contents of a file of dead letters for one of them: its lineage, record and row, changed or not."""

    lineage: str
    payload: bytes
    came: str


@dataclass
class Replayed:
    """The result of a replay command. If `running` is False, a run has to be started to process the requests."""

    flow: str
    asked: int = 0
    repaired: int = 0
    before: int = 0
    """dead letters whose replay was requested before: nothing more happens to them"""
    refused: list[dict[str, str]] = field(default_factory=list)
    refusals: int = 0
    listed: Counter[str] = field(default_factory=Counter)
    """reason → number of dead letters that are not replayed"""
    entering: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(query, replay point) → number of dead letters; the replay point is a step, or the source"""
    late: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(query, its watermark now) → number of dead letters before it, which will become dead letters again"""
    unchecked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(query, step) → number of dead letters that enter at a step whose columns only Spark knows"""
    requests: list[str] = field(default_factory=list)
    running: bool = False
    dry: bool = False

    def refuse(self, query: str, key: Key, letter: DeadLetter, cannot: Cannot) -> None:
        """Count a dead letter of a query that is not replayed."""
        self.note(letter.id, key_text(query, key), cannot)

    def note(self, id_: str, key: str, cannot: Cannot) -> None:
        """Count a dead letter that is not replayed. The first ones of each reason are listed."""
        self.refusals += 1
        self.listed[cannot.why] += 1
        if self.listed[cannot.why] <= _LISTED and len(self.refused) < _LISTED_IN_ALL:
            self.refused.append({"id": id_, "key": key, "why": cannot.why, "remedy": cannot.remedy})

    def as_json(self) -> dict[str, Any]:
        """The result as one JSON object."""
        return {
            "flow": self.flow,
            "dry_run": self.dry,
            "replayed": self.asked,
            "repaired": self.repaired,
            "already": self.before,
            "refused": self.refusals,
            "refusals": self.refused,
            "entering": [{"query": query, "at": at, "count": count} for (query, at), count in sorted(self.entering.items())],
            "late": [{"query": query, "watermark": mark, "count": count} for (query, mark), count in sorted(self.late.items())],
            "unchecked": [{"query": query, "at": at, "count": count} for (query, at), count in sorted(self.unchecked.items())],
            "requests": self.requests,
            "running": self.running,
        }


def replay(
    prepared: PreparedFlow,
    which: Which,
    *,
    from_start: bool = False,
    given: Mapping[tuple[str, Key], ExportedLetter] | None = None,
    as_they_were: bool = False,
    dry_run: bool = False,
) -> Replayed:
    """Request the replay of the selected dead letters, except of those for which it was requested before.

    Needs no lease. It may be done while the flow runs, by several processes at once, and again after an interruption: a dead letter is in
    one request only.

    Args:
        prepared: The flow.
        which: The selection.
        from_start: True to replay them from their sources.
        given: (query, key) → contents of an exported file: only these dead letters are replayed, as the file has them.
        as_they_were: True to ignore the repairs of `dead-letter edit`.
        dry_run: True to write no request.

    Raises:
        Refused: The flow has no such query with state, or queries are being moved to other tiers.
    """
    done = Replayed(prepared.name, dry=dry_run)
    there, owner = False, ""
    seen: set[tuple[str, Key]] = set()
    asked: list[tuple[QueryFolder, Lineage]] = []
    _no_move(prepared)
    for tier in prepared.tiers:
        done.running = done.running or read_holder(tier.folder) is not None
        made = {query.name: query for query in tier.plan.queries}
        for folder in tier.folder.queries():
            lineage = read_lineage(folder)
            if which.query not in ("", folder.name) or lineage is None:
                continue
            there = True
            moved = has_moved(folder)
            if moved or folder.name not in made:
                asked_for, stays = (_MOVED, _MOVED) if moved else (_WAITS, _GONE)
                _refuse_all(folder, which, done, seen, asked_for, stays)
                continue
            owner = owner or known_owner(prepared.root)
            refusal = query_refusal(tier, made[folder.name], lineage, owner)
            if refusal is not None:
                # no run of the present flow continues the query: a request would wait for ever
                stays = Cannot(refusal.message, refusal.remedy)
                _refuse_all(folder, which, done, seen, stays, stays)
                continue
            asked.append((folder, lineage))
            _Asking(tier, made[folder.name], folder, which, from_start, given, as_they_were, done, lineage, seen).ask()
    if done.requests:
        # a move that has begun meanwhile sees the requests and withdraws, or is seen here: in progress, or by the lineages that it has
        # ended
        _no_move(prepared, done.requests)
        _not_left(prepared, asked, done.requests)
    if not there:
        what = f'Query "{which.query}" of flow "{prepared.name}"' if which.query else f'flow "{prepared.name}"'
        raise Refused(
            f"{what} has no state in {prepared.folder}", remedy="run the flow first, or name its state folder", code="state-missing"
        )
    for name, key in (given or {}).keys() - seen:
        gone = Cannot("the dead letter does not exist, or belongs to an earlier lineage", f"export the dead letters again: {EXPORT}")
        done.note("", key_text(name, key), gone)
    return done


def _no_move(prepared: PreparedFlow, written: Sequence[str] = ()) -> None:
    """Raise Refused while queries are moved to other tiers: it is not known then which query owns the dead letters, and the requests in
    `written`."""
    if Journal(prepared.root, prepared.name).there:
        says = f"; written, and possibly without effect: {_requests(written)}" if written else ""
        raise Refused(
            f'flow "{prepared.name}": a state migration to another tier layout is in progress or was interrupted{says}',
            remedy="wait until it ends, then repeat the command; if it was interrupted, the next run completes it",
            code="move-unfinished",
        )


def _not_left(prepared: PreparedFlow, asked: Iterable[tuple[QueryFolder, Lineage]], written: Sequence[str]) -> None:
    """Raise Refused if a move has begun and ended while the replays were requested, and has ended the lineage of one of the queries."""
    for folder, lineage in asked:
        now = read_lineage(folder)
        if now is None or now.id != lineage.id or has_moved(folder):
            raise Refused(
                f'flow "{prepared.name}": query "{folder.name}" was moved or rewound while its replay was requested; '
                f"written, and possibly without effect: {_requests(written)}",
                remedy="repeat the command: its answer lists the dead letters that no run replays any more, which can be exported",
                code="move-unfinished",
            )


def _requests(written: Sequence[str]) -> str:
    more = f" and {len(written) - _LISTED:,} more" if len(written) > _LISTED else ""
    return f"request{'s' * (len(written) != 1)} {', '.join(written[:_LISTED])}{more}"


def _refuse_all(folder: QueryFolder, which: Which, done: Replayed, seen: set[tuple[str, Key]], asked: Cannot, why: Cannot) -> None:
    """Count the selected dead letters of a query that no run continues as not replayed.

    Args:
        folder: The folder of the query's state.
        which: The selection.
        done: The result to which they are added.
        seen: The keys that were found, to which they are added.
        asked: The reason for those whose replay was requested.
        why: The reason for the others.
    """
    states = LetterStates(folder)
    for batch, place, letter in dated_letters(folder, wanted=which.fits_batch):
        key = (batch.batch, place)
        if which.fits(letter) and which.fits_key(folder.name, key):
            seen.add((folder.name, key))
            if states.is_replayed(key):
                done.before += 1
            else:
                done.refuse(folder.name, key, letter, asked if states.asked(key) else why)


_GONE = Cannot("no sink of the flow uses its query any more", f"restore the sink in the flow, or export the dead letters: {EXPORT}")
_WAITS = Cannot("its replay is requested, and waits for its query, which no sink uses any more", _GONE.remedy)
_MOVED = Cannot("its query was moved to another tier without it", f"export it: {EXPORT}")


@dataclass
class _Asking:
    tier: Prepared
    query: QueryPlan
    folder: QueryFolder
    which: Which
    from_start: bool
    given: Mapping[tuple[str, Key], ExportedLetter] | None
    as_they_were: bool
    done: Replayed
    lineage: Lineage
    seen: set[tuple[str, Key]]
    late: set[Key] = field(default_factory=set)
    unchecked: set[Key] = field(default_factory=set)
    watermark: str = ""

    def ask(self) -> None:
        lineage = self.lineage
        replays = Replays(self.folder.replays)
        number = replays.next_number()
        asked = set(replays.asked(lineage.id))
        waiting: dict[str, list[tuple[Key, Entering]]] = {}
        sizes: Counter[str] = Counter()

        def send(source: str) -> None:
            nonlocal number
            letters = waiting.pop(source, [])
            sizes[source] = 0
            while letters and not self.done.dry:
                faults.reached("replay.asked.before")
                request = replays.ask(number, source, lineage.id, letters)
                if request is not None:
                    number += 1
                    self._note(request)
                    faults.reached("replay.asked.after")
                    break
                # another process was first: dead letters in its request are not requested again
                for other in replays.all(number):
                    number = other.number + 1
                    asked.update(other.letters if other.lineage == lineage.id else ())
                mine = [each for each in letters if each[0] not in asked]
                self._count(letters, -1)
                self._count(mine, 1)
                self.done.before += len(letters) - len(mine)
                letters = mine

        for key, carrier, entering in self._entering(asked):
            waiting.setdefault(carrier, []).append((key, entering))
            self._count([(key, entering)], 1)
            sizes[carrier] += len(entering.letter.payload) + len(entering.letter.came)
            if len(waiting[carrier]) >= _LETTERS or sizes[carrier] >= _BYTES:
                send(carrier)
        for source in list(waiting):
            send(source)

    def _count(self, letters: list[tuple[Key, Entering]], by: int) -> None:
        for key, entering in letters:
            self.done.asked += by
            self.done.late[self.query.name, self.watermark] += by * (key in self.late)
            self.done.unchecked[self.query.name, entering.at or entering.letter.source] += by * (key in self.unchecked)
            self.done.repaired += by * entering.letter.repaired
            self.done.entering[self.query.name, entering.at or entering.letter.source] += by
        self.done.entering += Counter()  # without zeros
        self.done.late += Counter()
        self.done.unchecked += Counter()

    def _note(self, request: ReplayRequest) -> None:
        self.done.requests.append(f"{self.query.name}:{request.number}")
        for key in request.repaired:
            drop_repair(self.folder, key)

    def _entering(self, asked: set[Key]) -> Iterator[tuple[Key, str, Entering]]:
        """Yields (key, the source in whose log it is written, the dead letter as it enters) of the selected dead letters that can be
        replayed."""
        entrances = ReplayPoints(self.tier, self.query)
        lateness = Lateness(entrances, self.folder)
        self.watermark = lateness.watermark
        repaired = repaired_keys(self.folder) if self.given is None and not self.as_they_were else set()
        begins = _begins(self.folder, self.lineage.starts)
        for batch, place, letter in dated_letters(self.folder, wanted=self.which.fits_batch):
            key = (batch.batch, place)
            if not self.which.fits(letter) or not self.which.fits_key(self.query.name, key):
                continue
            given = None if self.given is None else self.given.get((self.query.name, key))
            if self.given is not None and (given is None or given.lineage != self.lineage.id):
                continue
            self.seen.add((self.query.name, key))
            if key in asked:
                self.done.before += 1
                continue
            if given is None:
                repair = read_repair(self.folder, key) if key in repaired else None
            else:
                where = entrances.of(letter, from_start=self.from_start)
                repair = _changed(letter, given, "" if isinstance(where, Cannot) else where.at)
            mended = letter if repair is None else with_repair(letter, repair)
            entrance = entrances.of(mended, from_start=self.from_start)
            if repair is not None and repair.came is not None and not isinstance(entrance, Cannot) and not entrance.at:
                entrance = _OF_ROW
            taken = entrance if isinstance(entrance, Cannot) else entrances.taken(mended, entrance, key_text(self.query.name, key))
            if isinstance(taken, Cannot):
                self.done.refuse(self.query.name, key, letter, taken)
                continue
            assert not isinstance(entrance, Cannot)
            if not entrance.at and taken is not None and lateness.is_late(mended.source, taken):
                if letter.reason == LATE:
                    self.done.refuse(self.query.name, key, letter, _late_again(self.watermark))
                    continue
                self.late.add(key)
            if taken is None:
                self.unchecked.add(key)
            enters = replace(mended, replays=letter.replays + 1, replay_of=f"{key[0]}:{key[1]}")
            yield key, entrance.carrier, Entering(enters, entrance.at, begins(key[0], letter.source or entrance.carrier))


_OF_ROW = Cannot(
    "the input row of the step was repaired, but the replay enters at the source, which uses the record",
    f"repair the record ({flow_command('dead-letter edit', 'ID', '--from-start')}), or pass --as-is to replay it unchanged",
)


def _late_again(watermark: str) -> Cannot:
    """The reason not to replay a dead letter that was late, and would be late again."""
    return Cannot(
        f"its time is still before the watermark of its query ({watermark}): it would be late again",
        f"correct its time: {flow_command('dead-letter edit', 'ID')}; or {start_over()}",
    )


def _changed(letter: DeadLetter, given: ExportedLetter, at: str) -> Repair | None:
    """The change that an operator has made in a file; None if nothing was changed. If both were changed, the row counts if the dead letter
    enters `at` a step, and the record if it enters at its source. A line without a row does not change it."""
    payload = None if given.payload == letter.payload else Repair(payload=given.payload)
    came = None if given.came in ("", letter.came) else Repair(came=given.came)
    return (came or payload) if at else (payload or came)


def with_repair(letter: DeadLetter, repair: Repair) -> DeadLetter:
    """The dead letter with the repair applied."""
    if repair.payload is not None:
        # the input row was made of the record as it was before
        return replace(letter, payload=repair.payload, came="", truncated=False, repaired=True)
    return replace(letter, came=repair.came or "", repaired=True)


def _begins(folder: QueryFolder, starts: Mapping[str, int]) -> Callable[[int, str], int]:
    """Returns a function from (Batch, source) to the position in the source's log at which the Batch began to read.

    If that is not known, because the details of the Batch are pruned, it is the position in `starts`, at which the lineage has begun. The
    Batch did not begin before it. With a later position, a dead letter whose record a rewind does not read again would be lost.
    """
    decisions = Decisions(folder.decisions)
    known: dict[int, Mapping[str, int]] = {}

    def begin(batch: int, source: str) -> int:
        if batch not in known:
            known.clear()
            decision = decisions.read(batch) if batch > decisions.pruned_mark() else None
            known[batch] = {} if decision is None else {each.source: each.start for each in decision.sources}
        found = known[batch].get(source)
        return starts.get(source, 0) if found is None else found

    return begin
