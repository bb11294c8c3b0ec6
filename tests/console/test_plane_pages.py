"""The pages about the control plane in a browser: agents, hosts, the registry, tokens, operations, groups, workflows, the audit log.
What each act changes is read back through the API."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Locator, Page, expect

from scribengin.api.serving import Listen
from scribengin.client.change_models import SetQuota
from scribengin.client.models import SetMember, SetPeer
from scribengin.registry.peers import PeerState
from scribengin.registry.record_io import put
from scribengin.registry.records import AgentLaneRecord, AgentRecord, Host, RollOutRecord
from scribengin.registry.tree import AGENT, HOST, PEER_STATE, ROLL_OUT
from tests.api.conftest import Bench, Served
from tests.api.test_agents_api import NODE, gateway, reports, runs, submitted
from tests.api.test_peers_api import Sites
from tests.api.test_workflows_api import chain, stands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOSTILE = "<img src=x onerror=alert(1)> & </script>"
UP_S = -1_000_000
"""seconds since a report: it is never missed, however long the tests take"""
PAGES = (
    "/agents",
    "/agents?show=gateways",
    "/agents/web1",
    "/hosts",
    "/hosts/host1",
    "/registry",
    "/registry/groups%2Fdisks",
    "/tokens",
    "/operations",
    "/flows/orders/operations",
    "/groups",
    "/quotas",
    "/peers",
    "/workflows",
    "/workflows/orders",
    "/audit",
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A plane that the tests of this file share: each changes what no other one looks at."""
    with ExitStack() as stack:
        made = Bench(tmp_path_factory.mktemp("bench"), stack)
        made.master()
        fill(made)
        yield made


def fill(bench: Bench, token: str | None = None) -> None:
    person = bench.person
    submitted(person)
    chain(bench)
    stands(bench, "bills", "failed", HOSTILE, "make room; then: scribengin resume bills")
    for name in ("web1", "web2"):
        reports(person, name, ago_s=UP_S)
        runs(person, name)
    reports(person, "bad1", ago_s=UP_S, lane={"state": "failed", "message": HOSTILE})
    reports(person, "gone1", ago_s=1_000_000)
    person.commit(ROLL_OUT("logs", "edge").create(RollOutRecord(version=2, before=1, stage="back", reason="it failed")))
    for name, cost in (("g1", 1.0), ("g2", 3.0)):
        gateway(person, name, cost)
    for name in ("host1", "host2"):
        person.commit(HOST(name).create(Host(host=name)))
    client = bench.client(token=token)
    client.write_record("groups/disks", {"members": {"near": 1, "far": 2}}, version=None)
    client.want_workflow("orders", "paused")
    client.set_quota("team=shop", SetQuota(cores=8, memory_bytes=2**34))
    client.set_peer("berlin", SetPeer(("http://flows.berlin.example:8443",), {"kafka.lan:9092": "kafka.example:9094"}))


@pytest.fixture
def own_bench(tmp_path: Path) -> Iterator[Bench]:
    """A plane of one test. The test names it before `page`, so that its master outlives the page."""
    with ExitStack() as stack:
        yield Bench(tmp_path, stack)


@pytest.fixture
def master(bench: Bench) -> Served:
    return bench.masters[0]


def shown(page: Page, master: Served, where: str, heading: str | re.Pattern[str]) -> None:
    """The page at an address of the console, with its content."""
    page.goto(f"{master.url}/#{where}")
    expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()
    expect(page.locator("[aria-busy]")).to_have_count(0)


def dialog(page: Page, button: str) -> Locator:
    page.get_by_role("button", name=button, exact=True).click()
    return page.get_by_role("dialog")


def act(box: Locator, button: str, *, name: str = "") -> None:
    """Do what a dialog offers, after the name is typed where it asks for it; then close it."""
    run = box.get_by_role("button", name=button, exact=True)
    if name:
        expect(run).to_be_disabled()
        box.get_by_label(f"type {name} to confirm").fill(name)
    run.click()
    expect(box.locator(".done")).to_be_visible()
    box.locator(".done").get_by_role("button", name="close").click()
    expect(box).to_have_count(0)


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_text(text, exact=True))


