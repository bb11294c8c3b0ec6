"""Flows that are cut into tiers: they run in one process, or each tier in its own, and give what the same flow gives in one piece."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.errors import InputError, Refused
from scribengin.local.audit import audit_flow
from scribengin.local.contract import RunResult, RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow, run_flows
from scribengin.local.spark_analysis import deep_problems
from scribengin.spark.user_code import pack
from scribengin.state.columns import ColumnsAcceptance

if TYPE_CHECKING:
    from scribengin.local.contract import RunView
    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: chain
sources:
  numbers: {type: files, path: data, format: json, schema: "n BIGINT, word STRING"}
steps:
  small: {from: numbers, filter: n < 900}
  doubled: {from: small, python: "steps:twice"}
  sizes: {from: doubled, route: {big: n > 400, otherwise: low}}
  all: {from: [sizes.big, sizes.low], merge: {how: union, origin: came}}
sinks:
  kept: {from: all, type: files, path: out/kept, format: json}
"""
CUTS = {
    "three tiers": "tiers: {near: {steps: [small]}, mid: {steps: [doubled, sizes]}, far: {steps: [all, kept]}}",
    "a tier of sinks alone": "tiers: {near: {steps: [small, doubled, sizes, all]}, far: {steps: [kept]}}",
    "a source in a tier of its own": "tiers: {near: {steps: [numbers]}, far: {steps: [small, doubled, sizes, all, kept]}}",
    "two branches in one channel": """tiers: {near: {steps: [small, doubled, sizes]}, far: {steps: [all, kept]}}
edges:
  "sizes.big -> all": {channel: {type: folder, path: shared}}
  "sizes.low -> all": {channel: {type: folder, path: shared}}
""",
}


def given(folder: FlowFolder, text: str) -> None:
    folder.flow(text)
    folder.steps("def twice(row):\n    return [row, {**row, 'n': row['n'] + 1}]\n")
    lines: list[dict[str, Any] | str] = [{"n": n, "word": f"w{n}"} for n in range(1000)]
    folder.data("data/a.jsonl", [*lines[:500], "{broken"])
    folder.data("data/b.jsonl", lines[500:])


def rows(folder: FlowFolder) -> list[tuple[Any, ...]]:
    return sorted((row["n"], row["word"], row["came"]) for row in folder.read("out/kept"))


def expected() -> list[tuple[Any, ...]]:
    made = [(n + more, f"w{n}") for n in range(900) for more in (0, 1)]
    return sorted((n, word, "sizes_big" if n > 400 else "sizes_low") for n, word in made)


def balanced(folder: FlowFolder) -> bool:
    audit = audit_flow(prepare(folder.path / "flow.yaml", state=None))
    assert [text for report in audit.reports for text in report.violations] == []
    return audit.balanced


@pytest.mark.parametrize("cut", ["", *CUTS.values()], ids=["in one piece", *CUTS])
def test_the_same_rows_come_out_however_a_flow_is_cut(folder: FlowFolder, cut: str) -> None:
    given(folder, FLOW + cut)
    result = folder.run()
    assert [(query.name, query.error) for query in result.queries if query.error] == []
    assert result.violations == ()
    assert rows(folder) == expected()
    assert sum(query.rows.dead for query in result.queries) == 1
    assert balanced(folder)


def test_tiers_run_one_by_one_as_well(folder: FlowFolder) -> None:
    given(folder, FLOW + CUTS["three tiers"])
    for tier in ("near", "mid", "far", "mid", "far"):
        result = folder.run(tier=tier)
        assert {query.view.tier for query in result.queries if query.view is not None} <= {tier, ""}
        assert result.state == "finished"
    assert rows(folder) == expected()
    assert balanced(folder)


def test_a_tier_that_was_never_fed_says_so(folder: FlowFolder) -> None:
    given(
        folder,
        (FLOW + CUTS["three tiers"]).replace(
            "filter: n < 900", 'sql: "SELECT transform(array(n), x -> x)[0] AS n, word FROM numbers WHERE n < 900"'
        ),
    )
    with pytest.raises(Exception, match="start its upstream tier once"):
        folder.run(tier="far")


def test_an_unknown_tier_is_refused_with_those_that_are_there(folder: FlowFolder) -> None:
    given(folder, FLOW + CUTS["three tiers"])
    with pytest.raises(Refused, match='has no tier "mide"') as refused:
        folder.run(tier="mide")
    assert "mid" in refused.value.remedy


def test_what_comes_later_goes_through_all_tiers_once(folder: FlowFolder) -> None:
    given(folder, FLOW + CUTS["three tiers"])
    folder.run()
    folder.data("data/c.jsonl", [{"n": 1, "word": "again"}])
    folder.run()
    assert rows(folder) == sorted([*expected(), (1, "again", "sizes_low"), (2, "again", "sizes_low")])
    assert balanced(folder)


def test_a_stop_ends_all_tiers(folder: FlowFolder) -> None:
    given(folder, FLOW + CUTS["three tiers"])
    stop = threading.Event()
    result = folder.run(lambda view: stop.set() if any(query.rows_out for query in view.queries) else None, stop=stop)
    assert result.state == "stopped"
    folder.run()
    assert rows(folder) == expected()


