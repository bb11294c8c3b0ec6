"""A table of HBase as a sink: the contract, cells and row keys, what the server refuses, and what a person did wrong."""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.catalog import open_sink, sink_types
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, RefusedRow
from scribengin.core.errors import Refused, SinkError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from scribengin.testing.conformance_keyed import check_store
from scribengin.testing.records import SCHEMA, Records
from tests.connectors.group.alternating import OfferingAlternating
from tests.connectors.hbase.conftest import BOTH

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.hbase.conftest import Table

ROWS = Records("conformance", parts=1, rows=6).of(0)
SIMPLE = parse_schema("id BIGINT, name STRING, at TIMESTAMP")
LARGE = "x" * (10 << 20)
"""with its key and column more than a cell may have"""


def make(at: Table, folder: Path, **given: Any) -> Any:
    options = sink_types()["hbase"].filled(at.options | given)
    return open_sink("hbase", ConnectorContext("out", folder, options, flow="flow", work=folder / "work"))


def decided(
    sink: Any, number: int, rows: list[dict[str, Any]], schema: Any = SIMPLE, *, term: int = 1, lineage: str = "lineage-1"
) -> Decided:
    batch = BatchId("flow", "query", lineage, number, term)
    stream = sink.stream(batch, 0, f"attempt-{number}", schema)
    ids = [f"source/a+{number}.{index}" for index in range(len(rows))]
    refused = stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema)), ids)
    assert not refused
    return Decided(batch, f"hash-{number}", (stream.close(),))


def rows_of(*ids: int, name: str | None = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "name": name, "at": None} for id_ in ids]


def offered(sink: Any, batch: Decided) -> list[RefusedRow]:
    refused: list[RefusedRow] = []
    sink.offer(batch, refused.append)
    sink.publish(replace(batch, refused=len(refused)))
    return refused


def written(at: Table, folder: Path, rows: list[dict[str, Any]], schema: Any = SIMPLE, **given: Any) -> list[RefusedRow]:
    sink = make(at, folder, **given)
    sink.prepare(owner="me", lineage="lineage-1")
    return offered(sink, decided(sink, 0, rows, schema))


