"""`preview`: the same steps as a run, on a sample, and nothing written; mistakes are told where they stand."""

import json
from pathlib import Path

import pytest

from scribengin.cli.preview_settings import preview_settings
from scribengin.cli.preview_view import _visible
from scribengin.connectors.files.source import FilesSource
from scribengin.core.errors import InputError
from scribengin.local.preview import Previews
from scribengin.local.preview_contract import NodePreview, Preview, PreviewSettings
from scribengin.state.dead_letters import read_letters
from scribengin.state.folder import StateFolder

PYTHON_ONLY = """\
version: 1
name: small
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, amount DOUBLE"}
steps:
  some: {from: orders, python: "steps:some"}
  doubled: {from: some, python: "steps:doubled"}
sinks:
  kept: {from: doubled, type: files, path: out, format: json}
"""
STEPS = """\
from scribengin import batch, to


def some(row):
    return row["amount"] > 1


def doubled(row):
    if row["id"] == 3:
        raise ValueError("three")
    return [row, row | {"amount": row["amount"] * 2}]


@batch
def first(rows):
    return rows.slice(0, 1)


def sort(row):
    return to("late", row) if row["id"] % 2 else row
"""
HOSTILE = """\
version: 1
name: hostile
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, amount STRING, kind STRING"}
  kinds: {type: files, path: kinds.csv, format: csv, schema: "kind STRING, title STRING", static: true}
steps:
  numbers: {from: orders, select: {id: id, amount: CAST(amount AS DOUBLE), kind: kind}, require: {positive: amount > 0}}
  parts: {from: numbers, route: {big: amount > 10, small: amount <= 10, otherwise: none}}
  twice: {from: parts.big, python: "steps:doubled", require: {even: id <> 4}}
  sorted: {from: parts.small, python: {function: "steps:sort", branches: [late]}}
  all: {from: [twice, sorted, sorted.late], merge: {how: union, origin: came}}
  named: {from: [all, kinds], join: {key: [kind], how: left}}
sinks:
  kept: {from: named, type: files, path: out/kept, format: json}
"""
ORDERS = [
    {"id": 1, "amount": "150", "kind": "a"},
    {"id": 2, "amount": "x", "kind": "a"},
    {"id": 3, "amount": "20", "kind": "b"},
    "nonsense",
    "",
    {"id": 4, "amount": "30", "kind": "b"},
    {"id": 5, "amount": "5"},
    {"id": 6, "amount": "6", "kind": "a"},
    {"id": 7, "amount": "-1", "kind": "a"},
    {"amount": "6", "kind": "a"},
    {"id": 8, "kind": "c"},
    {"id": 9, "amount": "500", "kind": "a"},
]


def small(tmp_path: Path, flow: str = PYTHON_ONLY) -> Path:
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"id": number, "amount": float(number)}) + "\n" for number in range(5)]
    (tmp_path / "data" / "a.jsonl").write_text("".join(lines))
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "flow.yaml").write_text(flow)
    return tmp_path / "flow.yaml"


def look(path: Path, spark=None, **settings) -> Preview:
    with Previews(path, PreviewSettings(**settings), spark=spark) as previews:
        return previews.preview_now()


def nodes(preview: Preview) -> dict[str, NodePreview]:
    return {node.node: node for node in preview.nodes}


def refused(path: Path, **settings) -> str:
    with pytest.raises(InputError) as raised:
        look(path, **settings)
    return str(raised.value)


