"""What `on_error` says is done: in Spark's steps and in Python's, on the way to a sink and before a step with state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    import pytest

    from tests.conftest import FlowFolder

HEAD = """
version: 1
name: errors
sources:
  rows: {type: files, path: data, format: json, schema: "n BIGINT, ts TIMESTAMP", watermark: ts 1m}
steps:
"""
STEPS = """
def work(row):
    if row["n"] == 3:
        raise ValueError("three")
    return {**row}


def same(row):
    return {**row}


def twice(row):
    return [row, {**row, "n": row["n"] + 100}]
"""
FORMS = {
    "native": "{from: rows, filter: n < 9, require: {even: n % 2 = 0}, on_error: HOW}",
    "python": '{from: rows, python: "steps:work", on_error: HOW}',
    "checked": '{from: rows, python: "steps:same", require: {even: n % 2 = 0}, on_error: HOW}',
    "divided": "{from: rows, select: {n: 10 / (n - 3), ts: ts}, on_error: HOW}",
}
BEFORE_STATE = ("native_drop", "checked_dead_letter", "native_fail", "checked_fail")
STATE = "{from: NAME, aggregate: {window: {time: ts, size: 1h}, columns: {ns: collect_list(n)}}}"


def flow_of(how: str) -> str:
    """Each form before a sink; some before a step with state too."""
    steps = {f"{form}_{how}": text.replace("HOW", how) for form, text in FORMS.items()}
    steps |= {f"{name}_state": STATE.replace("NAME", name) for name in list(steps) if name in BEFORE_STATE}
    return HEAD + "".join(f"  {name}: {text}\n" for name, text in steps.items())


def sinks_of(*steps: str) -> str:
    return "sinks:\n" + "".join(f"  to_{step}: {{from: {step}, type: files, path: out/{step}, format: json}}\n" for step in steps)


def write(folder: FlowFolder) -> None:
    folder.steps(STEPS).data("data/a.jsonl", [{"n": n, "ts": "2026-01-01T00:00:00Z"} for n in range(10)])
    folder.data("data/b.jsonl", [{"n": 8, "ts": "2026-01-01T09:00:00Z"}])


def test_a_drop_counts_and_a_dead_letter_tells_and_none_costs_another_record(folder: FlowFolder) -> None:
    plain = [f"{form}_{how}" for form in FORMS for how in ("drop", "dead_letter")]
    stateful = [f"{name}_state" for name in BEFORE_STATE if "fail" not in name]
    text = flow_of("drop") + flow_of("dead_letter").removeprefix(HEAD)
    folder.flow(text + sinks_of(*plain, *stateful))
    write(folder)
    result = ran(folder)

    dead = {"native": [1, 3, 5, 7], "python": [3], "checked": [1, 3, 5, 7, 9], "divided": [3]}
    queries = {query.name.removeprefix("to_"): query for query in result.queries}
    for name, query in queries.items():
        form = name.partition("_")[0]
        found = letters(folder, "errors", f"to_{name}")
        assert query.rows.dead == len(dead[form]), name
        places = [] if "drop" in name else [(f"{form}_dead_letter", "a.jsonl", n + 1) for n in dead[form]]
        assert [(letter.step, letter.file[-7:], letter.line) for letter in found] == places, name
        assert [letter.payload[:7] for letter in found] == [b'{"n": %d' % n for n in dead[form]][: len(found)]
    for name in plain:
        assert len(folder.read(f"out/{name}")) == queries[name].rows.out
        if not name.startswith("divided"):
            gone = {*dead[name.partition("_")[0]], *([9] if name.startswith("native") else [])}
            assert sorted(row["n"] for row in folder.read(f"out/{name}")) == sorted([n for n in range(10) if n not in gone] + [8]), name


def test_fail_names_the_record_and_publishes_nothing(folder: FlowFolder) -> None:
    names = [f"{form}_fail" for form in FORMS]
    folder.flow(flow_of("fail") + sinks_of(*names, "native_fail_state", "checked_fail_state"))
    write(folder)
    result = folder.run()

    assert result.state == "failed"
    lines = {"native": 2, "python": 4, "checked": 2, "divided": 4}
    for query in result.queries:
        step = query.name.removeprefix("to_").removesuffix("_state")
        assert query.state == "failed", query.name
        assert f'step "{step}" failed on a record at ' in query.error
        assert f"a.jsonl:{lines[step.partition('_')[0]]}" in query.error, query.error
        assert "on_error: dead_letter" in query.remedy
        assert letters(folder, "errors", query.name) == []
    assert list((folder.path / "out").glob("*/part-*")) == []


def test_a_requirement_that_several_steps_read_gives_one_letter(folder: FlowFolder) -> None:
    sink = "type: files, format: json, together: all"
    folder.flow(
        HEAD.replace("steps:\n", '  lines: {type: files, path: data, format: json, parse: spark, schema: "n BIGINT"}\nsteps:\n')
        + f"""
  known: {{from: rows, filter: n <> 8, require: {{even: n % 2 = 0}}}}
  small: {{from: known, filter: n < 4}}
  large: {{from: known, filter: n >= 4, require: {{few: n < 6}}}}
  few:   {{from: lines, filter: n < 4}}
  many:  {{from: lines, filter: n >= 4}}
