"""One life of a control plane: flows are submitted and fed, the control plane is struck and must recover each time, and at the end all
records must be accounted for."""

from __future__ import annotations

import random
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.faults.control.feeds import CutFeed, FileFeed, Load, SharedFeed, TableFeed, TopicFeed
from harness.faults.control.household import Household, Refusal
from harness.faults.control.strikes import LifeTold, Struck
from harness.faults.drivers import Hung
from scribengin.embedded.postgres import Postgres
from scribengin.state.decisions import Decisions

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from harness.faults.control.feeds import FlowFeed
    from harness.faults.small_disk import SmallDisk

    Way = Callable[["ControlLife", random.Random], str]
    Schedule = Callable[[float], tuple[str, Way] | None]
    Beside = Callable[[Household], AbstractContextManager[object]]

_ENDED_WITHIN_S = 180.0
_GONE_WITHIN_S = 60.0
_BETWEEN_ASKS_S = 1.0
_PART_EVERY_S = 0.5
_WAIT = "8m"
"""time limit of commands that wait"""


class ControlLife:
    """What the ways to strike use. `struck` marks the time from which recovery is measured, `mended` the time after which all flows must
    continue."""

    def __init__(self, house: Household, feeds: Sequence[FlowFeed], load: Load, told: LifeTold, limit_s: float) -> None:
        self.house = house
        self.feeds = feeds
        self.told = told
        self._load = load
        self._limit_s = limit_s
        self._struck_s = self._mended_s = 0.0
        self.forgives = False
        """True if a flow may need intervention after this strike"""

    def struck(self) -> None:
        """Record that the strike was made now."""
        self._struck_s = self._mended_s = time.monotonic()

    def mended(self) -> None:
        """Record that the effect of the strike was removed now."""
        self._mended_s = time.monotonic()

    def since_s(self) -> float:
        """The number of seconds since the strike."""
        return time.monotonic() - self._struck_s

    def meet(self, name: str, way: Way, rng: random.Random) -> None:
        """Make one strike, and wait until all flows run again."""
        self.house.pause(rng.uniform(0.0, 4.0))
        strike = Struck(name)
        self.told.strikes.append(strike)
        self.forgives = False
        self.struck()
        strike.about = way(self, rng)
        try:
            self._settle(strike)
        finally:
            for feed in self.feeds:
                silent_s = self._load.longest_silence_s(feed, self._struck_s, time.monotonic())
                strike.silent_s[feed.label] = round(silent_s, 2)
        strike.running_s = round(self.since_s(), 2)
        with (self.house.logs / "strikes.log").open("a") as log:
            log.write(f"{strike}\n")

    def _settle(self, strike: Struck) -> None:
        """Wait until all flows have committed after `mended`, and are reported as running. Raises Hung."""
        asked: dict[str, str] = {}

        def settled() -> bool:
            runs = self._help_up(strike, asked)
            return runs and all(self._load.first_after(feed, self._mended_s) is not None for feed in self.feeds)

        self.house.wait_for(settled, "recovery", self._limit_s, lambda: f"{strike.way} ({strike.about}): not recovered: {asked}")

    def _help_up(self, strike: Struck, asked: dict[str, str]) -> bool:
        """True if all flows are reported as running. A failed or degraded flow is resumed, and recorded as one that needed intervention."""
        self.house.pause(_BETWEEN_ASKS_S)
        try:
            rows = self.house.says("list")
        except Refusal as error:
            asked["list"] = str(error)
            return False
        asked.pop("list", None)
        for row in rows:
            asked[row["flow"]] = f"{row['state']} {row.get('reason') or ''}"
            if row["state"] in ("failed", "degraded") and len(strike.person) < len(self.feeds) + 1:
                why = f"{row['flow']} {row['state']}: {row.get('reason')}"
                strike.person.append(why)
                if not self.forgives:
                    self.told.wrong.append(f"{strike.way} ({strike.about}): a person is needed: {why}")
                try:
                    self.house.says("resume", row["flow"])
                except Refusal as error:
                    asked["resume"] = str(error)
        return {row["flow"] for row in rows if row["state"] == "running"} >= {feed.name for feed in self.feeds}


@dataclass(frozen=True, slots=True)
class LifeGround:
    """The environment of a life.

    Attributes:
        folder: The folder of the life.
        java: Environment variables for a Java that starts fast.
        stop: When it is set, the life ends.
        bootstrap: The broker for a chain over Kafka; empty for none.
        disk: The disk that contains all files; None for the normal one.
        hosts: The number of hosts with workers; the first one is that of the master.
        masters: The number of masters; the first one is that of `up`.
        voting: The number of ZooKeeper servers.
        shared: Add a flow with several workers.
        cut: Add a flow whose tiers change.
        read: Add a flow from files to files, and one on a group of hosts that writes its output into PostgreSQL.
    """

    folder: Path
    java: Mapping[str, str]
    stop: threading.Event
    bootstrap: str = ""
    disk: SmallDisk | None = None
    hosts: int = 1
    masters: int = 1
    voting: int = 1
    shared: bool = False
    cut: bool = False
    read: bool = False
    limit_s: float = 400.0
    """time limit of each recovery, in seconds"""


