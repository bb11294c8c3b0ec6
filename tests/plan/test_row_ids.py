"""The key of a sink behind an aggregation or a join: what must be in it, what must not, and where nothing is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.problems import Problem

SINKS = {
    "opensearch": 'type: opensearch, server: ["http://s:9200"], index: kept, mode: upsert',
    "elasticsearch": 'type: elasticsearch, server: ["http://s:9200"], index: kept, mode: upsert',
    "cassandra": "type: cassandra, server: [c1], keyspace: shop, table: kept, mode: upsert",
    "hbase": 'type: hbase, server: ["http://h:8080"], table: kept, mode: upsert',
    "postgres": "type: postgres, server: 'postgresql://etl@db/shop', table: kept, mode: upsert",
    "changes": "type: postgres, server: 'postgresql://etl@db/shop', table: kept, mode: changes, change: op",
    "delta": "type: delta, path: kept, mode: upsert",
}
FLOW = """version: 1
name: shop
sources:
  orders:
    {{type: files, path: data, format: json, watermark: ts 1d, schema: "{schema}"}}
  paid: {{type: files, path: paid, format: json, schema: "id BIGINT, payment BIGINT, at TIMESTAMP", watermark: at 1d}}
  people: {{type: files, path: people, format: json, schema: "customer STRING, name STRING", static: true}}
steps:
  {steps}
sinks:
  kept: {{from: {last}, {sink}, key: [{key}]{more}}}
  rest: {{from: orders, type: console}}
  raw: {{from: paid, type: console}}
