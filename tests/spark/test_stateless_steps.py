"""Every step form that keeps no state, run end to end; each run must balance."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.state.dead_letters import read_letters
from scribengin.state.folder import StateFolder

if TYPE_CHECKING:
    from scribengin.state.contract import DeadLetter
    from tests.conftest import FlowFolder


def letters(folder: FlowFolder, name: str, query: str) -> list[DeadLetter]:
    return sorted(
        read_letters(StateFolder(folder.path / ".scribengin", name).query(query)), key=lambda letter: (letter.step, letter.line or 0)
    )


def ran(folder: FlowFolder, **settings: Any) -> Any:
    result = folder.run(**settings)
    assert [(query.name, query.error) for query in result.queries if query.error] == []
    assert result.state == "finished"
    assert result.violations == ()
    assert [text for report in audit_flow(prepare(folder.path / "flow.yaml", state=None)).reports for text in report.violations] == []
    return result


def test_native_forms_give_what_their_sql_says_in_one_pass_over_the_source(folder: FlowFolder) -> None:
    folder.flow(
        """
version: 1
name: forms
sources:
  numbers: {type: files, path: data, format: json, schema: "n BIGINT, word STRING"}
  names: {type: files, path: ref, format: csv, schema: "n BIGINT, name STRING", static: true}
steps:
  small:   {from: numbers, filter: n < 4}
  listed:  {from: small, select: [n, upper(word) AS loud]}
  mapped:  {from: small, select: {twice: n * 2, w: word}}
  queried: {from: [small, names], sql: "SELECT s.n, name FROM small s JOIN names USING (n) WHERE s.n > 0"}
  joined:  {from: [small, names], join: {key: [n], how: left}}
  sizes:   {from: numbers, route: {big: n > 6, odd: n % 2 = 1, otherwise: rest}}
  both:    {from: [sizes.big, listed_again]}
  listed_again: {from: sizes.rest, select: [word, n]}
sinks:
  listed_out:  {from: listed, type: files, path: out/listed, format: json, together: all}
  mapped_out:  {from: mapped, type: files, path: out/mapped, format: parquet, together: all}
  queried_out: {from: queried, type: files, path: out/queried, format: json, together: all}
  joined_out:  {from: joined, type: files, path: out/joined, format: json, together: all}
  odd_out:     {from: sizes.odd, type: files, path: out/odd, format: text, together: all}
  both_out:    {from: both, type: files, path: out/both, format: json, together: all}
""".replace("sizes.odd, type", "odd_word, type").replace(
            "  both: ", "  odd_word: {from: sizes.odd, select: [\"coalesce(word, '-') AS value\"]}\n  both: "
        )
    )
    folder.data("data/a.jsonl", [{"n": n, "word": f"w{n}"} for n in range(9)] + [{"n": None, "word": "none"}])
    (folder.path / "ref").mkdir()
    (folder.path / "ref" / "names.csv").write_text("n,name\n1,one\n3,three\n")
    result = ran(folder)

    assert folder.read("out/listed") == [{"n": n, "loud": f"W{n}"} for n in range(4)]
    assert folder.read("out/mapped") == [{"twice": 2 * n, "w": f"w{n}"} for n in range(4)]
    assert sorted(folder.read("out/queried"), key=str) == [{"n": 1, "name": "one"}, {"n": 3, "name": "three"}]
    names = {1: "one", 3: "three"}
    assert sorted(folder.read("out/joined"), key=str) == [{"n": n, "word": f"w{n}", "name": names.get(n)} for n in range(4)]
    assert [p.read_text() for p in (folder.path / "out/odd").glob("part-*")] == ["w1\nw3\nw5\n"]
    assert sorted((row["n"] is None, row["n"] or 0) for row in folder.read("out/both")) == [(False, n) for n in (0, 2, 4, 6, 7, 8)] + [
        (True, 0)
    ]
    assert result.queries[0].rows.rows_in == 10


STEPS = """
import pyarrow as pa
import pyarrow.compute as pc
from scribengin import batch, frame, record, to


def keep(row):
    return row["n"] is not None


class Adds:
    def open(self):
        self.more = 100

    def __call__(self, row):
        return {**row, "n": row["n"] + self.more}


@batch
def doubled(rows):
    return rows.set_column(rows.schema.get_field_index("n"), "n", pc.multiply(rows["n"], 2))


@batch
class Evens:
    def __call__(self, rows):
        yield rows.filter(pc.equal(pc.bit_wise_and(rows["n"], 1), 0))


@frame
def framed(df):
    return df.where("n > 5").selectExpr("n AS m")