def test_agents_are_shown_worst_first_and_filtered_by_an_address(page: Page, master: Served) -> None:
    shown(page, master, "/agents", "Agents")
    table = page.get_by_role("table", name="agents")
    expect(table.get_by_role("link")).to_have_text(["bad1", "gone1", "web1", "web2"])
    bad = row(page, "bad1")
    expect(bad).to_contain_text(HOSTILE)
    expect(bad).to_contain_text("3.9 KiB")
    page.get_by_role("button", name="away").click()
    expect(table.get_by_role("link")).to_have_text(["gone1"])
    expect(page).to_have_url(re.compile("state=away"))
    page.get_by_role("button", name="away").click()
    page.get_by_label("filter").fill("WEB2.example")
    expect(table.get_by_role("link")).to_have_text(["web2"])
    page.reload()
    expect(table.get_by_role("link")).to_have_text(["web2"])
    page.get_by_label("filter").fill("no such agent")
    expect(page.get_by_text("No agent matches the filter.")).to_be_visible()


def test_an_agent_is_drained_undrained_and_removed(page: Page, master: Served, bench: Bench) -> None:
    client = bench.client(master)
    reports(bench.person, "old1", ago_s=UP_S)
    shown(page, master, "/agents", "Agents")
    box = dialog(page, "drain old1")
    expect(box).to_contain_text("scribengin agent drain old1")
    expect(box).to_contain_text(f"curl -X PUT {master.url}/v1/agents/old1/decommissioned")
    act(box, "drain", name="old1")
    expect(row(page, "old1")).to_contain_text("decommissioned")
    assert client.agent("old1").agent.state == "decommissioned"
    act(dialog(page, "undrain old1"), "undrain")
    expect(row(page, "old1")).to_contain_text("running")
    assert client.agent("old1").agent.state == "running"
    act(dialog(page, "drain old1"), "drain", name="old1")
    reports(bench.person, "old1", ago_s=2_000_000)
    expect(row(page, "old1")).to_contain_text(re.compile("away.*decommissioned"))
    expect(page.get_by_role("button", name="drain old1", exact=True)).to_have_count(0)
    act(dialog(page, "remove old1"), "remove", name="old1")
    expect(row(page, "old1")).to_have_count(0)
    assert "old1" not in {each.agent for each in client.agents()}


def test_a_thousand_agents_are_drawn_only_in_sight(own_bench: Bench, page: Page) -> None:
    record = AgentRecord(host="h", reported_at=1.0, group="web", gateway="g1", lanes={"logs.a": AgentLaneRecord(version=1, read=9)})
    for number in range(1_000):
        own_bench.person.commit(AGENT(f"web{number:03}").create(record))
    shown(page, own_bench.master(), "/agents", "Agents")
    expect(page.get_by_text("1,000 of 1,000 agents")).to_be_visible()
    table = page.get_by_role("table", name="agents")
    expect(table.get_by_role("link", name="web000")).to_be_visible()
    assert table.get_by_role("link").count() < 60
    table.evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    expect(table.get_by_role("link", name="web999")).to_be_visible()
    assert table.get_by_role("link").count() < 60
    page.get_by_label("filter").fill("web500")
    expect(table.get_by_role("link")).to_have_text(["web500"])


def test_an_agent_has_tiers_lanes_and_a_chain_and_tiers_are_mapped_to_it(page: Page, master: Served, bench: Bench) -> None:
    client = bench.client(master)
    shown(page, master, "/agents/web1", "web1")
    tiers, lanes, gateways = (page.get_by_role("region", name=name) for name in ("tiers", "lanes", "chain"))
    expect(tiers.get_by_role("row").last).to_contain_text(re.compile("logs.edge.*its group web.*version 1, wanted 2.*failed.*it failed"))
    expect(lanes.get_by_role("row").last).to_contain_text(re.compile(r"logs.access.*90.*70.*50.*3\.9 KiB"))
    expect(gateways.get_by_role("row")).to_contain_text(["gateway", "g1", "g2"])
    shown(page, master, "/agents/bad1", "bad1")
    box = dialog(page, "map a tier")
    expect(box.get_by_role("button", name="map the tier")).to_be_disabled()
    box.get_by_label("tier", exact=True).fill(NODE)
    box.get_by_label("start its flow").check()
    expect(box).to_contain_text("scribengin agent start-tier logs.edge bad1")
    box.get_by_label("start its flow").uncheck()
    expect(box).to_contain_text("scribengin agent map logs.edge bad1")
    act(box, "map the tier")
    expect(tiers).to_contain_text("a binding")
    assert [each.bound for each in client.agent("bad1").tiers] == [True]
    act(dialog(page, "unmap logs.edge"), "unmap")
    expect(page.get_by_text("No tier runs at this agent.")).to_be_visible()
    assert client.agent("bad1").tiers == ()


