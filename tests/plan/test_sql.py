from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.core.types import parse_schema
from scribengin.plan.columns import columns_of
from scribengin.plan.sql.functions import AGGREGATES, FUNCTIONS
from scribengin.plan.sql.names import check_expression, read_query
from scribengin.plan.sql.parse import parse_expression, parse_query
from scribengin.plan.sql.rewrite import rename_inputs

TWEETS = columns_of(parse_schema("id BIGINT, user STRING, place STRUCT<city: STRING, lat: DOUBLE>, tags ARRAY<STRING>, ts TIMESTAMP"))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("id >", ">"),
        ("id > 'x", "'x"),
        ("(id > 3", "3"),
        ("id > 3 extra", "extra"),
        ("a, ", ","),
        ("count(* > 3", "3"),
        ("id > 1;\nuser > 2", ";"),
    ],
)
def test_a_syntax_error_points_at_its_place(text: str, at: str) -> None:
    fault = parse_expression(text).fault
    assert fault is not None
    assert text[fault.offset :].startswith(at), text[fault.offset :]


def test_a_place_far_inside_a_long_text_is_exact() -> None:
    text = "SELECT\n" + ",\n".join(f"  id AS id_{n}" for n in range(50)) + "\nFROM tweets WHERE id = = 3"
    fault = parse_query(text).fault
    assert fault is not None
    assert text[fault.offset :].startswith("= 3")


@pytest.mark.parametrize(
    "text",
    [
        "place.city = 'x'",
        "tags[0] = 'a'",
        "exists(tags, t -> t LIKE 'a%')",
        "`id` > 3",
        "ts > TIMESTAMP '2026-01-01'",
        "user RLIKE '^a'",
        "ts BETWEEN current_timestamp() - INTERVAL 1 DAY AND current_timestamp()",
        "CASE WHEN id > 3 THEN true ELSE false END",
        "date_format(ts, 'yyyy') = '2026'",
        "size(filter(tags, (t, i) -> i > 0 AND t = user)) > 0",
    ],
)
def test_spark_expressions_are_understood(text: str) -> None:
    assert check_expression(parse_expression(text), TWEETS, "tweets") == []


@pytest.mark.parametrize(
    ("text", "at", "remedy"),
    [
        ("ID > 3", "ID", 'did you mean "id"?'),
        ("tweets.id > 3", "tweets", "write id; with one input, columns have no prefix"),
        ("@timestamp > 3", "@", "write it in backticks: `@timestamp`"),
        ("upper($v) = 'X'", "$", "write it in backticks: `$v`"),
        ("id > 3 AND größe = 1", "größe", "write it in backticks: `größe`"),
        ("id > 3 AND log.level = 'x'", "log", "write it in backticks: `log.level`"),
        ("x-request-id = 1", "x", "write it in backticks: `x-request-id`"),
        ("user id > 1", "", "write it in backticks: `user id`"),
        ("upper(id) = 'x' OR a:b = 1", "", "write it in backticks: `a:b`"),
    ],
)
def test_a_name_that_needs_backticks_is_told_with_them(text: str, at: str, remedy: str) -> None:
    odd = columns_of(
        parse_schema("id INT, `log.level` STRING, `x-request-id` INT, `user id` INT, `a:b` INT, `größe` INT, `@timestamp` INT")
    )
    fault = check_expression(parse_expression(text), odd, "tweets")[0]
    assert text[fault.offset :].startswith(at)
    assert fault.remedy == remedy


def test_a_query_tells_names_that_need_backticks_too() -> None:
    odd = columns_of(parse_schema("id INT, `log.level` STRING, `user id` INT"))
    texts = ["SELECT log.level FROM rows", "SELECT user id FROM rows", "SELECT id AS größe FROM rows", "SELECT t.@x FROM rows t"]
    remedies = [read_query(parse_query(text), {"rows": odd}).faults[0].remedy for text in texts]
    assert remedies == [f"write it in backticks: `{name}`" for name in ("log.level", "user id", "größe", "@x")]
    assert read_query(parse_query("SELECT `log.level`, 'größe @x' AS `größe` FROM rows"), {"rows": odd}).faults == ()


