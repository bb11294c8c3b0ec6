from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flat_places import PathPlaces
from flows import MODULE, flow, schema, sink, source, step, tweets

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.options import NodeType
from scribengin.plan.check import check_flow
from scribengin.spec.model import (
    Aggregate,
    Dedupe,
    Defaults,
    Filter,
    Flow,
    Join,
    Merge,
    Parse,
    Python,
    Resources,
    Route,
    Select,
    Sink,
    Source,
    Sql,
    Step,
    Tier,
    Watermark,
    WindowSpec,
)

HOUR = WindowSpec("ts", 3600.0, 3600.0)

if TYPE_CHECKING:
    from scribengin.core.problems import Problem


def check(of: Flow) -> list[Problem]:
    return check_flow(of, PathPlaces(), source_types=source_types(), sink_types=sink_types())


def checked(*nodes: Source | Step | Sink, folder: Path = Path(), **rest: object) -> list[Problem]:
    return check(flow(*nodes, folder=folder, **rest))


def codes(problems: list[Problem]) -> list[str]:
    return sorted(problem.code for problem in problems)


def one(problems: list[Problem]) -> Problem:
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def through(*steps: Step, **rest: object) -> list[Problem]:
    """The problems of steps between the tweets and a sink that reads the last one."""
    return checked(source(), *steps, sink("kept", steps[-1].id), **rest)


def test_the_tweets_flow_has_no_problem(tmp_path: Path) -> None:
    assert check(tweets(tmp_path)) == []


def test_a_cycle_is_shown_as_a_way_that_returns() -> None:
    problems = checked(
        source(),
        step("a", "c", Filter("id > 1")),
        step("b", "a", Filter("id > 1")),
        step("c", "b", Filter("id > 1")),
        step("d", "tweets", Filter("id > 1")),
        sink("kept", "c"),
        sink("other", "d"),
    )
    assert "a -> b -> c -> a" in one(problems).message


def test_a_step_that_reads_itself_is_a_cycle() -> None:
    problems = checked(source(), step("a", "a", Filter("id > 1")), sink("kept", "a"), sink("raw", "tweets"))
    assert "a -> a" in one(problems).message


def test_an_unknown_input_names_its_neighbour() -> None:
    problem = one(through(step("a", "tweetz", Filter("id > 1"))))
    assert problem.code == "input-unknown"
    assert str(problem) == 'flow.yaml:1:1: step "a" reads "tweetz", which is not defined; did you mean "tweets"? [input-unknown]'


def test_a_sink_is_no_input() -> None:
    problems = checked(source(), sink("kept", "tweets"), step("a", "kept", Filter("id > 1")), sink("more", "a"))
    assert codes(problems) == ["input-is-sink"]


ROUTE = Route((("big", "id > 100"), ("small", "id <= 100")), "odd")


def test_a_route_is_read_by_its_branches() -> None:
    everything = [sink(name, f"r.{name}") for name in ("big", "small", "odd")]
    assert checked(source(), step("r", "tweets", ROUTE), *everything) == []
    missing = one(checked(source(), step("r", "tweets", ROUTE), *everything, sink("all", "r")))
    assert missing.code == "branch-missing"
    assert "r.big, r.small, r.odd" in missing.remedy
    unknown = one(checked(source(), step("r", "tweets", ROUTE), *everything, sink("all", "r.bigg")))
    assert (unknown.code, unknown.remedy) == ("branch-unknown", 'did you mean "big"?')


def test_a_branch_that_nobody_reads_is_a_warning() -> None:
    problem = one(checked(source(), step("r", "tweets", ROUTE), sink("big", "r.big"), sink("small", "r.small")))
    assert (problem.code, problem.severity) == ("branch-unread", "warning")


def test_a_branch_of_what_has_none_is_unknown() -> None:
    problems = checked(source(), step("a", "tweets", Filter("id > 1")), sink("kept", "a.big"))
    assert codes(problems) == ["branch-unknown"]


