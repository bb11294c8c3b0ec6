"""The cells to cover: which aims there are, which are still open, and which life comes next. The sample continues where it stopped.

As issue 3 requires, each way to strike is tried at each point once per format, and three times where a Batch is published or recovered. For
Kafka, each way is tried at each point once per route (`kafka_flows.ROUTES`), which takes the place of the format; the same applies to
stores. For each sink of a store, over all of its routes, three times if the driver, a worker or the server is killed, or the driver is
suspended (issue 8). Rows without a single origin (aggregations and joins) must meet each of these four ways on each keyed route, too: see
`Meeting`. Open cells come first, and among them those whose aim was not yet combined with that kind of query. If none is open, the sample
continues.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING

from harness.faults.drivers import IN_TASKS
from harness.faults.flows import DECISIVE, FORMATS, KINDS
from harness.faults.kafka_flows import BY_UNIT, KAFKA_DECISIVE, KAFKA_KINDS, ROUTES
from harness.faults.outcomes import Aim, Life
from harness.faults.stores import GROUND_OF, KEYED_ROUTES, ROUTES_BESIDE, STORES
from harness.faults.table_flows import BY_UNIT as TABLE_BY_UNIT
from harness.faults.tier_flows import RECUT_KINDS, TIER_KINDS, TIER_ROUTES, commits_by_unit, lives_on
from harness.faults.ways import SERIES, is_soft
from scribengin.core.faults import MOVE_POINTS, OUTBOX_POINTS, POINTS, TRANSACTION_POINTS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

    from harness.faults.outcomes import LifeOutcome

_PUBLISH = tuple(point for point in POINTS if point.startswith("publish."))
_RECOVERY = tuple(point for point in POINTS if point.startswith("recovery."))
PLACES = {
    "kill": POINTS,
    "die": POINTS,
    "enospc": ("source.logged", "stage.mid_write", "stage.closed", "decide.before", "publish.record.before", "recovery.before"),
    "recovery": ("lease.taken", *_RECOVERY, "batch.entry", *_PUBLISH, "commit.before"),
    "full": ("out", "state"),
    "two": POINTS,
    "copy": ("stage.after", "decide.after", "publish.renamed"),
    "moved": ("stage.after", "decide.after", "publish.record.after", "commit.before"),
    "edit": ("batch.entry", "stage.after", "decide.before", "decide.after", "publish.record.after"),
}
"""way to strike → points, for files"""
_SINK_POINTS = (*(point for point in POINTS if point != "publish.renamed"), *TRANSACTION_POINTS)
_WRITING = ("stage.mid_write", "decide.after", *TRANSACTION_POINTS)
_READING = ("source.logged", "stage.before", "stage.mid_write", "decide.after")
PLACES_KAFKA_SINK = {
    "kill": _SINK_POINTS,
    "die": _SINK_POINTS,
    "recovery": ("lease.taken", *_RECOVERY, *TRANSACTION_POINTS),
    "two": _SINK_POINTS,
    "zombie": _SINK_POINTS,
    "moved": ("decide.after", "transaction.commit.after"),
    "edit": ("stage.mid_write", "decide.after", "transaction.commit.after"),
    "broker": ("source.logged", *_WRITING),
    "lost": _WRITING,
    "lineage": ("decide.before", "commit.before", *_WRITING),
    "slow": ("stage.before", "stage.mid_write", "fence.after", "transaction.sent", "transaction.commit.before"),
    "speculation": ("stage.before", "stage.mid_write", "stage.closed", *TRANSACTION_POINTS),
}
"""the same for a Kafka sink"""
PLACES_KAFKA_SOURCE = {
    "kill": POINTS,
    "die": POINTS,
    "two": POINTS,
    "zombie": POINTS,
    "broker": _READING,
    "lost": _READING,
    "slow": ("stage.before", "stage.mid_write"),
}
"""the same for a Kafka source with another sink"""
PLACES_TIERS = {
    "kill": POINTS,
    "die": POINTS,
    "enospc": PLACES["enospc"],
    "recovery": PLACES["recovery"],
    "two": POINTS,
    "zombie": ("source.logged", "stage.mid_write", "decide.before", *DECISIVE),
    "edit": PLACES["edit"],
}
"""the same for a flow in tiers: all tiers pass each point"""
PLACES_TIERS_FOLDER = PLACES_TIERS | {
    "recut": MOVE_POINTS,
    "gone": ("batch.entry", "stage.mid_write", "decide.before", *DECISIVE),
}
"""the same for folders as channels, with all tiers in one driver"""
PLACES_TIERS_KAFKA = {
    **{way: (*points, *TRANSACTION_POINTS) if way in ("kill", "die", "two", "zombie") else points for way, points in PLACES_TIERS.items()},
    "recut": MOVE_POINTS,
    "broker": ("source.logged", *_WRITING),
}
"""the same for topics as channels, and files as sinks"""
_BY_BATCH = tuple(point for point in TRANSACTION_POINTS if point != "marker.read")
_DECIDED = ("decide.before", "decide.after", *_BY_BATCH, "publish.after", "commit.before")
PLACES_TIERS_SPILL = {
    "kill": (*_DECIDED, *_RECOVERY),
    "two": _DECIDED,
    "zombie": _DECIDED,
    "recovery": (*_RECOVERY, *_BY_BATCH),
    "broker": ("source.logged", "stage.mid_write", "decide.after", *_BY_BATCH),
    "away": tuple(point for point in OUTBOX_POINTS if point != "outbox.dropped"),
}
"""the same for topics that do not block their feeder"""
PLACES_TIERS_DROP = PLACES_TIERS_SPILL | {"away": OUTBOX_POINTS}
"""the same for topics that drop what the channel does not accept"""
PLACES_OF = {
    **dict.fromkeys(FORMATS, PLACES),
    **{route: PLACES_KAFKA_SOURCE if route == "kafka-to-files" else PLACES_KAFKA_SINK for route in ROUTES},
    **{route: ground.places[route] for route, ground in GROUND_OF.items()},
    "tiers-folder": PLACES_TIERS_FOLDER,
    "tiers-kafka": PLACES_TIERS_KAFKA,
    "tiers-apart": PLACES_TIERS,
    "tiers-spill": PLACES_TIERS_SPILL,
    "tiers-drop": PLACES_TIERS_DROP,
}
"""format or route → way → points"""
AIMS_OF = {format: tuple(Aim(way, point) for way, points in places.items() for point in points) for format, places in PLACES_OF.items()}
_ALONE = frozenset({"full", "broker", "lost", "lineage", "slow", "speculation", "away"})
"""ways that need their own environment for the whole life: a small disk, brokers, short time-outs, workers"""
STRIKES = 12
"""maximum number of strikes in a life; the kills before each `recovery` are not counted"""
_OFTEN = 3

Flow = tuple[str, str, bool]
"""(kind of query, format, partitioned)"""
Target = tuple[Aim, str]
"""(aim, format)"""
Meeting = tuple[str, str, str]
"""(kind of query, route, way to strike), at any points"""
WITHOUT_ORIGIN = ("aggregate", "join")
"""kinds whose rows get their id from key columns if a keyed store needs one"""
MEETINGS = {"kill": 3, "die": 1, "zombie": 3, "server": 3}
"""way → number of strikes that such a kind needs on each keyed route; `die` counts only those that end a worker"""


@cache
def wanted(aim: Aim, format: str) -> int:
    """The number of seeds that an aim needs in this format, or on this route."""
    if format in (*ROUTES, *TIER_ROUTES):
        return 1
    if format in GROUND_OF:
        return -(-_OFTEN // sum(aim in AIMS_OF[route] for route in ROUTES_BESIDE[format])) if is_asked_for(aim) else 1
    return _OFTEN if aim.way == "recovery" or aim.point in (*_PUBLISH, *_RECOVERY) else 1


def is_asked_for(aim: Aim) -> bool:
    """True for the four ways that issue 8 requires for each store."""
    return aim.way in MEETINGS and (aim.way != "die" or aim.point in IN_TASKS)


def all_cells(only: str = "") -> Iterator[tuple[Aim, Flow]]:
    """Every aim with every flow whose text contains all words of `only` (`publish`, `kill@decide.after tail parquet`, …), or of one of
    several alternatives (`two@ hbase|cassandra`)."""
    choices = [each.split() for each in only.split("|")]
    flows = [*itertools.product(KINDS, FORMATS, (False, True)), *itertools.product(KAFKA_KINDS, ROUTES, (False,))]
    for ground in STORES:
        flows += itertools.product(ground.kinds, ground.routes, ground.partitioned)
    flows += [(kind, route, False) for kind, route in itertools.product(TIER_KINDS, TIER_ROUTES) if lives_on(kind, route)]
    for kind, format, partitioned in flows:
        for aim in AIMS_OF[format]:
            text = f"{aim} {kind} {format}{' partitioned' if partitioned else ''}"
            if _fits(aim, kind, format) and any(all(word in text for word in words) for words in choices):
                yield aim, (kind, format, partitioned)


def _fits(aim: Aim, kind: str, format: str) -> bool:
    """False if a flow of that kind never passes the point: task outputs that commit by themselves read their commit markers, and their
    Batch has no record of its own."""
    if aim.way in ("recut", "gone"):
        return kind in RECUT_KINDS if aim.way == "recut" else kind == "group"
    if PLACES_OF[format] is not PLACES_KAFKA_SINK:
        return True
    if aim.way in ("lineage", "speculation") or aim.point == "marker.read":
        return kind in BY_UNIT
    return kind not in BY_UNIT or not aim.point.startswith("publish.record.")


def latest(outcomes: Iterable[LifeOutcome]) -> dict[tuple[Life, int], LifeOutcome]:
    """The last outcome of each life and seed: a life that passes after a fix does not count as failed."""
    return {(outcome.life, outcome.seed): outcome for outcome in outcomes}


def passed_seeds(outcomes: Iterable[LifeOutcome]) -> defaultdict[Target, set[int]]:
    """Target → the seeds that covered it."""
    seeds: defaultdict[Target, set[int]] = defaultdict(set)
    for outcome in latest(outcomes).values():
        for aim in outcome.covered:
            seeds[aim, outcome.life.format].add(outcome.seed)
    return seeds


def wanted_meetings() -> Counter[Meeting]:
    """Meeting → number of strikes that are needed."""
    routes = [(route, way) for route in KEYED_ROUTES for way in MEETINGS if way in PLACES_OF[route]]
    return Counter({(kind, route, way): MEETINGS[way] for kind in WITHOUT_ORIGIN for route, way in routes})


def passed_meetings(outcomes: Iterable[LifeOutcome]) -> Counter[Meeting]:
    """Meeting → number of strikes in lives that passed."""
    lives = [(outcome.life, outcome.covered) for outcome in latest(outcomes).values()]
    return Counter((life.kind, life.format, aim.way) for life, covered in lives for aim in covered if is_asked_for(aim))


def open_meetings(outcomes: Iterable[LifeOutcome]) -> Counter[Meeting]:
    """Meeting → number of strikes that are missing; complete ones are left out."""
    return wanted_meetings() - passed_meetings(outcomes)


def count_open(outcomes: Iterable[LifeOutcome]) -> int:
    """The number of missing seeds, over all aims, formats and routes."""
    passed = passed_seeds(outcomes)
    return sum(max(0, wanted(aim, format) - len(passed[aim, format])) for aim, format in _targets())


def count_wanted() -> int:
    """The number of needed seeds, over all aims, formats and routes."""
    return sum(wanted(aim, format) for aim, format in _targets())


def _targets() -> Iterator[Target]:
    return ((aim, format) for format, aims in AIMS_OF.items() for aim in aims)


class CellSample:
    """Remembers what was tried, and chooses the next life."""

    def __init__(self, outcomes: Iterable[LifeOutcome], only: str = "", *, strikes: int = STRIKES) -> None:
        self._strikes = strikes
        self._flows: defaultdict[Flow, list[Aim]] = defaultdict(list)
        for aim, flow in all_cells(only):
            self._flows[flow].append(aim)
        self._lives: Counter[Flow] = Counter()
        self._tried: Counter[Target] = Counter()
        self._met: Counter[tuple[Aim, str | bool]] = Counter()
        """how often an aim was combined with a kind of query, and with partitioned or not"""
        self._outcomes: list[LifeOutcome] = []
        self._running: list[Life] = []
        for outcome in outcomes:
            self._note(outcome.life)
            self._outcomes.append(outcome)

    def add(self, outcome: LifeOutcome) -> None:
        """Record the outcome of a life that `choose` has returned."""
        self._running.remove(outcome.life)
        self._outcomes.append(outcome)

    def choose(self, rng: random.Random) -> Life | None:
        """The next life, which counts as running until its outcome is added; None if nothing matches `only`.

        Aims that failed, or were not reached, are tried again after the others.
        """
        if not self._flows:
            return None
        need, unmet = self._needs(), self._unmet()
        flow = max(self._flows, key=lambda flow: (self._gain(flow, need, unmet), -self._lives[flow], rng.random()))
        to_kafka = PLACES_OF[flow[1]] is PLACES_KAFKA_SINK
        decisive: tuple[str, ...] = KAFKA_DECISIVE if to_kafka else DECISIVE
        decisive = GROUND_OF[flow[1]].decisive if flow[1] in GROUND_OF else decisive
        by_unit = flow[0] in BY_UNIT if to_kafka else flow[1] == TABLE_BY_UNIT or commits_by_unit(*flow[:2])
        life = Life(*flow, tuple(_arranged(self._aims_of(flow, need, unmet, rng), rng, decisive, by_unit=by_unit)))
        self._note(life)
        self._running.append(life)
        return life

    def _needs(self) -> Counter[Target]:
        """Target → missing seeds, as if running lives had passed."""
        passed = passed_seeds(self._outcomes)
        need = Counter({(aim, format): wanted(aim, format) - len(passed[aim, format]) for aim, format in _targets()})
        need.subtract((aim, life.format) for life in self._running for aim in set(life.aims))
        return need

    def _unmet(self) -> Counter[Meeting]:
        """Meeting → missing strikes, as if running lives had passed."""
        running = Counter((life.kind, life.format, aim.way) for life in self._running for aim in life.aims if is_asked_for(aim))
        return open_meetings(self._outcomes) - running

    def _gain(self, flow: Flow, need: Counter[Target], unmet: Counter[Meeting]) -> tuple[int, int]:
        """The number of open aims that a life of this flow can cover, and the number of strikes that its kind is missing."""
        still = _open_of(flow, self._flows[flow], need, unmet)
        return min(self._strikes, len(still)), sum(unmet[(*flow[:2], way)] for way in MEETINGS)

    def _aims_of(self, flow: Flow, need: Counter[Target], unmet: Counter[Meeting], rng: random.Random) -> list[Aim]:
        kind, format, partitioned = flow

        def rank(aim: Aim) -> tuple[bool, int, int, float]:
            met = self._met[aim, kind] + self._met[aim, partitioned]
            return need[aim, format] <= 0, self._tried[aim, format], met, rng.random()

        best = sorted(self._flows[flow], key=rank)
        if best[0].way == "full":  # a small disk is used for the whole life
            return best[:1]
        best = [aim for aim in best if (aim.way == best[0].way if best[0].way in _ALONE else aim.way not in _ALONE)]
        return (_open_of(flow, best, need, unmet) or best)[: self._strikes]

    def _note(self, life: Life) -> None:
        self._lives[life.kind, life.format, life.partitioned] += 1
        for aim in set(life.aims):
            self._tried[aim, life.format] += 1
            self._met.update(((aim, life.kind), (aim, life.partitioned)))


def _open_of(flow: Flow, aims: Sequence[Aim], need: Counter[Target], unmet: Counter[Meeting]) -> list[Aim]:
    """The open aims, in the order of `aims`, including as many of each way as the flow's kind is missing."""
    kind, format, _ = flow
    missing = {way: unmet[kind, format, way] for way in MEETINGS}
    found = []
    for aim in aims:
        if is_asked_for(aim) and missing[aim.way] > 0:
            missing[aim.way] -= 1
            found.append(aim)
    return [*found, *(aim for aim in aims if need[aim, format] > 0 and aim not in found)]


def _arranged(aims: list[Aim], rng: random.Random, decisive: Sequence[str], *, by_unit: bool) -> Iterator[Aim]:
    """The aims in an order that wastes few starts: each recovery after a kill that leaves work for it, takeovers one after the other."""
    runs = [[aim for aim in aims if aim.way in ways] for ways in (("recovery",), SERIES)]
    if runs[0]:
        kills = [aim for aim in aims if aim.way == "kill" and aim.point in decisive]
        first = kills[0] if kills else Aim("kill", rng.choice(decisive))
        aims = [aim for aim in aims if aim != first]
        runs[0].insert(0, first)
    single = [[aim] for aim in aims if aim.way not in ("recovery", *SERIES) and not is_soft(aim, by_unit=by_unit)]
    order = [run for run in (*runs, *single) if run]
    rng.shuffle(order)
    yield from (aim for aim in aims if is_soft(aim, by_unit=by_unit))
    for run in order:
        yield from run
