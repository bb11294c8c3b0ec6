from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scribengin.core.types import parse_schema
from scribengin.flow_tests.judge import compare_rows

SCHEMA = parse_schema("a BIGINT, b DOUBLE, c ARRAY<DOUBLE>, d MAP<STRING, BIGINT>")
small = st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.sampled_from([0.0, 1.0])})
partial = st.fixed_dictionaries({}, optional={"a": st.integers(0, 2), "b": st.sampled_from([0.0, 1.0])})


def fits(expected: dict[str, Any], got: dict[str, Any]) -> bool:
    return all(got[name] == value for name, value in expected.items())


@given(st.lists(partial, max_size=4), st.lists(small, max_size=4))
def test_as_many_rows_find_a_partner_as_can(expected: list[dict[str, Any]], got: list[dict[str, Any]]) -> None:
    most = max(
        sum(other is not None and fits(row, other) for row, other in zip(expected, order, strict=False))
        for order in itertools.permutations([*got, *[None] * len(expected)], len(expected))
    )
    found = compare_rows(expected, got, SCHEMA)
    missing = sum(pair.expected is not None for pair in found.pairs)
    assert missing == len(expected) - most
    assert (found.what == "") == (most == len(expected) == len(got))
    assert (compare_rows(expected, got, SCHEMA, among=True).what == "") == (most == len(expected))


def test_values_are_equal_by_their_types() -> None:
    got = [{"a": 1, "b": 0.1 + 0.2, "c": [math.nan, None], "d": {"x": 1, "y": 2}}]
    assert compare_rows([{"a": 1, "b": 0.3, "c": [math.nan, None], "d": {"y": 2, "x": 1}}], got, SCHEMA).what == ""
    for wrong in ({"b": 0.3000001}, {"c": [None, math.nan]}, {"c": [math.nan]}, {"d": {"x": 1}}, {"a": None}):
        assert compare_rows([wrong], got, SCHEMA).pairs[0].differ == tuple(wrong)


def test_the_likest_row_stands_beside_the_one_that_is_missing() -> None:
    got = [{"a": 1, "b": 5.0}, {"a": 2, "b": 6.0}, {"a": 3, "b": 7.0}]
    found = compare_rows([{"a": 2, "b": 7.0}, {"a": 9, "b": 9.0}, {"a": 1, "b": 5.0}], got, parse_schema("a BIGINT, b DOUBLE"))
    assert [(pair.expected, pair.got, pair.differ) for pair in found.pairs] == [
        ({"a": 2, "b": 7.0}, {"a": 2, "b": 6.0}, ("b",)),
        ({"a": 9, "b": 9.0}, None, ()),
        (None, {"a": 3, "b": 7.0}, ()),
    ]
    assert found.what == "2 expected rows are missing, 2 rows that were not expected, 1 is as expected"
