"""Whether units commit one by one is agreed on before anything runs, by all drivers of a lineage."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from scribengin.connectors.contract import BatchId, SourceStream
from scribengin.core.errors import Refused, StateError
from scribengin.core.types import parse_schema
from scribengin.plan.stages import portable
from scribengin.spark.compiled_query import Compiled, Tail
from scribengin.spark.program import Program, StreamsEntry, VectorNode
from scribengin.spark.task_report import TaskReport
from scribengin.spark.unit_commits import OtherIntent, UnitCommits, _stays_in_its_task, plan_of
from scribengin.state.contract import Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.intents import Intents
from scribengin.vector.engine import VectorStep

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.connectors.contract import UnitSink

BATCH = BatchId("f", "q", "l", 0, 1)
ONE, TWO = (SourceRange("a", 0, 1),), (SourceRange("a", 0, 2),)
STREAMS = {"a": (SourceStream("a-0", {}, rows=10), SourceStream("a-1", {}, rows=10))}


class _Sink:
    units = 32


@pytest.fixture
def commits(tmp_path: Path) -> UnitCommits:
    sink = cast("UnitSink", _Sink())
    parts = SimpleNamespace(query=SimpleNamespace(fingerprint="plan", in_tail=("some",)))
    return UnitCommits(cast("Any", parts), Intents(tmp_path / "intents"), Decisions(tmp_path / "decisions"), 2, sink)


def compiled(*, python_before_native: bool = False) -> Compiled:
    program = Program(0, StreamsEntry({}), (), cast("Any", None), cast("Any", None))
    return Compiled((Tail(cast("Any", None), program),), (), {}, (), python_before_native)


def vectored(predicate: str) -> Compiled:
    schema = parse_schema("n BIGINT")
    step = VectorStep("some", schema, portable(predicate, schema, test=True))
    program = replace(compiled().tails[0].program, nodes=(VectorNode("some", ("a",), "some", (step,), schema),))
    return replace(compiled(), tails=(Tail(cast("Any", None), program),))


def test_what_was_agreed_on_is_found_again(commits: UnitCommits) -> None:
    intent = commits.agreed(compiled(), BATCH, ONE, STREAMS)
    assert (intent.units, intent.sources) == (2, ONE)
    assert commits.agreed(compiled(), replace(BATCH, term=2), ONE, STREAMS) == intent
    assert commits.begun(0) == ONE


def test_a_driver_that_reads_more_under_the_same_number_is_told_what_the_other_reads(commits: UnitCommits) -> None:
    commits.agreed(compiled(), BATCH, ONE, STREAMS)
    with pytest.raises(OtherIntent) as other:
        commits.agreed(compiled(), BATCH, TWO, STREAMS)
    assert other.value.sources == ONE


def test_streams_that_changed_under_a_batch_that_has_begun_stop_it(commits: UnitCommits) -> None:
    commits.agreed(compiled(), BATCH, ONE, STREAMS)
    with pytest.raises(StateError, match="with streams that differ"):
        commits.agreed(compiled(), BATCH, ONE, {"a": STREAMS["a"][:1]})


def test_a_batch_goes_on_with_streams_that_have_lost_some_of_what_they_had(commits: UnitCommits) -> None:
    begun = commits.agreed(compiled(), BATCH, ONE, STREAMS)
    less = {"a": (replace(STREAMS["a"][0], rows=3), STREAMS["a"][1])}
    with pytest.raises(StateError, match="with streams that differ"):
        commits.agreed(compiled(), BATCH, ONE, less)
    assert commits.agreed(compiled(), BATCH, ONE, less, lost=True) == begun
    with pytest.raises(StateError, match="with streams that differ"):
        commits.agreed(compiled(), BATCH, ONE, {"a": less["a"][:1]}, lost=True)


def test_a_batch_that_commits_as_a_whole_may_find_other_streams(commits: UnitCommits) -> None:
    begun = commits.agreed(compiled(python_before_native=True), BATCH, ONE, STREAMS)
    assert begun.units == 0
    assert commits.agreed(compiled(python_before_native=True), BATCH, ONE, {"a": STREAMS["a"][:1]}) == begun


def test_a_batch_that_was_decided_meanwhile_is_not_begun_again(commits: UnitCommits) -> None:
    commits.agreed(compiled(), BATCH, ONE, STREAMS)
    commits.decisions.decide(Decision(BATCH, "h", "p", ONE, ()))
    commits.drop(1)
    with pytest.raises(StateError, match="decided by another driver"):
        commits.agreed(compiled(), BATCH, TWO, STREAMS)


def test_a_changed_flow_may_finish_whole_what_began_whole_and_by_units_only_what_began_so(commits: UnitCommits) -> None:
    whole = commits.agreed(compiled(python_before_native=True), BATCH, ONE, STREAMS)
    assert whole.units == 0
    assert commits.agreed(compiled(), BATCH, ONE, STREAMS) == whole
    second = replace(BATCH, number=1)
    assert commits.agreed(compiled(), second, ONE, STREAMS).units == 2
    with pytest.raises(Refused, match="has started to commit its task outputs one by one") as refused:
        commits.agreed(compiled(python_before_native=True), second, ONE, STREAMS)
    assert "run --once" in refused.value.remedy


@pytest.mark.parametrize("units", [2, 0])
def test_a_query_whose_units_cannot_any_more_does_not_run_a_batch_over_what_some_have_committed(commits: UnitCommits, units: int) -> None:
    assert commits.agreed(compiled(python_before_native=not units), BATCH, ONE, STREAMS).units == units
    query = SimpleNamespace(name="q", stateful=False)
    parts = cast("Any", SimpleNamespace(query=query, sinks={"kept": object(), "beside": object()}))
    if units:
        with pytest.raises(Refused, match="query q: batch 0 has started to commit its task outputs one by one"):
            UnitCommits.of(parts, commits.intents, commits.decisions, 2)
        commits.decisions.decide(Decision(BATCH, "h", "p", ONE, ()))
    assert UnitCommits.of(parts, commits.intents, commits.decisions, 2) is None


@pytest.mark.parametrize(
    ("streams", "rows", "units"),
    [(4, 10, 4), (5, 10, 0), (5, 10_000, 5), (33, 1_000_000, 0)],
    ids=["two a core", "many small ones", "many large ones", "more than slots"],
)
def test_units_pay_where_they_are_few_or_large(commits: UnitCommits, streams: int, rows: int, units: int) -> None:
    given = {"a": tuple(SourceStream(f"a-{index}", {}, rows=rows) for index in range(streams))}
    assert commits.agreed(compiled(), BATCH, ONE, given).units == units


def test_a_decision_over_units_of_two_plans_names_both(commits: UnitCommits) -> None:
    intent = commits.agreed(compiled(), BATCH, ONE, STREAMS)
    assert plan_of("plan", intent) == plan_of("plan", None) == "plan"
    assert plan_of("edited", intent) == "plan+edited"
    assert plan_of("edited", replace(intent, units=0)) == "edited"
    assert plan_of("plan", intent, [TaskReport(plan="plan"), TaskReport()]) == "plan"
    assert plan_of("plan", intent, [TaskReport(plan="plan"), TaskReport(plan="edited")]) == "plan+edited", "edited, and back"


def test_units_whose_sources_change_places_are_refused(commits: UnitCommits) -> None:
    streams = {"a": STREAMS["a"][:1], "b": STREAMS["a"][1:]}

    def read_in_order(*sources: str) -> Compiled:
        program = replace(compiled().tails[0].program, entry=StreamsEntry({}, tuple((source, 0) for source in sources)))
        return Compiled((Tail(cast("Any", None), program),), (), {})

    ranges = (SourceRange("a", 0, 1), SourceRange("b", 0, 1))
    assert commits.agreed(read_in_order("a", "b"), BATCH, ranges, streams).order == ("a", "b")
    with pytest.raises(Refused, match="no longer has these"):
        commits.agreed(read_in_order("b", "a"), BATCH, ranges, streams)


def test_units_do_not_commit_one_by_one_where_the_vector_engine_may_be_unsure(commits: UnitCommits) -> None:
    assert commits.agreed(vectored("n + 1 > 3"), BATCH, ONE, STREAMS).units == 0
    assert commits.agreed(vectored("n > 3"), replace(BATCH, number=1), ONE, STREAMS).units == 2


@pytest.mark.parametrize("in_tail", [True, False])
def test_the_engine_that_has_begun_a_batch_unit_by_unit_runs_it_to_its_end(commits: UnitCommits, in_tail: bool) -> None:
    mine, other = (vectored("n > 3"), compiled()) if in_tail else (compiled(), vectored("n > 3"))
    begun = commits.agreed(mine, BATCH, ONE, STREAMS)
    assert (begun.units, commits.in_tail(0)) == (2, in_tail)
    with pytest.raises(OtherIntent):
        commits.agreed(other, BATCH, ONE, STREAMS)
    assert commits.agreed(mine, BATCH, ONE, STREAMS) == begun


def test_either_engine_may_run_a_batch_again_that_commits_as_a_whole(commits: UnitCommits) -> None:
    begun = commits.agreed(vectored("n + 1 > 3"), BATCH, ONE, STREAMS)
    assert commits.in_tail(0) is None
    assert commits.agreed(compiled(), BATCH, ONE, STREAMS) == begun


def test_units_of_the_vector_engine_are_refused_where_the_flow_was_changed_so_that_spark_runs_it(commits: UnitCommits) -> None:
    commits.agreed(vectored("n > 3"), BATCH, ONE, STREAMS)
    commits.parts.query.in_tail = ()  # type: ignore[misc]
    with pytest.raises(Refused, match="has started to commit its task outputs one by one"):
        commits.agreed(compiled(), BATCH, ONE, STREAMS)


def test_rows_stay_in_the_task_of_their_stream_in_narrow_plans_only(spark: SparkSession) -> None:
    rows, table = spark.range(0, 9, 1, 3), spark.range(0, 9, 1, 3)
    narrow = rows.where("id % 2 = 1").selectExpr("id", "explode(array(1, 2)) AS n")
    assert _stays_in_its_task(narrow)
    for wide in (
        narrow.distinct(),
        narrow.unionByName(narrow),
        narrow.join(table, "id"),
        narrow.join(table.hint("broadcast"), "id"),
        narrow.where("rand() < 0.5"),
        narrow.where("id IN (SELECT max(id) FROM range(3))"),
        narrow.coalesce(1),
        narrow.limit(2),
        narrow.orderBy("id"),
    ):
        assert not _stays_in_its_task(wide), wide._jdf.queryExecution().executedPlan().toString()
