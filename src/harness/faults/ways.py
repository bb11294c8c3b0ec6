"""The ways to strike a running flow, and their order: a start gets one strike that ends it, and any that do not end it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from harness.faults.drivers import IN_TASKS, Strike
from harness.faults.flows import STATEFUL
from harness.faults.kafka_ways import strike_over_kafka
from harness.faults.store_ways import strike_the_server
from harness.faults.tier_ways import strike_between_tiers
from scribengin.core.faults import ROLL_POINTS, TRANSACTION_POINTS

if TYPE_CHECKING:
    import random

    from harness.faults.drivers import Act, DriverProcess
    from harness.faults.outcomes import Aim
    from harness.faults.running import RunningLife

SERIES = ("two", "zombie")
"""ways whose aims are struck in a series: each driver is struck by the start of its successor. The last successor may be one that is
killed"""
_RIDERS = 3
"""a task that dies for a fourth time fails the run"""
_ONCE_A_RUN = frozenset(
    {"lease.taken", "recovery.before", "recovery.mid", "recovery.after", "fold.before", "fold.written", "fold.after", *ROLL_POINTS}
)
_HIGHEST_PASS = 2
_WAKES_S = 5.0
"""seconds to wait for the end of a resumed driver: it may have to wait for what its suspended successor commits"""
_EDITED = 0.3
"""share of the takeovers, for flows without state, in which the newer driver runs another plan"""

Placed = tuple[int, "Aim"]
"""(position in the life, aim)"""


def is_soft(aim: Aim, *, by_unit: bool) -> bool:
    """True if the strike ends one task and not the driver, so that it can share a start with another one. `by_unit`: task outputs commit by
    themselves."""
    return aim.way in ("die", "enospc") and (aim.point in IN_TASKS or (by_unit and aim.point in TRANSACTION_POINTS))


def strike_all(life: RunningLife) -> None:
    """Make all strikes of the life, in order. Soft strikes share starts with others; remaining ones get a start of their own."""
    placed = list(enumerate(life.outcome.life.aims))
    by_unit = life.flow.by_unit
    striker = _Striker(life, [each for each in placed if is_soft(each[1], by_unit=by_unit)])
    hard = [each for each in placed if not is_soft(each[1], by_unit=by_unit)]
    while hard:
        run = [each for each in hard if each[1].way in SERIES] if hard[0][1].way in SERIES else hard[:1]
        hard = [each for each in hard if each not in run]
        kills = kills_alone(hard) if run[0][1].way in SERIES else []
        hard = [each for each in hard if each not in kills[:1]]
        striker.strike([*run, *kills[:1]])
    while striker.soft:
        striker.struck(None)


def kills_alone(hard: list[Placed]) -> list[Placed]:
    """The kills that no recovery follows."""
    followed = zip_longest(hard, hard[1:])
    return [each for each, behind in followed if each[1].way == "kill" and (behind is None or behind[1].way != "recovery")]


@dataclass(slots=True)
class _Striker:
    life: RunningLife
    soft: list[Placed]
    pending: bool = field(default=False)
    """True if the last start was killed at a point that leaves work for a recovery"""

    def strike(self, run: list[Placed]) -> None:
        """Make the first strike; or, for a way in SERIES, all strikes of the series, with the kill of the last successor if one follows."""
        ((place, aim), *_) = run
        match aim.way:
            case "kill" | "die" | "enospc":
                self.struck((place, aim), act=aim.way)
            case "recovery":
                self._recovery(place, aim)
            case "two" | "zombie":
                self._two(run)
            case "broker" | "lost" | "lineage" | "slow" | "speculation":
                strike_over_kafka(self.life, place, aim)
                self.pending = False
            case "server":
                strike_the_server(self.life, place, aim)
                self.pending = False
            case "recut" | "away" | "gone":
                strike_between_tiers(self.life, place, aim)
                self.pending = False
            case "copy":
                self._copy(place, aim)
            case "moved":
                self._moved(place, aim)
            case "edit":
                self._edit(place, aim)
            case "full":
                self._full(place)
            case _:
                raise ValueError(f"there is no way {aim.way!r}")

    def struck(self, hard: Placed | None, *, act: Act = "kill") -> bool:
        """Run to the end with a hard strike (None: none) and soft ones; returns whether the hard one was made."""
        strikes: dict[int, Strike] = {}
        if hard is not None:
            strikes[hard[0]] = self._strike_at(hard[1].point, act, self._rng(hard[0]), once=hard[1].way == "recovery")
        riders = self._riders(taken=hard[1].point if hard is not None else "", alone=hard is None)
        for place, aim in riders:
            strikes[place] = self._strike_at(aim.point, aim.way, self._rng(place), once=True)  # type: ignore[arg-type]
        driver = self._run(list(strikes.values()))
        for place, strike in strikes.items():
            self.life.outcome.reached[place] = driver.was_hit_by(strike)
        hit = hard is not None and self.life.outcome.reached[hard[0]]
        killed = hit and act in ("kill", "die")
        self.pending = killed and hard is not None and (hard[1].way == "recovery" or hard[1].point in self.life.flow.decisive)
        return hit

    def _run(self, strikes: list[Strike]) -> DriverProcess:
        driver = self.life.start(strikes)
        status = driver.wait()
        hits = [strike for strike in strikes if driver.was_hit_by(strike)]
        missed = [str(strike) for strike in strikes if strike not in hits]
        self.life.note(f"exit {status}" + (f", not reached: {', '.join(missed)}" if missed else ""))
        if status > 0 and hits and all(strike.act == "enospc" for strike in hits) and "space" not in driver.explain():
            self.life.outcome.wrong.append(f"a full disk was not told: {driver.explain()}")
        return driver

    def _riders(self, *, taken: str, alone: bool) -> list[Placed]:
        """The soft strikes that can share a start: no two at the same point, and none in a run that is killed before it stages."""
        riders: list[Placed] = []
        if taken and not alone and taken in (*_ONCE_A_RUN, "source.logged", "batch.entry", *IN_TASKS, *TRANSACTION_POINTS):
            return riders
        for each in self.soft:
            if len(riders) < _RIDERS and each[1].point not in [aim.point for _, aim in riders]:
                riders.append(each)
        self.soft = [each for each in self.soft if each not in riders]
        return riders

    def _strike_at(self, point: str, act: Act, rng: random.Random, *, once: bool = False) -> Strike:
        nth = rng.randint(1, _HIGHEST_PASS)
        return Strike(point, act, 1 if once or point in _ONCE_A_RUN or point in IN_TASKS else nth)

    def _rng(self, place: int) -> random.Random:
        return self.life.random(place)

    # --- ways that take more than one start ---

    def _recovery(self, place: int, aim: Aim) -> None:
        """Kill a run during the recovery from an earlier kill."""
        if not self.pending:
            driver = self._run([self._strike_at(self._rng(place).choice(self.life.flow.decisive), "kill", self._rng(place), once=True)])
            if driver.process.returncode == 0:
                return
        self.struck((place, aim))

    def _two(self, run: list[Placed]) -> None:
        """Suspend each driver at its point, delete its lock, and suspend its successor at the next point; then resume the first, and so on.

        The last driver is killed, or suspended after its decision, or not struck. Of a `zombie`, no thread of any process runs meanwhile. A
        driver that has not ended soon after it was resumed continues beside the next ones.
        """
        older: DriverProcess | None = None
        awake: list[DriverProcess] = []
        *_, end = run
        for place, aim in run[:-1] if end[1].way == "kill" else run:
            strike = self._strike_at(aim.point, "hold", self._rng(place))
            newer = self.life.start([strike])
            hit = self.life.outcome.reached[place] = newer.wait_until_hit_by(strike)
            self._wake(older, awake)
            if hit:
                older = self._superseded(newer, self._rng(place))
                if aim.way == "zombie":
                    older.freeze()
            else:
                older = None
                self.life.note(f"exit {newer.wait()}, not reached")
        if end[1].way == "kill":
            self.struck(end)
            self._wake(older, awake)
        elif older is not None:
            until = self._rng(end[0]).choice((None, *self.life.flow.decisive))
            last = [self._strike_at(until, "hold", self._rng(end[0]))] if until else []
            newer = self.life.start(last)
            if last:
                newer.wait_until_hit_by(last[0])
            else:
                self.life.note(f"exit {newer.wait()}, the older one wakes")
            self._wake(older, awake)
            newer.release()
            self.life.outcome.schedule.append(f"the newest one → exit {newer.wait()}: {newer.explain()[:200]}")
        for driver in awake:
            self._tell_end(driver, driver.wait())
        self.pending = False

    def _superseded(self, driver: DriverProcess, rng: random.Random) -> DriverProcess:
        """Delete the driver's lock, as if its machine were lost."""
        for tier in self.life.tier_folders:
            tier.joinpath("lock").unlink(missing_ok=len(self.life.tier_folders) > 1)
        if self.life.flow.kind not in STATEFUL and rng.random() < _EDITED:
            self.life.edit()
        return driver

    def _wake(self, older: DriverProcess | None, awake: list[DriverProcess]) -> None:
        if older is None:
            return
        older.release()
        status = older.wait_for(_WAKES_S)
        if status is None:
            awake.append(older)
        else:
            self._tell_end(older, status)

    def _tell_end(self, older: DriverProcess, status: int) -> None:
        self.life.outcome.schedule.append(f"the older one wakes → exit {status}: {older.explain()[:200]}")

    def _copy(self, place: int, aim: Aim) -> None:
        """Copy the state folder after a kill, and start the copy while the original exists: it must be refused."""
        if not self.struck((place, aim)):
            return
        copied = self.life.flow.folder / f"copied-{place}"
        shutil.copytree(self.life.state, copied, symlinks=True)
        driver = self.life.start(state=copied)
        status = driver.wait()
        self.life.note(f"exit {status} from a copy: {driver.codes}")
        if (status, driver.codes[:1]) != (2, ["state-copied"]):
            self.life.outcome.wrong.append(f"a copy of the state was not refused: exit {status}: {driver.explain()}")
        driver.sweep()
        shutil.rmtree(copied, ignore_errors=True)

    def _moved(self, place: int, aim: Aim) -> None:
        """Continue with a copy of the state that cannot see the original, as on another machine with the same output; then start the
        original, too."""
        if not self.struck((place, aim)):
            return
        home = self.life.state
        copied, away = (self.life.flow.folder / f"{name}-{place}" for name in ("copied", "away"))
        shutil.copytree(home, copied, symlinks=True)
        home.rename(away)
        driver = self.life.start([self._strike_at("decide.after", "kill", self._rng(place))], state=copied)
        self.life.note(f"exit {driver.wait()} from a copy that cannot see the original")
        driver.sweep()
        hidden = copied.rename(copied.with_name(f"hidden-{place}"))
        away.rename(home)
        driver = self.life.start()
        status = driver.wait()
        self.life.note(f"exit {status} of the original")
        if status:
            # refused, or fenced by what the copy has published: the copy continues alone
            home.rename(away)
            self.life.state = hidden.rename(copied)
        self.pending = False

    def _edit(self, place: int, aim: Aim) -> None:
        """Change the plan while a Batch is undecided, or decided and not published. A flow with state refuses the change."""
        if not self.struck((place, aim)):
            return
        self.life.edit()
        if self.life.flow.kind in STATEFUL:
            driver = self.life.start()
            status = driver.wait()
            self.life.note(f"exit {status} after the edit")
            if status == 2:
                self.life.edit()
            elif status:
                self.life.outcome.wrong.append(f"an edited flow ended with {status}: {driver.explain()}")

    def _full(self, place: int) -> None:
        """Run with a full disk until space is freed."""
        assert self.life.disk is not None
        self.life.flow.grow(4)
        driver = self.life.start()
        status = driver.wait()
        self.life.note(f"exit {status} on a full disk")
        self.life.outcome.reached[place] = status != 0
        if status and "space" not in driver.explain():
            self.life.outcome.wrong.append(f"a full disk was not told: {driver.explain()}")
        self.life.disk.grow("512m")
