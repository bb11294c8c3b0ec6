"""`schema: {evolve: …}` in a run: what is told, when a new column is taken in, and that a kill does not lose it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.core.errors import InputError
from scribengin.local.positions import go_back
from scribengin.local.prepare import prepare
from scribengin.local.status import read_standing
from scribengin.state.columns import ColumnsAcceptance
from scribengin.state.lease import take_lease
from tests.spark.test_stateless_steps import ran

if TYPE_CHECKING:
    from scribengin.local.contract import RunView
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: orders
sources:
  added: {type: files, path: data/*.jsonl, format: json, schema: {fields: "id BIGINT NOT NULL, amount DOUBLE", evolve: add}}
  mended: {type: files, path: data/*.csv, format: csv, schema: {fields: "id BIGINT NOT NULL, amount DOUBLE, gone STRING", evolve: lenient}}
  typed: {type: files, path: data/*.parquet, format: parquet, schema: id BIGINT}
steps:
  big: {from: mended, filter: id > 0}
sinks:
  a: {from: added, type: files, path: out/a, format: json, together: all}
  m: {from: big, type: files, path: out/m, format: json, together: all}
  t: {from: typed, type: files, path: out/t, format: json, together: all}
"""
STEP = """steps:
  named: {from: typed, select: {id: "cast(id AS STRING)"}}"""


def told(folder: FlowFolder) -> set[tuple[object, ...]]:
    found = read_standing(prepare(folder.path / "flow.yaml", state=None))["noticed"]
    return {(each["source"], each["column"], each["kind"], each["type"], each["records"], each["now"]) for each in found}


def test_new_columns_are_told_once_and_taken_in_at_the_next_start(folder: FlowFolder) -> None:
    folder.flow(FLOW).data("data/a.jsonl", [{"id": 1, "amount": 1.5, "note": "hi"}, {"id": 2, "amount": "x"}])
    (folder.path / "data/a.csv").write_text("id,amount,extra\n1,1.5,x\n2,oops,y\nbad,1,z\n")
    pq.write_table(pa.table({"id": [1], "more": [1.5]}), folder.path / "data/a.parquet")
    shown: list[str] = []
    views: list[RunView] = []
    first = folder.run(lambda view: (shown.extend(view.notices), views.append(view)))  # type: ignore[func-returns-value]
    assert first.balanced
    about = [note for note in shown if note.startswith("source ")]
    assert len(about) == 5
    assert any("a.jsonl:1; it is added at the next start" in note for note in about)
    assert folder.read("out/a") == [{"id": 1, "amount": 1.5}]
    assert folder.read("out/m") == [{"id": 1, "amount": 1.5, "gone": None}, {"id": 2, "amount": None, "gone": None}]
    later = read_standing(prepare(folder.path / "flow.yaml", state=None))["noticed"]  # as the next start has it
    assert [{**row, "now": ""} for row in views[-1].noticed] == [{**row, "now": ""} for row in later]
    assert "taken in at the next start" in {row["now"] for row in views[-1].noticed}
    assert told(folder) == {
        ("added", "note", "new", "STRING", 0, "taken in"),
        ("mended", "extra", "new", "STRING", 0, "dropped"),
        ("mended", "gone", "missing", "STRING", 0, "null"),
        ("mended", "amount", "nulled", "DOUBLE", 1, "null"),
        ("typed", "more", "new", "DOUBLE", 0, "dropped"),
    }

    # as after a kill between the decision and what follows from it
    shutil.rmtree(folder.path / ".scribengin" / "_learned")
    folder.data("data/b.jsonl", [{"id": 3, "note": "again"}])
    (folder.path / "data/b.csv").write_text("id,amount,gone\n3,no,x\n")
    assert ran(folder).balanced
    assert folder.read("out/a")[1:] == [{"id": 3, "amount": None, "note": "again"}]
    assert ("mended", "amount", "nulled", "DOUBLE", 2, "null") in told(folder)
    assert len(told(folder)) == 5

    folder.flow(
        FLOW.replace("typed: {type: files, path: data/*.parquet, format: parquet, schema: id BIGINT}", "typed: {type: sequence, rows: 1}")
    )
    folder.flow((folder.path / "flow.yaml").read_text().replace("from: typed, ", "from: named, ").replace("steps:", STEP))
    with pytest.raises(InputError) as refused:
        folder.run()
    (problem,) = [each for each in refused.value.problems if each.severity == "error"]
    assert (problem.code, problem.place.line) == ("output-columns", 14)
    assert 'sink "t": column "id" is a number in' in problem.message


