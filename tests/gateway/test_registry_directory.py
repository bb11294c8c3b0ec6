"""A gateway on a registry: what agents get from it, what it writes of them, and what it does while the registry is silent."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest

from scribengin.api.tokens import Tokens
from scribengin.control import flow_requests, node_bindings
from scribengin.control.submission import submission_of
from scribengin.core.secret import Secret
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.gateway.agent_records import WRITE_S, AgentRecords
from scribengin.gateway.directory import TokenHolder
from scribengin.gateway.registry_directory import RegistryDirectory, lane_planner
from scribengin.gateway.server import GatewayApp
from scribengin.gateway.serving import GatewayListen, GatewayServer
from scribengin.local.prepare import prepare
from scribengin.packages.fetch import FetchedPackages
from scribengin.packages.make import make_package
from scribengin.packages.store import PackageStore
from scribengin.registry.access import DigestLogin, RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.contract import Delete
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import AgentRecord, ChainRecord, Decommissioned, Mapped, RollOutRecord
from scribengin.registry.tree import AGENT, CHAIN, DECOMMISSIONED, GATEWAY, MAPPED, ROLL_OUT
from scribengin.wire.protocol import AgentConfig
from tests.gateway.gateways import MemoryChannel, StoreInMemory
from tests.gateway.registry_gateways import FLOW, LANE, NODE, LogsFlow, report_of
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.memory import MemoryRegistry

WITHIN_S = 60.0


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def registry(store: MemoryStore) -> MemoryRegistry:
    return store.client()


@pytest.fixture
def logs(registry: Registry, tmp_path: Path) -> LogsFlow:
    made = LogsFlow(registry, tmp_path)
    made.apply()
    return made


@pytest.fixture
def directory(logs: LogsFlow, store: MemoryStore) -> Iterator[RegistryDirectory]:
    with logs.directory(registry=store.client()) as made:
        yield made


def record_of(registry: Registry, agent: str) -> AgentRecord | None:
    found = read_record(registry, AGENT(agent))
    return found.record if isinstance(found, Stored) else None


def comes(directory: RegistryDirectory, wanted: Any, agent: str = "web1", group: str = "web") -> AgentConfig:
    look_until(lambda: wanted(directory.config(agent, group)), "the configuration", WITHIN_S)
    return directory.config(agent, group)


# A thin slice of everything, on a real ZooKeeper.


def test_a_gateway_serves_the_flow_of_a_package_and_keeps_the_report_of_its_agent(tmp_path: Path) -> None:
    folder = tmp_path / "flow"
    folder.mkdir()
    (folder / "flow.yaml").write_text(FLOW.replace("LINGER", "linger: 1s").replace("PLACE", "channel"))
    packed, packages = make_package(folder, {}).package, PackageStore(tmp_path / "packages")
    packages.put([packed.data], packed.id)
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        login = DigestLogin(Secret("masters:sesame", "file"))
        settings = ConnectionSettings(RegistryAddress((zookeeper.address,), "/edge"), login)
        with closing(settings.open(wait_s=60)) as registry:
            plan = prepare(folder / "flow.yaml", state=tmp_path / "state").plan
            submission = submission_of(plan, packed.id, "flow.yaml", str(folder))
            flow_requests.apply(registry, submission, state=lambda _: str(tmp_path / "state"), by="me")
            token = Tokens(registry).add("web1", "agent", {})
            planner = lane_planner(FetchedPackages(packages, tuple), tmp_path / "scratch")
            with closing(settings.open(wait_s=60)) as own, RegistryDirectory(own, planner, name="g1", group="dmz") as directory:
                app = GatewayApp(directory, lambda _name, _lane: MemoryChannel(StoreInMemory()), name="g1")
                with GatewayServer(app, GatewayListen()) as server:
                    directory.announce(server.url)
                    headers = {"Authorization": f"Bearer {token}"}
                    with httpx2.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as agent:
                        answer = agent.get("/edge/v1/config", params={"agent": "web1", "group": "web"})
                        config = msgspec.json.decode(answer.content, type=AgentConfig)
                        assert config.lanes[LANE].linger_s == 1.0
                        assert [each.url for each in config.gateways] == [server.url]
                        answer = agent.post("/edge/v1/report", content=msgspec.json.encode(report_of("web1")))
                        assert answer.json()["revision"] == config.revision
                        look_until(lambda: record_of(registry, "web1"), "the report is in the registry", WITHIN_S)
                        kept = record_of(registry, "web1")
                        assert kept is not None
                        assert (kept.host, kept.gateway, kept.lanes[LANE].committed) == ("web1.example", "g1", 3)
                        assert registry.children("physicalnodes/web1/lns") == (NODE,)
                        assert [each.report.agent for each in directory.agents()] == ["web1"]
                        Tokens(registry).remove("web1")
                        look_until(lambda: agent.get("/edge/v1/config?agent=web1").status_code == 401, "the token is revoked", WITHIN_S)
                    assert node_bindings.nodes(registry) == [], "an agent is not a host for workers"


# The flows.


def test_an_agent_gets_the_lanes_of_its_group_only(directory: RegistryDirectory) -> None:
    assert set(directory.config("web1", "web").lanes) == {LANE}
    config = directory.config("db1", "db")
    assert config.lanes == {}
    assert config.message == 'no running flow collects from agents of the group "db"; groups: "web"'


def test_a_paused_flow_pauses_its_lanes_and_a_stopped_one_has_none(directory: RegistryDirectory, registry: Registry) -> None:
    assert not directory.config("web1", "web").lanes[LANE].paused
    flow_requests.want(registry, "logs", "paused", by="me")
    comes(directory, lambda config: config.lanes[LANE].paused)
    assert directory.lanes()[LANE].config.paused
    flow_requests.want(registry, "logs", "stopped", by="me")
    comes(directory, lambda config: not config.lanes)
    assert not directory.lanes()
    flow_requests.want(registry, "logs", "running", by="me")
    comes(directory, lambda config: config.lanes and not config.lanes[LANE].paused)


def test_a_gateway_of_another_group_serves_nothing_of_it(logs: LogsFlow) -> None:
    assert not logs.directory("g2", group="inner").lanes()
    assert logs.directory("g3", group="").lanes()


def test_a_version_that_cannot_be_planned_leaves_agents_what_they_have(directory: RegistryDirectory, logs: LogsFlow) -> None:
    before = directory.config("web1", "web")
    logs.faults[2] = "no master has the package"
    assert logs.apply("5s") == 2
    flow_requests.want(logs.registry, "logs", "paused", by="me")
    config = comes(directory, lambda config: LANE in config.lanes and config.lanes[LANE].paused)
    assert (config.lanes[LANE].version, config.lanes[LANE].linger_s) == (1, before.lanes[LANE].linger_s)
    logs.faults.clear()
    comes(directory, lambda config: config.lanes[LANE].version == 2)


def test_an_agent_whose_name_cannot_be_kept_is_told_so(directory: RegistryDirectory) -> None:
    assert "is not a valid name of an agent" in directory.config("no/name", "web").message
    directory.report(report_of("no/name"))
    assert directory.agents() == []


# Bindings.


def test_a_tier_that_is_bound_to_an_agent_runs_there_too(directory: RegistryDirectory, registry: Registry) -> None:
    registry.commit(MAPPED("db1", NODE).create(Mapped(by="me")))
    comes(directory, lambda config: LANE in config.lanes, "db1", "db")
    directory.report(report_of("db1", group="db"))
    look_until(lambda: record_of(registry, "db1"), "its record", WITHIN_S)
    found = read_record(registry, MAPPED("db1", NODE))
    assert isinstance(found, Stored)
    assert found.record == Mapped(by="me"), "a binding is left as people wrote it"


def test_a_decommissioned_agent_gets_nothing_to_do_and_its_frames_are_still_taken(directory: RegistryDirectory, registry: Registry) -> None:
    directory.report(report_of("web1"))
    look_until(lambda: registry.children("physicalnodes/web1/lns") == (NODE,), "it runs there", WITHIN_S)
    registry.commit(DECOMMISSIONED("web1").create(Decommissioned(by="me")))
    config = comes(directory, lambda config: not config.lanes)
    assert config.message == "agent web1 is decommissioned; undo this with: scribengin agent undrain web1"
    assert LANE in directory.lanes()


def test_what_no_longer_runs_at_an_agent_is_no_longer_shown_there(logs: LogsFlow, registry: Registry) -> None:
    clock = [0.0]
    records = AgentRecords(registry, "g1", clock=lambda: clock[0])
    for assigned in ({NODE: "web"}, {}):
        records.take(report_of("web1"))
        clock[0] += WRITE_S
        records.write(lambda _agent, _group, assigned=assigned: assigned)
        assert registry.children("physicalnodes/web1/lns") == tuple(assigned)


# Gateways.


def test_agents_get_all_gateways_of_the_group_in_an_order_of_their_own(logs: LogsFlow, store: MemoryStore) -> None:
    directories = [logs.directory(f"g{number}", store.client(), cost=2.0 if number == 3 else 1.0) for number in (1, 2, 3)]
    for number, each in enumerate(directories, 1):
        each.__enter__()
        each.announce(f"http://g{number}:7443/")
    try:
        first = directories[0]
        chain = comes(first, lambda config: len(config.gateways) == 3).gateways
        assert chain[-1].url == "http://g3:7443", "the dearest comes last"
        assert len({first.config(f"web{number}", "web").gateways[0].url for number in range(30)}) == 2
        client = store.client()
        client.commit(CHAIN("dmz").create(ChainRecord(chain=("g3", "g1"))))
        comes(first, lambda config: [each.url[7:9] for each in config.gateways] == ["g3", "g1", "g2"])
        client.commit(put(client, CHAIN("dmz"), ChainRecord(costs={"g2": 0.5}, out={"g1": "it is old"})))
        comes(first, lambda config: [each.url[7:9] for each in config.gateways] == ["g2", "g3"])
        directories.pop().close()
        comes(first, lambda config: [each.url[7:9] for each in config.gateways] == ["g2"])
    finally:
        for each in directories:
            each.close()
    assert store.client().children("gateways") == ()


def test_the_record_of_a_gateway_comes_back_after_its_session_was_lost(store: MemoryStore, logs: LogsFlow) -> None:
    own = store.client()
    with logs.directory(registry=own) as directory:
        directory.announce("http://g1:7443")
        before = own.read(GATEWAY("g1").path)
        assert before is not None
        store.expire(own)
        look_until(
            lambda: (now := store.client().read(GATEWAY("g1").path)) and now.session != before.session, "it is there again", WITHIN_S
        )


# Tokens.


def test_tokens_of_agents_are_those_of_the_registry(logs: LogsFlow, store: MemoryStore) -> None:
    tokens = Tokens(store.client())
    own, pattern = tokens.add("web1", "agent", {}), tokens.add("web-hosts", "agent", {"agent": "web*"})
    viewer, admin = tokens.add("ann", "viewer", {}), tokens.add("root", "admin", {})
    with logs.directory(registry=store.client(), asks_tokens=True) as directory:
        look_until(lambda: directory.holder(admin), "the tokens are known", WITHIN_S)
        assert directory.allows(own, "web1")
        assert not directory.allows(own, "web2")
        assert directory.allows(pattern, "web2")
        assert not directory.allows(pattern, "db1")
        for other in (viewer, admin, "", "nonsense", f"{own[:-1]}x"):
            assert not directory.allows(other, "web1"), other
        assert directory.holder(own) == TokenHolder("web1")
        assert directory.holder(admin) == TokenHolder("root", admin=True)
        assert directory.holder(viewer) is None
        assert directory.holder("") is None
        tokens.remove("web1")
        look_until(lambda: not directory.allows(own, "web1"), "it is revoked", WITHIN_S)


# Reports.


class CountingRegistry:
    """A client that counts the records of agents which are written."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.writes: dict[str, int] = {}
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def commit(self, *writes: Write, **more: Any) -> Any:
        result = self._registry.commit(*writes, **more)
        self.commits += 1
        for write in writes:
            if write.path.endswith("/agent"):
                self.writes[write.path] = self.writes.get(write.path, 0) + 1
        return result


