"""A table of Cassandra as a sink: the contract, what the server refuses, and what a person did wrong."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest

from scribengin.connectors.catalog import open_sink, sink_types
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, RefusedRow
from scribengin.connectors.keyed.contract import KeyedRows
from scribengin.core.errors import Refused, SinkError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from scribengin.testing.conformance_keyed import check_store
from scribengin.testing.records import SCHEMA, Records
from tests.connectors.group.alternating import OfferingAlternating
from tests.connectors.postgres.tls_door import Authority, TlsDoor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.cassandra.conftest import Keyspace

ROWS = Records("conformance", parts=1, rows=6).of(0)
COLUMNS = tuple(parse_schema(SCHEMA).names)
SIMPLE = parse_schema("id BIGINT, name STRING, at TIMESTAMP")


def make(at: Keyspace, folder: Path, **given: Any) -> Any:
    options = sink_types()["cassandra"].filled(at.options | given)
    return open_sink("cassandra", ConnectorContext("out", folder, options, flow="flow", work=folder / "work"))


def test_the_sink_keeps_the_contract(space: Keyspace, tmp_path: Path) -> None:
    def told() -> list[dict[str, Any]]:
        return [{name: row[name] for name in COLUMNS} for row in space.rows()]

    check_sink(lambda: make(space, tmp_path), told, schema=parse_schema(SCHEMA), rows=ROWS, declared=sink_types()["cassandra"])


@pytest.mark.long
def test_a_group_of_two_tables_keeps_the_contract_of_one(space: Keyspace, tmp_path: Path) -> None:
    tables = ("kept", "far")
    given = tuple(sink_types()["cassandra"].filled(space.options | {"table": table}) for table in tables)

    def found() -> list[dict[str, Any]]:
        return [{name: row[name] for name in COLUMNS} for table in tables for row in space.rows(table)]

    check_sink(lambda: OfferingAlternating("cassandra", given, tmp_path), found, schema=parse_schema(SCHEMA), rows=ROWS)
    assert all(map(space.rows, tables))


def test_the_store_keeps_the_contract(space: Keyspace, tmp_path: Path) -> None:
    check_store(lambda: make(space, tmp_path, mode="upsert", key=["id"])._store, space.rows, refused={"id": "", "n": 666}, ties=False)


def decided(
    sink: Any, number: int, rows: list[dict[str, Any]], schema: Any = SIMPLE, *, term: int = 1, lineage: str = "lineage-1"
) -> Decided:
    batch = BatchId("flow", "query", lineage, number, term)
    stream = sink.stream(batch, 0, f"attempt-{number}", schema)
    ids = [f"source/a+{number}.{index}" for index in range(len(rows))]
    assert not stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema)), ids)
    return Decided(batch, f"hash-{number}", (stream.close(),))


def rows_of(*ids: int, name: str | None = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "name": name, "at": None} for id_ in ids]


def offered(sink: Any, batch: Decided) -> list[RefusedRow]:
    refused: list[RefusedRow] = []
    sink.offer(batch, refused.append)
    sink.publish(replace(batch, refused=len(refused)))
    return refused


def test_of_a_key_the_last_row_stands_whole_and_a_batch_that_comes_again_changes_nothing(space: Keyspace, tmp_path: Path) -> None:
    sink = make(space, tmp_path, mode="upsert", key=["name", "id"])
    sink.prepare(owner="me", lineage="lineage-1")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    first = decided(sink, 0, [{"id": 1, "name": "ada", "at": at}, {"id": 1, "name": "ada", "at": None}, *rows_of(2, 3)])
    sink.offer(first, lambda _: None)
    before = space.rows()
    sink.offer(first, lambda _: None)
    assert space.rows() == before
    sink.publish(first)
    assert [(row["id"], row["at"]) for row in before] == [(1, None), (2, None), (3, None)]
    offered(sink, decided(sink, 1, [{"id": 2, "name": "ada", "at": at}]))
    assert [row["at"] is None for row in space.rows()] == [True, False, True]
    asked = "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = %s AND table_name = 'kept'"
    kinds = {row["column_name"]: row["kind"] for row in space.session.execute(asked, (space.name,))}
    assert kinds == {"name": "partition_key", "id": "clustering", "at": "regular"}


def test_a_row_that_the_table_does_not_take_is_refused_alone_with_the_servers_words(space: Keyspace, tmp_path: Path) -> None:
    space.ask("CREATE TABLE kept (record text PRIMARY KEY, version bigint, id bigint, name ascii, at timestamp)")
    sink = make(space, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    batch = decided(sink, 0, [*rows_of(1, 2), *rows_of(3, name="ü"), *rows_of(4), *rows_of(5, name="x" * (5 << 20))])
    first, second = offered(sink, batch)
    assert (first.id, first.reason, first.came) == ("source/a+0.2", "refused", '{"id":3,"name":"ü","at":null}'.encode())
    assert "kept rejected the row: Invalid byte for ascii" in first.message
    assert (second.id, second.reason) == ("source/a+0.4", "too-large")
    assert sorted(row["id"] for row in space.rows()) == [1, 2, 4]
    assert [row["record"] for row in space.rows() if row["id"] == 4] == ["source/a+0.3"]
    assert [each.violations for each in sink.audit(lineage="lineage-1", decided=[replace(batch, refused=2)])] == [()]
    space.ask("DELETE FROM kept WHERE record = 'source/a+0.3'")
    (told,) = sink.audit(lineage="lineage-1", decided=[replace(batch, refused=2)])
    assert "expected 3 rows in table" in told.violations[0]
    assert "found 2" in told.violations[0]


EVERY = parse_schema(
    "id BIGINT, b BOOLEAN, t TINYINT, s SMALLINT, i INT, f FLOAT, d DOUBLE, n DECIMAL(10,2), text STRING, u STRING, raw BINARY, day DATE, "
    "at TIMESTAMP, list ARRAY<INT>, map MAP<STRING, BIGINT>, deep STRUCT<a: INT>, wide INT"
)


def test_values_of_each_type_come_back(space: Keyspace, tmp_path: Path) -> None:
    space.ask(
        "CREATE TABLE kept (id bigint PRIMARY KEY, b boolean, t tinyint, s smallint, i int, f float, d double, n decimal, text text, "
        "u uuid, raw blob, day date, at timestamp, list frozen<list<int>>, map map<text, bigint>, deep text, wide varint)"
    )
    sink = make(space, tmp_path, mode="upsert", key=["id"])
    assert sink.unlike(EVERY) == []
    sink.prepare(owner="me", lineage="lineage-1")
    uuid = "4f2c0f7e-5a0f-4d0e-9f41-5d2b8f0f6a11"
    row = {
        "id": -1, "b": True, "t": -128, "s": -2, "i": 2**31 - 1, "f": 0.5, "d": -0.1, "n": Decimal("-12345678.90"), "text": "üx", "u": uuid,
        "raw": b"\0\xff", "day": date(1969, 12, 31), "at": datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), "list": [1, -2],
        "map": {"a": 1}, "deep": {"a": 7}, "wide": -5,
    }  # fmt: skip
    assert not offered(sink, decided(sink, 0, [row, dict.fromkeys(row) | {"id": 3}], EVERY))
    found = {each["id"]: each for each in space.rows()}
    assert set(found) == {-1, 3}
    kept = dict(found[-1])
    assert (kept.pop("day").date(), dict(kept.pop("map")), kept.pop("u")) == (date(1969, 12, 31), {"a": 1}, UUID(uuid))
    assert kept.pop("at") == datetime(1969, 12, 31, 23, 59, 59, 999_000)
    assert kept == {name: value for name, value in row.items() if name in kept} | {"deep": '{"a":7}'}
    assert all(value is None for name, value in found[3].items() if name != "id")
    (refused,) = offered(sink, decided(sink, 1, [row | {"id": 4, "u": "no"}], EVERY))
    assert refused.message == 'column "u": "no" is not a valid uuid'


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("id bigint PRIMARY KEY, n counter", "a table of counters"),
        (
            "id bigint PRIMARY KEY, name list<text>, at timestamp",
            'column "name" is list<text>: a row that is sent again would duplicate the elements, and a lightweight transaction (IF), '
            "which would prevent that, takes no time of writing",
        ),
        ("id bigint PRIMARY KEY, name boolean, at timestamp", 'column "name" is boolean in the table, but STRING in the flow'),
        ("id bigint PRIMARY KEY, name text", 'the table has no column "at" (timestamp)'),
        (
            "name text, id bigint, at timestamp, PRIMARY KEY (name, id)",
            "its primary key is (name, id); expected (id), by `key` of the flow",
        ),
    ],
)
def test_a_table_that_does_not_take_what_comes_is_told_before_a_start(space: Keyspace, tmp_path: Path, columns: str, sentence: str) -> None:
    sink = make(space, tmp_path, mode="upsert", key=["id"])
    assert sink.unlike(SIMPLE) == []
    space.ask(f"CREATE TABLE kept ({columns})")
    schema = parse_schema("id BIGINT, name ARRAY<STRING>, at TIMESTAMP") if "list<" in columns else SIMPLE
    assert any(sentence in told for told in sink.unlike(schema)), sink.unlike(schema)
    sink.prepare(owner="me", lineage="lineage-1")
    with pytest.raises(SinkError) as told:
        sink.offer(decided(sink, 0, [{"id": 1, "name": None, "at": None}], schema), lambda _: None)
    assert sentence in str(told.value)


def test_an_append_needs_a_table_of_its_own_form(space: Keyspace, tmp_path: Path) -> None:
    sink = make(space, tmp_path)
    space.ask("CREATE TABLE kept (id bigint PRIMARY KEY, name text, at timestamp)")
    first, second = sink.unlike(SIMPLE)
    assert "mode: append needs the text column (record)" in first
    assert 'no column "version" (bigint)' in second
    assert "which the sink writes itself" in make(space, tmp_path, id_column="name").unlike(SIMPLE)[0]


def test_another_lineage_and_rows_of_others_are_refused_and_a_new_one_that_adopts_wins(space: Keyspace, tmp_path: Path) -> None:
    first = make(space, tmp_path, mode="upsert", key=["id"])
    first.prepare(owner="me", lineage="lineage-1")
    offered(first, decided(first, 0, rows_of(1)))
    other = make(space, tmp_path, mode="upsert", key=["id"])
    with pytest.raises(Refused, match="rows that this lineage did not write"):
        other.prepare(owner="me", lineage="lineage-2")
    other.prepare(owner="me", lineage="lineage-2", adopt=True)
    with pytest.raises(Exception, match="another lineage has claimed it"):
        first.offer(decided(first, 1, rows_of(1, name="late")), lambda _: None)
    assert other.clear(owner="me", flow="flow", dry_run=True) == 1
    assert other.clear(owner="me", flow="flow") == 1
    assert space.rows() == []


def test_the_rows_of_a_lineage_that_adopts_stand_above_ours_of_before_and_those_of_others_also_of_a_time_to_come(
    space: Keyspace, tmp_path: Path
) -> None:
    later = (time.time_ns() // 1000) + 86_400_000_000
    space.ask("CREATE TABLE kept (id bigint PRIMARY KEY, name text, at timestamp)")
    space.ask(f"INSERT INTO kept (id, name) VALUES (1, 'theirs') USING TIMESTAMP {later}")
    space.ask("INSERT INTO kept (id, name) VALUES (2, 'theirs')")
    for number in (1, 2, 3):
        sink = make(space, tmp_path, mode="upsert", key=["id"])
        sink.prepare(owner="me", lineage=f"lineage-{number}", adopt=True)
        offered(sink, decided(sink, 0, rows_of(1, 2, name=f"ours {number}"), lineage=f"lineage-{number}"))
        assert sorted((row["id"], row["name"]) for row in space.rows()) == [(1, f"ours {number}"), (2, f"ours {number}")]
        sink._store.close()


def test_an_answer_of_too_few_replicas_is_tried_again(space: Keyspace, tmp_path: Path) -> None:
    sink = make(space, tmp_path, mode="upsert", key=["id"])
    sink.prepare(owner="me", lineage="lineage-1")
    store = sink._store
    store.make(SIMPLE)
    rows = KeyedRows(["1", "2"], ["1", "2"], 100, pa.RecordBatch.from_pylist(rows_of(1, 2), schema=arrow_schema(SIMPLE)))
    space.session.execute(f"ALTER KEYSPACE {space.name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    answer = store.send(rows)
    assert (answer.again, answer.refused) == ([0, 1], [])
    with pytest.raises(Unreachable, match="Cannot achieve consistency level"):
        sink.prepare(owner="me", lineage="lineage-1")
    space.session.execute(f"ALTER KEYSPACE {space.name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    assert store.send(rows).again == []


def test_a_table_that_is_gone_is_an_error_not_dead_letters(space: Keyspace, tmp_path: Path) -> None:
    sink = make(space, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    offered(sink, decided(sink, 0, rows_of(1)))
    space.ask("DROP TABLE kept")
    with pytest.raises(SinkError, match="does not exist"):
        sink.offer(decided(sink, 1, rows_of(2)), lambda _: None)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"keyspace": "nope"}, SinkError, "there is no keyspace nope"),
        ({"config": {"user": "cassandra", "password": "hunter2"}}, SinkError, "password are incorrect"),
        ({"config": {}}, SinkError, "[Aa]uthentication"),
        ({"config": {"usr": "me"}}, SinkError, '"usr", which is not a known setting'),
        ({"server": ["127.0.0.1:9"]}, Unreachable, "Connection refused"),
        ({"server": ["me:hunter2@host:9042"]}, SinkError, "is not an address"),
        ({"server": ["host:70000"]}, SinkError, "is not an address"),
        ({"config": {"ca": "gone.pem"}}, SinkError, "ca: gone.pem, which cannot be read: No such file"),
        ({"config": {"ca": __file__}}, SinkError, "which cannot be read: .*no certificate"),
        (
            {"config": {"user": "cassandra", "password": "cassandra", "datacenter": "far"}},
            SinkError,
            'no node of .* is in datacenter "far"; found datacenter1',
        ),
    ],
)
def test_what_a_person_did_wrong_is_told(space: Keyspace, tmp_path: Path, given: Any, error: type[Exception], message: str) -> None:
    def write() -> None:
        make(space, tmp_path, **given).prepare(owner="me", lineage="lineage-1")

    with pytest.raises(error, match=message) as told:
        write()
    assert "hunter2" not in str(told.value)
    assert told.value.remedy  # type: ignore[attr-defined]


def test_a_keyspace_that_may_forget_what_it_acknowledged_is_refused(space: Keyspace, tmp_path: Path) -> None:
    space.session.execute(f"ALTER KEYSPACE {space.name} WITH durable_writes = false")
    sink = make(space, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    with pytest.raises(SinkError, match="acknowledged rows are lost"):
        offered(sink, decided(sink, 0, rows_of(1)))


def test_a_certificate_is_looked_at_and_one_that_is_not_trusted_is_told_with_what_to_do(space: Keyspace, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")
    authority.give(tmp_path / "server.pem", address="127.0.0.1")
    with TlsDoor(tmp_path / "server.pem", int(space.address.rpartition(":")[2])) as door:

        def prepared(ca: Authority, server: str = f"127.0.0.1:{door.port}") -> Any:
            sink = make(space, tmp_path, server=[server], config=space.options["config"] | {"ca": str(ca.path)})
            sink.prepare(owner="me", lineage="lineage-1")
            return sink

        with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED") as told:
            prepared(stranger)
        assert (told.value.code, told.value.remedy) == (
            "cassandra-trust",
            "name the CA file that signed its certificate: config: {ca: /path/to/ca.pem}",
        )
        with pytest.raises(SinkError, match="it does not use TLS"):
            prepared(authority, space.address)
        assert offered(prepared(authority), decided(prepared(authority), 0, rows_of(1))) == []
    assert [row["id"] for row in space.rows()] == [1]


ODD = ('x"; DROP TABLE victim; --', "it's", "?", "$1 %s %(a)s 100%", "größe 🐘", "line\nbreak", "Select", "select")


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_names_of_columns_are_quoted_and_never_taken_for_cql(space: Keyspace, tmp_path: Path, mode: str) -> None:
    space.ask(f"CREATE TABLE {space.name}.victim (id int PRIMARY KEY)")
    schema = parse_schema(", ".join(f"`{name}` STRING" for name in ODD))
    given = {"key": [ODD[0], ODD[3]]} if mode == "upsert" else {"id_column": "Id of ?%s", "version_column": 'v"'}
    sink = make(space, tmp_path, table="Kept_1", records="Of_Ours", mode=mode, **given)
    sink.prepare(owner="me", lineage="lineage-1")
    rows = [{name: f"{name} {number}" for name in ODD} for number in (1, 2)]
    batch = decided(sink, 0, rows, schema)
    assert offered(sink, batch) == []
    table = f'{space.name}."Kept_1"'
    found = sorted(space.session.execute(f"SELECT * FROM {table}"), key=lambda row: str(row["it's"]))
    assert [{name: row[name] for name in ODD} for row in found] == rows
    assert [each.violations for each in sink.audit(lineage="lineage-1", decided=[batch])] == [()]
    assert sink.clear(owner="me", flow="flow") == 2
    assert list(space.session.execute(f"SELECT * FROM {table}")) == []
    assert list(space.session.execute(f"SELECT * FROM {space.name}.victim")) == []


@pytest.mark.parametrize("option", ["keyspace", "table", "records"])
@pytest.mark.parametrize("odd", ['x"; DROP TABLE victim; --', "it's", "$1 %s 100%", "größe", "a-b", ""])
def test_what_cassandra_takes_for_no_name_is_told_before_anybody_is_asked(tmp_path: Path, option: str, odd: str) -> None:
    options = sink_types()["cassandra"].filled({"server": ["nobody"], "keyspace": "shop", "table": "kept"} | {option: odd})
    with pytest.raises(SinkError, match=f"`{option}` is .*: a name of a keyspace or table consists of the letters") as told:
        open_sink("cassandra", ConnectorContext("out", tmp_path, options, flow="flow", work=tmp_path / "work"))
    assert (told.value.code, told.value.remedy) == ("cassandra-name", f"correct `{option}`")


def test_a_name_that_the_server_refuses_is_told_and_not_tried_again(space: Keyspace, tmp_path: Path) -> None:
    sink = make(space, tmp_path, table="x" * 300)
    sink.prepare(owner="me", lineage="lineage-1")
    with pytest.raises(SinkError, match="not be more than") as told:
        offered(sink, decided(sink, 0, rows_of(1)))
    assert told.value.code == "cassandra-table"