def test_a_step_that_nobody_reads_is_an_error_and_a_source_a_warning() -> None:
    problems = checked(source(), source("spare"), step("a", "tweets", Filter("id > 1")), sink("kept", "tweets"))
    assert {(p.code, p.severity) for p in problems} == {("step-unread", "error"), ("source-unread", "warning")}


def test_a_flow_without_a_sink_runs_nothing() -> None:
    assert codes(checked(source(), step("a", "tweets", Filter("id > 1")))) == ["missing-key"]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (step("a", "tweets", Join(("id",))), "inputs-count"),
        (step("a", "tweets users", Filter("id > 1")), "inputs-count"),
        (step("a", "tweets", Merge()), "inputs-count"),
        (step("a", "tweets tweets", Merge()), "twice"),
    ],
)
def test_each_kind_of_step_has_its_number_of_inputs(made: Step, code: str) -> None:
    problems = checked(source(), source("users"), made, sink("kept", "a"), sink("raw", "tweets"), sink("raw2", "users"))
    assert code in codes(problems)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("out", "out", "folder-two-writers"),
        ("out/", "./out", "folder-two-writers"),
        ("out", "out/inner", "folder-two-writers"),
        ("out/inner", "out", "folder-two-writers"),
    ],
)
def test_two_sinks_never_write_one_folder(first: str, second: str, code: str) -> None:
    two = [sink("a", "tweets", options={"path": first, "format": "json"}), sink("b", "tweets", options={"path": second, "format": "json"})]
    assert codes(checked(source(), *two)) == [code]


def test_folders_with_a_common_beginning_of_their_names_are_two() -> None:
    two = [sink("a", "tweets", options={"path": "out", "format": "json"}), sink("b", "tweets", options={"path": "out2", "format": "json"})]
    assert checked(source(), *two) == []


@pytest.mark.parametrize("path", ["data", "data/out", "."])
def test_a_sink_never_writes_where_a_source_reads(path: str) -> None:
    read = source(options={"path": "data", "format": "json"})
    assert codes(checked(read, sink("kept", "tweets", options={"path": path, "format": "json"}))) == ["folder-read-and-written"]


def test_a_sink_may_write_below_a_glob_that_does_not_reach_it() -> None:
    read = source(options={"path": "data/*.jsonl", "format": "json"})
    assert checked(read, sink("kept", "tweets", options={"path": "data/out", "format": "json"})) == []
    deep = source(options={"path": "data/**/*.jsonl", "format": "json"})
    assert codes(checked(deep, sink("kept", "tweets", options={"path": "data/out", "format": "json"}))) == ["folder-read-and-written"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"when_done": "archive"}, "done-without-archive"),
        ({"archive": "done"}, "done-without-archive"),
        ({"when_done": "delete", "growing": True}, "done-read-again"),
        ({"when_done": "archive", "archive": "data"}, "done-archive-read"),
        ({"when_done": "archive", "archive": "data/done", "path": "data/**/*.jsonl"}, "done-archive-read"),
        ({"when_done": "archive", "archive": "data/done", "path": "data/*/*.jsonl"}, "done-archive-read"),
        ({"when_done": "archive", "archive": "data/done", "path": "data/*.jsonl"}, ""),
        ({"when_done": "archive", "archive": "done"}, ""),
        ({"when_done": "delete"}, ""),
    ],
)
def test_files_that_are_done_go_where_nobody_reads(options: dict[str, object], code: str) -> None:
    read = source(options={"path": "data", "format": "json", **options})
    assert codes(checked(read, sink("kept", "tweets"))) == ([code] if code else [])


