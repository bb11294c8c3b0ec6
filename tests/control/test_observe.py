"""A master that looks again only where something has changed sees what one sees that looks at everything for the first time."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.memory_launcher import MemoryLauncher
from scribengin.control.registry_cache import Mirror
from scribengin.control.snapshot import Observer
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Create, Delete
from scribengin.registry.memory import MemoryRegistry, MemoryStore
from scribengin.registry.record_io import Spot, put
from scribengin.registry.records import (
    Desired,
    FlowFile,
    Host,
    Hosted,
    Mapped,
    Report,
    Run,
    Spec,
    StatusRecord,
    TakenFile,
    TierSpec,
    TierWish,
    Workers,
)
from scribengin.registry.tree import DESIRED, FILE, HOST, HOSTED, LEASE, MAPPED, REPORT, RUN, SPEC, STATUS, TAKEN, WANTED, WORKERS

FLOWS, TIERS, HOSTS = ("a", "b", "c"), ("edge", "core"), ("h1", "h2")
SPECS = {
    1: {"edge": TierSpec(), "core": TierSpec(feeders=("edge",))},
    2: {"core": TierSpec()},
}

_flow, _tier, _number = st.sampled_from(FLOWS), st.sampled_from((*TIERS, "core~2")), st.integers(1, 3)
RECORDS: st.SearchStrategy[tuple[Spot[Any], Any]] = st.one_of(
    st.tuples(st.builds(DESIRED, _flow), st.builds(Desired, state=st.sampled_from(["running", "stopped"]), version=_number)),
    st.tuples(st.builds(STATUS, _flow), st.builds(StatusRecord, state=st.sampled_from(["running", "failed"]))),
    st.tuples(st.builds(WANTED, _flow, _tier), st.builds(TierWish, version=_number, goal=st.just("running"), generation=_number)),
    st.tuples(st.builds(RUN, _flow, _tier), st.builds(Run, number=_number, node=st.just("h1"), asked_at=st.just(1.0), generation=_number)),
    st.tuples(
        st.builds(REPORT, _flow, _tier), st.builds(Report, run=_number, generation=_number, version=_number, state=st.just("running"))
    ),
    st.tuples(st.builds(FILE, _flow), st.builds(FlowFile, text=st.sampled_from(["one", "two"]))),
    st.tuples(st.builds(TAKEN, _flow), st.builds(TakenFile, revision=st.integers(8, 40), why=st.just("it cannot be"), again=st.booleans())),
    st.tuples(st.builds(HOSTED, st.sampled_from(HOSTS), st.builds("{}.{}-{}".format, _flow, _tier, _number)), st.just(Hosted())),
    st.tuples(st.builds(WORKERS, _flow), st.builds(Workers, tiers=st.fixed_dictionaries({"core": st.sampled_from([1, 2, "each"])}))),
    st.tuples(st.builds(MAPPED, st.sampled_from(HOSTS), st.builds("{}.{}".format, _flow, _tier)), st.just(Mapped())),
)
STEPS = st.one_of(
    st.tuples(st.just("put"), RECORDS),
    st.tuples(st.just("remove"), RECORDS),
    st.tuples(st.just("damage"), RECORDS),
    st.tuples(st.just("take"), st.tuples(_flow, _tier)),
    st.tuples(st.sampled_from(["look", "look", "expire", "cut", "mend", "stranger"]), st.none()),
)


def fresh(store: MemoryStore) -> Any:
    client = store.client()
    mirror = Mirror(client)
    try:
        observer = Observer(mirror, {})
        return observer.observe(1.0), observer.problems
    finally:
        mirror.close()
        client.close()


def begun() -> MemoryStore:
    store = MemoryStore()
    client = store.client()
    for flow in FLOWS[:2]:
        for number, tiers in SPECS.items():
            client.commit(SPEC(flow, str(number)).create(Spec(package="p", path="f", base="/b", state="/s", tiers=tiers)))
        client.commit(DESIRED(flow).create(Desired(state="running", version=1)))
    return store


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_what_is_seen_by_and_by_is_what_is_there(steps: list[tuple[str, Any]]) -> None:
    store = begun()
    writer, watcher = store.client(), store.client()
    observer = Observer(Mirror(watcher), {})
    cut = False
    for step, what in [*steps, ("mend", None), ("look", None)]:
        match step:
            case "look" if cut:
                with suppress(Unreachable):  # one that has nothing to ask sees no cut
                    observer.observe(1.0)
            case "look":
                world = observer.observe(1.0)
                # how it was before its records said nothing, one that looks for the first time cannot know
                held = {name: replace(each, last=None) for name, each in world.held.items()}
                assert (replace(world, held=held), observer.problems) == fresh(store)
            case "put":
                writer.commit(put(writer, what[0], what[1]))
            case "remove" if writer.read(what[0].path) is not None and not writer.children(what[0].path):
                writer.commit(Delete(what[0].path))
            case "damage" if writer.read(what[0].path) is not None:
                store.write_raw(what[0].path, b'{"no')
            case "take" if writer.read(LEASE(*what).path) is None:
                writer.commit(Create(LEASE(*what).path, {"run": 1}, ephemeral=True))
            case "expire" if not cut:
                store.expire(watcher)
            case "cut":
                watcher.cut()
                cut = True
            case "mend":
                watcher.mend()
                cut = False
            case "stranger" if writer.read("flows/a/note") is None:
                writer.commit(Create("flows/a/note", {"unknown": 1}), Create("flows/READ ME", {}), Create("flows/a/wanted/No!", {}))


def test_nothing_is_asked_again_but_what_has_changed() -> None:
    store = begun()
    writer, watcher = store.client(), Asked(store.client())
    observer = Observer(Mirror(watcher), {})  # type: ignore[arg-type]
    first = observer.observe(1.0)
    watcher.asked.clear()
    again = observer.observe(2.0)
    assert watcher.asked == []
    assert all(again.flows[name] is flow for name, flow in first.flows.items())
    writer.commit(put(writer, STATUS("b"), StatusRecord(state="running")), Create("acks/b/core", {}))
    third = observer.observe(3.0)
    assert set(watcher.asked) == {STATUS("b").path}
    assert third.flows["a"] is first.flows["a"]
    assert third.flows["b"] is not first.flows["b"]


def test_what_nobody_reads_wakes_nobody() -> None:
    store = begun()
    writer, mirror = store.client(), Mirror(store.client())
    observer = Observer(mirror, {})
    observer.observe(1.0)
    writer.commit(Create("flows/a/tiers/core/tasks/0", {"position": {"t": 1}}))
    assert not mirror.changed.is_set()
    writer.commit(put(writer, DESIRED("a"), Desired(state="stopped", version=1)))
    assert mirror.changed.is_set()


def test_a_look_that_was_broken_off_is_made_up_for() -> None:
    store = begun()
    writer, watcher = store.client(), store.client()
    observer = Observer(Mirror(watcher), {})
    observer.observe(1.0)
    writer.commit(put(writer, DESIRED("a"), Desired(state="stopped", version=2)))
    watcher.cut()
    with pytest.raises(Unreachable):
        observer.observe(2.0)
    watcher.mend()
    assert observer.observe(3.0).flows["a"].wish.goal == "stopped"


def test_what_the_workers_of_a_flow_have_taken_is_known_while_its_records_say_nothing() -> None:
    store = begun()
    writer = store.client()
    writer.commit(put(writer, HOST("h1"), Host(host="h1", cores=4)))
    writer.commit(put(writer, RUN("a", "edge"), Run(number=1, node="h1", asked_at=1.0, generation=1)))
    observer = Observer(Mirror(store.client()), {"h1": MemoryLauncher(lambda: 1.0)})
    before = observer.observe(1.0)
    assert before.nodes["h1"].free_cores == 3
    store.write_raw(SPEC("a", "1").path, b"{")
    for now_s in (2.0, 3.0):
        world = observer.observe(now_s)
        assert world.held["a"].last == before.flows["a"]
        assert world.nodes["h1"].free_cores == 3
        writer.commit(put(writer, STATUS("a"), StatusRecord(state="degraded")))


def test_a_tier_s_group_of_hosts_is_seen_and_which_machine_a_node_is_on() -> None:
    store = begun()
    writer = store.client()
    writer.commit(put(writer, HOST("h1"), Host(host="pc7")))
    tiers = {"edge": TierSpec(group="pcs", hosts={"pc7": 2.0})}
    writer.commit(SPEC("a", "3").create(Spec(package="p", path="f", base="/b", state="/s", tiers=tiers)))
    writer.commit(put(writer, DESIRED("a"), Desired(state="running", version=3)))
    world = Observer(Mirror(store.client()), {"h1": MemoryLauncher(lambda: 1.0)}).observe(1.0)
    tier = world.flows["a"].tiers["edge"]
    assert (tier.group, tier.hosts, world.nodes["h1"].host) == ("pcs", {"pc7": 2.0}, "pc7")


class Asked:
    """A client, and which paths it was asked for."""

    def __init__(self, client: MemoryRegistry) -> None:
        self._client = client
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in ("read", "children", "read_many", "children_many"):
            return found

        def asking(what: Any) -> Any:
            self.asked += [what] if isinstance(what, str) else what
            return found(what)

        return asking


def test_a_look_at_many_flows_takes_few_requests() -> None:
    store = MemoryStore()
    client = store.client()
    for number in range(30):
        flow = f"f{number}"
        client.commit(
            SPEC(flow, "1").create(Spec(package="p", path="f", base="/b", state="/s", tiers=SPECS[1])),
            DESIRED(flow).create(Desired(state="running", version=1)),
        )
    watcher = Asked(store.client())
    single = []
    watcher.read = lambda path: single.append(path) or watcher._client.read(path)  # type: ignore[attr-defined,func-returns-value]
    world = Observer(Mirror(watcher), {}).observe(time.time())  # type: ignore[arg-type]
    assert len(world.flows) == 30
    assert single == []
    assert msgspec.json.encode(sorted(world.flows)).count(b"f") == 30
