"""Short ids: which rows get them, and in which places."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, RefusedRow
from scribengin.connectors.keyed.sink import KeyedSink
from scribengin.connectors.keyed.staged import brief_ids
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = parse_schema("id STRING, n BIGINT")
STREAM = "tweets/part-0001.parquet[0:-1] … part-0004.parquet[0:-1] (4 files)+"
IDS = st.lists(st.from_regex(r"(tweets/|part-1\.parquet …|~|\+|é){0,9}[0-9.]{0,6}", fullmatch=True), unique=True)


def sink_of(folder: Path, *, brief: bool) -> KeyedSink:
    place = ConnectorContext("out", folder, flow="flow", work=folder / "work")
    return KeyedSink(place, SqliteStore(folder / "store.db", b"666"), key=(), connections=1, brief=brief)


def write(sink: KeyedSink, lineage: str, number: int, *numbers: int) -> list[RefusedRow]:
    batch = BatchId("flow", "query", lineage, number, 1)
    stream = sink.stream(batch, 0, uuid4().hex, SCHEMA)
    rows = [{"id": "a", "n": n} for n in numbers]
    stream.write(pa.RecordBatch.from_pylist(rows, arrow_schema(SCHEMA)), [f"{STREAM}{n}" for n in numbers])
    decided = Decided(batch, f"hash-{number}", (stream.close(),))
    refused: list[RefusedRow] = []
    sink.offer(decided, refused.append)
    sink.publish(decided)
    return refused


def ids_in(folder: Path) -> list[str]:
    with SqliteStore(folder / "store.db", b"666")._open() as connection:
        return [id_ for (id_,) in connection.execute("SELECT id FROM documents ORDER BY version")]


@given(IDS)
def test_ids_that_differ_still_do_and_each_is_the_same_whatever_comes_beside_it(ids: list[str]) -> None:
    brief = brief_ids(pa.array(ids, pa.string())).to_pylist()
    assert len(set(brief)) == len(ids)
    assert brief == [brief_ids(pa.array([id_])).to_pylist()[0] for id_ in ids]


@given(st.integers(0, 2**49), st.integers(0, 2**49))
def test_ids_of_one_stream_are_ordered_by_their_numbers_where_a_server_keeps_the_bytes(one: int, two: int) -> None:
    first, second = brief_ids(pa.array([f"{STREAM}{one}", f"{STREAM}{two}"])).to_pylist()
    if max(one, two) < 2**48:
        assert [len(first), len(second)] == [24, 24]
        assert (urlsafe_b64decode(first) < urlsafe_b64decode(second)) == (one < two)


@pytest.mark.parametrize("rest", ["017", "17.1", str(2**48), str(10**30), "", "17~r.big~5.1"])
def test_what_is_no_plain_number_stands_behind_the_digest_as_it_is(rest: str) -> None:
    (id_,) = brief_ids(pa.array([f"{STREAM}{rest}"])).to_pylist()
    assert len(id_) <= 17 + len(rest)
    assert "+" in id_


def test_rows_of_many_files_have_short_ids_and_one_that_is_refused_its_whole_name(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, brief=True)
    sink.prepare(owner="me", lineage="one")
    (refused,) = write(sink, "one", 0, 1, 666, 2, 2)
    assert ids_in(tmp_path) == ["vUjBVFPhM_jIsN3EAAAAAAAB", "vUjBVFPhM_jIsN3EAAAAAAAC", "vUjBVFPhM_jIsN3EAAAAAAAC~~1"]
    assert refused.id == f"{STREAM}666"


def test_a_place_that_was_claimed_with_whole_ids_keeps_them_for_ever(tmp_path: Path) -> None:
    """A lineage that goes over the same records again replaces their rows: under other ids it would double them."""
    earlier = sink_of(tmp_path, brief=False)
    earlier.prepare(owner="me", lineage="one")
    write(earlier, "one", 0, 1, 2)
    same, later = sink_of(tmp_path, brief=True), sink_of(tmp_path, brief=True)
    same.prepare(owner="me", lineage="one")
    write(same, "one", 1, 3)
    later.prepare(owner="me", lineage="two", adopt=True)
    write(later, "two", 0, 1, 2, 3)
    assert ids_in(tmp_path) == [f"{STREAM}{n}" for n in (1, 2, 3)]


@pytest.mark.parametrize("brief", [True, False])
def test_a_place_that_has_short_ids_keeps_them_whoever_comes_next(tmp_path: Path, brief: bool) -> None:
    first, next_ = sink_of(tmp_path, brief=True), sink_of(tmp_path, brief=brief)
    first.prepare(owner="me", lineage="one")
    write(first, "one", 0, 1, 2)
    next_.prepare(owner="me", lineage="two", adopt=True)
    write(next_, "two", 0, 1, 2)
    assert ids_in(tmp_path) == ["vUjBVFPhM_jIsN3EAAAAAAAB", "vUjBVFPhM_jIsN3EAAAAAAAC"]


def test_rows_of_somebody_else_are_not_told_from_ours_so_they_may_have_whole_ids(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", b"666")
    store.make(SCHEMA)
    with store._open() as other:
        other.execute("INSERT INTO documents VALUES (?, 5, '{}')", (f"{STREAM}1",))
    sink = sink_of(tmp_path, brief=True)
    sink.prepare(owner="me", lineage="one", adopt=True)
    write(sink, "one", 0, 1, 2)
    assert ids_in(tmp_path) == [f"{STREAM}1", f"{STREAM}2"]


def test_a_place_that_was_emptied_begins_with_short_ids(tmp_path: Path) -> None:
    earlier = sink_of(tmp_path, brief=False)
    earlier.prepare(owner="me", lineage="one")
    write(earlier, "one", 0, 1)
    earlier.clear(owner="me", flow="flow")
    sink = sink_of(tmp_path, brief=True)
    sink.prepare(owner="me", lineage="two")
    write(sink, "two", 0, 1)
    assert ids_in(tmp_path) == ["vUjBVFPhM_jIsN3EAAAAAAAB"]
