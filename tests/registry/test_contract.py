"""What `registry/contract.py` says, sentence by sentence, of both that implement it."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from registry_benches import DEADLINE_S, LOGIN, SHORT_S, STRANGER, WORKER, until

from scribengin.core.errors import FencedError, Refused, Unreachable
from scribengin.registry.contract import (
    COMMIT_BYTES,
    RECORD_BYTES,
    Conflict,
    Create,
    Damaged,
    Delete,
    Forbidden,
    Grant,
    May,
    RegistryEntry,
    Replace,
    Require,
    SessionState,
    Term,
    fence_of,
)

if TYPE_CHECKING:
    from registry_benches import Bench

    from scribengin.registry.contract import Registry


def entry(client: Registry, path: str) -> RegistryEntry:
    found = client.read(path)
    assert isinstance(found, RegistryEntry), found
    return found


class Woken:
    """What a watch calls: counts, and lets a test wait for more."""

    def __init__(self) -> None:
        self.calls = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.calls += 1
            self._changed.notify_all()

    def more_than(self, calls: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.calls > calls, DEADLINE_S)


# --- records


def test_what_was_written_is_read_with_its_versions_and_revisions(bench: Bench) -> None:
    client = bench.client()
    made = client.commit(Create("a", {"format": 1, "n": 1}))
    assert made.paths == ("a",)
    first = entry(client, "a")
    assert (dict(first.value), first.version, first.session) == ({"format": 1, "n": 1}, 0, 0)
    assert first.made == first.changed <= made.revision <= first.revision
    replaced = client.commit(Replace(first, {"format": 1, "n": 2}))
    second = entry(client, "a")
    assert (dict(second.value), second.version, second.made) == ({"format": 1, "n": 2}, 1, first.made)
    assert made.revision < second.changed <= replaced.revision <= second.revision


def test_nothing_is_there_where_nothing_was_written(bench: Bench) -> None:
    client = bench.client()
    assert client.read("a/b") is None
    assert client.children("a/b") == ()


def test_many_that_are_read_at_once_are_what_each_is(bench: Bench) -> None:
    client = bench.client()
    client.commit(*(Create(f"a/b{number}", {"n": number}) for number in range(450)), Create("a/b7/c", {}), Create("a/b7/d", {}))
    bench.write_raw("a/bad", b"oops")
    client.sync()
    paths = ["a/none", "a/bad", "a", "", *(f"a/b{number}" for number in range(450)), "a/b7/c", "a/b7"]
    many = client.read_many(paths)
    assert [type(each) for each in many[:2]] == [type(None), Damaged]
    for path, found in zip(paths, many, strict=True):
        alone = client.read(path)
        if isinstance(found, RegistryEntry) and isinstance(alone, RegistryEntry):
            assert dataclasses.replace(found, revision=alone.revision) == alone
        else:
            assert found == alone
    assert client.children_many(["a/none", "a/b7", "a/b8", ""]) == [(), ("c", "d"), (), ("a",)]
    assert client.children_many(["a"])[0] == client.children("a")
    assert client.read_many([]) == client.children_many([]) == []


def test_folders_above_a_new_record_are_made_with_it_and_stay(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("a/b/c", {"n": 1}), Create("a/b/d", {"n": 2}), Create("a/e", {}))
    assert (client.children(""), client.children("a"), client.children("a/b")) == (("a",), ("b", "e"), ("c", "d"))
    assert entry(client, "a/b").value == {}
    client.commit(Delete("a/b/c"), Delete("a/b/d"))
    assert client.children("a") == ("b", "e")


def test_a_record_is_one_line_of_json_with_sorted_keys(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("a", {"z": {"y": 1, "b": "ü"}, "format": 1}))
    bench.write_raw("a", b"no")
    damaged = client.read("a")
    assert isinstance(damaged, Damaged)
    client.commit(Replace(damaged, {"z": {"y": 1, "b": "ü"}, "format": 1}))
    value = entry(client, "a").value
    assert list(value) == ["format", "z"]
    assert list(value["z"]) == ["b", "y"]


def test_a_record_over_the_bound_is_refused_and_its_largest_part_named(bench: Bench) -> None:
    client = bench.client()
    room = RECORD_BYTES - len('{"format":1,"text":""}')
    client.commit(Create("a", {"format": 1, "text": "x" * room}))
    with pytest.raises(Refused, match=r"record b would have 100,001 bytes, most of them in 'text'; up to 100,000"):
        client.commit(Create("b", {"format": 1, "text": "x" * (room + 1)}))
    assert client.read("b") is None


def test_a_commit_over_the_bound_is_refused_whole(bench: Bench) -> None:
    client = bench.client()
    count = COMMIT_BYTES // RECORD_BYTES + 1
    with pytest.raises(Refused, match=f"{count} records .* together"):
        client.commit(*(Create(f"a{number}", {"text": "x" * (RECORD_BYTES - 11)}) for number in range(count)))
    assert client.children("") == ()
    client.commit(*(Create(f"a{number}", {"text": "x" * (RECORD_BYTES - 11)}) for number in range(count - 1)))
    assert len(client.children("")) == count - 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a": 1', "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[1]", "is not a JSON object"),
        (b'{"format": "one"}', "has a format that is not a number"),
        (b'{"format": 0}', "has a format that is not a number"),
        (b'{"format": true}', "has a format that is not a number"),
    ],
)
def test_bytes_that_are_no_record_are_a_value_that_says_why(bench: Bench, data: bytes, why: str) -> None:
    client = bench.client()
    bench.write_raw("a", data)
    found = client.read("a")
    assert isinstance(found, Damaged)
    assert found.raw == data
    assert why in found.why


def test_a_larger_record_of_somebody_else_is_read_all_the_same(bench: Bench) -> None:
    bench.write_raw("a", b'{"text": "' + b"x" * 2 * RECORD_BYTES + b'"}')
    assert len(entry(bench.client(), "a").value["text"]) == 2 * RECORD_BYTES


def test_a_record_of_a_newer_format_is_read_and_not_replaced(bench: Bench) -> None:
    client = bench.client()
    bench.write_raw("a", b'{"format": 3, "n": 1}')
    found = entry(client, "a")
    assert found.value["n"] == 1
    with pytest.raises(Refused, match=r"newer Scribengin \(format 3, this one writes 2\)"):
        Replace(found, {"format": 2, "n": 2})


# --- writes


def test_a_replacement_holds_only_while_what_was_read_is_there(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    one.commit(Create("a", {"n": 0}))
    read = entry(other, "a")
    one.commit(Replace(entry(one, "a"), {"n": 1}))
    with pytest.raises(Conflict, match="record a was changed meanwhile") as caught:
        other.commit(Replace(read, {"n": 2}))
    assert caught.value.path == "a"
    assert entry(one, "a").value == {"n": 1}


def test_of_many_that_count_at_once_no_count_is_lost(bench: Bench) -> None:
    clients = [bench.client() for _ in range(3)]
    clients[0].commit(Create("a", {"n": 0}))

    def count(client: Registry) -> None:
        done = 0
        while done < 20:
            try:
                found = entry(client, "a")
                client.commit(Replace(found, {"n": found.value["n"] + 1}))
                done += 1
            except Conflict:
                pass

    threads = [threading.Thread(target=count, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert entry(clients[0], "a").value == {"n": 60}


def test_all_writes_of_a_commit_or_none(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("a", {"n": 1}), Create("b", {}))
    stale = entry(client, "a")
    client.commit(Replace(stale, {"n": 2}))
    with pytest.raises(Conflict):
        client.commit(Create("c/d", {}), Delete("b"), Replace(stale, {"n": 3}))
    assert client.children("") == ("a", "b")
    assert entry(client, "a").value == {"n": 2}


def test_a_requirement_writes_nothing_and_holds_the_rest_back(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("a", {}))
    client.commit(Require("a", 0), Create("b", {}))
    client.commit(Require("a"), Create("c", {}))
    assert entry(client, "a").version == 0
    with pytest.raises(Conflict, match="record a was changed meanwhile"):
        client.commit(Require("a", 1), Create("d", {}))
    with pytest.raises(Conflict, match="record e is not there"):
        client.commit(Require("e"), Create("d", {}))
    assert client.children("") == ("a", "b", "c")


def test_what_cannot_be_written_says_what_stands_there(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("a/b", {}), Create("e", {}, ephemeral=True))
    with pytest.raises(Conflict, match="record a is there already"):
        client.commit(Create("a", {}))
    with pytest.raises(Conflict, match="record a has records below it"):
        client.commit(Delete("a"))
    with pytest.raises(Conflict, match="record c is not there"):
        client.commit(Delete("c"))
    with pytest.raises(Conflict, match="record a/b was changed meanwhile"):
        client.commit(Delete("a/b", 7))
    with pytest.raises(Conflict, match="record e is ephemeral"):
        client.commit(Create("e/f", {}))


def test_numbered_records_are_numbered_in_the_order_of_their_commits(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    paths = [client.commit(Create("ops/op-", {}, numbered=True)).paths[0] for client in (one, other, one)]
    one.commit(Delete(paths[2]))
    paths += other.commit(Create("ops/op-", {}, numbered=True)).paths
    assert paths == sorted(set(paths))
    assert all(len(path) == len("ops/op-0000000000") for path in paths)


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", ".", "a/..", "a\x00b", "a\ud800"])
def test_what_is_no_path_is_a_bug_and_is_told_so(bench: Bench, path: str) -> None:
    client = bench.client()
    with pytest.raises(ValueError, match="no path below the registry's root"):
        client.read(path)
    with pytest.raises(ValueError, match="no path below the registry's root"):
        client.commit(Create(path, {}))


def test_two_writes_of_one_commit_about_one_record_are_a_bug(bench: Bench) -> None:
    with pytest.raises(ValueError, match="about the same record"):
        bench.client().commit(Create("a", {}), Delete("a"))


# --- terms


def take(client: Registry, right: str) -> Term:
    fence = client.read(fence_of(right))
    last = Create(fence_of(right), {}) if fence is None else Replace(fence, {"n": fence.version})
    client.commit(Create(right, {}, ephemeral=True), last)
    return Term(right, entry(client, right).made, entry(client, fence_of(right)).version)


def test_a_commit_under_an_old_term_changes_nothing(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    first = take(one, "leader")
    one.commit(Create("a", {"by": 1}), term=first)
    one.commit(Delete("leader"))
    with pytest.raises(FencedError, match=rf"right of the registry's record leader \(term {first.number}\) is over"):
        one.commit(Create("b", {}), term=first)
    second = take(other, "leader")
    assert second.number > first.number
    with pytest.raises(FencedError):
        one.commit(Create("b/c", {}), term=first)
    with pytest.raises(FencedError):
        one.commit(Replace(entry(one, "a"), {"by": 1}), term=first)
    with pytest.raises(FencedError):
        one.commit(Delete("a"), term=first)
    with pytest.raises(FencedError):
        one.commit(term=first)
    assert one.children("") == ("a", "leader", "leader.term")
    other.commit(Replace(entry(other, "a"), {"by": 2}), term=second)
    assert entry(one, "a").value == {"by": 2}


def test_a_conflict_under_a_good_term_is_a_conflict(bench: Bench) -> None:
    client = bench.client()
    term = take(client, "leader")
    client.commit(Create("a", {}), term=term)
    with pytest.raises(Conflict, match="record a is there already"):
        client.commit(Create("a", {}), term=term)
    client.commit(term=term)


def test_one_right_does_not_stand_for_another(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    first = take(one, "tiers/x/lease")
    take(other, "tiers/y/lease")
    one.commit(Create("a", {}), term=first)
    with pytest.raises(FencedError):
        one.commit(Create("b", {}), term=Term("tiers/z/lease", first.number, first.fence))


# --- sessions


def test_an_ephemeral_record_goes_with_its_client(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    one.commit(Create("a", {}, ephemeral=True))
    assert entry(other, "a").session == one.session().id != 0
    one.close()
    assert one.session().link is SessionState.LOST
    until(lambda: other.sync() and other.read("a") is None, "gone")
    one.close()
    with pytest.raises(Unreachable, match="was closed"):
        one.read("a")
    with pytest.raises(Unreachable, match="was closed"):
        one.commit(Create("b", {}))


def test_a_session_that_is_cut_off_is_suspended_and_comes_back_with_its_records(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    one.commit(Create("a", {}, ephemeral=True))
    session = one.session().id
    bench.cut(one)
    assert one.session().link is SessionState.SUSPENDED
    assert one.session().lives
    assert other.read("a") is not None
    bench.mend(one)
    assert (one.session().id, one.session().link) == (session, SessionState.CONNECTED)
    assert one.session().lives
    assert entry(one, "a").session == session


def test_a_session_that_is_cut_off_too_long_knows_by_its_own_clock(bench: Bench) -> None:
    one, other = bench.client(session_s=SHORT_S), bench.client()
    one.commit(Create("a", {}, ephemeral=True))
    session = one.session().id
    bench.cut(one)
    bench.outlast(one)
    assert one.session().link is SessionState.SUSPENDED
    assert not one.session().lives
    other.sync()
    assert other.read("a") is None
    bench.mend(one)
    until(lambda: one.session().id not in (0, session), "another session")
    assert one.session().lives
    one.commit(Create("b", {}, ephemeral=True))
    assert entry(other, "b").session == one.session().id


def test_a_session_that_was_ended_behind_its_back_is_followed_by_another(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("a", {}, ephemeral=True), Create("b", {"n": 1}))
    session = client.session().id
    bench.expire(client)
    assert client.session().id not in (0, session)
    assert client.read("a") is None
    assert entry(client, "b").value == {"n": 1}


def test_without_a_server_nothing_is_done_and_that_is_said(bench: Bench) -> None:
    one, other = bench.client(session_s=SHORT_S), bench.client()
    bench.cut(one)
    with pytest.raises(Unreachable, match="does not answer"):
        one.read("a")
    with pytest.raises(Unreachable, match="does not answer"):
        one.commit(Create("a", {}))
    bench.mend(one)
    one.commit(Create("b", {}))
    assert other.sync()
    assert other.children("") == ("b",)


def test_a_commit_whose_answer_is_lost_has_taken_effect_once(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("a", {"n": 0}))
    bench.commit_unanswered(client, Replace(entry(client, "a"), {"n": 1}), Create("b", {}))
    assert entry(client, "a").value == {"n": 1}
    assert entry(client, "a").version == 1
    assert client.children("") == ("a", "b")


# --- reading


def test_after_a_sync_what_others_have_written_is_read(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    revision = one.commit(Create("a", {})).revision
    assert other.sync(at_least=revision) >= revision
    assert other.read("a") is not None
    assert one.sync() >= revision


def test_revisions_rise_over_the_clients_and_their_sessions(bench: Bench) -> None:
    one, other = bench.client(), bench.client()
    seen = [one.commit(Create("a", {})).revision, other.commit(Create("b", {})).revision]
    bench.expire(one)
    seen += [entry(one, "b").revision, one.commit(Create("c", {})).revision, other.sync()]
    assert seen == sorted(seen)
    assert seen[0] < seen[1] < seen[3]


# --- watching


def test_a_watch_wakes_for_a_record_that_is_made_replaced_and_deleted(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    woken = Woken()
    with closing(client.watch("a/b", woken)):
        other.commit(Create("a/b", {"n": 1}))
        assert woken.more_than(0)
        for number in range(2, 5):
            until(lambda n=number: entry(client, "a/b").value["n"] == n - 1, "read")  # type: ignore[misc]
            calls = woken.calls
            other.commit(Replace(entry(other, "a/b"), {"n": number}))
            assert woken.more_than(calls)
        calls = woken.calls
        other.commit(Delete("a/b"))
        assert woken.more_than(calls)


def test_a_watch_wakes_for_children_that_come_and_go(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    woken = Woken()
    with closing(client.watch("a", woken)):
        other.commit(Create("a/b", {}))
        assert woken.more_than(0)
        until(lambda: client.children("a") == ("b",), "read")
        calls = woken.calls
        other.commit(Delete("a/b"))
        assert woken.more_than(calls)


def test_who_reads_at_each_call_misses_no_last_state(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    other.commit(Create("a", {"n": 0}))
    changed = threading.Event()

    def write() -> None:
        for number in range(1, 40):
            other.commit(Replace(entry(other, "a"), {"n": number}))

    writing = threading.Thread(target=write)
    with closing(client.watch("a", changed.set)):
        writing.start()
        while entry(client, "a").value["n"] < 39:
            assert changed.wait(DEADLINE_S)
            changed.clear()
    writing.join(DEADLINE_S)


def test_a_watch_survives_a_cut_and_a_lost_session_and_tells_of_them(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    woken = Woken()
    with closing(client.watch("a", woken)):
        bench.cut(client)
        assert woken.more_than(0)
        other.commit(Create("a", {"n": 1}))
        calls = woken.calls
        bench.mend(client)
        assert woken.more_than(calls)
        until(lambda: client.read("a") is not None, "read")
        calls = woken.calls
        bench.expire(client)
        assert woken.more_than(calls)
        until(lambda: client.read("a") is not None, "read")
        seen = entry(client, "a").version

        def changed() -> bool:
            other.commit(Replace(entry(other, "a"), {"n": 1}))
            return woken.more_than(calls)

        calls = woken.calls
        assert changed()
        assert entry(other, "a").version > seen


class Paths:
    """What a watch below a path calls: the paths, None for any."""

    def __init__(self) -> None:
        self.paths: list[str | None] = []
        self._changed = threading.Condition()

    def __call__(self, path: str | None) -> None:
        with self._changed:
            self.paths.append(path)
            self._changed.notify_all()

    def has(self, path: str | None, behind: int = 0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: path in self.paths[behind:], DEADLINE_S)


def test_one_watch_tells_of_all_that_is_made_replaced_and_removed_below(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    told, all_told = Paths(), Paths()
    with closing(client.watch_below("a/b", told)), closing(client.watch_below("", all_told)):
        other.commit(Create("a/bb", {}), Create("c", {}))
        other.commit(Create("a/b/c/d", {"n": 1}))
        assert told.has("a/b/c/d")
        for number in range(2, 5):
            before = len(told.paths)
            other.commit(Replace(entry(other, "a/b/c/d"), {"n": number}))
            assert told.has("a/b/c/d", before), "not only the first time"
            client.sync()
            assert entry(client, "a/b/c/d").value["n"] == number
        before = len(told.paths)
        other.commit(Delete("a/b/c/d"))
        assert told.has("a/b/c/d", before)
        other.commit(Create("a/b/e", {}))
        assert told.has("a/b/e")
        assert {path for path in told.paths if path is not None} == {"a/b", "a/b/c", "a/b/c/d", "a/b/e"}
        assert all_told.has("c")


def test_a_watch_below_is_told_beside_a_watch_of_one_of_its_paths(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    other.commit(Create("a/b", {"n": 0}))
    told, woken = Paths(), Woken()
    with closing(client.watch("a/b", woken)), closing(client.watch_below("a", told)):
        for number in range(1, 4):
            before, calls = len(told.paths), woken.calls
            other.commit(Replace(entry(other, "a/b"), {"n": number}))
            assert told.has("a/b", before)
            assert woken.more_than(calls)


def test_a_watch_below_survives_a_cut_and_a_lost_session_and_says_that_anything_may_have_changed(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    told = Paths()
    with closing(client.watch_below("a", told)):
        bench.cut(client)
        assert told.has(None)
        other.commit(Create("a/b", {"n": 1}))
        before = len(told.paths)
        bench.mend(client)
        assert told.has(None, before)
        before = len(told.paths)
        bench.expire(client)
        assert told.has(None, before)

        def changed() -> bool:
            before = len(told.paths)
            other.commit(Replace(entry(other, "a/b"), {"n": 1}))
            return "a/b" in told.paths[before:] or None in told.paths[before:]

        until(changed, "told again")
        before = len(told.paths)
        other.commit(Replace(entry(other, "a/b"), {"n": 2}))
        assert told.has("a/b", before)


def test_a_closed_watch_below_is_silent(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    closed, open_ = Paths(), Paths()
    client.watch_below("a", closed).close()
    with closing(client.watch_below("a", open_)):
        other.commit(Create("a/b", {}))
        assert open_.has("a/b")
    assert closed.paths == []


def test_a_closed_watch_is_silent(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    closed, open_ = Woken(), Woken()
    client.watch("a", closed).close()
    with closing(client.watch("a", open_)):
        other.commit(Create("a", {}))
        assert open_.more_than(0)
    assert closed.calls == 0


def test_what_a_watch_calls_may_fail_without_harm_to_others(bench: Bench) -> None:
    if type(bench).__name__ == "MemoryBench":
        pytest.skip("the twin wakes in the thread that writes: a test is to see such an error")
    client, other = bench.client(), bench.client()
    woken = Woken()

    def fail() -> None:
        raise RuntimeError("a bug of the watcher")

    with closing(client.watch("a", fail)), closing(client.watch("b", woken)):
        other.commit(Create("a", {}))
        other.commit(Create("b", {}))
        assert woken.more_than(0)


# --- rights


def test_a_login_without_rights_reads_and_writes_nothing(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("a", {}))
    stranger = bench.client(STRANGER)
    assert stranger.read("a") is not None, "this root is readable"
    for write in (Create("b", {}), Replace(entry(stranger, "a"), {"n": 1}), Delete("a")):
        with pytest.raises(Forbidden, match="no right to"):
            stranger.commit(write)
    assert client.children("") == ("a",)
    assert entry(client, "a").version == 0


def test_a_worker_writes_under_its_own_records_and_nowhere_else(bench: Bench) -> None:
    master = bench.client()
    master.commit(
        Create("flows/tweets/desired", {"state": "running"}),
        Create("flows/tweets/tiers/edge", {}, grants=(Grant(WORKER.who, May.ALL),)),
        Create("flows/tweets/tiers/core", {}),
    )
    worker = bench.client(WORKER)
    worker.commit(Create("flows/tweets/tiers/edge/tasks/0", {"owner": "w"}), Create("flows/tweets/tiers/edge/lease", {}, ephemeral=True))
    worker.commit(Replace(entry(worker, "flows/tweets/tiers/edge/tasks/0"), {"owner": "x"}))
    for write in (
        Create("flows/tweets/tiers/core/tasks/0", {}),
        Create("flows/tweets/tiers/more", {}),
        Replace(entry(worker, "flows/tweets/desired"), {"state": "stopped"}),
        Delete("flows/tweets/tiers/edge/lease.term"),
        Delete("flows/tweets/tiers/core"),
    ):
        with pytest.raises((Forbidden, Conflict)) as caught:
            worker.commit(write)
        assert isinstance(caught.value, Forbidden) or write == Delete("flows/tweets/tiers/edge/lease.term")
    # what the worker has made is the masters' too
    master.commit(Replace(entry(master, "flows/tweets/tiers/edge/tasks/0"), {"owner": "y"}), Delete("flows/tweets/tiers/edge/lease"))
    assert LOGIN.who != WORKER.who
