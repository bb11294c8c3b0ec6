"""An index as a sink: the contract, what the server refuses, and what a person did wrong."""

from __future__ import annotations

import gzip
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.catalog import open_sink, sink_types
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, RefusedRow
from scribengin.core.errors import Refused, SinkError, Unreachable
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_sink
from scribengin.testing.conformance_keyed import check_store
from scribengin.testing.records import SCHEMA, Records
from tests.connectors.group.alternating import OfferingAlternating
from tests.connectors.opensearch.conftest import both_servers
from tests.connectors.opensearch.doors import listener, not_to
from tests.served import served_by

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.opensearch.conftest import Index

ROWS = Records("conformance", parts=1, rows=6).of(0)
SIMPLE = parse_schema("id BIGINT, name STRING, at TIMESTAMP")


def make(at: Index, folder: Path, **given: Any) -> Any:
    options = sink_types()[at.type].filled(at.options | given)
    return open_sink(at.type, ConnectorContext("out", folder, options, flow="flow", work=folder / "work"))


def both_told(*indexes: Index) -> list[dict[str, Any]]:
    return [document for index in indexes for document in told(index)]


def told(index: Index) -> list[dict[str, Any]]:
    try:
        return index.documents()
    except Exception:  # before the first row there is no index
        return []


@both_servers
def test_the_sink_keeps_the_contract(index: Index, tmp_path: Path) -> None:
    check_sink(
        lambda: make(index, tmp_path), lambda: told(index), schema=parse_schema(SCHEMA), rows=ROWS, declared=sink_types()[index.type]
    )


@pytest.mark.long
def test_a_group_of_two_keeps_the_contract_of_one(index: Index, tmp_path: Path) -> None:
    far = replace(index, name=f"{index.name}-far")
    given = tuple(sink_types()[index.type].filled(each.options) for each in (index, far))
    found = partial(both_told, index, far)
    check_sink(lambda: OfferingAlternating(index.type, given, tmp_path), found, schema=parse_schema(SCHEMA), rows=ROWS)
    assert told(index)
    assert told(far)


def test_a_server_of_ours_makes_indexes_on_a_disk_that_is_nine_tenths_full(index: Index) -> None:
    answer = index.http.get(f"{index.address}/_cluster/settings", params={"include_defaults": "true", "flat_settings": "true"})
    every = answer.json()
    name = "cluster.routing.allocation.disk.threshold_enabled"
    assert next(every[kind][name] for kind in ("transient", "persistent", "defaults") if name in every[kind]) == "false"


@both_servers
def test_the_store_keeps_the_contract(index: Index, tmp_path: Path) -> None:
    store = make(index, tmp_path)._store
    check_store(lambda: store, lambda: told(index), refused={"id": "x", "n": "no number"})


def decided(
    sink: Any, number: int, rows: list[dict[str, Any]], schema: Any = SIMPLE, *, term: int = 1, lineage: str = "lineage-1"
) -> Decided:
    import pyarrow as pa

    from scribengin.core.types import arrow_schema

    batch = BatchId("flow", "query", lineage, number, term)
    stream = sink.stream(batch, 0, f"attempt-{number}", schema)
    ids = [f"source/a+{number}.{index}" for index in range(len(rows))]
    refused = stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema)), ids)
    assert not refused
    return Decided(batch, f"hash-{number}", (stream.close(),))


def rows_of(*ids: int, name: str = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "name": name, "at": None} for id_ in ids]


def offered(sink: Any, batch: Decided) -> list[RefusedRow]:
    refused: list[RefusedRow] = []
    sink.offer(batch, refused.append)
    sink.publish(replace(batch, refused=len(refused)))
    return refused


