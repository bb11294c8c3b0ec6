"""The source against a real server, without Spark: the contract, types, what is told before a start, rows that change or come late."""

from __future__ import annotations

import datetime as dt
import time
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pytest

from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.postgres import reader as postgres_reader
from scribengin.connectors.postgres.options import SOURCE
from scribengin.connectors.postgres.rows import written_since
from scribengin.connectors.postgres.source import PostgresSource
from scribengin.core.errors import SourceError, Unreachable
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_source
from scribengin.testing.conformance_sources import Bench, check_bounded_source, check_changing_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scribengin.connectors.contract import SourceStream
    from scribengin.connectors.postgres.reader import PostgresReader


def uri(database: Any) -> str:
    return f"postgresql://{database.info.user}@{database.info.host}:{database.info.port}/{database.info.dbname}"


def source(database: Any, schema: str | None = None, **options: Any) -> PostgresSource:
    given = {"server": uri(database), "table": "orders", "every": 0.0, "settle": 0.0} | options
    return PostgresSource(ConnectorContext("in", Path(), SOURCE.filled(given), parse_schema(schema) if schema else None))


def orders(database: Any, rows: int = 25) -> None:
    database.execute(
        "CREATE TABLE orders (id bigserial PRIMARY KEY, name text, amount double precision, at timestamptz NOT NULL DEFAULT now())"
    )
    database.execute("CREATE INDEX ON orders (at, id)")
    database.execute(
        "INSERT INTO orders (name, amount, at) SELECT (ARRAY[NULL, '', 'a \"b\", c' || chr(10) || 'd'])[1 + n %% 3], n / 4.0, "
        "'2026-01-01Z'::timestamptz + (n %% 10) * interval '1 ms' FROM generate_series(1, %s) n",
        (rows,),
    )


