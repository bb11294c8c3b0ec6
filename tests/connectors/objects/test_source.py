"""The source against a real server, without Spark: the contract, what a look lists, and objects that change or go."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.object_stores import opened, options
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.objects import reader as reading
from scribengin.connectors.objects.options import SOURCE
from scribengin.connectors.objects.sink import ObjectsSink
from scribengin.connectors.objects.source import ObjectsSource
from scribengin.core.errors import SinkError, SourceError
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.store import Store, StoreEntry
    from scribengin.embedded.objects import ObjectServer

SCHEMA = parse_schema("id BIGINT, name STRING")


@pytest.fixture
def store(server: ObjectServer, prefix: str) -> Store:
    return opened(server, prefix)


def source(server: ObjectServer, prefix: str, **more: Any) -> ObjectsSource:
    given = options(server, prefix, format="json") | more
    schema = None if given["format"] in ("parquet", "text") else SCHEMA
    return ObjectsSource(ConnectorContext("orders", Path("/nowhere"), SOURCE.filled(given), schema=schema, flow="flow"))


def lines(*ids: int) -> bytes:
    return b"".join(json.dumps({"id": id_, "name": f"n{id_}"}).encode() + b"\n" for id_ in ids)


def ids_of(source: ObjectsSource, streams: Any) -> list[int]:
    return [row["id"] for stream in streams for block in source.read(stream) for row in source.decoder().columns(block).batch.to_pylist()]


def test_it_keeps_the_contract_whatever_the_format(server: ObjectServer, store: Store, prefix: str) -> None:
    table = pa.table({"id": list(range(50)), "name": [f"n{n}" for n in range(50)]})
    sunk = pa.BufferOutputStream()
    pq.write_table(table, sunk, row_group_size=10)
    for name, data, given in (
        ("json", lines(*range(40_000)), {"split": 65536}),
        ("gz", gzip.compress(lines(*range(50))), {}),
        ("csv", b"id,name\n" + b"".join(b"%d,n%d\n" % (n, n) for n in range(50)), {"format": "csv"}),
        ("parquet", sunk.getvalue().to_pybytes(), {"format": "parquet", "split": 65536}),
        ("text", b"".join(b"%d\n" % n for n in range(50)), {"format": "text"}),
    ):
        for nth in range(3):
            store.put(f"{name}/{nth}.{'jsonl.gz' if name == 'gz' else name}", data)
        for names in ("any", "sorted"):
            check_source(source(server, f"{prefix}/{name}", names=names, **given))


def test_each_object_is_taken_once_and_hidden_empty_or_others_are_not(server: ObjectServer, store: Store, prefix: str) -> None:
    for key, data in (("a/1.jsonl", lines(1)), ("b/2.jsonl", lines(2)), ("_x/3.jsonl", lines(3)), ("a/.4", b"x"), ("a/5.jsonl", b"")):
        store.put(key, data)
    store.put("a/6.csv", b"6")
    orders = source(server, prefix, match="**/*.jsonl")
    reader = orders.reader()
    first = reader.split(BatchLimits(max_files=1))
    assert (ids_of(orders, first), reader.backlog().files) == ([1], 1)
    assert ids_of(orders, reader.split(BatchLimits())) == [2]
    store.put("a/7.jsonl", lines(7))
    assert reader.split(BatchLimits()) == [], "it has looked just now"
    assert ids_of(orders, reader.split(BatchLimits(), final=True)) == [7]
    again = orders.reader()
    again.restore([first])
    assert sorted(ids_of(orders, again.split(BatchLimits(), final=True))) == [2, 7]


def test_where_names_are_sorted_a_look_lists_only_what_is_new(
    server: ObjectServer, store: Store, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "KEPT", 5)
    for n in range(20):
        store.put(f"{n:03d}", lines(n))
    orders = source(server, prefix, names="sorted")
    reader = orders.reader()
    listed: list[str] = []
    plain = type(reader._store).list

    def counted(self: Any, folder: str = "", after: str = "") -> Iterator[StoreEntry]:
        for entry in plain(self, folder, after):
            listed.append(entry.key)
            yield entry

    monkeypatch.setattr(type(reader._store), "list", counted)
    taken = reader.split(BatchLimits(), final=True)
    assert ids_of(orders, taken) == list(range(20))
    listed.clear()
    store.put("020", lines(20))
    store.put("0165", lines(165))  # late, and among the last that are kept in mind
    assert ids_of(orders, reader.split(BatchLimits(), final=True)) == [165, 20]
    assert len(listed) == 7
    again = orders.reader()
    again.restore([taken])
    listed.clear()
    assert ids_of(orders, again.split(BatchLimits(), final=True)) == [165, 20]
    assert len(listed) == 7
    every = source(server, prefix).reader()
    every.restore([taken])
    listed.clear()
    every.split(BatchLimits(), final=True)
    assert len(listed) == 22


def test_many_keys_at_each_look_are_told_with_the_way_out(
    server: ObjectServer, store: Store, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MANY", 2)
    for n in range(3):
        store.put(f"{n:03d}", lines(n))
    reader = source(server, prefix).reader()
    reader.split(BatchLimits(), final=True)
    (told,) = reader.notices()
    assert "lists 3 keys" in told
    assert "names: sorted" in told


def test_an_object_that_changes_or_goes_is_told(server: ObjectServer, store: Store, prefix: str) -> None:
    store.put("a.jsonl", lines(1, 2))
    orders, lax = source(server, prefix), source(server, prefix, on_change="ignore")
    reader, lax_reader = orders.reader(), lax.reader()
    streams = reader.split(BatchLimits(), final=True)
    lax_reader.split(BatchLimits(), final=True)
    store.delete("a.jsonl")
    with pytest.raises(SourceError, match=r"a\.jsonl is missing; it had"):
        ids_of(orders, streams)
    store.put("a.jsonl", lines(1, 3))  # as long as before
    with pytest.raises(SourceError, match=r"a\.jsonl changed after it was assigned"):
        ids_of(orders, streams)
    with pytest.raises(SourceError, match=r"a\.jsonl changed after it was assigned"):
        reader.split(BatchLimits(), final=True)
    assert lax_reader.split(BatchLimits(), final=True) == []
    assert "the change is ignored" in lax_reader.notices()[0]
    store.delete("a.jsonl")
    store.put("a.jsonl", lines(1, 2))
    assert ids_of(orders, streams) == [1, 2]


def test_a_line_of_a_part_says_its_number_in_the_object(server: ObjectServer, store: Store, prefix: str) -> None:
    store.put("a.jsonl", lines(*range(10_000)))
    orders = source(server, prefix, split=65536)
    streams = orders.reader().split(BatchLimits(), final=True)
    assert len(streams) > 2
    block = next(orders.read(streams[1]))
    place = block.place(0)
    assert json.loads(block.payload(0))["id"] == (place.line or 0) - 1
    assert place.file.endswith("/a.jsonl")


def test_columns_of_parquet_come_from_the_first_object(server: ObjectServer, store: Store, prefix: str) -> None:
    with pytest.raises(SourceError, match="holds no Parquet object"):
        source(server, prefix, format="parquet").resolve_schema()
    sunk = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), sunk)
    store.put("a.parquet", sunk.getvalue().to_pybytes())
    assert source(server, prefix, format="parquet").resolve_schema().names == ("id", "name")


def test_what_a_sink_writes_by_manifest_is_no_source(server: ObjectServer, store: Store, prefix: str) -> None:
    sink = ObjectsSink(ConnectorContext("kept", Path("/nowhere"), {**_sink(server, prefix)}, flow="flow"))
    sink.prepare(owner="me", lineage="one")
    store.put("data/part-1", b"x")
    with pytest.raises(SourceError, match="only its manifests say which objects are committed") as told:
        source(server, prefix).reader()
    assert "visible: listing" in told.value.remedy


def test_a_bucket_that_is_not_there_is_told(server: ObjectServer) -> None:
    with pytest.raises(SinkError) as told:
        source(server, "x", url="s3://nowhere/x").reader()
    assert told.value.code == "objects-bucket"


def _sink(server: ObjectServer, prefix: str) -> dict[str, Any]:
    from scribengin.connectors.objects.options import SINK

    return SINK.filled(options(server, prefix, format="json"))
