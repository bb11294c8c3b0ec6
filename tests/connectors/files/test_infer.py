"""What `infer` proposes holds what was seen."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.connectors.files.infer import Proposal, files_of, infer, keep_stdin
from scribengin.core.errors import SourceError
from scribengin.core.types import parse_schema

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.just("") | st.text(st.characters(categories=["L", "N", "P"]), max_size=12)
INSTANTS = st.datetimes(timezones=st.just(dt.UTC)).map(lambda at: at.isoformat())
KINDS: list[st.SearchStrategy[Any]] = [
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    TEXTS,
    TEXTS | INSTANTS,
    INSTANTS,
    st.dates().map(str),
    st.dates().map(str) | INSTANTS,
]
CHILDREN = st.deferred(lambda: st.sampled_from(KINDS) | NESTED)
NESTED = st.one_of(
    CHILDREN.map(lambda kind: st.lists(st.none() | kind, max_size=3)),
    st.dictionaries(NAMES, CHILDREN, max_size=3).map(lambda fields: st.fixed_dictionaries({}, optional=fields)),
)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records whose fields are each of one kind, or null, or missing. The first has the only `id`."""
    fields = draw(st.dictionaries(NAMES.filter(lambda name: name != "id"), CHILDREN, min_size=1, max_size=4))
    record = st.fixed_dictionaries({}, optional={name: st.none() | kind for name, kind in fields.items()})
    return [dict.fromkeys(["id"], 1), *draw(st.lists(record, max_size=8))]


def proposed(path: Path, **given_: Any) -> Proposal:
    return infer([path], records=1_000, **given_)


@settings(max_examples=60, deadline=None)
@given(rows=tables())
def test_of_json_whose_fields_have_one_kind_each_no_record_would_be_dead(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    proposal = proposed(path)
    assert (proposal.dead, proposal.records, proposal.whole) == (0, len(rows), True), proposal.deaths
    assert parse_schema(str(proposal.schema)) == proposal.schema


@settings(max_examples=60, deadline=None)
@given(
    columns=st.lists(
        st.lists(st.integers(-(2**70), 2**70).map(str) | st.floats().map(str) | TEXTS | INSTANTS, min_size=5, max_size=5), min_size=2
    ),
    delimiter=st.sampled_from(",;\t|"),
)
def test_of_csv_that_a_program_wrote_no_record_would_be_dead(
    tmp_path_factory: pytest.TempPathFactory, columns: list[list[str]], delimiter: str
) -> None:
    without = str.maketrans("", "", "\r\n" if delimiter == "\t" else "\r")  # a cell over several lines is a guess where there are tabs
    rows = [
        [f"c{index}" for index in range(len(columns))],
        *([cell.translate(without) for cell in row] for row in zip(*columns, strict=True)),
    ]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    cells = [['"' + cell.replace('"', '""') + '"' if set(cell) & set(f'{delimiter}"\n') else cell for cell in row] for row in rows]
    path.write_text("".join(delimiter.join(row) + "\n" for row in cells))
    proposal = proposed(path, options={"delimiter": delimiter, "header": True})
    assert proposal.dead == 0, proposal.deaths


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        (",id,name\n0,7,x\n1,8,y\n", "id BIGINT, name STRING"),
        ("id,name,name\n1,a,b\n", "id BIGINT"),
        ("id,ID,name\n1,2,b\n", "id BIGINT, name STRING"),
        ("a,,b\nx,y,z\n", "c1 STRING, c2 STRING, c3 STRING"),
    ],
)
def test_a_header_may_lack_a_name_or_have_one_twice_where_the_values_tell_it(tmp_path: Path, text: str, schema: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    found = proposed(path)
    assert (str(found.schema), found.dead) == (schema, 0)
    assert any(("is left out" if "c1" not in schema else "--header") in note for note in found.notes)


def test_numbers_with_an_exponent_are_double(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"a,b\n1e3,{2**70}\n2e3,1\n")
    assert str(proposed(path).schema) == "a DOUBLE, b DECIMAL(38,0)"


def test_types_are_as_wide_as_what_was_seen_and_bad_lines_are_told_with_their_place(tmp_path: Path) -> None:
    rows = [
        {"n": 1, "x": 1, "at": "2026-01-01T00:00:00Z", "day": "2026-01-01", "big": 2**70, "o": {"a": 1}, "l": [1, 2.5]},
        {"n": 2, "x": 2.5, "at": "2026-01-01 00:00:00", "day": "2026-01-02", "big": 1, "o": {"b": "t"}, "l": []},
    ]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode() + b"not json\n"))
    proposal = proposed(path)
    assert str(proposal.schema) == (
        "n BIGINT, x DOUBLE, at TIMESTAMP, day DATE, big DECIMAL(38,0), o STRUCT<a: BIGINT, b: STRING>, l ARRAY<DOUBLE>"
    )
    assert (proposal.dead, proposal.deaths[0].line, proposal.deaths[0].reason) == (1, 3, "malformed")


