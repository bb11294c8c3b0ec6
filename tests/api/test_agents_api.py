"""Agents and gateways as operators see them: through a master's API, and the commands that use it."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scribengin.cli.commands import agents as commands
from scribengin.client.agent_models import ChainSettings
from scribengin.control import flow_requests
from scribengin.control.agents import list_agents
from scribengin.core.errors import Refused
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.registry.access import RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.record_io import put
from scribengin.registry.records import (
    AgentLaneRecord,
    AgentRecord,
    AgentTierSpec,
    GatewayRecord,
    Host,
    Mapped,
    RollOutRecord,
    TierSpec,
)
from scribengin.registry.tree import AGENT, GATEWAY, HOST, MAPPED, ROLL_OUT
from tests.plugins.remedies import mentions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.registry.contract import Registry
    from tests.api.conftest import Bench

NODE = "logs.edge"


def submitted(registry: Registry) -> None:
    agents = {"edge": AgentTierSpec(lanes={"access": "web"}, gateways="dmz")}
    submission = flow_requests.Submission("logs", "0" * 64, "flow.yaml", "/base", {"core": TierSpec()}, agents=agents)
    flow_requests.apply(registry, submission, state=lambda _: "/s", by="ann")


def reports(registry: Registry, agent: str, *, ago_s: float = 1.0, group: str = "web", lane: dict[str, Any] | None = None) -> None:
    now_s = time.time()
    given: dict[str, Any] = {"version": 1, "read": 90, "stored": 70, "committed": 50, "waiting_bytes": 4_000, "files": 3}
    given |= {"oldest_ms": round((now_s - 42) * 1000)} | (lane or {})
    record = AgentRecord(
        host=f"{agent}.example",
        group=group,
        release="1.0",
        gateway="g1",
        reported_at=now_s - ago_s,
        since="2026-11-29T00:00:00+00:00",
        lanes={"logs.access": AgentLaneRecord(**given)},
    )
    registry.commit(put(registry, AGENT(agent), record))


def runs(registry: Registry, agent: str, group: str | None = "web") -> None:
    registry.commit(MAPPED(agent, NODE).create(Mapped(by="g1", group=group)))


def gateway(registry: Registry, name: str, cost: float = 1.0, group: str = "dmz") -> None:
    registry.commit(GATEWAY(name).create(GatewayRecord(url=f"http://{name}:7443", group=group, cost=cost), ephemeral=True))


def test_an_agent_is_listed_described_bound_drained_and_removed(bench: Bench) -> None:
    submitted(bench.person)
    bench.person.commit(HOST("host1").create(Host(host="host1")))
    reports(bench.person, "web1")
    runs(bench.person, "web1")
    reports(bench.person, "db1", group="db")
    reports(bench.person, "gone1", ago_s=31)
    bench.person.commit(ROLL_OUT("logs", "edge").create(RollOutRecord(version=2, before=1, stage="back", reason="it failed")))
    for name, cost in (("g1", 1.0), ("g2", 1.0), ("g3", 9.0)):
        gateway(bench.person, name, cost)
    gateway(bench.person, "inner1", group="inner")
    bench.master()
    client = bench.client()

    rows = {row.agent: row for row in client.agents()}
    assert sorted(rows) == ["db1", "gone1", "web1"], "a host for workers is no agent"
    assert [row.node for row in client.nodes()] == ["host1"], "an agent is no host for workers"
    row = rows["web1"]
    assert (row.state, row.group, row.host, row.release, row.gateway) == ("running", "web", "web1.example", "1.0", "g1")
    assert (row.backlog, row.waiting_bytes) == (40, 4_000)
    assert row.oldest_age_s is not None
    assert 41 <= row.oldest_age_s < 60
    assert 0 <= row.report_age_s < 30
    assert rows["gone1"].state == "away"
    assert [row.agent for row in client.agents("db")] == ["db1"]

    view = client.agent("web1")
    (tier,) = view.tiers
    assert (tier.tier, tier.bound, tier.version, tier.stage, tier.wanted, tier.reason) == (NODE, False, 1, "back", 2, "it failed")
    (lane,) = view.lanes
    assert (lane.lane, lane.files, lane.wanted) == ("logs.access", 3, 1)
    assert {member.gateway for member in view.chain} == {"g1", "g2", "g3"}
    assert view.chain[-1].gateway == "g3"
    client.set_chain("dmz", ChainSettings(chain=("g3",), out={"g2": "it is old"}))
    assert [member.gateway for member in client.agent("web1").chain] == ["g3", "g1"]
    assert {row.gateway: row.out for row in client.gateways()} == {"g1": "", "g2": "it is old", "g3": "", "inner1": ""}
    client.set_chain("dmz", ChainSettings())
    assert len(client.agent("web1").chain) == 3
    assert {row.gateway: row.agents for row in client.gateways()} == {"g1": 3, "g2": 0, "g3": 0, "inner1": 0}

    assert client.bind_agent("logs", "edge", "db1").changed
    assert not client.bind_agent("logs", "edge", "db1").changed
    assert client.agent("db1").tiers[0].bound
    assert client.bind_agent("logs", "edge", "web1").changed, "it is bound in addition to its group"
    assert client.unbind_agent("logs", "edge", "db1").changed
    assert not client.unbind_agent("logs", "edge", "db1").changed
    assert client.agent("db1").tiers == ()
    client.want("logs", "paused")
    assert client.bind_agent("logs", "edge", "db1").changed
    assert client.flow("logs").wanted.state == "paused"
    assert client.bind_agent("logs", "edge", "db1", start=True).changed
    assert client.flow("logs").wanted.state == "running"
    assert not client.bind_agent("logs", "edge", "db1", start=True).changed
    assert client.unbind_agent("logs", "edge", "db1").changed

    done = client.decommission_agent("web1")
    assert (done.changed, done.decommissioned, done.lanes) == (True, True, ("logs.access",))
    assert (client.agent("web1").agent.state, client.agent("web1").agent.decommissioned) == ("decommissioned", True)
    assert client.decommission_agent("gone1").changed
    assert [(row.state, row.decommissioned) for row in client.agents() if row.agent == "gone1"] == [("away", True)]
    refused(lambda: client.bind_agent("logs", "edge", "web1"), "agent-decommissioned", "scribengin agent undrain web1")
    assert client.decommission_agent("web1", undo=True).changed
    assert not client.decommission_agent("web1", undo=True).changed

    refused(lambda: client.remove_agent("web1"), "agent-up", "scribengin agent drain web1")
    client.remove_agent("gone1")
    assert sorted(row.agent for row in client.agents()) == ["db1", "web1"]
    for act in (client.agent, client.remove_agent, client.decommission_agent):
        refused(lambda act=act: act("web2"), "agent-unknown", 'did you mean "web1"')
    refused(lambda: client.bind_agent("logs", "core", "web1"), "tier-unknown", "its tiers of agents: edge")
    refused(lambda: client.set_chain("dmz", ChainSettings(costs={"g1": 0.0})), "group-cost", "above 0")


@pytest.mark.executes("agent-decommissioned", "agent-unknown", "agent-up", "group-unknown")
def test_what_is_refused_names_commands_that_help(bench: Bench, says: Callable[..., dict[str, Any]]) -> None:
    submitted(bench.person)
    reports(bench.person, "web1")
    gateway(bench.person, "g1")
    bench.master()

    def remedy_of(code: str, *words: str) -> list[str]:
        [problem] = says(*words)["problems"]
        assert problem["code"] == code, problem
        return list(mentions(problem["remedy"])[0].words)

    def done(words: list[str]) -> Any:
        said = says(*words)
        assert said["ok"], said
        return said["result"]

    drained = done(remedy_of("agent-up", "agent", "remove", "web1"))
    assert drained["decommissioned"]
    undrained = done(remedy_of("agent-decommissioned", "agent", "map", NODE, "web1"))
    assert not undrained["decommissioned"]
    assert done(["agent", "map", NODE, "web1"])["changed"]
    assert [row["agent"] for row in done(remedy_of("agent-unknown", "agent", "describe", "quite-another"))] == ["web1"]
    assert [row["gateway"] for row in done(remedy_of("group-unknown", "gateway", "set-chain", "no group", "--disable", "g1"))] == ["g1"]


def refused(act: Callable[[], object], code: str, remedy: str) -> None:
    with pytest.raises(Refused) as told:
        act()
    assert told.value.code == code
    assert remedy in told.value.remedy


@pytest.mark.parametrize(
    ("lane", "state"),
    [({"state": "waiting"}, "waiting"), ({"state": "full"}, "full"), ({"state": "failed", "message": "no rights"}, "failed")],
)
def test_the_state_of_an_agent_is_that_of_its_worst_lane(bench: Bench, lane: dict[str, Any], state: str) -> None:
    reports(bench.person, "web1", lane=lane)
    (row,) = list_agents(bench.person)
    assert (row.state, row.message) == (state, lane.get("message", ""))


def test_commands_show_agents_and_gateways_and_change_them(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(bench.person)
    reports(bench.person, "web1")
    runs(bench.person, "web1")
    gateway(bench.person, "g1")
    master = bench.master()
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("SCRIBENGIN_MASTER", master.url)

    def says(command: Any, *words: str) -> str:
        result = CliRunner().invoke(command, list(words))
        assert result.exit_code == 0, result.output
        return result.output

    assert "web1.example" in says(commands.list_)
    assert "no agent has reported yet" in says(commands.list_, "--group", "other")
    shown = says(commands.describe, "web1")
    assert "agent web1 is running, group web, on web1.example" in shown
    assert "runs logs.edge version 1, of group web" in shown
    assert "http://g1:7443" in shown
    assert says(commands.map_, NODE, "web1") == "logs.edge will run at agent web1\n"
    assert says(commands.start_tier, NODE, "web1") == "logs.edge will run at agent web1, as before\n"
    assert says(commands.unmap, NODE, "web1") == "logs.edge is no longer mapped to agent web1\n"
    assert says(commands.drain, "web1") == "agent web1 reads nothing more; not committed yet: logs.access\n"
    reports(bench.person, "web1", lane={"committed": 90, "waiting_bytes": 0})
    assert "has handed over all records" in says(commands.drain, "web1", "--wait", "30s")
    assert says(commands.undrain, "web1") == "agent web1 reads\n"
    assert "http://g1:7443" in says(commands.gateways)
    says(commands.set_chain, "dmz", "--cost", "g1=5")
    assert " 5 " in says(commands.gateways)
    reports(bench.person, "web1", ago_s=3_600)
    assert says(commands.remove, "web1") == "agent web1 is removed\n"


def test_a_thousand_agents_are_listed_at_once(tmp_path: Path) -> None:
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        closing(ConnectionSettings(RegistryAddress((zookeeper.address,), "/edge"), insecure=True).open(wait_s=60)) as registry,
    ):
        submitted(registry)
        lanes = {f"logs.lane{number}": AgentLaneRecord(version=1, read=9, message="a message of some length") for number in range(3)}
        record = AgentRecord(host="h", reported_at=time.time(), group="web", gateway="g1", lanes=lanes)
        for at in range(0, 1_000, 100):
            registry.commit(*(AGENT(f"web{number}").create(record) for number in range(at, at + 100)))
        took = []
        for _ in range(5):
            began = time.perf_counter()
            assert len(list_agents(registry)) == 1_000
            took.append(time.perf_counter() - began)
        print(f"1,000 agents in {min(took) * 1000:.0f} ms, at worst {max(took) * 1000:.0f} ms")
