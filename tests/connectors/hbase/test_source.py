"""The source against a real server, without Spark: the contract, types, ranges, rows that change, what is told before a start."""

from __future__ import annotations

import datetime as dt
import random
import threading
from base64 import b64encode
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.hbase.options import SOURCE
from scribengin.connectors.hbase.source import TableSource
from scribengin.core.errors import SourceError, Unreachable
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_source
from scribengin.testing.conformance_sources import Bench, check_bounded_source
from tests.connectors.hbase.conftest import BOTH
from tests.connectors.hbase.test_sink import written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conftest import Table

    from scribengin.connectors.contract import SourceStream
    from scribengin.connectors.hbase.reader import TableReader
    from scribengin.embedded.hbase import HBase

SIMPLE = "key STRING, name STRING"


def source(at: Table, schema: str | None = SIMPLE, **options: Any) -> TableSource:
    given = SOURCE.filled({"server": [at.server], "table": at.name, "row": "{key}"} | options)
    return TableSource(ConnectorContext("in", Path(), given, parse_schema(schema) if schema else None))


def names(table: Table, *numbers: int) -> None:
    table.put_rows({f"k{number:03}".encode(): {"d:name": f"n{number}".encode()} for number in numbers})


def rows_of(source: TableSource, streams: Iterable[SourceStream]) -> list[dict[str, Any]]:
    return [row for stream in streams for block in source.read(stream) for row in source.decoder().rows(block).rows]


def keys(source: TableSource, streams: Iterable[SourceStream]) -> list[str]:
    return [row["key"] for row in rows_of(source, streams)]


def all_of(reader: TableReader, most: int | None = None) -> list[SourceStream]:
    streams = []
    while taken := reader.split(BatchLimits(max_rows=most), final=True):
        streams += taken
    return streams


def pairs(*values: Any) -> Any:
    """The one server with the first, the other with the second; the others are `long`."""
    return [
        pytest.param(kind, value, id=f"{kind}-{nth}", marks=[pytest.mark.long] * (nth != place))
        for place, kind in enumerate(("rest", "thrift"))
        for nth, value in enumerate(values)
    ]


@pytest.mark.parametrize(("table", "on"), pairs(("stop", 3), ("ignore", 1000)), indirect=["table"])
def test_it_keeps_the_contract(table: Table, on: tuple[str, int]) -> None:
    on_change, page = on
    table.make()
    names(table, *range(11))
    assert check_source(source(table, split=2, page=page, on_change=on_change), limits=BatchLimits(max_rows=3)) == 11


@pytest.mark.parametrize(("table", "options"), pairs({}, {"on_change": "ignore"}), indirect=["table"])
def test_it_keeps_the_contract_while_its_table_changes(table: Table, options: dict[str, Any]) -> None:
    table.make()
    added = iter(range(100))
    given = {"server": [table.server], "table": table.name} | options
    add = lambda rows: names(table, *(next(added) for _ in range(rows)))  # noqa: E731
    change = lambda: table.put("k002", "d:name", "changed")  # noqa: E731
    check_bounded_source(Bench(lambda: source(table, **options), add, SOURCE, given, change=change))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("table", "killed", "reads"),
    [
        ("rest", "store", "task"),
        *(pytest.param(kind, "gateway", "task", marks=pytest.mark.long) for kind in ("rest", "thrift")),
        pytest.param("thrift", "store", "task", marks=pytest.mark.long),
        *(pytest.param(kind, killed, "driver", marks=pytest.mark.long) for kind in ("rest", "thrift") for killed in ("store", "gateway")),
    ],
    indirect=["table"],
)
def test_a_server_that_is_killed_in_the_midst_costs_no_row_and_doubles_none(server: HBase, table: Table, killed: str, reads: str) -> None:
    table.make()
    table.put_rows({b"k%05d" % number: {"d:name": b"n%d" % number} for number in range(3000)})
    read = source(table, page=100, split=2000)
    ended: list[str] = []
    kind = type(read._cluster)
    next_of = kind.next_of

    def noting(cluster: Any, scanner: Any, most: int, form: Any) -> Any:
        try:
            answer = next_of(cluster, scanner, most, form)
        except Unreachable:
            ended.append("away")
            raise
        if answer is None or len(answer[0]) < most:
            ended.append("silently")
        return answer

    def kill_and_start() -> threading.Thread:
        ended.clear()
        server.kill_store() if killed == "store" else server.kill_gateways()
        starting = threading.Thread(target=server.start)
        starting.start()
        return starting

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kind, "next_of", noting)
        streams = all_of(read.reader())
        assert [stream.rows for stream in streams] == [2000, 1000]
        if reads == "task":
            blocks = read.read(streams[0])
            rows = [*read.decoder().rows(next(blocks)).rows]
            starting = kill_and_start()
            try:
                for block in blocks:
                    rows += read.decoder().rows(block).rows
            except Unreachable:  # it takes longer to come up than a task waits: the task is done again
                starting.join()
                rows = [row for block in read.read(streams[0]) for row in read.decoder().rows(block).rows]
            assert [row["key"] for row in rows] == [f"k{number:05}" for number in range(2000)]
        else:
            reader = read.reader()
            again = reader.split(BatchLimits(max_rows=2000))
            starting = kill_and_start()
            try:
                again += all_of(reader)
            except Unreachable:  # and so is a look
                starting.join()
                again += all_of(reader)
            assert [stream.as_json() for stream in again] == [stream.as_json() for stream in streams]
    starting.join()
    if reads == "task":
        assert ended[0] == ("silently" if (killed, table.server) == ("store", table.address) else "away")


