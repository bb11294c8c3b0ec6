from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.connectors.files.sink_partition import Partitions
from scribengin.connectors.files.time_path import TimePath
from scribengin.core.errors import InputError
from scribengin.core.problems import Place
from scribengin.core.types import parse_schema
from scribengin.flow_tests.contract import Difference, Result
from scribengin.flow_tests.judge import Judge
from scribengin.flow_tests.twin import Scratch, make_twin, read_output
from scribengin.formats.rows import rows_to_batch
from scribengin.plan.checks.subject import Subject
from scribengin.plan.checks.tests import check_tests
from scribengin.spec.flow_tests import ALL, Expected, FlowTest, GivenRows, VersionChange
from scribengin.spec.model import Flow, SchemaSpec, Sink, Source
from scribengin.spec.parse import parse_flow
from scribengin.state.contract import DeadLetter

SCHEMA = parse_schema("id BIGINT, user STRING, share DOUBLE")
FLOW = """version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: orders, type: files, path: out, format: json}}
"""


def judged(test: FlowTest, folder: Path, rows: Any = (), dead: Any = (), sink: str = "kept") -> list[Difference]:
    result = Result("finished", {sink: rows}, {sink: SCHEMA}, dead, {}, True)
    return list(Judge(test, folder, lambda at: Place("t.yaml", len(at))).differences(result))


def test_dead_letters_find_a_partner_where_all_can(tmp_path: Path) -> None:
    letters = [DeadLetter(str(line), "q", 1, "orders", "malformed", "", line=line) for line in (1, 2)]
    asked = ({"reason": "malformed"}, {"reason": "malformed", "line": 1})
    assert judged(FlowTest("a", dead={ALL: Expected(asked)}), tmp_path, dead=letters) == []
    (wrong,) = judged(FlowTest("a", dead={ALL: Expected((*asked, *asked))}), tmp_path, dead=letters)
    assert wrong.what == "2 missing, 0 not expected"


def test_rows_that_are_only_counted_or_in_another_order_have_not_parted(tmp_path: Path) -> None:
    (counted,) = judged(FlowTest("a", expect={"kept": Expected(count=2)}), tmp_path, rows=[{"id": 1}])
    assert (counted.what, counted.matched) == ("has 1 row, not 2", False)
    rows = ({"id": 1}, {"id": 2})
    (turned,) = judged(FlowTest("a", expect={"kept": Expected(rows, ordered=True)}), tmp_path, rows=rows[::-1])
    (other,) = judged(FlowTest("a", expect={"kept": Expected(rows)}), tmp_path, rows=rows[:1])
    assert (turned.matched, other.matched) == (False, True)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"id,user,share\n1,ada,abc\n"),
        ("a.csv", b"id,user,share\n1,ada,.5\n"),
        ("a.txt", b"1\n"),
        ("a.jsonl", b'{"id": 1}\n\xff\n'),
        ("a.jsonl", b'{"id": "x"}\n'),
        ("a.jsonl", b"[]\n"),
        ("a.parquet", b"PAR1"),
    ],
)
def test_a_file_of_expected_rows_that_cannot_be_read_is_told_with_its_place(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match="cannot be read back") as wrong:
        judged(FlowTest("a", expect={"kept": Expected(files=(name,))}), tmp_path)
    assert [problem.code for problem in wrong.value.problems] == ["test-file"]


def test_columns_that_a_line_of_an_expected_file_leaves_out_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 9}\n')
    test = FlowTest("a", expect={"kept": Expected(files=("a.jsonl",))})
    assert judged(test, tmp_path, [{"id": 9, "user": "ada", "share": None}]) == []
    assert judged(test, tmp_path, [{"id": 8, "user": "ada", "share": None}])


def test_a_sink_that_no_version_has_is_told_and_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a sink in any version of the flow"):
        judged(FlowTest("a", expect={"kept": Expected(count=0)}), tmp_path, sink="other")


def test_what_a_changed_flow_writes_no_more_is_left_out_where_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "part-000001-00000.jsonl").write_text('{"id": 1, "gone": 2}\n{"id": 2, "user": "ada"}\n')
    sink = Sink("kept", ("orders",), "files", {"format": "json"})
    read = read_output(sink, tmp_path, parse_schema("id BIGINT, user STRING"))
    assert read == [{"id": 1, "user": None}, {"id": 2, "user": "ada"}]


_PARTITIONED: dict[str, list[Any]] = {
    "country STRING": ["de", "a/b=c", None],
    "big BOOLEAN": [True, False, None],
    "number INT": [1, -1, None],
    "day DATE": [dt.date(2026, 1, 1), None],
    "share DECIMAL(10,2)": [Decimal("1.50"), None],
    "ts TIMESTAMP": [dt.datetime(2026, 1, 1, 7, 30, tzinfo=dt.UTC), None],
}


