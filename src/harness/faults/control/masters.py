"""Ways to strike masters when three are running: that of `up`, with its ZooKeeper and its host's node process, and two others. The struck
leader is always one of the two others: the death of `up` would end ZooKeeper too, which is another strike."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from scribengin.client.client import Client
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    import random

    from harness.faults.control.household import Household, HouseholdProcess
    from harness.faults.control.life import ControlLife

SESSION_S = 10.0
_LEADS_WITHIN_S = 90.0
"""another master leads within seconds after the end of a session, if the machine is not busy"""
_WRITING_S = 30.0


def leader_killed(life: ControlLife, rng: random.Random) -> str:
    """Kill the leader with SIGKILL; another master must lead. It is started again after a while."""
    house, leader = life.house, _leader_beside_up(life.house)
    life.struck()
    house.strike(signal.SIGKILL, [leader])
    took_s = _until_another_leads(house, leader)
    away_s = rng.uniform(0.0, 10.0)
    house.pause(away_s)
    house.start_master(leader.host)
    life.mended()
    return f"{leader.host}; another led after {took_s:.1f} s"


def leader_stopped(life: ControlLife, rng: random.Random) -> str:
    """Suspend the leader with SIGSTOP until its session expires and another master leads, then resume it: its writes under the old Term
    must have no effect."""
    house, leader = life.house, _leader_beside_up(life.house)
    life.struck()
    house.strike(signal.SIGSTOP, [leader])
    took_s = _until_another_leads(house, leader)
    house.pause(rng.uniform(0.0, 10.0))
    seen = house.leader()
    house.strike(signal.SIGCONT, [leader])
    life.mended()
    house.pause(2.0)
    if (now := house.leader()) is not None and seen is not None and now.process != seen.process:
        life.told.wrong.append(f"{leader.host} woke, and {now.host or 'up'} leads in place of {seen.host or 'up'}")
    return f"{leader.host}; another led after {took_s:.1f} s, {life.since_s():.0f} s of it"


def standby_killed(life: ControlLife, rng: random.Random) -> str:
    """Kill a standby while a flow is paused and resumed through it repeatedly. What it has acknowledged must be visible through another
    master."""
    house, leader = life.house, _leader_beside_up(life.house)
    feed = rng.choice(life.feeds)
    (standby,) = (part for part in house.parts() if part.role == "master" and part.host != leader.host)
    answered, asked = list[str](), list[str]()

    def write() -> None:
        give_up_s = time.monotonic() + _WRITING_S
        with suppress(ScribenginError), Client([house.address_of(standby.host)]) as client:
            while time.monotonic() < give_up_s:
                goal: Literal["paused", "running"] = "running" if asked and asked[-1] == "paused" else "paused"
                asked.append(goal)
                client.want(feed.name, goal)
                answered.append(goal)

    writing = threading.Thread(target=write, name="writing")
    writing.start()
    house.wait_for(lambda: len(answered) > 1, "the first writes through a standby", _WRITING_S)
    house.pause(rng.uniform(0.0, 1.0))
    life.struck()
    house.strike(signal.SIGKILL, [standby])
    writing.join()
    with Client([house.address_of(leader.host)]) as client:
        wanted = client.flow(feed.name).wanted.state
    if wanted not in (answered[-1], asked[-1]):
        life.told.wrong.append(f"{feed.name} is wanted {wanted}, after {answered[-1]} was answered and {asked[-1]} asked for")
    house.start_master(standby.host)
    house.says("resume", feed.name, "--wait", "8m")
    life.mended()
    return f"{standby.host} after {len(answered)} writes; the last, {asked[-1]}, {'has' if wanted == asked[-1] else 'has not'} taken effect"


def _leader_beside_up(house: Household) -> HouseholdProcess:
    """The leader. If it is that of `up`, it is suspended until another one leads."""
    house.wait_for(lambda: house.leader() is not None, "a leader", _LEADS_WITHIN_S)
    leader = house.leader()
    if leader is not None and leader.role == "up":
        house.strike(signal.SIGSTOP, [leader])
        try:
            _until_another_leads(house, leader)
        finally:
            house.strike(signal.SIGCONT, [leader])
        leader = house.leader()
    assert leader is not None, "it led a moment ago"
    return leader


def _until_another_leads(house: Household, before: HouseholdProcess) -> float:
    """Wait until another master leads; returns the number of seconds. Raises Hung."""
    began_s = time.monotonic()

    def is_led() -> bool:
        leader = house.leader()
        return leader is not None and leader.process != before.process

    house.wait_for(is_led, f"another leader than {before.host or 'up'}", _LEADS_WITHIN_S)
    return time.monotonic() - began_s