PLAIN = """
version: 1
name: plain
sources: {a: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {named: {from: a, select: {id: "cast(id AS %s)"}}}
sinks: {kept: {from: named, type: files, path: out, format: %s}}
"""


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_other_columns_than_a_folder_holds_are_written_from_the_word_on_and_told(folder: FlowFolder, format: str) -> None:
    folder.flow(PLAIN % ("BIGINT", format)).data("data/a.jsonl", [{"id": 1}])
    assert ran(folder).balanced
    shutil.copytree(folder.path / "out", folder.path / "other", ignore=shutil.ignore_patterns("_*"))
    folder.flow(PLAIN % ("STRING", format)).data("data/b.jsonl", [])
    with pytest.raises(InputError, match="--accept columns"):
        folder.run()

    # the word is durable before a file of the new columns is: a start that has written nothing needs no second one
    shown: list[str] = []
    folder.run(lambda view: shown.extend(view.notices), word=ColumnsAcceptance("2026-01-01T00:00:00Z", "ann"))
    assert folder.read("out") == [{"id": 1}]
    (told,) = [note for note in shown if note.startswith("sink ")]
    assert told.startswith('sink "kept" writes different columns from now on, accepted by ann: column "id" is ')
    reader = {"parquet": "a reader of all", "json": "a reader of the whole output"}[format]
    assert f"existing files stay unchanged: {reader}" in told
    shown.clear()
    folder.data("data/c.jsonl", [{"id": 2}])
    assert ran(folder, watch=lambda view: shown.extend(view.notices)).balanced
    assert folder.read("out") == [{"id": 1}, {"id": "2"}]
    assert not [note for note in shown if note.startswith("sink ")]
    (row,) = read_standing(prepare(folder.path / "flow.yaml", state=None))["accepted"]
    assert (row["sink"], row["columns"], row["by"], len(row["instead"])) == ("kept", "id STRING", "ann", 1)

    # it holds for these columns in that folder, and the word is used up
    folder.flow((PLAIN % ("STRING", format)).replace("kept:", "other:").replace("path: out", "path: other"))
    with pytest.raises(InputError, match="but STRING in the flow"):
        folder.run(append_new_lineage=True)
    folder.flow(PLAIN % ("DOUBLE", format))
    with pytest.raises(InputError, match="but DOUBLE in the flow"):
        folder.run(word=ColumnsAcceptance("2026-01-01T00:00:00Z", "ann"))
    folder.flow(PLAIN % ("BIGINT", format))
    with pytest.raises(InputError, match="but BIGINT in the flow"):
        folder.run()


TYPED = """
version: 1
name: typed
sources:
  p: {type: files, path: data/*.parquet, format: parquet, schema: {fields: "id BIGINT NOT NULL", evolve: add}}
  a: {type: files, path: data/*.avro, format: avro, schema: {fields: "id BIGINT NOT NULL", evolve: add}}
steps: {seen: {from: p, python: "steps:seen"}}
sinks:
  kp: {from: seen, type: files, path: out/p, format: json, together: all}
  ka: {from: a, type: files, path: out/a, format: json, together: all}
"""


