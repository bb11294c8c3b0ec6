"""The tree: its places, its kinds of records, what others keep there, what is damaged, and who may write what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from registry_benches import STRANGER, WORKER

from harness.pages.registry import registry_page
from scribengin.core.errors import Refused
from scribengin.registry.contract import Conflict, Create, Damaged, Forbidden, RegistryEntry, Replace, fence_of, parent_of
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Newer, Stored, names, read_record, set_aside
from scribengin.registry.records import Desired, GroupRecord, Limit
from scribengin.registry.tree import (
    DESIRED,
    GROUP,
    HOST,
    LEASE,
    LEASE_TERM,
    LIMIT,
    SPEC,
    STATUS,
    TREE,
    BranchOwner,
    Writer,
    branch_of,
    own_folders_of_host,
    own_folders_of_worker,
    right_of_tier,
)

if TYPE_CHECKING:
    from registry_benches import Bench

    from scribengin.registry.record_io import Record
    from scribengin.registry.tree import Branch

NAMES = {
    "flow": "tweets",
    "tier": "edge",
    "node": "tweets.edge",
    "n": "3",
    "task": "0",
    "run": "tweets.edge-1",
    "id": "m1",
    "host": "a.example",
    "group": "g",
    "agent": "web1.example",
    "gateway": "dmz-1",
    "worker": "tweets.edge-1",
    "request": "0123456789abcdef" * 2,
    "token": "0123456789ab",
    "session": "0" * 64,
    "folder": "0123456789abcdef",
    "quota": "team=search",
    "peer": "berlin",
}


def spot_of(branch: Branch[Any]) -> Any:
    return branch(*(NAMES[part.strip("<>").removesuffix(">.term")] for part in branch.path.split("/") if part.startswith("<")))


def some(kind: type[Record]) -> Record:
    """A record with what must be in it."""
    texts = {name: name for name in ("url", "group", "host", "package", "path", "base", "node", "name", "salt", "hash", "text")}
    numbers = dict.fromkeys(("version", "generation", "number", "run", "revision"), 3)
    fields = {
        **texts,
        **numbers,
        "kind": "rewind",
        "step": "stop",
        "state": "running",
        "goal": "running",
        "members": {"a": 1},
        "tiers": {},
        "asked_at": 1.0,
        "reported_at": 1.0,
        "ask": "run",
        "role": "viewer",
        "asked": "asked",
        "token": "0123456789ab",
        "at": 1.0,
        "masters": ("https://a.example:8443",),
    }
    return kind(**{field.name: fields[field.name] for field in msgspec.structs.fields(kind) if field.required})


@pytest.mark.parametrize("branch", TREE, ids=lambda branch: branch.path)
def test_a_record_is_what_it_was_after_a_way_through_json(branch: Branch[Any]) -> None:
    record = some(branch.kind)
    value = msgspec.json.decode(msgspec.json.encode(record.dump()))
    assert value["format"] == branch.kind.FORMAT
    assert branch.kind.parse(value) == record


@pytest.mark.parametrize("branch", TREE, ids=lambda branch: branch.path)
def test_of_every_kind_keys_and_children_that_nobody_knows_survive_and_damage_is_a_value(branch: Branch[Any]) -> None:
    store = MemoryStore()
    client, spot, record = store.client(), spot_of(branch), some(branch.kind)
    client.commit(Create(spot.path, {**record.dump(), "a note": [1]}))
    client.commit(Create(f"{spot.path}/unknown", {"b": 2}))
    found = read_record(client, spot)
    assert isinstance(found, Stored)
    client.commit(found.replace(record))
    there = client.read(spot.path)
    assert isinstance(there, RegistryEntry)
    assert there.value["a note"] == [1]
    assert client.children(spot.path) == ("unknown",)
    assert branch_of(spot.path) is branch
    store.write_raw(spot.path, b"oops")
    damaged = read_record(client, spot)
    assert isinstance(damaged, Damaged)
    set_aside(client, damaged)
    assert client.children(spot.path) == ("unknown",)


def test_names_are_put_into_paths_and_those_that_do_not_fit_are_refused() -> None:
    assert DESIRED("tweets").path == "flows/tweets/desired"
    assert HOST("host-1.example").path == "physicalnodes/host-1.example/host"
    assert right_of_tier("tweets", "edge") == LEASE("tweets", "edge").path
    assert fence_of(LEASE("tweets", "edge").path) == LEASE_TERM("tweets", "edge").path
    for bad in ("", "Tweets", "a/b", "..", ".damaged", "a" * 64):
        with pytest.raises(ValueError, match="is not a valid flow of flows/<flow>/desired"):
            DESIRED(bad)
    with pytest.raises(ValueError, match="is not a valid n"):
        SPEC("tweets", "03")
    with pytest.raises(ValueError):  # noqa: PT011
        DESIRED("tweets", "edge")


def test_keys_that_somebody_else_keeps_stay_when_a_record_is_replaced(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("limits/tweets", {"format": 1, "rows_per_s": 5, "note": {"by": "hand"}, "bytes_per_s": 9}))
    client.commit(Create("limits/tweets/others", {"unknown": True}))
    found = read_record(client, LIMIT("tweets"))
    assert isinstance(found, Stored)
    assert found.record == Limit(rows_per_s=5, bytes_per_s=9)
    client.commit(found.replace(Limit(rows_per_s=7)))
    there = client.read("limits/tweets")
    assert isinstance(there, RegistryEntry)
    assert there.value == {"format": 1, "rows_per_s": 7, "note": {"by": "hand"}}
    assert client.children("limits/tweets") == ("others",)


def test_a_record_of_a_newer_format_is_left_alone_whether_it_can_be_read_or_not(bench: Bench) -> None:
    client = bench.client()
    bench.write_raw("limits", b"")
    bench.write_raw("limits/tweets", b'{"format": 2, "rows_per_s": 5}')
    found = read_record(client, LIMIT("tweets"))
    assert isinstance(found, Stored)
    with pytest.raises(Refused, match="newer Scribengin"):
        found.replace(Limit())
    bench.write_raw("limits/tweets", b'{"format": 2, "rows_per_s": {"now": 5}}')
    assert isinstance(read_record(client, LIMIT("tweets")), Newer)


def test_a_record_that_does_not_fit_is_damaged_and_says_where(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("flows/tweets/desired", {"format": 1, "state": "flying", "version": 1}))
    found = read_record(client, DESIRED("tweets"))
    assert isinstance(found, Damaged)
    assert "flying" in found.why
    assert "$.state" in found.why
    client.commit(Create("groups/g", {"format": 1}))
    found = read_record(client, GROUP("g"))
    assert isinstance(found, Damaged)
    assert "members" in found.why


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (b'{"state": "runn', {"text": '{"state": "runn', "bytes": 15}),
        (b"\xff\x00", {"base64": "/wA=", "bytes": 2}),
        (b"[" * 150_000, {"text": "[" * 65_536, "bytes": 150_000}),
    ],
)
def test_what_is_damaged_is_set_aside_with_its_bytes(bench: Bench, raw: bytes, content: dict[str, Any]) -> None:
    client = bench.client()
    client.commit(Create("flows/tweets/status", {}))
    bench.write_raw("flows/tweets/desired", raw)
    found = read_record(client, DESIRED("tweets"))
    assert isinstance(found, Damaged)
    aside = set_aside(client, found)
    assert aside == f"flows/tweets/.damaged/desired@{found.changed}"
    assert client.read("flows/tweets/desired") is None
    there = client.read(aside)
    assert isinstance(there, RegistryEntry)
    assert content.items() <= there.value.items()
    assert there.value["path"] == "flows/tweets/desired"
    assert "is not valid JSON" in there.value["why"]
    assert names(client, "flows/tweets") == ("status",)
    client.commit(DESIRED("tweets").create(Desired(state="running", version=1)))


def test_what_is_damaged_above_other_records_is_emptied_and_they_stay(bench: Bench) -> None:
    client = bench.client()
    client.commit(Create("flows/tweets/status", {}))
    bench.write_raw("flows/tweets", b"oops")
    found = client.read("flows/tweets")
    assert isinstance(found, Damaged)
    set_aside(client, found)
    there = client.read("flows/tweets")
    assert isinstance(there, RegistryEntry)
    assert there.value == {}
    assert client.children("flows/tweets") == ("status",)


def test_what_was_mended_meanwhile_is_not_set_aside(bench: Bench) -> None:
    client = bench.client()
    bench.write_raw("groups", b"")
    bench.write_raw("groups/g", b"oops")
    found = read_record(client, GROUP("g"))
    assert isinstance(found, Damaged)
    bench.write_raw("groups/g", b'{"members": {"a": 1}}')
    with pytest.raises(Conflict):
        set_aside(client, found)
    mended = read_record(client, GROUP("g"))
    assert isinstance(mended, Stored)
    assert mended.record == GroupRecord(members={"a": 1})
    assert client.children("groups") == ("g",)


def test_every_record_can_be_written_by_those_whom_the_table_names_and_by_no_worker_of_others(bench: Bench) -> None:
    master = bench.client()
    master.commit(*own_folders_of_worker("tweets", "edge", WORKER.who), *own_folders_of_host("a.example", STRANGER.who))
    worker = bench.client(WORKER)
    wrong = []
    for branch in TREE:
        spot, value = spot_of(branch), some(branch.kind)
        there = master.read(spot.path)
        if there is None:
            master.commit(spot.create(value))
            there = master.read(spot.path)
        assert isinstance(there, RegistryEntry)
        master.commit(Replace(there, value.dump()))
        there = worker.read(spot.path)
        assert isinstance(there, RegistryEntry)
        try:
            worker.commit(Replace(there, value.dump()))
            may = True
        except Forbidden:
            may = False
        if may != (branch.owner is BranchOwner.WORKER) or (Writer.WORKER in branch.writers and not may):
            wrong.append(branch.path)
    assert not wrong
    with pytest.raises(Forbidden):
        worker.commit(*own_folders_of_worker("tweets", "core", WORKER.who))
    assert parent_of(STATUS("tweets").path) == "flows/tweets"


def test_the_page_says_what_json_each_key_takes() -> None:
    lines = registry_page().splitlines()
    (quota,) = (line for line in lines if line.startswith("| `quotas/<quota>` | `"))
    assert "`cores`? whole number, `memory_bytes`? whole number, `rows_per_s`? number" in quota
    (share,) = (line for line in lines if line.startswith("| `flows/<flow>/share` | `"))
    assert "`idle`? true or false" in share
    (status,) = (line for line in lines if line.startswith("| `flows/<flow>/status` | `"))
    assert "`goal`? one of `drained`" in status
