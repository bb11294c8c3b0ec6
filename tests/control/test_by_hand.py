"""What people write into the tree by hand: taken up where it can be, refused beside it where not; what is damaged is never fatal."""

from __future__ import annotations

import pytest

from scribengin.control import flow_records, flow_requests
from scribengin.control.node_bindings import node_as_json
from scribengin.control.record_validation import MOST, read_wish, shown_refusals
from scribengin.control.registry_cache import Mirror
from scribengin.core.errors import StateError
from scribengin.registry.contract import Create, Damaged, Delete, RegistryEntry, Replace
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Desired, GroupName, Host, Mapped, TierSpec
from scribengin.registry.tree import (
    ATTEMPTS,
    CHANGES,
    DESIRED,
    GROUP,
    HOST,
    HOSTED,
    LIMIT,
    MAPPED,
    NODE_GROUP,
    REPORT,
    RUN,
    SPEC,
    STATUS,
    WANTED,
)
from tests.control.hands import Plane


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def plane(store: MemoryStore) -> Plane:
    plane = Plane(store.client)
    plane.apply("tweets", edge=(), core=("edge",))
    plane.apply("other", main=())
    plane.comes_to("tweets", "running")
    plane.comes_to("other", "running")
    plane.rests()
    return plane


BAD = {
    b'{"state": "paus': "is not valid JSON",
    b"paused": "is not valid JSON",
    b"[]": "is not a JSON object",
    b'{"state": "flying", "version": 1}': "flying",
    b'{"state": "paused"}': "version",
    b'{"state": "paused", "version": 7}': "names version 7, which does not exist; there are 1",
    b'{"state": "paused", "version": 0}': "names version 0; versions count from 1",
    b'{"state": "paused", "version": -3}': "names version -3",
    b'{"format": 9, "wish": "paused"}': "newer Scribengin",
    b"": "is empty",
    b"{}": "is empty",
}


@pytest.mark.parametrize("raw", BAD, ids=lambda raw: raw.decode() or "nothing")
def test_a_wish_that_cannot_be_is_refused_beside_it_and_the_last_one_goes_on(store: MemoryStore, plane: Plane, raw: bytes) -> None:
    path = DESIRED("tweets").path
    before = plane.workers()
    store.write_raw(path, raw)
    refused = plane.comes_to("tweets", "running", lambda status: bool(status.refused)).refused
    there = plane.person.read(path)
    assert list(refused) == [path]
    assert BAD[raw] in refused[path]["why"]
    assert refused[path]["version"] == (there.version if there is not None else None)
    assert "scribengin" in refused[path]["remedy"] or "newer" in refused[path]["remedy"]
    assert path in plane.master.problems
    # a worker that is lost meanwhile is started again, as it was wanted last; the next master knows what that was
    plane.lose("tweets", "core")
    plane.registry.close()
    plane.registry = store.client()
    plane.master = plane.another(plane.registry)
    plane.comes_to("tweets", "running", lambda _: "tweets.core-2" in plane.workers())
    assert plane.workers() == sorted([*before, "tweets.core-2"])
    # people see it, also with no master alive
    row = flow_records.read_flow(plane.person, "tweets")
    assert (row.desired.state, row.desired.version) == ("running", 1)
    assert flow_records.describe(plane.person, "tweets")["status"]["refused"] == refused
    assert [each.flow for each in flow_records.read_flows(plane.person)] == ["other", "tweets"]
    # the others are managed as ever
    plane.want("other", "stopped")
    plane.comes_to("other", "stopped")
    # mended, it is taken up and told no more
    store.write_raw(path, b'{"state": "paused", "version": 1, "note": "by hand"}')
    assert plane.comes_to("tweets", "paused").refused == {}
    assert path not in plane.master.problems


def test_a_verb_writes_over_a_wish_that_was_refused(store: MemoryStore, plane: Plane) -> None:
    store.write_raw(DESIRED("tweets").path, b"oops")
    plane.comes_to("tweets", "running", lambda status: bool(status.refused))
    plane.want("tweets", "stopped")
    assert flow_records.read_flow(plane.person, "tweets").desired.state == "stopped", "what was written is read at once"
    assert plane.comes_to("tweets", "stopped").refused == {}