def test_a_thousand_agents_cost_one_write_each_in_ten_seconds_whatever_gateways_they_use(store: MemoryStore) -> None:
    clock = [0.0]
    counters = [CountingRegistry(store.client()) for _ in range(2)]
    gateways = [AgentRecords(each, f"g{number}", clock=lambda: clock[0]) for number, each in enumerate(counters)]  # type: ignore[arg-type]
    began = time.perf_counter()
    for second in range(60):
        for number in range(1_000):
            if (second + number) % 3 == 0:  # each reports more often than it must
                gateways[0].take(report_of(f"web{number}", read=second))
        gateways[0].write(lambda _agent, _group: {NODE: "web"})
        clock[0] += 1.0
    took_s = time.perf_counter() - began
    assert len(counters[0].writes) == 1_000
    most = max(counters[0].writes.values())
    assert most <= 60 / WRITE_S, f"{most} writes of one agent in 60 s"
    assert min(counters[0].writes.values()) >= 60 / WRITE_S - 1, "and none is left behind"
    print(f"{sum(counters[0].writes.values())} records in {counters[0].commits} commits, {took_s:.2f} s of processor time for 60 s")
    gateways[1].take(report_of("web1"))
    gateways[1].write(lambda _agent, _group: {NODE: "web"})
    assert not counters[1].writes, "another gateway has written it just now"
    clock[0] += WRITE_S
    gateways[1].write(lambda _agent, _group: {NODE: "web"})
    gateways[0].take(report_of("web1"))
    clock[0] += WRITE_S
    gateways[0].write(lambda _agent, _group: {NODE: "web"})
    kept = record_of(store.client(), "web1")
    assert kept is not None
    assert kept.gateway == "g0", "it came back to the first gateway"