def test_state_needs_a_watermark() -> None:
    bare = source(watermark=None)
    stateful = [
        step("a", "tweets", Aggregate(("user",), (("n", "count(*)"),), HOUR)),
        step("a", "tweets", Dedupe(("id",), "ts", 600.0)),
        step("a", "tweets", Sql("SELECT DISTINCT user FROM tweets")),
        step("a", "tweets", Sql("SELECT window(ts, '1 hour').start AS h, count(*) AS n FROM tweets GROUP BY window(ts, '1 hour')")),
    ]
    for made in stateful:
        problem = one(checked(bare, made, sink("kept", "a")))
        assert problem.code == "watermark-missing"
        assert "watermark: ts 10m" in problem.remedy
        assert "watermark-missing" not in codes(checked(source(), made, sink("kept", "a")))


def test_both_streams_of_a_join_need_a_watermark() -> None:
    left, right = source("a", columns="id BIGINT, ts TIMESTAMP"), source("b", columns="id BIGINT, at TIMESTAMP", watermark=None)
    join = step("j", "a b", Join(("id",), time=(("a", "ts"), ("b", "at")), within_s=600.0))
    assert codes(checked(left, right, join, sink("kept", "j"))) == ["watermark-missing"]
    lookup = one(checked(left, right, step("j", "a b", Join(("id",))), sink("kept", "j")))
    assert lookup.remedy.startswith("if b is a lookup table, add static: true to it; otherwise add to b: watermark: at 10m")
    bounded = replace(right, watermark=Watermark("at", 60.0))
    assert checked(left, bounded, join, sink("kept", "j")) == []
    endless = replace(join, action=Join(("id",)))
    assert codes(checked(left, bounded, endless, sink("kept", "j"))) == ["join-unbounded"]


def test_a_static_side_needs_no_watermark() -> None:
    right = source("users", columns="user STRING, country STRING", watermark=None, static=True)
    join = step("j", "tweets users", Join(("user",), "left"))
    assert checked(source(), right, join, sink("kept", "j")) == []
    sql = step("j", "tweets users", Sql("SELECT t.id, u.country FROM tweets t JOIN users u ON t.user = u.user"))
    assert checked(source(), right, sql, sink("kept", "j")) == []


def test_a_static_side_stands_on_the_right() -> None:
    users = source("users", columns="user STRING, country STRING", watermark=None, static=True)
    assert codes(checked(source(), users, step("j", "users tweets", Join(("user",))), sink("kept", "j"))) == ["static-left"]
    assert codes(checked(source(), users, step("j", "tweets users", Join(("user",), "full")), sink("kept", "j"))) == ["static-how"]
    assert "static-alone" in codes(checked(users, step("j", "users", Filter("user = 'a'")), sink("kept", "j")))
    same = source("more", watermark=None, static=True)
    assert "static-merged" in codes(checked(source(), same, step("m", "tweets more", Merge()), sink("kept", "m")))
    numbers = source("n", type_="sequence", columns=None, watermark=None, static=True)
    assert "static-unsupported" in codes(checked(source(), numbers, step("j", "tweets n", Join(("id",))), sink("kept", "j")))


def test_a_watermark_is_on_a_timestamp_of_its_node() -> None:
    assert codes(checked(source(watermark="tss"), sink("kept", "tweets"))) == ["time-column-unknown"]
    assert codes(checked(source(watermark="id"), sink("kept", "tweets"))) == ["time-column-type"]
    assert codes(through(step("a", "tweets", Dedupe(("id",), "when_", 5.0)))) == ["time-column-unknown"]


def test_a_window_is_over_the_column_of_the_watermark() -> None:
    two_times = source(columns="id BIGINT, ts TIMESTAMP, at TIMESTAMP")
    made = step("a", "tweets", Aggregate((), (("n", "count(*)"),), WindowSpec("at", 60.0, 60.0)))
    assert codes(checked(two_times, made, sink("kept", "a"))) == ["watermark-other-column"]


def test_an_aggregation_that_would_never_emit_is_refused() -> None:
    assert codes(through(step("a", "tweets", Aggregate(("user",), (("n", "count(*)"),))))) == ["window-missing"]
    assert codes(through(step("a", "tweets", Sql("SELECT user, count(*) AS n FROM tweets GROUP BY user")))) == ["window-missing"]
    assert codes(through(step("a", "tweets", Sql("SELECT ts, count(*) AS n FROM tweets GROUP BY 1")))) == []