def test_each_step_shows_what_it_drops_makes_and_cannot_take_without_spark(tmp_path, monkeypatch):
    monkeypatch.setattr(Previews, "session", lambda _: pytest.fail("record functions need no Spark"))
    found = nodes(look(small(tmp_path)))
    some, doubled = found["some"], found["doubled"]
    assert [(row.fate, row.before["id"]) for row in some.rows] == [
        ("dropped", 0),
        ("dropped", 1),
        ("kept", 2),
        ("kept", 3),
        ("kept", 4),
    ]
    assert (some.rows_in, some.out, some.dropped, some.dead) == (5, {"": 3}, 2, 0)
    assert str(some.columns) == "id BIGINT NOT NULL, amount DOUBLE"
    assert (doubled.rows_in, doubled.out, doubled.dropped, doubled.dead) == (3, {"": 4}, 0, 1)
    kept, dead, _ = doubled.rows
    assert [row["amount"] for _, row in kept.after] == [2.0, 4.0]
    assert (dead.reason, dead.message, dead.code_line) == ("raised", "ValueError: three", "steps.py:10")
    assert dead.place == f"{tmp_path}/data/a.jsonl:4"
    assert found["kept"].notes == ("4 rows would be written to out; preview writes nothing",)


def test_a_preview_leaves_nothing_behind_and_reads_no_more_than_the_sample(tmp_path, monkeypatch):
    path = small(tmp_path)
    (tmp_path / "data" / "b.jsonl").write_text('{"id": 9}\n')
    before = sorted(tmp_path.rglob("*"))
    read, opened = FilesSource.read, list[str]()

    def noted(source, stream):
        opened.append(stream.label)
        return read(source, stream)

    monkeypatch.setattr(FilesSource, "read", noted)
    found = look(path, sample=2, rows=1)
    assert sorted(tmp_path.rglob("*")) == before
    assert opened == ["a.jsonl"]
    assert found.nodes[0].rows_in == 2
    assert len(found.nodes[0].rows) == 1


def test_what_a_preview_says_is_what_a_run_does(folder):
    folder.flow(HOSTILE).steps(STEPS).data("data/a.jsonl", ORDERS)
    (folder.path / "kinds.csv").write_text("kind,title\na,Anna\nb,Bert\n")
    found = look(folder.path / "flow.yaml", folder.spark)
    shown = nodes(found)["kept"].rows
    folder.run()
    assert sorted(json.dumps(row) for row in folder.read("out/kept")) == sorted(json.dumps(each) for row in shown for _, each in row.after)
    dead = {(node.node, row.reason, row.message, row.place) for node in found.nodes for row in node.rows if row.fate == "dead"}
    query = StateFolder(folder.path / ".scribengin", "hostile", "main").query("kept")
    assert dead == {(letter.step, letter.reason, letter.message, f"{letter.file}:{letter.line}") for letter in read_letters(query)}
    assert len(dead) == 7
    pairs = [(row.before["id"], after["id"]) for node in found.nodes for row in node.rows if row.before for _, after in row.after]
    assert len(pairs) > 20
    assert all(before == after for before, after in pairs), "each row stands beside what was made of it"


def test_steps_with_state_see_one_batch_and_say_so(tmp_path, spark):
    flow = """\
version: 1
name: hours
sources:
  ticks: {type: sequence, rate: 10, step: 30m, watermark: ts 1s}
steps:
  by_hour: {from: ticks, aggregate: {window: {time: ts, size: 1h}, columns: {n: count(*)}}}
sinks:
  kept: {from: by_hour, type: console}
"""
    (tmp_path / "flow.yaml").write_text(flow)
    found = nodes(look(tmp_path / "flow.yaml", spark, sample=6, rows=6, at="by_hour"))
    assert list(found) == ["by_hour"]
    by_hour = found["by_hour"]
    assert [row.after[0][1]["n"] for row in by_hour.rows] == [2, 2, 2]
    assert by_hour.dropped is None
    assert [id_ for id_, _ in by_hour.came] == ["ticks"] * 6
    assert "windows that a run would keep open are shown" in by_hour.notes[0]


def test_a_second_preview_reads_the_modules_anew_and_keeps_the_session(tmp_path, spark):
    path = small(tmp_path, PYTHON_ONLY.replace('doubled: {from: some, python: "steps:doubled"}', "doubled: {from: some, filter: id < 9}"))
    with Previews(path, PreviewSettings(), spark=spark) as previews:
        assert nodes(previews.preview_now())["some"].out == {"": 3}
        (tmp_path / "steps.py").write_text(STEPS.replace("> 1", "> 2"))
        assert nodes(previews.preview_now())["some"].out == {"": 2}


