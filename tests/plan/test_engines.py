"""Which SQL steps join the tail, and what is said of the others."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from flows import flow, sink, source, step
from pyspark.sql import functions

from scribengin.core.types import parse_schema
from scribengin.plan.explain import explain
from scribengin.plan.queries import build_plan
from scribengin.plan.stages import portable
from scribengin.spec.model import Aggregate, Defaults, Filter, Python, Select, Sql, WindowSpec
from scribengin.vector.portable import NotPortableError

if TYPE_CHECKING:
    from scribengin.plan.model import QueryPlan
    from scribengin.spec.model import Sink, Source, Step

COLUMNS = "id BIGINT, user STRING, price DECIMAL(9,2), ts TIMESTAMP"
ROWS = source("rows", columns=COLUMNS)
OUT = sink("out", "last")
PORTABLE = {
    *("char_length", "character_length", "coalesce", "concat", "contains", "day", "endswith", "hour"),
    *("ifnull", "isnotnull", "isnull", "length", "like", "minute", "month", "nvl"),
    *("second", "startswith", "substr", "substring", "to_timestamp", "trim", "year"),
}
"""of Spark's functions, by name"""


def planned(*nodes: Source | Step | Sink, **rest: object) -> QueryPlan:
    (query,) = build_plan(flow(ROWS, *nodes, **rest)).queries
    return query


def placed(query: QueryPlan) -> dict[str, str]:
    return {node.id: node.stage for node in query.placed}


def test_a_run_of_filters_and_selects_joins_the_tail_with_its_source() -> None:
    query = planned(step("some", "rows", Filter("id > 3")), step("last", "some", Select((("id", "id + 1"), ("who", "trim(user)")))), OUT)
    assert placed(query) == {"rows": "read", "some": "vector", "last": "vector", "out": "sink"}
    assert [node.stage for node in query.nodes] == ["decode", "native", "native", "sink"]
    assert query.by_spark == {}


def test_python_between_them_joins_too() -> None:
    query = planned(
        step("some", "rows", Filter("id > 3")), step("mid", "some", Python("steps:f")), step("last", "mid", Filter("id < 9")), OUT
    )
    assert placed(query) == {"rows": "read", "some": "vector", "mid": "tail", "last": "vector", "out": "sink"}


@pytest.mark.parametrize(
    ("predicate", "stage"),
    [
        ("id > 3", "vector"),
        ("id % 2 = 0", "vector"),
        ("id / 3 > 1", "vector"),
        ("id + 1 > 3", "native"),
        ("id % length(user) = 0", "native"),
    ],
)
def test_what_may_raise_stays_with_spark_before_a_sink_that_commits_unit_by_unit(predicate: str, stage: str) -> None:
    topic = replace(OUT, type="kafka", options={"bootstrap": "127.0.0.1:9", "topic": "out", "format": "json"})
    query = planned(step("last", "rows", Filter(predicate)), topic)
    assert placed(query)["last"] == stage
    told = {} if stage == "vector" else {"last": "an expression that can fail, before a sink that commits each task output"}
    assert query.by_spark == told
    assert placed(planned(step("last", "rows", Filter(predicate)), OUT))["last"] == "vector", "a sink that commits a Batch as a whole"


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        ("lower(user) = 'a'", "lower()"),
        ("price > 3", "DECIMAL(9,2) with INT"),
        ("id > 1.5", "the number 1.5"),
        (r"user = 'a\n'", "a text that only Spark can parse"),
        ("user = 'a''b'", "a text that only Spark can parse"),
        ("user LIKE 'it '' s'", "a pattern that is not a constant"),
        ("try_cast(user AS INT) > 3", "try_cast()"),
        ("rand() > id", "rand()"),
        ("ts > current_timestamp()", "current_timestamp()"),
        ("user = id", "STRING with BIGINT"),
        ("concat_ws('-', user, user) = 'a-a'", "concat_ws()"),
        ("id > -(-2147483648)", "a computation with a constant"),
        ("ts > '\u0662\u0660\u0662\u0666-01-01'", "the time '\u0662\u0660\u0662\u0666-01-01'"),
    ],
)
def test_a_step_that_is_not_portable_says_why_and_holds_those_behind_it(predicate: str, reason: str) -> None:
    query = planned(step("some", "rows", Filter(predicate)), step("last", "some", Filter("id > 3")), OUT)
    assert query.in_tail == ()
    assert (query.by_spark["some"].lower(), query.by_spark["last"]) == (reason.lower(), "behind some")