def test_a_record_that_was_damaged_or_removed_is_written_again(store: MemoryStore, registry: Registry) -> None:
    clock = [0.0]
    records = AgentRecords(registry, "g1", clock=lambda: clock[0])

    def damage() -> None:
        store.write_raw("physicalnodes/web1/agent", b"oops")

    def remove() -> None:
        registry.commit(Delete("physicalnodes/web1/agent"))

    for spoil in (lambda: None, damage, remove):
        spoil()
        records.take(report_of("web1"))
        for _ in range(3):  # a Conflict costs a cycle
            clock[0] += WRITE_S
            records.write(lambda _agent, _group: {})
        assert record_of(registry, "web1") is not None


def test_while_the_registry_is_silent_agents_get_what_they_had_and_their_reports_wait(store: MemoryStore, logs: LogsFlow) -> None:
    own = store.client()
    with logs.directory(registry=own) as directory:
        before = directory.config("web1", "web")
        own.cut()
        directory.report(report_of("web1", read=77))
        assert directory.config("web1", "web") == before
        assert directory.config("web9", "web").lanes == before.lanes
        assert directory.allows("", "web1")
        own.mend()
        look_until(lambda: (kept := record_of(store.client(), "web1")) and kept.lanes[LANE].read == 77, "it is written", WITHIN_S)