def test_a_flow_in_python_is_executed_anew_with_its_modules(tmp_path):
    small(tmp_path)
    path = tmp_path / "shop.py"
    path.write_text(
        "from scribengin import Flow, source\nfrom steps import some\n"
        'orders = source("files", id="orders", path="data", format="json", schema="id BIGINT, amount DOUBLE")\n'
        'flow = Flow("shop", orders.map(some, id="some").to("files", id="kept", path="out", format="json"))\n'
    )
    with Previews(path, PreviewSettings()) as previews:
        assert nodes(previews.preview_now())["some"].out == {"": 3}
        (tmp_path / "steps.py").write_text(STEPS.replace("> 1", "> 2"))
        assert nodes(previews.preview_now())["some"].out == {"": 2}


def test_records_of_a_file_stand_for_a_source(tmp_path):
    path = small(
        tmp_path,
        PYTHON_ONLY.replace("type: files, path: data, format: json", "type: kafka, bootstrap: nowhere:1, topics: [t], format: json"),
    )
    (tmp_path / "some.csv").write_text("amount,id\n7,1\n8,x\n")
    found = look(path, files={"": tmp_path / "some.csv"})
    orders = nodes(found)["orders"]
    assert (orders.rows_in, orders.out, orders.dead) == (2, {"": 1}, 1)
    assert "read as csv by its suffix; the source is json" in orders.notes[0]
    assert nodes(found)["kept"].out == {"": 2}


def test_a_file_of_another_format_is_told_with_what_was_found(tmp_path):
    path = small(tmp_path)
    (tmp_path / "orders.jsonl").write_bytes(b"PAR1\x00\x01\n\xff\xfe\n")
    found = look(path, files={"orders": tmp_path / "orders.jsonl"})
    (problem,) = found.problems
    assert (problem.code, problem.severity) == ("preview-unread", "warning")
    assert 'none of the 1 records of source "orders" can be read; first error: the file is Parquet' in problem.message
    (tmp_path / "orders.parquet").write_text("{}\n")
    found = look(path, files={"orders": tmp_path / "orders.parquet"})
    assert "is not a complete Parquet file" in found.problems[0].message


def test_an_empty_source_is_a_warning_with_its_place(tmp_path):
    path = small(tmp_path)
    (tmp_path / "data" / "a.jsonl").unlink()
    found = look(path)
    (problem,) = found.problems
    assert (problem.code, problem.severity, problem.place.line) == ("preview-empty", "warning", 4)
    assert [node.out for node in found.nodes] == [{"": 0}] * 4


def test_a_source_that_is_not_there_is_an_error_with_its_place(tmp_path):
    path = small(tmp_path)
    (tmp_path / "data" / "a.jsonl").unlink()
    (tmp_path / "data").rmdir()
    found = look(path)
    (problem,) = found.problems
    assert (problem.severity, problem.place.line) == ("error", 4)


def test_a_step_that_cannot_be_loaded_or_that_spark_refuses_stops_only_what_is_behind_it(tmp_path, spark):
    flow = PYTHON_ONLY.replace(
        "sinks:\n", '  wrong: {from: orders, filter: "array_contains(amount, 1)"}\nsinks:\n  other: {from: wrong, type: console}\n'
    )
    path = small(tmp_path, flow)
    (tmp_path / "steps.py").write_text(STEPS + "\nimport no_such_module\n")
    found = look(path, spark)
    assert [(problem.place.line, problem.severity) for problem in found.problems] == [(6, "error"), (8, "error")]
    assert "No module named 'no_such_module' (steps.py:22)" in found.problems[0].message
    failures = {node.node: node.failure for node in found.nodes}
    assert failures["kept"] == 'not reached: "some" failed'
    assert failures["other"] == 'not reached: "wrong" failed'
    assert failures["orders"] == ""


