"""The sink against a real server, without Spark: the contract, what a table takes, keys, versions and changes."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Receipt
from scribengin.connectors.postgres import client
from scribengin.connectors.postgres import database as staging
from scribengin.connectors.postgres.options import SINK
from scribengin.connectors.postgres.sink import PostgresSink
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, SinkError, StateError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.embedded.postgres import Postgres
from scribengin.testing.conformance import check_sink
from scribengin.testing.conformance_sql import check_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.core.types import Schema

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>")
NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
ROWS = [
    {"id": n, "name": None if n == 2 else 'a "quoted", odd\nname \\N', "amount": n / 4, "at": NOON, "tags": ["a", 'b"']} for n in range(6)
]


def place(database: Any, tmp_path: Path, **options: Any) -> ConnectorContext:
    uri = f"postgresql://{database.info.user}@{database.info.host}:{database.info.port}/{database.info.dbname}"
    return ConnectorContext("kept", tmp_path, SINK.filled({"server": uri, "table": "kept"} | options), flow="flow")


def read(database: Any, table: str = "kept") -> list[dict[str, Any]]:
    if database.execute("SELECT to_regclass(%s) AS there", (table,)).fetchone()["there"] is None:
        return []
    rows = database.execute(f"SELECT * FROM {table}").fetchall()
    return [{name: value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for name, value in row.items()} for row in rows]


class Writer:
    """A driver with one sink, and Batches of one unit each."""

    def __init__(self, place: ConnectorContext, schema: Schema, *, term: int = 1) -> None:
        self.sink = PostgresSink(place)
        self.sink.prepare(owner="me", lineage="one")
        self._schema = schema
        self._term = term

    def stage(self, number: int, *units: Sequence[dict[str, Any]]) -> tuple[Decided, list[str]]:
        batch = BatchId("flow", "query", "one", number, self._term)
        receipts, refused = [], []
        for unit, rows in enumerate(units):
            stream = self.sink.stream(batch, unit, f"attempt{number}{unit}{self._term}", self._schema)
            bad = stream.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(self._schema)))
            refused += [f"{each.ordinal}: {each.message}" for each in bad]
            receipts.append(stream.close())
        return Decided(batch, f"hash {number}", tuple(receipts)), refused

    def write(self, number: int, *units: Sequence[dict[str, Any]]) -> list[str]:
        decided, refused = self.stage(number, *units)
        self.sink.publish(decided)
        return refused


def staged(database: Any) -> int:
    found = database.execute("SELECT count(*) AS n FROM pg_tables WHERE schemaname = 'scribengin' AND tablename LIKE 'rows_%'").fetchone()
    return int(found["n"])


def test_it_keeps_the_contract(database: Any, tmp_path: Path) -> None:
    where = place(database, tmp_path)
    check_sink(lambda: PostgresSink(where), lambda: read(database), schema=SCHEMA, rows=ROWS, declared=SINK, options=where.options)
    sink = PostgresSink(where)
    with pytest.raises(Refused, match='it holds rows of the flow "flow"'):
        sink.clear(owner="conformance", flow="another")
    assert sink.clear(owner="conformance", flow="flow", dry_run=True) == len(read(database)) > 0
    assert sink.clear(owner="conformance", flow="flow") > 0
    assert read(database) == []
    assert database.execute("SELECT count(*) AS n FROM pg_tables WHERE schemaname = 'scribengin'").fetchone()["n"] == 5
    sink.prepare(owner="another", lineage="after")


def test_the_database_keeps_what_the_layer_asks_of_it(database: Any, tmp_path: Path) -> None:
    check_database(
        lambda table, **options: PostgresSink(place(database, tmp_path, table=table, **options)),
        lambda table: read(database, client.quoted(table)),
    )


def test_every_type_comes_back_as_it_went_in(database: Any, tmp_path: Path) -> None:
    schema = parse_schema(
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY, j DATE, k TIMESTAMP, l DECIMAL(20,3), "
        "m ARRAY<BIGINT>, n MAP<STRING, INT>, o STRUCT<at: TIMESTAMP, raw: DOUBLE>"
    )
    full = {
        "a": True, "b": -128, "c": 2**15 - 1, "d": -(2**31), "e": 2**63 - 1, "f": 0.5, "g": float("-inf"), "h": "", "i": b"\x00\xff",
        "j": dt.date(1, 1, 1), "k": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC), "l": Decimal("12345678901234567.125"),
        "m": [1, None], "n": [("k", 1)], "o": {"at": NOON, "raw": 1.5},
    }  # fmt: skip
    Writer(place(database, tmp_path), schema).write(0, [full, dict.fromkeys(full)])
    nested = {"n": {"k": 1}, "o": {"at": "2026-01-01T12:00:00.123456Z", "raw": 1.5}}
    assert read(database) == [full | nested, dict.fromkeys(full)]


def test_rows_that_the_table_can_never_take_are_refused_and_the_others_go_in(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE kept (id bigint, name varchar(3) NOT NULL, n smallint CHECK (n > 0))")
    writer = Writer(place(database, tmp_path), schema := parse_schema("id BIGINT, name STRING, n SMALLINT"))
    assert writer.sink.unlike(schema) == []
    good = [{"id": n, "name": "abc", "n": 1} for n in range(9)]
    bad = [
        {"id": 90, "name": "abcd", "n": 1},
        {"id": 91, "name": None, "n": 1},
        {"id": 92, "name": "a\0b", "n": 1},
        {"id": 93, "name": "a", "n": 0},
    ]
    refused = writer.write(0, [*good[:4], bad[0], *good[4:], *bad[1:]])
    assert [text.partition(":")[0] for text in refused] == ["4", "10", "11", "12"]
    assert "value too long for type character varying(3)" in refused[0]
    assert "violates not-null constraint" in refused[1]
    assert "public.kept rejected the row" in refused[1]
    assert "kept_n_check" in refused[3]
    assert read(database) == good


def test_a_row_that_is_too_large_costs_itself_and_a_key_that_is_too_large_for_its_index_says_so(database: Any, tmp_path: Path) -> None:
    wide = parse_schema("id BIGINT, " + ", ".join(f"c{number} BIGINT" for number in range(1100)))  # of 8 bytes, in a page of 8 KiB
    full, narrow = dict.fromkeys(wide.names, 1), dict.fromkeys(wide.names) | {"id": 2}
    (refused,) = Writer(place(database, tmp_path), wide).write(0, [narrow, full])
    assert refused.startswith("1: public.kept rejected the row: row is too big")
    assert [row["id"] for row in read(database)] == [2]
    keyed = Writer(place(database, tmp_path, table="keyed", mode="upsert", key=("id",)), parse_schema("id STRING"))
    with pytest.raises(SinkError, match="index row requires") as told:
        keyed.write(0, [{"id": "a"}, {"id": random.Random(7).randbytes(8_000).hex()}])
    assert (told.value.code, "too large" in told.value.remedy) == ("postgres-large", True)
    assert read(database, "keyed") == []


def test_of_rows_of_one_key_the_last_to_come_stands(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT, name STRING")
    writer = Writer(place(database, tmp_path, mode="upsert", key=("id",)), schema)
    first, second = ([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}], [{"id": 2, "name": "d"}])
    assert writer.write(0, first, second) == []
    assert writer.write(1, [{"id": 1, "name": "e"}, {"id": 3, "name": None}]) == []
    assert sorted(read(database), key=lambda row: row["id"]) == [{"id": 1, "name": "e"}, {"id": 2, "name": "d"}, {"id": 3, "name": None}]
    (refused,) = writer.write(2, [{"id": None, "name": "nobody"}])
    assert 'null value in column "id"' in refused


def test_of_rows_of_one_key_the_one_with_the_greatest_version_stands_whenever_it_comes(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT, v INT, name STRING")
    writer = Writer(place(database, tmp_path, mode="upsert", key=("id",), version="v"), schema)
    writer.write(0, [{"id": 1, "v": 5, "name": "newest"}, {"id": 1, "v": 4, "name": "older"}, {"id": 1, "v": None, "name": "unknown"}])
    writer.write(1, [{"id": 1, "v": 3, "name": "late"}, {"id": 2, "v": 1, "name": "other"}])
    assert {row["name"] for row in read(database)} == {"newest", "other"}
    writer.write(2, [{"id": 1, "v": 5, "name": "as new"}])
    assert {row["name"] for row in read(database)} == {"as new", "other"}


def test_changes_are_done_in_their_order_and_an_unknown_one_is_refused(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT, name STRING NOT NULL, op STRING")
    writer = Writer(place(database, tmp_path, mode="changes", key=("id",), change="op"), schema)
    writer.write(0, [{"id": n, "name": "new", "op": "INSERT"} for n in range(4)])
    refused = writer.write(
        1,
        [{"id": 0, "name": "", "op": "delete"}, {"id": 1, "name": "", "op": "delete"}, {"id": 1, "name": "again", "op": "insert"}],
        [{"id": 2, "name": "changed", "op": "update"}, {"id": 7, "name": "x", "op": "upsert"}, {"id": 9, "name": "", "op": "delete"}],
    )
    (told,) = refused
    assert told.startswith("1: ")
    assert "a change is insert, update or delete" in told
    assert {row["id"]: row["name"] for row in read(database)} == {1: "again", 2: "changed", 3: "new"}
    assert list(read(database)[0]) == ["id", "name"]
    (told,) = writer.write(2, [{"id": 3, "name": None, "op": "update"}, {"id": 2, "name": None, "op": "delete"}])
    assert "name is given unless the row is deleted" in told
    assert {row["id"] for row in read(database)} == {1, 3}


def test_a_table_that_is_there_is_compared_before_anything_is_written(database: Any, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE kept (id integer, name text, must date NOT NULL, made date DEFAULT now(), n bigint GENERATED ALWAYS AS IDENTITY)"
    )
    sink = PostgresSink(place(database, tmp_path, mode="upsert", key=("id",)))
    assert sink.unlike(parse_schema("id BIGINT, name STRING, more STRING")) == [
        'column "id" is integer in the table, but BIGINT in the flow',
        'the table has no column "more" (text)',
        'the table requires column "must" (date), which the flow does not have',
        "the table has no primary key or unique index on (id), which mode: upsert needs",
    ]
    assert PostgresSink(place(database, tmp_path, table="none")).unlike(SCHEMA) == []


def test_a_table_with_rows_of_others_is_refused_and_taken_where_that_is_said(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE kept (id bigint)")
    database.execute("INSERT INTO kept VALUES (7)")
    sink = PostgresSink(place(database, tmp_path))
    with pytest.raises(Refused, match="holds rows that this lineage did not write") as told:
        sink.prepare(owner="me", lineage="one")
    assert "--append-new-lineage" in told.value.remedy
    sink.prepare(owner="me", lineage="one", adopt=True)


def test_rows_that_are_gone_or_came_from_elsewhere_are_found_by_an_audit(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(database, tmp_path), schema)
    decided = []
    for number in range(3):
        each, _ = writer.stage(number, [{"id": number * 10 + n} for n in range(5)])
        writer.sink.publish(each)
        decided.append(each)
    assert [each.violations for each in writer.sink.audit(lineage="one", decided=decided)] == [(), (), ()]
    database.execute("DELETE FROM kept WHERE id = 11")
    database.execute("INSERT INTO kept VALUES (99)")
    told = [text for each in writer.sink.audit(lineage="one", decided=decided) for text in each.violations]
    assert told == ["batch 1: expected 5 rows in public.kept, found 4", "1 rows in public.kept belong to no batch"]


def test_what_killed_tasks_have_staged_goes_once_their_batch_is_decided(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(database, tmp_path), schema)
    killed = writer.sink.stream(BatchId("flow", "query", "one", 0, 1), 0, "killed", schema)
    killed.write(pa.RecordBatch.from_pylist([{"id": 1}], schema=arrow_schema(schema)))
    killed.close()  # and the receipt never arrives
    sleeping, _ = writer.stage(1, [{"id": 3}])
    assert staged(database) == 2
    writer.write(0, [{"id": 2}])
    assert staged(database) == 1, "that of the Batch which nobody has decided"
    writer.sink.publish(sleeping)
    assert [row["id"] for row in read(database)] == [2, 3]
    assert staged(database) == 0


def test_a_task_that_sleeps_in_its_copy_holds_up_nobody(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(database, tmp_path), schema)
    sleeping = writer.sink.stream(BatchId("flow", "query", "one", 0, 1), 0, "asleep", schema)
    sleeping.write(pa.RecordBatch.from_pylist([{"id": 1}], schema=arrow_schema(schema)))
    name = sleeping.close().segments[0]["staged"]
    with psycopg.connect(database.info.dsn) as asleep:
        asleep.execute(f'INSERT INTO scribengin."{name}" VALUES (1)')
        writer.write(0, [{"id": 2}])
        assert [row["id"] for row in read(database)] == [2]
        assert staged(database) == 1
    writer.sink.recover(None, lineage="one", before=1)
    assert staged(database) == 0


def ends_soon(session: Any) -> None:
    """The server ends it as it ends others that are silent in a transaction, and sooner."""
    assert session.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0] == f"{client.ABANDONED_MS // 1000}s"
    session.execute("SET LOCAL idle_in_transaction_session_timeout = 300")


def test_a_driver_that_sleeps_while_it_publishes_loses_its_turn(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse_schema("id BIGINT")
    old, new = Writer(place(database, tmp_path), schema, term=1), Writer(place(database, tmp_path), schema, term=2)
    of_old, of_new = old.stage(0, [{"id": 1}])[0], new.stage(0, [{"id": 2}])[0]
    sessions: list[Any] = []
    connect = client.PostgresServer.connect

    def noted(server: client.PostgresServer) -> Any:
        sessions.append(connect(server))
        return sessions[-1]

    monkeypatch.setattr(client.PostgresServer, "connect", noted)

    def other_first(point: str) -> None:
        if point == "publish.record.before":
            monkeypatch.setattr(faults, "reached", lambda _: None)
            ends_soon(sessions[-1])
            new.sink.publish(of_new)

    monkeypatch.setattr(faults, "reached", other_first)
    with pytest.raises(Unreachable, match="idle-in-transaction"):
        old.sink.publish(of_old)
    assert [row["id"] for row in read(database)] == [2]
    with pytest.raises(FencedError):
        old.sink.publish(of_old)


def test_a_reset_deletes_no_row_that_another_has_written(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT")
    writer = Writer(place(database, tmp_path), schema)
    writer.write(0, [{"id": 1}])
    database.execute("INSERT INTO kept VALUES (2)")
    with pytest.raises(Refused, match="rows that no batch wrote"):
        writer.sink.clear(owner="me", flow="flow")
    database.execute("CREATE TABLE theirs (id bigint PRIMARY KEY); INSERT INTO theirs VALUES (7)")
    sink = PostgresSink(place(database, tmp_path, table="theirs", mode="upsert", key=("id",)))
    sink.prepare(owner="me", lineage="one", adopt=True)
    with pytest.raises(Refused, match="held rows of other writers when the flow started"):
        sink.clear(owner="me", flow="flow")
    assert (len(read(database)), len(read(database, "theirs"))) == (2, 1)


def test_sinks_that_commit_together_stage_apart_though_they_have_the_attempt_in_common(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT")
    one, two = Writer(place(database, tmp_path), schema), Writer(place(database, tmp_path, table="other"), schema)
    of_one, of_two = one.stage(0, [{"id": 1}])[0], two.stage(0, [{"id": 2}])[0]
    one.sink.publish(of_one)
    two.sink.publish(of_two)
    assert [row["id"] for table in ("kept", "other") for row in read(database, table)] == [1, 2]


def test_staged_rows_that_are_not_what_was_decided_stop_the_flow(database: Any, tmp_path: Path) -> None:
    writer = Writer(place(database, tmp_path), parse_schema("id BIGINT"))
    decided, _ = writer.stage(0, [{"id": 1}, {"id": 2}])
    database.execute(f'DELETE FROM scribengin."{decided.receipts[0].segments[0]["staged"]}" WHERE id = 1')
    with pytest.raises(StateError, match="has 1 rows; expected 2"):
        writer.sink.publish(decided)
    assert read(database) == []


EVERY = parse_schema(
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY, j DATE, k TIMESTAMP, l DECIMAL(9,2), n FLOAT"
)
VALUES = {
    "a": [True, False, None],
    "b": [-128, 127, None],
    "c": [-(2**15), 2**15 - 1, None],
    "d": [-(2**31), 0, None],
    "e": [-(2**63), 2**63 - 1, None],
    "f": [0.1, float("nan"), float("-inf")],
    "g": [0.1, float("inf"), None],
    "h": ["", 'a "b", \\N\n', None, "ü€"],
    "i": [b"", b"\0\xff\\", None],
    "j": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1999, 12, 31)],
    "k": [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC), NOON, None],
    "l": [Decimal("-1.25"), None],
    "n": [0.1, None],
}


@pytest.mark.parametrize("without", [("l", "n"), ("n",), ("l",)])
def test_rows_come_as_bytes_as_they_come_as_text(
    without: tuple[str, ...], database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DECIMAL, and a FLOAT for a wider column, go as text, and with them the others."""
    dice = random.Random(7)
    schema = type(EVERY)(tuple(field for field in EVERY.fields if field.name not in without))
    rows = [{field.name: dice.choice(VALUES[field.name]) for field in schema.fields} for _ in range(200)]
    one_with_all = [{field.name: VALUES[field.name][0] for field in schema.fields}]
    database.execute("CREATE TABLE kept (a bool, b int, c bigint, d int, e bigint, f real, g float8, h varchar(20), i bytea, j date)")
    database.execute("ALTER TABLE kept ADD k timestamptz, ADD l numeric(9,2), ADD n float8; CREATE TABLE other (LIKE kept)")
    as_bytes, forms = staging.as_binary, list[bool]()

    def noted(batch: pa.RecordBatch, types: dict[str, str]) -> bytes | None:
        data = as_bytes(batch, types)
        forms.append(data is not None)
        return data

    monkeypatch.setattr(staging, "as_binary", noted)
    assert Writer(place(database, tmp_path), schema).write(0, rows, one_with_all) == []
    monkeypatch.setattr(staging, "as_binary", lambda *_: None)
    assert Writer(place(database, tmp_path, table="other"), schema).write(0, rows, one_with_all) == []
    assert forms == [len(without) == 2] * 2
    names = ", ".join(f'"{name}"::text' for name in schema.names)
    one, two = (database.execute(f"SELECT {names}, xmin IS NULL FROM {table}").fetchall() for table in ("kept", "other"))
    assert one == two
    assert len(one) == 201


