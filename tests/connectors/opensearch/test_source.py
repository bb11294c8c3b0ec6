"""The source against a real server: the contract, what changes while a snapshot is read, documents as others write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.opensearch.options import SOURCE
from scribengin.connectors.opensearch.view import Views
from scribengin.core.errors import InputError, SourceError, Unreachable
from scribengin.core.types import parse_schema
from scribengin.local.prepare import prepare
from scribengin.testing.conformance import check_source
from scribengin.testing.conformance_sources import Bench, check_changing_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.connectors.contract import SourceStream
    from tests.conftest import FlowFolder
    from tests.connectors.opensearch.conftest import Index


def source(at: Index, schema: str | None = "id BIGINT, name STRING", **options: Any) -> Any:
    given = {"server": [at.address], "index": at.name} | options
    return open_source(at.type, ConnectorContext("in", Path(), SOURCE.filled(given), parse_schema(schema) if schema else None))


def make(index: Index, shards: int = 2, name: str = "") -> None:
    index.http.put(f"{index.address}/{index.name}{name}", json={"settings": {"number_of_shards": shards}}).raise_for_status()


def add(index: Index, *ids: int, name: str = "") -> None:
    lines = "".join(json.dumps({"index": {"_id": str(id_)}}) + "\n" + json.dumps({"id": id_, "name": f"n{id_}"}) + "\n" for id_ in ids)
    headers = {"Content-Type": "application/x-ndjson"}
    answer = index.http.post(f"{index.address}/{index.name}{name}/_bulk", content=lines.encode(), headers=headers).raise_for_status()
    assert not answer.json()["errors"]


def all_of(reader: Any, limits: BatchLimits | None = None) -> list[SourceStream]:
    streams: list[SourceStream] = []
    while taken := reader.split(limits or BatchLimits(), final=True):
        streams += taken
    return streams


def ids(source: Any, streams: Iterable[SourceStream]) -> list[int]:
    return [row["id"] for stream in streams for block in source.read(stream) for row in source.decoder().rows(block).rows]


def forget(index: Index, streams: Iterable[SourceStream]) -> None:
    """The server holds their points in time no more, as after its restart, or a long night."""
    for view in {each["view"] for stream in streams for each in stream.place["plan"]}:
        assert close(index, view)


def close(index: Index, view: str) -> bool:
    """Whether it was open."""
    path, body = ("_search/point_in_time", {"pit_id": [view]}) if index.type == "opensearch" else ("_pit", {"id": view})
    return index.http.request("DELETE", f"{index.address}/{path}", json=body).status_code != 404


def is_open(index: Index, view: str) -> bool:
    return index.http.post(f"{index.address}/_search", json={"size": 0, "pit": {"id": view}}).status_code != 404


def test_it_keeps_the_contract(index: Index) -> None:
    make(index, 3)
    add(index, *range(11))
    assert check_source(source(index, split=2), limits=BatchLimits(max_rows=3)) == 11


@pytest.mark.parametrize("on_change", ["stop", "ignore"])
@pytest.mark.parametrize("held", [True, False])
def test_it_keeps_the_contract_while_documents_come_and_change(
    index: Index, monkeypatch: pytest.MonkeyPatch, on_change: str, *, held: bool
) -> None:
    make(index)
    added = 0
    views: list[str] = []
    opens = Views.open

    def noted(self: Views, name: str) -> str:
        views.append(opens(self, name))
        return views[-1]

    monkeypatch.setattr(Views, "open", noted)

    def more(rows: int) -> None:
        nonlocal added
        add(index, *range(added, added + rows))
        added += rows

    def change() -> None:
        if not held:
            for opened in views:
                close(index, opened)
        index.ask("PUT", "/_doc/2?refresh=true", {"id": 2, "name": "changed"})

    options = {"server": [index.address], "index": index.name, "on_change": on_change}
    check_changing_source(Bench(lambda: source(index, **options), more, SOURCE, options, change=change, grows=False))


@pytest.mark.parametrize("what", ["written again", "deleted", "new index", "nothing", "new documents"])
def test_without_its_view_a_range_is_read_as_it_was_or_it_is_told(index: Index, what: str) -> None:
    make(index)
    add(index, *range(20))
    read = source(index, split=6)
    streams = all_of(read.reader())
    before = ids(read, streams)
    assert sorted(before) == list(range(20))
    assert all((stream.rows or 0) <= 6 for stream in streams)
    forget(index, streams)
    if what == "written again":
        add(index, 3)
    elif what == "deleted":
        index.ask("DELETE", "/_doc/3")
    elif what == "new index":
        index.ask("DELETE", "")
        make(index)
        add(index, *range(20))
    elif what == "new documents":
        add(index, *range(100, 120))
    if what in ("nothing", "new documents"):
        assert ids(source(index), streams) == before
        return
    with pytest.raises(SourceError, match="was recreated" if what == "new index" else "changed since its snapshot began") as told:
        ids(source(index), streams)
    assert len(ids(source(index, on_change="ignore"), streams)) >= 19
    assert "on_change: ignore" in told.value.remedy


@pytest.mark.parametrize("change", [None, "handed", "left"])
def test_a_reader_that_goes_on_without_the_view_takes_the_rest_of_the_same_snapshot(index: Index, change: str | None) -> None:
    make(index)
    add(index, *range(20))
    read = source(index, split=3)
    first = read.reader().split(BatchLimits(max_rows=6), final=True)
    seen = ids(read, first)
    forget(index, first)
    add(index, *range(50, 60))
    if change:
        add(index, seen[0] if change == "handed" else next(each for each in range(20) if each not in seen))
    again = source(index, split=3).reader()
    again.restore([first])
    if change == "left":
        with pytest.raises(SourceError, match="documents left; expected"):
            all_of(again)
        ignoring = source(index, split=3, on_change="ignore").reader()
        ignoring.restore([first])
        assert len(ids(source(index, on_change="ignore"), all_of(ignoring))) == 20 - len(seen) - 1
        return
    rest = all_of(again)
    assert sorted(seen + ids(read, rest)) == list(range(20))
    assert again.backlog().rows == 0
    again.let_go(rest)
    opened = {each["view"] for stream in rest for each in stream.place["plan"]}
    assert opened
    assert not any(is_open(index, view) for view in opened)


def test_numbers_that_had_not_settled_are_a_range_known_by_its_documents(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    from scribengin.connectors.opensearch import view

    make(index, 1)
    add(index, *range(10))
    settled = view.Views.shards
    monkeypatch.setattr(view.Views, "shards", lambda *given: [view.Shard(each.history, 6) for each in settled(*given)])
    read = source(index)
    streams = all_of(read.reader())
    assert [(stream.rows, stream.place["digest"] is None) for stream in streams] == [(7, True), (3, False)]
    assert ids(read, streams) == list(range(10))
    forget(index, streams)
    assert ids(read, streams) == list(range(10))
    # of another history one number may be another document's
    monkeypatch.setitem(streams[1].place, "digest", "0" * 32)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=r"the documents in .* differ"):
        ids(read, streams)


def test_ranges_are_as_small_as_asked_where_most_numbers_were_given_to_what_was_written_again(index: Index) -> None:
    make(index, 1)
    for _ in range(60):
        add(index, *range(100))
    add(index, *range(1000, 1010))
    streams = all_of(source(index, split=7).reader())
    assert sorted(ids(source(index), streams)) == [*range(100), *range(1000, 1010)]
    assert max(stream.rows or 0 for stream in streams) <= 7
    assert len(streams) <= 110 // 4


def test_documents_come_as_others_wrote_them_and_from_all_indexes_of_a_pattern(index: Index) -> None:
    index.http.put(
        f"{index.address}/{index.name}-a/_doc/1", content=b'{\n "id": 1,\n "name": "x\\ny"\n}', headers={"Content-Type": "application/json"}
    ).raise_for_status()
    index.http.put(f"{index.address}/{index.name}-b/_doc/2", json={"id": "two", "name": "z", "more": [1]}).raise_for_status()
    index.http.put(f"{index.address}/{index.name}-b/_doc/3", json={"id": 3}).raise_for_status()
    read = source(index, index=f"{index.name}-*")
    decoded = [read.decoder().rows(block) for stream in all_of(read.reader()) for block in read.read(stream)]
    assert [row for each in decoded for row in each.rows] == [{"id": 1, "name": "x\ny"}, {"id": 3, "name": None}]
    assert [bad.reason for each in decoded for bad in each.bad] == ["wrong-type"]


def test_an_empty_index_has_no_ranges(index: Index) -> None:
    make(index)
    reader = source(index).reader()
    assert (all_of(reader), reader.backlog().rows) == ([], 0)


def test_large_pages_are_cut_by_size(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    from scribengin.connectors.opensearch import view

    make(index, 1)
    add(index, *range(2500))
    read = source(index)
    streams = all_of(read.reader())
    monkeypatch.setattr(view, "_PAGE_BYTES", 5_000)
    assert sum(1 for stream in streams for _ in read.read(stream)) > 20
    assert ids(read, streams) == list(range(2500))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"index": "nowhere"}, SourceError, 'source "in": there is no index nowhere'),
        ({"index": "nowhere-*"}, SourceError, "there is no index"),
        ({"server": ["http://127.0.0.1:9"]}, Unreachable, 'source "in": .* does not answer'),
        ({"server": ["http://me:hunter2@127.0.0.1:9200"]}, SourceError, "contains a user or a password"),
    ],
)
def test_what_a_person_did_wrong_is_told(index: Index, given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as told:
        source(index, **given).reader()
    assert told.value.remedy  # type: ignore[attr-defined]


def test_an_index_that_keeps_no_documents_is_told(index: Index) -> None:
    index.ask("PUT", "", {"mappings": {"_source": {"enabled": False}}})
    add(index, 1)
    with pytest.raises(SourceError, match="_source is disabled"):
        ids(source(index), all_of(source(index).reader()))


FLOW = """
version: 1
name: copy
sources: {orders: {type: TYPE, server: ["SERVER"], index: INDEX, split: 40SCHEMA}}
sinks: {kept: {from: orders, type: files, path: out, format: json}}
"""


def test_a_source_without_columns_is_told_before_a_start(folder: FlowFolder) -> None:
    flow = FLOW.replace("TYPE", "elasticsearch").replace("SERVER", "http://search1:9200").replace("SCHEMA", "")
    folder.flow(flow)
    with pytest.raises(InputError) as told:
        prepare(folder.path / "flow.yaml", state=None)
    assert [problem.code for problem in told.value.problems] == ["schema-missing"]


def test_a_flow_reads_an_index_once(folder: FlowFolder, index: Index) -> None:
    make(index, 2)
    add(index, *range(100))
    flow = FLOW.replace("TYPE", index.type).replace("SERVER", index.address).replace("INDEX", index.name)
    folder.flow(flow.replace("SCHEMA", ', schema: "id BIGINT, name STRING"'))
    assert folder.run().violations == ()
    add(index, *range(100, 110))
    assert folder.run().violations == ()
    found = [json.loads(line)["id"] for path in folder.path.glob("out/**/*.jsonl*") for line in path.read_text().splitlines()]
    assert sorted(found) == list(range(100))
