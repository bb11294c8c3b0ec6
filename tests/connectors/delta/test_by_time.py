"""Folders by event time of a table: columns by which its files are apart, rows that come too late, and what the log says is closed."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from harness import object_stores
from scribengin.connectors.delta import make_sink, table_place
from scribengin.connectors.delta.by_time import CLOSED, closed_of
from scribengin.connectors.delta.maintenance import keep_table
from scribengin.core import faults
from scribengin.core.errors import Refused
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_sink
from tests.connectors.delta.driver import Writer, place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.connectors.contract import ConnectorContext

    Make = Callable[..., ConnectorContext]

SCHEMA = parse_schema("id BIGINT NOT NULL, country STRING, ts TIMESTAMP")
HOURLY = {"time": "ts", "path": "dt=%Y-%m-%d/hour=%H"}
BY_TIME: dict[str, Any] = {"partition_by": ["country", HOURLY], "close": {"delay": 600.0}}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Died(BaseException):
    """As a process that is killed."""


@pytest.fixture(params=["folder", "s3"])
def make(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Make:
    """A table in a folder, or in a real store."""

    def made(**more: Any) -> ConnectorContext:
        given = object_stores.options(request.getfixturevalue("server"), prefix) if request.param == "s3" else {"url": "kept"}
        return place(tmp_path, **{**BY_TIME, "path": given.pop("url"), **given, **more})

    return made


def opened(where: ConnectorContext) -> DeltaTable:
    table = table_place(where.node, where.options, where.folder).open()
    assert table is not None
    return table


def minute(moment: float | None) -> int | None:
    return None if moment is None else round((moment / 1e6 - START.timestamp()) / 60)


def rows(number: int, *minutes: float | None) -> list[dict[str, Any]]:
    moments = [None if each is None else START + dt.timedelta(minutes=each) for each in minutes]
    return [{"id": 100 * number + nth, "country": "DE", "ts": moment} for nth, moment in enumerate(moments)]


def held(where: ConnectorContext) -> dict[str, int]:
    """Partition → rows, by the log."""
    import pyarrow as pa

    found: dict[str, int] = {}
    for each in pa.table(opened(where).get_add_actions(flatten=True)).to_pylist():
        name = "/".join(str(each[f"partition.{column}"]) for column in ("country", "dt", "hour"))
        found[name] = found.get(name, 0) + each["num_records"]
    return found


def test_rows_go_to_the_columns_of_their_time_and_the_log_says_what_is_complete(make: Make) -> None:
    where = make()
    writer = Writer(where, SCHEMA)
    assert writer.sink.unlike(SCHEMA) == []
    assert writer.write(0, rows(0, 10, 65, None)) == []
    assert held(where) == {"DE/2026-01-01/00": 1, "DE/2026-01-01/01": 1, "DE/None/None": 1}
    assert opened(where).metadata().partition_columns == ["country", "dt", "hour"]
    assert minute(closed_of(opened(where))) == 55
    assert writer.write(1, rows(1, 30, 75)) == []
    assert minute(opened(where).transaction_version(CLOSED)) == 65
    newest = opened(where).history(1)[0]
    assert json.loads(newest["userMetadata"]) == {"closed_until": "2026-01-01T01:05:00+00:00"}
    assert writer.write(2, rows(2, 59, 61)) == ["0: country=DE/dt=2026-01-01/hour=00/ is closed: these rows arrived too late for it"]
    assert held(where) == {"DE/2026-01-01/00": 2, "DE/2026-01-01/01": 3, "DE/None/None": 1}
    assert minute(closed_of(opened(where))) == 65, "it never goes back"
    assert writer.sink.unlike(SCHEMA) == []
    told = list(writer.sink.audit(lineage="one", decided=[]))
    assert sum(each.rows for each in told) == 6
    assert [text for each in told for text in each.violations if "there is no decision for it" not in text] == []


def test_readers_find_the_folders_as_columns(tmp_path: Path) -> None:
    where = place(tmp_path, **BY_TIME)
    Writer(where, SCHEMA).write(0, rows(0, 10, 65))
    files = SubTreeFileSystem(str(tmp_path / "kept"), LocalFileSystem())
    kept = opened(where).to_pyarrow_dataset(filesystem=files)
    assert duckdb.sql("SELECT id, dt, hour FROM kept WHERE dt = '2026-01-01' AND hour = '01'").fetchall() == [(1, "2026-01-01", "01")]
    assert kept.schema.names == ["id", "country", "ts", "dt", "hour"]


def test_a_batch_that_is_run_again_judges_the_same_whatever_the_delay_is_now(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    where = make()
    writer = Writer(where, SCHEMA)
    decided, _ = writer.stage(0, rows(0, 10, 100))

    def die(reached: str) -> None:
        if reached == "publish.record.after":
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reached", die)
        with pytest.raises(Died):
            writer.sink.publish(decided)
    for more in ({"close": {"delay": 1.0}}, {"close": None}, {}):
        again = Writer(make(**more), SCHEMA).sink
        again.recover(decided, lineage="one", before=1)
    assert minute(closed_of(opened(where))) == 90
    for term, more in enumerate(({}, {"close": None}, {"close": {"delay": 10.0**6}})):
        _, refused = Writer(make(**more), SCHEMA, term=term).stage(1, rows(1, 20, 95))
        assert [each.partition(":")[0] for each in refused] == ["0"], "what is closed stays closed"


def test_the_next_lineage_adds_to_nothing_that_is_closed(make: Make) -> None:
    where = make()
    Writer(where, SCHEMA).write(0, rows(0, 10, 80))
    after = Writer(where, SCHEMA, lineage="two", adopt=True)
    assert [each.partition(":")[0] for each in after.write(0, rows(0, 20, 70))] == ["0"]
    assert minute(closed_of(opened(where))) == 70
    without = Writer(make(close=None), SCHEMA, lineage="three", adopt=True)
    assert [each.partition(":")[0] for each in without.write(0, rows(0, 20, 70))] == ["0"]


def test_a_reset_opens_all_folders_again(make: Make) -> None:
    where = make()
    writer = Writer(where, SCHEMA)
    writer.write(0, rows(0, 10, 80))
    opened(where).create_checkpoint()
    assert minute(closed_of(opened(where))) == 70
    assert writer.sink.clear(owner="me", flow="flow") == 2
    assert closed_of(opened(where)) is None
    opened(where).create_checkpoint()
    again = Writer(where, SCHEMA, lineage="two")
    assert again.write(0, rows(0, 10)) == []
    assert closed_of(opened(where)) == 0 or minute(closed_of(opened(where))) == 0


def test_folders_that_were_closed_are_named_as_before(make: Make) -> None:
    Writer(make(), SCHEMA).write(0, rows(0, 10, 80))
    other = make(partition_by=["country", {**HOURLY, "time_zone": "Europe/Berlin"}])
    with pytest.raises(Refused, match="in Europe/Berlin"):
        Writer(other, SCHEMA)


def test_what_is_closed_outlives_what_others_commit_and_a_compaction(tmp_path: Path) -> None:
    where = place(tmp_path, **BY_TIME)
    writer = Writer(where, SCHEMA)
    for number in range(3):
        writer.write(number, rows(number, 10 + number, 65))
    own = opened(where).to_pyarrow_table().slice(0, 1)
    write_deltalake(opened(where), own, mode="append")
    assert keep_table(table_place("kept", where.options, where.folder), 1 << 20, 0.0, flush=True).merged > 0
    assert minute(closed_of(opened(where))) == 55
    opened(where).create_checkpoint()
    assert minute(closed_of(opened(where))) == 55


def test_overwrite_replaces_folders_by_time_that_are_open(make: Make) -> None:
    where = make(mode="overwrite")
    writer = Writer(where, SCHEMA)
    writer.write(0, rows(0, 10, 11, 65))
    assert len(writer.write(1, rows(1, 12, 65, 66, 67))) == 0
    assert held(where) == {"DE/2026-01-01/00": 1, "DE/2026-01-01/01": 3}
    writer.write(2, rows(2, 70))
    assert len(writer.write(3, rows(3, 12, 71))) == 1
    assert held(where) == {"DE/2026-01-01/00": 1, "DE/2026-01-01/01": 1}


def test_it_keeps_the_contract(make: Make) -> None:
    where = make()
    given = [{"id": n, "country": None if n == 2 else "DE", "ts": START + dt.timedelta(minutes=n)} for n in range(6)]

    def look() -> list[dict[str, Any]]:
        table = table_place(where.node, where.options, where.folder).open()
        found = [] if table is None else table.to_pyarrow_table().select(list(SCHEMA.names)).to_pylist()
        return [row | {"ts": row["ts"].astimezone(dt.UTC)} for row in found]

    check_sink(lambda: make_sink(where), look, schema=SCHEMA, rows=given)  # type: ignore[arg-type, return-value]
