"""Flows whose agents fall silent, come back, or cannot run a version: the status, the logical nodes, and the alerts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from harness.manual_clock import ManualClock
from scribengin.control import flow_requests
from scribengin.control.agent_watch import AgentWatch
from scribengin.control.agents import bind_agent, decommission_agent
from scribengin.control.operations import has_reached
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import AgentRecord, AgentTierSpec, Mapped, NodeState, RollOutRecord, StatusRecord, TierSpec
from scribengin.registry.tree import AGENT, MAPPED, NODE_STATE, ROLL_OUT, STATUS
from scribengin.watching.alerts import AlertState, WatchedFlow, next_state
from tests.control.hands import Plane

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


class Site:
    """A master that leads, a flow that collects from agents, and workers that obey."""

    def __init__(self, **agents: AgentTierSpec) -> None:
        self.clock, self.store = ManualClock(), MemoryStore()
        self.plane = Plane(self.store.client, clock=self.clock)
        self.watch = self.watched()
        agents = agents or {"edge": AgentTierSpec(lanes={"access": "web"})}
        self.submission = flow_requests.Submission("logs", "0", "flow.yaml", "/base", {"core": TierSpec()}, agents=agents)
        flow_requests.apply(self.plane.person, self.submission, state=lambda _: "/state", by="me")

    def watched(self) -> AgentWatch:
        self.plane.master._agents = made = AgentWatch(self.plane.registry, LOG, lambda: self.plane.master.lead, clock=self.clock)
        return made

    def report(self, *agents: str, group: str = "web", ahead_s: float = 0.0) -> None:
        """A gateway whose clock is ahead writes what these agents report."""
        for agent in agents:
            record = AgentRecord(host=agent, group=group, reported_at=self.clock() + ahead_s)
            self.plane.person.commit(put(self.plane.person, AGENT(agent), record))

    def pass_time(self, seconds: float, *reporting: str) -> None:
        for _ in range(round(seconds / 10)):
            self.clock.advance(seconds=10)
            self.report(*reporting)
            self.look()

    def look(self) -> None:
        for _ in range(3):
            self.plane.look()
            self.watch.check()
        self.plane.look()

    @property
    def status(self) -> StatusRecord:
        found = read_record(self.plane.person, STATUS("logs"))
        assert isinstance(found, Stored)
        return found.record

    def node(self, name: str = "logs.edge") -> NodeState | None:
        found = read_record(self.plane.person, NODE_STATE(name))
        return found.record if isinstance(found, Stored) else None


def test_a_flow_is_degraded_while_an_agent_is_away_and_runs_again_once_it_is_back() -> None:
    site = Site()
    site.report("web1", "web2")
    site.look()
    assert (site.status.state, site.status.reason) == ("running", "")
    node = site.node()
    assert node is not None
    assert (node.state, node.agents, node.away) == ("running", 2, ())
    site.pass_time(30, "web1")
    assert site.status.state == "running", "three reports are not over yet"
    site.pass_time(10, "web1")
    assert site.status.state == "degraded"
    assert site.status.reason == "agents do not report: web2 of tier edge (1 of 2 report)"
    assert site.status.next == "see: scribengin agent describe web2; if its host is gone: scribengin agent remove web2"
    node = site.node()
    assert node is not None
    assert (node.state, node.away) == ("degraded", ("web2",))
    assert has_reached("running", site.status, site.status.generation), "whoever waits for the flow does not wait for a host"
    site.pass_time(10, "web1", "web2")
    assert (site.status.state, site.status.reason) == ("running", "")


def test_clocks_of_gateways_that_differ_do_not_matter_once_a_master_watches() -> None:
    site = Site()
    for _ in range(10):
        site.clock.advance(seconds=10)
        site.report("web1", ahead_s=-3_600.0)
        site.look()
    assert site.status.state == "running"


def test_agents_of_other_groups_and_decommissioned_ones_do_not_count() -> None:
    site = Site()
    site.report("web1", "web2")
    site.report("db1", "db2", group="db")
    bind_agent(site.plane.person, "logs.edge", "db2", by="me")
    site.plane.person.commit(MAPPED("db1", "logs.edge").create(Mapped(by="g1", group="db")))
    decommission_agent(site.plane.person, "web2", by="me")
    site.pass_time(50, "web1")
    assert site.status.reason == "agents do not report: db2 of tier edge (1 of 2 report)"


def test_a_paused_flow_does_not_miss_its_agents() -> None:
    site = Site()
    site.report("web1")
    site.look()
    site.plane.want("logs", "paused")
    site.pass_time(50)
    assert site.status.state == "paused"
    node = site.node()
    assert node is not None
    assert node.state == "paused"


def test_many_silent_agents_are_counted() -> None:
    site = Site()
    site.report(*(f"web{number}" for number in range(1, 8)))
    site.look()
    site.pass_time(40)
    assert "web1, web2, web3 and 4 more of tier edge (0 of 7 report)" in site.status.reason


def test_a_new_leader_keeps_what_was_said_until_it_knows() -> None:
    site = Site()
    site.report("web1", "web2")
    site.look()
    site.pass_time(40, "web1")
    said = site.status
    assert said.state == "degraded"
    site.watch = site.watched()
    site.plane.look()
    assert site.status == said
    site.look()
    assert site.status == said


def test_a_roll_out_that_went_back_is_the_reason_until_another_version_comes() -> None:
    site = Site()
    site.report("web1", "web2")
    site.look()
    record = RollOutRecord(version=1, before=7, stage="back", reason="agent web1 failed with version 1: no rights")
    site.plane.person.commit(ROLL_OUT("logs", "edge").create(record))
    site.look()
    assert site.status.state == "degraded"
    assert site.status.reason == (
        "a version was taken back from agents: agent web1 failed with version 1: no rights; tier edge runs version 7"
    )
    site.plane.person.commit(put(site.plane.person, ROLL_OUT("logs", "edge"), RollOutRecord(version=2)))
    site.look()
    assert site.status.state == "running"


def test_a_tier_of_agents_needs_no_worker_and_its_bindings_are_not_refused() -> None:
    site = Site()
    site.report("web1", group="db")
    bind_agent(site.plane.person, "logs.edge", "web1", by="me")
    site.report("web2", group="db")
    bind_agent(site.plane.person, "logs.edge", "web2", by="me")
    site.look()
    assert site.status.state == "running"
    assert site.status.refused == {}
    assert site.plane.master.problems == {}
    assert site.plane.workers() == ["logs.core-1"]


def test_records_of_agents_wake_no_master() -> None:
    """A thousand agents cause a hundred writes a second; a cycle of the master would follow each."""
    site = Site()
    site.report("web1")
    site.look()
    mirror = site.plane.master._mirror
    mirror.changed.clear()
    site.report("web1")
    assert not mirror.changed.is_set()


# Alerts.


def watched(away: Mapping[str, float] | None) -> WatchedFlow:
    return WatchedFlow(None, {}, frozenset(), 0.0, away)


@pytest.mark.parametrize(
    ("away", "now", "standing", "value"),
    [
        (None, 1_000.0, "quiet", ""),
        ({}, 1_000.0, "quiet", ""),
        ({"web1": 990.0}, 1_000.0, "pending", "agent web1 does not report for 10s"),
        ({"web1": 600.0, "web2": 990.0}, 1_000.0, "firing", "agent web1 does not report for 6m40s, and 1 more"),
    ],
)
def test_an_agent_that_is_away_for_long_raises_an_alert(away: Any, now: float, standing: str, value: str) -> None:
    state = next_state(AlertState(), "agent away for 5m", watched(away), now)
    assert state.standing == standing
    if value:
        assert state.value == value


def test_the_alert_ends_when_the_agent_is_back_and_stays_while_nothing_is_known() -> None:
    firing = AlertState("firing", 900.0, "agent web1 …")
    assert next_state(firing, "agent away for 5m", watched(None), 1_000.0) is firing
    assert next_state(firing, "agent away for 5m", watched({"web1": 600.0}), 1_000.0) is firing
    assert next_state(firing, "agent away for 5m", watched({}), 1_000.0).standing == "quiet"
