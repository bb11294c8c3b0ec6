"""What every store keeps, over a real server and over a folder: order, absence, ranges, parts, and that one of many writers wins."""

from __future__ import annotations

import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pickle import dumps
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from harness import remote_places
from harness.object_stores import opened, options
from scribengin.connectors.addresses import S3_URL, store_url_fault
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.options import SINK
from scribengin.connectors.objects.s3 import PART_BYTES, PartedWriter, S3Store, Uploads
from scribengin.core.errors import EnvironmentFault, SinkError, Unreachable
from scribengin.core.store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.store import Store
    from scribengin.embedded.objects import ObjectServer

ROUNDS = 200
ROUNDS_HDFS = 12
"""the close of a small file takes it half a second"""


@pytest.fixture(params=["s3", "hdfs", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Store:
    if request.param == "s3":
        return opened(request.getfixturevalue("server"), prefix)
    return remote_places.opened(request.getfixturevalue("hdfs"), prefix) if request.param == "hdfs" else LocalStore(tmp_path / "store")


def test_an_object_is_written_once_and_read_whole_or_in_ranges(store: Store) -> None:
    odd = "y=a%3A b/ä'#[x].json"
    assert [store.put(odd, b"0123456789"), store.put(odd, b"other")] == [True, False]
    assert store.get(odd) == b"0123456789"
    assert [store.range(odd, 2, 5), store.range(odd, 8, 99)] == [b"234", b"89"]
    (entry,) = store.list()
    assert (entry.key, entry.size) == (odd, 10)
    assert store.head(odd) == entry
    assert store.put("empty", b"")
    assert store.get("empty") == b""


def test_what_is_not_there_is_none_and_its_deletion_no_error(store: Store) -> None:
    assert store.get("a/b") is None
    assert store.head("a/b") is None
    assert list(store.list("a")) == []
    store.delete("a/b")
    with pytest.raises(FileNotFoundError):
        store.range("a/b", 0, 1)
    for name in ("a/1", "a/2", "a/3"):
        store.put(name, b"x")
    store.delete("a/1", "a/none", "a/3")
    assert [entry.key for entry in store.list()] == ["a/2"]


def test_keys_that_another_deletes_meanwhile_are_no_error_and_the_others_go_too(store: Store) -> None:
    hands, each = 4, 8
    gate = Barrier(hands)

    def delete(keys: list[str]) -> None:
        gate.wait()
        store.delete(*keys)

    with ThreadPoolExecutor(hands) as pool:
        for _ in range(40 if isinstance(store, LocalStore | S3Store) else 2):
            keys = [f"d/{number}" for number in range(each)]
            for key in keys:
                store.put(key, b"x")
            own = [[*keys, f"d/own-{hand}"] for hand in range(hands)]
            for mine in own:
                store.put(mine[-1], b"x")
            assert list(pool.map(delete, own)) == [None] * hands
            assert list(store.list("d")) == []


def test_a_listing_goes_by_the_bytes_of_keys_from_where_it_is_asked(store: Store) -> None:
    keys = [f"k/{name}" for name in ("b", "a", "B", "c/d", "a-c", "10", "9", "ä", "z")]
    for key in [*keys, "k2/x"]:
        store.put(key, b"")
    ordered = sorted(keys, key=str.encode)
    assert [entry.key for entry in store.list("k")] == ordered
    for after in ("k/a", "k/a-c", "k/nothing", "k/zz"):
        assert [entry.key for entry in store.list("k", after)] == [key for key in ordered if key > after]


def test_an_object_in_the_making_is_seen_by_nobody_and_one_given_up_leaves_nothing(store: Store) -> None:
    data = bytes(range(256)) * (PART_BYTES // 128) + b"end"  # two parts and a bit
    for size in (3, len(data)):
        writer = store.writer("w/a")
        writer.file.write(data[:size])
        assert list(store.list("w")) == []
        writer.finish()
        assert (writer.size, writer.crc) == (size, zlib.crc32(data[:size]))
        assert store.get("w/a") == data[:size]
        store.delete("w/a")
    writer = store.writer("w/b")
    writer.file.write(data)
    writer.abort()
    assert list(store.list()) == []


def test_of_two_processes_and_of_sixteen_threads_one_wins_each_key(store: Store, tmp_path: Path) -> None:
    rounds = ROUNDS if isinstance(store, LocalStore | S3Store) else ROUNDS_HDFS
    (tmp_path / "racers").mkdir()
    given = tmp_path / "racers" / "store"
    given.write_bytes(dumps(store if isinstance(store, LocalStore) else store.address))  # type: ignore[attr-defined]
    code = (
        "import pickle, sys; from pathlib import Path\n"
        "held = pickle.loads(Path(sys.argv[1]).read_bytes()); store = held.open() if hasattr(held, 'open') else held\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        f"print(*(n for n in range({rounds}) if store.put(f'race/{{n:04d}}', sys.argv[2].encode())))\n"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", code, given, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    for racer in racers:
        assert racer.stdout
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [[int(n) for n in racer.communicate(timeout=120)[0].split()] for racer in racers]
    assert sorted(won[0] + won[1]) == list(range(rounds))
    told = {entry.key: store.get(entry.key) for entry in store.list("race")}
    assert told == {f"race/{n:04d}": name for name, numbers in zip((b"one", b"two"), won, strict=True) for n in numbers}

    at_once = Barrier(16)

    def race(me: int) -> list[int]:
        wins = []
        for n in range(rounds):
            at_once.wait()
            if store.put(f"many/{n:04d}", b"%d" % me):
                wins.append(n)
        return wins

    with ThreadPoolExecutor(16) as threads:
        wins = list(threads.map(race, range(16)))
    assert sorted(n for each in wins for n in each) == list(range(rounds))
    assert all(store.get(f"many/{n:04d}") == b"%d" % me for me, each in enumerate(wins) for n in each)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_empty_variable_names_no_endpoint(server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "")
    store = opened(server, prefix)
    assert store.put("a", b"1")
    assert [entry.key for entry in store.list()] == ["a"]


def test_parts_that_a_killed_process_has_left_are_found_and_go(server: ObjectServer, prefix: str) -> None:
    store = opened(server, prefix)
    uploads = Uploads(store)
    left = PartedWriter(uploads, "a/half")
    left.file.write(b"x" * (PART_BYTES + 5))
    left.finish()
    other = uploads.begin("a/half-2")
    assert {key for key, _ in uploads.unfinished("a/half")} == {"a/half", "a/half-2"}
    store.abandon("a/half")
    assert list(uploads.unfinished()) == [("a/half-2", other)]
    assert not uploads.complete("a/half", left.upload, left.etags)
    assert store.head("a/half") is None


def test_an_upload_that_one_process_began_another_completes_and_once_more(server: ObjectServer, prefix: str) -> None:
    store = opened(server, prefix)
    for data in (b"short", b"y" * (PART_BYTES + 5)):
        key = f"p=ä%2F b/{len(data)}"
        writer = PartedWriter(Uploads(store), key)
        writer.file.write(data)
        writer.finish()
        assert store.head(key) is None
        another = Uploads(opened(server, prefix))
        assert another.complete(key, writer.upload, writer.etags)
        another.complete(key, writer.upload, writer.etags)
        assert store.get(key) == data


def wrong(server: ObjectServer, prefix: str, **more: Any) -> ObjectsAddress:
    return ObjectsAddress.of("kept", SINK.filled(options(server, prefix) | more))


def test_each_mistake_has_its_message_and_none_shows_a_secret(server: ObjectServer, prefix: str) -> None:
    keys = options(server)["config"]
    cases: list[tuple[dict[str, Any], type[Exception], str, str]] = [
        ({"url": "s3://nowhere/x"}, SinkError, "objects-bucket", "create the bucket"),
        ({"config": keys | {"access_key_id": "nobody"}}, SinkError, "objects-login", "correct the access key"),
        ({"config": keys | {"secret_access_key": "wr0ng"}}, SinkError, "objects-login", "correct the access key"),
        ({"region": "eu-west-7"}, SinkError, "objects-login", "region"),
        ({"endpoint": "http://127.0.0.1:9"}, Unreachable, "objects-away", "retries automatically"),
    ]
    for given, kind, code, remedy in cases:
        for ask in (lambda store: store.get("x"), lambda store: store.put("x", b""), lambda store: list(store.list()), _begin):
            with pytest.raises(kind) as told:
                ask(wrong(server, prefix, **given).open())
            assert told.value.code == code, told.value  # type: ignore[attr-defined]
            assert remedy in told.value.remedy  # type: ignore[attr-defined]
            assert keys["secret_access_key"] not in str(told.value)
            assert "wr0ng" not in str(told.value)
            assert 'kept": s3://' in str(told.value)


def _begin(store: Any) -> str:
    return Uploads(store).begin("x")


@pytest.mark.parametrize(
    "url", ["shop/orders", "http://host/x", "s3://", "s3://key:secret@bucket/x", "s3://b/x?y", "s3://b/../x", "file://host/x"]
)
def test_a_url_that_leads_nowhere_is_told(url: str) -> None:
    assert store_url_fault(url, S3_URL) is not None
    with pytest.raises(SinkError) as told:
        ObjectsAddress.of("kept", SINK.filled({"url": url}))
    assert "secret" not in str(told.value)


def test_an_endpoint_that_is_no_address_is_told() -> None:
    with pytest.raises(SinkError, match="is not an address"):
        ObjectsAddress.of("kept", SINK.filled({"url": "s3://b", "endpoint": "127.0.0.1:9000"}))


def test_the_key_of_access_comes_from_the_flow_a_profile_or_the_environment(
    server: ObjectServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(server.credentials))
    assert wrong(server, prefix, config={}).open().put("a", b"1")
    shared = tmp_path / "credentials"
    shared.write_text(server.credentials.read_text().replace("default", "etl"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    assert wrong(server, prefix, config={}, profile="etl").open().get("a") == b"1"
    with pytest.raises(EnvironmentFault, match='no access key of the profile "other"') as told:
        wrong(server, prefix, config={}, profile="other").open()
    assert told.value.code == "objects-login"
    keys = options(server)["config"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["secret_access_key"])
    assert wrong(server, prefix, config={}).open().get("a") == b"1"
    with pytest.raises(SinkError, match="config has no secret_access_key"):
        wrong(server, prefix, config={"access_key_id": "a"}).open()