def several(row):
    return [{"n": row["n"], "word": str(i)} for i in range(row["n"] % 3)]


def made(row):
    for i in range(row["n"] % 3):
        yield {"n": row["n"], "word": str(i)}


def sorts(row):
    if row["n"] == 0:
        return None
    if row["n"] % 4 == 0:
        return [to("fours", row), row]
    return to("odd", row) if row["n"] % 2 else row


@record
def reshaped(row):
    extra = {"surplus": 1} if row["n"] == 3 else {}
    return {"id": "four" if row["n"] == 4 else row["n"], **extra}
"""


def test_python_forms_give_their_answers_in_the_tail_and_before_sql(folder: FlowFolder) -> None:
    sink = "type: files, format: json, together: all"
    folder.steps(STEPS).flow(f"""
version: 1
name: forms
sources:
  numbers: {{type: files, path: data, format: json, schema: "n BIGINT, word STRING"}}
steps:
  known:    {{from: numbers, python: "steps:keep"}}
  adds:     {{from: known, python: "steps:Adds"}}
  doubled:  {{from: known, python: "steps:doubled"}}
  evens:    {{from: doubled, python: "steps:Evens"}}
  framed:   {{from: known, python: "steps:framed", schema: "m BIGINT", on_error: fail}}
  several:  {{from: known, python: "steps:several"}}
  made:     {{from: known, python: "steps:made"}}
  sql_made: {{from: made, filter: word = '1'}}
  sorts:    {{from: known, python: {{function: "steps:sorts", branches: [fours, odd]}}}}
  sql_odd:  {{from: sorts.odd, select: [n]}}
  reshaped: {{from: known, python: "steps:reshaped", schema: "id BIGINT NOT NULL", require: {{low: id < 7}}}}
  sql_id:   {{from: reshaped, filter: id > 0}}
sinks:
  a: {{from: adds, path: out/adds, {sink}}}
  b: {{from: evens, path: out/evens, {sink}}}
  c: {{from: framed, path: out/framed, {sink}}}
  d: {{from: several, path: out/several, {sink}}}
  e: {{from: sql_made, path: out/made, {sink}}}
  f: {{from: sorts.fours, path: out/fours, {sink}}}
  g: {{from: sql_odd, path: out/odd, {sink}}}
  h: {{from: sorts, path: out/sorts, {sink}}}
  i: {{from: sql_id, path: out/ids, {sink}}}
""")
    folder.data("data/a.jsonl", [{"n": n, "word": f"w{n}"} for n in range(9)] + [{"n": None, "word": "none"}])
    ran(folder)

    assert folder.read("out/adds") == [{"n": n + 100, "word": f"w{n}"} for n in range(9)]
    assert folder.read("out/evens") == [{"n": 2 * n, "word": f"w{n}"} for n in range(9)]
    assert folder.read("out/framed") == [{"m": 6}, {"m": 7}, {"m": 8}]
    assert Counter(row["n"] for row in folder.read("out/several")) == {n: n % 3 for n in range(9) if n % 3}
    assert [row["n"] for row in folder.read("out/made")] == [2, 5, 8]
    assert [row["n"] for row in folder.read("out/fours")] == [4, 8]
    assert folder.read("out/odd") == [{"n": n} for n in (1, 3, 5, 7)]
    assert [row["n"] for row in folder.read("out/sorts")] == [2, 4, 6, 8]
    assert folder.read("out/ids") == [{"id": n} for n in (1, 2, 5, 6)]
    found = {(letter.step, letter.reason, letter.line, letter.payload[:6]) for letter in letters(folder, "forms", "all")}
    assert found == {
        ("reshaped", "surplus-key", 4, b'{"n": '),
        ("reshaped", "wrong-type", 5, b'{"n": '),
        ("reshaped", "require", 8, b'{"n": '),
        ("reshaped", "require", 9, b'{"n": '),
    }


def test_parse_reads_a_column_in_the_tail_and_before_sql_by_the_same_contract(folder: FlowFolder) -> None:
    folder.flow("""
version: 1
name: parsing
sources:
  raw: {type: files, path: data, format: json, schema: "at BIGINT, value STRING"}
steps:
  tail:  {from: raw, parse: {column: value, format: json, schema: "id BIGINT NOT NULL, name STRING"}}
  known: {from: tail, filter: id > 1}
sinks:
  a: {from: tail, type: files, path: out/tail, format: json}
  b: {from: known, type: files, path: out/known, format: json}