def test_a_wish_by_hand_is_taken_up_like_a_verb_and_its_keys_and_neighbours_stay(store: MemoryStore, plane: Plane) -> None:
    plane.person.commit(
        Create("flows/tweets/note", {"text": "mine"}), Create("flows/tweets/wanted/NOT A TIER", {}), Create("flows/README", {})
    )
    store.write_raw(DESIRED("tweets").path, b'{"state": "paused", "version": 1, "why": "by hand"}')
    plane.comes_to("tweets", "paused")
    plane.want("tweets", "running")
    plane.comes_to("tweets", "running")
    there = plane.person.read(DESIRED("tweets").path)
    assert isinstance(there, RegistryEntry)
    assert there.value["why"] == "by hand"
    assert {"note", "wanted"} < {*plane.person.children("flows/tweets")}
    assert "NOT A TIER" in plane.person.children("flows/tweets/wanted")
    assert "README" in plane.person.children("flows")


def test_a_flow_whose_wish_was_removed_by_hand_goes_on(store: MemoryStore, plane: Plane) -> None:
    plane.person.commit(Delete(DESIRED("tweets").path))
    refused = plane.comes_to("tweets", "running", lambda status: bool(status.refused)).refused
    assert refused[DESIRED("tweets").path]["why"] == "was removed, but the flow was not deleted"
    assert len(plane.workers()) == 3
    plane.want("tweets", "stopped")
    assert plane.comes_to("tweets", "stopped").refused == {}


def test_a_flow_whose_version_is_damaged_is_left_as_it_is_and_says_so(store: MemoryStore, plane: Plane) -> None:
    before = plane.workers()
    spec = plane.person.read(SPEC("tweets", "1").path)
    assert isinstance(spec, RegistryEntry)
    store.write_raw(SPEC("tweets", "1").path, b"oops")
    status = plane.comes_to("tweets", "degraded")
    assert status.reason.startswith("the flow is left unchanged: flows/tweets/desired names version 1, whose record is not valid JSON")
    assert "apply the flow again" in status.next
    plane.lose("tweets", "core")
    plane.rests()
    assert plane.workers() == before
    there = plane.person.read(SPEC("tweets", "1").path)
    assert isinstance(there, Damaged), "nobody can make it anew: it stays where it is"
    plane.person.commit(Replace(there, spec.value))
    plane.comes_to("tweets", "running", lambda _: "tweets.core-2" in plane.workers())


def test_where_another_version_is_damaged_the_last_one_goes_on(store: MemoryStore, plane: Plane) -> None:
    store.write_raw(SPEC("tweets", "2").path, b"oops")
    store.write_raw(DESIRED("tweets").path, b'{"state": "running", "version": 2}')
    refused = plane.comes_to("tweets", "running", lambda status: bool(status.refused)).refused
    assert "version 2, whose record is not valid JSON" in refused[DESIRED("tweets").path]["why"]


def test_a_flow_that_nobody_has_taken_up_yet_and_whose_wish_is_damaged_waits(store: MemoryStore, plane: Plane) -> None:
    plane.person.commit(Create("flows/fresh", {}))
    store.write_raw(DESIRED("fresh").path, b"oops")
    status = plane.comes_to("fresh", "degraded")
    assert "is not valid JSON" in status.reason
    with pytest.raises(StateError, match="is not valid JSON"):
        flow_records.read_flow(plane.person, "fresh")
    assert flow_records.describe(plane.person, "tweets")["status"]["state"] == "running"


RECORDS = {
    "run": RUN("tweets", "core"),
    "wanted": WANTED("tweets", "core"),
    "report": REPORT("tweets", "core"),
    "status": STATUS("tweets"),
}