def until_its_view_is_gone(database: Any) -> None:
    """The server ends a transaction a moment after its client has closed the connection; until then tasks may read in it."""
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'scribengin' AND datname = current_database()"
    deadline = time.monotonic() + 120
    while database.execute(ours).fetchone()["count"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rows_of(source: PostgresSource, streams: Iterable[SourceStream]) -> list[dict[str, Any]]:
    return [row for stream in streams for block in source.read(stream) for row in source.decoder().rows(block).rows]


def all_of(reader: PostgresReader) -> list[SourceStream]:
    streams = []
    while taken := reader.split(BatchLimits(), final=True):
        streams += taken
    return streams


def ids(source: PostgresSource, streams: Iterable[SourceStream]) -> list[int]:
    return [row["id"] for row in rows_of(source, streams)]


@contextmanager
def another(database: Any) -> Iterator[Any]:
    """A session with a transaction of its own."""
    with psycopg.connect(uri(database)) as connection:
        yield connection


@pytest.mark.parametrize("options", [{}, {"mode": "incremental", "by": "id"}, {"mode": "incremental", "by": "at"}])
def test_it_keeps_the_contract(database: Any, options: dict[str, Any]) -> None:
    orders(database, rows=11)
    assert check_source(source(database, **options, split=2), limits=BatchLimits(max_rows=3)) == 11


@pytest.mark.parametrize("options", [{"mode": "incremental", "by": "at"}, {"mode": "incremental", "by": "at", "on_change": "ignore"}])
def test_it_keeps_the_contract_while_its_table_changes(database: Any, options: dict[str, Any]) -> None:
    orders(database, rows=0)

    def add(rows: int) -> None:
        database.execute("INSERT INTO orders (name) SELECT md5(random()::text) FROM generate_series(1, %s)", (rows,))

    def change() -> None:
        database.execute("UPDATE orders SET name = 'changed' WHERE id = 2")

    given = {"server": uri(database), "table": "orders", "every": 0.0, "settle": 0.0} | options
    check_changing_source(Bench(lambda: source(database, **options), add, SOURCE, given, change=change))


@pytest.mark.parametrize("options", [{}, {"on_change": "ignore"}])
def test_a_snapshot_keeps_the_contract_while_its_table_changes(database: Any, options: dict[str, Any]) -> None:
    orders(database, rows=0)

    def add(rows: int) -> None:
        database.execute("INSERT INTO orders (name) SELECT md5(random()::text) FROM generate_series(1, %s)", (rows,))

    def change() -> None:
        database.execute("UPDATE orders SET name = 'changed' WHERE id = 2")

    given = {"server": uri(database), "table": "orders"} | options
    check_bounded_source(Bench(lambda: source(database, **options), add, SOURCE, given, change=change))


def test_every_type_is_read_as_what_it_is_or_as_the_flow_asks(database: Any) -> None:
    database.execute(
        """CREATE DOMAIN cents AS numeric(6,2); CREATE TYPE mood AS ENUM ('glad');
        CREATE TABLE orders (id int PRIMARY KEY, a boolean, b smallint, c real, d double precision, e numeric(20,3), f cents, g numeric,
          h varchar(9), i char(3), j bytea, k date, l timestamptz, m timestamp, n jsonb, o int[], p mood, q uuid, "odd %s ""x" text);
        INSERT INTO orders VALUES (1, true, 2, 0.1, '-Infinity', 12345678901234567.125, 1.5, 1e20, '', 'ab', '\\x00ff', '0001-01-01',
          '2026-01-01 12:00:00.123456+02', '2026-01-01 12:00', '{"a": 1}', '{1,NULL}', 'glad', '00000000-0000-0000-0000-000000000001', 'x');
        INSERT INTO orders (id) VALUES (2)"""
    )
    for setting in ("TimeZone = 'Asia/Tokyo'", "DateStyle = 'German, DMY'", "extra_float_digits = -3"):
        database.execute(f"ALTER DATABASE {database.info.dbname} SET {setting}")
    read = source(database)
    assert str(read.resolve_schema()) == (
        "id INT NOT NULL, a BOOLEAN, b SMALLINT, c FLOAT, d DOUBLE, e DECIMAL(20,3), f DECIMAL(6,2), g STRING, h STRING, i STRING, "
        'j BINARY, k DATE, l TIMESTAMP, m TIMESTAMP, n STRING, o STRING, p STRING, q STRING, `odd %s "x` STRING'
    )
    full, empty = rows_of(read, all_of(read.reader()))
    assert full | {"c": round(full["c"], 3)} == {
        "id": 1, "a": True, "b": 2, "c": 0.1, "d": float("-inf"), "e": Decimal("12345678901234567.125"), "f": Decimal("1.50"),
        "g": "100000000000000000000", "h": "", "i": "ab", "j": b"\x00\xff", "k": dt.date(1, 1, 1),
        "l": dt.datetime(2026, 1, 1, 10, 0, 0, 123456, dt.UTC), "m": dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), "n": '{"a": 1}',
        "o": "{1,NULL}", "p": "glad", "q": "00000000-0000-0000-0000-000000000001", 'odd %s "x': "x",
    }  # fmt: skip
    assert set(empty.values()) == {2, None}
    read = source(database, "a BOOLEAN")
    assert rows_of(read, all_of(read.reader())) == [{"a": True}, {"a": None}]
    asked = 'id BIGINT, b INT, e DECIMAL(38,4), g DECIMAL(30,0), a STRING, m STRING, `odd %s "x` STRING, c DOUBLE'
    (full, _) = rows_of(read := source(database, asked), all_of(read.reader()))
    assert full == {
        "id": 1, "b": 2, "e": Decimal("12345678901234567.1250"), "g": Decimal(10**20), "a": "true", "m": "2026-01-01 12:00:00",
        'odd %s "x': "x", "c": 0.1,
    }  # fmt: skip