sinks:
  a: {{from: small, path: out/small, {sink}}}
  b: {{from: large, path: out/large, {sink}}}
  c: {{from: known, path: out/known, {sink}}}
  d: {{from: few, path: out/few, {sink}}}
  e: {{from: many, path: out/many, {sink}}}
"""
    )
    write(folder)
    folder.data("data/c.jsonl", ["{"])
    result = ran(folder)

    # "{" is in the way of `rows` and of `lines`
    found = [(letter.step, letter.reason, letter.line) for letter in letters(folder, "errors", "all")]
    assert found == [
        *(("known", "require", n + 1) for n in (1, 3, 5, 7, 9)),
        ("large", "require", 7),
        ("lines", "malformed", 1),
        ("rows", "malformed", 1),
    ]
    nodes = result.queries[0].nodes
    assert result.queries[0].rows.dead == 8
    assert (nodes["known"].rows_in, nodes["known"].out, nodes["known"].filtered, nodes["known"].dead) == (11, 4, 2, 5)
    assert (nodes["lines"].rows_in, nodes["lines"].out, nodes["lines"].dead) == (12, 11, 1)
    assert [row["n"] for row in folder.read("out/large")] == [4]


def test_a_cast_that_fails_behind_python_costs_its_record_and_every_node_adds_up(folder: FlowFolder) -> None:
    folder.flow(
        HEAD
        + """
  some:  {from: rows, filter: n < 9}
  made:  {from: some, python: "steps:twice"}
  share: {from: made, select: {part: 10 / (n - 3)}}
  valid: {from: rows, python: "steps:same", require: {whole: 10 / (n - 5) <> 0}}
sinks:
  out: {from: share, type: files, path: out, format: json}
  checked: {from: valid, type: files, path: checked, format: json}
"""
    )
    write(folder)
    result = ran(folder)

    assert (len(folder.read("out")), len(folder.read("checked"))) == (2 * (10 - 1), 10)
    assert [(letter.step, letter.reason, letter.line) for letter in letters(folder, "errors", "out")] == [("share", "sql-error", 4)]
    assert [(letter.step, letter.reason, letter.line) for letter in letters(folder, "errors", "checked")] == [("valid", "sql-error", 6)]
    assert [query.rows.dead for query in result.queries] == [1, 1]


def test_too_many_records_that_one_pass_does_not_find_fail_the_query(folder: FlowFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.spark.bad_record_search._Search.at_once", lambda _: [])
    monkeypatch.setattr("scribengin.spark.bad_record_search.LIMIT", 2)
    folder.flow(HEAD + "  share: {from: rows, select: {part: 10 / (n % 3)}}\n" + sinks_of("share"))
    write(folder)
    result = folder.run()

    assert result.state == "failed"
    (query,) = result.queries
    assert 'step "share": more than 2 records of one batch fail in it; first error: [DIVIDE_BY_ZERO]' in query.error
    assert "try_cast" in query.remedy
    assert folder.read("out/share") == []
    assert letters(folder, "errors", "to_share") == []
