"""What a backslash means in a SQL text: in a pattern what people write, elsewhere what Spark reads, which is told."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.plan.sql.patterns import backslash_faults, escape_patterns, time_faults


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"v RLIKE '^\d+$'", r"v RLIKE '^\\d+$'"),
        (r"v NOT REGEXP '\s' AND w = '\d'", r"v NOT REGEXP '\\s' AND w = '\d'"),
        (r"v RLIKE '\bx\b'", r"v RLIKE '\\bx\\b'"),
        (r"v RLIKE 'a\'\d'", r"v RLIKE 'a\'\\d'"),
        (r'v RLIKE "\"\."', r'v RLIKE "\"\\."'),
        (r"split(v, '\|')[0]", r"split(v, '\\|')[0]"),
        (r"regexp_extract(v, '(\d+)\.(\d)', 2)", r"regexp_extract(v, '(\\d+)\\.(\\d)', 2)"),
        (r"regexp_replace('\d', '\$', '\$')", r"regexp_replace('\d', '\\$', '\\$')"),
        (r"rlike(v, '\w') OR regexp_like(v, concat('\d', '\w'))", r"rlike(v, '\\w') OR regexp_like(v, concat('\\d', '\\w'))"),
        (r"v RLIKE ('\d' || w)", r"v RLIKE ('\\d' || w)"),
        (r"str_to_map(v, '\|', '\.')", r"str_to_map(v, '\\|', '\\.')"),
        (r"CASE WHEN v RLIKE '(.)\1' THEN '\1' END", r"CASE WHEN v RLIKE '(.)\\1' THEN '\1' END"),
        (r"SELECT '\d' FROM t WHERE v RLIKE '\d' ORDER BY '\d'", r"SELECT '\d' FROM t WHERE v RLIKE '\\d' ORDER BY '\d'"),
    ],
)
def test_in_a_regular_expression_a_single_backslash_stays(text: str, meant: str) -> None:
    assert escape_patterns(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        r"v RLIKE '^\\d+$'",
        r"v RLIKE r'^\d+$'",
        r"v RLIKE '\n\t\u00e9'",
        r"v LIKE '50\%'",
        r"v LIKE 'C:\\\\%'",
        r"replace(v, '\d', '')",
        "v RLIKE '^[0-9]+$'",
        r"v = '\'' AND '",
    ],
)
def test_everything_else_stays_as_it_is_written(text: str) -> None:
    assert escape_patterns(text) == text


@given(st.text(alphabet="\\dbnZ01u%_'\"a|.", max_size=8))
def test_what_is_written_with_doubled_backslashes_is_never_changed(text: str) -> None:
    doubled = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    assert escape_patterns(f"v RLIKE {doubled}") == f"v RLIKE {doubled}"
    assert escape_patterns(escape_patterns(f"split(v, {doubled}) = '\\d'")) == f"split(v, {doubled}) = '\\d'"


@pytest.mark.parametrize(
    ("text", "severity", "remedy"),
    [
        (r"v = 'C:\data'", "warning", r"write \\d for a backslash, or take it out"),
        (r"v LIKE 'C:\data%'", "warning", r"write \\\\d for a backslash, or take it out"),
        (r"v LIKE 'C:\\data%'", "error", r"write \\\\ for one backslash of the text, or use RLIKE"),
        (r"v ILIKE ANY ('a%', 'b\\')", "error", r"write \\\\ for one backslash of the text, or use RLIKE"),
        (r"regexp_replace(v, '(\d)', '<\1>')", "warning", "write $1 for the group"),
    ],
)
def test_what_spark_drops_or_refuses_is_told_with_the_form_that_works(text: str, severity: str, remedy: str) -> None:
    (fault,) = backslash_faults(text)
    assert (fault.code, fault.severity, fault.remedy) == ("sql-backslash", severity, remedy)
    assert text[fault.offset] in "'\\"


@pytest.mark.parametrize("text", [r"v RLIKE '\d'", r"v LIKE '50\%'", r"v LIKE 'a\\b' ESCAPE '!'", r"v = '\n\\d\''", r"v = r'\d'"])
def test_good_backslashes_are_left_alone(text: str) -> None:
    assert list(backslash_faults(text)) == []
    assert re.search(r"\\", text)


@pytest.mark.parametrize(
    ("text", "letter", "remedy"),
    [
        ("to_timestamp(t, 'EEE MMM dd HH:mm:ss Z yyyy')", "E", "to_timestamp(substring(TEXT, 5), 'MMM dd HH:mm:ss Z yyyy')"),
        ("try_to_timestamp(t, 'EEE, dd MMM yyyy HH:mm:ss Z')", "E", "try_to_timestamp(substring(TEXT, 6), 'dd MMM yyyy HH:mm:ss Z')"),
        ("to_date(t, 'yyyy-MM-dd EEEE')", "E", "regexp_replace"),
        ("to_date(t, 'YYYY-MM-dd')", "Y", "single quotes"),
        ("unix_timestamp(concat(t, 'EEE'), 'u')", "u", "single quotes"),
        ('date_format(t, "yyyy-ww")', "w", "single quotes"),
    ],
)
def test_a_pattern_of_times_that_spark_refuses_is_told_with_one_that_works(text: str, letter: str, remedy: str) -> None:
    (fault,) = time_faults(text)
    assert (fault.code, fault.severity) == ("sql-time-pattern", "error")
    assert f"the pattern letter {letter} in" in fault.message
    assert remedy in fault.remedy
    assert text[fault.offset] in "'\""


@pytest.mark.parametrize(
    "text",
    ["to_timestamp(t, \"yyyy-MM-dd'T'HH:mm:ss.SSSX\")", "date_format(t, 'EEE QQQ')", "to_date(t)", "concat(t, 'EEE')", "to_date(t, p)"],
)
def test_good_patterns_of_times_are_left_alone(text: str) -> None:
    assert list(time_faults(text)) == []