def test_a_watermark_column_that_is_lost_on_the_way_is_told() -> None:
    kept = step("k", "tweets", Select((("user", "user"), ("at", "date_trunc('hour', ts)"))))
    made = step("a", "k", Dedupe(("user",)))
    problem = one(checked(source(), kept, made, sink("kept", "a")))
    assert problem.code == "watermark-missing"
    assert 'keep column "ts" of tweets' in problem.remedy


def test_a_renamed_watermark_column_still_counts() -> None:
    kept = step("k", "tweets", Select((("user", "user"), ("at", "ts"))))
    assert checked(source(), kept, step("a", "k", Dedupe(("user",), "at", 60.0)), sink("kept", "a")) == []


def test_a_union_before_state_has_the_watermark_of_every_input_or_its_own() -> None:
    bare = source("others", watermark=None)
    state = [step("known", "all", Filter("id > 1")), step("once", "known", Dedupe(("id",))), sink("kept", "once")]
    problem = one(checked(source(), bare, step("all", "tweets others", Merge()), *state))
    assert problem.code == "watermark-partly"
    assert '"once" after it keeps state' in problem.message
    assert checked(source(), bare, step("all", "tweets others", Merge(), watermark=Watermark("ts", 60.0)), *state) == []
    assert checked(source(), bare, step("all", "tweets others", Merge()), sink("kept", "all")) == []


def test_the_rows_of_a_query_with_state_come_to_its_sinks_out_of_one_step() -> None:
    once = step("once", "tweets", Dedupe(("id",)))
    few, many = step("few", "once", Filter("id < 1")), step("many", "once", Filter("id > 1"))
    problem = one(checked(source(), once, few, many, sink("a", "few", together="all"), sink("b", "many", together="all")))
    assert (problem.code, problem.remedy) == ("state-several-ways", "take `together` out")
    assert 'different inputs: "few" and "many"' in problem.message
    assert codes(checked(source(), once, sink("a", "tweets once"))) == ["state-several-ways"]
    assert checked(source(), once, sink("a", "once", together="all"), sink("b", "once", together="all")) == []
    assert checked(source(), once, few, many, step("both", "few many", Merge()), sink("a", "both")) == []


def test_of_state_behind_what_is_not_there_only_that_is_told() -> None:
    behind = [step("once", "tweets", Dedupe(("id",))), step("both", "absent once", Merge()), sink("kept", "both")]
    assert codes(checked(source(), *behind)) == ["input-unknown"]


def test_emit_is_checked_against_every_sink_below() -> None:
    counted = step("a", "tweets", Aggregate(("user",), (("n", "count(*)"),)), emit="update")
    assert codes(through(counted)) == ["emit-unsupported"]
    assert checked(source(), counted, sink("shown", "a", type_="console")) == []
    assert codes(through(step("a", "tweets", Filter("id > 1"), emit="update"))) == ["emit-useless"]
    twice = [counted, step("d", "a", Sql("SELECT DISTINCT n FROM a"))]
    assert "emit-mixed" in codes(checked(source(), *twice, sink("shown", "d", type_="console")))


def test_limit_order_and_ranks_on_a_stream_are_refused_where_they_stand() -> None:
    text = "SELECT id FROM tweets ORDER BY id LIMIT 3"
    problems = through(step("a", "tweets", Sql(text)))
    assert [(p.code, p.place.column) for p in problems] == [
        ("sql-per-batch", text.index("ORDER") + 1),
        ("sql-per-batch", text.index("LIMIT") + 1),
    ]
    ranked = "SELECT id, row_number() OVER (PARTITION BY user ORDER BY ts) AS n FROM tweets"
    assert codes(through(step("a", "tweets", Sql(ranked)))) == ["sql-per-batch"]