def test_a_row_that_the_index_does_not_take_is_refused_alone_with_the_servers_words(index: Index, tmp_path: Path) -> None:
    index.ask("PUT", "", {"mappings": {"properties": {"name": {"type": "date"}}}})
    sink = make(index, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    (refusal,) = offered(sink, decided(sink, 0, [*rows_of(1, 2, name="2026-01-01"), *rows_of(3), *rows_of(4, name="2026-01-02")]))
    assert (refusal.id, refusal.reason, refusal.came) == ("source/a+0.2", "refused", b'{"id":3,"name":"ada","at":null}')
    assert "failed to parse field [name] of type [date]" in refusal.message
    assert sorted(row["id"] for row in index.documents()) == [1, 2, 4]
    again = sink.audit(lineage="lineage-1", decided=[replace(decided(sink, 0, rows_of(1, 2, 3, 4)), refused=1)])
    assert [each.violations for each in again] == [()]


def test_of_a_key_the_last_row_stands_and_one_without_a_key_is_refused(index: Index, tmp_path: Path) -> None:
    sink = make(index, tmp_path, mode="upsert", key=["id"])
    sink.prepare(owner="me", lineage="lineage-1")
    offered(sink, decided(sink, 0, [*rows_of(1, 2, 1), *rows_of(1, name="bob")]))
    offered(sink, decided(sink, 1, rows_of(2, name="cleo")))
    assert {row["id"]: row["name"] for row in index.documents()} == {1: "bob", 2: "cleo"}
    with pytest.raises(AssertionError):
        decided(sink, 2, rows_of(None))  # type: ignore[arg-type]


def test_another_lineage_and_rows_of_others_are_refused_and_a_new_one_that_adopts_wins(index: Index, tmp_path: Path) -> None:
    first = make(index, tmp_path, mode="upsert", key=["id"])
    first.prepare(owner="me", lineage="lineage-1")
    one = decided(first, 0, rows_of(1))
    offered(first, one)
    other = make(index, tmp_path, mode="upsert", key=["id"])
    with pytest.raises(Refused, match="rows that this lineage did not write"):
        other.prepare(owner="me", lineage="lineage-2")
    other.prepare(owner="me", lineage="lineage-2", adopt=True)
    with pytest.raises(Exception, match="another lineage has claimed it"):
        first.offer(decided(first, 1, rows_of(1, name="late")), lambda _: None)
    with pytest.raises(Refused, match="a newer lineage has taken it over"):
        first.prepare(owner="me", lineage="lineage-1", adopt=True)
    assert other.clear(owner="me", flow="flow", dry_run=True) == 1
    assert other.clear(owner="me", flow="flow") == 1
    assert told(index) == []


def test_the_rows_of_a_lineage_that_adopts_stand_above_ours_of_before_and_those_of_others_also_of_a_time_to_come(
    index: Index, tmp_path: Path
) -> None:
    later = (time.time_ns() // 1000) + 86_400_000_000
    index.ask("PUT", f"/_doc/%5B1%5D?version={later}&version_type=external", {"id": 1, "name": "theirs"})
    index.ask("PUT", "/_doc/%5B2%5D", {"id": 2, "name": "theirs"})
    for number in (1, 2, 3):
        sink = make(index, tmp_path, mode="upsert", key=["id"])
        sink.prepare(owner="me", lineage=f"lineage-{number}", adopt=True)
        offered(sink, decided(sink, 0, rows_of(1, 2, name=f"ours {number}"), lineage=f"lineage-{number}"))
        assert sorted((row["id"], row["name"]) for row in index.documents()) == [(1, f"ours {number}"), (2, f"ours {number}")]
        sink._store.close()


def test_what_is_there_and_does_not_fit_is_told_before_a_start(index: Index, tmp_path: Path) -> None:
    sink = make(index, tmp_path)
    assert sink.unlike(SIMPLE) == []
    index.ask("PUT", "", {"mappings": {"dynamic": "strict", "properties": {"id": {"type": "boolean"}, "name": {"type": "keyword"}}}})
    assert sink.unlike(SIMPLE) == [
        'field "id" is boolean in the index, but BIGINT in the flow',
        'the index has no mapping for field "at", and accepts no unmapped fields',
    ]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"index": "No Name"}, SinkError, "cannot be created: invalid_index_name_exception"),
        ({"server": ["http://127.0.0.1:9"]}, Unreachable, "does not answer"),
        ({"server": ["127.0.0.1:9200"]}, SinkError, "is not an address"),
        ({"server": ["http://me:hunter2@127.0.0.1:9200"]}, SinkError, "contains a user or a password"),
        ({"config": {"usr": "me"}}, SinkError, '"usr", which is not a known setting'),
    ],
)
def test_what_a_person_did_wrong_is_told(index: Index, tmp_path: Path, given: Any, error: type[Exception], message: str) -> None:
    def write() -> None:
        sink = make(index, tmp_path, **given)
        sink.prepare(owner="me", lineage="lineage-1")
        offered(sink, decided(sink, 0, rows_of(1)))

    with pytest.raises(error, match=message) as told_so:
        write()
    assert "hunter2" not in str(told_so.value)
    assert told_so.value.remedy  # type: ignore[attr-defined]


