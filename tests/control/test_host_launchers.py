"""A master that reads a host's report only where something has changed sees what one sees that reads it for the first time."""

from __future__ import annotations

import random

import pytest

from scribengin.control.host_launchers import HostLauncher
from scribengin.control.registry_cache import Mirror
from scribengin.core.errors import Unreachable
from scribengin.registry.contract import Delete, Term
from scribengin.registry.memory import MemoryRegistry, MemoryStore
from scribengin.registry.record_io import put
from scribengin.registry.records import HolderRecord, WorkerOrder, WorkerSeen
from scribengin.registry.tree import HOST_UP, WORKER_ORDER, WORKER_SEEN

WORKERS = [f"flow.main-{number}" for number in (1, 2, 3)]


def launcher_of(registry: MemoryRegistry) -> tuple[Mirror, HostLauncher]:
    mirror = Mirror(registry)
    return mirror, HostLauncher("h1", registry, mirror, lambda: Term("leader", 1, 1))


def change(registry: MemoryRegistry, chance: random.Random) -> None:
    worker = chance.choice(WORKERS)
    spot = chance.choice([WORKER_ORDER, WORKER_SEEN])("h1", worker)
    if chance.random() < 0.4:
        if registry.read(spot.path) is not None:
            registry.commit(Delete(spot.path))
    elif spot.kind is WorkerOrder:
        registry.commit(put(registry, spot, WorkerOrder(ask=chance.choice(["run", "kill"]))))
    else:
        registry.commit(put(registry, spot, WorkerSeen(state=chance.choice(["running", "exited"]))))


def test_a_report_that_is_read_again_is_as_new_and_one_that_has_not_changed_is_the_same() -> None:
    store, chance = MemoryStore(), random.Random(1)
    person, registry = store.client(), store.client()
    person.commit(HOST_UP("h1").create(HolderRecord(), ephemeral=True))
    mirror, launcher = launcher_of(registry)
    for _ in range(300):
        if chance.random() < 0.05:
            registry.cut()
            change(person, chance)
            registry.mend()
        change(person, chance)
        mirror.refresh()
        seen = launcher.observe()
        assert seen == launcher_of(store.client())[1].observe()
        mirror.refresh()
        assert launcher.observe() is seen


def test_a_report_is_not_seen_while_the_node_process_is_away() -> None:
    store = MemoryStore()
    person, registry = store.client(), store.client()
    person.commit(HOST_UP("h1").create(HolderRecord(), ephemeral=True), WORKER_ORDER("h1", WORKERS[0]).create(WorkerOrder(ask="run")))
    mirror, launcher = launcher_of(registry)
    assert [each.worker for each in launcher.observe()] == WORKERS[:1]
    person.commit(Delete(HOST_UP("h1").path))
    mirror.refresh()
    with pytest.raises(Unreachable):
        launcher.observe()