@pytest.mark.parametrize("raw", [b'{"no', b'{"state":5,"goal":5,"number":"x","run":"x"}'], ids=["no json", "does not fit"])
@pytest.mark.parametrize("record", RECORDS)
def test_a_damaged_record_of_a_master_is_set_aside_and_made_anew(store: MemoryStore, plane: Plane, record: str, raw: bytes) -> None:
    spot, before = RECORDS[record], plane.workers()
    was = plane.person.read(spot.path)
    assert isinstance(was, RegistryEntry)
    store.write_raw(spot.path, raw)
    plane.comes_to("tweets", "running", lambda _: isinstance(plane.person.read(spot.path), RegistryEntry))
    plane.rests()
    again = plane.person.read(spot.path)
    assert isinstance(again, RegistryEntry)
    if record != "run":
        assert {**again.value, "since": ""} == {**was.value, "since": ""}
    else:
        assert (again.value["number"], again.value["node"], again.value["leased"]) == (1, was.value["node"], True)
    assert plane.workers() == before, "no worker is touched"
    aside = flow_records.describe(plane.person, "tweets")["set_aside"]
    assert [each["path"] for each in aside] == [spot.path]
    kept = plane.person.read(aside[0]["kept"])
    assert isinstance(kept, RegistryEntry)
    assert kept.value["text"] == raw.decode()
    plane.want("tweets", "stopped")
    plane.comes_to("tweets", "stopped")


def test_all_records_of_a_master_that_are_damaged_at_once_are_made_anew(store: MemoryStore, plane: Plane) -> None:
    before = plane.workers()
    for flow, tiers in (("tweets", ("edge", "core")), ("other", ("main",))):
        store.write_raw(STATUS(flow).path, b"oops")
        for tier in tiers:
            for branch in (RUN, WANTED, REPORT):
                store.write_raw(branch(flow, tier).path, b"oops")
    plane.comes_to("tweets", "running", lambda _: isinstance(plane.person.read(RUN("tweets", "edge").path), RegistryEntry))
    plane.comes_to("other", "running")
    plane.rests()
    assert plane.workers() == before
    assert plane.master.problems == {}


def test_a_run_that_was_removed_by_hand_never_gives_its_number_out_twice(store: MemoryStore, plane: Plane) -> None:
    plane.lose("tweets", "core", forget=True)
    plane.person.commit(Delete(RUN("tweets", "core").path), Delete(REPORT("tweets", "core").path))
    plane.comes_to("tweets", "running", lambda _: len(plane.workers()) == 4)
    assert "tweets.core-2" in plane.workers()


# --- what is bound to which node


def other_than(node: str) -> str:
    return {"here": "there", "there": "here"}[node]


def test_a_binding_by_hand_moves_a_tier(store: MemoryStore, plane: Plane) -> None:
    before = plane.node("other", "main")
    to = other_than(before)
    for path in ("physicalnodes", f"physicalnodes/{to}", f"physicalnodes/{to}/lns", MAPPED(to, "other.main").path):
        store.write_raw(path, b"")  # as `create PATH ""` does
    plane.comes_to("other", "running", lambda _: plane.node("other", "main") == to)
    assert plane.status("other").refused == {}
    plane.person.commit(Delete(MAPPED(to, "other.main").path), MAPPED(before, "other.main").create(Mapped()))
    plane.comes_to("other", "running", lambda _: plane.node("other", "main") == before)
    assert plane.status("other").refused == {}


def test_a_binding_to_a_node_that_never_was_is_refused_until_it_registers(store: MemoryStore, plane: Plane) -> None:
    spot = MAPPED("ghost", "tweets.core")
    plane.person.commit(spot.create(Mapped(by="hand")))
    refused = plane.comes_to("tweets", "running", lambda status: bool(status.refused)).refused
    assert refused[spot.path]["why"] == "binds to node ghost, which has never registered; known nodes: here, there"
    assert spot.path in plane.master.problems
    plane.rests()
    assert len(plane.workers()) == 3
    plane.person.commit(HOST("ghost").create(Host(host="ghost")))
    plane.comes_to("tweets", "running", lambda status: not status.refused)


