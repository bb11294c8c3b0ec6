from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from spec_steps import Sorter, has_tag, sort_out

from scribengin import App, Flow, sink, source
from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.errors import InputError
from scribengin.core.types import parse_schema
from scribengin.spec.dump import dump_flow
from scribengin.spec.model import Python, Utilities
from scribengin.spec.parse import parse_flow

TYPES = {"source_types": source_types(), "sink_types": sink_types()}
COLUMNS = "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"

YAML_FORM = f"""\
version: 1
name: tweets
about: "All forms"
defaults: {{on_error: drop, trigger: 1s}}
sources:
  tweets: {{type: files, path: data, format: json, schema: "{COLUMNS}", watermark: ts 10m, max_bytes: 40MiB}}
  users: {{type: files, path: ref, format: csv, header: false, schema: "id BIGINT, at TIMESTAMP", static: true, on_error: fail}}
steps:
  known: {{from: tweets, filter: followers > 5000, require: {{dated: ts IS NOT NULL}}}}
  tagged: {{from: known, python: "spec_steps:has_tag"}}
  sorted: {{from: tagged, python: {{function: "spec_steps:sort_out", branches: [late], time_limit: 5s}}, schema: "id BIGINT, ts TIMESTAMP"}}
  both: {{from: [sorted, users], join: {{key: [id], how: left, time: {{sorted: ts, users: at}}, within: 10m}}}}
  once: {{from: both, dedupe: {{key: [id], time: ts, within: 10m}}, on_error: fail}}
  parts: {{from: once, route: {{big: id > 100, otherwise: small}}}}
  again: {{from: [parts.big, sorted.late], merge: {{how: union}}}}
  common: {{from: [parts.small, again], merge: {{how: intersect, key: [id]}}}}
  names: {{from: common, select: [id, upper(user) AS who], watermark: ts 5m}}
  read: {{from: names, parse: {{column: who, format: json, schema: "x BIGINT"}}}}
  counted: {{from: read, aggregate: {{by: [user], window: {{time: ts, size: 1h, slide: 10m}}, columns: {{n: count(*)}}}}, emit: update}}
  asked: {{from: [counted, users], sql: "SELECT * FROM counted", emit: complete}}
  classy: {{from: asked, python: "spec_steps:Sorter"}}
sinks:
  kept: {{from: classy, type: files, path: out/kept, format: parquet, partition_by: [user], together: both_sinks, delivery: at_least_once}}
  seen: {{from: [tagged, again], type: console, rows: 5, trigger: 2m}}
"""


def python_form() -> Any:
    tweets = source(
        "files", id="tweets", path=Path("data"), format="json", schema=parse_schema(COLUMNS), watermark="ts 10m", max_bytes="40MiB"
    )
    users = source(
        "files", id="users", path="ref", format="csv", header=False, schema="id BIGINT, at TIMESTAMP", static=True, on_error="fail"
    )
    tagged = tweets.filter("followers > 5000", id="known", require={"dated": "ts IS NOT NULL"}).map(has_tag, id="tagged")
    sorted_ = tagged.python(sort_out, id="sorted", branches="late", time_limit=timedelta(seconds=5), schema="id BIGINT, ts TIMESTAMP")
    once = sorted_.join(users, id="both", key="id", how="left", time=("ts", "at"), within="10m").dedupe(
        "id", id="once", time="ts", within=timedelta(minutes=10), on_error="fail"
    )
    parts = once.route({"big": "id > 100"}, otherwise="small", id="parts")
    again = parts["big"].merge(sorted_["late"], id="again")
    counted = (
        parts["small"]
        .merge(again, how="intersect", key="id", id="common")
        .select("id", "upper(user) AS who", id="names", watermark="ts 5m")
        .parse("who", schema="x BIGINT", id="read")
        .group_by("user")
        .window("ts", size="1h", slide="10m")
        .agg(n="count(*)", id="counted", emit="update")
    )
    asked = counted.sql("SELECT * FROM counted", users, id="asked", emit="complete").python("spec_steps:Sorter", id="classy")
    return Flow(
        "tweets",
        asked.to(
            "files", id="kept", path="out/kept", format="parquet", partition_by=["user"], together="both_sinks", delivery="at_least_once"
        ),
        tagged.to("console", again, id="seen", rows=5, trigger="2m"),
        about="All forms",
        defaults={"on_error": "drop", "trigger": "1s"},
    )


def test_the_python_form_makes_the_same_model_as_the_yaml_form(parse: Any) -> None:
    parsed = parse(YAML_FORM)
    assert parsed.problems == ()
    assert python_form() == parsed.flow


def test_the_python_form_dumps_to_a_file_that_reads_back_as_the_same() -> None:
    flow = python_form()
    assert parse_flow(dump_flow(flow, **TYPES), "f.yaml", folder=Path(), environment={}, **TYPES).flow == flow


def test_functions_given_as_objects_are_named_and_kept() -> None:
    action = python_form().steps["tagged"].action
    assert action == Python("spec_steps:has_tag")
    assert action.function is has_tag
    flow = Flow("a", source("sequence").python(Sorter, id="s").to("console"))
    assert flow.steps["s"].action.reference == "spec_steps:Sorter"


