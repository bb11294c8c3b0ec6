"""Additional ways to strike a flow in tiers: its tiers are changed, its channels or the members of a group become unavailable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.faults.drivers import Strike
from harness.faults.kafka_ways import hold_at
from harness.faults.tier_flows import MEMBERS, TierFlow

if TYPE_CHECKING:
    from harness.faults.outcomes import Aim
    from harness.faults.running import RunningLife

TIER_WAYS = frozenset({"recut", "away", "gone"})
AWAY = "away"
_FIRST_TIER = ("--tier", "front")
_WAITING_BATCHES = 3
_KILLED_BEFORE = 0.5
"""how often a run is killed before the tiers change, which leaves a decided Batch, or one that is only begun"""
_STARTED_WITHOUT = 0.5
"""how often the flow is started again while a member is unavailable"""


def strike_between_tiers(life: RunningLife, place: int, aim: Aim) -> None:
    """Strike once with one of TIER_WAYS."""
    match aim.way:
        case "recut":
            _recut(life, place, aim)
        case "away":
            _away(life, place, aim)
        case "gone":
            _gone(life, place, aim)
        case _:
            raise ValueError(f"there is no way {aim.way!r}")


def _recut(life: RunningLife, place: int, aim: Aim) -> None:
    """Change the tiers, and kill the flow while it moves its state. A kill before that may leave a Batch that is moved too; or rows in a
    channel, and then the change must be refused until they are processed."""
    rng = life.random(place)
    life.start_to_end()
    if rng.random() < _KILLED_BEFORE:
        point = rng.choice(life.flow.decisive)
        driver = life.start([Strike(point, "kill", rng.randint(1, 2))])
        life.note(f"exit {driver.wait()}, then it is cut otherwise")
    before = life.recut()
    strike = Strike(aim.point, "kill")
    driver = life.start([strike])
    status = driver.wait()
    life.note(f"exit {status}{f': {driver.codes}' if driver.codes else ''}")
    if status > 0:
        life.recut(before)
        life.start_to_end()
        life.recut()
        driver = life.start([strike])
        status = driver.wait()
        life.note(f"exit {status}, when all was through")
    life.outcome.reached[place] = driver.was_hit_by(strike)
    if status > 0:
        life.outcome.wrong.append(f"a flow that is through could not be cut otherwise: exit {status}: {driver.explain()}")


def _away(life: RunningLife, place: int, aim: Aim) -> None:
    """Stop the brokers while the first tier runs alone. The tier is killed there, or when it writes the stored rows to the channel
    later."""
    assert life.cluster is not None
    strike = Strike(aim.point, "kill")
    drained = aim.point == "outbox.drained"
    life.start_to_end()
    life.cluster.kill(1)
    life.flow.grow(_WAITING_BATCHES)
    driver = life.start([] if drained else [strike], arguments=_FIRST_TIER)
    life.note(f"exit {driver.wait()} without a broker")
    life.cluster.restart(1)
    if drained:
        driver = life.start([strike], arguments=_FIRST_TIER)
        life.note(f"exit {driver.wait()} with what has waited")
    life.outcome.reached[place] = driver.was_hit_by(strike)


def _gone(life: RunningLife, place: int, aim: Aim) -> None:
    """Make a member of a group unavailable while the driver is at the point. The member's Batch must wait for it, even if the flow is
    restarted meanwhile."""
    assert isinstance(life.flow, TierFlow)
    driver = hold_at(life, place, aim)
    if driver is None:
        return
    rng = life.random(place)
    member = rng.choice(MEMBERS)
    life.flow.take_away(member)
    driver.release()
    life.note(f"exit {driver.wait()} without {member}: {driver.codes}")
    if rng.random() < _STARTED_WITHOUT:
        driver = life.start()
        life.note(f"exit {driver.wait()} without {member}: {driver.codes}")
    life.flow.give_back(member)