def test_a_refused_act_is_repeated_in_the_same_dialog_with_other_input(
    page: Page, master: Served, bench: Bench, expected_errors: list[str]
) -> None:
    expected_errors.append("status of 404")
    shown(page, master, "/agents/web2", "web2")
    box = dialog(page, "map a tier")
    box.get_by_label("tier", exact=True).fill("logs.nope")
    box.get_by_role("button", name="map the tier").click()
    expect(box.get_by_role("alert")).to_contain_text("its tiers of agents: edge")
    box.get_by_label("tier", exact=True).fill(NODE)
    act(box, "map the tier")
    assert bench.client(master).agent("web2").tiers[0].bound


def test_the_chain_of_a_group_of_gateways_is_set(page: Page, master: Served, bench: Bench) -> None:
    gateway(bench.person, "inner1", 1.0, group="inner")
    gateway(bench.person, "inner2", 2.0, group="inner")
    shown(page, master, "/agents?show=gateways", "Agents")
    box = dialog(page, "set chain of inner")
    box.get_by_label("cost of inner1").fill("5")
    box.get_by_label("order").fill("inner2, inner1")
    box.get_by_label("disable inner1").check()
    box.get_by_label("reason").fill("it is moved")
    expect(box).to_contain_text(
        "scribengin gateway set-chain inner --cost inner1=5 --order inner2,inner1 --disable inner1 --reason 'it is moved'"
    )
    act(box, "set the chain")
    expect(row(page, "inner1")).to_contain_text("disabled it is moved")
    value = bench.client(master).record("chains/inner").value
    assert value is not None
    assert (value["costs"], value["out"], value["chain"]) == ({"inner1": 5.0}, {"inner1": "it is moved"}, ["inner2", "inner1"])


def test_hosts_are_drained_undrained_and_removed_and_tiers_are_mapped(page: Page, master: Served, bench: Bench) -> None:
    client = bench.client(master)
    bench.person.commit(HOST("spare1").create(Host(host="spare1.example")))
    shown(page, master, "/hosts", "Hosts")
    expect(page.get_by_role("region", name="nodes").get_by_role("link")).to_have_text(["host1", "host2", "spare1"])
    expect(page.get_by_text("revision of the registry")).to_be_visible()
    page.get_by_role("link", name="spare1").click()
    expect(page.get_by_role("heading", name="spare1")).to_be_visible()
    expect(page.get_by_text("The node does not answer this master")).to_be_visible()
    box = dialog(page, "map a tier")
    box.get_by_label("tier", exact=True).fill("orders.core")
    expect(box).to_contain_text("scribengin node map orders.core spare1")
    act(box, "map the tier")
    expect(page.get_by_role("link", name="orders.core")).to_be_visible()
    assert client.node("spare1").node.mapped == ("orders.core",)
    act(dialog(page, "unmap orders.core"), "unmap")
    expect(page.get_by_text("No tier is bound to this node.")).to_be_visible()
    assert client.node("spare1").node.mapped == ()
    act(dialog(page, "drain"), "drain", name="spare1")
    expect(page.get_by_role("button", name="undrain")).to_be_visible()
    assert client.node("spare1").node.state == "decommissioned"
    act(dialog(page, "undrain"), "undrain")
    expect(page.get_by_role("button", name="drain", exact=True)).to_be_visible()
    assert client.node("spare1").node.state == "away"


