"""`max_delay` and `alerts`: what is read, and what is told of slips."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.spec.alerts import parse_condition
from scribengin.spec.fmt import format_text
from scribengin.spec.model import Alert, Condition

FLOW = """\
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: orders, type: files, path: out, format: json}}
max_delay: 5m
alerts:
"""


def alerts(parse: Any, *lines: str) -> Any:
    return parse(FLOW + "".join(f"  {line}\n" for line in lines))


def test_both_are_read_and_laid_out(parse: Any) -> None:
    lines = (
        "stuck: {when: No progress  for 5 m}",
        'loud: {when: "lag over 1,000 rows for 2m", webhook: "https://a.example/b", command: [notify, -x, -x, ""]}',
    )
    parsed = alerts(parse, *lines)
    assert parsed.problems == ()
    assert parsed.flow.max_delay_s == 300.0
    assert parsed.flow.alerts == {
        "stuck": Alert("stuck", Condition("progress", 0.0, 300.0)),
        "loud": Alert("loud", Condition("lag_rows", 1000.0, 120.0), "https://a.example/b", ("notify", "-x", "-x", "")),
    }
    assert parse(format_text(FLOW + "".join(f"  {line}\n" for line in lines))).flow == parsed.flow


@pytest.mark.parametrize(
    ("line", "code", "remedy"),
    [
        ("a: {when: no progres for 5m}", "alert-when", "no progress for 5m"),
        ("a: {when: lag above 60s for 2m}", "alert-when", "lag over 60s for 2m"),
        ("a: {when: restarts over 3}", "alert-when", "restarts over 3 in 10m"),
        ("a: {when: lag over 5 apples for 2m}", "alert-when", "lag over"),
        ("a: {when: no progress for 5}", "alert-when", "no progress for 5m"),
        ("a: {when: no progress for 30d}", "alert-when", "fourteen days|between the two"),
        ("a: {when: no progress for 5m, webhok: x}", "unknown-key", "webhook"),
        ("a: {when: no progress for 5m, webhook: a.example}", "bad-value", "https://HOST/PATH"),
        ("a: {when: no progress for 5m, command: []}", "wrong-kind", "notify"),
        ('a: {when: no progress for 5m, webhook: "${secret:env/HOME}"}', "secret-misplaced", "secret"),
        ("a: {webhook: https://a.example}", "missing-key", "add when: no progress for 5m"),
        ("A: {when: no progress for 5m}", "bad-name", '"a"'),
    ],
)
def test_a_slip_is_told_where_it_stands_with_what_is_meant(line: str, code: str, remedy: str, parse: Any) -> None:
    parsed = parse(f"{FLOW}  {line}\n", environment={"HOME": "/home"})
    (problem,) = parsed.problems
    assert problem.code == code
    assert problem.place.line == 7
    assert any(word in f"{problem.message}; {problem.remedy}" for word in remedy.split("|")), problem


def test_an_unknown_condition_never_fires_by_accident() -> None:
    with pytest.raises(ValueError, match="is not a valid alert condition"):
        parse_condition("the moon is full")
