"""An index whose server is overloaded, full, closed, gone, or lets nobody in: what is told, and that each row is there once afterwards."""

from __future__ import annotations

import json
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from scribengin.connectors.contract import BatchId
from scribengin.connectors.keyed import sink as sending
from scribengin.connectors.opensearch import store
from scribengin.core.errors import SinkError, Unreachable
from scribengin.core.process import within
from scribengin.core.secret import Secret
from tests.connectors.opensearch.doors import listener
from tests.connectors.opensearch.test_sink import SIMPLE, decided, make, offered, rows_of
from tests.connectors.postgres.tls_door import Authority, TlsDoor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.connectors.opensearch.conftest import Index
    from tests.connectors.opensearch.doors import Said

FULL = "disk usage exceeded flood-stage watermark"
LOGIN = {"user": "writer", "password": Secret("hunter2", "env/LOGIN")}
NOT_YOURS = {"type": "security_exception", "reason": "no permissions for [indices:data/write/bulk] and User [writer]"}


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_LOOK_S", 0.0)


def prepared(index: Index, folder: Path, **given: Any) -> Any:
    sink = make(index, folder, **given)
    sink.prepare(owner="me", lineage="lineage-1")
    return sink


def ids(index: Index) -> list[int]:
    return sorted(row["id"] for row in index.documents())


def first_bulks(answers: list[Said]) -> Callable[[str, bytes, Any], Said | None]:
    """To as many bulk requests, one after the other."""
    left = iter(answers)
    return lambda path, body, ask: next(left, None) if path.startswith("/_bulk") else None


def without(body: bytes, chosen: set[int]) -> bytes:
    """A bulk body less the documents with these ids."""
    lines = body.splitlines()
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return b"".join(b"%s\n%s\n" % pair for pair in pairs if json.loads(pair[1])["id"] not in chosen)


def test_a_request_that_is_refused_as_a_whole_for_now_goes_again(index: Index, tmp_path: Path) -> None:
    busy = b'{"error": {"type": "rejected_execution_exception", "reason": "queue"}, "status": 429}'
    with listener(index.address, first_bulks([(429, busy)] * 3)) as (address, heard):
        sink = prepared(index, tmp_path, server=[address], connections=1)
        assert offered(sink, decided(sink, 0, rows_of(*range(40)))) == []
        sink._store.close()
    sizes = [body.count(b"version_type") for path, _, body in heard if path == "/_bulk"]
    assert sizes[0] == 40
    assert max(sizes[3:]) < 40, "less at once"
    assert ids(index) == [*range(40)]


def test_a_server_that_is_not_well_ends_the_try_and_the_next_one_goes_on(index: Index, tmp_path: Path) -> None:
    failing: list[int] = []

    def after_the_fact(path: str, body: bytes, ask: Callable[[str, bytes], Said]) -> Said | None:
        if not path.startswith("/_bulk") or not failing:
            return None
        ask(path, without(body, {number * 10 + 1}))  # what came through before it failed
        return failing.pop(), b"<html>upstream</html>"

    with listener(index.address, after_the_fact) as (address, _):
        sink = prepared(index, tmp_path, server=[address])
        for number, status in enumerate((408, 500, 502, 503, 504)):
            batch = decided(sink, number, rows_of(*range(number * 10, number * 10 + 3)))
            failing.append(status)
            with pytest.raises(Unreachable, match=f"answered POST /_bulk with {status}") as told:
                offered(sink, batch)
            assert told.value.code == "search-away"
            assert "check that the cluster is healthy" in (told.value.remedy or "")
            assert offered(sink, batch) == []
        sink._store.close()
    assert ids(index) == [number * 10 + place for number in range(5) for place in range(3)]


