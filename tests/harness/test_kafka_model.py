"""The Kafka sink's protocol keeps its promises in every state that it can reach; each rule that is broken breaks one."""

from collections import deque
from typing import Any

import pytest

from harness import kafka_model
from harness.kafka_model import MUTANTS, SPARE, story
from harness.kafka_steps import KafkaModel
from harness.model_search import FAULT, REPAIR, STEP, TooLarge, search

DOUBLED, LOST, ENDLESS = "readers see the rows of Batch 1", "goes on with a Receipt", "for ever"
BREAKS = {
    "read_before_fence": DOUBLED,
    "marker_before_transaction": LOST,
    "marker_after_transaction": DOUBLED,
    "one_session": DOUBLED,
    "readback_without_fence": DOUBLED,
    "lost_answer_is_no_commit": DOUBLED,
    "id_names_attempt": DOUBLED,
    "number_only": LOST,
    "foreign_marker_is_none": DOUBLED,
    "fenced_fences_again": ENDLESS,
    "high_watermark": LOST,
    "fence_overtakes_commit": DOUBLED,
    "old_epoch_accepted": DOUBLED,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("new_lineage", [False, True], ids=["one_lineage", "checkpoint_lost"])
def test_two_drivers_with_two_attempts_at_two_batches_neither_lose_nor_double_nor_hang(new_lineage: bool) -> None:
    model = KafkaModel(new_lineage=new_lineage)
    report = search(model, limit=50_000)
    assert not report.broken, "\n".join(story(model, report))
    assert report.states > 9_000, "the model has lost most of its states: some step is not taken any more"


def test_every_mutant_says_what_it_should_break() -> None:
    assert set(BREAKS) == set(MUTANTS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BREAKS)
def test_refuted(name: str) -> None:
    report = search(MUTANTS[name].model(name), limit=50_000)
    assert BREAKS[name] in report.broken


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BREAKS)
def test_the_right_protocol_holds_within_the_bound_that_refutes(name: str) -> None:
    assert not search(MUTANTS[name].model(""), limit=50_000).broken


def test_the_fence_of_an_opening_can_be_spared() -> None:
    assert not search(SPARE["opening_without_fence"].model("opening_without_fence"), limit=50_000).broken


@pytest.mark.timeout(300)
def test_a_fenced_attempt_that_fences_again_loses_and_doubles_nothing() -> None:
    model = KafkaModel(attempts=1, mutant="fenced_fences_again")
    assert not search(model, limit=50_000, liveness=False).broken


def seen(model: KafkaModel) -> set[Any]:
    """All that readers, markers and drivers can look like."""
    states = {model.initial()}
    todo = deque(states)
    while todo:
        for _, state in model.successors(todo.popleft()):
            assert not isinstance(state, str), state
            if state not in states:
                states.add(state)
                todo.append(state)
    return {(state.log, state.markers, state.transactions[0].ending, state.drivers) for state in states}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "bound",
    [
        pytest.param({"drivers": 2, "attempts": 2, "batches": 1}, marks=pytest.mark.long),
        pytest.param({"drivers": 2, "attempts": 1, "batches": 2}, marks=pytest.mark.long),
        {"drivers": 1, "attempts": 2, "batches": 2},
        {"drivers": 2, "attempts": 1, "batches": 2, "new_lineage": True},
    ],
    ids=str,
)
def test_the_reductions_hide_nothing(bound: dict[str, Any]) -> None:
    whole = seen(KafkaModel(**bound, merged=False, folded=False))
    assert seen(KafkaModel(**bound, merged=False, folded=True)) == whole
    assert seen(KafkaModel(**bound)) == whole


def codes(model: KafkaModel) -> set[str]:
    found, states = set(), {model.initial()}
    todo = deque(states)
    while todo:
        for (_, code, _), state in model.successors(todo.popleft()):
            found.add(code)
            if state not in states:
                states.add(state)
                todo.append(state)
    return found


