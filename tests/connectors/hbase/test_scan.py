"""Scans against a real server: ends that are none, keys of any bytes, rows of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from scribengin.connectors.hbase import scan as hbase_scan
from scribengin.connectors.hbase.gateway import open_gateway
from scribengin.connectors.hbase.gateway_contract import Gateway, ScanRequest, ValueRow
from scribengin.connectors.hbase.scan import HBaseScan
from scribengin.core.errors import SourceError, Unreachable
from tests.connectors.hbase.conftest import BOTH

if TYPE_CHECKING:
    from tests.connectors.hbase.conftest import Table

KEYS = [bytes([first, second]) for first in (1, 65, 127, 128, 200, 255) for second in (0, 128, 255)]
"""most are no UTF-8"""


def cluster_of(table: Table) -> Any:
    return open_gateway("in", [table.server], {}, "source")


def filled(table: Table, keys: list[bytes]) -> Table:
    table.make()
    table.put_rows({key: {"d:name": key} for key in keys})
    return table


def seen(cluster: Gateway, table: Table, *between: bytes | None, **given: Any) -> list[bytes]:
    pages = HBaseScan(cluster, table.name, ValueRow, **{"page": 3} | given).pages(*(between or (b"",)))  # type: ignore[arg-type]
    return [row.key for page in pages for row in page]


@pytest.mark.parametrize("page", [1, 3, 1000])
@BOTH
def test_rows_between_two_keys_of_any_bytes_come_in_their_order(table: Table, page: int) -> None:
    cluster = cluster_of(filled(table, KEYS))
    assert seen(cluster, table, page=page) == KEYS
    assert seen(cluster, table, KEYS[4], KEYS[9], page=page) == KEYS[5:10]
    assert seen(cluster, table, KEYS[4], KEYS[9], 5, page=page) == KEYS[5:10]  # as many as expected
    assert seen(cluster, table, KEYS[4], KEYS[9], 2, page=page) == KEYS[5:10]  # more than expected
    assert seen(cluster, table, b"\x80\x01", b"\xc8\x81", page=page) == KEYS[10:14]  # of rows that are not there any more
    assert seen(cluster, table, KEYS[-1], page=page) == []


@pytest.mark.parametrize(
    ("cut", "part"),
    [("the scanner is gone", "all"), ("the scanner says that it has no more", "first"), ("an answer is short", "all")],
)
def test_a_scan_goes_on_behind_the_last_row_where_its_scanner_ends_before(table: Table, cut: str, part: Any) -> None:
    cluster = cluster_of(filled(table, KEYS))
    ask = cluster.ask
    answered: list[int] = []

    def cutting(method: str, path: str, **given: Any) -> Any:
        if "/scanner/" not in path or method != "GET":
            return ask(method, path, **given)
        if len(answered) % 2 and "no more" in cut:
            answered.append(204)
            return httpx2.Response(204)
        if len(answered) % 2 and "gone" in cut:
            table.http.delete(f"{table.address}{path.partition('?')[0]}").raise_for_status()
        if "short" in cut:
            path = path.partition("?")[0] + "?n=1"
        answer = ask(method, path, **given)
        answered.append(answer.status_code)
        return answer

    cluster.ask = cutting
    assert seen(cluster, table, part=part) == KEYS
    assert set(answered) == {"gone": {200, 404}, "more": {200, 204}, "short": {200}}[cut.rpartition(" ")[2]]


def test_a_scan_whose_scanners_always_end_says_so_after_a_while(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hbase_scan, "_TRIES_FOR_S", 0.5)
    cluster = cluster_of(filled(table, KEYS))
    monkeypatch.setattr(cluster, "next_of", lambda *_: None)
    with pytest.raises(Unreachable, match=r"scanners of .* end after row A\\x80, although there are more rows") as told:
        seen(cluster, table, b"A\x80")
    assert "name each one in `server`" in told.value.remedy


@BOTH
def test_rows_without_any_of_the_columns_are_passed_over_and_do_not_keep_a_scan_from_its_end(table: Table) -> None:
    filled(table, KEYS[:6])
    table.put_rows({KEYS[7]: {"d:other": b"1"}, KEYS[8]: {"d:a:b": b"2"}})
    cluster = cluster_of(table)
    assert seen(cluster, table, columns=[b"d:name"]) == KEYS[:6]
    assert seen(cluster, table, columns=[b"d:other", b"d:name"]) == [*KEYS[:6], KEYS[7]]
    assert seen(cluster, table, columns=[b"d"]) == [*KEYS[:6], *KEYS[7:9]]


@pytest.mark.parametrize("part", ["all", "first"])
@BOTH
def test_columns_are_asked_for_by_their_family_while_it_has_no_others(table: Table, monkeypatch: pytest.MonkeyPatch, part: Any) -> None:
    filled(table, KEYS)
    table.put_rows({KEYS[12]: {"d:a": b"1"}, KEYS[14] + b"b": {"d:a": b"2"}, KEYS[17]: {"d:z": b"1"}, KEYS[17] + b"b": {"d:a": b"1"}})
    monkeypatch.setattr(hbase_scan, "_LOOKED_AT", 2)
    cluster = cluster_of(table)
    asked: list[Any] = []
    opened = cluster.open_scanner

    def noting(name: str, given: ScanRequest) -> Any:
        asked.append(given.columns)
        return opened(name, given)

    monkeypatch.setattr(cluster, "open_scanner", noting)
    pages = list(HBaseScan(cluster, table.name, ValueRow, page=5, columns=[b"d:name"], part=part).pages(b""))
    assert [row.key for page in pages for row in page] == KEYS
    assert {cell.column for page in pages for row in page for cell in row.cells} == {b"d:name"}
    assert asked == [[b"d"], [b"d"], [b"d:name"]]  # a look at names, then all of the family, then the column
    asked.clear()
    assert seen(cluster, table, KEYS[11], columns=[b"d:name"]) == KEYS[12:]
    assert asked == [[b"d"], [b"d:name"]]


@BOTH
def test_rows_that_are_larger_than_an_answer_come_whole_and_few_at_a_time(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.make()
    for number in range(8):
        table.put_rows({b"%d" % number: {f"d:c{part}": bytes([number]) * (1 << 20) for part in range(2)} | {"d:z": b"z"}})
    table.put_rows({b"%d" % number: {"d:z": b"z"} for number in range(8, 10)})
    cluster = cluster_of(table)
    sizes = []
    answered = cluster.next_of
    monkeypatch.setattr(cluster, "next_of", lambda scanner, most, kind: sizes.append(most) or answered(scanner, most, kind))
    monkeypatch.setattr(hbase_scan, "_FIRST_ROWS", 2)
    pages = list(HBaseScan(cluster, table.name, ValueRow, page=1000).pages(b""))
    assert [(row.key, sum(len(cell.value) for cell in row.cells)) for page in pages for row in page] == [
        *((b"%d" % number, (2 << 20) + 1) for number in range(8)),
        *((b"%d" % number, 1) for number in range(8, 10)),
    ]
    assert sizes[:3] == [2, 1, 1]


@BOTH
def test_only_the_newest_version_of_a_cell_is_read(table: Table) -> None:
    table.make(VERSIONS="5")
    for value in (b"old", b"new"):
        table.put_rows({b"k": {"d:name": value}})
    (page,) = HBaseScan(cluster_of(table), table.name, ValueRow, page=10).pages(b"")
    assert [(cell.column, cell.value) for cell in page[0].cells] == [(b"d:name", b"new")]


@BOTH
def test_a_table_that_is_not_there_is_told_with_one_that_is_near(table: Table) -> None:
    table.make()
    with pytest.raises(SourceError, match=f"there is no table {table.name}x") as told:
        list(HBaseScan(cluster_of(table), f"{table.name}x", ValueRow, page=10).pages(b""))
    assert told.value.remedy == f'did you mean "{table.name}"?'
    assert cluster_of(table).is_empty(f"{table.name}x")