# Roll-outs.


def test_a_changed_configuration_goes_to_one_agent_first_and_a_failure_takes_it_back(
    directory: RegistryDirectory, logs: LogsFlow, registry: Registry
) -> None:
    agents = [f"web{number}" for number in range(1, 6)]
    for agent in agents:
        directory.report(report_of(agent, 1))
    look_until(lambda: all(record_of(registry, agent) for agent in agents), "the reports", WITHIN_S)
    look_until(lambda: isinstance(read_record(registry, ROLL_OUT("logs", "edge")), Stored), "the first version", WITHIN_S)
    assert logs.apply("5s") == 2

    def roll_out() -> RollOutRecord:
        found = read_record(registry, ROLL_OUT("logs", "edge"))
        assert isinstance(found, Stored)
        return found.record

    look_until(lambda: roll_out().stage == "one", "it begins", WITHIN_S)
    (first,) = roll_out().chosen
    comes(directory, lambda config: config.lanes[LANE].linger_s == 5.0, first)
    others = [agent for agent in agents if agent != first]
    assert {directory.config(agent, "web").lanes[LANE].version for agent in others} == {1}
    directory.report(report_of(first, 2, state="failed", message="it cannot be read"))
    look_until(lambda: roll_out().stage == "back", "it goes back", WITHIN_S)
    assert roll_out().reason == f"agent {first} failed with version 2: it cannot be read"
    comes(directory, lambda config: config.lanes[LANE].version == 1, first)


def test_a_version_that_changes_nothing_for_agents_goes_to_all_at_once(
    directory: RegistryDirectory, logs: LogsFlow, registry: Registry
) -> None:
    for agent in ("web1", "web2", "web3"):
        directory.report(report_of(agent, 1))
    look_until(lambda: record_of(registry, "web3"), "the reports", WITHIN_S)
    look_until(lambda: isinstance(read_record(registry, ROLL_OUT("logs", "edge")), Stored), "the first version", WITHIN_S)
    flow_requests.apply(
        registry,
        submission_of(prepare(logs.folder / "logs-200ms.yaml", state=logs.folder / "state").plan, "f" * 64, "logs-200ms.yaml", "/base"),
        state=lambda _: "",
        by="me",
    )
    comes(directory, lambda config: config.lanes[LANE].version == 2)
    found = read_record(registry, ROLL_OUT("logs", "edge"))
    assert isinstance(found, Stored)
    assert found.record.stage == "done"