def test_rows_that_are_refused_for_now_go_again_and_no_others(index: Index, tmp_path: Path) -> None:
    left = {3: [429, 503], 4: [503, 429], 9: [429]}
    """the answers to a row before it is taken"""

    def some(path: str, body: bytes, ask: Callable[[str, bytes], Said]) -> Said | None:
        if not path.startswith("/_bulk"):
            return None
        rows = [json.loads(line)["id"] for line in body.splitlines()[1::2]]
        chosen = {id_ for id_ in rows if left.get(id_)}
        if "status" not in urlsplit(path).query:  # an answer in short
            return (200, b'{"errors": true, "items": [{"index": {"error": {"type": "circuit_breaking_exception"}}}]}') if chosen else None
        taken = iter([])
        if chosen != set(rows):
            taken = iter(json.loads(ask(f"{path},items.*.index.status", without(body, chosen))[1])["items"])
        error = {"type": "circuit_breaking_exception", "reason": "too much"}
        refused = {id_: {"index": {"_index": index.name, "status": left[id_].pop(0), "error": error}} for id_ in chosen}
        return 200, json.dumps({"errors": True, "items": [refused[id_] if id_ in chosen else next(taken) for id_ in rows]}).encode()

    with listener(index.address, some) as (address, heard):
        sink = prepared(index, tmp_path, server=[address], connections=1)
        assert offered(sink, decided(sink, 0, rows_of(*range(12)))) == []
        sink._store.close()
    bulks = [[json.loads(line)["id"] for line in body.splitlines()[1::2]] for path, _, body in heard if path == "/_bulk"]
    assert bulks[:2] == [[*range(12)]] * 2, "in short, then in full"
    assert {id_ for rows in bulks[2:] for id_ in rows} == {3, 4, 9}
    assert [sum(rows.count(id_) for rows in bulks[2:]) for id_ in (3, 4, 9)] == [2, 2, 1]
    assert ids(index) == [*range(12)]


@pytest.mark.parametrize(("status", "path"), [(401, "-records/_doc"), (403, "/_bulk")])
def test_who_may_not_in_is_told_and_goes_on_once_he_may(index: Index, tmp_path: Path, status: int, path: str) -> None:
    said = json.dumps({"error": {"type": "security_exception", "reason": "unable to authenticate user [writer]"}, "status": status})
    with listener(index.address, lambda asked, *_: (status, said.encode()) if path in asked else None) as (address, _):
        sink = make(index, tmp_path, server=[address], config=LOGIN)
        batch = decided(sink, 0, rows_of(1, 2))
        with pytest.raises(SinkError, match=rf"with {status}: security_exception: unable to authenticate user \[writer\]") as told:
            sink.prepare(owner="me", lineage="lineage-1") or offered(sink, batch)
        sink._store.close()
    assert_login(told.value)
    assert offered(prepared(index, tmp_path), batch) == []
    assert ids(index) == [1, 2]