def test_a_host_whose_machine_is_gone_is_removed(page: Page, master: Served, bench: Bench, expected_errors: list[str]) -> None:
    expected_errors.append("status of 404")
    bench.person.commit(HOST("gone2").create(Host(host="gone2")))
    shown(page, master, "/hosts/gone2", "gone2")
    act(dialog(page, "remove"), "remove", name="gone2")
    expect(page.get_by_role("alert")).to_be_visible()
    assert "gone2" not in {each.node for each in bench.client(master).nodes()}


def test_the_registry_is_browsed_and_a_record_is_edited_and_deleted(
    page: Page, master: Served, bench: Bench, expected_errors: list[str]
) -> None:
    expected_errors.append("status of 404")
    client = bench.client(master)
    client.write_record("limits/orders", {"rows_per_s": 5}, version=None)
    shown(page, master, "/registry", "Registry")
    page.get_by_role("link", name="limits").click()
    expect(page).to_have_url(re.compile("#/registry/limits$"))
    page.get_by_role("link", name="orders").click()
    expect(page).to_have_url(re.compile("#/registry/limits%2Forders$"))
    expect(page.get_by_role("region", name="record")).to_contain_text('"rows_per_s": 5')
    box = dialog(page, "edit")
    text = box.get_by_label("record, as JSON")
    text.fill('{"rows_per_s": ')
    expect(box.get_by_text("not valid")).to_be_visible()
    expect(box.get_by_role("button", name="write the record")).to_be_disabled()
    text.fill('{"rows_per_s": 7}')
    act(box, "write the record")
    expect(page.get_by_role("region", name="record")).to_contain_text('"rows_per_s": 7')
    assert client.record("limits/orders").value == {"format": 1, "rows_per_s": 7}
    act(dialog(page, "delete"), "delete the record", name="limits/orders")
    expect(page.get_by_text("the registry has nothing at limits/orders")).to_be_visible()
    assert bench.person.read("limits/orders") is None


def test_a_record_that_changed_meanwhile_is_reported_and_read_again(
    page: Page, master: Served, bench: Bench, expected_errors: list[str]
) -> None:
    expected_errors.append("status of 412")
    client = bench.client(master)
    client.write_record("limits/bills", {"rows_per_s": 5}, version=None)
    shown(page, master, "/registry/limits%2Fbills", "bills")
    box = dialog(page, "edit")
    text = box.get_by_label("record, as JSON")
    text.fill('{"rows_per_s": 7}')
    client.write_record("limits/bills", {"rows_per_s": 6}, version=0)
    box.get_by_role("button", name="write the record").click()
    expect(box.get_by_role("alert")).to_contain_text("limits/bills has version 1: nothing was written")
    box.get_by_role("button", name="read again: version 1").click()
    expect(text).to_have_value(re.compile('"rows_per_s": 6'))
    text.fill('{"rows_per_s": 8}')
    act(box, "write the record")
    assert client.record("limits/bills").value == {"format": 1, "rows_per_s": 8}


def test_a_record_of_the_control_plane_is_not_offered_to_be_written(page: Page, master: Served) -> None:
    shown(page, master, "/registry/flows%2Fbills%2Fstatus", "status")
    expect(page.get_by_role("region", name="record")).to_contain_text(HOSTILE)
    expect(page.get_by_text("the control plane only")).to_be_visible()
    expect(page.get_by_role("button", name="edit")).to_have_count(0)
    expect(page.get_by_role("button", name="delete")).to_have_count(0)


def test_a_token_is_made_shown_once_and_revoked(page: Page, master: Served, bench: Bench) -> None:
    client = bench.client(master)
    shown(page, master, "/tokens", "Tokens")
    box = dialog(page, "make a token")
    run = box.get_by_role("button", name="make a token")
    expect(run).to_be_disabled()
    box.get_by_label("name").fill("ci")
    box.get_by_label("role").select_option("editor")
    box.get_by_label("labels").fill("team")
    expect(run).to_be_disabled()
    box.get_by_label("labels").fill("team=shop, site=a")
    box.get_by_label("expires").fill("2999-01-31")
    expect(box).to_contain_text("scribengin token add ci --role editor --label team=shop --label site=a --expires 2999-01-31")
    run.click()
    made = box.locator(".done code")
    expect(made).to_be_visible()
    secret = made.inner_text()
    box.locator(".done").get_by_role("button", name="close").click()
    expect(row(page, "ci")).to_contain_text(re.compile("editor.*(team=shop|site=a).*2999-01-31"))
    assert bench.tokens.prove(secret) is not None
    assert secret not in page.content()
    (token,) = client.tokens()
    assert (token.name, token.role, dict(token.labels), token.until[:10]) == ("ci", "editor", {"team": "shop", "site": "a"}, "2999-01-31")
    act(dialog(page, "revoke ci"), "revoke", name="ci")
    expect(row(page, "ci")).to_have_count(0)
    assert client.tokens() == []