def test_what_runs_on_a_node_is_shown_there_and_binds_nothing(store: MemoryStore) -> None:
    plane = Plane(store.client)
    plane.person.commit(*(HOST(host).create(Host(host=host)) for host in ("here", "there")))
    for flow, tiers in (("tweets", {"edge": (), "core": ("edge",)}), ("other", {"main": ()})):
        plane.apply(flow, **tiers)
        plane.comes_to(flow, "running")

    def shown() -> set[str]:
        plane.rests()
        return {f"{host}/{name}" for host in ("here", "there") for name in plane.person.children(f"physicalnodes/{host}/lns")}

    def serving(*workers: str) -> set[str]:
        return {f"{plane.node(*worker.partition('-')[0].split('.'))}/{worker}" for worker in workers}

    assert shown() == serving("tweets.edge-1", "tweets.core-1", "other.main-1")
    assert plane.status("tweets").refused == {}
    node = plane.node("other", "main")
    assert node_as_json(plane.person, node)["mapped"] == []
    # it goes with its worker, and is none of a person's words
    to = other_than(node)
    plane.person.commit(MAPPED(to, "other.main").create(Mapped(by="me")))
    plane.comes_to("other", "running", lambda _: plane.node("other", "main") == to)
    assert shown() == {*serving("tweets.edge-1", "tweets.core-1"), f"{to}/other.main-2", f"{to}/other.main"}
    plane.person.commit(Delete(MAPPED(to, "other.main").path), Delete(HOSTED(to, "other.main-2").path))
    store.write_raw(HOSTED(node, "other.main-7").path, b"oops")
    assert f"{to}/other.main-2" in shown()
    assert f"{node}/other.main-7" not in shown()
    assert plane.node("other", "main") == to
    plane.lose("tweets", "core")
    plane.comes_to("tweets", "running", lambda _: "tweets.core-2" in plane.workers())
    assert shown() == {*serving("tweets.edge-1", "tweets.core-2"), f"{to}/other.main-2"}
    for flow in ("tweets", "other"):
        plane.want(flow, "stopped")
        plane.comes_to(flow, "stopped")
    assert shown() == set()


GROUPS = {"near": {"here": 1.0}, "far": {"there": 1.0}}


def grouped(plane: Plane, group: str, package: str) -> None:
    tiers = {"main": TierSpec(group=group, hosts=GROUPS[group])}
    submission = flow_requests.Submission("grouped", package, "flow.yaml", "/base", tiers, groups=GROUPS)
    flow_requests.apply(plane.person, submission, state=lambda _: "/state", by="me")


def test_the_group_of_a_tier_is_written_and_may_be_changed_by_hand_until_a_version_says_otherwise(plane: Plane) -> None:
    def group() -> str:
        plane.rests()
        found = read_record(plane.person, NODE_GROUP("grouped.main"))
        assert isinstance(found, Stored)
        return found.record.group

    grouped(plane, "near", "0")
    plane.comes_to("grouped", "running")
    assert (group(), plane.node("grouped", "main")) == ("near", "here")
    # as somebody writes it who knows of no other key
    plane.person.commit(put(plane.person, NODE_GROUP("grouped.main"), GroupName(group="far")))
    plane.comes_to("grouped", "running", lambda _: plane.node("grouped", "main") == "there")
    assert group() == "far"
    grouped(plane, "near", "1")  # says what the version before said: the person's word holds
    plane.comes_to("grouped", "running", lambda status: status.version == 2)
    assert (group(), plane.node("grouped", "main")) == ("far", "there")
    grouped(plane, "far", "2")
    plane.comes_to("grouped", "running", lambda status: status.version == 3)
    grouped(plane, "near", "3")
    plane.comes_to("grouped", "running", lambda _: plane.node("grouped", "main") == "here")
    assert group() == "near"


def test_a_group_by_hand_that_the_flow_has_not_is_refused_beside_it(plane: Plane) -> None:
    grouped(plane, "near", "0")
    plane.comes_to("grouped", "running")
    plane.person.commit(put(plane.person, NODE_GROUP("grouped.main"), GroupName(group="south")))
    status = plane.comes_to("grouped", "running", lambda status: bool(status.refused))
    (refused,) = status.refused.values()
    assert refused["why"] == 'names group "south", which is not a group of hosts of flow grouped'
    assert refused["remedy"] == "write one of these, or remove it: far, near"
    assert plane.node("grouped", "main") == "here"