""")
    values = ['{"id": 1, "name": "a"}', '{"id": "2"}', '{"name": "c"}', "{", None, '{"id": 6, "more": 1}']
    folder.data("data/a.jsonl", [{"at": at, "value": value} for at, value in enumerate(values)])
    result = ran(folder)

    assert folder.read("out/tail") == [{"at": 0, "id": 1, "name": "a"}, {"at": 5, "id": 6, "name": None}]
    assert folder.read("out/known") == [{"at": 5, "id": 6, "name": None}]
    for query in ("a", "b"):
        assert [(letter.step, letter.line) for letter in letters(folder, "parsing", query)] == [("tail", line) for line in (2, 3, 4, 5)]
    assert {query.name: query.rows.dead for query in result.queries}["a"] == 4


def test_parse_reads_csv_values_in_the_tail_and_before_sql(folder: FlowFolder) -> None:
    folder.flow("""
version: 1
name: cells
sources:
  raw: {type: files, path: data, format: json, schema: "at BIGINT, value STRING"}
steps:
  tail:  {from: raw, parse: {column: value, format: csv, delimiter: ";", null: NA, schema: "id BIGINT NOT NULL, name STRING, n DOUBLE"}}
  known: {from: tail, filter: id > 1}
sinks:
  a: {from: tail, type: files, path: out/tail, format: json}
  b: {from: known, type: files, path: out/known, format: json}
""")
    values = ["1;a;0.5", "x;b;1", "3;NA;NA", "4;d", None, '6;"e;f";2', "NA;g;1", "8;h;1\n9;i;1", "", "10;;3"]
    folder.data("data/a.jsonl", [{"at": at, "value": value} for at, value in enumerate(values)])
    result = ran(folder)

    known = [
        {"at": 2, "id": 3, "name": None, "n": None},
        {"at": 5, "id": 6, "name": "e;f", "n": 2.0},
        {"at": 9, "id": 10, "name": "", "n": 3.0},
    ]
    assert folder.read("out/tail") == [{"at": 0, "id": 1, "name": "a", "n": 0.5}, *known]
    assert folder.read("out/known") == known
    for query in ("a", "b"):
        found = letters(folder, "cells", query)
        assert [(letter.step, letter.line, letter.reason) for letter in found] == [
            ("tail", 2, "wrong-type"),
            ("tail", 4, "ragged"),
            ("tail", 5, "missing"),
            ("tail", 7, "missing"),
            ("tail", 8, "malformed"),
        ]
    assert result.queries[0].nodes["tail"].filtered == 1


def test_unions_take_columns_by_name_from_sources_steps_and_sql(folder: FlowFolder) -> None:
    folder.steps("def same(row):\n    return {**row}\n").flow("""
version: 1
name: unions
sources:
  a: {type: files, path: a, format: json, schema: "n BIGINT NOT NULL, word STRING"}
  b: {type: files, path: b, format: csv, schema: "word STRING, n BIGINT"}
  c: {type: files, path: c, format: parquet}
steps:
  touched: {from: a, python: "steps:same"}
  native:  {from: b, filter: n > 10}
  all:     {from: [touched, native, c]}
  again:   {from: all, python: "steps:same"}
  merged:  {from: [a, b], merge: {how: union}}
  counted: {from: merged, filter: n <> 11}
sinks:
  one: {from: again, type: files, path: out/one, format: json}
  two: {from: counted, type: files, path: out/two, format: parquet}
  three: {from: [a, b], type: files, path: out/three, format: parquet}
""")
    folder.data("a/a.jsonl", [{"n": n, "word": f"a{n}"} for n in range(3)])
    (folder.path / "b").mkdir()
    (folder.path / "b" / "b.csv").write_text("word,n\nb10,10\nb11,11\nb12,12\n")
    (folder.path / "c").mkdir()
    pq.write_table(pa.table({"word": ["c20"], "n": pa.array([20], pa.int64())}), folder.path / "c" / "c.parquet")
    result = ran(folder)

    assert sorted((row["n"], row["word"]) for row in folder.read("out/one")) == [
        (0, "a0"), (1, "a1"), (2, "a2"), (11, "b11"), (12, "b12"), (20, "c20")
    ]  # fmt: skip
    assert sorted((row["n"], row["word"]) for row in folder.read("out/two")) == [(0, "a0"), (1, "a1"), (2, "a2"), (10, "b10"), (12, "b12")]
    assert sorted((row["n"], row["word"]) for row in folder.read("out/three")) == [
        (0, "a0"), (1, "a1"), (2, "a2"), (10, "b10"), (11, "b11"), (12, "b12")
    ]  # fmt: skip
    assert {query.name: query.rows.rows_in for query in result.queries} == {"one": 7, "two": 6, "three": 6}
