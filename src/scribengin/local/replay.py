"""Replaying dead letters of a flow: which, where they enter, what cannot; and the requests that its run takes up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scribengin.core import faults
from scribengin.core.errors import Refused
from scribengin.core.remedies import flow_command, start_over
from scribengin.local.entrances import EXPORT, Cannot, Entrances
from scribengin.local.lateness import Lateness
from scribengin.local.letters import LetterStates, key_text
from scribengin.local.preflight import query_refusal
from scribengin.spark.gate import LATE
from scribengin.state.dead import dated_letters
from scribengin.state.decisions import Decisions
from scribengin.state.folder import known_owner
from scribengin.state.lease import read_holder
from scribengin.state.lineage import read_lineage
from scribengin.state.moves import Journal, has_moved
from scribengin.state.repairs import Repair, drop_repair, read_repair, repaired_keys
from scribengin.state.replays import Entering, Replays
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scribengin.local.letters import Which
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.plan.model import QueryPlan
    from scribengin.state.contract import DeadLetter
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lineage import Lineage
    from scribengin.state.replays import Key, ReplayRequest

_LETTERS, _BYTES = 10_000, 32 * 2**20
"""what one request holds at most: it is one Batch"""
_LISTED, _LISTED_IN_ALL = 20, 200
"""dead letters that are listed one by one, of one reason and in all"""


@dataclass(frozen=True, slots=True)
class Given:
    """What a file of dead letters says of one: its lineage, record and row, changed or not."""

    lineage: str
    payload: bytes
    came: str


@dataclass
class Replayed:
    """What a command has asked for. `waits` says whether a run has to come first."""

    flow: str
    asked: int = 0
    repaired: int = 0
    before: int = 0
    """dead letters that were asked for already: nothing more happens to them"""
    refused: list[dict[str, str]] = field(default_factory=list)
    refusals: int = 0
    listed: Counter[str] = field(default_factory=Counter)
    """why → dead letters that stay"""
    entering: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(Query, where) → dead letters; a source where they begin at the start"""
    late: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(Query, its watermark now) → dead letters behind it: they come back as dead letters"""
    unchecked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(Query, step) → dead letters that enter at a step whose columns only Spark knows"""
    requests: list[str] = field(default_factory=list)
    running: bool = False
    dry: bool = False

    def refuse(self, query: str, key: Key, letter: DeadLetter, cannot: Cannot) -> None:
        """One dead letter that stays where it is."""
        self.note(letter.id, key_text(query, key), cannot)

    def note(self, id_: str, key: str, cannot: Cannot) -> None:
        """Count a dead letter that stays; the first ones of each reason are listed."""
        self.refusals += 1
        self.listed[cannot.why] += 1
        if self.listed[cannot.why] <= _LISTED and len(self.refused) < _LISTED_IN_ALL:
            self.refused.append({"id": id_, "key": key, "why": cannot.why, "remedy": cannot.remedy})

    def as_json(self) -> dict[str, Any]:
        """One object."""
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
    given: Mapping[tuple[str, Key], Given] | None = None,
    as_they_were: bool = False,
    dry_run: bool = False,
) -> Replayed:
    """Ask for the dead letters that are meant, and have not been asked for; `given`: only those, as it says. Needs no lease, and may
    be done while the flow runs, by several at once, again, and after a kill: a dead letter is in one request.

    `as_they_were`: without what `dead-letter edit` has made of them. Raises Refused if the flow has no such Query with state.
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
                # no run takes the Query up as the flow is now: what is asked for would wait without end
                stays = Cannot(refusal.message, refusal.remedy)
                _refuse_all(folder, which, done, seen, stays, stays)
                continue
            asked.append((folder, lineage))
            _Asking(tier, made[folder.name], folder, which, from_start, given, as_they_were, done, lineage, seen).ask()
    if done.requests:
        # one that began meanwhile sees what was asked, and gives way, or is seen here: in its midst, or by what it has left
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
    """Raise Refused while Queries are moved to other tiers: the owner of the dead letters and of the requests in `written` is unknown
    then."""
    if Journal(prepared.root, prepared.name).there:
        says = f"; written, and possibly without effect: {_requests(written)}" if written else ""
        raise Refused(
            f'flow "{prepared.name}": a state migration to another tier layout is in progress or was interrupted{says}',
            remedy="wait until it ends, then repeat the command; if it was interrupted, the next run completes it",
            code="move-unfinished",
        )


def _not_left(prepared: PreparedFlow, asked: Iterable[tuple[QueryFolder, Lineage]], written: Sequence[str]) -> None:
    """Raise Refused if a move has begun and ended while the dead letters were asked for, and left a Query that was asked."""
    for folder, lineage in asked:
        now = read_lineage(folder)
        if now is None or now.id != lineage.id or has_moved(folder):
            raise Refused(
                f'flow "{prepared.name}": Query "{folder.name}" was moved or rewound while its replay was requested; '
                f"written, and possibly without effect: {_requests(written)}",
                remedy="repeat the command: its answer lists the dead letters that no run replays any more, which can be exported",
                code="move-unfinished",
            )


def _requests(written: Sequence[str]) -> str:
    more = f" and {len(written) - _LISTED:,} more" if len(written) > _LISTED else ""
    return f"request{'s' * (len(written) != 1)} {', '.join(written[:_LISTED])}{more}"


def _refuse_all(folder: QueryFolder, which: Which, done: Replayed, seen: set[tuple[str, Key]], asked: Cannot, why: Cannot) -> None:
    """The dead letters that are meant of a Query that no run goes on with; `asked`: why those stay that were asked for."""
    states = LetterStates(folder)
    for batch, place, letter in dated_letters(folder, wanted=which.fits_batch):
        key = (batch.batch, place)
        if which.fits(letter) and which.fits_key(folder.name, key):
            seen.add((folder.name, key))
            if states.came_through(key):
                done.before += 1
            else:
                done.refuse(folder.name, key, letter, asked if states.asked(key) else why)


_GONE = Cannot("no sink of the flow uses its Query any more", f"restore the sink in the flow, or export the dead letters: {EXPORT}")
_WAITS = Cannot("its replay is requested, and waits for its Query, which no sink uses any more", _GONE.remedy)
_MOVED = Cannot("its Query was moved to another tier without it", f"export it: {EXPORT}")


@dataclass
class _Asking:
    tier: Prepared
    query: QueryPlan
    folder: QueryFolder
    which: Which
    from_start: bool
    given: Mapping[tuple[str, Key], Given] | None
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
                # somebody was first: letters that are in that request are not ours any more
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
        """(key, the source in whose log it stands, as it enters) of the dead letters that are meant and can be replayed."""
        entrances = Entrances(self.tier, self.query)
        lateness = Lateness(entrances, self.folder)
        self.watermark = lateness.watermark
        repaired = repaired_keys(self.folder) if self.given is None and not self.as_they_were else set()
        begins = _begins(self.folder)
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
    """Of a dead letter that was late, and would be nothing else."""
    return Cannot(
        f"its time is still before the watermark of its Query ({watermark}): it would be late again",
        f"correct its time: {flow_command('dead-letter edit', 'ID')}; or {start_over()}",
    )


def _changed(letter: DeadLetter, given: Given, at: str) -> Repair | None:
    """What a person has changed in a file; of both what is taken `at` the step where it enters: the row, which was made of the record, or
    the record where it enters at its source. A line without a row says nothing of it."""
    payload = None if given.payload == letter.payload else Repair(payload=given.payload)
    came = None if given.came in ("", letter.came) else Repair(came=given.came)
    return (came or payload) if at else (payload or came)


def with_repair(letter: DeadLetter, repair: Repair) -> DeadLetter:
    """The dead letter as a person has made it."""
    if repair.payload is not None:
        # what had come to the step was made of the record as it was
        return replace(letter, payload=repair.payload, came="", truncated=False, repaired=True)
    return replace(letter, came=repair.came or "", repaired=True)


def _begins(folder: QueryFolder) -> Callable[[int, str], int]:
    """Where in a source's log a Batch began to read; of one without details the end of the log: who goes back does not get there."""
    decisions = Decisions(folder.decisions)
    known: dict[int, Mapping[str, int]] = {}

    def begin(batch: int, source: str) -> int:
        if batch not in known:
            known.clear()
            decision = decisions.read(batch) if batch > decisions.pruned_mark() else None
            known[batch] = {} if decision is None else {each.source: each.start for each in decision.sources}
        found = known[batch].get(source)
        return SourceLog(folder.sources, source).length() if found is None and source else found or 0

    return begin