def test_of_two_nodes_that_claim_a_tier_the_first_has_it_and_the_other_is_refused(store: MemoryStore, plane: Plane) -> None:
    first = other_than(plane.node("other", "main"))
    second = other_than(first)
    plane.person.commit(MAPPED(first, "other.main").create(Mapped()))
    plane.comes_to("other", "running", lambda _: plane.node("other", "main") == first)
    plane.person.commit(MAPPED(second, "other.main").create(Mapped()))
    refused = plane.comes_to("other", "running", lambda status: bool(status.refused)).refused
    path = MAPPED(second, "other.main").path
    assert refused[path]["why"] == f"binds other.main to {second}, but it is already bound to {first}"
    assert MAPPED(first, "other.main").path in refused[path]["remedy"]
    plane.rests()
    assert plane.node("other", "main") == first
    plane.person.commit(Delete(MAPPED(first, "other.main").path))
    assert plane.comes_to("other", "running", lambda _: plane.node("other", "main") == second).refused == {}


def test_bindings_that_say_nothing_or_name_no_tier_are_refused_and_others_hold(store: MemoryStore, plane: Plane) -> None:
    plane.person.commit(
        MAPPED("here", "tweets.cor").create(Mapped()),
        Create(MAPPED("here", "tweets.core").path, {"by": 5}),
        Create("physicalnodes/here/lns/no tier", {}),
        MAPPED("here", "unknown.main").create(Mapped()),
    )
    refused = plane.comes_to("tweets", "running", lambda status: bool(status.refused)).refused
    assert refused[MAPPED("here", "tweets.cor").path]["why"] == "binds a tier that flow tweets does not have; it has core, edge"
    assert "$.by" in refused[MAPPED("here", "tweets.core").path]["why"]
    assert len(refused) == 2


def test_of_many_refused_records_a_status_tells_of_some_and_says_how_many_more() -> None:
    refused = {f"physicalnodes/ghost/lns/f.t{number}": {"why": "x", "remedy": "y"} for number in range(500)}
    told = shown_refusals(refused)
    assert len(told) == MOST + 1
    assert told["…"]["why"] == "480 more records are invalid"
    assert shown_refusals({"a": {"why": "x"}}) == {"a": {"why": "x"}}


def test_limits_and_groups_that_say_nothing_are_told(store: MemoryStore, plane: Plane) -> None:
    plane.person.commit(LIMIT("tweets").create(LIMIT("tweets").kind(rows_per_s=5.0)))
    store.write_raw(LIMIT("tweets").path, b'{"rows_per_s": "fast"}')
    plane.person.commit(Create(GROUP("hosts").path, {"members": []}))
    refused = plane.comes_to("tweets", "running", lambda status: bool(status.refused)).refused
    assert "$.rows_per_s" in refused[LIMIT("tweets").path]["why"]
    assert "$.members" in plane.master.problems[GROUP("hosts").path]
    store.write_raw(LIMIT("tweets").path, b'{"rows_per_s": -5, "sources": {"a": {"bytes_per_s": 7, "row_per_s": 1}}}')
    said = "has invalid limits, which are ignored: rows_per_s, sources.a.row_per_s; rows_per_s and bytes_per_s must be above 0"
    plane.comes_to("tweets", "running", lambda status: said in [each["why"] for each in status.refused.values()])
    plane.person.commit(Delete(LIMIT("tweets").path))
    plane.comes_to("tweets", "running", lambda status: not status.refused)


