from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from scribengin.core.errors import InputError
from scribengin.flow_tests.from_run import add_test
from scribengin.flow_tests.play import NoCrashError, expect_death
from scribengin.flow_tests.report import outcome_text, write_junit
from scribengin.flow_tests.suite import read_suite, run_suites
from scribengin.flow_tests.update import rewrites
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow as run_local
from scribengin.spec.flow_tests import Crash
from scribengin.testing import run_flow
from tests.flow_tests.shop_flow import ORDERS, ORDERS_LINES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.flow_tests.session import LazySpark
    from tests.flow_tests.conftest import Shop

ROOT = Path(__file__).parents[2]
ADA = '{id: 1, user: ada, amount: 5, at: "2026-01-01T00:10:00Z"}'


def test_rows_are_compared_by_their_types_and_windows_close_as_batches_go_by(shop: Shop) -> None:
    outcome = shop.only(
        f"""  - name: an hour is counted when the next but one has begun
    given:
      orders:
        batches:
          - [{ADA}, {ADA}]
          - [{{id: 2, user: bob, amount: "7.50", at: "2026-01-01T03:00:00+01:00"}}, {{id: 3, amount: -1}}]
          - [{{id: 4, user: eve, amount: 1, at: "2026-01-01T00:20:00Z"}}, {{id: 5, user: zoe, amount: 1, at: "2026-01-01T04:00:00Z"}}]
          - [{{id: 6, amount: 2}}, '{{"id": 7']
    expect:
      kept: {{contains: [{{id: 1, amount: 5.0}}, {{id: 1, user: ADA}}, {{user: BOB, amount: 7.5, at: "2026-01-01T02:00:00Z"}}]}}
      counts: [{{n: 2, window_start: "2026-01-01T00:00:00Z"}}, {{n: 1}}]
      dead: {{paid: [{{reason: require, record: '{{"id":6,"user":null,"amount":2.00,"at":null}}'}}], orders: [{{message: truncated JSON}}],
             hourly: [{{reason: late}}]}}
"""
    )
    assert outcome_text(outcome) == "", outcome_text(outcome)
    assert outcome.result is not None
    assert outcome.result.ledger["hourly"].late_dead == 1
    assert outcome.result["kept"][0] == {"id": 1, "user": "ADA", "amount": Decimal("5.00"), "at": datetime(2026, 1, 1, 0, 10, tzinfo=UTC)}


def test_a_difference_shows_rows_side_by_side_and_where_they_parted(shop: Shop) -> None:
    (wrong, right) = shop.run(
        f"""tests:
  - name: wrong
    given: {{orders: [{ADA}, {{id: 2, user: bob, amount: -3}}, "{{"]}}
    expect:
      kept: [{{id: 1, user: ada, amount: 5}}, {{id: 2, user: BOB, amount: -3}}]
  - name: right
    given: {{orders: [{ADA}]}}
    expect: {{kept: 1, counts: []}}
"""
    )
    assert right.passed
    kept, dead = wrong.differences
    assert [(pair.differ, pair.got is None) for pair in kept.pairs] == [(("user",), False), ((), True)]
    assert kept.parted == (
        '"user" of the found row is the output of step "marked" (steps:mark)',
        'row 2 of orders is the row most similar to the missing row; it reached "orders", and step "paid" (amount > 0) dropped it',
    )
    assert "1 that was not expected" in dead.what
    text = outcome_text(wrong)
    assert "paid: 2 in, 1 filtered, 1 out" in text
    assert "flow.yaml:21:13: sink kept: 2 expected rows are missing" in text
    report = shop.path / "report.xml"
    write_junit(report, [wrong, right])
    suite = ElementTree.parse(report).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")