USUAL = {"begins", "fences", "reads: write", "reads: done", "reads: stop", "gives up", "takes", "completes", "times out", "crashes"}
USUAL |= {f"{fate} {request}" for fate in ("arrives", "refused") for request in "RMC"} | {"answer lost"}
OPENING = {"opens", "opening fences", "opening reads", "opens again"}


@pytest.mark.timeout(300)
def test_everything_that_can_happen_does_happen_somewhere() -> None:
    assert codes(KafkaModel(attempts=1, merged=False)) == USUAL | {"driver restarts"}
    # where nobody shares a driver's decisions, dying and going on behind the last one is the same as sleeping
    assert codes(KafkaModel(attempts=1, merged=False, new_lineage=True)) == USUAL | OPENING


def test_a_counter_example_reads_as_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert kafka_model.main(["--mutant", "marker_before_transaction"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  1. A1a begins",
        "  2. A1a: init_transactions arrives; what was open is aborted, every older producer is fenced",
        "  3. A1a reads the newest marker: its Batch is still to be written; it sends",
        "  4. A1a: its marker arrives",
        "  5. the broker: the open transaction has come to its time-out, and is aborted",
        "  6. A1a: its rows arrive, and are refused: it is fenced",
        "  7. A1a reads the newest marker: takes it for its own Batch's, and its Receipt for the answer",
        "  8. A1a: its Receipt comes to driver A, which decides and goes on",
        "     => the driver goes on with a Receipt for the rows of attempt A1a, where the rows of nobody are committed",
    ]


def test_a_cycle_is_told_as_one() -> None:
    model = MUTANTS["fenced_fences_again"].model("fenced_fences_again")
    lines = story(model, search(model))
    around = lines[lines.index("and from here round and round:") + 1 : -1]
    assert sum("init_transactions arrives" in line for line in around) == 2
    assert sum("is refused" in line or "are refused" in line for line in around) == 2


def test_the_description_names_every_mutant() -> None:
    text = kafka_model.__doc__ or ""
    assert [name for name in (*MUTANTS, *SPARE) if f"`{name}`" not in text] == []


class Graph:
    """A model that is a table: state to (kind, next state)."""

    def __init__(self, table: dict[int, list[tuple[int, Any]]], goal: int) -> None:
        self.table, self.end = table, goal

    def initial(self) -> int:
        return 0

    def successors(self, state: int) -> list[tuple[tuple[int, str, int], Any]]:
        return [((kind, str(to), 0), to) for kind, to in self.table.get(state, [])]

    def goal(self, state: int) -> bool:
        return state == self.end


def test_the_search_finds_the_nearest_breach() -> None:
    report = search(Graph({0: [(STEP, 1), (STEP, 2)], 1: [(STEP, 3)], 3: [(STEP, "far")], 2: [(FAULT, "near")]}, goal=9))
    assert (report.broken, [code for _, code, _ in report.trace]) == ("near", ["2", "near"])


def test_the_search_finds_a_state_that_only_a_fault_leaves() -> None:
    table = {0: [(STEP, 1), (FAULT, 2)], 2: [(FAULT, 1)]}
    report = search(Graph(table, goal=1))
    assert "no way leads to the goal" in report.broken
    assert [code for _, code, _ in report.trace] == ["2"]
    assert not search(Graph({**table, 2: [(REPAIR, 1)]}, goal=1)).broken


def test_the_search_finds_a_cycle_that_needs_neither_faults_nor_repairs() -> None:
    table = {0: [(STEP, 1)], 1: [(STEP, 2), (STEP, 4)], 2: [(STEP, 3)], 3: [(STEP, 1)]}
    report = search(Graph(table, goal=4))
    assert report.cycle == 3
    assert [code for _, code, _ in report.trace] == ["1", "2", "3", "1"]
    for kind in (FAULT, REPAIR):
        assert not search(Graph({**table, 3: [(STEP, 4), (kind, 1)]}, goal=4)).broken


def test_the_search_refuses_to_go_beyond_its_limit() -> None:
    with pytest.raises(TooLarge, match="more than 2 states"):
        search(Graph({0: [(STEP, 1)], 1: [(STEP, 2)]}, goal=2), limit=2)
