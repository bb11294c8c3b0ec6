"""Two control planes, each with its own registry and masters, whose flows meet at a topic: real HTTP between them, no worker."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from click.testing import CliRunner

from scribengin.api.serving import Listen
from scribengin.cli.commands.graph import command as graph
from scribengin.cli.commands.peer import command as peer
from scribengin.cli.commands.trace import command as trace
from scribengin.client.models import SetPeer
from scribengin.connectors.contract import Backlog
from scribengin.control import flow_requests
from scribengin.control.backpressure import held_back, held_text
from scribengin.control.peering import Asking, PeerClients, Peering
from scribengin.control.registry_cache import Mirror
from scribengin.control.snapshot import Observer
from scribengin.control.workflows import Workflows
from scribengin.core.errors import FencedError, Refused
from scribengin.registry.contract import Delete
from scribengin.registry.flow_ends import ExternalPlace, Outside, SourceLevel, Waters
from scribengin.registry.lease import Election
from scribengin.registry.peers import Peer
from scribengin.registry.record_io import put
from scribengin.registry.records import Ack, QueryAck, StatusRecord, TierSpec
from scribengin.registry.tree import ACK, DESIRED, PEER, STATUS
from tests.api.conftest import Bench, Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.control.world import World

THERE, HERE = "kafka.lan:9092", "kafka.example:9094"
LEVELS = Waters(high=SourceLevel(rows=100), low=SourceLevel(rows=50), capacity=SourceLevel(rows=200))
SINCE = "2026-01-31T12:00:00+00:00"


def submitted(bench: Bench, flow: str, outside: Outside) -> None:
    submission = flow_requests.Submission(flow, f"{bench.person.sync():064}", "flow.yaml", "/base", {"main": TierSpec()}, outside=outside)
    flow_requests.apply(bench.person, submission, state=lambda _: "/s", by="ann")
    stands(bench, flow, "running")


def stands(bench: Bench, flow: str, state: str, reason: str = "") -> None:
    said = StatusRecord(state=state, since=SINCE, reason=reason)  # type: ignore[arg-type]
    bench.person.commit(put(bench.person, STATUS(flow), said))


def topic(server: str, name: str) -> ExternalPlace:
    return ExternalPlace(kind="topic", at=server, topic=name)


class Sites:
    """`collect` runs here and writes topic `wan`; `store` runs there, reads it, and says how much may wait."""

    def __init__(self, here: Bench, there: Bench) -> None:
        self.here, self.there = here, there
        submitted(here, "collect", Outside(reads={"in": (ExternalPlace(kind="folder", at="/in"),)}, writes={"out": (topic(HERE, "wan"),)}))
        submitted(there, "store", Outside(reads={"in": (topic(THERE, "wan"),)}, waters={"in": LEVELS}))
        submitted(there, "other", Outside(reads={"in": (topic(THERE, "lan"),)}))
        self.master: Served = there.master()
        self.now = 1_000_000.0
        """the clock here; that there is right"""
        assert self.master.plane.watch is not None
        self.board = self.master.plane.watch.board
        self.clients = PeerClients(here.folder / "peers", None)
        self.watch = here.master().plane.watch
        peering = Peering(
            here.person,
            self.clients,
            Workflows(here.person),
            structlog.get_logger(),
            waits=lambda flow: {} if self.watch is None else self.watch.waits(flow),
            clock=lambda: self.now,
        )
        self.peer = Peer(masters=(self.master.url,), aliases={THERE: HERE})
        here.person.commit(put(here.person, PEER("berlin"), self.peer))
        self.asking = Asking(peering, "berlin")
        election = Election(here.person, {"id": "m"})
        assert election.acquire(wait_s=10)
        self.term = election.term
        self.observer = Observer(Mirror(here.person), {})

    def look(self) -> World:
        """The leader here asks, looks, and knows what waits."""
        self.why = self.asking.ask(self.peer, self.term)
        return self.see()

    def see(self) -> World:
        assert self.watch is not None
        self.watch.board.now = lambda: self.now
        world = self.observer.observe(self.now)
        self.watch.seen(world, self.term)
        return replace(world, waiting=self.watch.waiting())

    def shares(self, world: World) -> dict[str, float]:
        return {sink: hold.share for sink, hold in held_back(world, world.flows["collect"]).sinks.items()}


@pytest.fixture
def sites(bench: Bench, tmp_path: Path) -> Iterator[Sites]:
    sites = Sites(bench, Bench(tmp_path / "there", bench.stack))
    yield sites
    sites.clients.forget("berlin")


def test_a_flow_there_holds_back_one_here_that_feeds_it(sites: Sites) -> None:
    world = sites.look()
    assert list(world.remote) == ["berlin/store"], "flows that meet none here are left out"
    assert sites.shares(world) == {}, "backlog not reported"
    sites.board.measure("store", {"in": Backlog(rows=40)}, time.time() - 1)
    assert sites.shares(sites.look()) == {}
    sites.board.measure("store", {"in": Backlog(rows=500)}, time.time())
    sites.now += 3
    world = sites.look()
    assert sites.shares(world) == {"out": 0.0}
    assert "500 rows wait at berlin/store.in, which reads out" in held_text(world, held_back(world, world.flows["collect"]))
    stands(sites.there, "store", "failed", "disk full")
    world = sites.look()
    assert held_text(world, held_back(world, world.flows["collect"])).endswith(f"berlin/store is failed since {SINCE}: disk full")


def test_where_the_peer_is_silent_its_last_word_stays_and_what_is_written_since_is_added(sites: Sites) -> None:
    sites.board.measure("store", {"in": Backlog(rows=90)}, time.time())
    assert sites.shares(sites.look()) == {}
    assert sites.watch is not None
    url, sites.master.url = sites.master.url, "http://127.0.0.1:9"
    silent = replace_masters(sites.peer, sites.master.url)
    sites.peer = silent
    for _ in range(2):
        sites.now += 10
        world = sites.look()
        assert "no master answers" in sites.why
    assert world.waiting["berlin/store", "in"].rows == 90
    with sites.watch.board.reading:
        sites.watch.board._backlogs.wrote("collect", "out", 300, 3_000)
    world = sites.see()
    assert world.waiting["berlin/store", "in"].rows == 390
    assert sites.shares(world) == {"out": 0.0}
    told = held_text(world, held_back(world, world.flows["collect"]))
    assert "peer berlin has not answered since 1970-01-12T13:46:50+00:00: no master answers" in told
    sites.now += 10
    sites.look()
    sites.watch = sites.here.master().plane.watch  # another leads, and has not seen who wrote what
    world = sites.see()
    assert world.waiting["berlin/store", "in"].rows == 390
    assert sites.shares(world) == {"out": 0.0}
    sites.peer = replace_masters(silent, url)
    sites.board.measure("store", {"in": Backlog(rows=0)}, time.time() + 1)
    sites.now += 10
    world = sites.look()
    assert (sites.why, sites.shares(world)) == ("", {})
    assert world.peer_states["berlin"].silent_since == ""


def replace_masters(there: Peer, url: str) -> Peer:
    return Peer(masters=(url,), aliases=there.aliases)


def test_what_the_peer_does_not_know_any_more_is_as_it_was(sites: Sites) -> None:
    sites.board.measure("store", {"in": Backlog(rows=500)}, time.time())
    assert sites.shares(sites.look()) == {"out": 0.0}
    sites.board.retain(())  # another master leads there, and has been told nothing yet
    sites.now += 3
    assert sites.shares(sites.look()) == {"out": 0.0}


def test_a_flow_that_is_deleted_there_or_a_peer_that_is_removed_holds_nobody_back(sites: Sites) -> None:
    sites.board.measure("store", {"in": Backlog(rows=500)}, time.time())
    assert sites.shares(sites.look()) == {"out": 0.0}
    client = sites.here.client(sites.here.masters[-1])
    wanted = sites.there.person.read(DESIRED("store").path)
    assert wanted is not None
    sites.there.person.commit(Delete(wanted.path, wanted.version))
    sites.now += 20
    world = sites.look()
    assert (dict(world.remote), sites.shares(world)) == ({}, {})
    submitted(sites.there, "store", Outside(reads={"in": (topic(THERE, "wan"),)}, waters={"in": LEVELS}))
    sites.board.measure("store", {"in": Backlog(rows=500)}, time.time())
    sites.now += 20
    assert sites.shares(sites.look()) == {"out": 0.0}
    client.remove_peer("berlin")
    assert sites.here.person.children("peers/berlin/flows") == ()
    world = sites.see()
    assert (dict(world.peers), dict(world.remote), sites.shares(world)) == ({}, {}, {})
    with pytest.raises(Refused) as error:
        client.remove_peer("berlin")
    assert (error.value.code, error.value.remedy) == ("peer-unknown", "there are: none")


def test_acknowledgements_come_back_by_the_clock_here(sites: Sites) -> None:
    at = time.time()
    sites.now = at + 500  # the clock here is ahead
    sites.here.person.commit(
        put(sites.here.person, ACK("collect", "main"), Ack(queries={"q": QueryAck(lineage="l", through={"in": ((at, at + 500),)})}))
    )
    view = sites.here.client(sites.here.masters[-1])
    assert view.flow("collect").workflow is None, "nobody has asked yet"
    sites.look()
    part = view.flow("collect").workflow
    assert part is not None
    assert (part.flows, part.through["in"].unknown) == (("collect", "berlin/store"), "berlin/store.in")
    for told, known in ((at, False), (at + 10, True)):
        sites.there.person.commit(
            put(
                sites.there.person,
                ACK("store", "main"),
                Ack(queries={"q": QueryAck(lineage="l", through={"in": ((told, told),)})}),
            )
        )
        sites.look()
        part = view.flow("collect").workflow
        assert part is not None
        assert bool(part.through["in"].at) is known


def test_the_graph_shows_both_sites_and_the_lists_say_whether_a_peer_answers(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    master = sites.here.masters[-1]
    sites.board.measure("store", {"in": Backlog(rows=40)}, time.time())
    sites.look()
    shown = CliRunner().invoke(graph, ["collect", "--master", master.url])
    assert "out -> berlin/store.in, at topic wan: 40 rows wait" in shown.output
    assert f"berlin/store is running since {SINCE}" in shown.output
    (row,) = sites.here.client(master).flows()
    assert (row.fed_by, row.feeds) == ((), ("berlin/store",))
    listed = CliRunner().invoke(peer, ["list", "--master", master.url])
    assert f"peer berlin: {sites.master.url}; answered at 1970-01-12T13:46:40Z" in listed.output
    assert "collect.out -> berlin/store.in (topic wan)" in listed.output
    (row,) = sites.here.client(master).peers()
    assert (row.peer, row.aliases, [each.flow for each in row.flows]) == ("berlin", {THERE: HERE}, ["berlin/store"])
    made = CliRunner().invoke(peer, ["set", "paris", "paris.example:8443", "--alias", "a:1=b:2", "--master", master.url])
    assert "peer paris: http://paris.example:8443" in made.output, made.output
    for arguments, code in (
        (["set", "Paris", "x:1"], "peer-name"),
        (["set", "paris", "http://x/y"], "master-address"),
        (["set", "paris", "x:1", "--alias", "a"], "peer-alias"),
    ):
        refused = CliRunner().invoke(peer, [*arguments, "--master", master.url])
        assert getattr(refused.exception, "code", None) == code or f"[{code}]" in refused.output
    sites.here.store.write_raw("peers/paris/api", b'{"masters": 1}')
    listed = CliRunner().invoke(peer, ["list", "--master", master.url])
    assert "peer paris: its record does not fit" in listed.output
    sites.see()
    assert "masters" in sites.observer.problems["peers/paris/api"]


def test_a_token_of_a_peer_is_sent_and_one_that_others_may_read_is_refused(sites: Sites) -> None:
    folder = sites.here.folder / "peers"
    folder.mkdir()
    token = folder / "berlin.token"
    token.write_text("s3cret")
    token.chmod(0o644)
    sites.look()
    assert f"{token} holds a secret, and other users of this machine can read it" in sites.why
    token.chmod(0o600)
    sites.look()
    assert "s3cret" not in sites.why
    assert sites.why == "it answered: this token is not valid here"


def test_a_master_that_leads_no_more_notes_nothing(sites: Sites) -> None:
    later = Election(sites.here.store.client(), {"id": "n"})
    sites.here.store.expire(sites.here.person)
    assert later.acquire(wait_s=10)
    with pytest.raises(FencedError):
        sites.asking.ask(sites.peer, sites.term)
    assert later.term is not None


def test_who_may_see_some_flows_is_told_of_these(sites: Sites) -> None:
    ends = sites.there.client(sites.master).ends()
    assert [each.flow for each in ends.flows] == ["other", "store"]
    assert ends.flows[1].sources["in"].waits is None
    assert sites.there.client(sites.master).set_peer("x", SetPeer(("h:1",))).masters == ("http://h:1",)
    eve = sites.there.tokens.add("eve", "viewer", {"team": "none"})
    guarded = sites.there.master(listen=Listen(asks=True))
    for flows in ((), ("store",)):
        assert sites.there.client(guarded, token=eve).ends(flows).flows == ()


def test_a_trail_names_where_it_goes_on_at_the_peer(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    sites.look()
    master = sites.here.masters[-1]
    found: dict[str, Any] = {"flow": "collect", "record": "in/x+1", "trace": 0.0, "arrivals": [], "dead": [], "read": [], "notes": []}
    found |= {"went": [{"sink": "out", "place": "wan-0@5"}], "came": [{"source": "in", "flow": "elsewhere", "record": "y+1"}]}
    monkeypatch.setattr(master.plane.planner, "ask", lambda *_: found)
    shown = CliRunner().invoke(trace, ["collect", "in/x+1", "--master", master.url])
    assert "→ sink out, wan-0@5; flow berlin/store reads it as in/wan-0@5" in shown.output
    assert "it continues at peer berlin; ask its masters: scribengin trace store in/wan-0@5" in shown.output
    assert 'y+1 of flow elsewhere cannot be read: there is no flow "elsewhere"' in shown.output
    assert "for flows of a peer see: scribengin peer list" in shown.output