FIRST = """
version: 1
name: first
sources: {numbers: {type: files, path: data, format: json, schema: "n BIGINT, word STRING"}}
steps: {small: {from: numbers, filter: n < 10}}
sinks: {kept: {from: small, type: files, path: between, format: json}}
"""
SECOND = """
version: 1
name: second
sources: {numbers: {type: files, path: between, format: json, schema: "n BIGINT, word STRING"}}
steps: {even: {from: numbers, filter: n % 2 = 0}}
sinks: {kept: {from: even, type: files, path: out/kept, format: json}}
"""


def side_by_side(folder: FlowFolder, *texts: str) -> Any:
    for index, text in enumerate(texts):
        (folder.path / f"{index}.yaml").write_text(text)
    (folder.path / "between").mkdir(exist_ok=True)
    folder.data("data/a.jsonl", [{"n": n, "word": f"w{n}"} for n in range(100)])
    paths = [folder.path / f"{index}.yaml" for index in range(len(texts))]
    return run_flows(paths, RunSettings(once=True), lambda _: None, spark=folder.spark)


@pytest.mark.parametrize("texts", [(FIRST, SECOND), (SECOND, FIRST)], ids=["feeder first", "feeder last"])
def test_a_flow_that_another_one_feeds_ends_behind_it(folder: FlowFolder, texts: tuple[str, str]) -> None:
    result = side_by_side(folder, *texts)
    assert result.state == "finished"
    assert {query.name for query in result.queries} == {"first.kept", "second.kept"}
    assert [row["n"] for row in folder.read("out/kept")] == [0, 2, 4, 6, 8]


def test_flows_that_feed_each_other_in_a_circle_are_told_with_the_way(folder: FlowFolder) -> None:
    with pytest.raises(InputError) as told:
        side_by_side(folder, FIRST, SECOND.replace("out/kept", "data"))
    (problem,) = told.value.problems
    assert problem.code == "flows-circle"
    assert "first.kept -> second.numbers, second.kept -> first.numbers" in problem.message


def test_a_tier_in_two_files_is_refused(folder: FlowFolder) -> None:
    with pytest.raises(Refused, match='tier "main" of flow "first" is defined in two files'):
        side_by_side(folder, FIRST, FIRST)


GROWS = """
version: 1
name: grows
sources:
  numbers: {type: files, path: data, format: json, settle: 0s, schema: "n BIGINT, word STRING"}
steps:
  chosen: {from: numbers, select: [COLUMNS]}
sinks:
  kept: {from: chosen, type: files, path: out/kept, format: json}
tiers: {near: {steps: [numbers, chosen]}, far: {steps: [kept]}}
"""


def test_a_reader_that_runs_takes_no_row_without_a_column_that_its_feeder_has_added(folder: FlowFolder) -> None:
    folder.flow(GROWS.replace("COLUMNS", "n")).data("data/a.jsonl", [{"n": 1, "word": "one"}])
    assert folder.run(tier="near").state == "finished"
    stop, results, seen = threading.Event(), list[RunResult](), threading.Event()

    def watch(view: RunView) -> None:
        if any(query.batches for query in view.queries):
            seen.set()

    settings = RunSettings(tier="far", stop=stop)
    reader = threading.Thread(target=lambda: results.append(run_flow(folder.path / "flow.yaml", settings, watch, spark=folder.spark)))
    reader.start()
    try:
        assert seen.wait(120), "the first row"
        folder.flow(GROWS.replace("COLUMNS", "n, word")).data("data/b.jsonl", [{"n": 2, "word": "two"}])
        assert folder.run(tier="near").state == "finished"
        reader.join(120)
    finally:
        stop.set()
        reader.join()
    assert [(problem.code, "word STRING" in problem.message) for problem in results[0].problems] == [("channel-columns", True)]
    assert [row["n"] for row in folder.read("out/kept")] == [1]
    assert folder.run(tier="far", word=ColumnsAcceptance("now", "me")).state == "finished"
    assert folder.read("out/kept") == [{"n": 1}, {"n": 2, "word": "two"}]


@pytest.mark.parametrize("ran", [False, True])
def test_a_check_of_the_steps_knows_the_columns_between_tiers_and_leaves_the_state_as_it_is(folder: FlowFolder, ran: bool) -> None:
    text = GROWS.replace("select: [COLUMNS]", 'sql: "SELECT COLUMNS FROM numbers"')
    folder.flow(text.replace("COLUMNS", "n")).data("data/a.jsonl", [{"n": 1, "word": "one"}])
    if ran:
        assert folder.run(tier="near").state == "finished"
    channels = folder.path / ".scribengin" / "grows" / "channels"
    before = {path: path.read_bytes() for path in channels.rglob("*.json")}
    assert bool(before) == ran
    folder.flow(text.replace("COLUMNS", "n, n + 1 AS added"))
    prepared = prepare(folder.path / "flow.yaml", state=None)
    found, problems = deep_problems(folder.spark, prepared, pack(prepared.plan.flow.code_folder, prepared.here))
    assert problems == []
    (read,) = found.tiers[1].plan.flow.sources.values()
    assert read.schema is not None
    assert str(read.schema.fields) == "n BIGINT, added BIGINT"
    assert {path: path.read_bytes() for path in channels.rglob("*.json")} == before
