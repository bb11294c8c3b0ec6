"""Whatever a person writes: the checks end with problems, never with a traceback, and what passes them can be planned."""

from __future__ import annotations

from pathlib import Path

from flat_places import PathPlaces
from flows import flow, schema, sink, source
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.types import parse_schema
from scribengin.plan.check import check_flow
from scribengin.plan.diff import diff_plans
from scribengin.plan.explain_tiers import as_json, as_mermaid, explain
from scribengin.plan.graph import base
from scribengin.plan.queries import build_plan
from scribengin.plan.tier_flows import plan_flow
from scribengin.spec.model import (
    Action,
    Aggregate,
    Dedupe,
    Filter,
    Flow,
    Join,
    Merge,
    Parse,
    Python,
    Route,
    Select,
    Sql,
    Step,
    Utilities,
    WindowSpec,
)

FOLDER = Path(__file__).parent
COLUMNS = st.sampled_from(["id", "user", "ts", "nothing", "n", ""])
NAMES = st.sampled_from(["a", "b", "c", "d", "tweets", "users", "a.big", "b.big", "kept", "absent"])
EXPRESSIONS = st.sampled_from(["id > 1", "user", "count(*)", "id >", "upper(user) = 'A'", "nothing = 1", "max(id)", ""])
QUERIES = st.sampled_from(
    [
        "SELECT id FROM a",
        "SELECT DISTINCT ts FROM tweets",
        "SELECT * FROM tweets t JOIN users u ON t.user = u.user",
        "SELECT a.id, b.ts FROM a, b WHERE a.id = b.id",
        "SELECT id FROM a.big LIMIT 3",
        "SELECT window(ts, '1 hour').start AS ts, count(*) AS n FROM tweets GROUP BY 1",
        "SELECT *, user AS w FROM (SELECT user, max(id) AS id, window AS ts FROM tweets GROUP BY window(ts, '1 hour'), 1) x WHERE id = 1",
        "SELECT",
        "WITH a AS (SELECT id FROM tweets) SELECT id FROM a UNION SELECT id FROM b",
    ]
)
TUPLES = st.lists(COLUMNS, max_size=2).map(tuple)
PAIRS = st.lists(st.tuples(COLUMNS, EXPRESSIONS), max_size=2).map(tuple)
CASES = st.lists(st.tuples(st.sampled_from(["big", "small"]), EXPRESSIONS), max_size=2).map(tuple)
TIMES = st.lists(st.tuples(NAMES, COLUMNS), max_size=2).map(tuple)
WINDOWS = st.none() | st.builds(WindowSpec, COLUMNS, st.just(60.0), st.just(60.0))
WITHIN = st.none() | st.just(5.0)
FUNCTIONS = st.sampled_from(["flows:schema", "flows:flow", "absent:f", "flows:TWEETS", "x"])
OUTPUTS = st.sampled_from([{"type_": "files"}, {"type_": "console"}]) | TUPLES.map(
    lambda key: {"type_": "delta", "options": {"path": "kept", "mode": "upsert", "key": key}}
)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(Filter, EXPRESSIONS),
    st.builds(Sql, QUERIES),
    st.builds(Select, PAIRS),
    st.builds(Aggregate, TUPLES, PAIRS, WINDOWS),
    st.builds(Join, TUPLES, st.sampled_from(["inner", "left", "right", "full", "semi"]), TIMES, WITHIN),
    st.builds(Parse, COLUMNS, st.just("json"), st.just(parse_schema("id BIGINT"))),
    st.builds(Route, CASES, st.none() | st.just("odd")),
    st.builds(Python, FUNCTIONS, st.sampled_from([(), ("big",)])),
    st.builds(Dedupe, TUPLES, st.none() | COLUMNS, WITHIN),
    st.builds(Merge, st.sampled_from(["union", "intersect"]), TUPLES, st.none() | COLUMNS, WITHIN),
)
STEPS = st.builds(
    Step,
    st.sampled_from(["a", "b", "c", "d"]),
    st.lists(NAMES, min_size=1, max_size=3).map(tuple),
    ACTIONS,
    require=st.lists(st.tuples(st.just("r"), EXPRESSIONS), max_size=1).map(tuple),
    on_error=st.sampled_from([None, "fail", "drop"]),
    emit=st.sampled_from(["append", "append", "update", "complete"]),
    schema=st.none() | st.just(schema("id BIGINT, ts TIMESTAMP")),
)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    sources = [source(columns="id BIGINT, user STRING, ts TIMESTAMP", watermark=draw(st.sampled_from(["ts", None])))]
    sources.append(source("users", columns="user STRING, n BIGINT", watermark=None, static=draw(st.booleans())))
    steps = draw(st.lists(STEPS, max_size=4, unique_by=lambda step: step.id))
    sinks = [
        sink(name, draw(NAMES), together=draw(st.sampled_from([None, "q"])), **draw(OUTPUTS))
        for name in draw(st.sampled_from([["kept"], ["kept", "more"]]))
    ]
    return flow(*sources, *steps, *sinks, folder=FOLDER)


