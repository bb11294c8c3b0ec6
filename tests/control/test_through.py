"""How far a workflow is through: from the moments that the workers of its flows have noted, last flows first."""

from __future__ import annotations

import pytest

from scribengin.control.workflow_progress import CLOCKS_S, Reached, reached
from scribengin.plan.flow_links import Meeting
from scribengin.registry.records import QueryAck


def ack(**through: list[tuple[float, float]]) -> QueryAck:
    return QueryAck(lineage="l", through={source: tuple(marks) for source, marks in through.items()})


def meet(feeding: str, reading: str, source: str = "in") -> Meeting:
    return Meeting(feeding, "out", reading, source, "folder /data")


LONG = [(100.0, 110.0), (200.0, 210.0), (300.0, 310.0)]


def test_a_flow_that_feeds_nobody_is_through_up_to_its_newest_moment() -> None:
    assert reached("a", {"a": [ack(rows=LONG)]}, ()) == {"rows": Reached(300.0)}
    assert reached("a", {"a": [QueryAck(lineage="l")]}, ()) == {}


@pytest.mark.parametrize(
    ("behind", "moment"),
    [(310.0 + CLOCKS_S, 300.0), (309.9 + CLOCKS_S, 200.0), (210.0 + CLOCKS_S, 200.0), (110.0 + CLOCKS_S, 100.0), (110.0, None)],
)
def test_what_a_flow_has_put_out_is_through_when_the_next_one_has_acknowledged_it(behind: float, moment: float | None) -> None:
    acks = {"a": [ack(rows=LONG)], "b": [ack(**{"in": [(behind, behind + 1)]})]}
    assert reached("a", acks, [meet("a", "b")])["rows"].moment == moment


def test_the_slowest_way_counts_and_who_says_nothing_is_named() -> None:
    met = [meet("a", "b"), meet("b", "c"), meet("a", "d", "other")]
    acks = {
        "a": [ack(rows=LONG), ack(rows=[(100.0, 110.0), (250.0, 255.0)])],
        "b": [ack(**{"in": [(215.0, 220.0), (320.0, 330.0)]})],
        "c": [ack(**{"in": [(400.0, 401.0)]})],
    }
    assert reached("a", acks, met) == {"rows": Reached(None, "d.other")}
    acks["d"] = [ack(other=[(500.0, 501.0)])]
    assert reached("a", acks, met) == {"rows": Reached(250.0)}, "the slower one of two queries"
    acks["c"] = [ack(**{"in": [(223.0, 224.0)]})]
    assert reached("a", acks, met) == {"rows": Reached(100.0)}, "c has not what b put out at 330"
    acks["c"] = []
    assert reached("a", acks, met) == {"rows": Reached(None, "c.in")}
    assert reached("b", acks, met)["in"].unknown == "c.in"


def test_of_two_flows_that_read_there_both_must_have_it() -> None:
    met = [meet("a", "b"), meet("a", "c")]
    acks = {"a": [ack(rows=LONG)], "b": [ack(**{"in": [(999.0, 999.0)]})], "c": [ack(**{"in": [(213.0, 213.5)]})]}
    assert reached("a", acks, met) == {"rows": Reached(200.0)}