def test_operations_under_way_come_first_and_are_cancelled(page: Page, master: Served, bench: Bench) -> None:
    client = bench.client(master)
    client.want_workflow("orders", "running")
    client.want_workflow("orders", "paused")
    shown(page, master, "/operations", "Operations")
    first = page.get_by_role("row").nth(1)
    expect(first).to_contain_text("under way")
    last = client.operations()[0]
    expect(first).to_contain_text(last.id)
    act(dialog(page, f"cancel operation {last.id} of orders"), "cancel the operation")
    expect(page.get_by_text("under way")).to_have_count(0)
    assert client.operations()[0].step == "cancelled"
    shown(page, master, "/flows/orders/operations", "orders")
    expect(page.get_by_role("region", name="operations")).to_contain_text("workflow paused")
    expect(page.get_by_role("list", name="history, newest first")).to_contain_text("by ann")


def test_a_member_of_a_group_is_disabled_enabled_and_gets_a_cost(page: Page, master: Served, bench: Bench) -> None:
    client = bench.client(master)
    shown(page, master, "/groups", "Groups")
    box = dialog(page, "disable near")
    box.get_by_label("reason").fill("disk replaced")
    expect(box).to_contain_text("scribengin group disable disks near --reason 'disk replaced'")
    act(box, "disable", name="near")
    expect(row(page, "near")).to_contain_text("disabled disk replaced")
    assert [(each.member, each.why) for each in client.group("disks").members if each.out] == [("near", "disk replaced")]
    act(dialog(page, "enable near"), "enable")
    expect(row(page, "near")).to_contain_text("enabled")
    assert not any(each.out for each in client.group("disks").members)
    box = dialog(page, "set cost of far")
    box.get_by_label("cost", exact=True).fill("7")
    act(box, "set the cost")
    expect(row(page, "far")).to_contain_text("7")
    assert {each.member: each.cost for each in client.group("disks").members} == {"near": 1.0, "far": 7.0}
    client.set_member("disks", "far", SetMember(cost=2.0))


def test_a_quota_is_set_changed_and_removed(page: Page, master: Served, bench: Bench) -> None:
    client = bench.client(master)
    bounds = lambda: {row.quota: (row.cores, row.memory_bytes, row.rows_per_s) for row in client.quotas()}  # noqa: E731
    shown(page, master, "/quotas", "Quotas")
    expect(row(page, "team=shop")).to_contain_text(re.compile("0 of 8.*0 B of 16.0 GiB.*no limit.*no flow has this label"))
    box = dialog(page, "set a quota")
    run = box.get_by_role("button", name="set the quota")
    box.get_by_label("label").fill("team=web")
    expect(run).to_be_disabled()
    box.get_by_label("cores").fill("1.5")
    expect(box).to_contain_text("write a whole number above 0")
    expect(run).to_be_disabled()
    box.get_by_label("cores").fill("4")
    box.get_by_label("memory").fill("1.5")
    expect(box).to_contain_text(f"scribengin quota set team=web --cores 4 --memory {3 * 2**29}B")
    act(box, "set the quota")
    assert bounds()["team=web"] == (4, 3 * 2**29, None)
    box = dialog(page, "change team=web")
    expect(box.get_by_label("memory")).to_have_value("1.5")
    box.get_by_label("memory").fill("2")
    expect(box).to_contain_text("scribengin quota set team=web --cores 4 --memory 2GiB")
    box.get_by_label("memory").fill("")
    box.get_by_label("rows per second").fill("500")
    expect(box).to_contain_text("scribengin quota set team=web --cores 4 --rows-per-second 500 --unset memory")
    act(box, "set the quota")
    expect(row(page, "team=web")).to_contain_text(re.compile("0 of 4.*no limit.*500"))
    assert bounds()["team=web"] == (4, None, 500)
    act(dialog(page, "remove team=web"), "remove", name="team=web")
    expect(row(page, "team=web")).to_have_count(0)
    assert list(bounds()) == ["team=shop"]