def holds(made: Flow) -> None:
    """The plan's own rules, whatever the flow."""
    plan = build_plan(made)
    assert sorted(name for query in plan.queries for name in query.sinks) == sorted(made.sinks)
    for query in plan.queries:
        stages = {node.id: node.stage for node in query.nodes}
        for node in query.nodes:
            above = {stages[base(reference)] for reference in node.inputs}
            if node.stage in ("native", "python"):
                assert not above & {"read", "tail", "sink"}, "what feeds Spark cannot run after it"
            if node.stateful:
                assert node.stage == "native"
        assert query.sources
        assert query.stateful == any(node.stateful for node in query.nodes)
    whole = plan_flow(made)
    explain(whole, diff_plans({}, plan))
    as_json(whole)
    as_mermaid(whole)


@st.composite
def good_flows(draw: st.DrawFn) -> Flow:
    """Steps over columns `id BIGINT, user STRING, ts TIMESTAMP` that keep them, each over some before it; sinks read the loose ends."""
    keeping = [
        Filter("id > 1"),
        Sql("SELECT * FROM {}"),
        Select((("id", "id"), ("user", "upper(user)"), ("ts", "ts"))),
        Dedupe(("id",), "ts", 60.0),
        Python("some_steps:one"),
        Python("some_steps:many"),
        Python("some_steps:whole"),
        Utilities(("some_steps:tests", "some_steps:tests"), "free"),
        Utilities(("some_steps:one", "some_steps:many")),
    ]
    ids = ["tweets", "b"]
    steps = []
    for index in range(draw(st.integers(0, 6))):
        id_ = f"s{index}"
        above = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
        action: Action = Merge() if len(above) > 1 else draw(st.sampled_from(keeping))
        if isinstance(action, Sql):
            action = Sql(action.text.format(above[0]))
        steps.append(Step(id_, tuple(above), action, require=draw(st.sampled_from([(), (("r", "id > 1"),)]))))
        ids.append(id_)
    read = {reference for step in steps for reference in step.inputs}
    loose = [id_ for id_ in ids if id_ not in read]
    # a Query with state has one way out
    shared = [None] if any(isinstance(step.action, Dedupe) for step in steps) else [None, "q"]
    sinks = [sink(f"k{index}", id_, together=draw(st.sampled_from(shared))) for index, id_ in enumerate(loose)]
    columns = "id BIGINT, user STRING, ts TIMESTAMP"
    return flow(source(columns=columns), source("b", columns=columns), *draw(st.permutations(steps)), *sinks, folder=FOLDER)


@given(good_flows())
@settings(max_examples=200, deadline=None)
def test_good_flows_have_no_problem_and_a_plan_that_holds(made: Flow) -> None:
    assert check_flow(made, PathPlaces(), source_types=source_types(), sink_types=sink_types()) == []
    holds(made)


@given(flows())
@settings(max_examples=300, deadline=None)
def test_any_flow_is_checked_and_what_passes_can_be_planned(made: Flow) -> None:
    problems = check_flow(made, PathPlaces(), source_types=source_types(), sink_types=sink_types())
    if any(problem.severity == "error" for problem in problems):
        return
    holds(made)