def test_a_row_found_again_by_values_that_others_have_too_is_only_called_one_like_it(shop: Shop) -> None:
    flow = """version: 1
name: hits
sources:
  hits: {type: files, path: a, format: json, schema: "page STRING, status INT"}
steps:
  few: {from: hits, sql: "SELECT page FROM hits WHERE status > 200"}
  named: {from: few, filter: page <> 'a'}
sinks:
  good: {from: named, type: files, path: c, format: json}
"""
    outcome = shop.only(
        """  - name: one of two is lost in the SQL
    given: {hits: [{page: a, status: 200}, {page: a, status: 500}, {page: b, status: 500}]}
    expect: {good: [{page: a}, {page: b}]}
""",
        flow=flow,
    )
    (difference,) = outcome.differences
    assert difference.parted == (
        (
            'row 1 of hits is the row most similar to the missing row; a similar row reached "few", and step "named" (page <> \'a\') '
            "dropped it"
        ),
    )


def test_rows_are_followed_through_joins_branches_and_windows_that_are_open(shop: Shop) -> None:
    flow = """version: 1
name: hits
sources:
  hits: {type: files, path: a, format: json, schema: "at TIMESTAMP, page STRING, status INT", watermark: at 10m}
  owners: {type: files, path: b, format: json, schema: "page STRING, team STRING", static: true}
steps:
  owned: {from: [hits, owners], join: {key: [page], how: left}}
  kinds: {from: owned, route: {bad: status >= 500, otherwise: good}}
  known: {from: kinds.good, filter: team IS NOT NULL}
  hourly: {from: owned, aggregate: {window: {time: at, size: 1h}, columns: {n: count(*)}}}
sinks:
  good: {from: known, type: files, path: c, format: json}
  bad: {from: kinds.bad, type: files, path: d, format: json}
  counts: {from: hourly, type: files, path: e, format: json}
"""
    outcome = shop.only(
        """  - name: all is wrong
    given:
      owners: [{page: a, team: sales}]
      hits:
        batches:
          - - {at: "2026-01-01T00:10:00Z", page: a, status: 201}
            - {at: "2026-01-01T00:10:00Z", page: a, status: 500}
            - {at: "2026-01-01T09:10:00Z", page: b, status: 202}
          - [{at: "2026-01-01T00:11:00Z", page: a, status: 503}]
    expect:
      good: [{team: ops, status: 201}, {status: 500}, {status: 202, page: b}]
      bad: [{status: 500}]
      counts: [{n: 2}, {n: 1}]
      dead: {hourly: [{reason: late}]}
""",
        flow=flow,
    )
    parted = {difference.where: difference.parted for difference in outcome.differences}
    assert parted == {
        "sink good": (
            '"team" of the found row is as in row 1 of owners in Batch 1',
            'row 2 of hits in Batch 1 is the row most similar to the missing row; step "kinds" (bad: status >= 500) sent it to "kinds.bad"',
            'row 3 of hits in Batch 1 is the row most similar to the missing row; it reached "kinds", '
            'and step "known" (team IS NOT NULL) dropped it',
        ),
        "sink bad": ("row 1 of hits in Batch 2 is the row most similar to the found row; it went through owned, kinds",),
        "sink counts": (
            'step "hourly" treated 1 row as late: behind the watermark',
            'step "hourly" still holds 1 row: a window is written once the watermark has passed its end',
        ),
    }, outcome_text(outcome)


def test_order_counts_only_where_it_is_asked_for(shop: Shop) -> None:
    at = 'at: "2026-01-01T00:00:00Z"'
    given = f"given: {{orders: [{{id: 1, user: a, amount: 1, {at}}}, {{id: 2, user: b, amount: 1, {at}}}]}}"
    outcomes = shop.run(
        f"""tests:
  - {{name: any, {given}, expect: {{kept: [{{id: 2}}, {{id: 1}}]}}}}
  - {{name: right, {given}, expect: {{kept: {{rows: [{{id: 1}}, {{id: 2}}], ordered: true}}}}}}
  - {{name: wrong, {given}, expect: {{kept: {{rows: [{{id: 2}}, {{id: 1}}], ordered: true}}}}}}
"""
    )
    assert [outcome.passed for outcome in outcomes] == [True, True, False]
    assert "the order differs" in outcomes[2].differences[0].what
    assert outcomes[2].differences[0].parted == ()