"""
ORDERS = "id BIGINT, customer STRING, kind STRING, amount DOUBLE, ts TIMESTAMP"
WINDOW = "window: {time: ts, size: 1h}, "
COLUMNS = "columns: {n: count(*), total: sum(amount), op: max(kind)}"


def by(columns: str, *, window: bool = True, emit: str = "append") -> str:
    """An aggregation of orders, `made`."""
    return f"made: {{from: orders, aggregate: {{by: [{columns}], {WINDOW * window}emit: {emit}, {COLUMNS}}}}}"


def sql(text: str, inputs: str = "orders", emit: str = "append") -> str:
    return f'made: {{from: [{inputs}], emit: {emit}, sql: "{text}"}}'


JOINED = "made: {from: [orders, paid], join: {key: [id], time: {orders: ts, paid: at}, within: 10m}}"


def told(folder: Path, steps: str | list[str], key: str, *, sink: str = "delta", more: str = "", last: str = "") -> list[Problem]:
    """The errors of a flow whose keyed sink reads the last step."""
    lines = [steps] if isinstance(steps, str) else steps
    last = last or lines[-1].partition(":")[0]
    path = folder / "flow.yaml"
    path.write_text(FLOW.format(schema=ORDERS, steps="\n  ".join(lines), last=last, sink=SINKS[sink], key=key, more=more))
    (folder / "steps.py").write_text("from scribengin import record\n\n\n@record\ndef same(row):\n    return row\n")
    _, problems = validate_file(path, {})
    return [problem for problem in problems if problem.severity == "error"]


def codes(problems: list[Problem]) -> list[str]:
    return [problem.code for problem in problems]


@pytest.mark.parametrize("sink", SINKS)
def test_a_window_that_is_not_in_the_key_is_told_where_the_key_stands(tmp_path: Path, sink: str) -> None:
    (problem,) = told(tmp_path, by("customer"), "customer", sink=sink)
    assert problem.code == "key-incomplete"
    assert problem.message == (
        'sink "kept" has key: [customer], but step "made" outputs one row for each customer and window: '
        "rows that differ only in window would overwrite one another"
    )
    assert problem.remedy.startswith("add window_start to key: [customer, window_start]")
    line = (tmp_path / "flow.yaml").read_text().splitlines()[problem.place.line - 1]
    assert line[problem.place.column - 1 :].startswith("key: [customer]")


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(("emit", "bound"), [("append", "window_start"), ("update", "window_end")])
def test_a_key_of_the_group_and_a_bound_of_its_window_is_right(tmp_path: Path, sink: str, emit: str, bound: str) -> None:
    assert told(tmp_path, by("customer", emit=emit), f"customer, {bound}", sink=sink) == []


@pytest.mark.parametrize("sink", SINKS)
def test_an_aggregate_in_the_key_is_told_where_groups_are_updated(tmp_path: Path, sink: str) -> None:
    (problem,) = told(tmp_path, by("customer", window=False, emit="update"), "customer, n", sink=sink)
    assert problem.code == "key-computed"
    assert problem.message == (
        'sink "kept" has "n" in its key, which step "made" computes (count(*)): with emit: update a group whose value changes would'
        " get a second row, and the old row would stay"
    )
    assert problem.remedy == "write key: [customer]"
    line = (tmp_path / "flow.yaml").read_text().splitlines()[problem.place.line - 1]
    assert line[problem.place.column - 1 :].startswith("n]")
    assert told(tmp_path, by("customer"), "customer, window_start, n", sink=sink) == []


@pytest.mark.parametrize("sink", SINKS)
def test_a_key_of_aggregates_alone_lacks_the_group(tmp_path: Path, sink: str) -> None:
    (problem,) = told(tmp_path, by("customer"), "n", sink=sink)
    assert problem.code == "key-incomplete"
    assert "differ only in customer and window" in problem.message
    assert problem.remedy.startswith("write key: [customer, window_start]")
    assert ("version: COLUMN" in problem.remedy) == (sink in ("postgres", "changes", "delta"))


def test_a_row_key_of_hbase_is_of_the_same_columns(tmp_path: Path) -> None:
    computed = told(tmp_path, by("customer", window=False, emit="update"), "customer, n", sink="hbase", more=', row: "{customer}/{n}"')
    assert [(problem.code, problem.remedy) for problem in computed] == [
        ("key-computed", "write key: [customer], and the same columns in row")
    ]
    right = told(tmp_path, by("customer"), "customer, window_start", sink="hbase", more=', row: "{customer}@{window_start}"')
    assert right == []


HOURS = "SELECT window(ts, '1 hour').start AS hour, customer, count(*) AS n FROM orders GROUP BY window(ts, '1 hour'), customer"

PAIRS = "SELECT o.id, o.customer, p.payment FROM orders o JOIN paid p ON o.id = p.id AND p.at BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR"
STRUCT = "SELECT window AS w, kind, count(*) AS n FROM orders GROUP BY window(ts, '1 hour'), 2"


@pytest.mark.parametrize(
    ("steps", "key", "remedy"),
    [
        (sql(HOURS), "customer", "add hour to key: [customer, hour]"),
        (sql(HOURS), "hour", "add customer to key: [hour, customer]"),
        ([sql(HOURS), "least: {from: made, filter: n > 1}"], "customer", "add hour to key: [customer, hour]"),
        ([sql(HOURS), "s: {from: made, select: {who: customer, h: hour, n: n}}"], "who", "add h to key: [who, h]"),
        ([by("customer"), "s: {from: made, select: [customer, n]}"], "customer", "keep the window's start in all steps up to the sink"),
        (
            [by("kind, customer"), "s: {from: made, select: [window_end, n]}"],
            "window_end",
            "keep kind and customer in all steps up to the sink",
        ),
        (
            sql("SELECT customer AS who, date_trunc('day', ts) AS day, max(ts) AS ts FROM orders GROUP BY 1, 2", emit="update"),
            "who",
            "add day to key: [who, day]",
        ),
        (
            sql("SELECT kind, customer, count(*) AS n FROM orders GROUP BY ALL", emit="update"),
            "customer",
            "add kind to key: [customer, kind]",
        ),
        (
            sql("SELECT * FROM (SELECT window, customer, count(*) AS n FROM orders o GROUP BY window(o.ts, '1 hour'), o.customer) t"),
            "customer",
            "add window to key: [customer, window]",
        ),
        (
            sql(f"WITH h AS ({STRUCT}) SELECT w.start AS at, kind, n FROM h"),
            "kind",
            "add at to key: [kind, at]",
        ),
        ([by("kind, customer"), "r: {from: made, route: {a: n > 1, otherwise: b}}"], "customer, window_end", "add kind to key"),
        (
            [by("customer"), "day: {from: made, aggregate: {by: [n], window: {time: window_end, size: 1d}, columns: {of: count(*)}}}"],
            "window_start",
            "add n to key: [window_start, n]",
        ),
        ([by("customer"), "named: {from: [made, people], join: {key: [customer]}}"], "customer", "add window_start to key"),
        ([by("customer"), "more: {from: [made, made2], merge: {how: union, origin: of}}"], "customer, of", "add window_start to key"),
        # a predicate that leaves more than one value
        ([by("kind, customer"), "f: {from: made, filter: kind IS NOT NULL AND kind <> 'a'}"], "customer, window_end", "add kind to key"),
        (
            sql("SELECT kind, customer, count(*) AS n FROM orders WHERE kind > 'a' GROUP BY 1, 2 HAVING n > 1", emit="update"),
            "customer",
            "add kind to key",
        ),
        # beside a column that is fixed
        ([by("kind, customer"), "f: {from: made, filter: kind = 'a'}"], "customer", "add kind and window_start to key"),
        (
            [by("kind, customer"), "f: {from: made, filter: kind = 'a'}", "s: {from: f, select: [customer, window_start, n]}"],
            "customer",
            "add window_start to key: [customer, window_start]",
        ),
    ],
)
def test_the_group_key_is_followed_through_steps_and_queries(tmp_path: Path, steps: str | list[str], key: str, remedy: str) -> None:
    lines = [steps] if isinstance(steps, str) else steps
    if "made2" in lines[-1]:
        lines = [lines[0], lines[0].replace("made:", "made2:"), lines[-1]]
    problems = told(tmp_path, lines, key, last="r.a" if lines[-1].startswith("r:") else "")
    assert set(codes(problems)) == {"key-incomplete"}, [str(problem) for problem in problems]
    assert problems[0].remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("steps", "key"),
    [
        (sql(HOURS), "hour, customer"),
        (sql("SELECT concat(customer, '@', window.start) AS id, count(*) AS n FROM orders GROUP BY window(ts, '1 hour'), customer"), "id"),
        ([sql(HOURS), "s: {from: made, select: {id: \"concat(customer, '@', hour)\", n: n}}"], "id"),
        # the same in all rows
        ([by("kind, customer"), "f: {from: made, filter: kind = 'a' AND n > 1}"], "customer, window_start"),
        (["f: {from: orders, filter: kind = 'a'}", by("kind, customer").replace("orders", "f")], "customer, window_start"),
        ([by("kind, customer"), "r: {from: made, route: {a: kind = 'a', otherwise: b}}"], "customer, window_start"),
        ([by("kind, customer").replace("made: {", "made: {require: {known: kind = 'a'}, ")], "customer, window_start"),
        (sql("SELECT kind, customer, count(*) AS n FROM orders WHERE kind = 'a' GROUP BY kind, customer", emit="update"), "customer"),
        (sql("SELECT kind, customer, count(*) AS n FROM orders GROUP BY 1, 2 HAVING kind = 'a'", emit="update"), "customer"),
        (sql("SELECT 'all' AS id, count(*) AS n FROM orders", emit="update"), "id"),
        (sql("SELECT customer, count(*) AS n FROM orders GROUP BY kind, customer HAVING kind = 'a'", emit="update"), "customer"),
        (sql("SELECT 'x' AS k, customer, count(*) AS n FROM orders GROUP BY k, customer", emit="update"), "customer"),
        # may be the same in all rows
        ([by("kind, customer"), "f: {from: made, filter: NOT (kind <> 'a')}"], "customer, window_start"),
        ([by("kind, customer"), "f: {from: made, filter: kind LIKE 'a'}"], "customer, window_start"),
        ([by("kind, customer"), "r: {from: made, route: {c: kind <> 'a', a: n > 1, otherwise: b}}"], "customer, window_start"),
        (
            [
                "f: {from: orders, filter: kind = 'a'}",
                "d: {from: f, dedupe: {key: [id], time: ts, within: 1h}}",
                by("kind, customer").replace("orders", "d"),
            ],
            "customer, window_start",
        ),
        (
            sql(
                "SELECT o.id, o.customer, p.name FROM orders o JOIN people p ON o.kind = 'a' GROUP BY o.id, o.customer, p.name, o.kind",
                "orders, people",
                emit="update",
            ),
            "id, customer, name",
        ),
        # what follows from another part, or from an aggregate of the same column
        (sql("SELECT customer, count(*) AS n FROM orders GROUP BY customer, upper(customer)", emit="update"), "customer"),
        (
            sql("SELECT date_trunc('hour', ts) AS hour, count(*) AS n FROM orders GROUP BY hour, date_trunc('day', ts)", emit="update"),
            "hour",
        ),
        ([by("customer").replace("n: count(*)", "last: max(ts)")], "customer, last"),
        (sql("SELECT customer, max(ts) AS last FROM orders GROUP BY customer, window(ts, '1 hour')"), "customer, last"),
        # what cannot be known
        ([by("customer"), 'p: {from: made, python: "steps:same"}'], "customer"),
        ([by("customer"), "d: {from: made, dedupe: {key: [customer], time: window_end, within: 1h}}"], "customer"),
        ([by("customer"), "p: {from: made, parse: {column: op, format: csv, schema: a STRING}}"], "customer"),
        ([by("customer"), "named: {from: [made, people], join: {key: [customer]}}"], "customer, name"),
        (sql("SELECT customer, kind, count(*) AS n FROM orders GROUP BY ROLLUP (customer, kind)", emit="update"), "customer"),
        (sql("SELECT customer, kind, count(*) AS n FROM orders GROUP BY customer, kind WITH CUBE", emit="update"), "customer"),
        (sql(f"SELECT DISTINCT kind FROM ({STRUCT}) t"), "kind"),
        (sql("SELECT customer, kind FROM orders UNION ALL SELECT customer, kind FROM orders"), "customer"),
        (sql("SELECT customer, explode(collect_list(id)) AS id FROM orders GROUP BY customer, kind", emit="update"), "id"),
        ([by("customer"), "named: {from: [made, people], join: {key: [customer]}}"], "name, window_end"),
        # one record each: the newest of a key may stand
        ("f: {from: orders, filter: amount > 1}", "customer"),
        ("named: {from: [orders, people], join: {key: [customer]}}", "id"),
        ("d: {from: orders, dedupe: {key: [id], time: ts, within: 1h}}", "customer"),
    ],
)
def test_a_key_that_may_be_right_is_taken(tmp_path: Path, steps: str | list[str], key: str) -> None:
    for last in ("r.a", "r.b") if "route" in str(steps) else ("",):
        assert [str(problem) for problem in told(tmp_path, steps, key, last=last)] == []


def test_a_group_of_all_rows_has_a_constant_as_its_key(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, sql("SELECT count(*) AS n FROM orders", emit="update"), "n")
    assert problem.code == "key-computed"
    assert problem.remedy.startswith("there is only one row: select a constant for it")


def test_a_key_that_is_made_of_an_aggregate_is_told_and_its_group_offered(tmp_path: Path) -> None:
    steps = [by("customer", window=False, emit="update"), 's: {from: made, select: {id: "concat(customer, n)", customer: customer}}']
    (problem,) = told(tmp_path, steps, "id")
    assert (problem.code, problem.remedy) == ("key-computed", "write key: [customer]")


@pytest.mark.parametrize("sink", ["postgres", "delta"])
def test_a_version_says_which_group_of_a_key_stands(tmp_path: Path, sink: str) -> None:
    assert told(tmp_path, by("customer"), "customer", sink=sink, more=", version: window_start") == []


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("how", ["inner", "left"])
def test_behind_a_join_of_streams_the_key_has_what_they_are_joined_by(tmp_path: Path, sink: str, how: str) -> None:
    joined = JOINED.replace("key: [id]", f"key: [id], how: {how}").replace("from: [orders, paid]", "from: [o, paid]")
    steps = ["o: {from: orders, select: {id: id, op: kind, customer: customer, ts: ts}}", joined.replace("orders: ts", "o: ts")]
    (problem,) = told(tmp_path, steps, "payment, customer", sink=sink)
    assert problem.code == "key-incomplete"
    assert 'step "made" outputs one row for each pair of id: rows that differ only in id' in problem.message
    assert problem.remedy.startswith("add id to key: [payment, customer, id]")
    assert told(tmp_path, steps, "id, payment", sink=sink) == []
    assert told(tmp_path, steps, "id", sink=sink) == []


@pytest.mark.parametrize(
    ("steps", "key", "missing"),
    [
        ([JOINED, "s: {from: made, select: {order: id, payment: payment}}"], "payment", "order"),
        ([JOINED, "s: {from: made, select: {order: id, payment: payment}}"], "order", ""),
        (JOINED.replace("key: [id]", "key: [id], how: semi"), "customer", ""),
        ([JOINED, 'p: {from: made, python: "steps:same"}'], "payment", ""),
        (sql(PAIRS, "orders, paid"), "payment", ""),
    ],
)
def test_pairs_are_followed_too(tmp_path: Path, steps: str | list[str], key: str, missing: str) -> None:
    problems = [problem for problem in told(tmp_path, steps, key) if problem.code.startswith("key-")]
    assert codes(problems) == ["key-incomplete"] * bool(missing)
    assert not missing or problems[0].remedy.startswith(f"add {missing} to key")


def test_a_group_that_is_joined_needs_what_it_is_joined_by(tmp_path: Path) -> None:
    steps = [
        by("customer"),
        "o: {from: orders, select: {customer: customer, order: id, ts: ts}}",
        "j: {from: [made, o], join: {key: [customer], time: {made: window_end, o: ts}, within: 1h}}",
    ]
    (problem,) = told(tmp_path, steps, "order")
    assert (problem.code, 'step "j" outputs one row for each pair of customer' in problem.message) == ("key-incomplete", True)
    assert problem.remedy.startswith("add customer to key: [order, customer]")
    assert told(tmp_path, steps, "customer, order") == []
    assert told(tmp_path, steps, "customer") == []  # which window it was is not followed


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_sink_that_replaces_nothing_by_key_is_asked_nothing(tmp_path: Path, mode: str) -> None:
    sink = f"type: delta, path: kept, mode: {mode}, partition_by: [customer]"
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW.format(schema=ORDERS, steps=by("customer"), last="made", sink=sink, key="", more="").replace(", key: []", ""))
    assert [problem for problem in validate_file(path, {})[1] if problem.severity == "error"] == []