def test_an_index_that_may_forget_what_it_acknowledged_is_refused(index: Index, tmp_path: Path) -> None:
    index.ask("PUT", "", {"settings": {"index.translog.durability": "async"}})
    sink = make(index, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    with pytest.raises(SinkError, match="acknowledged rows are lost"):
        offered(sink, decided(sink, 0, rows_of(1)))


def test_rows_go_as_they_are_or_gzipped(index: Index, tmp_path: Path) -> None:
    rows = rows_of(*range(500))
    with listener(index.address) as (address, heard):
        for batch, compression in enumerate(("none", "gzip")):
            sink = make(index, tmp_path, server=[address], compression=compression)
            sink.prepare(owner="me", lineage="lineage-1")
            offered(sink, decided(sink, batch, rows))
            sink._store.close()
    (_, as_it_is, plain), (_, said, packed) = [each for each in heard if each[0] == "/_bulk"]
    assert (as_it_is, said) == (None, "gzip")
    unpacked = gzip.decompress(packed)
    assert len(packed) * 4 < len(unpacked)
    assert [line for line in unpacked.splitlines() if b"version_type" not in line] == plain.splitlines()[1::2]
    assert {path for path, encoding, _ in heard if encoding} == {"/_bulk"}
    assert sorted(row["id"] for row in index.documents()) == sorted([*range(500)] * 2)


@pytest.mark.parametrize("name", ["", "-{at:%Y}"])
def test_rows_that_are_sent_again_are_looked_for_and_those_that_are_missing_are_written(index: Index, tmp_path: Path, name: str) -> None:
    rows = [{"id": id_, "name": 'a "name"', "at": datetime(2025 + id_ % 2, 1, 1, tzinfo=UTC)} for id_ in range(6_000)]
    options = {"index": index.name + name, "connections": 1}
    first = make(index, tmp_path / "first", **options)
    first.prepare(owner="me", lineage="lineage-1")
    first.offer(decided(first, 0, rows[:5_000]), [].append)
    with listener(index.address) as (address, heard):
        for folder, most_written in (("second", 5_000), ("third", 1_000)):
            sink = make(index, tmp_path / folder, server=[address], **options)
            sink.prepare(owner="me", lineage="lineage-1")
            heard.clear()
            sink.offer(decided(sink, 0, rows), [].append)
            sink._store.close()
            written = [body.count(b"version_type") for path, _, body in heard if path == "/_bulk"]
            assert written[0] == 1_000
            assert sum(written) <= most_written, "what follows a request that has changed nothing is looked for first"
            assert {path.rpartition("/")[2] for path, _, _ in heard} >= {"_mget", "_flush"}
            index.http.post(f"{index.address}/{index.name}*/_refresh").raise_for_status()
            assert index.http.get(f"{index.address}/{index.name},{index.name}-2*/_count?ignore_unavailable=true").json()["count"] == len(
                rows
            )


@pytest.mark.parametrize("forbidden", ["_flush", "_mget"])
def test_an_index_that_lets_nobody_look_or_flush_is_written_to_all_the_same(index: Index, tmp_path: Path, forbidden: str) -> None:
    first = make(index, tmp_path)
    first.prepare(owner="me", lineage="lineage-1")
    batch = decided(first, 0, rows_of(*range(3_000)))
    first.offer(batch, [].append)
    with listener(index.address, not_to(forbidden)) as (address, heard):
        second = make(index, tmp_path, server=[address], connections=1)
        second.prepare(owner="me", lineage="lineage-1")
        second.offer(batch, [].append)
        second._store.close()
    assert any(path.endswith(forbidden) for path, _, _ in heard)
    assert any(path.endswith("_flush") for path, _, _ in heard), "what stood there before outlives the node"
    assert sum(body.count(b"version_type") for path, _, body in heard if path == "/_bulk") == 3_000
    assert len(index.documents()) == 3_000


def test_of_a_request_with_refused_and_repeated_rows_each_has_its_own_outcome(index: Index, tmp_path: Path) -> None:
    index.ask("PUT", "", {"mappings": {"properties": {"name": {"type": "date"}}}})
    sink = make(index, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    days = [*rows_of(1, 2, name="2026-01-01"), *rows_of(3), *rows_of(4, name="2026-01-02"), *rows_of(5)]
    batch = decided(sink, 0, days)
    for _ in range(2):
        for each in (sink, make(index, tmp_path)):
            each.prepare(owner="me", lineage="lineage-1")
            refused: list[RefusedRow] = []
            each.offer(batch, refused.append)
            assert [refusal.id for refusal in refused] == ["source/a+0.2", "source/a+0.4"]
    assert sorted(row["id"] for row in index.documents()) == [1, 2, 4]


@pytest.mark.parametrize("search", [503, 200])
def test_a_node_that_does_not_know_its_indexes_yet_is_away_and_none_of_them_is_missing(index: Index, tmp_path: Path, search: int) -> None:
    """Before it has read its state a server answers `_refresh` with 404, and `_search` with 503, or when it knows, 200."""
    sink = make(index, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    offered(sink, decided(sink, 0, rows_of(1)))

    class Starting(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_search = "/_search" in self.path
            body = (
                b'{"_shards": {"total": 1}}'
                if is_search
                else b'{"error": {"type": "index_not_found_exception", "reason": "no such index"}}'
            )
            self.send_response(search if is_search else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with served_by(Starting) as address:
        starting = make(index, tmp_path, server=[address])
        with pytest.raises(Unreachable):
            starting.prepare(owner="me", lineage="lineage-1")
        with pytest.raises(Unreachable):
            starting._store.is_empty()