def test_the_clock_of_a_test_rules_sql(shop: Shop) -> None:
    flow = "".join(line.replace("amount > 0", "at < now() - INTERVAL 1 HOUR") for line in ORDERS_LINES)
    outcome = shop.only(
        f"""  - name: what is an hour old goes through
    given: {{orders: {{batches: [[{ADA}], [{ADA}]]}}}}
    clock: ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"]
    expect: {{kept: [{{id: 1}}]}}
""",
        flow=flow,
    )
    assert outcome_text(outcome) == ""


def test_another_flow_goes_on_between_two_batches(shop: Shop) -> None:
    (shop.path / "next.yaml").write_text("".join(line.replace("amount > 0", "amount > 10") for line in ORDERS_LINES))
    outcomes = shop.run(
        f"""tests:
  - name: by a patch
    given: {{orders: {{batches: [[{ADA}], [{ADA}]]}}}}
    changed: {{before: batch 2, patch: {{steps: {{paid: {{filter: amount > 10}}}}}}}}
    expect: {{kept: 1}}
  - name: by a file
    given: {{orders: {{batches: [[{ADA}], [{ADA}]]}}}}
    changed: {{before: batch 2, flow: next.yaml}}
    expect: {{kept: 1}}
  - name: what cannot go on is told
    given: {{orders: {{batches: [[{ADA}], [{ADA}]]}}}}
    changed: {{before: batch 2, patch: {{steps: {{hourly: {{aggregate: {{window: {{size: 2h}}}}}}}}}}}}
    expect: {{kept: 2}}
"""
    )
    assert [outcome.passed for outcome in outcomes] == [True, True, False]
    assert outcomes[2].problems


@pytest.mark.long
def test_what_came_becomes_what_is_expected_and_comments_stay(shop: Shop) -> None:
    file = shop.flow(
        f"""tests:
  # the first
  - name: first  # a remark
    given: {{orders: [{ADA}, "{{"]}}
    expect: {{kept: [{{id: 9}}], counts: []}}  # kept

  - name: second
    given: {{orders: [{ADA}]}}
    expect:
      # what stays
      kept:
        - {{id: 3, user: x}}
      counts: 0
# the end
"""
    )
    suite = read_suite(file)
    outcomes = run_suites([suite], shop.session, watch=lambda _: None)
    (rewrite,) = rewrites(list(zip(suite.tests, outcomes, strict=True)))
    rewrite.write()
    after = file.read_text()
    assert after.endswith(
        f"""tests:
  # the first
  - name: first  # a remark
    given: {{orders: [{ADA}, "{{"]}}
    expect: {{kept: [{{id: 1}}], counts: [], dead: {{orders: 1}}}}  # kept

  - name: second
    given: {{orders: [{ADA}]}}
    expect:
      # what stays
      kept: [{{id: 1, user: ADA}}]
      counts: 0
# the end
"""
    )
    assert all(outcome.passed for outcome in run_suites([read_suite(file)], shop.session, watch=lambda _: None))


def test_every_format_is_written_as_its_source_reads_it(shop: Shop) -> None:
    schema = '"id BIGINT, who STRING, sum DECIMAL(5,2), real DOUBLE, tags ARRAY<STRING>, by MAP<STRING, BIGINT>, at TIMESTAMP"'
    whole = '{id: 1, who: "a,\\"b", sum: 1.5, real: NaN, tags: [x, null], by: {k: 3}, at: "2026-01-01T00:00:00.000001Z"}'
    for format_ in ("json", "csv", "parquet"):
        flow = f"""version: 1
name: form
sources: {{s: {{type: files, path: nowhere, format: {format_}, schema: {schema}}}}}
sinks: {{k: {{from: s, type: files, path: away, format: {format_}, partition_by: [id, who]}}}}
"""
        row = whole if format_ == "parquet" else whole.replace("NaN", "1e300")
        given = row if format_ != "csv" else row.replace("tags: [x, null], by: {k: 3}, ", "")
        text = f"  - {{name: {format_}, given: {{s: [{given}, {{id: 2}}]}}, expect: {{k: [{{id: 2}}, {given}]}}}}\n"
        outcome = shop.only(text, flow=flow if format_ != "csv" else flow.replace("tags ARRAY<STRING>, by MAP<STRING, BIGINT>, ", ""))
        assert outcome_text(outcome) == "", format_