@pytest.mark.parametrize("column", _PARTITIONED)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"time": "at", "path": "dt=%Y-%m-%d/hour=%H"},
        {"time": "at", "path": "month=%Y-%m", "time_zone": "Europe/Berlin"},
    ],
)
def test_rows_in_folders_read_back_with_their_columns(tmp_path: Path, column: str, more: dict[str, str]) -> None:
    schema = parse_schema(f"id BIGINT, at TIMESTAMP, {column}")
    at = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    rows = [{"id": 1, "at": at, schema.names[-1]: value} for value in _PARTITIONED[column]]
    by: list[Any] = [schema.names[-1], *([more] if more else [])]
    parts = Partitions(schema, [part if isinstance(part, str) else TimePath.of(part) for part in by])
    for part in parts.split(rows_to_batch(rows, schema, range(len(rows)))[0]):
        (tmp_path / part.folder).mkdir(parents=True)
        pq.write_table(pa.Table.from_batches([part.rows]), tmp_path / part.folder / f"part-{part.places[0]}.parquet")
    sink = Sink("kept", ("orders",), "files", {"format": "parquet", "partition_by": by})
    assert read_output(sink, tmp_path, schema) == rows


def test_rows_in_folders_of_a_time_alone_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "dt=2026-01-02" / "hour=03"
    folder.mkdir(parents=True)
    (folder / "part-000001-00000.jsonl").write_text('{"id": 1, "at": "2026-01-02T03:00:00Z"}\n')
    by = [{"time": "at", "path": "dt=%Y-%m-%d/hour=%H"}]
    sink = Sink("kept", ("orders",), "files", {"format": "json", "partition_by": by})
    read = read_output(sink, tmp_path, parse_schema("id BIGINT, at TIMESTAMP"))
    assert read == [{"id": 1, "at": dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)}]


def test_the_twin_of_a_sink_takes_other_columns_where_the_sink_does(tmp_path: Path) -> None:
    files = {"path": "out", "format": "json", "evolve": "strict"}
    sinks = {"kept": Sink("kept", ("n",), "files", files), "shown": Sink("shown", ("n",), "console")}
    twin = make_twin(Flow("shop", {"n": Source("n", "sequence", {"rows": 3})}, {}, sinks), {}, Scratch(tmp_path))
    assert [twin.sinks[name].options["evolve"] for name in ("kept", "shown")] == ["strict", "any"]


def test_nodes_that_a_change_adds_may_be_expected_and_others_not() -> None:
    types: dict[str, Any] = {"source_types": source_types(), "sink_types": sink_types()}
    parsed = parse_flow(FLOW, "f.yaml", folder=Path(), environment={}, **types)
    assert parsed.flow is not None
    test = FlowTest(
        "a",
        expect={"new": Expected(count=1), "typo": Expected(count=1), "kept": Expected(({"added": 1},))},
        changes=(VersionChange(2, patch={"sinks": {"new": {}}}),),
    )
    subject = Subject(parsed.flow, parsed.places, types["source_types"], types["sink_types"])
    assert [problem.code for problem in check_tests(subject, [test], parsed.places, ())] == ["test-node-unknown", "test-batch"]


@pytest.mark.parametrize(
    ("options", "rows", "kept"),
    [
        ({"format": "text", "metadata": {"line": "line"}}, GivenRows(rows=({"value": "x", "line": 7},)), {"format": "json"}),
        ({"format": "text", "metadata": {"line": "line"}}, GivenRows(files=("a.log",)), {"format": "text", "metadata": {"line": "line"}}),
        ({"format": "json", "json": {"shape": "array"}}, GivenRows(rows=({"id": 1},)), {"format": "json"}),
        ({"format": "json", "json": {"shape": "array"}}, GivenRows(files=("a.json",)), {"format": "json", "json": {"shape": "array"}}),
    ],
)
def test_rows_that_are_given_say_all_columns_and_files_are_read_as_the_source_reads(
    tmp_path: Path, options: dict[str, Any], rows: GivenRows, kept: dict[str, Any]
) -> None:
    source = Source("s", "files", {"path": "data", **options}, SchemaSpec(parse_schema("id INT")))
    twin = make_twin(Flow("shop", {"s": source}, {}, {}), {"s": (rows,)}, Scratch(tmp_path)).sources["s"]
    assert {name: twin.options.get(name) for name in ("format", "metadata", "json") if name in twin.options} == kept