@pytest.mark.parametrize(("bad", "shown"), [(5, 5), (6, 6), (7, 5)])
def test_of_bad_lines_the_last_one_is_not_cut_off_alone(tmp_path: Path, bad: int, shown: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n' * 9 + "not json\n" * bad)
    proposal = proposed(path)
    assert (proposal.dead, len(proposal.deaths)) == (bad, shown)


def test_a_field_of_two_kinds_gets_the_commoner_and_the_others_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": "x"}\n{"a": 3}\n')
    proposal = proposed(path)
    assert (str(proposal.schema), proposal.dead, proposal.deaths[0].line) == ("a BIGINT", 1, 2)
    assert "whole numbers (2) and texts (1)" in proposal.notes[0]


def test_csv_is_sniffed_for_its_delimiter_its_header_and_what_means_null(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id;price;"a ""name"""\n1;NA;x\n2;2.5;"y;z"\n007;3;"line\nend"\n')
    proposal = proposed(path)
    assert proposal.options == {"delimiter": ";", "null": "NA"}
    assert str(proposal.schema) == 'id STRING, price DOUBLE, `a "name"` STRING'
    path.write_text("1,2026-01-01\n2,2026-01-02\n")
    assert str(proposed(path).schema) == "c1 BIGINT, c2 DATE"
    assert proposed(path).options == {"header": False}


def test_names_that_differ_in_case_only_or_that_no_schema_can_hold_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1, "A": 2, "": 3, "with space": 4}\n')
    proposal = proposed(path)
    assert str(proposal.schema) == "a BIGINT, `with space` BIGINT"
    assert len(proposal.notes) == 2


def test_parquet_says_its_columns_itself_and_files_are_joined(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32()), "t": pa.array([0], pa.time32("s"))}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([1], pa.uint32()), "b": ["x"]}), tmp_path / "2.parquet")
    proposal = infer(files_of([str(tmp_path)]), records=10)
    assert (str(proposal.schema), proposal.records, proposal.dead) == ("a BIGINT, b STRING", 2, 0)
    assert proposal.notes == ["t is left out: no column type matches time32[ms]"]


def test_a_column_in_which_a_file_of_parquet_has_no_value_has_the_type_of_the_others(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "n": pa.nulls(1), "m": pa.nulls(1)}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"id": [1.5], "n": [3], "m": pa.nulls(1)}), tmp_path / "2.parquet")
    proposal = infer(files_of([str(tmp_path)]), records=10)
    assert (str(proposal.schema), proposal.records, proposal.dead) == ("id BIGINT, m STRING, n BIGINT", 2, 1)
    assert proposal.notes == [
        "m was always null: STRING is a guess",
        (
            "id is BIGINT in 1.parquet, but DOUBLE in 2.parquet: BIGINT takes the values that it can represent exactly; others become "
            "dead letters"
        ),
    ]


def test_avro_says_its_columns_itself(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    fields = [{"name": "id", "type": "long"}, {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]}]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, [{"id": 1, "at": None}, {"id": 2, "at": None}])
    proposal = proposed(tmp_path / "a.avro")
    assert (str(proposal.schema), proposal.records, proposal.dead) == ("id BIGINT, at TIMESTAMP", 2, 0)


def test_of_many_files_some_of_each_are_looked_at(tmp_path: Path) -> None:
    for index in range(4):
        (tmp_path / f"{index}.jsonl").write_text(f'{{"f{index}": 1}}\n' * 100)
    proposal = infer(files_of([str(tmp_path / "*.jsonl")]), records=40)
    assert (len(proposal.schema.fields), proposal.records, proposal.whole) == (4, 40, False)