def test_the_folder_is_that_of_the_file_that_makes_the_flow() -> None:
    assert python_form().folder == Path(__file__).parent


def test_ids_that_are_not_given_are_derived_and_the_same_each_time() -> None:
    def make() -> Any:
        rows = source("sequence", id="n")
        return Flow("a", rows.filter("id > 1").filter("id > 2").map(has_tag).to("console"), rows.select("id").to("console"))

    assert [*make().steps, *make().sinks] == ["n_filter", "n_filter_2", "n_has_tag", "n_select", "n_has_tag_console", "n_select_console"]
    assert make() == make()


def test_every_problem_is_told_at_once_at_the_line_of_its_call() -> None:
    rows = source("sequence", rows="many")
    line = sys._getframe().f_lineno
    odd = rows.filter("", id="odd")
    bad = odd.dedupe("id", within="5", time="ts", id="bad")
    with pytest.raises(InputError) as raised:
        Flow("My Flow", bad.to("console", colour="red"))
    found = [(problem.code, problem.place.file == __file__, problem.place.line - line) for problem in raised.value.problems]
    assert found == [
        ("bad-name", True, 4),
        ("bad-value", True, -1),
        ("wrong-kind", True, 1),
        ("bad-unit", True, 2),
        ("unknown-option", True, 4),
    ]


def test_a_place_names_the_column_of_the_call() -> None:
    rows = source("sequence", id="n")
    flow = Flow("a", rows.to("console", id="c"))
    line = Path(__file__).read_text().splitlines()[flow.calls["n"].line - 1]
    assert line[flow.calls["n"].column - 1 :].startswith("source(")


def test_a_sink_that_is_not_handed_over_is_told() -> None:
    rows = source("sequence")
    first = rows.to("console", id="first")
    rows.to("console", id="second")
    with pytest.raises(InputError, match=r'sink "second" is not part of the flow; pass it to Flow'):
        Flow("a", first)


def test_two_nodes_of_one_name_are_told() -> None:
    left, right = source("sequence"), source("sequence")
    with pytest.raises(InputError, match=r'two nodes have the id "sequence".*give one of them another id='):
        Flow("a", left.merge(right).to("console"))


@pytest.mark.parametrize("function", [lambda row: row, (lambda: lambda row: row)(), Sorter()])
def test_a_function_that_nobody_could_find_again_is_refused(function: Any) -> None:
    with pytest.raises(InputError, match="cannot be imported by name; define a function"):
        source("sequence").map(function)


def test_a_value_that_no_flow_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="a flow cannot hold"):
        Flow("a", source("sequence", rows=object()).to("console"))


def test_importing_scribengin_brings_nothing_heavy() -> None:
    program = "import sys, scribengin; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"yaml", "pyarrow", "pyspark", "duckdb", "sqlglot", "msgspec", "rich", "click", "ruamel"} & set(loaded)


def test_reading_a_flow_brings_nothing_heavy() -> None:
    program = "import sys, scribengin.spec.load; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyarrow", "pyspark", "duckdb", "sqlglot", "msgspec", "rich", "click", "ruamel"} & set(loaded)


def app(**more: Any) -> Any:
    rows = source("files", id="tweets", path="data", format="json", schema=COLUMNS)
    return App("tweets", **{"source": rows, "utilities": [has_tag, Sorter], "sink": sink("files", path="out", format="json"), **more})


def test_an_app_is_a_flow_of_one_step_and_reads_back_as_the_same() -> None:
    made = app(on_error="drop", labels={"team": "shop"})
    text = dump_flow(made, **TYPES)
    parsed = parse_flow(text, "f.yaml", folder=Path(), environment={}, **TYPES)
    assert (parsed.flow, parsed.problems) == (made, ())
    assert made.steps["utilities"].action == Utilities(("spec_steps:has_tag", "spec_steps:Sorter"))
    assert made.steps["utilities"].action.functions == (has_tag, Sorter)
    assert made.sinks["kept"].inputs == ("utilities",)
    several = app(utilities=["spec_steps:has_tag"], order="free", sink=[sink("console"), sink("console", id="seen")])
    assert several.steps["utilities"].action == Utilities(("spec_steps:has_tag",), "free")
    assert list(several.sinks) == ["kept", "seen"]
    assert list(app(sink=[sink("console"), sink("console")]).sinks) == ["kept", "kept_2"]
    assert app(utilities=[]).sinks["kept"].inputs == ("tweets",)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"source": "data"}, "app-part"),
        ({"sink": sink}, "app-part"),
        ({"sink": {"path": "out"}}, "app-part"),
        ({"utilities": [], "schema": "id BIGINT"}, "app-part"),
        ({"utilities": has_tag}, "app-part"),
        ({"utilities": [lambda row: row]}, "function-nameless"),
        ({"order": "quick"}, "bad-choice"),
    ],
)
def test_mistakes_in_an_app_are_told_at_its_call(more: dict[str, Any], code: str) -> None:
    with pytest.raises(InputError) as raised:
        app(**more)
    (problem,) = raised.value.problems
    assert (problem.code, Path(problem.place.file).name) == (code, "test_build.py")
