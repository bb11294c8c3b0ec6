"""The staged roll-out of a version to agents, told as stories: time passes, agents report, and the record says who runs what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.control.agents import rolled_version
from scribengin.gateway.rollouts import LATE_S, STEADY_S, AgentStanding, begin_rollout, decide_rollout, standing_of_agent
from scribengin.registry.records import AgentLaneRecord, AgentRecord, RollOutRecord

if TYPE_CHECKING:
    from collections.abc import Callable


class Site:
    """Agents that obey: each reports every ten seconds, and runs what the record says, unless a test makes it ill or silent."""

    def __init__(self, count: int, *, version: int = 1) -> None:
        self.now_s = 1_000.0
        self.runs = {f"web{number}": version for number in range(1, count + 1)}
        self.failed: dict[str, str] = {}
        self.silent_since: dict[str, float] = {}
        self.stubborn: set[str] = set()
        self.record = begin_rollout(None, version, self.reports(), self.now_s, same=False)
        self.stages: list[str] = []

    def reports(self) -> dict[str, AgentStanding]:
        return {
            name: AgentStanding(version, self.silent_since.get(name, self.now_s), self.failed.get(name, "") if version == 2 else "")
            for name, version in self.runs.items()
        }

    def apply(self, version: int, *, same: bool = False) -> None:
        self.record = begin_rollout(self.record, version, self.reports(), self.now_s, same=same)
        self.stages = [self.record.stage]

    def pass_time(self, seconds: float) -> Site:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 10.0
            for name in self.runs.keys() - self.silent_since.keys() - self.stubborn:
                self.runs[name] = rolled_version(self.record, name)
            self.record = decide_rollout(self.record, self.reports(), self.now_s)
            if self.record.stage != self.stages[-1]:
                self.stages.append(self.record.stage)
        return self

    def on(self, version: int) -> list[str]:
        return sorted(name for name, runs in self.runs.items() if runs == version)


def test_first_one_agent_then_a_tenth_then_all() -> None:
    site = Site(30)
    site.apply(2)
    assert len(site.record.chosen) == 1
    assert site.pass_time(STEADY_S).on(2) == list(site.record.chosen)
    site.pass_time(20)
    assert site.record.stage == "some"
    assert len(site.record.chosen) == 3
    assert site.pass_time(20).on(2) == sorted(site.record.chosen)
    site.pass_time(20)
    assert site.record.stage == "all"
    site.pass_time(STEADY_S + 20)
    assert (site.record.stage, len(site.on(2)), site.record.before) == ("done", 30, 1)
    assert site.stages == ["one", "some", "all", "done"]


def test_the_first_version_and_a_single_agent_go_at_once() -> None:
    assert Site(30).record == RollOutRecord(version=1, since=1_000.0)
    alone = Site(1)
    alone.apply(2)
    assert (alone.record.stage, alone.record.version) == ("done", 2)


def test_two_agents_have_the_stages_one_and_all() -> None:
    site = Site(2)
    site.apply(2)
    site.pass_time(200)
    assert site.stages == ["one", "all", "done"]


def test_a_version_in_which_agents_do_the_same_goes_at_once() -> None:
    site = Site(30)
    site.apply(2, same=True)
    assert site.record.stage == "done"


def test_an_agent_that_fails_takes_the_version_back_from_all_and_says_why() -> None:
    site = Site(30)
    site.apply(2)
    (first,) = site.record.chosen
    site.failed[first] = "/var/log/app cannot be read"
    site.pass_time(20)
    assert site.record.stage == "back"
    assert site.record.reason == f"agent {first} failed with version 2: /var/log/app cannot be read"
    assert site.pass_time(20).on(1) == sorted(site.runs)


@pytest.mark.parametrize("stage", ["some", "all"])
def test_a_failure_in_a_later_stage_takes_it_back_from_those_before_too(stage: str) -> None:
    site = Site(30)
    site.apply(2)
    while site.record.stage != stage:
        site.pass_time(10)
    last = next(name for name in site.runs if stage == "all" or name in site.record.chosen)
    site.failed[last] = "it is full"
    site.pass_time(20)
    assert site.record.stage == "back"
    assert site.pass_time(20).on(1) == sorted(site.runs)


def test_an_agent_that_falls_silent_with_it_takes_it_back() -> None:
    site = Site(30)
    site.apply(2)
    site.silent_since[site.record.chosen[0]] = site.now_s
    site.pass_time(40)
    assert site.record.stage == "back"
    assert "its last report is" in site.record.reason


def test_an_agent_that_reports_and_does_not_take_it_takes_it_back() -> None:
    site = Site(30)
    site.apply(2)
    site.stubborn.add(site.record.chosen[0])
    site.pass_time(LATE_S)
    assert site.record.stage == "one"
    site.pass_time(20)
    assert site.record.stage == "back"
    assert "does not run version 2" in site.record.reason


def test_agents_that_were_away_or_ill_before_delay_nothing() -> None:
    site = Site(5)
    site.silent_since["web1"] = site.now_s - 3_600
    reports = site.reports() | {"web2": AgentStanding(1, site.now_s, "it was ill before")}
    site.record = begin_rollout(site.record, 2, reports, site.now_s, same=False)
    site.stages = ["one"]
    assert site.record.exempt == ("web1", "web2")
    site.stubborn.add("web2")
    site.pass_time(300)
    assert site.stages == ["one", "some", "all", "done"]
    assert site.on(1) == ["web1", "web2"]


def test_a_version_that_failed_once_in_the_time_starts_the_time_again() -> None:
    site = Site(30)
    site.apply(2)
    site.pass_time(20)
    assert site.record.good_since
    (first,) = site.record.chosen
    reports = site.reports() | {first: AgentStanding(1, site.now_s)}
    site.record = decide_rollout(site.record, reports, site.now_s)
    assert not site.record.good_since


def test_a_newer_version_replaces_one_that_is_under_way_and_the_old_one_stays_the_refuge() -> None:
    site = Site(30)
    site.apply(2)
    site.pass_time(20)
    site.apply(3)
    assert (site.record.stage, site.record.version, site.record.before) == ("one", 3, 1)


def test_after_a_return_the_next_version_starts_with_one_agent() -> None:
    site = Site(30)
    site.apply(2)
    site.failed[site.record.chosen[0]] = "ill"
    site.pass_time(20)
    site.apply(3)
    assert (site.record.stage, site.record.before, site.record.reason) == ("one", 1, "")


def test_going_back_to_the_version_that_all_have_needs_no_stages() -> None:
    site = Site(30)
    site.apply(2)
    site.pass_time(20)
    site.apply(1)
    assert (site.record.stage, site.record.version) == ("done", 1)


def test_an_agent_that_is_removed_meanwhile_is_not_awaited() -> None:
    site = Site(30)
    site.apply(2)
    del site.runs[site.record.chosen[0]]
    site.pass_time(20)
    assert site.record.stage == "some"


def test_what_an_agent_reports_of_other_flows_does_not_count() -> None:
    lanes = {
        "logs.access": AgentLaneRecord(version=2),
        "logs.errors": AgentLaneRecord(version=1),
        "other.x": AgentLaneRecord(version=9, state="failed", message="ill"),
    }
    record = AgentRecord(host="web1", reported_at=5.0, lanes=lanes)
    assert standing_of_agent(record, ["logs.access", "logs.errors"]) == AgentStanding(1, 5.0)
    assert standing_of_agent(record, ["other.x"]).failed == "ill"


@given(st.lists(st.tuples(st.sampled_from(["ill", "silent", "well", "gone", "time", "apply"]), st.integers(1, 6)), max_size=30))
def test_whatever_happens_every_agent_has_the_version_that_is_rolled_out_or_the_one_before(steps: list[tuple[str, int]]) -> None:
    site, newest = Site(6), 1
    site.stages = ["done"]
    for what, number in steps:
        name = f"web{number}"
        acts: dict[str, Callable[[], object]] = {
            "ill": lambda name=name: site.failed.update({name: "ill"}),
            "silent": lambda name=name: site.silent_since.update({name: site.now_s}),
            "well": lambda name=name: (site.failed.pop(name, None), site.silent_since.pop(name, None)),
            "gone": lambda name=name: site.runs.pop(name, None),
            "time": lambda number=number: site.pass_time(number * 20),
            "apply": lambda: None,
        }
        acts[what]()
        if what == "apply":
            newest += 1
            site.apply(newest)
        record = site.record
        assert record.version == newest
        assert {rolled_version(record, each) for each in site.runs} <= {record.version, record.before} - {0}
        if record.stage in ("one", "some"):
            assert sum(rolled_version(record, each) == newest for each in site.runs) <= 2
    site.failed.clear()
    site.silent_since.clear()
    site.pass_time(600)
    assert site.record.stage in ("done", "back")