def test_a_lambda_does_not_hide_a_wrong_name() -> None:
    faults = check_expression(parse_expression("exists(tags, t -> t = usr)"), TWEETS, "tweets")
    assert [(fault.code, fault.remedy) for fault in faults] == [("column-unknown", 'did you mean "user"?')]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM tweets WHERE EXISTS (SELECT 1 FROM users WHERE users.user = tweets.user)",
        "SELECT t.place.city FROM tweets t",
        "SELECT x.city FROM (SELECT place.city FROM tweets) x",
        "SELECT tag FROM tweets LATERAL VIEW explode(tags) e AS tag WHERE tag <> user",
        "SELECT user, count(*) AS n FROM tweets GROUP BY user HAVING n > 3",
        "SELECT * FROM tweets JOIN users USING (user)",
        "SELECT u.* FROM tweets t JOIN users u ON t.user = u.user",
        "SELECT tweets.id FROM tweets, users WHERE tweets.user = users.user",
        "FROM tweets SELECT id",
        "SELECT id FROM tweets TABLESAMPLE (10 PERCENT)",
        "SELECT window(ts, '1 hour') AS w, window.start FROM tweets GROUP BY window(ts, '1 hour')",
        "SELECT session_window(ts, '5 minutes').end AS e, count(*) AS n FROM tweets GROUP BY session_window(ts, '5 minutes')",
        "SELECT id, t.* FROM tweets LATERAL VIEW inline(arrays_zip(tags)) t",
    ],
)
def test_spark_queries_are_understood(text: str) -> None:
    faults = read_query(parse_query(text), {"tweets": TWEETS, "users": columns_of(parse_schema("user STRING, age INT"))}).faults
    assert faults == ()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT id FROM tweets WHERE usr = 1", "usr"),
        ("SELECT t.idd FROM tweets t", "idd"),
        ("SELECT x FROM (SELECT id AS y FROM tweets)", "x"),
        ("WITH c AS (SELECT idd FROM tweets) SELECT * FROM c", "idd"),
        ("SELECT t.id FROM tweets t JOIN users u ON t.user = u.usr", "usr"),
        ("SELECT id FROM tweets UNION ALL SELECT agee FROM users", "agee"),
        ("SELECT id FROM tweets ORDER BY idd", "idd"),
    ],
)
def test_wrong_names_are_found_in_every_part_of_a_query(text: str, word: str) -> None:
    (fault,) = read_query(parse_query(text), {"tweets": TWEETS, "users": columns_of(parse_schema("user STRING, age INT"))}).faults
    assert text[fault.offset : fault.offset + len(word)] == word


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT id FROM tweets", "SELECT id FROM `v` AS `tweets`"),
        ("SELECT id FROM tweets AS x -- tweets", "SELECT id FROM `v` AS x -- tweets"),
        ("SELECT 'tweets' AS t FROM `tweets` t", "SELECT 'tweets' AS t FROM `v` t"),
        ("WITH tweets AS (SELECT 1 AS one) SELECT one FROM tweets", "WITH tweets AS (SELECT 1 AS one) SELECT one FROM tweets"),
        (
            "SELECT id FROM tweets WHERE id IN (SELECT id FROM tweets)",
            "SELECT id FROM `v` AS `tweets` WHERE id IN (SELECT id FROM `v` AS `tweets`)",
        ),
    ],
)
def test_inputs_get_other_names_and_the_rest_of_the_text_stays(text: str, expected: str) -> None:
    assert rename_inputs(text, {"tweets": "v"}) == expected


@given(st.text(alphabet="abc .,()'`\"<>=+-*/;\n1 ", max_size=30) | st.sampled_from(["--", "-- a", "/* */", ";"]))
def test_no_text_breaks_the_parser(text: str) -> None:
    for parsed in (parse_expression(text), parse_query(text)):
        assert (parsed.tree is None) == (parsed.fault is not None)
        if parsed.fault is not None:
            assert 0 <= parsed.fault.offset <= len(text)


def test_the_list_of_functions_is_sparks() -> None:
    assert {"window", "upper", "count", "try_cast_is_no_function"} & FUNCTIONS == {"window", "upper", "count"}
    assert AGGREGATES < FUNCTIONS
    assert all(re.fullmatch(r"[a-z_]\w*", name) for name in FUNCTIONS)


GOLDEN = json.loads(Path(__file__).with_name("spark_types.json").read_text())
"""Expression → the type that Spark gave to it, over an empty table of those columns."""


@pytest.mark.parametrize("expression", GOLDEN["types"])
def test_a_type_is_sparks_or_not_told(expression: str) -> None:
    facts = read_query(parse_query(f"SELECT {expression} AS x FROM t"), {"t": columns_of(parse_schema(GOLDEN["columns"]))})
    assert [fault for fault in facts.faults if fault.severity == "error"] == []
    assert facts.columns is not None
    assert facts.columns[0].type is None or str(facts.columns[0].type).upper() == GOLDEN["types"][expression]