def test_a_number_of_more_digits_than_its_column_has_is_dead(database: Any) -> None:
    """On either side of the point: the reader of CSV counts those behind it alone."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, n numeric, m int)")
    database.execute("INSERT INTO orders VALUES (1, 99999999.5, 999), (2, 123456789.5, 1), (3, 1.234, 1), (4, 1.230, 1000)")
    read = source(database, "id INT, n DECIMAL(10,2), m DECIMAL(3,0)")
    (block,) = [block for stream in all_of(read.reader()) for block in read.read(stream)]
    found = read.decoder().rows(block)
    assert found.rows == [{"id": 1, "n": Decimal("99999999.50"), "m": Decimal(999)}]
    assert [each.message for each in found.bad] == [
        'field "n" is 123456789.5, which DECIMAL(10,2) cannot hold',
        'field "n" is 1.234, which DECIMAL(10,2) cannot hold',
        'field "m" is 1000, which DECIMAL(3,0) cannot hold',
    ]


def test_a_value_that_its_column_cannot_hold_costs_its_own_row(database: Any) -> None:
    database.execute(
        """CREATE TABLE orders (id int PRIMARY KEY, at timestamptz, n numeric(9,2), raw bytea, small int, yes boolean);
        INSERT INTO orders SELECT n, '2026-01-01Z', n, '\\xff', n, n > 4 FROM generate_series(1, 9) n;
        UPDATE orders SET at = 'infinity' WHERE id = 2; UPDATE orders SET n = 'NaN', small = 1000 WHERE id = 5;
        DELETE FROM orders WHERE id = 3"""
    )
    read = source(database, "id INT, at TIMESTAMP, n DECIMAL(9,2), raw BINARY, small TINYINT, yes BOOLEAN NOT NULL")
    (block,) = [block for stream in all_of(read.reader()) for block in read.read(stream)]
    found = read.decoder().columns(block)
    assert [(each.ordinal, each.reason) for each in found.bad] == [(1, "type"), (3, "type")]
    assert found.bad[0].message == 'field "at" is infinity, which TIMESTAMP cannot hold'
    assert b'"n":"NaN"' in block.payload(3)
    assert b'"id":4' in block.payload(2)
    assert found.batch.column("id").to_pylist() == [1, 4, 6, 7, 8, 9]
    assert found.batch.column("raw").to_pylist() == [b"\xff"] * 6
    assert found.batch.column("yes").to_pylist() == [False, False, True, True, True, True]
    database.execute("UPDATE orders SET yes = NULL WHERE id = 7")
    (block,) = [block for stream in all_of(read.reader()) for block in read.read(stream)]
    found = read.decoder().columns(block)
    assert [(each.ordinal, each.reason) for each in found.bad] == [(1, "type"), (3, "type"), (5, "missing")]
    assert [row["id"] for row in read.decoder().rows(block).rows] == [1, 4, 6, 8, 9]


def test_tasks_see_what_the_reader_saw_while_it_lives_and_a_later_look_tells_what_changed(database: Any) -> None:
    orders(database, rows=9)
    read = source(database, split=3)
    reader = read.reader()
    streams = all_of(reader)
    database.execute("UPDATE orders SET name = 'changed' WHERE id = 2")
    database.execute("DELETE FROM orders WHERE id = 5")
    database.execute("INSERT INTO orders (id) VALUES (0), (10)")
    assert ids(read, streams) == list(range(1, 10))
    assert "changed" not in [row["name"] for row in rows_of(read, streams)]
    del reader
    until_its_view_is_gone(database)
    with pytest.raises(SourceError, match=r"orders\[to 3\] changed .*: found 4 rows, expected 3") as told:
        ids(read, streams[:1])
    assert told.value.code == "postgres-changed"
    assert "on_change: ignore" in told.value.remedy
    database.execute("DELETE FROM orders WHERE id = 0")
    with pytest.raises(SourceError, match="rows were written since"):
        ids(read, streams[:1])
    with pytest.raises(SourceError, match=r"orders\[3 to 6\] changed .*: found 2 rows, expected 3"):
        ids(read, streams[1:2])
    assert ids(read, streams[2:]) == [7, 8, 9]
    assert ids(source(database, on_change="ignore"), streams) == [1, 2, 3, 4, 6, 7, 8, 9]


def test_a_row_that_takes_the_place_of_another_is_noticed(database: Any) -> None:
    orders(database, rows=9)
    read = source(database, mode="incremental", by="at")
    streams = all_of(read.reader())
    database.execute("UPDATE orders SET name = 'other' WHERE id = 4")  # as many rows, and each where it was
    with pytest.raises(SourceError, match="rows were written since"):
        ids(read, streams)


def test_a_snapshot_goes_on_where_it_was_and_says_when_its_rest_is_not_what_it_was(database: Any) -> None:
    orders(database, rows=10)
    read = source(database, split=2)
    first = read.reader().split(BatchLimits(max_rows=4))
    assert [stream.rows for stream in first] == [2, 2]
    database.execute("INSERT INTO orders (id) VALUES (11)")
    database.execute("UPDATE orders SET name = 'behind' WHERE id = 1")
    later = read.reader()
    later.restore([first])
    rest = all_of(later)
    assert ids(read, rest) == [5, 6, 7, 8, 9, 10]
    assert later.backlog().rows == 0
    done = read.reader()
    done.restore([first, rest])
    assert done.split(BatchLimits()) == []
    database.execute("DELETE FROM orders WHERE id = 8")
    gone = read.reader()
    gone.restore([first])
    with pytest.raises(SourceError, match="it has 5 rows left; expected 6"):
        gone.split(BatchLimits())
    database.execute("INSERT INTO orders (id) VALUES (8)")
    again = read.reader()
    again.restore([first])
    with pytest.raises(SourceError, match="rows were written since"):
        ids(read, all_of(again))
    lax = source(database, on_change="ignore")
    again = lax.reader()
    again.restore([first])
    assert ids(lax, all_of(again)) == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("options", [{}, {"mode": "incremental", "by": "id"}])
def test_another_table_by_the_same_name_is_not_taken_for_the_old_one(database: Any, options: dict[str, Any]) -> None:
    orders(database, rows=4)
    database.execute("CREATE TABLE other (LIKE orders INCLUDING ALL); INSERT INTO other SELECT * FROM orders")
    read = source(database, **options)
    reader = read.reader()
    streams = reader.split(BatchLimits(max_rows=2), final=True)
    del reader
    until_its_view_is_gone(database)
    database.execute("ALTER TABLE orders RENAME TO old; ALTER TABLE other RENAME TO orders")
    with pytest.raises(SourceError, match="changed after it was assigned"):
        ids(read, streams)
    later = read.reader()
    later.restore([streams])
    with pytest.raises(SourceError, match="it is another table by that name"):
        later.split(BatchLimits(), final=True)
    lax = source(database, **options, on_change="ignore")
    later = lax.reader()
    later.restore([streams])
    assert ids(lax, all_of(later)) == [3, 4]


def test_the_name_of_a_snapshot_that_comes_again_is_not_taken_for_the_old_one(database: Any) -> None:
    orders(database, rows=3)
    read = source(database)
    streams = all_of(read.reader())
    database.execute("UPDATE orders SET name = 'changed' WHERE id = 2")
    with another(database) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        name = holder.execute("SELECT pg_export_snapshot()").fetchone()[0]
        with pytest.raises(SourceError, match="rows were written since"):
            ids(read, [replace(each, place={**each.place, "shared": name}) for each in streams])


@pytest.mark.parametrize("wrote_first", [True, False])
def test_rows_of_a_transaction_that_commits_late_are_not_passed_over(database: Any, wrote_first: bool) -> None:
    orders(database, rows=2)
    read = source(database, mode="incremental", by="id")
    reader = read.reader()
    with another(database) as late:
        if wrote_first:
            late.execute("INSERT INTO orders (name) VALUES ('late')")
        else:
            (number,) = late.execute("SELECT nextval('orders_id_seq')").fetchone()
        database.execute("INSERT INTO orders (name) VALUES ('early')")
        taken = [*reader.split(BatchLimits()), *reader.split(BatchLimits()), *reader.split(BatchLimits())]
        assert 4 not in ids(read, taken)
        assert reader.backlog().rows
        if not wrote_first:
            late.execute("INSERT INTO orders VALUES (%s, 'late')", (number,))
    for _ in range(3):
        taken += reader.split(BatchLimits())
    assert ids(read, taken) == [1, 2, 3, 4]


def test_only_writers_are_waited_for_where_that_is_said(database: Any) -> None:
    orders(database, rows=2)
    reader = (read := source(database, mode="incremental", by="id", waits_for="writers")).reader()
    with another(database) as looking:
        looking.execute("SELECT 1")
        assert ids(read, [*reader.split(BatchLimits()), *reader.split(BatchLimits())]) == [1, 2]
        database.execute("INSERT INTO orders (name) VALUES ('more')")
        looking.execute("INSERT INTO orders (name) VALUES ('late')")
        database.execute("INSERT INTO orders (name) VALUES ('more')")
        taken = [*reader.split(BatchLimits()), *reader.split(BatchLimits()), *reader.split(BatchLimits())]
    for _ in range(3):
        taken += reader.split(BatchLimits())
    assert ids(read, taken) == [3, 4, 5]


def test_a_row_is_taken_once_it_has_settled(database: Any) -> None:
    orders(database, rows=2)
    reader = (read := source(database, mode="incremental", by="id", settle=0.6)).reader()
    begun_s = time.monotonic()
    taken: list[SourceStream] = []
    while not taken:
        taken = reader.split(BatchLimits())
    assert time.monotonic() - begun_s >= 0.6
    assert ids(read, taken) == [1, 2]
    assert reader.backlog().rows == 0


def test_once_waits_for_writers_and_leaves_rows_that_are_held_up(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_reader, "_ENDS_WITHIN_S", 0.3)
    orders(database, rows=2)
    reader = (read := source(database, mode="incremental", by="id")).reader()
    with another(database) as late:
        late.execute("INSERT INTO orders (name) VALUES ('late')")
        database.execute("INSERT INTO orders (name) VALUES ('early')")
        assert all_of(reader) == []
        assert "they are left for the next run" in reader.notices()[0]
    assert reader.backlog().rows == 0
    assert ids(read, all_of(read.reader())) == [1, 2, 3, 4]


def test_two_readers_do_not_wait_for_each_other(database: Any) -> None:
    orders(database, rows=2)
    read = source(database, mode="incremental", by="id")
    holding, other = read.reader(), read.reader()
    assert len(all_of(holding)) == 1
    begun_s = time.monotonic()
    assert len(all_of(other)) == 1
    assert time.monotonic() - begun_s < 60


@pytest.mark.parametrize(
    ("table", "options", "said", "remedy"),
    [
        ("", {}, "there is no table orders", "correct `table`"),
        ("CREATE VIEW orders AS SELECT 1 AS id", {}, "is not a table", "read its base table"),
        ("CREATE TABLE orders (id int)", {}, "has no primary key", "key: [id]"),
        ("CREATE TABLE orders (id int)", {"key": ("id",)}, "may be null", "SET NOT NULL"),
        ("CREATE TABLE orders (id int NOT NULL)", {"key": ("id",)}, "no primary key or unique index of table orders", "create the index"),
        ("CREATE TABLE orders (id int PRIMARY KEY)", {"by": "idd"}, 'no column "idd"', '"id"'),
        ("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz)", {"by": "at"}, '"at" of table orders', "SET NOT NULL"),
        ("CREATE TABLE orders (id int PRIMARY KEY, day date NOT NULL)", {"by": "day"}, "rows of one day have no order", "a time"),
        (
            "CREATE TABLE orders (id serial PRIMARY KEY); ALTER SEQUENCE orders_id_seq CACHE 32",
            {"by": "id"},
            "each session caches 32 values",
            "CACHE 1",
        ),
    ],
)
def test_a_table_that_cannot_be_read_in_an_order_is_told_before_a_start(
    database: Any, table: str, options: dict[str, Any], said: str, remedy: str
) -> None:
    if table:
        database.execute(table)
    with pytest.raises(SourceError) as told:
        source(database, mode="incremental" if "by" in options else "snapshot", **options).reader()
    assert said in told.value.message
    assert remedy in told.value.remedy
    assert told.value.node == "in"


def test_columns_that_the_table_does_not_give_are_told_all_at_once(database: Any) -> None:
    orders(database, rows=1)
    for ask in (PostgresSource.reader, PostgresSource.resolve_schema):
        with pytest.raises(SourceError) as told:
            ask(source(database, "id BIGINT, naem STRING, amount DECIMAL(9,2), tags ARRAY<STRING>"))
        assert 'the table has no column "naem" (did you mean "name"?)' in told.value.message
        assert 'column "amount" is double precision in the table, but DECIMAL(9,2) in the flow' in told.value.message
        assert 'no column "tags"' in told.value.message
        assert told.value.code == "table-columns"


def test_an_index_that_lacks_is_told_once(database: Any) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz NOT NULL)")
    reader = source(database, mode="incremental", by="at").reader()
    assert "CREATE INDEX ON orders (at, id)" in reader.notices()[0]
    assert reader.notices() == []
    database.execute("CREATE INDEX ON orders (at, id)")
    assert source(database, mode="incremental", by="at").reader().notices() == []


def test_a_server_that_is_away_is_waited_for_and_a_user_without_rights_is_not(database: Any) -> None:
    orders(database, rows=1)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9/shop cannot be connected to"):
        source(database, server="postgresql://etl@127.0.0.1:9/shop").reader()
    database.execute("DROP ROLE IF EXISTS nosy; CREATE ROLE nosy LOGIN")
    read = source(database, server=uri(database).replace("postgres@", "nosy@"))
    with pytest.raises(SourceError, match="permission denied for table orders") as told:
        all_of(read.reader())
    assert (told.value.code, "GRANT" in told.value.remedy.upper()) == ("postgres-rights", True)
    with pytest.raises(SourceError) as told:
        source(database, server="postgresql://etl:hunter2@db/shop")
    assert "hunter2" not in f"{told.value} {told.value.remedy}"


def test_a_reader_whose_connection_breaks_goes_on_at_the_next_look(database: Any) -> None:
    orders(database, rows=6)
    reader = (read := source(database)).reader()
    taken = reader.split(BatchLimits(max_rows=2))
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'scribengin'")
    with pytest.raises(Unreachable):
        reader.split(BatchLimits())
    assert ids(read, [*taken, *all_of(reader)]) == [1, 2, 3, 4, 5, 6]


def test_a_partitioned_table_is_read_as_one(database: Any) -> None:
    database.execute(
        """CREATE TABLE orders (id int, at timestamptz NOT NULL, PRIMARY KEY (id, at)) PARTITION BY HASH (id);
        CREATE TABLE one PARTITION OF orders FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE two PARTITION OF orders FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        INSERT INTO orders SELECT n, '2026-01-01Z' FROM generate_series(1, 20) n"""
    )
    read = source(database, mode="incremental", by="at", split=7)
    streams = all_of(read.reader())
    assert ids(read, streams) == list(range(1, 21))
    database.execute("UPDATE two SET at = '2026-01-02Z'")
    with pytest.raises(SourceError, match="changed after it was assigned"):
        ids(read, streams)


def test_numbers_of_transactions_begin_anew_after_32_bits() -> None:
    xmin = np.array([5, 1000, 2**32 - 2], np.uint32)
    assert not written_since(xmin, 1001, 1001)
    assert not written_since(xmin, 2000, 3000)
    assert written_since(xmin, 900, 1001)
    assert written_since(xmin, 2**32 - 2, 2**32 - 1)
    assert written_since(xmin, 2**32 + 4, 2**32 + 9)
    assert not written_since(xmin, 2**32 + 6, 2**32 + 9)
    assert written_since(xmin, 7, 2**32 + 9)
    assert not written_since(np.array([], np.uint32), 1, 9)
    assert written_since(xmin, 5000, 4000)


ODD = 'x"; DROP TABLE victim; --'
ODD_NAMES = (ODD, "it's", "$1", "100%", "%s", "%(id)s", "Upper", "größe 🐘", "line\nbreak", "\\d {0}", "select")


@pytest.mark.parametrize("options", [{}, {"mode": "incremental", "by": "%s", "key": ["$1"]}, {"on_change": "ignore"}])
def test_names_are_quoted_and_never_taken_for_sql(database: Any, options: dict[str, Any]) -> None:
    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    place = f"{quoted(ODD)}.{quoted('T$1 %s ' + ODD)}"
    columns = ", ".join(f"{quoted(name)} text" for name in ODD_NAMES if name not in ("$1", "%s"))
    database.execute("CREATE TABLE victim (id int)")
    database.execute(f"CREATE SCHEMA {quoted(ODD)}")
    database.execute(f"CREATE DOMAIN {quoted('of %s')} AS bigint")
    database.execute(f'CREATE TABLE {place} ("$1" {quoted("of %s")} PRIMARY KEY, "%s" timestamptz NOT NULL DEFAULT now(), {columns})')
    database.execute(f"INSERT INTO {place} ({quoted(ODD)}, \"$1\") SELECT 'row ' || n, n FROM generate_series(1, 7) n")
    given = {"table": f"{ODD}.T$1 %s {ODD}", "split": 2} | options
    assert check_source(source(database, **given), limits=BatchLimits(max_rows=3)) == 7
    read = source(database, **given)
    rows = rows_of(read, all_of(read.reader()))
    assert [row[ODD] for row in rows] == [f"row {number}" for number in range(1, 8)]
    assert set(rows[0]) == set(ODD_NAMES)
    with pytest.raises(SourceError, match="has no column"):
        source(database, **given | {"key": ['$1"']}).reader()
    assert database.execute("SELECT count(*) AS n FROM victim").fetchone()["n"] == 0
