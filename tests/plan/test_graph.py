from __future__ import annotations

from flows import flow, sink, source, step
from hypothesis import given
from hypothesis import strategies as st

from scribengin.plan.graph import Graph
from scribengin.spec.model import Filter, Merge, Python, Route

ANY = Filter("id > 1")


def test_readers_of_a_branch_are_readers_of_its_step() -> None:
    graph = Graph(flow(source(), step("r", "tweets", Route((("big", "id > 1"),))), step("a", "r.big", ANY), sink("kept", "a")))
    assert graph.readers["r"] == ("a",)
    assert graph.upstream(["kept"]) == {"tweets", "r", "a", "kept"}
    assert graph.downstream(["r"]) == {"r", "a", "kept"}
    assert [sink.id for sink in graph.sinks_of("tweets")] == ["kept"]


def test_a_python_step_may_be_read_bare_and_by_branch() -> None:
    made = step("p", "tweets", Python("m:f", branches=("left",)))
    graph = Graph(flow(source(), made, sink("a", "p"), sink("b", "p.left")))
    assert graph.readers["p"] == ("a", "b")


def test_two_cycles_are_both_told() -> None:
    graph = Graph(flow(step("a", "b", ANY), step("b", "a", ANY), step("c", "c", ANY)))
    assert graph.cycles == (("a", "b"), ("c",))


@st.composite
def acyclic(draw: st.DrawFn) -> list[tuple[str, list[str]]]:
    """Steps that read only what was made before them, in any order of the file."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 12)))]
    steps = [
        (name, draw(st.lists(st.sampled_from(["tweets", *names[:index]]), min_size=1, max_size=3, unique=True)))
        for index, name in enumerate(names)
    ]
    return draw(st.permutations(steps))


@given(acyclic())
def test_every_node_stands_after_all_that_it_reads(steps: list[tuple[str, list[str]]]) -> None:
    graph = Graph(flow(source(), *(step(name, " ".join(inputs), Merge()) for name, inputs in steps), sink("kept", steps[0][0])))
    assert sorted(graph.order) == sorted(graph.nodes)
    place = {id_: index for index, id_ in enumerate(graph.order)}
    assert all(place[parent] < place[id_] for id_, parents in graph.parents.items() for parent in parents)
    assert graph.cycles == ()


def test_a_long_chain_needs_no_deep_stack() -> None:
    chain = [step(f"s{n}", f"s{n - 1}" if n else "tweets", ANY) for n in range(5000)]
    assert len(Graph(flow(source(), *reversed(chain), sink("kept", "s4999"))).order) == 5002
