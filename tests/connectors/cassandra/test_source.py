"""The source against a real server, without Spark: the contract, types, ranges, rows that change, what is told before a start."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import cassandra
import pytest

from scribengin.connectors.cassandra import table as cassandra_table
from scribengin.connectors.cassandra.options import SOURCE
from scribengin.connectors.cassandra.source import CassandraSource
from scribengin.connectors.cassandra.table import LEAST_TOKEN, MOST_TOKEN, CassandraDigest
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.core.errors import SourceError, Unreachable
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_source
from scribengin.testing.conformance_sources import Bench, check_bounded_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conftest import Keyspace

    from scribengin.connectors.cassandra.source import CassandraReader
    from scribengin.connectors.contract import SourceStream


def source(space: Keyspace, schema: str | None = None, **options: Any) -> CassandraSource:
    given = SOURCE.filled(space.options | options)
    return CassandraSource(ConnectorContext("in", Path(), given, parse_schema(schema) if schema else None))


def orders(space: Keyspace, rows: int = 25, *, per_partition: int = 1) -> None:
    space.ask("CREATE TABLE kept (customer bigint, id bigint, name text, PRIMARY KEY (customer, id))")
    for number in range(rows):
        space.ask("INSERT INTO kept (customer, id, name) VALUES (%s, %s, %s)", number // per_partition, number, f"n{number}")


def rows_of(source: CassandraSource, streams: Iterable[SourceStream]) -> list[dict[str, Any]]:
    return [row for stream in streams for block in source.read(stream) for row in source.decoder().rows(block).rows]


def ids(source: CassandraSource, streams: Iterable[SourceStream]) -> list[int]:
    return sorted(row["id"] for row in rows_of(source, streams))


def all_of(reader: CassandraReader, most: int | None = None) -> list[SourceStream]:
    streams = []
    while taken := reader.split(BatchLimits(max_rows=most), final=True):
        streams += taken
    return streams


@pytest.mark.parametrize(("on_change", "page"), [pytest.param("stop", 1000, marks=pytest.mark.long), ("stop", 3), ("ignore", 1)])
def test_it_keeps_the_contract(space: Keyspace, on_change: str, page: int) -> None:
    orders(space, 11)
    assert check_source(source(space, split=2, page=page, on_change=on_change), limits=BatchLimits(max_rows=3)) == 11


@pytest.mark.parametrize("options", [{}, {"on_change": "ignore"}])
def test_it_keeps_the_contract_while_its_table_changes(space: Keyspace, options: dict[str, Any]) -> None:
    orders(space, 0)
    added = iter(range(100))

    def add(rows: int) -> None:
        for number in [next(added) for _ in range(rows)]:
            space.ask("INSERT INTO kept (customer, id, name) VALUES (%s, %s, %s)", number, number, f"n{number}")

    def change() -> None:
        space.ask("UPDATE kept SET name = 'changed' WHERE customer = 2 AND id = 2")

    given = space.options | options
    check_bounded_source(Bench(lambda: source(space, **options), add, SOURCE, given, change=change))


@pytest.mark.parametrize("page", [pytest.param(1, marks=pytest.mark.long), 7, pytest.param(1000, marks=pytest.mark.long)])
def test_ranges_end_behind_whole_partitions_and_cover_the_ring(space: Keyspace, page: int) -> None:
    orders(space, 40, per_partition=4)
    read = source(space, split=6, page=page)
    streams = all_of(read.reader())
    assert [stream.rows for stream in streams] == [8, 8, 8, 8, 8]
    assert [stream.place["after"] for stream in streams] == [LEAST_TOKEN, *(stream.place["upto"] for stream in streams[:-1])]
    assert streams[-1].place["upto"] == MOST_TOKEN
    assert ids(read, streams) == list(range(40))
    (whole,) = all_of(source(space, page=page).reader())
    assert whole.rows == 40
    reader = read.reader()
    assert reader.backlog().rows is None
    assert [stream.rows for stream in reader.split(BatchLimits(max_rows=1))] == [4]
    assert (reader.backlog().rows or 0) > 0
    assert sum(stream.rows or 0 for stream in all_of(reader, 20)) == 36
    assert reader.backlog().rows == 0


def test_an_empty_table_hands_out_nothing(space: Keyspace) -> None:
    orders(space, 0)
    assert all_of(source(space).reader()) == []


def test_rows_that_changed_are_told_and_others_are_read(space: Keyspace) -> None:
    orders(space, 9)
    read = source(space, split=3)
    streams = all_of(read.reader())
    first = ids(read, streams[:1])
    space.ask("UPDATE kept SET name = 'changed' WHERE customer = %s AND id = %s", first[0], first[0])
    with pytest.raises(SourceError, match=r"changed after it was assigned .*: the number of rows is the same, but the rows differ") as told:
        ids(read, streams[:1])
    assert told.value.code == "cassandra-changed"
    assert "on_change: ignore" in told.value.remedy
    gone = ids(read, streams[1:2])[0]
    space.ask("DELETE FROM kept WHERE customer = %s", gone)
    with pytest.raises(SourceError, match="found 2 rows, expected 3"):
        ids(read, streams[1:2])
    assert len(ids(read, streams[2:])) == 3
    assert ids(source(space, on_change="ignore"), streams) == sorted(set(range(9)) - {gone})
    assert ids(source(space, "id BIGINT"), all_of(source(space, "id BIGINT").reader())) == sorted(set(range(9)) - {gone})


def test_rows_that_were_deleted_at_the_end_leave_a_snapshot_that_ends(space: Keyspace) -> None:
    orders(space, 6)
    read = source(space, split=3)
    first = read.reader().split(BatchLimits(max_rows=3))
    left = set(range(6)) - set(ids(read, first))
    for number in left:
        space.ask("DELETE FROM kept WHERE customer = %s", number)
    later = read.reader()
    later.restore([first])
    rest = all_of(later)
    for number in left:
        space.ask("INSERT INTO kept (customer, id) VALUES (%s, %s)", number, number)
    done = read.reader()
    done.restore([first, rest])
    assert done.split(BatchLimits()) == []
    assert done.backlog().rows == 0


def test_another_table_by_the_same_name_is_not_taken_for_the_old_one(space: Keyspace) -> None:
    orders(space, 6)
    read = source(space, split=3)
    first = read.reader().split(BatchLimits(max_rows=3))
    space.ask("DROP TABLE kept")
    orders(space, 6)
    assert len(ids(read, first)) == 3  # they are the same
    later = read.reader()
    later.restore([first])
    with pytest.raises(SourceError, match="it is another table by that name"):
        later.split(BatchLimits())
    lax = source(space, split=3, on_change="ignore")
    later = lax.reader()
    later.restore([first])
    assert ids(lax, [*first, *all_of(later)]) == list(range(6))


def test_every_type_is_read_as_what_it_is_or_as_the_flow_asks(space: Keyspace) -> None:
    space.session.execute(f"CREATE TYPE {space.name}.place (street text, number int)")
    space.ask(
        f"""CREATE TABLE kept (id int PRIMARY KEY, a boolean, b tinyint, c smallint, d bigint, e float, f double, g ascii, h blob, i date,
        j timestamp, k decimal, l varint, m uuid, n timeuuid, o inet, p time, q duration, r list<int>, s frozen<set<text>>,
        t map<text, double>, u frozen<{space.name}.place>, v tuple<int, text>, w map<uuid, timestamp>, "odd "" x" text)"""
    )
    space.ask(
        """INSERT INTO kept (id, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, "odd "" x") VALUES (1, true, -2, 3,
        4, 0.5, -Infinity, '', 0x00ff, '1969-12-31', '2026-01-01T12:00:00.123+0200', 12.50, 123456789012345678901234567890,
        00000000-0000-0000-0000-000000000001, 50554d6e-29bb-11e5-b345-feff819cdc9f, '127.0.0.1', '08:12:54.123456789', 1mo2d3ns, [3, 1],
        {'b', 'a'}, {'x': 1.5}, {street: 's', number: 7}, (1, 'ü'),
        {00000000-0000-0000-0000-000000000001: '2026-01-01T00:00:00.000+0000'}, 'x')"""
    )
    space.ask("INSERT INTO kept (id) VALUES (2)")
    read = source(space)
    assert {field.name: f"{field.type}{'' if field.nullable else ' NOT NULL'}" for field in read.resolve_schema().fields} == {
        "id": "INT NOT NULL", "a": "BOOLEAN", "b": "TINYINT", "c": "SMALLINT", "d": "BIGINT", "e": "FLOAT", "f": "DOUBLE", "g": "STRING",
        "h": "BINARY", "i": "DATE", "j": "TIMESTAMP", **dict.fromkeys("klmnopq", "STRING"), "r": "ARRAY<INT>", "s": "ARRAY<STRING>",
        "t": "MAP<STRING, DOUBLE>", **dict.fromkeys("uvw", "STRING"), 'odd " x': "STRING",
    }  # fmt: skip
    full, empty = sorted(rows_of(read, all_of(read.reader())), key=lambda row: row["id"])
    assert full == {
        "id": 1, "a": True, "b": -2, "c": 3, "d": 4, "e": 0.5, "f": float("-inf"), "g": "", "h": b"\x00\xff", "i": dt.date(1969, 12, 31),
        "j": dt.datetime(2026, 1, 1, 10, 0, 0, 123000, dt.UTC), "k": "12.50", "l": "123456789012345678901234567890", "m": str(UUID(int=1)),
        "n": "50554d6e-29bb-11e5-b345-feff819cdc9f", "o": "127.0.0.1", "p": "08:12:54.123456789", "q": "1mo2d3ns", "r": [3, 1],
        "s": ["a", "b"], "t": {"x": 1.5}, "u": '{"street":"s","number":7}', "v": '[1,"ü"]',
        "w": '{"00000000-0000-0000-0000-000000000001":"2026-01-01T00:00:00.000Z"}', 'odd " x': "x",
    }  # fmt: skip
    assert {repr(value) for name, value in empty.items() if name != "id"} == {"None"}
    texts = ", ".join(f"{name} STRING" for name in "abcdefghijklmnopqrstuvw")
    full, empty = sorted(rows_of(lax := source(space, texts), all_of(lax.reader())), key=lambda row: row["a"] is None)
    assert full | dict.fromkeys("kmnopquvw") == dict.fromkeys("kmnopquvw") | {
        "a": "true", "b": "-2", "c": "3", "d": "4", "e": "0.5", "f": "-inf", "g": "", "h": "0x00ff", "i": "1969-12-31",
        "j": "2026-01-01T10:00:00.123000Z", "l": "123456789012345678901234567890", "r": "[3,1]", "s": '["a","b"]', "t": '{"x":1.5}',
    }  # fmt: skip
    assert set(empty.values()) == {None}
    asked = "id BIGINT, b INT, d DECIMAL(5,2), e DOUBLE, k DECIMAL(9,3), l DECIMAL(38,0)"
    full, _ = sorted(rows_of(wide := source(space, asked), all_of(wide.reader())), key=lambda row: row["id"])
    assert full == {
        "id": 1,
        "b": -2,
        "d": Decimal("4.00"),
        "e": 0.5,
        "k": Decimal("12.500"),
        "l": Decimal("123456789012345678901234567890"),
    }


def test_a_value_that_its_column_cannot_hold_costs_its_own_row(space: Keyspace) -> None:
    space.ask("CREATE TABLE kept (part int, id int, at timestamp, n decimal, small int, name text, PRIMARY KEY (part, id))")
    for number in range(1, 8):
        space.ask("INSERT INTO kept (part, id, at, n, small, name) VALUES (1, %s, 1000, 1.5, 1, 'x')", number)
    space.ask("UPDATE kept SET at = 9223372036854775807 WHERE part = 1 AND id = 2")
    space.ask("UPDATE kept SET n = 1.2345, small = 1000 WHERE part = 1 AND id = 5")
    space.ask("UPDATE kept SET name = null WHERE part = 1 AND id = 6")
    read = source(space, "id INT, at TIMESTAMP, n DECIMAL(9,2), small TINYINT, name STRING NOT NULL")
    (block,) = [block for stream in all_of(read.reader()) for block in read.read(stream)]
    found = read.decoder().columns(block)
    assert [(each.ordinal, each.reason) for each in found.bad] == [(1, "type"), (4, "type"), (5, "missing")]
    assert found.bad[0].message == 'field "at" is 9223372036854775807 milliseconds from 1970, which TIMESTAMP cannot hold'
    assert b'"at":"9223372036854775807 milliseconds from 1970"' in block.payload(1)
    assert b'"n":"1.2345"' in block.payload(4)
    assert found.batch.column("id").to_pylist() == [1, 3, 4, 7]


def test_rows_without_a_regular_column_and_static_ones_are_read(space: Keyspace) -> None:
    space.ask("CREATE TABLE kept (part int, id int, own int static, PRIMARY KEY (part, id))")
    space.ask("INSERT INTO kept (part, own) VALUES (1, 5)")
    space.ask("INSERT INTO kept (part, id) VALUES (2, 6)")
    read = source(space)
    found = rows_of(read, all_of(read.reader()))
    assert sorted(found, key=lambda row: row["part"]) == [{"part": 1, "id": None, "own": 5}, {"part": 2, "id": 6, "own": None}]


def test_counters_are_read(space: Keyspace) -> None:
    space.ask("CREATE TABLE kept (id int PRIMARY KEY, seen counter)")
    space.ask("UPDATE kept SET seen = seen + 7 WHERE id = 1")
    read = source(space)
    assert rows_of(read, all_of(read.reader())) == [{"id": 1, "seen": 7}]


@pytest.mark.parametrize(
    ("options", "schema", "said", "code"),
    [
        ({"table": "keptt"}, None, "there is no table", "cassandra-table"),
        ({"keyspace": "nope"}, None, "there is no keyspace nope", "cassandra-keyspace"),
        ({}, "nome STRING", 'the table has no column "nome"', "table-columns"),
        ({}, "name INT", 'column "name" is text in the table, but INT in the flow', "table-columns"),
        ({}, "name ARRAY<INT>", 'column "name" is text in the table', "table-columns"),
        ({"config": {"user": "cassandra", "password": "hunter2"}}, None, "password are incorrect", "cassandra-login"),
    ],
)
def test_what_does_not_fit_is_told_before_the_start(space: Keyspace, options: Any, schema: str | None, said: str, code: str) -> None:
    orders(space, 0)
    with pytest.raises(SourceError, match=said) as told:
        source(space, schema, **options).resolve_schema()
    assert told.value.code == code
    assert told.value.remedy
    assert 'source "in"' in str(told.value)
    assert "hunter2" not in str(told.value)


def test_what_too_few_replicas_answer_is_asked_again_for_a_while(space: Keyspace, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(space, 9)
    monkeypatch.setattr(cassandra_table, "_TRIES_FOR_S", 1.0)
    space.session.execute(f"ALTER KEYSPACE {space.name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 2}}")
    read = source(space, consistency="ALL")
    with pytest.raises(Unreachable, match=r"cannot be read: .*Cannot achieve consistency level ALL"):
        read.reader().split(BatchLimits())


def test_a_page_that_times_out_is_asked_again_and_smaller(space: Keyspace, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(space, 9)
    read = source(space, page=4)
    streams = all_of(read.reader())
    session, sizes = read._cluster.session, []
    execute = session.execute

    def slow(bound: Any, *args: Any, **named: Any) -> Any:
        if hasattr(bound, "prepared_statement"):
            sizes.append(bound.fetch_size)
            if len(sizes) in (2, 3):
                raise cassandra.ReadTimeout("slow", consistency=1, required_responses=1, received_responses=0)
        return execute(bound, *args, **named)

    monkeypatch.setattr(session, "execute", slow)
    assert ids(read, streams) == list(range(9))
    assert sizes[:4] == [4, 4, 2, 1]


def test_a_digest_depends_on_rows_and_their_order_and_not_on_pages() -> None:
    def digest(*pages: list[tuple[bytes | None, ...]]) -> str:
        found = CassandraDigest()
        for page in pages:
            found.add(page)
        return found.text

    rows: list[tuple[bytes | None, ...]] = [(b"1", b"ab", None), (b"2", b"", b"c")]
    assert digest(rows) == digest(rows[:1], rows[1:])
    others: list[list[tuple[bytes | None, ...]]] = [
        rows[::-1], rows[:1], [(b"1", b"a", b"b"), rows[1]], [rows[0], (b"2", None, b"c")], [(b"1", b"ab", None, b"2", b"", b"c")],
    ]  # fmt: skip
    assert len({digest(rows), *(digest(each) for each in others)}) == 6


ODD = ('x"; DROP TABLE victim; --', "it's", "?", "$1 %s %(a)s 100%", "größe 🐘", "line\nbreak", "Select", "select")


@pytest.mark.parametrize("on_change", ["stop", pytest.param("ignore", marks=pytest.mark.long)])
def test_names_of_columns_are_quoted_and_never_taken_for_cql(space: Keyspace, on_change: str) -> None:
    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    table, columns = f'{space.name}."Kept_1"', ", ".join(map(quoted, ODD))
    space.ask(f"CREATE TABLE {space.name}.victim (id int PRIMARY KEY)")
    typed = ", ".join(f"{quoted(name)} text" for name in ODD)
    space.session.execute(f"CREATE TABLE {table} ({typed}, PRIMARY KEY (({quoted(ODD[0])}, {quoted(ODD[3])}), {quoted(ODD[2])}))")
    insert = space.session.prepare(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(ODD))})")
    rows = [{name: f"{name} {number}" for name in ODD} for number in range(5)]
    for row in rows:
        space.session.execute(insert, list(row.values()))
    read = source(space, table="Kept_1", split=2, on_change=on_change)
    assert sorted(rows_of(read, all_of(read.reader(), 2)), key=lambda row: str(row["it's"])) == rows
    for option, code in (("keyspace", "cassandra-keyspace"), ("table", "cassandra-table")):
        for odd in (*ODD[:4], "größe"):
            with pytest.raises(SourceError, match="there is no") as told:
                source(space, **{option: odd}).reader()
            assert told.value.code == code
    assert list(space.session.execute(f"SELECT * FROM {space.name}.victim")) == []
