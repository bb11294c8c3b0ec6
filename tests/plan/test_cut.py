from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from flows import flow, schema, sink, source, step, tweets

from scribengin.connectors.catalog import sink_types
from scribengin.core.options import NodeType
from scribengin.core.types import parse_schema
from scribengin.plan.guarantees import path_guarantee
from scribengin.plan.queries import build_plan
from scribengin.spec.model import (
    Aggregate,
    Dedupe,
    Filter,
    Flow,
    Group,
    Member,
    Merge,
    Parse,
    Python,
    Route,
    Select,
    Sql,
    Watermark,
    WindowSpec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from scribengin.plan.model import QueryPlan
    from scribengin.spec.model import Sink, Source, Step

MODULE = """
from scribengin import batch, frame
def f(row): return row
@batch
def b(rows): return rows
@frame
def w(df): return df
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text(MODULE)
    return tmp_path


def query(folder: Path, *nodes: Source | Step | Sink) -> QueryPlan:
    queries = build_plan(flow(*nodes, folder=folder)).queries
    assert len(queries) == 1
    return queries[0]


def stages(folder: Path, *nodes: Source | Step | Sink) -> dict[str, str]:
    return {node.id: node.stage for node in query(folder, *nodes).nodes}


F, B, W, ANY = Python("m:f"), Python("m:b"), Python("m:w"), Filter("id > 1")


def test_a_python_only_flow_is_one_pass(folder: Path) -> None:
    made = stages(folder, source(), step("a", "tweets", F), step("b", "a", B), sink("k", "b"))
    assert made == {"tweets": "read", "a": "tail", "b": "tail", "k": "sink"}


def test_a_source_straight_to_a_sink_is_read_in_the_tail(folder: Path) -> None:
    assert stages(folder, source(), sink("k", "tweets")) == {"tweets": "read", "k": "sink"}


def test_python_before_sql_is_a_stage_in_the_middle(folder: Path) -> None:
    made = stages(folder, source(), step("a", "tweets", F), step("s", "a", ANY), step("b", "s", F), sink("k", "b"))
    assert made == {"tweets": "decode", "a": "python", "s": "native", "b": "tail", "k": "sink"}


def test_a_frame_function_is_sparks_own(folder: Path) -> None:
    made = stages(folder, source(), step("a", "tweets", F), step("w", "a", W), sink("k", "w"))
    assert made == {"tweets": "decode", "a": "python", "w": "native", "k": "sink"}


def test_a_requirement_needs_spark(folder: Path) -> None:
    made = stages(folder, source(), step("a", "tweets", F, require=(("r", "id > 1"),)), sink("k", "a"))
    assert made["a"] == "python"


def test_parse_goes_with_what_reads_it(folder: Path) -> None:
    text = source(columns=None, watermark=None, options={"path": "d", "format": "text"})
    parse = step("p", "tweets", Parse("value", "json", parse_schema("id BIGINT")))
    assert stages(folder, text, parse, step("a", "p", F), sink("k", "a"))["p"] == "tail"
    assert stages(folder, text, parse, step("a", "p", ANY), sink("k", "a"))["p"] == "python"


def test_sparks_own_reader_is_native(folder: Path) -> None:
    read = source(options={"path": "d", "format": "json", "parse": "spark"})
    assert stages(folder, read, step("a", "tweets", F), sink("k", "a"))["tweets"] == "native"


def test_a_route_is_native_and_what_feeds_it_a_stage_before(folder: Path) -> None:
    route = step("r", "a", Route((("big", "id > 1"),)))
    made = stages(folder, source(), step("a", "tweets", F), route, sink("k", "r.big"))
    assert made == {"tweets": "decode", "a": "python", "r": "native", "k": "sink"}


def test_a_union_joins_the_tail_when_it_brings_python_or_blocks(folder: Path) -> None:
    two = source(), source("b")
    assert stages(folder, *two, step("m", "tweets b", Merge()), sink("k", "m"))["m"] == "tail"
    natives = step("x", "tweets", ANY), step("y", "b", ANY)
    assert stages(folder, *two, *natives, step("m", "x y", Merge()), sink("k", "m"))["m"] == "native"
    assert stages(folder, *two, step("m", "tweets b", Merge()), step("x", "m", ANY), sink("k", "x"))["m"] == "native"


def test_sinks_together_are_one_query_that_reads_once(folder: Path) -> None:
    both = query(folder, source(), step("a", "tweets", F), sink("k", "a", together="q"), sink("raw", "tweets", together="q", trigger_s=2.0))
    assert (both.name, both.sinks, both.trigger_s) == ("q", ("k", "raw"), 2.0)
    assert {node.id: node.stage for node in both.nodes} == {"tweets": "read", "a": "tail", "k": "sink", "raw": "sink"}


def test_a_source_that_spark_reads_too_is_decoded_before(folder: Path) -> None:
    made = stages(folder, source(), step("a", "tweets", ANY), sink("k", "a", together="q"), sink("raw", "tweets", together="q"))
    assert made["tweets"] == "decode"


def test_static_sources_have_no_positions(folder: Path) -> None:
    users = source("users", columns="user STRING", watermark=None, static=True)
    made = query(
        folder, source(), users, step("j", "tweets users", Sql("SELECT t.id FROM tweets t JOIN users u ON t.user = u.user")), sink("k", "j")
    )
    assert (made.sources, made.static_sources, made.stateful) == (("tweets",), ("users",), False)
    assert "static" in made.unit_reason


def test_queries_that_read_alike_are_told_so_and_of_together_only_where_it_reads_once(tmp_path: Path, folder: Path) -> None:
    plan = build_plan(tweets(tmp_path))
    assert [query.name for query in plan.queries] == ["kept", "counts"]
    assert plan.hints == ("queries kept and counts read tweets and run known, hot and tagged twice; each at its own pace",)
    shared = flow(source(), sink("one", "tweets"), sink("two", "tweets"), folder=folder)
    assert build_plan(shared).hints == ("queries one and two read tweets twice; write `together: NAME` on their sinks to do it once",)
    assert [query.stateful for query in plan.queries] == [False, True]


def test_guarantees_are_given_for_every_path(folder: Path) -> None:
    made = query(
        folder,
        source(),
        source("b"),
        step("m", "tweets b", Merge()),
        sink("k", "m", together="q"),
        sink("v", "b", type_="console", together="q"),
    )
    assert [(path.source, path.sink, path.guarantee) for path in made.guarantees] == [
        ("b", "k", "exactly once"),
        ("tweets", "k", "exactly once"),
        ("b", "v", "view"),
    ]
    lax = query(folder, source(), sink("k", "tweets", delivery="at_least_once"))
    assert lax.guarantees[0].guarantee == "at least once"


def test_a_source_that_cannot_be_read_again_is_at_least_once() -> None:
    made = flow(source("q", type_="queue", watermark=None), sink("k", "q"))
    types = {"queue": NodeType("queue", "source", "", ())}
    path = path_guarantee(made, made.sources["q"], made.sinks["k"], source_types=types, sink_types=sink_types())
    assert (path.guarantee, path.reason) == ("at least once", "queue cannot be re-read identically")


def test_a_plan_is_a_function_of_the_flow(tmp_path: Path) -> None:
    assert build_plan(tweets(tmp_path)) == build_plan(tweets(tmp_path))


HOUR = WindowSpec("ts", 3600.0, 3600.0)


def stateful_flow(folder: Path, **changes: object) -> Flow:
    parts: dict[str, object] = {
        "source": source(),
        "known": step("known", "tweets", Filter("followers > 5000")),
        "made": step("made", "known", Select((("who", "user"), ("text", "text"), ("ts", "ts")))),
        "python": step("python", "made", F),
        "counted": step("counted", "python", Aggregate(("who",), (("n", "count(*)"),), HOUR)),
        "after": step("after", "counted", Filter("n > 1")),
        "sink": sink("k", "after"),
    }
    return flow(*(parts | changes).values(), folder=folder)  # type: ignore[arg-type]


def prints(made: Flow) -> tuple[str, str]:
    (query,) = build_plan(made).queries
    return query.fingerprint, query.state_fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"known": step("known", "tweets", Filter("followers > 1"))},
        {"known": step("known", "tweets", Filter("followers > 5000"), require=(("r", "id > 1"),))},
        {"after": step("after", "counted", Filter("n > 2"))},
        {"sink": sink("k", "after", format_="json")},
        {"source": source(options={"path": "elsewhere", "format": "json"})},
    ],
)
def test_changes_that_leave_the_state_its_meaning(folder: Path, changes: dict[str, object]) -> None:
    before, after = prints(stateful_flow(folder)), prints(stateful_flow(folder, **changes))
    assert before[0] != after[0]
    assert before[1] == after[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"counted": step("counted", "python", Aggregate(("text",), (("n", "count(*)"),), HOUR)), "after": step("after", "counted", ANY)},
        {"counted": step("counted", "python", Aggregate(("who",), (("n", "count(text)"),), HOUR))},
        {"counted": step("counted", "python", Aggregate(("who",), (("n", "count(*)"),), WindowSpec("ts", 60.0, 60.0)))},
        {"made": step("made", "known", Select((("who", "text"), ("text", "text"), ("ts", "ts"))))},
        {"python": step("python", "made", Python("m:b"))},
        {"python": step("python", "made", F, watermark=Watermark("ts", 5.0))},
        {
            "source": replace(source(), watermark=None),
            "made": step("made", "known", Select((("who", "user"), ("text", "text"), ("ts", "ts")))),
        },
        {"source": replace(source(), schema=schema("user STRING, followers INT, text STRING, ts TIMESTAMP"))},
        {"more": step("more", "after", Dedupe(("who",))), "sink": sink("k", "more")},
    ],
)
def test_changes_that_give_the_state_another_meaning(folder: Path, changes: dict[str, object]) -> None:
    assert prints(stateful_flow(folder))[1] != prints(stateful_flow(folder, **changes))[1]


def test_whitespace_in_sql_and_the_order_of_the_file_change_no_state(folder: Path) -> None:
    def made(text: str, *, turned: bool = False) -> Flow:
        steps = [step("s", "tweets", Sql(text)), step("f", "s", Filter("n > 1"))]
        return flow(source(), *(reversed(steps) if turned else steps), sink("k", "f"), folder=folder)

    text = "SELECT ts, count(*) AS n FROM tweets GROUP BY ts"
    assert prints(made(text))[1] == prints(made(text.replace(" FROM", "\n  FROM")))[1]
    assert prints(made(text)) == prints(made(text, turned=True))


def test_the_text_of_a_module_and_of_what_it_imports_counts(folder: Path) -> None:
    made = flow(source(), step("a", "tweets", F), sink("k", "a"), folder=folder)
    (folder / "m.py").write_text(MODULE + "import helper\n")
    (folder / "helper.py").write_text("LIMIT = 1\n")
    before = prints(made)
    (folder / "helper.py").write_text("LIMIT = 20\n")
    after = prints(made)
    assert before != after
    (folder / "unrelated.py").write_text("X = 1\n")
    assert prints(made) == after


def test_the_fingerprint_of_a_union_and_of_a_sink_stays_what_it_was_before_they_could_say_more(folder: Path) -> None:
    def parts(merge: Merge, **rest: Any) -> Mapping[str, str]:
        nodes = (source("l", watermark=None), source("r", watermark=None), step("u", "l r", merge), sink("kept", "u", **rest))
        groups = {"wan": Group("wan", (Member("far", "m1"),))}
        return build_plan(replace(flow(*nodes, folder=folder), groups=groups)).queries[0].parts

    plain = parts(Merge())
    assert plain["u"] == "9a43559bfb2d144bf6edd3438fc30c771424f45076ea9fd173f41848c74474bf"
    assert plain["kept"] == "c4de3e304543363259f39adfd1df8033f2506c28cebd263ab4cf908478b54211"
    assert parts(Merge(origin="o"))["u"] != plain["u"]
    assert parts(Merge(), to="wan")["kept"] != plain["kept"]


def test_how_fast_a_source_is_read_changes_nothing(folder: Path) -> None:
    slow = source(options={"path": "tweets", "format": "json", "max_files": 3, "settle": 5.0})
    assert prints(flow(source(), sink("k", "tweets"))) == prints(flow(slow, sink("k", "tweets")))


def test_a_function_of_the_python_form_counts_by_its_text() -> None:
    def keep(row: dict[str, object]) -> bool:
        return bool(row)

    def drop(row: dict[str, object]) -> bool:
        return not row

    def with_(function: object) -> tuple[str, str]:
        return prints(flow(source(), step("a", "tweets", Python("here:f", function=function)), sink("k", "a")))  # type: ignore[arg-type]

    assert with_(keep) != with_(drop)