def test_a_limit_on_a_static_table_means_what_it_says() -> None:
    users = source("users", columns="user STRING, country STRING", watermark=None, static=True)
    text = "SELECT t.id FROM tweets t JOIN (SELECT user FROM users ORDER BY country LIMIT 10) u ON t.user = u.user"
    assert checked(source(), users, step("a", "tweets users", Sql(text)), sink("kept", "a")) == []


def test_exactly_once_needs_a_sink_and_a_source_that_can() -> None:
    types = {"queue": NodeType("queue", "source", "", ())}
    sinks = {"plain": NodeType("plain", "sink", "", (), frozenset({"append"}))}
    made = flow(source(), source("q", type_="queue", watermark=None), sink("a", "tweets", type_="plain"), sink("b", "q"))
    problems = check_flow(made, PathPlaces(), source_types=source_types() | types, sink_types=sink_types() | sinks)
    assert codes(problems) == ["delivery-unsupported", "delivery-unsupported"]
    lax = replace(made, defaults=Defaults(delivery="at_least_once"))
    assert check_flow(lax, PathPlaces(), source_types=source_types() | types, sink_types=sink_types() | sinks) == []


def test_sinks_that_go_together_share_a_trigger_and_a_name_of_their_own() -> None:
    a, b = sink("a", "tweets", together="both", trigger_s=1.0), sink("b", "tweets", together="both", trigger_s=2.0)
    assert codes(checked(source(), a, b)) == ["together-trigger"]
    assert codes(checked(source(), replace(a, together="b"), replace(b, together=None))) == ["together-name"]
    assert checked(source(), replace(a, together="b", trigger_s=None), replace(b, together="b", trigger_s=None)) == []


def test_options_belong_to_their_format() -> None:
    assert codes(checked(source(options={"path": "d", "format": "json", "header": True}), sink("kept", "tweets"))) == [
        "option-not-of-format"
    ]
    squeezed = sink("kept", "tweets", options={"path": "o", "format": "json", "compression": "snappy"})
    assert codes(checked(source(), squeezed)) == ["option-not-of-format"]


def test_json_and_csv_need_a_schema_text_and_sequences_have_one() -> None:
    assert "schema-missing" in codes(checked(source(columns=None, watermark=None), sink("kept", "tweets")))
    text = source(columns=None, watermark=None, options={"path": "d", "format": "text"})
    assert checked(text, step("a", "tweets", Filter("value LIKE 'a%'")), sink("kept", "a", format_="text")) == []
    assert codes(checked(replace(text, schema=schema("id BIGINT")), sink("kept", "tweets"))) == ["schema-surplus"]
    numbers = source("n", type_="sequence", columns="id BIGINT")
    assert "schema-surplus" in codes(checked(numbers, sink("kept", "n")))
    parquet = source(columns=None, options={"path": "d", "format": "parquet"})
    assert checked(parquet, step("a", "tweets", Filter("anything > 1")), sink("kept", "a")) == []


def test_a_sink_gets_columns_that_its_format_can_hold() -> None:
    def to(columns: str, **options: object) -> list[str]:
        return codes(checked(source(columns=columns, watermark=None), sink("kept", "tweets", options={"path": "o", **options})))

    assert to("id BIGINT, d DATE", format="json", partition_by=("dt",)) == ["partition-unknown"]
    assert to("id BIGINT, d DATE", format="json", partition_by=("id", "d")) == ["partition-all"]
    assert to("id BIGINT", format="text") == ["format-columns"]
    assert to("t STRING, d DATE", format="text", partition_by=("d",)) == []
    assert to("id BIGINT, tags ARRAY<STRING>", format="csv") == ["format-columns"]


