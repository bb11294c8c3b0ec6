from __future__ import annotations

import pytest
from flows import TWEETS, flow, schema, sink, source, step

from scribengin.core.types import parse_schema
from scribengin.plan.graph import Graph
from scribengin.plan.resolve import Inherited, Resolved, resolve, slowest
from scribengin.spec.model import Action, Aggregate, Dedupe, Filter, Join, Merge, Parse, Python, Route, Select, Sql, Watermark, WindowSpec


def resolved(action: Action, inputs: str = "tweets", *more: object, **rest: object) -> Resolved:
    return resolve(Graph(flow(source(), *more, step("a", inputs, action, **rest), sink("kept", "a"))))  # type: ignore[arg-type]


def columns(action: Action, inputs: str = "tweets", *more: object, **rest: object) -> str:
    return ", ".join(map(str, resolved(action, inputs, *more, **rest).columns["a"] or ()))


@pytest.mark.parametrize("action", [Filter("id > 1"), Dedupe(("id",)), Route((("x", "id > 1"),)), Python("m:f")])
def test_some_steps_keep_the_columns(action: Action) -> None:
    assert columns(action) == TWEETS


def test_a_declared_schema_stands() -> None:
    assert columns(Python("m:f"), schema=schema("x INT")) == "x INT"


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Select((("id", "id"), ("who", "upper(user)"), ("much", "odd_function(id)"))), "id BIGINT, who STRING, much"),
        (
            Aggregate(("user",), (("n", "count(*)"), ("most", "max(retweets)"), ("mean", "avg(id)")), WindowSpec("ts", 60.0, 60.0)),
            "window_start TIMESTAMP, window_end TIMESTAMP, user STRING, n BIGINT, most BIGINT, mean DOUBLE",
        ),
        (
            Parse("text", "json", parse_schema("a INT, b STRING NOT NULL")),
            "id BIGINT, user STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP, a INT, b STRING NOT NULL",
        ),
        (
            Sql("SELECT * EXCEPT (text, ts), id + 1 AS next FROM tweets"),
            "id BIGINT, user STRING, followers BIGINT, retweets BIGINT, next BIGINT",
        ),
        (Sql("SELECT t.id, CAST(t.id AS DECIMAL(12, 2)) AS d, t.id > 3 AS big FROM tweets t"), "id BIGINT, d DECIMAL(12,2), big BOOLEAN"),
        (Sql("WITH w AS (SELECT user AS who FROM tweets) SELECT who, 'x' AS c FROM w"), "who STRING, c STRING"),
        (Sql("SELECT id FROM tweets UNION ALL SELECT retweets FROM tweets"), "id BIGINT"),
        (Sql("SELECT window(ts, '1 hour').start AS hour, sum(id) AS s FROM tweets GROUP BY 1"), "hour TIMESTAMP, s BIGINT"),
        (Sql("SELECT count(*) FROM tweets"), ""),
    ],
)
def test_the_columns_of_a_step_are_inferred_where_they_are_certain(action: Action, expected: str) -> None:
    assert columns(action) == expected


def test_an_outer_join_makes_the_other_side_nullable() -> None:
    right = source("users", columns="user STRING NOT NULL, age INT NOT NULL", watermark=None, static=True)
    assert columns(Join(("user",), "left"), "tweets users", right).endswith("age INT")
    assert columns(Join(("user",), "inner"), "tweets users", right).endswith("age INT NOT NULL")
    assert columns(Join(("user",), "semi"), "tweets users", right) == TWEETS


def test_a_union_keeps_the_order_of_its_first_input_and_drops_types_that_differ() -> None:
    left = source("l", columns="a INT, b STRING", watermark=None)
    right = source("r", columns="b STRING, a BIGINT", watermark=None)
    assert columns(Merge(), "l r", left, right) == "a, b STRING"


def test_a_union_ends_with_the_column_that_names_its_inputs() -> None:
    left = source("l", columns="a INT, b STRING", watermark=None)
    right = source("r", columns="a INT, b STRING", watermark=None)
    assert columns(Merge(origin="came_by"), "l r", left, right) == "a INT, b STRING, came_by STRING NOT NULL"


def test_watermarks_are_inherited_and_renamed_and_the_slowest_rules() -> None:
    assert resolved(Filter("id > 1")).watermarks["a"] == (Inherited("ts", 600.0, "tweets"),)
    assert resolved(Select((("at", "ts"),))).watermarks["a"] == (Inherited("at", 600.0, "tweets"),)
    assert resolved(Select((("id", "id"),))).watermarks["a"] == ()
    assert resolved(Filter("id > 1"), watermark=Watermark("ts", 5.0)).watermarks["a"] == (Inherited("ts", 5.0, "a"),)
    counted = Sql("SELECT window(ts, '1 hour').end AS upto, count(*) AS n FROM tweets GROUP BY 1")
    assert resolved(counted).watermarks["a"] == ()
    assert resolved(counted, watermark=Watermark("upto", 0.0)).watermarks["a"] == (Inherited("upto", 0.0, "a"),)
    slow = source("slow")
    both = resolved(Merge(), "tweets slow", slow)
    assert [mark.origin for mark in both.watermarks["a"]] == ["tweets", "slow"]
    assert slowest((Inherited("ts", 5.0, "x"), Inherited("ts", 60.0, "y"))) == Inherited("ts", 60.0, "y")


@pytest.mark.parametrize(
    ("text", "stateful"),
    [
        ("SELECT id FROM tweets", False),
        ("SELECT upper(user) AS u FROM tweets WHERE id > 3", False),
        ("SELECT count(*) AS n FROM tweets", True),
        ("SELECT user FROM tweets GROUP BY user", True),
        ("SELECT DISTINCT user FROM tweets", True),
        ("SELECT percentile(id, 0.5) AS p FROM tweets", True),
        ("SELECT id FROM tweets UNION ALL SELECT id FROM tweets", False),
        ("SELECT id FROM tweets UNION SELECT id FROM tweets", True),
        ("SELECT t.id FROM tweets t JOIN users u ON t.user = u.user", False),
        ("SELECT t.id FROM tweets t JOIN tweets u ON t.user = u.user", True),
        ("SELECT t.id FROM tweets t JOIN (SELECT user, count(*) AS n FROM users GROUP BY user) u ON t.user = u.user", False),
        ("SELECT id FROM tweets WHERE user IN (SELECT user FROM users)", False),
        ("SELECT id FROM tweets WHERE user IN (SELECT user FROM tweets)", True),
        ("WITH c AS (SELECT user, count(*) AS n FROM tweets GROUP BY user) SELECT * FROM c", True),
        ("SELECT aggregate(array(1, 2), 0, (a, x) -> a + x) AS s FROM tweets", False),
    ],
)
def test_what_a_query_keeps_is_known_offline(text: str, stateful: bool) -> None:
    users = source("users", columns="user STRING", watermark=None, static=True)
    assert ("a" in resolved(Sql(text), "tweets users", users).stateful) == stateful


def test_a_branch_can_be_named_in_sql() -> None:
    route = step("r", "tweets", Route((("big", "id > 1"),)))
    assert columns(Sql("SELECT id, b.user FROM r.big b"), "r.big", route) == "id BIGINT, user STRING"
    assert columns(Sql("SELECT count(*) AS n FROM r.big"), "r.big", route) == "n BIGINT"
    assert "a" in resolved(Sql("SELECT count(*) AS n FROM r_big"), "r.big", route).stateful