def test_a_refused_quota_is_corrected_in_the_same_dialog(page: Page, master: Served, expected_errors: list[str]) -> None:
    expected_errors.append("status of 4")
    shown(page, master, "/quotas", "Quotas")
    box = dialog(page, "set a quota")
    box.get_by_label("label").fill("team=web shop")
    box.get_by_label("cores").fill("4")
    box.get_by_role("button", name="set the quota").click()
    expect(box.get_by_role("alert")).to_contain_text("not a valid label")
    box.get_by_label("label").fill("team=mail")
    act(box, "set the quota")
    act(dialog(page, "remove team=mail"), "remove", name="team=mail")
    expect(row(page, "team=mail")).to_have_count(0)


def test_a_peer_is_set_changed_and_removed(page: Page, master: Served, bench: Bench, expected_errors: list[str]) -> None:
    expected_errors.append("status of 4")
    client = bench.client(master)
    shown(page, master, "/peers", "Peers")
    expect(row(page, "berlin")).to_contain_text(re.compile("not asked yet.*kafka.lan:9092=kafka.example:9094.*none is connected"))
    box = dialog(page, "set a peer")
    run = box.get_by_role("button", name="set the peer")
    box.get_by_label("name", exact=True).fill("Paris")
    expect(run).to_be_disabled()
    box.get_by_label("addresses of its masters").fill("https://one.example:8443 https://two.example:8443")
    box.get_by_label("names of servers there").fill("a:1")
    expect(run).to_be_disabled()
    box.get_by_label("names of servers there").fill("a:1=b:2")
    run.click()
    expect(box.get_by_role("alert")).to_contain_text("not a valid name of a peer")
    box.get_by_label("name", exact=True).fill("paris")
    expect(box).to_contain_text("scribengin peer set paris https://one.example:8443 https://two.example:8443 --alias a:1=b:2")
    act(box, "set the peer")
    box = dialog(page, "change paris")
    expect(box.get_by_label("names of servers there")).to_have_value("a:1=b:2")
    box.get_by_label("addresses of its masters").fill("https://two.example:8443")
    act(box, "set the peer")
    expect(row(page, "paris")).not_to_contain_text("one.example")
    (paris,) = [each for each in client.peers() if each.peer == "paris"]
    assert (paris.masters, dict(paris.aliases)) == (("https://two.example:8443",), {"a:1": "b:2"})
    bench.person.commit(put(bench.person, PEER_STATE("paris"), PeerState(silent_since="2026-01-31T12:00:00+00:00", why=HOSTILE)))
    expect(row(page, "paris")).to_contain_text(f"2026-01-31T12:00:00Z: {HOSTILE}")
    act(dialog(page, "remove paris"), "remove", name="paris")
    expect(row(page, "paris")).to_have_count(0)
    assert [each.peer for each in client.peers()] == ["berlin"]


def test_the_flows_of_a_peer_are_shown_with_where_they_are_connected(own_bench: Bench, page: Page, tmp_path: Path) -> None:
    sites = Sites(own_bench, Bench(tmp_path / "there", own_bench.stack))
    assert not sites.asking.ask(sites.peer, sites.term)
    shown(page, own_bench.masters[0], "/peers", "Peers")
    expect(row(page, "berlin")).to_contain_text(re.compile(r"up.*berlin/store running.*collect\.out → berlin/store\.in \(topic wan\)"))
    expect(row(page, "berlin").get_by_role("link")).to_have_text(["collect"])
    sites.clients.forget("berlin")


