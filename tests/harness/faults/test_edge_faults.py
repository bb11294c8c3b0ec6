"""The campaign of the edge: a slice of `make faults ONLY=edge`, and that its checker finds parts that are broken on purpose."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import pytest

from harness.faults.control.strikes import LifeTold, Struck
from harness.faults.edge_campaign import choose_ways, live, run_edge_campaign
from harness.faults.edge_life import EdgeShape
from harness.faults.edge_ways import EDGE_WAYS, LONG_WAYS, SPARING_AGENTS

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.wire.protocol import HopDurability

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
LIGHT = EdgeShape(light=True, agents=2, rate=60.0, rotate_s=2.0)

NO_SYNC = """
from scribengin.wal.files import LogFolder
LogFolder.sync = lambda self, handle: None
"""
"""an agent that counts its log as durable without a sync"""
ANSWERS_FIRST = """
from scribengin.connectors.agents.folder import FolderChannelWriter
store, waiting = FolderChannelWriter.append, []

def append(self, arrivals):
    waiting.extend(arrivals)
    if len(waiting) > 6:
        store(self, waiting[:])
        waiting.clear()

FolderChannelWriter.append = append
"""
"""a gateway that answers before it stores"""
KEEPS_DOUBLES = """
from scribengin.connectors.agents.contract import RunPositions
RunPositions.is_taken = lambda self, run: False
RunPositions.from_number = lambda self, agent, incarnation, sequence, *, committed: sequence
"""
"""a reader that takes each run as it comes"""
DROPS_SILENTLY = """
from scribengin.agent.buffers import MemoryBuffer
MemoryBuffer.dropped = property(lambda self: 0, lambda self, value: None)
"""
"""an agent that does not count what it drops"""


def run_life(
    tmp_path: Path, *ways: str, broken: dict[str, str] | None = None, durability: HopDurability = "end_to_end", limit_s: float = 400.0
) -> LifeTold:
    rate = 900.0 if durability == "best_effort" else LIGHT.rate
    compression = "none" if durability == "best_effort" else LIGHT.compression
    shape = replace(LIGHT, durability=durability, rate=rate, compression=compression)
    return live(tmp_path / "life", shape, ways, 7, threading.Event(), limit_s=limit_s, broken=broken)


def test_a_life_over_a_folder_loses_and_doubles_nothing(tmp_path: Path) -> None:
    told = run_life(tmp_path, "agent-killed", "gateway-asleep")
    assert told.verdict == "passed", told.wrong
    assert told.rows > 100


@pytest.mark.long  # a strike may miss, so it may take several lives
@pytest.mark.parametrize(
    ("way", "broken", "durability", "what"),
    [
        ("power-lost", dict.fromkeys(("web1", "web2"), NO_SYNC), "end_to_end", "doubled"),
        ("gateways-killed", dict.fromkeys(("gateway1", "gateway2"), ANSWERS_FIRST), "store_on_failure", "lost"),
        ("answers-lost", {"whole": KEEPS_DOUBLES}, "end_to_end", "doubled"),
        ("long-cut", dict.fromkeys(("web1", "web2"), DROPS_SILENTLY), "best_effort", "lost"),
    ],
    ids=["no-sync", "answers-first", "keeps-doubles", "drops-silently"],
)
def test_a_broken_part_is_found(tmp_path: Path, way: str, broken: dict[str, str], durability: HopDurability, what: str) -> None:
    found: list[str] = []
    for attempt in range(4):
        told = run_life(tmp_path / str(attempt), way, way, broken=broken, durability=durability, limit_s=30.0)
        if any(f" {what}" in wrong and f" 0 {what}" not in wrong for wrong in told.wrong):
            return
        found += told.wrong
    pytest.fail(f"nothing {what} in four lives: {found}")


@pytest.mark.long
@pytest.mark.parametrize("durability", ["end_to_end", "store_on_failure", "best_effort"])
def test_a_life_of_each_durability_is_right(tmp_path: Path, durability: HopDurability) -> None:
    ways = ("long-cut", "answers-lost", "gateway-asleep", "gateways-killed")
    told = run_life(tmp_path, *ways, *(("power-lost",) if durability == "end_to_end" else ()), durability=durability)
    assert told.verdict == "passed", told.wrong


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("way", LONG_WAYS)
def test_ten_minutes_under_full_load_lose_and_double_nothing(tmp_path: Path, way: str) -> None:
    told = live(tmp_path / "life", replace(LIGHT, rate=2000.0), (way,), 7, threading.Event(), limit_s=900)
    assert told.verdict == "passed", told.wrong
    assert told.rows > 2 * 600 * 1000


@pytest.mark.long
@pytest.mark.needs("kafka")
def test_a_life_over_a_broker_with_two_tiers_loses_and_doubles_nothing(tmp_path: Path) -> None:
    shape = replace(EdgeShape(), channel="kafka", tiers=2)
    told = live(tmp_path / "life", shape, ("broker-killed", "agent-killed", "worker-killed"), 7, threading.Event(), limit_s=400)
    assert told.verdict == "passed", told.wrong


def test_channels_alternate_and_each_durability_has_lives() -> None:
    shapes = [EdgeShape.of_seed(seed) for seed in range(1, 21)]
    assert [shape.channel for shape in shapes[:4]] == ["kafka", "folder", "kafka", "folder"]
    assert {(shape.durability, shape.channel) for shape in shapes} == {
        (durability, channel) for durability in ("end_to_end", "store_on_failure", "best_effort") for channel in ("kafka", "folder")
    }
    assert shapes == [EdgeShape.of_seed(seed) for seed in range(1, 21)]


def test_the_ways_that_were_used_least_come_first_and_spare_what_a_durability_does_not_promise() -> None:
    used = LifeTold(tuple(EDGE_WAYS), 1, strikes=[Struck(way) for way in EDGE_WAYS if way != "two-agents"])
    end_to_end = EdgeShape(channel="folder")
    assert choose_ways(end_to_end, random.Random(1), tuple(EDGE_WAYS), [used], 1) == ("two-agents",)
    assert "broker-killed" not in choose_ways(end_to_end, random.Random(1), tuple(EDGE_WAYS), [], 60)
    spared = choose_ways(replace(end_to_end, durability="best_effort"), random.Random(1), tuple(EDGE_WAYS), [], 30)
    assert set(spared) <= set(SPARING_AGENTS)
    assert spared[0] == "long-cut"


def test_an_unknown_way_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="gateway-asleep"):
        run_edge_campaign(tmp_path, "edge:nothing", minutes=0, seed=None, stop=threading.Event())