@pytest.mark.parametrize("page", [pytest.param(1, marks=pytest.mark.long), 1000])
def test_ranges_are_of_as_many_rows_as_asked_and_follow_each_other(table: Table, page: int) -> None:
    table.make()
    names(table, *range(40))
    read = source(table, split=6, page=page)
    streams = all_of(read.reader(), 14)
    assert [stream.rows for stream in streams] == [6, 6, 2, 6, 6, 2, 6, 6]
    assert [stream.place["after"] for stream in streams] == ["", *(stream.place["upto"] for stream in streams[:-1])]
    assert [stream.place["last"] for stream in streams] == [False] * 7 + [True]
    assert streams[1].label == f"{table.name}[k005 to k011]"
    assert keys(read, streams) == [f"k{number:03}" for number in range(40)]
    assert keys(source(table, page=page), all_of(source(table, page=page).reader())) == keys(read, streams)
    reader = read.reader()
    assert reader.backlog().rows is None
    assert sum(stream.rows or 0 for stream in all_of(reader)) == 40
    assert reader.backlog().rows == 0


def test_an_empty_table_hands_out_nothing(table: Table) -> None:
    table.make()
    assert all_of(source(table).reader()) == []


def test_rows_that_come_behind_the_last_range_do_no_harm(table: Table) -> None:
    table.make()
    names(table, *range(6))
    read = source(table, split=3)
    streams = all_of(read.reader())
    names(table, *range(6, 9))
    assert len(keys(read, streams)) == 6
    again = read.reader()
    again.restore([streams])
    assert again.split(BatchLimits()) == []


@BOTH
def test_rows_that_changed_are_told_and_others_are_read(table: Table) -> None:
    table.make()
    names(table, *range(12))
    read = source(table, split=3)
    streams = all_of(read.reader())
    table.put("k001", "d:name", "changed")
    table.put("k004", "d:name", "n4")  # another timestamp, the same row
    table.put("k006", "d:other", "x")  # no column of the flow
    with pytest.raises(
        SourceError, match=r"\[ to k002\] changed after it was assigned .*: the number of rows is the same, but the rows differ"
    ) as told:
        keys(read, streams[:1])
    assert told.value.code == "hbase-changed"
    assert "on_change: ignore" in told.value.remedy
    assert len(keys(read, streams[1:3])) == 6
    for key in ("k002", "k008", "k011"):  # also what a range ends with, and the table
        table.http.delete(f"{table.address}/{table.name}/{key}").raise_for_status()
    with pytest.raises(SourceError, match="found 2 rows, expected 3"):
        keys(read, streams[3:])
    left = [f"k{number:03}" for number in range(12) if number not in (2, 8, 11)]
    assert keys(source(table, on_change="ignore"), streams) == left
    table.put("k0095", "d:name", "between")
    with pytest.raises(SourceError, match="the number of rows is the same, but the rows differ"):
        keys(read, streams[3:])


def test_a_flow_that_takes_row_keys_alone_does_not_mind_cells(table: Table) -> None:
    table.make("d", "e")
    names(table, *range(5))
    read = source(table, "key STRING NOT NULL")
    streams = all_of(read.reader())
    table.put_rows({b"k001": {"d:a": b"", "e:b": b"1"}})
    assert keys(read, streams) == [f"k{number:03}" for number in range(5)]
    table.put("k0015", "e:b", "1")
    with pytest.raises(SourceError, match="found 6 rows, expected 5"):
        keys(read, streams)