def test_a_row_that_does_not_fit_is_told_in_the_same_words_in_bytes_and_in_text(
    database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = parse_schema("id BIGINT, name STRING, at DATE")
    rows = [{"id": n, "name": "ada", "at": None} for n in range(9)]
    rows[2]["name"], rows[5]["name"], rows[7]["id"] = "too long", "a\0b", None
    said = []
    for table in ("kept", "other"):
        database.execute(f"CREATE TABLE {table} (id bigint NOT NULL, name varchar(5), at date)")
        said.append([each.replace("other", "kept") for each in Writer(place(database, tmp_path, table=table), schema).write(0, rows)])
        monkeypatch.setattr(staging, "as_binary", lambda *_: None)
    assert said[0] == said[1]
    assert [each.split(":")[0] for each in said[0]] == ["2", "5", "7"]
    assert (len(read(database)), len(read(database, "other"))) == (6, 6)


def test_rows_that_a_trigger_keeps_out_are_no_error(database: Any, tmp_path: Path) -> None:
    writer = Writer(place(database, tmp_path), parse_schema("id BIGINT"))
    writer.write(0, [{"id": 1}])
    database.execute("CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    database.execute("CREATE TRIGGER never BEFORE INSERT ON kept FOR EACH ROW EXECUTE FUNCTION never()")
    writer.write(1, [{"id": 2}, {"id": 3}])
    assert read(database) == [{"id": 1}]


def test_what_a_task_has_staged_outlives_a_server_that_crashes_at_once(tmp_path: Path) -> None:
    for each in (tmp_path, *tmp_path.parents[:3]):
        each.chmod(each.stat().st_mode | 0o055)
    lazy = {"wal_writer_delay": "10s", "bgwriter_delay": "10s"}  # nobody writes the log but who waits for it
    server = Postgres(tmp_path / "server")
    try:
        server.start(**lazy)
        with psycopg.connect(server.uri, autocommit=True) as database:
            writer = Writer(place(database, tmp_path), parse_schema("id BIGINT"))
            decided, _ = writer.stage(0, [{"id": id_} for id_ in range(100)])
            server.kill()
        server.start(**lazy)
        writer.sink.publish(decided)
        with psycopg.connect(server.uri, autocommit=True, row_factory=psycopg.rows.dict_row) as database:
            assert len(read(database)) == 100
    finally:
        server.stop()


def test_a_driver_that_was_overtaken_writes_nothing_more(database: Any, tmp_path: Path) -> None:
    schema = parse_schema("id BIGINT")
    old, new = Writer(place(database, tmp_path), schema, term=1), Writer(place(database, tmp_path), schema, term=2)
    of_old, _ = old.stage(0, [{"id": 1}])
    new.write(0, [{"id": 2}])
    with pytest.raises(FencedError, match="with another decision"):
        old.sink.publish(of_old)
    after, _ = old.stage(1, [{"id": 3}])
    with pytest.raises(FencedError, match="under Term 2"):
        old.sink.publish(after)
    assert [row["id"] for row in read(database)] == [2]


def test_a_rule_over_rows_that_is_broken_stops_the_batch_as_a_whole(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE kept (id bigint PRIMARY KEY)")
    writer = Writer(place(database, tmp_path), parse_schema("id BIGINT"))
    with pytest.raises(SinkError, match="duplicate key value") as told:
        writer.write(0, [{"id": 1}, {"id": 1}])
    assert told.value.code == "postgres-rule"
    assert "mode: upsert" in told.value.remedy
    assert read(database) == []


def test_a_server_that_is_away_is_waited_for_and_a_wrong_login_is_not(database: Any, tmp_path: Path) -> None:
    away = place(database, tmp_path, server="postgresql://etl@127.0.0.1:9/shop")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9/shop cannot be connected to"):
        PostgresSink(away).prepare(owner="me", lineage="one")
    uri = place(database, tmp_path).options["server"]
    with pytest.raises(SinkError, match="does not exist") as told:
        PostgresSink(place(database, tmp_path, server=uri.rpartition("/")[0] + "/nowhere")).prepare(owner="me", lineage="one")
    assert told.value.code == "postgres-database"
    with pytest.raises(SinkError) as told:
        PostgresSink(place(database, tmp_path, config={"sslmode": "require"})).prepare(owner="me", lineage="one")
    assert told.value.code == "postgres-trust"


def test_a_password_stands_where_it_is_not_shown(database: Any, tmp_path: Path) -> None:
    with pytest.raises(SinkError) as told:
        PostgresSink(place(database, tmp_path, server="postgresql://etl:hunter2@db/shop"))
    assert "hunter2" not in f"{told.value} {told.value.remedy}"
    assert told.value.code == "secret-in-plain"


@pytest.mark.parametrize("mode", ["upsert", "changes"])
@pytest.mark.parametrize("odd", ['x"; DROP TABLE victim; --', "it's", "$1 %s %(a)s 100%", "größe 🐘", "line\nbreak"])
def test_names_are_quoted_and_never_taken_for_sql(database: Any, tmp_path: Path, odd: str, mode: str) -> None:
    def quoted(*names: str) -> str:
        return ".".join('"' + name.replace('"', '""') + '"' for name in names)

    schema = parse_schema(f"`{odd}` STRING, `Select` BIGINT, `{odd} %` STRING, `op {odd}` STRING")
    database.execute("CREATE TABLE victim (id int)")
    database.execute(f"CREATE SCHEMA {quoted(odd)}")
    options = {"key": ("Select", odd), "version": f"{odd} %", "staging": f"staged {odd}"} | (
        {"change": f"op {odd}"} if mode == "changes" else {}
    )
    writer = Writer(place(database, tmp_path, table=f"{odd}.Ta {odd}", mode=mode, **options), schema)
    row = {odd: odd, "Select": 1, f"{odd} %": "b", f"op {odd}": "update"}
    writer.write(0, [row, row | {f"{odd} %": "a"}, row | {"Select": 2}])
    writer.write(1, [row | {"Select": 2, f"op {odd}": "delete", f"{odd} %": "c"}])
    rows = read(database, quoted(odd, f"Ta {odd}"))
    assert [(each["Select"], each[f"{odd} %"]) for each in rows] == [(1, "b")] + [(2, "c")] * (mode == "upsert")
    assert database.execute("SELECT count(*) AS n FROM victim").fetchone()["n"] == 0


def test_old_batches_are_told_no_more_and_their_rows_still_counted(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.connectors.sql.commits.DETAILED", 2)
    writer = Writer(place(database, tmp_path), parse_schema("id BIGINT"))
    decided = []
    for number in range(5):
        each, _ = writer.stage(number, [{"id": number}])
        writer.sink.publish(each)
        decided.append(each)
    assert database.execute("SELECT count(*) AS n FROM scribengin.commits").fetchone()["n"] == 2
    assert [(each.number, each.violations) for each in writer.sink.audit(lineage="one", decided=decided[3:])] == [(3, ()), (4, ())]


def test_a_flow_that_was_begun_before_the_layer_was_there_goes_on(database: Any, tmp_path: Path) -> None:
    """Our tables as release 0.1 made them, with a Batch that is published and one that is decided."""
    database.execute(
        """
        CREATE TABLE kept (id bigint, name text);
        CREATE SCHEMA scribengin;
        CREATE TABLE scribengin.claims (target text PRIMARY KEY, owner text NOT NULL, lineage text NOT NULL, sink text NOT NULL,
            flow text NOT NULL, earlier text[] NOT NULL DEFAULT '{}', folded_rows bigint NOT NULL DEFAULT 0, had_rows boolean NOT NULL);
        CREATE TABLE scribengin.commits (target text, lineage text, number bigint, hash text NOT NULL, term bigint NOT NULL,
            receipts text NOT NULL, rows bigint NOT NULL, xid bigint NOT NULL, PRIMARY KEY (target, lineage, number));
        CREATE TABLE scribengin.staged (name text PRIMARY KEY, target text NOT NULL, lineage text NOT NULL, number bigint NOT NULL);
        INSERT INTO scribengin.claims (target, owner, lineage, sink, flow, earlier, had_rows)
            VALUES ('public.kept', 'me', 'one', 'kept', 'flow', '{zero}', false);
        CREATE TABLE scribengin.rows_1_0_3b4ba29c6fa9ac70e1f7ef0e (LIKE kept INCLUDING CONSTRAINTS INCLUDING DEFAULTS);
        INSERT INTO scribengin.rows_1_0_3b4ba29c6fa9ac70e1f7ef0e VALUES (2, 'b');
        INSERT INTO scribengin.staged VALUES ('rows_1_0_3b4ba29c6fa9ac70e1f7ef0e', 'public.kept', 'one', 1);
        BEGIN;
        INSERT INTO kept VALUES (1, 'a');
        INSERT INTO scribengin.commits VALUES ('public.kept', 'one', 0, 'hash 0', 1,
            '[{"bytes": 20, "rows": 1, "segments": [{"columns": ["id", "name"], "rows": 1, "staged": "rows_0_0_f0"}], '
            '"sink": "kept", "unit": 0}]',
            1, mod(pg_current_xact_id()::text::numeric, 4294967296)::bigint);
        COMMIT;
        """
    )

    def receipt(name: str) -> Receipt:
        return Receipt("kept", 0, 1, 20, ({"staged": name, "rows": 1, "columns": ["id", "name"]},))

    published = Decided(BatchId("flow", "query", "one", 0, 1), "hash 0", (receipt("rows_0_0_f0"),))
    decided = Decided(BatchId("flow", "query", "one", 1, 1), "hash 1", (receipt("rows_1_0_3b4ba29c6fa9ac70e1f7ef0e"),))
    sink = PostgresSink(place(database, tmp_path))
    sink.prepare(owner="me", lineage="one")
    sink.publish(published)
    sink.recover(decided, lineage="one", before=2)
    assert [row["id"] for row in read(database)] == [1, 2]
    assert [(each.number, each.violations) for each in sink.audit(lineage="one", decided=[published, decided])] == [(0, ()), (1, ())]
    assert staged(database) == 0
    with pytest.raises(Refused, match="a newer lineage has taken it over"):
        PostgresSink(place(database, tmp_path)).prepare(owner="me", lineage="zero")
    PostgresSink(place(database, tmp_path)).prepare(owner="me", lineage="two", adopt=True)
    assert database.execute("SELECT earlier, folded_rows FROM scribengin.claims").fetchone() == {
        "earlier": ["zero", "one"],
        "folded_rows": 0,
    }