def test_a_workflow_is_a_graph_and_is_stopped_as_one(page: Page, master: Served, bench: Bench) -> None:
    shown(page, master, "/workflows", "Workflows")
    page.get_by_role("region", name="workflows").get_by_role("link", name="orders", exact=True).first.click()
    graph = page.get_by_role("group", name="graph of the workflow orders")
    expect(graph.get_by_role("link", name="flow bills, failed")).to_be_visible()
    expect(graph.get_by_role("link")).to_have_count(3)
    expect(graph).to_contain_text("folder /orders")
    expect(page.get_by_role("region", name="flows").get_by_role("row").nth(1)).to_contain_text(HOSTILE)
    box = dialog(page, "stop")
    expect(box).to_contain_text("scribengin stop orders --workflow")
    act(box, "stop 3 flows", name="orders")
    newest = bench.client(master).workflow("orders").operations[0]
    assert newest.goal == "stopped"
    expect(page.get_by_role("region", name="operations")).to_contain_text("workflow stopped")
    bench.client(master).cancel("orders", newest.id)


def test_the_audit_log_of_this_master_is_filtered(page: Page, master: Served, bench: Bench) -> None:
    client = bench.client(master)
    client.write_record("limits/mail", {"rows_per_s": 5}, version=None)
    shown(page, master, "/audit", "Audit log")
    expect(page.get_by_text("Each master has a log of its own")).to_be_visible()
    expect(page.get_by_role("row").nth(1)).to_contain_text(re.compile("ann.*write record.*limits/mail.*done"))
    page.get_by_label("flow or other target").fill("limits/mail")
    page.get_by_label("flow or other target").press("Enter")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page).to_have_url(re.compile("flow=limits"))
    page.get_by_label("caller").fill("nobody")
    page.get_by_label("caller").press("Enter")
    expect(page.get_by_text("No line of the log matches.")).to_be_visible()


def test_names_and_messages_are_text(page: Page, master: Served, bench: Bench) -> None:
    bench.client(master).write_record("groups/evil", {"members": {"near": 1, "far": 1}, "out": {"far": HOSTILE}}, version=None)
    for where, heading in (("/groups", "Groups"), ("/workflows/orders", "orders"), ("/agents/bad1", "bad1")):
        shown(page, master, where, heading)
        expect(page.get_by_text(HOSTILE).first).to_be_attached()
    expect(page.locator("img")).to_have_count(0)


def test_a_viewer_sees_no_acts_and_no_pages_of_admins(own_bench: Bench, page: Page, expected_errors: list[str]) -> None:
    expected_errors += ["status of 401", "status of 403"]
    token, root = own_bench.tokens.add("eve", "viewer", {}), own_bench.tokens.add("root", "admin", {})
    master = own_bench.master(listen=Listen(asks=True))
    fill(own_bench, token=root)
    page.goto(f"{master.url}/#/agents")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name="web1")).to_be_visible()
    menu = page.get_by_role("navigation", name="pages")
    expect(menu.get_by_role("link")).to_have_text(["Fleet", "Workflows", "Operations", "Groups", "Quotas", "Agents", "Hosts", "Peers"])
    for where in PAGES:
        page.goto(f"{master.url}/#{where}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(1 if where in ("/tokens", "/audit") else 0)
        acts = page.locator("main").get_by_role("button").filter(has_not=page.locator(".state"))
        expect(acts, where).to_have_count(0)


def test_pages_can_be_used_by_all(page: Page, master: Served, accessibility_faults: Callable[[Page], list[str]]) -> None:
    for where in PAGES:
        page.goto(f"{master.url}/#{where}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
        assert accessibility_faults(page) == [], where


@pytest.mark.parametrize(
    ("where", "button"),
    [
        ("/agents", "drain web1"),
        ("/agents?show=gateways", "set chain of dmz"),
        ("/agents/web1", "map a tier"),
        ("/registry/groups%2Fdisks", "edit"),
        ("/tokens", "make a token"),
        ("/groups", "disable near"),
        ("/groups", "set cost of near"),
        ("/quotas", "set a quota"),
        ("/quotas", "change team=shop"),
        ("/peers", "set a peer"),
    ],
)
def test_dialogs_can_be_used_by_all(
    page: Page, master: Served, accessibility_faults: Callable[[Page], list[str]], where: str, button: str
) -> None:
    page.goto(f"{master.url}/#{where}")
    page.get_by_role("button", name=button, exact=True).first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert accessibility_faults(page) == []