def test_a_message_takes_its_parts_from_columns_that_are_there() -> None:
    def to(has: str, **options: object) -> list[str]:
        given = {"bootstrap": "b:1", "topic": "t", "format": "json", **options}
        return codes(checked(source(columns=has, watermark=None), sink("kept", "tweets", type_="kafka", options=given)))

    three = "id BIGINT, t STRING, u STRING"
    assert to(three, key="id", timestamp="u", headers={"h": "t"}, columns=("id", "t")) == []
    wrong_ones: tuple[dict[str, object], ...] = (
        {"key": "ID"},
        {"timestamp": "ts"},
        {"headers": {"h": "x"}},
        {"columns": ("id", "x")},
        {"topic": "t-{x}"},
    )
    for wrong in wrong_ones:
        assert to(three, **wrong) == ["column-unknown"]
    assert to(three, format="text") == ["format-columns"]
    assert to(three, format="text", columns=("t",)) == to(three, format="text", key="id", topic="a-{u}") == []
    assert to("t STRING", format="text", key="t") == []
    assert to("t STRING, tags ARRAY<STRING>", format="csv", columns=("t",)) == []
    assert to(three, compression="snappy") == []
    beside = {"bootstrap": "b:1", "topics": ("t",), "format": "text", "metadata": {"k": "key"}}
    assert checked(source(columns="value STRING, k STRING", watermark=None, type_="kafka", options=beside), sink("kept", "tweets")) == []


def test_unknown_columns_are_told_with_their_place_inside_the_text() -> None:
    problem = one(through(step("a", "tweets", Filter("id > 1 AND retweet > 500"))))
    assert (problem.code, problem.place.column) == ("column-unknown", 12)
    assert problem.remedy == 'did you mean "retweets"?'
    problem = one(through(step("a", "tweets", Sql("SELECT t.idd FROM tweets t"))))
    assert (problem.code, problem.place.column) == ("column-unknown", 10)
    problem = one(through(step("a", "tweets", Filter("id > 1"), require=(("dated", "tss IS NOT NULL"),))))
    assert (problem.code, problem.remedy) == ("column-unknown", 'did you mean "ts"?')


def test_keys_are_columns_of_every_input() -> None:
    b = source("b", columns="user STRING, at TIMESTAMP", watermark="at")
    join = step("j", "tweets b", Join(("id",), time=(("tweets", "ts"), ("b", "at")), within_s=60.0))
    assert codes(checked(source(), b, join, sink("kept", "j"))) == ["column-unknown"]
    other = replace(b, schema=schema("id STRING, at TIMESTAMP"))
    assert codes(checked(source(), other, join, sink("kept", "j"))) == ["key-types"]
    assert codes(through(step("a", "tweets", Dedupe(("idd",))))) == ["column-unknown"]
    parse = Parse("value", "json", schema("x BIGINT").fields)
    assert codes(through(step("a", "tweets", parse))) == ["column-unknown"]
    assert codes(through(step("a", "tweets", replace(parse, column="id")))) == ["parse-type"]


def test_the_origin_of_a_union_is_a_column_of_its_own() -> None:
    nodes = (source("l", watermark=None), source("r", watermark=None))
    assert checked(*nodes, step("u", "l r", Merge(origin="came_by")), sink("kept", "u")) == []
    problem = one(checked(*nodes, step("u", "l r", Merge(origin="User")), sink("kept", "u")))
    assert (problem.code, problem.remedy) == ("column-twice", "write another column name under origin")


def test_a_union_has_the_same_columns_on_every_side() -> None:
    b = source("b", columns="id BIGINT, extra STRING", watermark=None)
    problem = one(checked(source(), b, step("m", "tweets b", Merge()), sink("kept", "m")))
    assert problem.code == "union-columns"
    assert "lacks user, text, followers, retweets, ts and has extra beside" in problem.message
    assert codes(checked(source(), b, sink("kept", "tweets b"))) == ["union-columns"]
    turned = source("b", columns="ts TIMESTAMP, retweets BIGINT, followers BIGINT, text STRING, user STRING, id BIGINT")
    assert checked(source(), turned, step("m", "tweets b", Merge()), sink("kept", "m")) == []


