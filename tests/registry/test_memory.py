"""What the twin can do that a test of real servers cannot: time by hand, a client that is behind."""

from __future__ import annotations

from scribengin.registry.contract import Create, RegistryEntry, Replace, SessionState
from scribengin.registry.lease import RegistryLease
from scribengin.registry.memory import MemoryStore


def test_a_session_ends_when_its_time_is_over_and_not_before() -> None:
    store = MemoryStore(session_s=10)
    client, other = store.client(), store.client()
    client.commit(Create("a", {}, ephemeral=True))
    store.advance(100)
    assert client.session().lives
    client.cut()
    store.advance(9.5)
    assert (client.session().left_s, client.session().lives) == (0.5, True)
    assert other.read("a") is not None
    store.advance(0.5)
    assert not client.session().lives
    assert other.read("a") is None
    session = client.session().id
    client.mend()
    assert client.session().id != session
    assert (client.session().link, client.session().left_s) == (SessionState.CONNECTED, 10)


def test_a_client_that_is_behind_reads_what_was_until_it_syncs() -> None:
    store = MemoryStore()
    one, other = store.client(), store.client()
    one.commit(Create("a", {"n": 1}))
    other.lag()
    there = one.read("a")
    assert isinstance(there, RegistryEntry)
    revision = one.commit(Replace(there, {"n": 2})).revision
    behind = other.read("a")
    assert isinstance(behind, RegistryEntry)
    assert (behind.value["n"], behind.revision < revision) == (1, True)
    assert other.sync(at_least=behind.revision) < revision, "so far it has come"
    assert other.sync(at_least=revision) == revision
    now = other.read("a")
    assert isinstance(now, RegistryEntry)
    assert now.value["n"] == 2


def test_a_lease_ends_with_the_time_by_hand_and_is_taken_by_who_comes_then() -> None:
    store = MemoryStore(session_s=10)
    one, other = store.client(), store.client()
    first, second = RegistryLease(one, "lease", {}), RegistryLease(other, "lease", {})
    assert first.acquire()
    one.cut()
    store.advance(9)
    assert first.held()
    assert not second.acquire()
    store.advance(1)
    assert not first.held()
    assert second.acquire()
