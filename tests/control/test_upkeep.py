"""Which host keeps a sink's folder: one a folder, another where that one is gone, nobody where nobody writes there."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.control import flow_requests
from scribengin.control.upkeep import FORGOTTEN_S, ROUNDS, MaintainedFolder, place
from scribengin.control.world import WorkerNode
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.lease import RegistryLease
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import MaintenanceOwner, MaintenanceReport, TierSpec, id_of_folder
from scribengin.registry.tree import KEEPING, UPKEEP_LEASE, UPKEEP_LEASE_TERM, UPKEPT
from tests.control.hands import Plane

if TYPE_CHECKING:
    from scribengin.registry.contract import CommittedWrite, Term, Write

UP = WorkerNode()
EMPTIED = WorkerNode(decommissioned=True)


def folder(*nodes: str, path: str = "/out", writers: tuple[str, ...] = ("a.main",)) -> MaintainedFolder:
    return MaintainedFolder(path, writers, frozenset(nodes))


def test_a_folder_is_kept_where_its_writers_are_by_who_keeps_the_fewest() -> None:
    wanted = {name: folder("h1", "h2", path=f"/{name}") for name in "abcd"}
    found = place(wanted, {}, {"h1": UP, "h2": UP, "h3": UP})
    assert sorted(each.node for each in found.values()) == ["h1", "h1", "h2", "h2"]
    assert {each.number for each in found.values()} == {1}


@pytest.mark.parametrize(
    ("nodes", "near", "then"),
    [
        ({"h1": UP, "h2": UP}, ("h1",), None),
        ({"h1": UP, "h2": UP}, (), None),  # nobody writes now: it stays
        ({"h2": UP}, ("h1",), "h2"),  # lost
        ({"h1": EMPTIED, "h2": UP}, ("h1",), "h2"),
        ({"h1": UP, "h2": UP}, ("h2",), "h2"),  # who writes has gone elsewhere
        ({}, ("h1",), None),  # nobody is there
        ({"h1": EMPTIED}, ("h1",), None),
    ],
)
def test_it_stays_where_it_is_until_that_host_cannot_or_should_not(
    nodes: dict[str, WorkerNode], near: tuple[str, ...], then: str | None
) -> None:
    kept = MaintenanceOwner(path="/out", node="h1", number=3, writers=("a.main",))
    found = place({"x": folder(*near)}, {"x": kept}, nodes)
    assert found == ({} if then is None else {"x": MaintenanceOwner(path="/out", node=then, number=4, writers=("a.main",))})


_NODES = st.dictionaries(st.sampled_from(["h1", "h2", "h3"]), st.sampled_from([UP, EMPTIED]))
_WANTED = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(lambda nodes: folder(*nodes), st.frozensets(st.sampled_from(["h1", "h2", "h3", "h4"])))
)


@given(_WANTED, _NODES, _NODES)
def test_what_is_placed_once_needs_no_further_word_and_each_folder_has_one_keeper(
    wanted: dict[str, MaintainedFolder], first: dict[str, WorkerNode], then: dict[str, WorkerNode]
) -> None:
    kept = place(wanted, {}, first)
    able = {name for name, node in first.items() if not node.decommissioned}
    assert kept.keys() == (wanted.keys() if able else set())
    assert {each.node for each in kept.values()} <= able
    moved = place(wanted, kept, then)
    now = {**kept, **moved}
    assert place(wanted, now, then) == {}
    assert all(now[id_].number > kept[id_].number for id_ in moved.keys() & kept.keys() if moved[id_].node != kept[id_].node)


def keeping(plane: Plane, path: str) -> MaintenanceOwner | None:
    plane.person.sync()
    found = read_record(plane.person, KEEPING(id_of_folder(path)))
    return found.record if isinstance(found, Stored) and found.record.node else None


def version_of(plane: Plane, path: str) -> int:
    there = plane.person.read(path)
    assert isinstance(there, RegistryEntry)
    return there.version


def applied(plane: Plane, flow: str, **folders: tuple[str, ...]) -> None:
    specs = {tier: TierSpec(folders=paths) for tier, paths in folders.items()}
    submission = flow_requests.Submission(flow, "0", "flow.yaml", "/base", specs)
    flow_requests.apply(plane.person, submission, state=lambda _: "/state", by="me")


def deleted(plane: Plane, *flows: str) -> None:
    for flow in flows:
        plane.want(flow, "stopped")
        for _ in range(6):
            plane.look()
        flow_requests.delete(plane.person, flow)
        plane.look()


def test_the_leader_places_one_keeper_for_all_who_write_there_and_takes_it_away_with_the_last() -> None:
    store, clock = MemoryStore(), [1_000_000.0]
    plane = Plane(store.client, clock=lambda: clock[0])
    applied(plane, "one", edge=("/out", "/channel"), core=("/out",))
    applied(plane, "two", main=("/out/.",))
    for _ in range(4):
        plane.look()
    shared = keeping(plane, "/out")
    assert shared is not None
    assert (shared.number, shared.writers) == (1, ("one.core", "one.edge", "two.main"))
    assert keeping(plane, "/channel").writers == ("one.edge",)  # type: ignore[union-attr]
    id_ = id_of_folder("/out")
    with RegistryLease(plane.hands, UPKEEP_LEASE(id_).path, {"id": shared.node}) as lease:
        assert lease.acquire()
        plane.hands.commit(put(plane.hands, UPKEPT(id_), MaintenanceReport(node=shared.node, folded=1000)), term=lease.term)
    for flow in ("one", "two"):
        deleted(plane, flow)
        assert (keeping(plane, "/out") is not None) == (flow == "one")
    plane.person.sync()
    assert plane.person.children(f"upkeep/{id_}") == ("keeper", UPKEEP_LEASE_TERM(id_).path.rpartition("/")[2])
    assert keeping(plane, "/channel") is None
    # who comes again within a day follows those before
    applied(plane, "three", main=("/out",))
    for _ in range(4):
        plane.look()
    back = keeping(plane, "/out")
    assert back is not None
    assert back.number == 2
    with RegistryLease(plane.hands, UPKEEP_LEASE(id_).path, {"id": back.node}) as lease:
        assert lease.acquire()
        assert lease.term.fence == 1
        deleted(plane, "three")
        clock[0] += FORGOTTEN_S - 60
        for _ in range(ROUNDS + 1):
            plane.look()
        assert len(plane.person.children("upkeep")) == 2
        clock[0] += 120
        for _ in range(ROUNDS + 1):
            plane.look()
        plane.person.sync()
        assert plane.person.children("upkeep") == (id_,), "a right that somebody has is left to him"
    for _ in range(ROUNDS + 1):
        plane.look()
    plane.person.sync()
    assert plane.person.children("upkeep") == ()


def test_a_right_of_which_no_word_stands_goes_after_a_day_too() -> None:
    store, clock = MemoryStore(), [1_000_000.0]
    plane = Plane(store.client, clock=lambda: clock[0])
    id_ = id_of_folder("/out")
    with RegistryLease(plane.hands, UPKEEP_LEASE(id_).path, {"id": "h"}) as lease:
        assert lease.acquire()
    plane.look()
    clock[0] += FORGOTTEN_S - 60
    for _ in range(ROUNDS + 1):
        plane.look()
    assert plane.person.children("upkeep") == (id_,)
    clock[0] += 120
    for _ in range(ROUNDS + 1):
        plane.look()
    assert plane.person.children("upkeep") == ()


@pytest.mark.parametrize("newer", [b'{"format": 2, "path": "/out", "node": "gone"}', b'{"format": 2, "node": 5}'])
def test_what_a_newer_program_wrote_is_left_alone_and_hinders_no_other_folder(newer: bytes) -> None:
    store = MemoryStore()
    plane = Plane(store.client)
    store.write_raw("upkeep", b"{}")
    store.write_raw(f"upkeep/{id_of_folder('/out')}", b"{}")
    store.write_raw(KEEPING(id_of_folder("/out")).path, newer)
    applied(plane, "one", main=("/out", "/other"))
    for _ in range(4):
        plane.look()
    assert keeping(plane, "/other") is not None
    assert version_of(plane, KEEPING(id_of_folder("/out")).path) == 0
    assert not plane.master._upkeep._again, "nor is it tried again each second"


def test_where_somebody_was_faster_at_one_folder_the_others_are_placed_and_that_one_after_it() -> None:
    store = MemoryStore()
    plane = Plane(store.client)
    paths = [f"/out{number}" for number in range(5)]
    commit, late = plane.registry.commit, KEEPING(id_of_folder("/out3"))
    commits = []

    def faster(*writes: Write, term: Term | None = None) -> CommittedWrite:
        if late.path in {write.path for write in writes}:
            if not commits:
                plane.person.commit(late.create(MaintenanceOwner(path="/out3", node="gone")))
            commits.append(len(writes))
        return commit(*writes, term=term)

    plane.registry.commit = faster  # type: ignore[method-assign]
    applied(plane, "one", main=tuple(paths))
    while not commits:
        plane.look()
    assert sum(keeping(plane, path) is not None and keeping(plane, path).node != "gone" for path in paths) == 4  # type: ignore[union-attr]
    plane.look()
    assert keeping(plane, "/out3").node != "gone"  # type: ignore[union-attr]
    assert commits[0] == 5


def test_a_damaged_or_removed_word_is_written_anew_and_the_next_master_changes_nothing() -> None:
    store = MemoryStore()
    plane = Plane(store.client)
    applied(plane, "one", main=("/out",))
    for _ in range(3):
        plane.look()
    before = keeping(plane, "/out")
    path = KEEPING(id_of_folder("/out")).path
    version = version_of(plane, path)
    after = store.client()
    store.expire(plane.registry)  # type: ignore[arg-type]
    plane.registry, plane.master = after, plane.another(after)
    for _ in range(ROUNDS + 2):
        plane.look()
    assert keeping(plane, "/out") == before
    assert version_of(plane, path) == version, "nothing was written"
    store.write_raw(path, b"{oops")
    for _ in range(ROUNDS + 2):
        plane.look()
    assert (again := keeping(plane, "/out")) is not None
    assert before is not None
    assert (again.node, again.writers) == (before.node, before.writers)


def test_news_that_came_while_the_registry_did_not_answer_is_not_lost() -> None:
    plane = Plane(MemoryStore().client)
    children, asked = plane.registry.children, list[str]()

    def away(path: str) -> tuple[str, ...]:
        if path == "upkeep" and len(asked) < 2:
            asked.append(path)
            raise Unreachable("away")
        return children(path)

    applied(plane, "one", main=("/out",))
    plane.registry.children = away  # type: ignore[method-assign]
    for _ in range(4):
        with suppress(Unreachable):
            plane.look()
        plane.obey()
    plane.look()
    plane.look()
    assert len(asked) == 2
    assert keeping(plane, "/out") is not None