def test_what_is_not_there_is_refused_with_what_was_meant(tmp_path):
    path = small(tmp_path)
    assert 'flow "small" has no step "doubeld"; did you mean "doubled"?' in refused(path, at="doubeld")
    assert 'has no source "order"; did you mean "orders"?' in refused(path, files={"order": path})
    assert "the file does not exist; did you mean" in refused(path, files={"": tmp_path / "data" / "b.jsonl"})
    path.write_text(PYTHON_ONLY.replace("from: some", "from: sme"))
    assert 'did you mean "some"?' in refused(path)


def test_columns_that_the_schema_has_not_and_files_of_other_columns_are_told(tmp_path):
    path = small(tmp_path, PYTHON_ONLY.replace('schema: "id BIGINT NOT NULL, amount DOUBLE"', 'schema: {fields: "id BIGINT", evolve: add}'))
    (tmp_path / "steps.py").write_text("def some(row): return True\ndef doubled(row): return row\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-0.jsonl").write_text('{"id": "one"}\n')
    found = look(path)
    (note,) = nodes(found)["orders"].notes
    assert 'the data has a column "amount" (DOUBLE)' in note
    assert "it is added at the next start" in note
    (problem,) = found.problems
    assert (problem.code, problem.severity, problem.place.line) == ("output-columns", "warning", 9)


def test_a_look_at_what_another_flow_writes_leaves_no_lease_there(tmp_path):
    path = small(tmp_path)
    (tmp_path / "data" / "_scribengin").mkdir()
    (tmp_path / "data" / "_scribengin" / "owner.json").write_text("{}")
    before = set(tmp_path.rglob("*"))
    assert nodes(look(path, at="orders"))["orders"].out == {"": 5}
    assert set(tmp_path.rglob("*")) == before


def test_a_module_that_exits_fails_its_step_and_not_the_preview(tmp_path):
    path = small(tmp_path)
    (tmp_path / "steps.py").write_text("import sys\n\n\ndef some(row): return True\n\n\ndef doubled(row): return row\n\n\nsys.exit(3)\n")
    found = look(path)
    assert "SystemExit: 3" in nodes(found)["some"].failure
    assert nodes(found)["orders"].out == {"": 5}


def test_what_data_hold_does_not_steer_the_terminal(tmp_path):
    assert _visible("a\x1b[31m\r\x07é\n") == r"a\x1b[31m\r\x07é⏎"


def test_two_files_for_one_source_are_refused(tmp_path):
    with pytest.raises(InputError, match="two files that name no source"):
        preview_settings(files=["a.jsonl", "b.jsonl"], flags={})


def test_a_dead_letter_of_a_utility_names_it(tmp_path):
    path = small(tmp_path, PYTHON_ONLY.replace('python: "steps:some"', 'utilities: ["steps:some", "steps:doubled"]'))
    some = nodes(look(path))["some"]
    assert [(row.fate, row.utility) for row in some.rows] == [("dropped", "")] * 2 + [("kept", ""), ("dead", "doubled"), ("kept", "")]


def test_a_frame_function_runs_in_spark_with_the_modules_beside_it(tmp_path, spark):
    path = small(
        tmp_path, PYTHON_ONLY.replace('python: "steps:some"', 'python: "shapes:whole", on_error: fail, require: {small: amount < 4}')
    )
    (tmp_path / "shapes.py").write_text(  # a name of its own: workers of a session that is lent stay
        "from scribengin import frame\n\n\ndef more(x):\n    return x + 1\n\n\n@frame\ndef whole(df):\n"
        '    from pyspark.sql.functions import udf\n\n    return df.withColumn("amount", udf(more, "double")("amount"))\n'
    )
    whole = nodes(look(path, spark, at="some"))["some"]
    assert (whole.rows_in, whole.out, whole.dropped, whole.dead, whole.on_error) == (5, {"": 3}, None, 2, "fail")
    assert [row.after[0][1]["amount"] for row in whole.rows if row.after] == [1.0, 2.0, 3.0]
    assert [row.payload for row in whole.rows if row.fate == "dead"] == ['{"id":3,"amount":4.0}', '{"id":4,"amount":5.0}']