def run_control_life(ways: Sequence[str], seed: int, ground: LifeGround, schedule: Schedule, *, beside: Beside = nullcontext) -> LifeTold:
    """Run a life in a new folder, and return its result.

    Args:
        ways: The names of the ways to strike, for the result.
        seed: The seed of the random numbers.
        ground: The environment.
        schedule: Called when the last way is over, with the seconds since the start of the load; returns the next one, None at the end.
        beside: A context manager that is entered when all is up, and left before the end.

    Raises:
        CampaignEnded: if `stop` is set. No process is left then.
    """
    told = LifeTold(tuple(ways), seed, bool(ground.bootstrap))
    began = time.monotonic()
    shutil.rmtree(ground.folder, ignore_errors=True)
    with ExitStack() as stack:
        if ground.disk is not None:
            stack.enter_context(ground.disk)
        house = stack.enter_context(Household(ground.folder.absolute(), ground.stop, ground.java, ground.disk, voting=ground.voting))
        try:
            _live(house, schedule, told, stack, ground, beside)
        except (Hung, Refusal) as error:
            told.wrong.append(str(error))
    told.seconds = round(time.monotonic() - began, 1)
    return told


def in_order(ways: Sequence[tuple[str, Way]]) -> Schedule:
    """A schedule with each way once, in order."""
    left = list(ways)
    return lambda _elapsed_s: left.pop(0) if left else None


def _live(house: Household, schedule: Schedule, told: LifeTold, stack: ExitStack, ground: LifeGround, beside: Beside) -> None:
    feeds: list[FlowFeed] = [FileFeed(house.folder / "filed", house.seen)]
    if ground.bootstrap:
        chain = TopicFeed(house.folder / "chained", ground.bootstrap, f"{told.seed}_{int(time.time()):x}")
        stack.callback(chain.remove)
        feeds.append(chain)
    if ground.shared:
        feeds.append(SharedFeed(house.folder / "shared", house.seen))
    if ground.cut:
        feeds.append(CutFeed(house.folder / "cut", house.seen))
    if ground.read:
        server = stack.enter_context(Postgres(house.folder / "postgres"))
        feeder = FileFeed(house.folder / "feeds", house.seen, "feeds")
        reader = TableFeed(house.folder / "reads", feeder, server, (*_names(ground.hosts), socket.gethostname()))
        stack.callback(reader.close)
        feeds += [feeder, reader]
    house.start()
    for host in _names(ground.hosts):
        house.start_node(host)
    for nth in range(1, ground.masters):
        house.start_master(f"master{nth + 1}")
    for feed in feeds:
        feed.write()
        feed.grow()
        house.says("apply", str(feed.folder / "flow.yaml"), "--wait", _WAIT)
    with Load(feeds, _PART_EVERY_S, time.monotonic) as load:
        began = time.monotonic()
        house.wait_for(lambda: all(load.first_after(feed, began) for feed in feeds), "the first commit of each flow", ground.limit_s)
        life = ControlLife(house, feeds, load, told, ground.limit_s)
        with beside(house):
            while (chosen := schedule(time.monotonic() - began)) is not None:
                name, way = chosen
                life.meet(name, way, random.Random(f"{told.seed}/{len(told.strikes)}"))
        load.stop_feeding()
        _end(house, feeds, told)
        told.wrong += load.wrong


def _names(hosts: int) -> list[str]:
    """The names of the additional hosts."""
    return [f"host{nth}" for nth in range(2, hosts + 1)]


def _end(house: Household, feeds: Sequence[FlowFeed], told: LifeTold) -> None:
    """Process all remaining records, end everything in order, and check the result."""
    for feed in feeds:
        house.says("drain", feed.name, "--wait", _WAIT)
        told.workers += sum(int(tier["worker"].rpartition("-")[2]) for tier in house.says("status", feed.name)["tiers"] if tier["worker"])
        findings = feed.judge()
        told.rows += feed.parts * feed.rows
        if findings:
            told.wrong.append(f"{feed.name}: {findings}")
        state = house.home / "state"
        try:
            house.says("audit", str(feed.folder / "flow.yaml"), "--state", str(state))
        except Refusal as error:
            told.wrong.append(f"{feed.name}: {error}")
        told.wrong += terms_out_of_order(house.seen(state / feed.name))
    for name, process in (*house.nodes.items(), *house.masters.items(), ("up", house.up)):
        assert process is not None
        process.send_signal(signal.SIGINT)
        try:
            status = process.wait(_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise Hung(f"{name} did not end in {_ENDED_WITHIN_S:g} s after SIGINT") from None
        if status:
            told.wrong.append(f"{name} ended with {status}")
    house.wait_for(
        lambda: not house.parts(),
        "the end of all processes",
        _GONE_WITHIN_S,
        lambda: f"left running: {[(part.role, part.worker) for part in house.parts()]}",
    )


def terms_out_of_order(state: Path) -> list[str]:
    """Decisions of a flow that were made under an older Term than an earlier decision: a fence that failed."""
    wrong = []
    for folder in sorted(state.glob("*/*/decisions")):
        last = 0
        for decision in Decisions(folder).since():
            if decision.batch.term < last:
                where = f"{decision.batch.query} batch {decision.batch.number}"
                wrong.append(f"{where} was decided under term {decision.batch.term}, after one of term {last}")
            last = max(last, decision.batch.term)
    return wrong
