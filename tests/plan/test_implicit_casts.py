"""Where a text meets a number Spark casts by itself, and one bad row fails: told as a written cast is."""

from __future__ import annotations

import pytest

from scribengin.core.types import parse_schema
from scribengin.plan.columns import columns_of
from scribengin.plan.sql.names import implicit_casts_of, read_query
from scribengin.plan.sql.parse import parse_expression, parse_query

COLUMNS = columns_of(parse_schema("amount STRING, n INT, p DOUBLE, d DATE, ts TIMESTAMP"))


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("amount > 5", "BIGINT"),
        ("amount > -5.5", "DOUBLE"),
        ("amount = p", "DOUBLE"),
        ("n > 'x'", "BIGINT"),
        ("amount IN (1, 2)", "BIGINT"),
        ("amount BETWEEN 1 AND 5", "BIGINT"),
        ("amount * 2 > 1", "BIGINT"),
        ("coalesce(amount, 0)", "BIGINT"),
        ("CASE WHEN n > 1 THEN amount ELSE n END", "BIGINT"),
        ("IF(n > 1, amount, 0)", "BIGINT"),
        ("abs(amount)", "DOUBLE"),
        ("upper(amount) = 7", "BIGINT"),
    ],
)
def test_a_text_that_is_taken_for_a_number_is_told_with_try_cast(text: str, to: str) -> None:
    (fault,) = implicit_casts_of(parse_expression(text), COLUMNS)
    assert (fault.code, fault.severity) == ("sql-cast-can-fail", "warning")
    assert f"Spark casts it to {to}, " in fault.message
    assert fault.remedy.startswith("write try_cast(")


@pytest.mark.parametrize("name", ["sum", "avg"])
def test_of_an_aggregate_over_a_text_it_is_told_that_the_query_stops(name: str) -> None:
    (fault,) = implicit_casts_of(parse_expression(f"{name}(amount)"), COLUMNS)
    assert fault.message == (
        f"{name}(amount) needs numbers, and amount is a STRING: Spark casts it to DOUBLE, and the query stops if one is not a number"
    )
    assert fault.remedy.startswith(f"write {name}(try_cast(amount AS DOUBLE)), which leaves such values out; or give the column a number")


@pytest.mark.parametrize(
    "text",
    [
        *("amount = '5'", "n > '5'", "n IN ('1', '2')", "d > '2026-01-01'", "amount || n = 'x'", "length(amount) > 3"),
        *("try_cast(amount AS DOUBLE) > 5", "ts + INTERVAL 1 DAY > ts", "coalesce(amount, 'none')", "max(amount)", "concat(amount, n)"),
    ],
)
def test_what_meets_no_number_is_left_alone(text: str) -> None:
    assert implicit_casts_of(parse_expression(text), COLUMNS) == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT a.n FROM a JOIN b ON a.shop = b.shop", "b.shop is a text"),
        ("SELECT shop FROM a UNION ALL SELECT shop FROM b", '"shop" is INT in the first query and STRING in the second'),
        ("SELECT x FROM (SELECT shop AS x FROM b) WHERE x > 1", "x is a text"),
    ],
)
def test_joins_unions_and_inner_queries_are_told_too(query: str, words: str) -> None:
    inputs = {"a": columns_of(parse_schema("shop INT, n INT")), "b": columns_of(parse_schema("shop STRING, m INT"))}
    (fault,) = read_query(parse_query(query), inputs).faults
    assert fault.code == "sql-cast-can-fail"
    assert words in fault.message
