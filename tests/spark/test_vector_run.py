"""A flow gives the same rows, counts, dead letters and ways whether the tail's vector engine runs its SQL steps or Spark does."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scribengin.local.prepare import prepare
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

HEAD = """
version: 1
name: both
defaults: {{engine: {engine}, trace: 1.0}}
sources:
  rows: {{type: files, path: data, format: {format}, schema: "id BIGINT NOT NULL, user STRING, n BIGINT, x DOUBLE, ts TIMESTAMP"}}
"""
STEPS = """
def double(row: dict) -> list:
    return [row, {**row, "id": -row["id"]}]

def marked(row: dict) -> bool:
    if row["id"] == 9:
        row["user"] = 5
    elif row["id"] == 10:
        row["new"] = 1
    return True

def even(row: dict) -> bool:
    return row["id"] % 2 == 0

def renamed(row: dict) -> dict:
    if row["id"] == 4:
        raise ValueError("four")
    return {**row, "user": 5 if row["id"] == 6 else f"{row['user']}!"}
"""
FILTERS = """
steps:
  some: {from: rows, filter: n > 3 AND (user IS NOT NULL OR x > 0), require: {named: user <> 'bad', dated: ts IS NOT NULL}}
  more: {from: some, filter: "length(user) < 9"}
sinks:
  kept: {from: more, type: files, path: out, format: json}
"""
SELECTED = """
steps:
  few: {from: rows, filter: n BETWEEN 2 AND 40}
  made:
    from: few
    select: {id: id, who: "trim(user)", half: "n / 2", sum: "n + id", day: "CAST(ts AS DATE)", ts: ts}
    require: {who: who <> 'bad'}
sinks:
  kept: {from: made, type: files, path: out, format: parquet}
"""
MIXED = """
steps:
  begun: {from: rows, filter: id < 150, require: {short: n IS NOT NULL}}
  known: {from: begun, python: "steps:marked"}
  over: {from: known, filter: "id >= 0"}
  twice: {from: over, python: "steps:double"}
  named: {from: twice, python: "steps:renamed"}
  some: {from: named, filter: "user LIKE '%!' AND n <> 7", require: {dated: ts IS NOT NULL}}
  made: {from: some, select: {id: id, who: user, n: n}}
  left: {from: made, python: "steps:even"}
sinks:
  kept: {from: left, type: files, path: out, format: json}
  all: {from: made, type: files, path: out2, format: json, together: both}
""".replace("out, format: json}", "out, format: json, together: both}", 1)
RAISES = """
steps:
  sum: {from: rows, select: {id: id, sum: "n + 9223372036854775800", user: user}}
  some: {from: sum, filter: "user <> 'bad'", require: {big: sum > 0}}
sinks:
  kept: {from: some, type: files, path: out, format: json}
"""
FLOWS = {"filters": FILTERS, "selected": SELECTED, "mixed": MIXED}


def rows() -> list[dict[str, Any] | str]:
    made: list[dict[str, Any] | str] = [
        {
            "id": i,
            "user": ["ann", "bob ", "bad", None, "a very long name"][i % 5],
            "n": i % 12,
            "x": i / 3,
            "ts": f"2026-01-{i % 27 + 1:02}T00:00:00Z",
        }
        for i in range(200)
    ]
    made[11]["ts"] = None  # type: ignore[index]
    made[30:30] = ["no json", '{"id": "5"}', "", '{"id": 7, "n": 1.5}', '{"user": "without id"}']
    return made


def csv_rows() -> list[str]:
    lines = ["id,user,n,x,ts"]
    lines += [
        f"{i},{['ann', 'bob ', 'bad', '', 'a very long name'][i % 5]},{i % 12},{i / 4},2026-01-{i % 27 + 1:02}T00:00:00Z"
        for i in range(200)
    ]
    lines[20:20] = ["x,ann,1,1,2026-01-01T00:00:00Z", "1,2"]
    return lines


def outcome(folder: FlowFolder, format_: str, flow: str, engine: str) -> dict[str, Any]:
    for name in (".scribengin", "out", "out2"):
        shutil.rmtree(folder.path / name, ignore_errors=True)
    folder.flow(HEAD.format(engine=engine, format=format_) + flow).steps(STEPS)
    (query,) = prepare(folder.path / "flow.yaml", state=None).tiers[0].plan.queries
    assert bool(query.in_tail) == (engine == "auto"), query.by_spark
    result = ran(folder)
    query = result.queries[0]
    trails = sorted((folder.path / ".scribengin/both/main").glob(f"{query.name}/trails/*"))
    return {
        "rows": [sorted(map(repr, folder.read(name))) for name in ("out", "out2")],
        "counts": {node: counts.as_json() for node, counts in query.nodes.items()},
        # `alone` is of the stage in which a record died, and the stages differ
        "letters": sorted(
            (msgspec.to_builtins(replace(letter, trail=(), alone=False)) for letter in letters(folder, "both", query.name)), key=repr
        ),
        "trails": len(trails),
    }


@pytest.mark.parametrize("name", FLOWS)
def test_json_comes_to_the_same(folder: FlowFolder, name: str) -> None:
    folder.data("data/a.jsonl", rows()).data("data/b.jsonl", rows()[:50])
    assert outcome(folder, "json", FLOWS[name], "auto") == outcome(folder, "json", FLOWS[name], "spark")
    assert folder.results[0].queries[0].rows.dead > 3


@pytest.mark.parametrize("name", ["filters", "selected"])
def test_csv_comes_to_the_same(folder: FlowFolder, name: str) -> None:
    folder.data("data/a.csv", csv_rows())
    assert outcome(folder, "csv", FLOWS[name], "auto") == outcome(folder, "csv", FLOWS[name], "spark")


def test_the_batch_in_which_a_row_raises_is_sparks(folder: FlowFolder) -> None:
    folder.data("data/a.jsonl", [{"id": 1, "user": "a", "n": 1}, {"id": 2, "user": "b", "n": 5000}])
    found = outcome(folder, "json", RAISES, "auto")
    assert found == outcome(folder, "json", RAISES, "spark")
    assert [(letter["step"], letter["reason"], letter["line"]) for letter in found["letters"]] == [("sum", "sql-error", 2)]
    assert "ARITHMETIC_OVERFLOW" in found["letters"][0]["message"]
    assert found["counts"]["sum+some"] | {"in": 2, "out": 1, "dead": 1} == found["counts"]["sum+some"]