def test_rows_that_the_user_may_not_write_are_no_dead_letters(index: Index, tmp_path: Path) -> None:
    """A server that knows users answers a bulk request with 200, and each row with 403."""

    def not_allowed(path: str, body: bytes, _: object) -> Said | None:
        each = {"index": {"_index": index.name, "status": 403, "error": NOT_YOURS}}
        return (200, json.dumps({"errors": True, "items": [each] * (body.count(b"\n") // 2)}).encode()) if "/_bulk" in path else None

    with listener(index.address, not_allowed) as (address, _):
        sink = prepared(index, tmp_path, server=[address], config=LOGIN)
        batch = decided(sink, 0, rows_of(1, 2))
        with pytest.raises(SinkError, match=f"rejected writes to {index.name}: security_exception: no permissions") as told:
            offered(sink, batch)
        sink._store.close()
    assert_login(told.value)
    assert offered(prepared(index, tmp_path), batch) == []
    assert ids(index) == [1, 2]


def assert_login(error: SinkError) -> None:
    assert error.code == "search-login"
    assert (error.remedy or "").startswith("correct `config`: user and password, or api_key")
    assert "hunter2" not in f"{error} {error.remedy}"


def test_a_certificate_that_nobody_trusts_is_told_and_one_that_is_named_is_taken(index: Index, tmp_path: Path) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    ours.give(tmp_path / "server.pem", address="127.0.0.1")
    with TlsDoor(tmp_path / "server.pem", urlsplit(index.address).port or 0) as door:
        url = f"https://127.0.0.1:{door.port}"
        for config in ({}, {"ca": str(others.path)}):
            with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED") as told:
                prepared(index, tmp_path, server=[url], config=config)
            assert told.value.code == "search-trust"
            assert told.value.remedy == "name the CA file that signed its certificate: config: {ca: /path/to/ca.pem}"
        sink = prepared(index, tmp_path, server=[url], config={"ca": str(ours.path)})
        assert offered(sink, decided(sink, 0, rows_of(1))) == []
        sink._store.close()
    assert ids(index) == [1]


def test_a_row_that_is_too_large_for_the_server_is_refused_alone(index: Index, tmp_path: Path) -> None:
    """A request may have 100 MiB, and a text that is looked for as a whole 32,766 bytes."""
    index.ask("PUT", "", {"mappings": {"properties": {"name": {"type": "keyword"}}}})
    sink = prepared(index, tmp_path)
    rows = [*rows_of(0), *rows_of(1, name="x" * 40_000), *rows_of(2, name="x" * (101 << 20))]
    refused = {refusal.id.rpartition(".")[2]: refusal for refusal in offered(sink, decided(sink, 0, rows))}
    assert {place: refusal.reason for place, refusal in refused.items()} == {"1": "refused", "2": "too-large"}
    assert "max length 32766" in refused["1"].message
    assert "rejected a request with only this row" in refused["2"].message
    assert ids(index) == [0]


def test_a_full_disk_makes_the_flow_wait_and_each_row_is_there_once_it_is_not_full_any_more(index: Index, tmp_path: Path) -> None:
    with listener(index.address) as (address, heard):
        sink = prepared(index, tmp_path, server=[address], connections=1)
        assert offered(sink, decided(sink, 0, rows_of(0))) == []
        block(index, full=True)
        batch = decided(sink, 1, rows_of(*range(1, 20)))
        heard.clear()

        def lift() -> None:
            waited.append(within(120, lambda: sum(path == "/_bulk" for path, _, _ in heard) > 3))
            block(index, full=None)

        waited: list[bool] = []

        lifting = Thread(target=lift)
        lifting.start()
        assert offered(sink, batch) == []
        lifting.join()
        assert waited == [True]
        sink._store.close()
    assert ids(index) == [*range(20)]


@pytest.mark.parametrize("kind", ["read_only_allow_delete", "write"])
def test_a_full_disk_that_stays_full_is_told_in_the_servers_words(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """And a block that somebody has made: it says 403, and is no matter of who asks."""
    monkeypatch.setattr(sending, "PATIENCE_S", 0.3)
    sink = prepared(index, tmp_path)
    assert offered(sink, decided(sink, 0, rows_of(0))) == []
    block(index, kind=kind, full=True)
    batch = decided(sink, 1, rows_of(1, 2))
    with pytest.raises(Unreachable, match=r"has accepted no rows for .*cluster_block_exception") as told:
        offered(sink, batch)
    assert told.value.code == "store-overloaded"
    assert "overloaded or full" in (told.value.remedy or "")
    assert (FULL in str(told.value)) == (kind == "read_only_allow_delete")
    block(index, kind=kind, full=None)
    assert offered(sink, batch) == []
    assert ids(index) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["read_only_allow_delete", "write"])
def test_records_on_a_full_disk_are_written_once_there_is_room(index: Index, tmp_path: Path, kind: str) -> None:
    sink = prepared(index, tmp_path)
    batch = decided(sink, 0, rows_of(1))
    sink.offer(batch, [].append)
    block(index, "-records", kind=kind, full=True)
    with pytest.raises(Unreachable, match="cluster_block_exception") as told:
        sink.publish(batch)
    assert told.value.code == "search-away"
    assert "space" in (told.value.remedy or "")
    block(index, "-records", kind=kind, full=None)
    sink.publish(batch)
    assert ids(index) == [1]


def block(index: Index, suffix: str = "", *, full: bool | None, kind: str = "read_only_allow_delete") -> None:
    """As a server does when its disk is full. None: no more. One that looks at its disk would lift the block at once."""
    looks = {"persistent": {"cluster.routing.allocation.disk.threshold_enabled": None if full is None else False}}
    index.http.put(f"{index.address}/_cluster/settings", json=looks).raise_for_status()
    settings = {f"index.blocks.{kind}": full}
    index.http.put(f"{index.address}/{index.name}{suffix}/_settings", json=settings).raise_for_status()


def test_a_cluster_that_makes_no_indexes_for_now_is_full_and_no_matter_of_the_login(index: Index, tmp_path: Path) -> None:
    """As OpenSearch does where the disks of all nodes are."""
    if index.type == "elasticsearch":
        pytest.skip("Elasticsearch has no such block")
    sink = prepared(index, tmp_path)
    batch = decided(sink, 0, rows_of(1))
    for is_blocked in (True, None):
        settings = {"persistent": {"cluster.blocks.create_index": is_blocked}}
        index.http.put(f"{index.address}/_cluster/settings", json=settings).raise_for_status()
        if is_blocked:
            with pytest.raises(Unreachable, match="create-index blocked") as told:
                offered(sink, batch)
            assert told.value.code == "search-away"
            assert "free disk space" in (told.value.remedy or "")
    assert offered(sink, batch) == []
    assert ids(index) == [1]


@pytest.mark.parametrize("when", ["before a batch", "within a batch"])
def test_an_index_that_is_deleted_meanwhile_is_told_and_not_made_again_without_a_word(index: Index, tmp_path: Path, when: str) -> None:
    """A request to an index that is not there makes one, as the server thinks fit."""

    def delete(path: str, *_: object) -> Said | None:
        if when == "within a batch" and path.startswith("/_bulk") and sum(said == "/_bulk" for said, _, _ in heard) == 2:
            index.ask("DELETE", "")
        return None

    with listener(index.address, delete) as (address, heard):
        sink = prepared(index, tmp_path, server=[address], connections=1)
        assert offered(sink, decided(sink, 0, rows_of(0))) == []
        if when == "before a batch":
            index.ask("DELETE", "")
        with pytest.raises(SinkError, match=f"{index.name} at .* does not exist any more") as told:
            offered(sink, decided(sink, 1, rows_of(*range(1, 3_000))))
        sink._store.close()
    assert told.value.code == "search-index"
    assert "restore it" in (told.value.remedy or "")
    assert "scribengin reset FLOW --outputs" in (told.value.remedy or "")


def test_a_closed_index_is_told_and_no_row_is_a_dead_letter(index: Index, tmp_path: Path) -> None:
    sink = prepared(index, tmp_path)
    assert offered(sink, decided(sink, 0, rows_of(0))) == []
    index.ask("POST", "/_close")
    batch = decided(sink, 1, rows_of(1))
    with pytest.raises(SinkError, match="is closed") as told:
        offered(sink, batch)
    assert (told.value.code, told.value.remedy) == ("search-index", "open it: POST /INDEX/_open")
    index.ask("POST", "/_open?wait_for_active_shards=1")
    assert offered(sink, batch) == []
    assert ids(index) == [0, 1]


def test_a_null_in_the_key_is_a_dead_letter_that_names_the_column(index: Index, tmp_path: Path) -> None:
    import pyarrow as pa

    from scribengin.core.types import arrow_schema

    sink = prepared(index, tmp_path, mode="upsert", key=["name", "id"])
    stream = sink.stream(BatchId("flow", "query", "lineage-1", 0, 1), 0, "attempt", SIMPLE)
    rows = [*rows_of(1), {"id": None, "name": "ada", "at": None}, *rows_of(3)]
    (bad,) = stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SIMPLE)), ["a+1", "a+2", "a+3"])
    assert (bad.ordinal, bad.reason, bad.message) == (1, "null-key", 'the key column "id" is null: the row has no id')
    assert stream.close().rows == 2