def typed_files(folder: FlowFolder, name: str, arrow: pa.DataType | None, avro: object, *values: object) -> None:
    import fastavro

    (folder.path / "data").mkdir(exist_ok=True)
    ids = [int(f"{name}{index}") for index in range(len(values))]
    columns = {"id": pa.array(ids)} | ({} if arrow is None else {"x": pa.array(values, arrow)})
    pq.write_table(pa.table(columns), folder.path / "data" / f"{name}.parquet")
    fields = [{"name": "id", "type": "long"}, *([] if avro is None else [{"name": "x", "type": avro}])]
    rows = [{"id": id_, "x": value} for id_, value in zip(ids, values, strict=True)]
    with (folder.path / "data" / f"{name}.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)


def test_a_learned_column_of_typed_files_that_goes_and_comes_again_with_another_type_stops_nothing(folder: FlowFolder) -> None:
    folder.flow(TYPED).steps("from scribengin import record\n\n\n@record\ndef seen(row):\n    return row\n")
    typed_files(folder, "1", pa.int64(), ["null", "long"], 5)
    assert ran(folder).balanced
    typed_files(folder, "2", pa.int64(), "long", 6)
    typed_files(folder, "3", None, None, None)
    typed_files(folder, "4", pa.string(), ["null", "string"], "text", None)
    typed_files(folder, "5", pa.uint64(), ["null", "long", "string"], 7, 8)
    pq.write_table(pa.table({"id": [60, 61], "x": pa.array([1, 2**63], pa.uint64())}), folder.path / "data" / "6.parquet")
    shown: list[str] = []
    result = ran(folder, watch=lambda view: shown.extend(view.notices))
    assert result.balanced
    expected = [(10, "-"), (20, 6), (30, None), (40, None), (41, None), (50, 7), (51, 8)]
    assert sorted((row["id"], row.get("x", "-")) for row in folder.read("out/a")) == expected
    assert sorted((row["id"], row.get("x", "-")) for row in folder.read("out/p")) == [*expected, (60, 1), (61, None)]
    assert told(folder) == {
        ("p", "x", "new", "BIGINT", 0, "taken in"),
        ("p", "x", "missing", "BIGINT", 0, "null"),
        ("p", "x", "nulled", "BIGINT", 2, "null"),
        ("a", "x", "new", "BIGINT", 0, "taken in"),
        ("a", "x", "missing", "BIGINT", 0, "null"),
        ("a", "x", "nulled", "BIGINT", 1, "null"),
    }
    assert len([note for note in shown if "are not of type BIGINT" in note]) == 2

    # a file whose declared column is of another type is set aside whole
    folder.flow(TYPED.replace('"id BIGINT NOT NULL", evolve: add}}\n  a', '"id BIGINT NOT NULL, x BIGINT", evolve: add}}\n  a'))
    typed_files(folder, "7", pa.string(), ["null", "string"], "text")
    result = ran(folder)
    assert result.balanced
    assert 70 not in [row["id"] for row in folder.read("out/p")]
    assert 70 in [row["id"] for row in folder.read("out/a")]


REWOUND = """
version: 1
name: rewound
sources: {a: {type: files, path: data, format: json, schema: {fields: "id BIGINT NOT NULL, amount DOUBLE", evolve: %s}}}
sinks: {kept: {from: a, type: files, path: out, format: json}}
"""


@pytest.mark.parametrize("evolve", ["add", "lenient"])
def test_a_rewind_forgets_nothing_that_was_noticed_and_tells_nothing_twice(folder: FlowFolder, evolve: str) -> None:
    folder.flow(REWOUND % evolve).data("data/a.jsonl", [{"id": 1, "note": "x"}, {"id": 2, "amount": "y"}])
    assert ran(folder).balanced
    before = told(folder)
    assert {column for _, column, *_ in before} == ({"note"} if evolve == "add" else {"note", "amount"})
    shutil.rmtree(folder.path / ".scribengin" / "_learned", ignore_errors=True)  # as after a kill between the decision and what follows

    (tier,) = prepare(folder.path / "flow.yaml", state=None).tiers
    with take_lease(tier.folder) as lease:
        go_back(tier, tier.folder.query("kept"), {"a": 0}, lease)
    assert told(folder) == before
    shown: list[str] = []
    assert ran(folder, watch=lambda view: shown.extend(view.notices)).balanced
    assert [note for note in shown if note.startswith("source ")] == []
    assert told(folder) == before, "what is read again is counted once"
    assert [row["note"] for row in folder.read("out") if row.get("note")] == ["x"] * (evolve == "add")
    assert (folder.path / ".scribengin" / "_learned").exists() == (evolve == "add")


def test_columns_of_each_small_file_and_both_halves_of_a_rename_are_told(folder: FlowFolder) -> None:
    folder.flow("""
version: 1
name: events
sources:
  events: {type: files, path: data, format: json, schema: "event_id BIGINT, user_id BIGINT, amount DOUBLE, never STRING"}
sinks:
  kept: {from: events, type: files, path: out, format: json}
""")
    good = [{"event_id": n, "user_id": 1, "amount": 1.5} for n in range(10)]
    for name, rows in (("a", good), ("b", [{"eventId": 11, "userId": 1, "amount": 2.0}]), ("c", good), ("d", [{**good[0], "new": 1.5}])):
        folder.data(f"data/{name}.jsonl", rows)
    shown: list[str] = []
    folder.run(lambda view: shown.extend(view.notices))
    assert told(folder) == {
        ("events", "eventId", "new", "DOUBLE", 0, "dropped"),
        ("events", "userId", "new", "DOUBLE", 0, "dropped"),
        ("events", "new", "new", "DOUBLE", 0, "dropped"),
        ("events", "event_id", "renamed", "eventId", 1, "null"),
        ("events", "user_id", "renamed", "userId", 1, "null"),
        ("events", "never", "null", "STRING", 22, "null"),
    }
    (renamed,) = [note for note in shown if '"event_id"' in note]
    assert 'b.jsonl (1 record checked), which has a field "eventId"' in renamed
    assert any('"never" (STRING) has no value in a whole Batch (22 records checked)' in note for note in shown)