def test_a_flow_over_kafka_is_tested_without_a_broker(shop: Shop) -> None:
    flow = """version: 1
name: form
sources:
  s: {type: kafka, bootstrap: "nowhere:9", topics: [a], format: json, schema: "id BIGINT, k STRING", metadata: {k: key}}
  t: {type: kafka, bootstrap: "nowhere:9", topics: [b], format: csv, schema: "id BIGINT, k STRING"}
  u: {type: sequence, rows: 3}
steps: {n: {from: u, select: [id, "'u' AS k"]}}
sinks: {k: {from: [s, t, n], type: kafka, bootstrap: "nowhere:9", topic: c, format: json}}
"""
    given = "{s: [{id: 1, k: x}], t: ['2,y']}"
    test = f"  - {{name: a, given: {given}, expect: {{k: [{{id: 1, k: x}}, {{id: 2, k: y}}, {{k: u}}, {{k: u}}, {{k: u, id: 2}}]}}}}\n"
    assert outcome_text(shop.only(test, flow=flow)) == ""


def test_the_process_that_crashes_is_followed_by_another_with_the_same_result(shop: Shop) -> None:
    outcome = shop.only(
        f"""  - name: it dies in the second Batch
    given: {{orders: {{batches: [[{ADA}], [{ADA}, {{id: 2, user: bob, amount: 1, at: "2026-01-01T03:00:00Z"}}]]}}}}
    crash_after: batch 2
    clock: ["2026-02-01", "2026-02-02"]
    expect: {{kept: 3, counts: [{{n: 2}}]}}
""",
        flow=ORDERS.replace("count(*)", "count_if(at < now())"),
    )
    assert outcome_text(outcome) == ""