def typed(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Rows of the conformance suite, as they were before they were text."""
    from scribengin.formats.json_out import json_lines

    schema = arrow_schema(parse_schema(SCHEMA))
    known = {}
    for row in ROWS:
        batch = pa.RecordBatch.from_pylist([row], schema=schema)
        known[row["seq"]] = (row, json_lines(batch))
    return [known[int(row["seq"])][0] for row in rows]


@BOTH
def test_the_sink_keeps_the_contract(table: Table, tmp_path: Path) -> None:
    check_sink(
        lambda: make(table, tmp_path), lambda: typed(table.rows()), schema=parse_schema(SCHEMA), rows=ROWS, declared=sink_types()["hbase"]
    )


@pytest.mark.long
def test_a_group_of_two_tables_keeps_the_contract_of_one(table: Table, tmp_path: Path) -> None:
    far = replace(table, name=f"{table.name}far")
    given = tuple(sink_types()["hbase"].filled(each.options) for each in (table, far))

    def found() -> list[dict[str, Any]]:
        return typed([*table.rows(), *far.rows()])

    check_sink(lambda: OfferingAlternating("hbase", given, tmp_path), found, schema=parse_schema(SCHEMA), rows=ROWS)
    assert table.rows()
    assert far.rows()


@BOTH
def test_the_store_keeps_the_contract(table: Table, tmp_path: Path) -> None:
    store = make(table, tmp_path)._store

    def told() -> list[dict[str, Any]]:
        return [{"id": row["id"], "n": int(row["n"])} for row in table.rows()]

    check_store(lambda: store, told, refused={"id": LARGE, "n": 1}, ties=False)


@BOTH
def test_values_are_text_or_what_hbases_own_class_makes_of_them(table: Table, tmp_path: Path) -> None:
    schema = parse_schema(
        "k STRING, b BOOLEAN, i INT, n BIGINT, d DOUBLE, m DECIMAL(6, 2), at TIMESTAMP, day DATE, raw BINARY, many ARRAY<INT>, none INT"
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    row: dict[str, Any] = {"k": "ü", "b": True, "i": -2, "n": 2**40, "d": 2.0, "at": at, "day": at.date(), "raw": b"\0\xff", "many": [1, 2]}
    batch = pa.RecordBatch.from_pylist([row | {"none": None}], schema=arrow_schema(schema))
    row["m"] = batch.schema.field("m").type and pa.scalar("1.50").cast(batch.schema.field("m").type).as_py()
    others = {"k": "w", **dict.fromkeys(schema.names[1:])}
    columns = {"i": "e:count"}
    assert written(table, tmp_path, [row, others], schema, mode="upsert", key=["k"], columns=columns) == []
    found = table.cells()
    assert found["ü"] == {
        "d:k": "ü".encode(),
        "d:b": b"true",
        "e:count": b"-2",
        "d:n": b"1099511627776",
        "d:d": b"2.0",
        "d:m": b"1.50",
        "d:at": b"2026-01-02T03:04:05.678000Z",
        "d:day": b"2026-01-02",
        "d:raw": b"\0\xff",
        "d:many": b"[1,2]",
        "d:none": b"",
    }
    assert set(found["w"]) == set(found["ü"])
    assert {value for column, value in found["w"].items() if column != "d:k"} == {b""}
    binary = replace_name(table)
    assert written(binary, tmp_path / "binary", [row, others], schema, mode="upsert", key=["k"], values="binary") == []
    cells = binary.cells()["ü"]
    assert cells["d:b"] == b"\xff"
    assert cells["d:i"] == struct.pack(">i", -2)
    assert cells["d:n"] == struct.pack(">q", 2**40)
    assert cells["d:d"] == struct.pack(">d", 2.0)
    assert cells["d:at"] == struct.pack(">q", int(at.timestamp() * 1000))
    assert (cells["d:m"], cells["d:day"], cells["d:none"]) == (b"1.50", b"2026-01-02", b"")
    assert {value for column, value in binary.cells()["w"].items() if column != "d:k"} == {b""}


def replace_name(table: Table) -> Table:
    return replace(table, name=f"{table.name}b")


@BOTH
def test_a_row_key_is_what_the_template_makes_of_the_key(table: Table, tmp_path: Path) -> None:
    rows = [*rows_of(7, 12), *rows_of(7, name="a/b*,+ %ü"), *rows_of(3, name="ada-1"), *rows_of(-3, name="")]
    torn, *others = written(table, tmp_path, rows, mode="upsert", key=["name", "id"], row="{name:reverse}-{id:5}")
    assert (torn.id, torn.reason, others) == ("source/a+0.3", "refused", [])
    assert 'column "name" contains "-", the separator in `row`' in torn.message
    assert list(table.cells()) == ["--0003", "ada-00007", "ada-00012", "ü% +,*b/a-00007"]
    sink = make(table, tmp_path, mode="upsert", key=["name", "id"], row="{name:reverse}-{id:5}")
    assert sink.clear(owner="me", flow="flow") == 4
    assert table.cells() == {}


def test_a_value_that_is_null_now_takes_the_place_of_the_one_before(table: Table, tmp_path: Path) -> None:
    sink = make(table, tmp_path, mode="upsert", key=["id"])
    sink.prepare(owner="me", lineage="lineage-1")
    offered(sink, decided(sink, 0, [*rows_of(1, 2, 1), *rows_of(1, name="bob")]))
    offered(sink, decided(sink, 1, rows_of(2, name=None)))
    assert {key: row["d:name"] for key, row in table.cells().items()} == {"[1]": b"bob", "[2]": b""}


@BOTH
def test_rows_that_the_server_never_takes_are_refused_alone(table: Table, tmp_path: Path) -> None:
    rows = [*rows_of(*range(20)), *rows_of(20, name=LARGE), *rows_of(*range(21, 30)), *rows_of(30, name=LARGE), *rows_of(31)]
    first, second = written(table, tmp_path, rows)
    assert [first.id, first.reason, second.id] == ["source/a+0.20", "too-large", "source/a+0.30"]
    assert "KeyValue size too large" in first.message
    assert "hbase.client.keyvalue.maxsize" in first.message
    assert first.came.startswith(b'{"id":20,"name":"xxx')
    assert sorted(int(row["id"]) for row in table.rows()) == [*range(20), *range(21, 30), 31]
    sink = make(table, tmp_path)
    # each under the version of its place in the Batch, whatever was cut out of its request
    versions = sorted(version for some in sink._store.versions() for version in some)
    assert [version - versions[0] for version in versions] == [*range(20), *range(21, 30), 31]
    again = sink.audit(lineage="lineage-1", decided=[replace(decided(sink, 0, rows), refused=2)])
    assert [each.violations for each in again] == [()]


@pytest.mark.parametrize(
    ("row", "name", "told", "kept"),
    [
        ("{name}", "", ("refused", "the row key is empty"), ["ada", "bob"]),
        ("{name}/{name}", "k" * 20_000, ("too-large", "the row key has 40001 bytes; the maximum is 32767"), ["ada/ada", "bob/bob"]),
    ],
)
def test_rows_without_a_row_key_that_the_server_takes_are_refused_alone(
    table: Table, tmp_path: Path, row: str, name: str, told: tuple[str, str], kept: list[str]
) -> None:
    rows = [*rows_of(1), *rows_of(2, name=name), *rows_of(4, name="bob")]
    (refused,) = written(table, tmp_path, rows, mode="upsert", key=["name"], row=row)
    assert (refused.id, refused.reason, refused.message) == ("source/a+0.1", *told)
    assert list(table.cells()) == kept


def test_a_row_whose_key_is_null_has_no_id(table: Table, tmp_path: Path) -> None:
    stream = make(table, tmp_path, mode="upsert", key=["name"]).stream(BatchId("flow", "query", "lineage-1", 1, 1), 0, "a", SIMPLE)
    nulls = pa.RecordBatch.from_pylist(rows_of(1, name=None), schema=arrow_schema(SIMPLE))
    assert [(bad.reason, bad.message) for bad in stream.write(nulls, ["source/a+1"])] == [
        ("null-key", 'the key column "name" is null: the row has no id')
    ]


@BOTH
def test_another_lineage_and_rows_of_others_are_refused_and_a_new_one_that_adopts_wins(table: Table, tmp_path: Path) -> None:
    first = make(table, tmp_path, mode="upsert", key=["id"])
    first.prepare(owner="me", lineage="lineage-1")
    one = decided(first, 0, rows_of(1))
    offered(first, one)
    other = make(table, tmp_path, mode="upsert", key=["id"])
    with pytest.raises(Refused, match="rows that this lineage did not write"):
        other.prepare(owner="me", lineage="lineage-2")
    other.prepare(owner="me", lineage="lineage-2", adopt=True)
    with pytest.raises(Exception, match="another lineage has claimed it"):
        first.offer(decided(first, 1, rows_of(1, name="late")), lambda _: None)
    with pytest.raises(Refused, match="a newer lineage has taken it over"):
        first.prepare(owner="me", lineage="lineage-1", adopt=True)
    assert other.clear(owner="me", flow="flow", dry_run=True) == 1
    assert other.clear(owner="me", flow="flow") == 1
    assert table.cells() == {}
    # what was deleted is remembered under its version: who comes next must be above
    third = make(table, tmp_path, mode="upsert", key=["id"])
    third.prepare(owner="me", lineage="lineage-1b")
    batch = replace(decided(third, 0, rows_of(1)), batch=BatchId("flow", "query", "lineage-1b", 0, 1))
    (tmp_path / "work/lineage-1").rename(tmp_path / "work/lineage-1b")
    offered(third, batch)
    assert [row["id"] for row in table.rows()] == ["1"]
    table.put("theirs", "d:id", "9")
    theirs = replace(table, name=f"{table.name}b")
    theirs.make()
    theirs.put("theirs", "d:id", "9")
    with pytest.raises(Refused, match="rows that this lineage did not write"):
        make(theirs, tmp_path).prepare(owner="me", lineage="lineage-1")


def test_the_rows_of_a_lineage_that_adopts_stand_above_ours_of_before_and_those_of_others_also_of_a_time_to_come(
    table: Table, tmp_path: Path
) -> None:
    later = (time.time_ns() // 1000) + 86_400_000_000
    table.make()
    table.put_rows({b"[1]": {"d:id": b"1", "d:name": b"theirs"}}, timestamp=later)
    table.put_rows({b"[2]": {"d:id": b"2", "d:name": b"theirs"}})
    for number in (1, 2, 3):
        sink = make(table, tmp_path, mode="upsert", key=["id"])
        sink.prepare(owner="me", lineage=f"lineage-{number}", adopt=True)
        offered(sink, decided(sink, 0, rows_of(1, 2, name=f"ours {number}"), lineage=f"lineage-{number}"))
        assert sorted((int(row["id"]), row["name"]) for row in table.rows()) == [(1, f"ours {number}"), (2, f"ours {number}")]
        sink._store.close()


@BOTH
def test_what_does_not_fit_is_told_before_a_start(table: Table, tmp_path: Path) -> None:
    assert make(table, tmp_path).unlike(SIMPLE) == []
    table.make("d", "short", TTL="86400", table={"DURABILITY": "ASYNC_WAL"})
    short, lost = make(table, tmp_path).unlike(SIMPLE)
    assert 'column family "d" has TTL 86400' in short
    assert "DURABILITY ASYNC_WAL" in lost
    missing = make(table, tmp_path, family="e").unlike(SIMPLE)
    assert missing[0] == 'the table has no column family "e"; it has d, short'
    with pytest.raises(SinkError, match="would never expire"):
        written(table, tmp_path, rows_of(1))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"columns": {"nam": "d:n"}}, '`columns` names "nam", which the flow does not have'),
        ({"columns": {"name": "n"}}, 'column "name" goes to "n", which is not FAMILY:QUALIFIER'),
        ({"columns": {"name": "d:id"}}, 'columns "id" and "name" go to the same cell, d:id'),
        ({"mode": "upsert", "key": ["id"], "row": "{id}-{name}"}, '`row` names "name", which is not in `key`'),
        ({"mode": "upsert", "key": ["id", "name"], "row": "{id}"}, '`row` does not contain "name", a part of `key`'),
        ({"mode": "upsert", "key": ["id"], "row": "{id:x}"}, '`row` has "{id:x}": after the colon, expected a number of digits or reverse'),
        ({"mode": "upsert", "key": ["id"], "row": "{id}}"}, '`row` has "}" has a brace without a column name'),
        ({"row": "{id}"}, '`row` names "id", which is not in `key`'),
    ],
)
def test_a_mapping_that_cannot_be_is_told_before_a_start(table: Table, tmp_path: Path, given: Any, said: str) -> None:
    (found,) = make(table, tmp_path, **given).unlike(SIMPLE)
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"table": "no name"}, SinkError, '`table` is "no name", which is not a valid table name'),
        ({"table": "nowhere:orders"}, SinkError, "cannot be created: there is no namespace nowhere"),
        ({"server": ["http://127.0.0.1:9"]}, Unreachable, "does not answer"),
        ({"server": ["127.0.0.1:8080"]}, SinkError, "is not an address"),
        ({"server": ["http://me:hunter2@127.0.0.1:8080"]}, SinkError, "contains a user or a password"),
        ({"config": {"usr": "me"}}, SinkError, '"usr", which is not a known setting'),
        ({"server": ["thrift://127.0.0.1:9"]}, Unreachable, "does not answer"),
        ({"server": ["thrift:127.0.0.1:8080"]}, SinkError, "is not an address of a Thrift server"),
        ({"server": ["thrift://a:port"]}, SinkError, "is not an address of a Thrift server"),
        ({"server": ["thrift://a:9090", "http://b:8080"]}, SinkError, '"http://b:8080", which is not an address of a Thrift server'),
        ({"server": ["thrift://me:hunter2@127.0.0.1:8080"]}, SinkError, "contains a user or a password"),
        ({"server": ["thrift://a:9090"], "config": {"user": "me"}}, SinkError, '"user", which a Thrift server does not support'),
    ],
)
def test_what_a_person_did_wrong_is_told(table: Table, tmp_path: Path, given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as told_so:
        written(table, tmp_path, rows_of(1), **given)
    assert "hunter2" not in str(told_so.value)
    assert told_so.value.remedy  # type: ignore[attr-defined]


@BOTH
def test_a_table_that_is_dropped_meanwhile_stops_the_sink(table: Table, tmp_path: Path) -> None:
    sink = make(table, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    offered(sink, decided(sink, 0, rows_of(1)))
    table.http.delete(f"{table.address}/{table.name}/schema").raise_for_status()
    with pytest.raises(SinkError, match=r"does not accept rows any more: ") as told:
        offered(sink, decided(sink, 1, rows_of(2)))
    assert "restore it, or start over" in told.value.remedy
