"""The campaign in YARN: which strikes it chooses, and what it reports of a life. Its servers are replaced here; `make faults ONLY=yarn` has
real ones."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Self

import click
import pytest

from harness.control_programs import NotInTime
from harness.faults import yarn_campaign
from harness.faults.control.report import read_lives
from harness.faults.yarn_ways import YARN_WAYS

if TYPE_CHECKING:
    from pathlib import Path


class FakePlane:
    """A plane that recovers from each strike, and whose outputs are as the test says."""

    FLOWS = ("collect", "store")
    wrong: tuple[str, ...] = ()
    recovers = True

    def __init__(self, folder: Path, *, stop: threading.Event) -> None:
        self.folder, self.parts = folder, 3

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pause(self, seconds: float) -> None:
        pass

    def wait_arrival(self) -> None:
        if not self.recovers:
            raise NotInTime("part 4 did not come")

    def drain(self) -> None:
        pass

    def judge(self) -> list[str]:
        return list(self.wrong)

    def applications(self, flow: str) -> list[str]:
        return [flow]


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> type[FakePlane]:
    class Plane(FakePlane):
        pass

    monkeypatch.setattr(yarn_campaign, "YarnPlane", Plane)
    for way in YARN_WAYS:
        monkeypatch.setitem(yarn_campaign.YARN_WAYS, way, lambda _plane, _rng: "struck")
    return Plane


def run(folder: Path, only: str = "yarn", *, seed: int | None = None, strikes: int = 14) -> int:
    return yarn_campaign.run_yarn_campaign(folder, only, minutes=0, seed=seed, stop=threading.Event(), strikes=strikes)


def test_ways_that_were_used_least_come_first_and_the_same_seed_strikes_alike(plane: type[FakePlane], tmp_path: Path) -> None:
    assert run(tmp_path, strikes=10) == run(tmp_path, strikes=10) == 0
    first, second = read_lives(tmp_path, yarn_campaign.CAMPAIGN)
    assert (first.seed, second.seed) == (1, 2)
    assert {*first.ways, *second.ways} == {*YARN_WAYS}
    assert len({*first.ways}) == 10
    assert run(tmp_path, seed=1) == 0
    assert read_lives(tmp_path, yarn_campaign.CAMPAIGN)[-1].ways == first.ways
    text = (tmp_path / "yarn.md").read_text()
    assert all(f"| {way} |" in text for way in YARN_WAYS)


def test_wrong_outputs_and_a_flow_that_does_not_recover_are_failures(plane: type[FakePlane], tmp_path: Path) -> None:
    plane.wrong = ("HDFS: 1 lost",)
    assert run(tmp_path, "yarn:driver") == 1
    plane.wrong, plane.recovers = (), False
    assert run(tmp_path, "yarn:driver") == 1
    lost, silent = read_lives(tmp_path, yarn_campaign.CAMPAIGN)
    assert (lost.wrong, silent.wrong) == (["HDFS: 1 lost"], ["part 4 did not come"])
    assert {way.partition("-")[0] for way in lost.ways} == {"driver", "drivers"}
    assert (tmp_path / "work" / "yarn-1").exists(), "kept for a look"


def test_a_way_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="yarn:WAY with one of executor-killed"):
        run(tmp_path, "yarn:nothing")


def test_the_seed_decides_the_order() -> None:
    ways = tuple(YARN_WAYS)
    chosen = [yarn_campaign._choose(random.Random(seed), ways, [], 16) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