@pytest.mark.long
@pytest.mark.parametrize("point", ["staged", "published"])
def test_the_process_may_crash_at_other_points_of_the_batch(shop: Shop, point: str) -> None:
    outcome = shop.only(
        f"""  - name: it dies in the first Batch
    given: {{orders: {{batches: [[{ADA}, {ADA}], [{ADA}]]}}}}
    crash_after: batch 1 {point}
    expect: {{kept: 3, counts: []}}
"""
    )
    assert outcome_text(outcome) == ""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("pass", "finished without a Batch that was decided"),
        ("exit('no room')", "ended with status 1: no room"),
        ("import time; time.sleep(600)", "neither crashed nor finished within 1 s"),
    ],
)
def test_a_crash_that_never_comes_is_told(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(NoCrashError, match=said):
        expect_death([sys.executable, "-c", code], tmp_path / "log", Crash(1), limit_s=1 if "sleep" in code else 60)


def test_a_child_that_is_refused_says_why_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("version: 1\n")
    command = [
        sys.executable,
        "-m",
        "scribengin.flow_tests.child",
        *(str(tmp_path / name) for name in ("flow.yaml", "", "state", "f.yaml")),
        "",
    ]
    with pytest.raises(NoCrashError) as told:
        expect_death(command, tmp_path / "log", Crash(1))
    assert "no sources" in told.value.message or "`sources`" in told.value.message
    assert "Traceback" not in told.value.message


def test_a_test_of_real_rows_expects_what_came_of_them(shop: Shop) -> None:
    file = shop.flow("defaults: {trace: 1}\n")
    lines = [json.dumps({"id": number, "user": "ada", "amount": number - 3, "at": "2026-01-01T00:00:00Z"}) for number in range(9)]
    (shop.path / "nowhere").mkdir()
    (shop.path / "nowhere" / "a.jsonl").write_text("\n".join([*lines, "{", ""]))
    assert run_local(file, RunSettings(once=True), lambda _: None, spark=shop.session.spark).state == "finished"
    made = add_test(file, shop.path / ".scribengin", shop.session, rows=6)
    assert made.notes == ()
    (placed,) = read_suite(file).tests
    rows = placed.test.given["orders"][0].rows
    assert len(rows) == 6
    assert rows[-1] == "{"
    assert {row["id"] > 3 for row in rows[:-1] if not isinstance(row, str)} == {True, False}
    (outcome,) = run_suites([read_suite(file)], shop.session, watch=lambda _: None)
    assert outcome_text(outcome) == ""
    file.write_text(file.read_text().replace("amount > 0", "amount > 100"))
    again = add_test(file, shop.path / ".scribengin", shop.session, rows=6)
    assert again.name.endswith("(2)")
    assert "reached counts, kept in the run, but reaches no sink now" in again.notes[0] or "reached kept in the run" in again.notes[0]


def test_tests_in_files_beside_the_flow_are_found_and_checked(shop: Shop) -> None:
    file = shop.flow("tests: [tests/*.yaml, {name: inline, given: {orders: []}, expect: {kept: 0}}]\n")
    (shop.path / "tests").mkdir()
    (shop.path / "tests" / "a.yaml").write_text(
        "- {name: in a file, given: {orders: {files: some.jsonl}}, expect: {kept: {files: kept.jsonl}}}\n"
    )
    (shop.path / "flow.test.yaml").write_text("tests:\n  - {name: beside, expect: {kept: []}}\n")
    (shop.path / "some.jsonl").write_text('{"id": 1, "user": "ada", "amount": 5, "at": "2026-01-01T00:00:00Z"}\n')
    (shop.path / "kept.jsonl").write_text(json.dumps({"id": 1, "user": "ADA", "amount": 5, "at": "2026-01-01T00:00:00Z"}) + "\n")
    outcomes = run_suites([read_suite(file)], shop.session, watch=lambda _: None)
    assert [(outcome.name, outcome.passed) for outcome in outcomes] == [("inline", True), ("in a file", True), ("beside", True)]
    (shop.path / "flow.test.yaml").write_text("tests:\n  - {name: inline, given: {order: []}, expect: {}}\n")
    with pytest.raises(InputError) as wrong:
        read_suite(file)
    assert {problem.code for problem in wrong.value.problems} == {"test-node-unknown", "test-twice"}
    assert all(problem.place.line == 2 for problem in wrong.value.problems)


def test_a_flow_is_called_as_a_function(shop: Shop, spark: SparkSession) -> None:
    file = shop.flow("")
    ada = {"id": 1, "user": "ada", "amount": Decimal(5), "at": datetime(2026, 1, 1, tzinfo=UTC)}
    result = run_flow(file, {"orders": [[ada], [{**ada, "id": 2}, "{"]]}, spark=spark)
    assert [row["id"] for row in result["kept"]] == [1, 2]
    assert [(letter.step, letter.reason) for letter in result.dead] == [("orders", "malformed")]
    assert (result.state, result.balanced, result.ledger["orders"].dead) == ("finished", True, 1)
    with pytest.raises(InputError, match='did you mean "orders"'):
        run_flow(file, {"order": []}, spark=spark)
    with pytest.raises(InputError, match="amuont"):
        run_flow(file, {"orders": [{"amuont": 5}]}, spark=spark)
    with pytest.raises(ValueError, match="not in ascending order"):
        run_flow(file, clock=[datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)], spark=spark)


def test_the_tests_of_the_example_pass(session: LazySpark) -> None:
    outcomes = run_suites([read_suite(ROOT / "examples/tweets/flow.yaml")], session, watch=lambda _: None)
    assert [outcome_text(outcome) for outcome in outcomes] == [""] * 3