def test_what_is_no_data_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("[1]\n")
    with pytest.raises(SourceError, match="none of 1 lines is a JSON object"):
        proposed(tmp_path / "a.jsonl")
    for line, why in (("{'a': 1}", "object keys must be strings"), ('{"a": NaN}', "invalid character"), ('{"a": 1,}', "trailing comma")):
        (tmp_path / "n.jsonl").write_text(f"{line}\n" * 3)
        with pytest.raises(SourceError, match=rf"none of 3 lines .* the first of .*n.jsonl: .*{why}") as wrong:
            proposed(tmp_path / "n.jsonl")
        assert "null for NaN" in wrong.value.remedy
    for data, said in (
        (b"", "are empty"),
        (b"id,name\n", "hold a header line and no record"),
    ):
        (tmp_path / "d.csv").write_bytes(data)
        with pytest.raises(SourceError, match=said):
            proposed(tmp_path / "d.csv")
    with pytest.raises(SourceError, match="does not exist"):
        files_of([str(tmp_path / "missing")])


class Endless(io.RawIOBase):
    """`yes '{"a":1}'`."""

    def __init__(self) -> None:
        self._lines = itertools.cycle(b'{"a":1}\n')

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = bytes(itertools.islice(self._lines, len(buffer)))
        buffer[:] = data
        return len(data)


def test_of_lines_that_never_end_so_many_are_kept_as_are_looked_at(tmp_path: Path) -> None:
    path, whole = keep_stdin(io.BufferedReader(Endless()), tmp_path, 5)
    assert not whole
    assert path.stat().st_size < 200_000
    assert path.read_bytes().endswith(b"}\n")
    assert keep_stdin(io.BytesIO(b'{"a":1}'), tmp_path, 5)[1]


def test_files_of_several_formats_are_not_taken_for_those_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(SourceError, match=r"a\.csv is csv, .*b\.jsonl is json"):
        infer(files_of([str(tmp_path)]), records=10)


def test_columns_of_parquet_that_no_type_takes_are_left_out_and_values_are_told_as_dead(tmp_path: Path) -> None:
    at = pa.array([1], pa.timestamp("ns", tz="UTC"))
    keyed = pa.array([[({"x": 1}, "a")]], pa.map_(pa.struct([("x", pa.int64())]), pa.string()))
    pq.write_table(pa.table({"id": [1], "at": at, "big": pa.array([2**63], pa.uint64()), "keyed": keyed}), tmp_path / "a.parquet")
    found = infer([tmp_path / "a.parquet"], records=10)
    assert str(found.schema) == "id BIGINT, at TIMESTAMP, big BIGINT"
    assert sum("is left out" in note for note in found.notes) == 1
    assert found.dead == 1
    assert "1970-01-01 00:00:00.000000001Z" in found.deaths[0].message
    assert "time: truncate" in found.deaths[0].message


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('[{"id": 1}, {"id": 2}]', {"json": {"shape": "array"}}),
        ("[" + '{"id": 1},' * 200_000 + '{"id": 2}]', {"json": {"shape": "array"}}),
        ('[\n {\n  "id": 1\n },\n {\n  "id": 2\n }\n]\n', {"json": {"shape": "array"}}),
        ('{"id": 1}{"id": 2}', {"json": {"shape": "concatenated"}}),
        ('{\n "id": 1\n}\n{\n "id": 2\n}\n', {"json": {"shape": "concatenated"}}),
        ('{\n "Records": [\n  {"id": 1},\n  {"id": 2}\n ]\n}\n', {"json": {"records": "$.Records[*]"}}),
        ('{"id": 1}\n{"id": 2}\n', {}),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_json_of_other_shapes_is_proposed_with_its_option(tmp_path: Path, text: str, options: dict[str, Any], packed: bool) -> None:
    file = tmp_path / f"a.json{'.gz' * packed}"
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    proposal = proposed(file)
    assert (proposal.options, str(proposal.schema), proposal.dead) == (options, "id BIGINT", 0)


def test_the_list_of_a_document_on_one_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"Records": [{"id": 1}]}')
    assert 'json: {records: "$.Records[*]"}' in " ".join(proposed(tmp_path / "a.json").notes)


def test_folders_that_all_files_lie_in_are_proposed_as_columns(tmp_path: Path) -> None:
    for day, hour in (("2026-01-01", "07"), ("__HIVE_DEFAULT_PARTITION__", "23")):
        folder = tmp_path / f"day={day}/hour={hour}"
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_text('{"id": 1}\n')
    proposal = infer(files_of([str(tmp_path / "**/*.jsonl")]), records=100)
    assert (str(proposal.schema), proposal.options) == ("id BIGINT", {"partition_columns": {"day": "DATE", "hour": "STRING"}})