@pytest.mark.parametrize(("table", "values"), pairs("text", "binary"), indirect=["table"])
def test_what_the_sink_wrote_is_read_back_equal(table: Table, tmp_path: Path, values: str) -> None:
    schema = "customer STRING NOT NULL, id BIGINT NOT NULL, b BOOLEAN, n INT, d DOUBLE, m DECIMAL(6,2), at TIMESTAMP, day DATE, "
    schema += "raw BINARY, many ARRAY<INT>"
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, dt.UTC)
    full = {"b": True, "n": -2, "d": 2.5, "m": Decimal("1.50"), "at": at, "day": at.date(), "raw": b"\0\xff", "many": [1, 2]}
    rows = [{"customer": "ü", "id": number} | (full if number % 2 else dict.fromkeys(full)) for number in range(5)]
    mapped = {"family": "e", "columns": {"n": "f:c:x", "d": "d:d"}, "values": values}
    options = {"mode": "upsert", "key": ["customer", "id"], "row": "{customer:reverse}/{id:9}"} | mapped
    assert written(table, tmp_path, rows, parse_schema(schema), **options) == []
    by_cells = source(table, schema, row="", **mapped)
    assert rows_of(by_cells, all_of(by_cells.reader())) == rows
    by_key = source(table, schema, row=options["row"], **mapped)
    assert rows_of(by_key, all_of(by_key.reader())) == rows


@pytest.mark.parametrize(
    ("options", "schema", "said", "code"),
    [
        ({"table": "keptt"}, SIMPLE, "there is no table keptt at", "hbase-table"),
        ({"family": "e"}, SIMPLE, 'has no column family "e"; it has d, f', "table-columns"),
        ({"columns": {"name": "g:n"}}, SIMPLE, 'has no column family "g"', "table-columns"),
        ({"columns": {"nam": "d:n"}}, SIMPLE, '`columns` names "nam", which `schema` does not have', "table-columns"),
        ({"columns": {"name": "n"}}, SIMPLE, "which is not FAMILY:QUALIFIER", "table-columns"),
        ({"row": "{id:8}"}, SIMPLE, '`row` names "id", which `schema` does not have', "table-columns"),
        ({"row": "{key}{name}"}, SIMPLE, '`row` has "key" and "name" side by side', "table-columns"),
        ({"row": "{key:8}"}, SIMPLE, 'pads "key" with zeros, but it is not an integer', "table-columns"),
        ({"row": "{key"}, SIMPLE, "`row` has .* has a brace without a column name", "table-columns"),
        ({}, None, "has no schema", "schema-missing"),
        ({"config": {"usr": "me"}}, SIMPLE, '"usr", which is not a known setting', "hbase-config"),
        ({"server": ["127.0.0.1:8080"]}, SIMPLE, "is not an address", "hbase-address"),
    ],
)
def test_what_does_not_fit_is_told_before_the_start(table: Table, options: Any, schema: str | None, said: str, code: str) -> None:
    table.make("d", "f")
    with pytest.raises(SourceError, match=said) as told:
        source(table, schema, **options).resolve_schema()
    assert told.value.code == code
    assert told.value.remedy
    assert 'source "in"' in str(told.value)


@BOTH
def test_a_table_that_is_gone_stops_a_reader_and_is_not_taken_for_its_end(table: Table) -> None:
    table.make()
    names(table, *range(6))
    read = source(table, split=3)
    reader = read.reader()
    first = reader.split(BatchLimits(max_rows=3))
    table.http.delete(f"{table.address}/{table.name}/schema").raise_for_status()
    with pytest.raises(SourceError, match="there is no table"):
        reader.split(BatchLimits())
    with pytest.raises(SourceError, match="there is no table"):
        keys(read, first)


@pytest.mark.long
@BOTH
def test_regions_that_split_while_a_table_is_read_cost_no_row(table: Table) -> None:
    table.make(table={"MAX_FILESIZE": str(2 << 20), "MEMSTORE_FLUSHSIZE": str(1 << 20)})
    regions = f"{table.address}/{table.name}/regions"

    def fill(letter: str, first: int) -> None:
        value = random.Random(first).randbytes(1000)
        table.put_rows({f"{letter}{first + number:05}".encode(): {"d:name": b64encode(value)} for number in range(500)})

    def count_regions() -> int:
        return len(table.http.get(regions, headers={"Accept": "application/json"}).json()["Region"])

    for first in range(0, 2000, 500):
        fill("k", first)
    assert count_regions() == 1
    read = source(table, page=100, split=1500, max_rows=1500)
    reader = read.reader()
    streams = reader.split(BatchLimits())
    blocks = read.read(streams[0])
    rows = [*read.decoder().rows(next(blocks)).rows]
    for first in range(0, 40_000, 500):
        fill("z", first)
        if count_regions() > 1:
            break
    assert count_regions() > 1
    for block in blocks:
        rows += read.decoder().rows(block).rows
    assert [row["key"] for row in rows] == [f"k{number:05}" for number in range(1500)]
    (rest,) = reader.split(BatchLimits())
    assert keys(read, [rest])[:500] == [f"k{number:05}" for number in range(1500, 2000)]
    again = source(table, page=100, split=1500, max_rows=1500)
    assert keys(again, streams) == [f"k{number:05}" for number in range(1500)]
