"""A value that SQL cannot take costs its record, not the Batch; where no record can be named the Query fails with a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: casts
sources:
  words: {type: files, path: data, format: json, schema: "word STRING, ts TIMESTAMP", watermark: ts 1m}
steps:
  routed: {from: words, route: {zeros: word LIKE '0%', otherwise: rest}}
  number: {from: routed.rest, select: {n: CAST(word AS BIGINT), ts: ts}}
  share:  {from: number, sql: "SELECT 100 / (n - 7) AS part, n FROM number"}
sinks:
  kept: {from: share, type: files, path: out, format: json}
"""
TIME = {"ts": "2026-01-01T00:00:00Z"}


def test_records_in_several_files_are_found_behind_a_route_and_blamed_on_their_step(folder: FlowFolder) -> None:
    folder.flow(FLOW)
    for name in "abc":
        words = [{"word": str(n) if n % 20 else "0x", **TIME} for n in range(50)]
        words[30]["word"] = f"{name}?"
        if name != "c":
            words[7]["word"] = "8"
        folder.data(f"data/{name}.jsonl", words)
    result = ran(folder)

    assert len(folder.read("out")) == 150 - 9 - 4
    found = [(letter.step, letter.reason, letter.file[-7:], letter.line) for letter in letters(folder, "casts", "kept")]
    assert sorted(found) == [
        ("number", "sql-error", "a.jsonl", 31),
        ("number", "sql-error", "b.jsonl", 31),
        ("number", "sql-error", "c.jsonl", 31),
        ("share", "sql-error", "c.jsonl", 8),
    ]
    assert result.queries[0].rows.dead == 4


def test_on_error_fail_names_the_record_and_publishes_nothing(folder: FlowFolder) -> None:
    folder.flow(FLOW.replace("n: CAST(word AS BIGINT), ts: ts}}", "n: CAST(word AS BIGINT), ts: ts}, on_error: fail}"))
    folder.data("data/a.jsonl", [{"word": word, **TIME} for word in ("1", "two", "3")])
    result = folder.run()

    assert result.state == "failed"
    assert "a.jsonl:2: [CAST_INVALID_INPUT]" in result.queries[0].error
    assert "try_cast" in result.queries[0].remedy
    assert result.problems[-1].place.line == 8
    assert folder.read("out") == []


def test_before_a_step_with_state_the_query_fails_with_the_remedy(folder: FlowFolder) -> None:
    folder.flow(
        FLOW.replace(
            'sql: "SELECT 100 / (n - 7) AS part, n FROM number"', "aggregate: {window: {time: ts, size: 1h}, columns: {n: sum(n)}}"
        )
    )
    folder.data("data/a.jsonl", [{"word": word, **TIME} for word in ("1", "two", "3")])
    result = folder.run()

    assert result.state == "failed"
    assert "'two'" in result.queries[0].error
    assert "try_cast" in result.queries[0].remedy
