"""Units of a table that commit by themselves, against a real server, without Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import AlreadyCommitted, BatchId, Decided, Receipt
from scribengin.connectors.postgres import client
from scribengin.connectors.postgres.database import PostgresDatabase
from scribengin.connectors.postgres.options import SINK
from scribengin.connectors.postgres.sink import PostgresSink, PostgresUnitSink
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, SinkError, StateError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from scribengin.testing.conformance_units import check_unit_sink
from tests.connectors.postgres.test_sink import ROWS, SCHEMA, ends_soon, place, read
from tests.looking import look_until

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.contract import ConnectorContext
    from scribengin.connectors.sql.unit_sink import SqlUnitStream

IDS = parse_schema("id BIGINT")


class Driver:
    """With one sink, whose units commit by themselves."""

    def __init__(self, place: ConnectorContext) -> None:
        self.place = place
        self.sink = PostgresUnitSink(place)
        self.sink.prepare(owner="me", lineage="one")
        self.decided: list[Decided] = []

    def begin(self, *ids: int | None, unit: int = 0) -> tuple[SqlUnitStream, list[str]]:
        """A unit of the next Batch, and what was refused of its rows."""
        batch = BatchId("flow", "query", "one", len(self.decided), 1)
        stream = self.sink.unit_stream(batch, unit, "a", IDS, input_hash=f"input {batch.number}", behind=self.sink.behind(1))
        return stream, write(stream, *ids)

    def commit(self, *ids: int | None, unit: int = 0) -> tuple[Receipt, list[str]]:
        """A whole unit."""
        stream, refused = self.begin(*ids, unit=unit)
        receipt = stream.close()
        stream.commit({"receipts": [receipt.as_json()]})
        stream.abort()
        return receipt, refused

    def decide(self, *receipts: Receipt, publish: bool = True) -> Decided:
        """The next Batch, of these units."""
        number = len(self.decided)
        behind = self.sink.behind(len(receipts))
        self.decided.append(Decided(BatchId("flow", "query", "one", number, 1), f"hash {number}", receipts, behind))
        if publish:
            self.sink.publish(self.decided[-1])
        return self.decided[-1]

    def violations(self, kind: type[PostgresSink | PostgresUnitSink] = PostgresUnitSink) -> list[str]:
        """What an audit finds wrong, in a fresh process."""
        return [text for each in kind(self.place).audit(lineage="one", decided=self.decided) for text in each.violations]


def write(stream: SqlUnitStream, *ids: int | None) -> list[str]:
    bad = stream.write(pa.RecordBatch.from_pylist([{"id": id_} for id_ in ids], arrow_schema(IDS)))
    return [f"{each.ordinal}: {each.message}" for each in bad]


def ids_in(database: Any) -> list[int]:
    return sorted(row["id"] for row in read(database))


@pytest.fixture
def where(database: Any, tmp_path: Path) -> ConnectorContext:
    return place(database, tmp_path, visible="unit")


@pytest.fixture
def driver(where: ConnectorContext) -> Driver:
    return Driver(where)


def test_units_keep_the_contract(database: Any, where: ConnectorContext) -> None:
    check_unit_sink(lambda: PostgresUnitSink(where), lambda: read(database), schema=SCHEMA, rows=ROWS)


def test_whole_batches_keep_the_contract(database: Any, where: ConnectorContext) -> None:
    check_sink(lambda: PostgresUnitSink(where), lambda: read(database), schema=SCHEMA, rows=ROWS, declared=SINK, options=where.options)


def test_rows_that_the_table_does_not_take_cost_themselves_alone_rules_over_several_rows_too(database: Any, driver: Driver) -> None:
    database.execute("CREATE TABLE kept (id bigint UNIQUE CHECK (id > 0) CHECK (id IS NOT NULL))")
    first, none = driver.commit(1, 2, 3)
    second, refused = driver.commit(4, 2, 5, -1, 6, None, 5, unit=1)
    driver.decide(first, second)
    assert (none, ids_in(database)) == ([], [1, 2, 3, 4, 5, 6])
    assert [text.partition(":")[0] for text in refused] == ["1", "3", "5", "6"]
    assert "public.kept rejected the row: duplicate key value violates unique constraint" in refused[0]
    assert (first.rows, second.rows) == (3, 3)
    assert driver.violations() == []


@pytest.mark.parametrize("commits", [True, False])
def test_attempts_at_once_under_a_unique_index_wait_and_one_of_them_counts(database: Any, driver: Driver, commits: bool) -> None:
    database.execute("CREATE TABLE kept (id bigint UNIQUE)")
    first, _ = driver.begin(1, 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(driver.begin, 1, 2)
        with pytest.raises(TimeoutError):
            waiting.result(1.0)
        first.close()
        if commits:
            first.commit({"said": "first"})
        else:
            first.abort()
        second, refused = waiting.result(120)
    second.close()
    if commits:
        assert len(refused) == 2
        with pytest.raises(AlreadyCommitted) as found:
            second.commit({"said": "second"})
        assert found.value.report == {"said": "first"}
        second.abort()
    else:
        assert refused == []
        second.commit({"said": "second"})
    assert ids_in(database) == [1, 2]


def test_a_rule_that_is_checked_at_the_end_stops_the_unit_and_nothing_of_it_stays(database: Any, driver: Driver) -> None:
    database.execute("CREATE TABLE kept (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(SinkError, match="duplicate key value") as told:
        driver.commit(1, 2, 1)
    assert told.value.code == "postgres-rule"
    assert ids_in(database) == []


def test_a_unit_that_is_slow_is_not_taken_for_one_that_sleeps(database: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver.sink._database.silence_s == client.ABANDONED_MS / 1000, "it asks for something four times as often as the server wants"
    monkeypatch.setattr(PostgresDatabase, "silence_s", 0.2)
    stream, _ = driver.begin(1)

    def last_asked() -> Any:
        found = database.execute(
            "SELECT query, state_change AS at FROM pg_stat_activity WHERE application_name = 'scribengin' AND state = 'idle in transaction'"
        ).fetchone()
        return found["at"] if found is not None and found["query"] == "SELECT 1" else None

    before = look_until(last_asked, "it asks for something", 120)
    look_until(lambda: (now := last_asked()) and now > before, "and again", 120)
    write(stream, 2)
    receipt = stream.close()
    stream.commit({})
    assert (receipt.rows, ids_in(database)) == (2, [1, 2])


def test_a_unit_that_sleeps_where_it_holds_up_others_loses_its_turn(database: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _ = driver.begin(1)
    stream.close()

    def sleep(point: str) -> None:
        if point == "transaction.commit.before":
            monkeypatch.setattr(faults, "reached", lambda _: None)
            assert stream._awake is not None
            ends_soon(stream._awake._session)
            driver.commit(2)  # waits for the other's record, until the server has ended that session

    monkeypatch.setattr(faults, "reached", sleep)
    with pytest.raises(Unreachable, match="idle-in-transaction"):
        stream.commit({})
    stream.abort()
    assert ids_in(database) == [2]


def test_a_table_that_is_gone_is_not_made_anew_by_a_unit(database: Any, driver: Driver) -> None:
    driver.commit(1)
    database.execute("DROP TABLE kept")
    with pytest.raises(SinkError, match="does not exist any more, nor do the rows that were written to it") as told:
        driver.begin(2, unit=1)
    assert told.value.code == "table-gone"


def test_an_audit_finds_what_others_have_done_to_rows_of_units(database: Any, driver: Driver) -> None:
    for number in range(3):
        driver.decide(driver.commit(number * 10, number * 10 + 1)[0], driver.commit(number * 10 + 2, unit=1)[0])
    driver.commit(30)  # of a Batch that is not decided yet
    assert driver.violations() == driver.violations(PostgresSink) == []
    database.execute("DELETE FROM kept WHERE id = 11; INSERT INTO kept VALUES (99)")
    told = ["batch 1: expected 3 rows in public.kept, found 2", "1 rows in public.kept belong to no batch"]
    assert driver.violations() == driver.violations(PostgresSink) == told


def test_old_batches_are_told_no_more_and_their_rows_still_counted(database: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.connectors.sql.commits.DETAILED", 2)
    for number in range(5):
        driver.decide(driver.commit(number)[0])
    for own in ("commits", "units", "parts"):
        assert database.execute(f"SELECT count(*) AS n FROM scribengin.{own}").fetchone()["n"] == 2
    driver.decided = driver.decided[3:]
    assert driver.violations() == []
    with pytest.raises(FencedError, match="batch 4 already exists"):
        driver.begin(1)  # of Batch 2


def test_a_reset_takes_back_units_too_and_no_row_of_others(database: Any, driver: Driver) -> None:
    driver.decide(driver.commit(1, 2)[0])
    driver.commit(3)
    database.execute("INSERT INTO kept VALUES (4)")
    with pytest.raises(Refused, match="rows that no batch wrote"):
        driver.sink.clear(owner="me", flow="flow")
    database.execute("DELETE FROM kept WHERE id = 4")
    assert driver.sink.clear(owner="me", flow="flow") == 3
    assert database.execute("SELECT count(*) AS n FROM scribengin.parts").fetchone()["n"] == 0
    Driver(driver.place).commit(5)
    assert ids_in(database) == [5]


def test_a_batch_whose_units_have_committed_is_published_also_where_the_option_was_taken_out(database: Any, driver: Driver) -> None:
    decided = driver.decide(driver.commit(1)[0], publish=False)
    sink = PostgresSink(driver.place)
    sink.prepare(owner="me", lineage="one")
    sink.recover(decided, lineage="one", before=1)
    assert (ids_in(database), driver.violations(PostgresSink)) == ([1], [])


def test_units_that_are_not_those_of_the_decision_stop_the_flow(database: Any, driver: Driver) -> None:
    receipt, _ = driver.commit(1)
    decided = driver.decide(receipt, publish=False)
    database.execute("DELETE FROM scribengin.units")
    with pytest.raises(StateError, match=r"batch 0 has the task outputs \[\] in public.kept .* expected \[0\]"):
        driver.sink.publish(decided)
    staged = Decided(decided.batch, "h", (), {"units": 0, "after": None})
    Driver(driver.place).sink.publish(staged)
    with pytest.raises(FencedError, match="with another decision"):
        driver.sink.publish(decided)


def test_a_batch_is_not_written_as_a_whole_over_units_that_stand_there(database: Any, driver: Driver) -> None:
    driver.commit(1)
    stream = driver.sink.stream(batch := BatchId("flow", "query", "one", 0, 1), 0, "whole", IDS)
    stream.write(pa.RecordBatch.from_pylist([{"id": 1}], arrow_schema(IDS)))
    with pytest.raises(StateError, match="batch 0 has the task outputs"):
        driver.sink.publish(Decided(batch, "hash 0", (stream.close(),), {"units": 0, "after": None}))
    assert ids_in(database) == [1]


def test_a_database_that_was_set_back_takes_no_unit(database: Any, driver: Driver) -> None:
    for number in range(2):
        driver.decide(driver.commit(number)[0])
    database.execute("DELETE FROM scribengin.commits WHERE number = 1; DELETE FROM scribengin.units WHERE number = 1")
    with pytest.raises(StateError, match=r"batch 1 is published, but the newest in .* for public\.kept is 0"):
        driver.begin(7)