def test_of_flows_that_are_damaged_in_every_way_the_others_know_nothing(store: MemoryStore, plane: Plane) -> None:
    for number, raw in enumerate(BAD):
        flow = f"ill{number}"
        plane.apply(flow, main=())
        plane.comes_to(flow, "running")
        store.write_raw(DESIRED(flow).path, raw)
        store.write_raw(RUN(flow, "main").path, raw)
    plane.rests()
    for goal, state in (("paused", "paused"), ("running", "running"), ("stopped", "stopped")):
        plane.want("tweets", goal)  # type: ignore[arg-type]
        plane.comes_to("tweets", state)
    states = {raw: plane.status(f"ill{number}").state for number, raw in enumerate(BAD)}
    assert {raw: state for raw, state in states.items() if state != "running"} == {b'{"format": 9, "wish": "paused"}': "degraded"}
    plane.person.commit(put(plane.person, DESIRED("ill0"), Desired(state="stopped", version=1)))
    plane.comes_to("ill0", "stopped")


def records(store: MemoryStore, flow: str) -> set[str]:
    return {path for path in store.nodes if f"/{flow}/" in f"{path}/" or f"/{flow}." in path}


def test_of_a_deleted_flow_only_its_numbers_and_what_nobody_knows_are_left(store: MemoryStore, plane: Plane) -> None:
    store.write_raw(RUN("tweets", "core").path, b"oops")
    plane.person.commit(
        Create("flows/tweets/note", {"mine": True}),
        Create("flows/tweets/tiers/core/tasks/0", {}),
        Create("acks/tweets/core", {}),
        Create("logicalnodes/tweets.core/source", {"nodes": ["a"]}),
        LIMIT("tweets").create(LIMIT("tweets").kind(rows_per_s=5.0)),
        MAPPED("here", "tweets.core").create(Mapped()),
    )
    plane.want("tweets", "stopped")
    plane.comes_to("tweets", "stopped")
    flow_requests.delete(plane.person, "tweets")
    kept = {f"flows/tweets{path}" for path in ("", "/note", "/runs", "/tiers")}
    kept |= {f"flows/tweets/{path}" for tier in ("edge", "core") for path in (f"runs/{tier}", f"tiers/{tier}", f"tiers/{tier}/lease.term")}
    assert records(store, "tweets") == kept | {MAPPED("here", "tweets.core").path}
    plane.rests()
    assert flow_records.read_flow(plane.person, "other").status is not None
    plane.apply("tweets", edge=(), core=("edge",))
    plane.comes_to("tweets", "running")
    assert {"tweets.core-2", "tweets.edge-2"} < {*plane.workers()}


def test_a_thousand_starts_of_a_tier_leave_as_many_records_as_one(store: MemoryStore) -> None:
    now = [1_000.0]
    plane = Plane(store.client, clock=lambda: now[0])
    plane.apply("tweets", main=())
    plane.comes_to("tweets", "running")

    def starts(times: int) -> set[str]:
        for _ in range(times):
            plane.lose("tweets", "main")
            number = plane.run("tweets", "main")
            while plane.run("tweets", "main") == number or plane.status("tweets").state != "running":
                now[0] += 61
                plane.look()
        plane.rests()
        return set(store.nodes)

    few = starts(3)
    assert starts(997) == few
    assert plane.run("tweets", "main") == 1_001
    sizes = {path: len(node.data) for path, node in store.nodes.items()}
    assert sizes.pop(CHANGES("tweets").path) < 20_000, "the last changes of its state, and no more"
    assert sizes.pop(ATTEMPTS("tweets").path) < 20_000, "the last processes that served it, and no more"
    assert max(sizes.values()) < 1_000
    assert sum(len(launcher.observe()) for launcher in plane.launchers.values()) == 1, "what has ended is forgotten"


def test_a_flow_that_is_deleted_is_not_taken_for_one_whose_wish_was_removed(store: MemoryStore, plane: Plane) -> None:
    mirror = Mirror(plane.person)
    status = mirror.stored(STATUS("other"))
    assert isinstance(status, Stored)
    assert read_wish(mirror, "other", status.record)[0] is not None
    mirror.close()  # from here on it is told of nothing by itself
    plane.person.commit(Delete(DESIRED("other").path), Delete(STATUS("other").path))
    mirror.forget(DESIRED("other").path)  # of the one, and not yet of the other
    assert read_wish(mirror, "other", status.record) == (None, None, {})
