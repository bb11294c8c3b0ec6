"""Ways to strike a flow over Kafka from outside the driver: failing brokers, a lost state, a sink slower than all time-outs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.faults.drivers import IN_TASKS, Strike
from harness.faults.kafka_flows import KafkaFlow

if TYPE_CHECKING:
    from harness.faults.drivers import DriverProcess
    from harness.faults.outcomes import Aim
    from harness.faults.running import RunningLife

STRIKING_BROKERS = frozenset({"broker", "lost", "away"})
"""ways that would affect other lives if they shared the brokers"""

_ANEW = ("--append-new-lineage",)
_OPENING = (1, 2)
"""numbers of the sink's commits after which some slots have the new lineage, and others do not"""
_OPENED_TWICE, _AGAIN = 0.3, 0.2
"""how often an opening is killed and repeated, and how often a successful one is repeated"""


def strike_over_kafka(life: RunningLife, place: int, aim: Aim) -> None:
    """Strike once with one of the ways `broker`, `lost`, `lineage`, `slow`, `speculation`."""
    match aim.way:
        case "broker":
            _broker(life, place, aim)
        case "lost":
            _lost(life, place, aim)
        case "lineage":
            _lineage(life, place, aim)
        case "slow":
            _slow(life, place, aim)
        case "speculation":
            _speculation(life, place, aim)
        case _:
            raise ValueError(f"there is no way {aim.way!r}")


def _broker(life: RunningLife, place: int, aim: Aim) -> None:
    """Kill the only broker while the driver is at the point, and start it again before the driver continues, or afterwards."""
    driver = hold_at(life, place, aim)
    if driver is None:
        return
    assert life.cluster is not None
    life.cluster.kill(1)
    at_once = life.random(place).random() < 0.5
    if at_once:
        driver.release()
    life.cluster.restart(1)
    driver.release()
    life.note(f"exit {driver.wait()}, the broker was away {'before' if not at_once else 'when'} the driver went on")


def _lost(life: RunningLife, place: int, aim: Aim) -> None:
    """Stop one of three brokers until the end of the run, which must succeed."""
    driver = hold_at(life, place, aim)
    if driver is None:
        return
    assert life.cluster is not None
    broker = life.random(place).choice(sorted(life.cluster.brokers_up))
    life.cluster.kill(broker)
    driver.release()
    status = driver.wait()
    life.note(f"exit {status} without broker {broker}")
    if status:
        life.outcome.wrong.append(f"without broker {broker} of three the run ended with {status}: {driver.explain()}")
    life.cluster.restart(broker)


def _lineage(life: RunningLife, place: int, aim: Aim) -> None:
    """Lose the state while the driver is suspended, and begin a new lineage, which reads all of the input again. Then resume the old
    driver, which must write nothing. Its own state is lost too, or still exists: then only the sink can refuse it."""
    driver = hold_at(life, place, aim)
    if driver is None:
        return
    assert isinstance(life.flow, KafkaFlow)
    driver.freeze()
    rng = life.random(place)
    if rng.random() < 0.5:
        life.state = life.flow.folder / f"state-{place}"
    else:
        life.tier_folder.parent.rename(life.flow.folder / f"lost-{place}")
    opened = rng.choice(_OPENING) if rng.random() < _OPENED_TWICE else None
    if opened is not None:
        killed = life.start([Strike("transaction.commit.after", "kill", opened)], arguments=_ANEW)
        life.note(f"exit {killed.wait()} while it opened the new lineage")
    life.flow.begin_lineage()
    opening, sending = Strike("transaction.commit.before", "hold", 2), Strike("transaction.sent", "hold")
    until = rng.choice((None, sending, opening if opened is None else sending))
    newer = life.start([until] if until else [], arguments=_ANEW)
    if until is None or not newer.wait_until_hit_by(until):
        life.note(f"exit {newer.wait()}")
    before = life.flow.visible()
    driver.release()
    status = driver.wait()
    life.outcome.schedule.append(f"the one that has lost its state wakes → exit {status}: {driver.explain()[:200]}")
    after = life.flow.visible()
    if until is opening:
        # the older lineage is not known to be over yet; rows that it has written meanwhile do not belong to the new lineage
        life.flow.begin_lineage()
    elif after != before:
        life.outcome.wrong.append(f"the driver of the lost lineage has written {after - before} messages after the new one began")
    newer.release()
    status = newer.wait()
    life.outcome.schedule.append(f"the new lineage's driver → exit {status}: {newer.explain()[:200]}")
    if status == 0 and rng.random() > _AGAIN:
        return
    again = life.start(arguments=_ANEW)
    status = again.wait()
    life.note(f"exit {status}, told once more to begin anew")
    if status:
        life.outcome.wrong.append(f"a new lineage does not come up: {again.explain()}")


def _slow(life: RunningLife, place: int, aim: Aim) -> None:
    """Let a process sleep for longer than all time-outs, once: the run must succeed by itself."""
    strike = Strike(aim.point, "slow")
    driver = life.start([strike])
    status = driver.wait()
    life.outcome.reached[place] = driver.was_hit_by(strike)
    life.note(f"exit {status}")
    if status:
        life.outcome.wrong.append(f"a run that was slow at {aim.point} ended with {status}: {driver.explain()}")


def _speculation(life: RunningLife, place: int, aim: Aim) -> None:
    """Suspend a task, permanently or for a while: Spark starts a second attempt on the other host, and the run must succeed."""
    strike = Strike(aim.point, life.random(place).choice(("hold", "hold", "slow")))
    driver = life.start([strike])
    status = driver.wait()
    life.outcome.reached[place] = driver.was_hit_by(strike)
    life.note(f"exit {status}")
    if status:
        life.outcome.wrong.append(f"a run with a second attempt of a task at {aim.point} ended with {status}: {driver.explain()}")


def hold_at(life: RunningLife, place: int, aim: Aim) -> DriverProcess | None:
    """Start a driver that is suspended at the point; None if it ended without reaching it."""
    strike = Strike(aim.point, "hold", 1 if aim.point in IN_TASKS else life.random(place).randint(1, 2))
    driver = life.start([strike])
    hit = life.outcome.reached[place] = driver.wait_until_hit_by(strike)
    if not hit:
        life.note(f"exit {driver.wait()}, not reached: {driver.explain()[:200]}")
        return None
    return driver