def test_no_other_function_of_sparks_is_read_as_one_that_is_portable() -> None:
    found = set()
    given = ("id", "user", "ts", "id, id", "user, user", "user, 1", "user, 'a'", "ts, ts", "user, user, user", "id, id, id", "user, 1, 1")
    for name in sorted(name for name in dir(functions) if name[0].islower()):
        for arguments in given:
            with suppress(NotPortableError):
                portable(f"{name}({arguments})", parse_schema(COLUMNS), test=False)
                found.add(name)
    assert found == PORTABLE


EARLY = "an expression that can fail beside an equality: Spark may evaluate it on more rows"


@pytest.mark.parametrize(
    ("predicates", "reason"),
    [
        (["n = m AND 100 / m > 3"], EARLY),
        (["n = m", "k > 0", "100 / n > 3"], EARLY),
        (["NOT (n <> m OR 100 / m <= 3)"], EARLY),
        (["m > 5 AND CAST(user AS BIGINT) = m"], EARLY),
        (["n IN (0) AND 100 / n > 3"], EARLY),
        (["n = m AND 100 / k > 3"], None),
        (["n > 0 AND 100 / n > 3"], None),
        (["100 / n = 3 AND n > 1"], None),
        (["n = m AND k > 3"], None),
    ],
)
def test_what_may_raise_beside_an_equality_is_sparks(predicates: list[str], reason: str | None) -> None:
    steps, last = [], "cols"
    for number, predicate in enumerate(predicates):
        steps.append(step(f"s{number}", last, Filter(predicate)))
        last = f"s{number}"
    query = planned(source("cols", columns="n BIGINT, m BIGINT, k BIGINT, user STRING"), *steps, sink("out", last))
    assert query.by_spark.get(last) == reason


def test_an_equality_and_what_a_select_makes_of_its_column_meet_behind_it() -> None:
    made = Select((("id", "id"), ("half", "100 / id")))
    query = planned(step("some", "rows", Filter("id = 5")), step("made", "some", made), step("last", "made", Filter("half > 3")), OUT)
    assert query.by_spark["last"] == EARLY
    query = planned(step("some", "rows", Filter("id = 5")), step("last", "some", made), OUT)
    assert query.by_spark == {}


def test_a_step_before_one_of_sparks_stays_with_it() -> None:
    query = planned(step("some", "rows", Filter("id > 3")), step("last", "some", Sql("SELECT * FROM some")), OUT)
    assert query.by_spark == {"some": "before last, which runs outside the Python worker", "last": "sql steps always run in Spark"}


def test_a_query_with_state_and_one_that_asks_for_spark_stay_as_they_are() -> None:
    hourly = Aggregate((), (("n", "count(*)"),), WindowSpec("ts", 3600.0, 3600.0))
    query = planned(step("some", "rows", Filter("id > 3")), step("last", "some", hourly), OUT)
    assert query.in_tail == ()
    assert query.by_spark["some"] == "its query keeps state"
    query = planned(step("last", "rows", Filter("id > 3")), OUT, defaults=Defaults(engine="spark"))
    assert (query.in_tail, query.by_spark) == ((), {"last": "`engine: spark`"})


def test_the_text_names_the_engine_of_each_step() -> None:
    plan = build_plan(
        flow(ROWS, step("last", "rows", Filter("id > 3")), OUT, sink("other", "low"), step("low", "rows", Filter("lower(user) = 'a'")))
    )
    text = " ".join(explain(plan).split())
    assert "filter: id > 3 [vectorised SQL]" in text
    assert "filter: lower(user) = 'a' [Spark: lower()]" in text