def test_two_columns_of_one_name_are_refused() -> None:
    assert codes(through(step("a", "tweets", Select((("x", "id"), ("X", "ts")))))) == ["column-twice"]
    assert "column-twice" in codes(through(step("a", "tweets", Aggregate(("user",), (("user", "count(*)"),), HOUR))))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT id FROM", "sql-syntax"),
        ("SELECT id, FROM tweets", "sql-syntax"),
        ("INSERT INTO tweets SELECT 1", "sql-syntax"),
        ("SELECT id FROM users", "sql-input-unknown"),
        ("SELECT 1 AS one", "sql-input-unread"),
        ("SELECT idd FROM tweets", "column-unknown"),
        ("SELECT uper(user) AS u FROM tweets", "sql-function-unknown"),
        ("SELECT input_file_name() AS f FROM tweets", "sql-function-refused"),
        ("SELECT Rand(7) AS r FROM tweets", "sql-function-refused"),
        ("SELECT id FROM tweets WHERE monotonically_increasing_id() > 5", "sql-function-refused"),
        ("SELECT spark_partition_id() AS p FROM tweets", "sql-function-refused"),
        ("SELECT concat(user, uuid()) AS u FROM tweets", "sql-function-refused"),
        ("SELECT CAST(text AS INT) AS n FROM tweets", "sql-cast-can-fail"),
        ("SELECT text::INT AS n FROM tweets", "sql-cast-can-fail"),
    ],
)
def test_sql_mistakes_are_found_offline(text: str, code: str) -> None:
    assert codes(through(step("a", "tweets", Sql(text)))) == [code]


@pytest.mark.parametrize(
    ("text", "severity", "remedy"),
    [
        ("SELECT to_dat(ts) AS d FROM tweets", "error", 'did you mean "to_date"?'),
        ("SELECT toDate(ts) AS d FROM tweets", "error", 'did you mean "to_date"?'),
        ("SELECT cuont(*) AS n FROM tweets", "error", 'did you mean "count"?'),
        ("SELECT main.uper(user) AS u FROM tweets", "warning", 'did you mean "upper"?'),
        ("SELECT sha3(user) AS u FROM tweets", "warning", 'did you mean "sha"?'),
        ("SELECT st_contains(user, text) AS u FROM tweets", "warning", 'did you mean "contains"?'),
    ],
)
def test_a_function_that_can_only_be_a_slip_is_an_error(text: str, severity: str, remedy: str) -> None:
    (problem,) = [each for each in through(step("a", "tweets", Sql(text))) if each.code == "sql-function-unknown"]
    assert (problem.severity, problem.remedy) == (severity, remedy)


def test_a_function_that_the_flow_may_register_itself_is_a_warning(module: Path) -> None:
    slip = step("a", "tweets", Filter("uper(user) = 'A'"))
    frame = step("own", "tweets", Python("steps:whole"), on_error="fail")
    assert one(through(frame, replace(slip, inputs=("own",)), folder=module)).severity == "warning"
    bringing = Tier("t", ("a",), resources=Resources(spark={"spark.sql.extensions": "com.example.Functions"}))
    found = [each for each in through(slip, tiers={"t": bringing}) if each.code == "sql-function-unknown"]
    assert one(found).severity == "warning"
    assert one(through(slip)).severity == "error"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT try_cast(text AS INT) AS n FROM tweets",
        "SELECT CAST(id AS STRING) AS n, CAST('7' AS INT) AS seven FROM tweets",
        "WITH big AS (SELECT id AS number FROM tweets WHERE id > 3) SELECT number FROM big",
        "SELECT id, t.user FROM tweets AS t",
        "SELECT transform(split(text, ' '), w -> upper(w)) AS words FROM tweets",
        "SELECT word FROM tweets LATERAL VIEW explode(split(text, ' ')) w AS word",
        "SELECT id + 1 AS next, next * 2 AS twice FROM tweets",
        "SELECT * EXCEPT (text) FROM tweets",
        "SELECT id FROM tweets UNION ALL SELECT retweets FROM tweets",
    ],
)
def test_good_sql_is_left_alone(text: str) -> None:
    assert through(step("a", "tweets", Sql(text))) == []


