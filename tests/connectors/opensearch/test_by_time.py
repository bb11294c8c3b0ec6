"""Indexes by a time of the row: names, what is told before a start, the contract over all of them, templates at the server."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.opensearch.by_time import TimeTemplate
from scribengin.core.errors import InputError, Refused, SinkError
from scribengin.core.types import parse_schema
from scribengin.local.prepare import prepare
from scribengin.testing.conformance import check_sink
from scribengin.testing.records import SCHEMA, Records
from tests.connectors.opensearch.test_flows import FLOW, filled, letters, orders
from tests.connectors.opensearch.test_sink import decided, make, offered

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder
    from tests.connectors.opensearch.conftest import Index

BY_DAY = "-{at:%Y.%m.%d}"
DAY, NEXT = "-2026.01.01", "-2026.01.02"


def moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def named(text: str, *times: Any, type_: pa.DataType | None = None) -> tuple[list[Any], dict[int, str]]:
    template = TimeTemplate.of(text)
    assert template is not None
    names, wrong = template.of_rows(pa.array(times, type_ or pa.timestamp("us", "UTC")))
    return names.to_pylist(), dict(wrong)


def rows_of(*ids: int, at: str | None = "2026-01-01T12:00:00", name: str = "ada") -> list[dict[str, Any]]:
    return [{"id": id_, "name": name, "at": moment(at) if at else None} for id_ in ids]


def all_documents(index: Index) -> list[dict[str, Any]]:
    every = f"{index.address}/{index.name}-2*"
    index.http.post(f"{every}/_refresh").raise_for_status()
    found = index.http.post(f"{every}/_search", json={"size": 10_000}).raise_for_status().json()
    return [hit["_source"] | {"_index": hit["_index"].removeprefix(index.name)} for hit in found["hits"]["hits"]]


def by_day(index: Index, folder: Path, **given: Any) -> Any:
    sink = make(index, folder, index=f"{index.name}{BY_DAY}", **given)
    sink.prepare(owner="me", lineage="lineage-1")
    return sink


def test_a_row_comes_to_the_index_of_its_time_in_utc() -> None:
    times = [moment("2026-01-01T23:59:59.999999"), moment("1969-12-31T23:59:59.5"), moment("0001-01-01"), None]
    names, wrong = named("o-{ts:%Y.%m.%d}-x", *times)
    assert names == ["o-2026.01.01-x", "o-1969.12.31-x", "o-0001.01.01-x", None]
    assert wrong == {3: 'the column "ts" is null: the row has no index'}
    assert named("o-{ts:%G-w%V-%j-%H}", moment("2021-01-03T07:00:00"))[0] == ["o-2020-w53-003-07"]
    assert named("o-{day:%Y%m}", dt.date(1969, 12, 31), type_=pa.date32())[0] == ["o-196912"]
    beyond, why = named("o-{ts:%Y}", *pa.array([2**62, -(2**62), 0], pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist())
    assert (beyond, sorted(why)) == ([None, None, "o-1970"], [0, 1])
    assert "outside the years 1 to 9999" in why[0]


def test_a_template_knows_its_indexes_from_others() -> None:
    template = TimeTemplate.of("o.s-{ts:%Y%m.%d}-x")
    assert template is not None
    assert (template.wildcard, template.title) == ("o.s-*.*-x", "o.s-yyyymm.dd-x")
    assert template.fits("o.s-202601.02-x")
    assert not any(map(template.fits, ["o.s-202601.2-x", "o.s-202601.02-xy", "oxs-202601.02-x", "o.s-old.02-x", "o.s-٢٠٢٦01.02-x"]))
    assert TimeTemplate.of("orders") is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('index: "o-{ts}"', '"o-{ts}" has no column with a time format'),
        ('index: "{ts:%Y}"', "begins with a time"),
        ('index: "o-{ts:%Y}-{ts:%m}"', "more than one part in braces"),
        ('index: "o-{ts:%y}"', '"%y" in "o-{ts:%y}" is not known'),
        ('index: "o-{ts:year}"', "has no part of the time"),
        ('index: "o-{st:%Y}"', 'has index "st", which is not a column of its input'),
        ('index: "o-{id:%Y}"', 'has "id" in `index`, which is BIGINT, not a time'),
        (
            'index: "o-{ts:%Y}", mode: upsert, key: [id]',
            'has "ts" in `index` but not in `key`: rows of one key would be in several indexes',
        ),
    ],
)
def test_what_does_not_name_an_index_for_each_row_is_told_before_a_start(folder: FlowFolder, options: str, said: str) -> None:
    flow = (
        FLOW.replace("index: INDEX, records: RECORDS, MODE", options)
        .replace("TYPE", "elasticsearch")
        .replace("SERVER", "http://search1:9200")
    )
    folder.flow(flow).data("data/a.jsonl", [])
    with pytest.raises(InputError) as told:
        prepare(folder.path / "flow.yaml", state=None)
    (problem,) = told.value.problems
    assert said in problem.message
    assert problem.remedy


def test_the_sink_keeps_the_contract_over_its_indexes(index: Index, tmp_path: Path) -> None:
    rows = [
        row | {"at": moment(f"2026-01-{1 + number % 3:02}")} for number, row in enumerate(Records("conformance", parts=1, rows=6).of(0))
    ]

    def told() -> list[dict[str, Any]]:
        try:
            return [{**row, "at": moment(row["at"].rstrip("Z"))} for row in map(plain, all_documents(index))]
        except Exception:  # before the first row there is no index
            return []

    def plain(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if name != "_index"}

    schema = parse_schema(f"{SCHEMA}, at TIMESTAMP")
    check_sink(lambda: make(index, tmp_path, index=f"{index.name}{BY_DAY}"), told, schema=schema, rows=rows)


def test_a_batch_that_is_sent_again_changes_nothing_in_any_index(index: Index, tmp_path: Path) -> None:
    sink = by_day(index, tmp_path, mode="upsert", key=["id", "at"])
    batch = decided(sink, 0, [*rows_of(1, 2), *rows_of(1, at="2026-01-02T00:00:00"), *rows_of(2, name="bob")])
    sink.offer(batch, lambda _: None)
    before = sorted((row["_index"], row["id"], row["name"]) for row in all_documents(index))
    assert before == [(DAY, 1, "ada"), (DAY, 2, "bob"), (NEXT, 1, "ada")]
    sink.offer(batch, lambda _: None)
    assert sorted((row["_index"], row["id"], row["name"]) for row in all_documents(index)) == before


def test_every_index_gets_the_mapping_also_one_that_somebody_else_makes(index: Index, tmp_path: Path) -> None:
    sink = by_day(index, tmp_path)
    offered(sink, decided(sink, 0, rows_of(1)))
    index.http.put(f"{index.address}/{index.name}{NEXT}").raise_for_status()
    for name in (DAY, NEXT):
        (found,) = index.http.get(f"{index.address}/{index.name}{name}/_mapping").raise_for_status().json().values()
        assert (found["mappings"]["dynamic"], found["mappings"]["properties"]["at"]) == ("strict", {"type": "date"})


def test_a_template_of_somebody_elses_stays_and_its_settings_hold_beside_our_mapping(index: Index, tmp_path: Path) -> None:
    theirs = f"{index.address}/_index_template/{index.name}"
    body = {"index_patterns": [f"{index.name}-*"], "priority": 7, "template": {"settings": {"number_of_replicas": 0}}}
    index.http.put(theirs, json=body).raise_for_status()
    try:
        sink = by_day(index, tmp_path)
        offered(sink, decided(sink, 0, rows_of(1)))
        (found,) = index.http.get(f"{index.address}/{index.name}{DAY}").raise_for_status().json().values()
        assert found["settings"]["index"]["number_of_replicas"] == "0"
        assert found["mappings"]["dynamic"] == "strict"
        assert index.http.get(f"{index.address}/_index_template/scribengin-{index.name}-*").json().get("index_templates", []) == []
    finally:
        index.http.delete(theirs)


def test_a_row_that_its_index_does_not_take_is_refused_and_one_that_is_there_is_not(index: Index, tmp_path: Path) -> None:
    index.http.put(f"{index.address}/{index.name}{NEXT}", json={"mappings": {"properties": {"name": {"type": "date"}}}}).raise_for_status()
    sink = by_day(index, tmp_path)
    (refusal,) = offered(sink, decided(sink, 0, [*rows_of(1), *rows_of(2, at="2026-01-02T00:00:00")]))
    assert refusal.id == "source/a+0.1"
    assert f"{index.name}{NEXT} rejected the document" in refusal.message
    assert [row["id"] for row in all_documents(index)] == [1]


@pytest.mark.parametrize("by_itself", [True, False])
def test_an_index_that_was_deleted_is_made_again_for_a_late_row(index: Index, tmp_path: Path, *, by_itself: bool) -> None:
    settings = f"{index.address}/_cluster/settings"
    sink = by_day(index, tmp_path)
    offered(sink, decided(sink, 0, rows_of(1)))
    index.http.delete(f"{index.address}/{index.name}{DAY}").raise_for_status()
    index.http.put(settings, json={"transient": {"action.auto_create_index": str(by_itself).lower()}}).raise_for_status()
    try:
        offered(sink, decided(sink, 1, rows_of(2)))
    finally:
        index.http.put(settings, json={"transient": {"action.auto_create_index": None}}).raise_for_status()
    assert [(row["_index"], row["id"]) for row in all_documents(index)] == [(DAY, 2)]
    (found,) = index.http.get(f"{index.address}/{index.name}{DAY}/_mapping").raise_for_status().json().values()
    assert found["mappings"]["dynamic"] == "strict"


def test_rows_of_others_in_any_of_the_indexes_are_seen_and_an_index_beside_them_is_not_ours(index: Index, tmp_path: Path) -> None:
    index.http.post(f"{index.address}/{index.name}-a.b.c/_doc?refresh=true", json={"id": 0}).raise_for_status()
    sink = by_day(index, tmp_path)
    offered(sink, decided(sink, 0, [*rows_of(1), *rows_of(2, at="2026-01-02T00:00:00")]))
    assert sink.clear(owner="me", flow="flow", dry_run=True) == 2
    assert sink.clear(owner="me", flow="flow") == 2
    assert all_documents(index) == []
    assert index.http.get(f"{index.address}/{index.name}-a.b.c/_count").json()["count"] == 1
    index.http.post(f"{index.address}/{index.name}{NEXT}/_doc?refresh=true", json={"id": 0}).raise_for_status()
    with pytest.raises(Refused, match="rows that this lineage did not write"):
        make(index, tmp_path, index=f"{index.name}{BY_DAY}").prepare(owner="me", lineage="lineage-2")


def test_indexes_that_do_not_fit_are_told_by_name_and_one_that_may_forget_is_refused(index: Index, tmp_path: Path) -> None:
    for name in (DAY, NEXT):
        body = {"mappings": {"properties": {"id": {"type": "boolean"}}}, "settings": {"index.translog.durability": "async"}}
        index.http.put(f"{index.address}/{index.name}{name}", json=body).raise_for_status()
    sink = by_day(index, tmp_path)
    assert sink.unlike(parse_schema("id BIGINT, at TIMESTAMP")) == [
        f'field "id" is boolean in the index, but BIGINT in the flow (of {index.name}{DAY} and 1 more)'
    ]
    with pytest.raises(SinkError, match="acknowledged rows are lost"):
        offered(sink, decided(sink, 0, rows_of(1)))


def test_a_flow_writes_an_index_a_day_and_a_row_without_a_time_is_a_dead_letter(folder: FlowFolder, index: Index) -> None:
    flow = FLOW.replace("index: INDEX", 'index: "INDEX-{ts:%Y.%m.%d}"')
    data = [*orders(1, 2), *({**row, "ts": "2026-01-02T00:00:00Z"} for row in orders(3)), *({**row, "ts": None} for row in orders(4))]
    folder.flow(filled(index, flow)).data("data/a.jsonl", data)
    result = folder.run()
    assert result.violations == ()
    assert sorted((row["_index"], row["id"]) for row in all_documents(index)) == [(DAY, 1), (DAY, 2), (NEXT, 3)]
    (letter,) = letters(folder)
    assert (letter.reason, letter.message) == ("no-part", 'the column "ts" is null: the row has no index')
