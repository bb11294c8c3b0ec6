"""Leases and elections, on both registries."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from registry_benches import DEADLINE_S, SHORT_S, until

from scribengin.core.errors import FencedError, Unreachable
from scribengin.registry.contract import Create, Delete, RegistryEntry, Unsettled, fence_of
from scribengin.registry.lease import Election, RegistryLease

if TYPE_CHECKING:
    from registry_benches import Bench

LEASE = "flows/tweets/tiers/edge/lease"


def test_one_holds_it_and_others_see_who(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    with RegistryLease(one, LEASE, {"host": "a"}) as first, RegistryLease(other, LEASE, {"host": "b"}) as second:
        assert first.acquire()
        assert not second.acquire()
        assert (first.held(), second.held()) == (True, False)
        there = other.read(LEASE)
        assert isinstance(there, RegistryEntry)
        assert (there.value["host"], there.session, there.made) == ("a", one.session().id, first.term.number)
        first.check()
        with pytest.raises(FencedError, match="never held"):
            second.check()


def test_two_contenders_of_one_client_exclude_each_other(bench: Bench) -> None:
    client = bench.client()
    with RegistryLease(client, LEASE, {}) as first, RegistryLease(client, LEASE, {}) as second:
        assert first.acquire()
        assert not second.acquire()
        assert first.acquire(), "who has it has it"


def test_each_holder_has_a_higher_term_and_ends_those_before(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    with RegistryLease(one, LEASE, {}) as first, RegistryLease(other, LEASE, {}) as second:
        assert first.acquire()
        one.commit(Create("a", {}), term=first.term)
        first.release()
        first.release()
        assert not first.held()
        assert second.acquire()
        assert second.term.number > first.term.number
        for _ in range(2):
            with pytest.raises(FencedError):
                one.commit(Create("b", {}), term=first.term)
        with pytest.raises(FencedError):
            first.check()
        assert one.read("b") is None
        other.commit(Create("b", {}), term=second.term)
        term = second.term
        second.release()
        assert first.acquire()
        assert first.term.number > term.number


def test_who_waits_has_it_when_it_is_released(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    with Election(one, {"id": "m1"}) as first, Election(other, {"id": "m2"}) as second:
        assert first.acquire()
        leader = second.read_leader()
        assert leader is not None
        assert leader["id"] == "m1"
        won: list[bool] = []
        waiting = threading.Thread(target=lambda: won.append(second.acquire(wait_s=DEADLINE_S)))
        waiting.start()
        first.release()
        waiting.join(DEADLINE_S)
        assert won == [True]
        leader = first.read_leader()
        assert leader is not None
        assert leader["id"] == "m2"


def test_of_many_who_want_it_one_has_it(bench: Bench) -> None:
    contenders = [RegistryLease(bench.client(), LEASE, {"number": number}) for number in range(4)]
    won: list[int] = []

    def contend(number: int) -> None:
        if contenders[number].acquire():
            won.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(won) == 1
    assert [contender.held() for contender in contenders] == [number == won[0] for number in range(4)]


def test_suspended_is_not_lost(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    with RegistryLease(one, LEASE, {}) as first, RegistryLease(other, LEASE, {}) as second:
        assert first.acquire()
        term = first.term
        bench.cut(one)
        assert first.held()
        first.check()
        assert not second.acquire()
        bench.mend(one)
        assert first.held()
        assert first.term == term
        one.commit(Create("a", {}), term=term)


def test_who_was_cut_off_too_long_knows_it_and_is_followed_and_cannot_write(bench: Bench) -> None:
    one, other = bench.client(session_s=SHORT_S), bench.client()
    with RegistryLease(one, LEASE, {}) as first, RegistryLease(other, LEASE, {}) as second:
        assert first.acquire()
        bench.cut(one)
        bench.outlast(one)
        assert not first.held()
        with pytest.raises(FencedError, match="not held any more"):
            first.check()
        assert second.acquire(wait_s=DEADLINE_S)
        session = one.session().id
        bench.mend(one)
        until(lambda: one.session().id not in (0, session), "another session")
        assert not first.held()
        with pytest.raises(FencedError):
            one.commit(Create("a", {}), term=first.term)
        other.commit(Create("a", {}), term=second.term)
        assert not first.acquire()
        second.release()
        assert first.acquire(wait_s=DEADLINE_S)
        assert first.term.number > second.term.number


def test_a_session_ended_behind_its_back_ends_the_right_even_where_nobody_follows(bench: Bench) -> None:
    client = bench.client()
    with RegistryLease(client, LEASE, {}) as lease:
        assert lease.acquire()
        bench.expire(client)
        assert not lease.held()
        with pytest.raises(FencedError):
            client.commit(Create("a", {}), term=lease.term)
        term = lease.term
        assert lease.acquire(wait_s=DEADLINE_S)
        assert lease.term.number > term.number


def test_a_right_that_somebody_took_away_by_hand_is_noticed(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    with RegistryLease(one, LEASE, {}) as lease:
        assert lease.acquire()
        other.commit(Delete(LEASE))

        def lost() -> bool:
            try:
                lease.check()
            except FencedError:
                return True
            return False

        until(lost, "noticed")
        assert not lease.held()
        term = lease.term
        assert lease.acquire()
        assert lease.term.number > term.number
        again = lease.term
        other.commit(Delete(LEASE))
        until(lambda: lease.acquire() and lease.term != again, "noticed, and taken again")
        other.commit(Delete(LEASE))
        until(lost, "noticed")
        with pytest.raises(FencedError):
            one.commit(Create("a", {}), term=lease.term)


def test_a_record_that_somebody_put_in_the_way_is_no_holder(bench: Bench) -> None:
    client = bench.client()
    for bad in (b"", b"nonsense", b'{"host": "nobody"}'):
        bench.write_raw("leader", bad)
        with Election(client, {"id": "m1"}) as election:
            assert election.acquire(wait_s=DEADLINE_S)
            election.check()


def test_a_damaged_record_of_who_had_it_last_does_not_keep_others_from_it(bench: Bench) -> None:
    client = bench.client()
    for bad in (b"nonsense", b""):
        bench.write_raw(fence_of("leader"), bad)
        with Election(client, {"id": "m1"}) as election:
            assert election.acquire()
            client.commit(term=election.term)


def test_a_right_whose_commit_was_not_answered_is_held_by_who_asked_again(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    with RegistryLease(client, LEASE, {}) as lease, RegistryLease(other, LEASE, {}) as second:
        commit, writes = client.commit, []

        def note(*some: object, **more: object) -> None:
            writes.extend(some)
            raise Unreachable("not yet")

        client.commit = note  # type: ignore[method-assign, assignment]
        with pytest.raises(Unreachable):
            lease.acquire()
        client.commit = commit  # type: ignore[method-assign]
        bench.commit_unanswered(client, *writes)  # type: ignore[arg-type]
        assert not second.acquire()
        assert lease.acquire()
        assert lease.held()
        client.commit(Create("a", {}), term=lease.term)


def test_a_right_that_was_taken_without_an_answer_is_let_go_by_who_gives_up(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    lease, second = RegistryLease(client, LEASE, {}), RegistryLease(other, LEASE, {})
    commit, read = client.commit, client.read

    def silent(path: str) -> None:
        raise Unreachable("no answer to this either")

    def lost(*writes: object, **more: object) -> None:
        client.commit = commit  # type: ignore[method-assign]
        bench.commit_unanswered(client, *writes)  # type: ignore[arg-type]
        client.read = silent  # type: ignore[method-assign, assignment]
        raise Unsettled("the answer is lost")

    client.commit = lost  # type: ignore[method-assign, assignment]
    with pytest.raises(Unreachable, match="to this either"):
        lease.acquire()
    client.read = read  # type: ignore[method-assign]
    assert not lease.held()
    assert not second.acquire()
    lease.close()
    assert second.acquire()


def test_a_lease_that_could_not_be_released_goes_with_its_client(bench: Bench) -> None:
    one, other = bench.client(session_s=SHORT_S), bench.client()
    first, second = RegistryLease(one, LEASE, {}), RegistryLease(other, LEASE, {})
    assert first.acquire()
    bench.cut(one)
    first.release()
    assert not first.held()
    bench.mend(one)
    one.close()
    assert second.acquire(wait_s=DEADLINE_S)