@pytest.mark.parametrize(
    ("predicate", "code"),
    [
        ("id >", "sql-syntax"),
        ("", "sql-syntax"),
        ("id > 'x", "sql-syntax"),
        ("id > 1 nonsense", "sql-syntax"),
        ("SELECT 1", "sql-syntax"),
        ("id IN (SELECT id FROM tweets)", "sql-syntax"),
        ("id + 1", "predicate-type"),
        ("count(*) > 1", "aggregate-misplaced"),
    ],
)
def test_predicates_are_expressions_that_are_true_or_false(predicate: str, code: str) -> None:
    assert codes(through(step("a", "tweets", Filter(predicate)))) == [code]


def test_the_columns_of_an_aggregation_aggregate() -> None:
    assert codes(through(step("a", "tweets", Aggregate((), (("who", "user"),), HOUR)))) == ["aggregate-missing"]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "steps.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def f(row):\n    return (row\n")
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("steps.one", "function-syntax"),
        ("step:one", "python-module-missing"),
        ("steps:onee", "python-name-missing"),
        ("steps:value", "python-not-callable"),
        ("steps:later", "python-not-callable"),
        ("steps:Uncallable", "python-not-callable"),
        ("steps:none", "python-signature"),
        ("steps:two", "python-signature"),
        ("steps:keyword", "python-signature"),
        ("steps:Greedy", "python-signature"),
        ("steps:Opens", "python-signature"),
        ("steps:sorts", "python-branch-unknown"),
        ("broken:f", "python-syntax"),
    ],
)
def test_python_mistakes_are_found_without_importing(module: Path, reference: str, code: str) -> None:
    assert codes(through(step("a", "tweets", Python(reference)), folder=module)) == [code]


@pytest.mark.parametrize("name", ["one", "alias", "made", "whole", "many", "Whole", "Heir"])
def test_python_functions_that_fit_are_left_alone(module: Path, name: str) -> None:
    assert through(step("a", "tweets", Python(f"steps:{name}")), folder=module) == []


def test_a_broken_module_is_told_once_at_its_own_place(module: Path) -> None:
    problem = one(through(step("a", "tweets", Python("broken:f")), step("b", "a", Python("broken:f")), folder=module))
    assert problem.place.file == str(module / "broken.py")
    assert problem.place.line == 2


def test_a_frame_function_can_only_fail_whole(module: Path) -> None:
    assert codes(through(step("a", "tweets", Python("steps:whole"), on_error="dead_letter"), folder=module)) == ["frame-on-error"]
    assert through(step("a", "tweets", Python("steps:whole"), on_error="fail"), folder=module) == []
    branched = step("a", "tweets", Python("steps:whole", branches=("x",)))
    assert codes(checked(source(), branched, sink("k", "a"), sink("x", "a.x"), folder=module)) == ["frame-branches"]


def test_declared_branches_may_be_used(module: Path) -> None:
    made = step("a", "tweets", Python("steps:sorts", branches=("left",)))
    assert checked(source(), made, sink("k", "a"), sink("l", "a.left"), folder=module) == []


def test_problems_come_in_file_order() -> None:
    problems = through(step("a", "tweets", Filter("idd > 1")), step("b", "a", Filter("x >")))
    assert problems == sorted(problems, key=lambda problem: problem.place)


def test_a_function_handed_over_as_an_object_is_checked_too() -> None:
    class Takes:
        def __call__(self, row: object) -> object:
            return row

    good = [lambda row: row, Takes, Takes(), print]
    for function in good:
        assert through(step("a", "tweets", Python("here:f", function=function))) == []
    assert codes(through(step("a", "tweets", Python("here:f", function=lambda: None)))) == ["python-signature"]
    assert codes(through(step("a", "tweets", Python("here:f", function=3)))) == ["python-not-callable"]  # type: ignore[arg-type]
