"""Whatever happens to flows under a quota: they never take more than it allows, and in the end the oldest wish is served."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.control.quotas import Taken, sum_of, taken_by
from tests.control.story import Story

FLOWS = ("orders", "clicks", "visits")
CORES, ROWS = 4, 600
BEGUN = f"nodes a b\nquota team=search cores {CORES} rows {ROWS}\n" + "".join(
    f"flow {flow}: edge -> core\nlabel team=search\ncores core {number}\n{'standby core' if number == 1 else ''}\n"
    for number, flow in enumerate(FLOWS, 1)
)
HAPPENINGS = st.builds(
    "of {}\n{}".format,
    st.sampled_from(FLOWS),
    st.sampled_from(
        [
            *("look", "wish running", "wish running", "wish paused", "wish stopped", "wish drained", "nodes a", "nodes b", "nodes a b"),
            *("wait 2", "wait 70", "idle", "busy"),
            *(f"{what} {tier}" for tier in ("edge", "core") for what in ("up", "lose", "end", "fail")),
        ]
    ),
)


def happens(story: Story, text: str) -> None:
    flow, said = text.split("\n")
    verb, *rest = said.split()
    happenings = {
        "up": ["process {} running", "lease {}", "report {} running commits 3"],
        "lose": ["process {} gone", "lease {} lost"],
        "end": ["report {} stopped", "process {} exited 0", "lease {} lost"],
        "fail": ["report {} failed permanent x", "process {} exited 1", "lease {} lost"],
    }.get(verb, [said])
    story.retell(flow)
    tiers = story.world.flows[story.flow].tiers
    if rest and rest[0] in tiers and (tiers[rest[0]].run is None or tiers[rest[0]].run.ended_at is not None):  # type: ignore[union-attr]
        return
    story.retell("\n".join(each.format(*rest) for each in happenings))


def holds(story: Story) -> None:
    flows = story.world.flows.values()
    assert sum_of(map(taken_by, flows)).cores <= CORES
    shares = [flow.share for flow in flows if flow.share is not None and flow.wish.goal == "running" and taken_by(flow) != Taken()]
    assert sum(share.rows_per_s or 0.0 for share in shares) <= ROWS + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.lists(HAPPENINGS, max_size=40))
def test_never_more_than_a_quota_allows_is_taken_and_in_the_end_each_has_its_turn(happenings: list[str]) -> None:
    story = Story()
    story.retell(BEGUN)
    for text in happenings:
        happens(story, text)
        story.retell("look")
        holds(story)
    # one after the other is wanted: what has run before ends, and whoever waits comes to run
    story.retell("nodes a b\nwait 400")
    for flow in FLOWS:
        for other in FLOWS:
            happens(story, f"of {other}\nwish {'running' if other == flow else 'stopped'}")
        for _ in range(8):
            story.retell("look")
            for other in FLOWS:
                for tier in ("edge", "core"):
                    happens(story, f"of {other}\n{'up' if other == flow else 'end'} {tier}")
            holds(story)
            story.retell("wait 61")
        assert taken_by(story.world.flows[flow]) != Taken(), flow


@pytest.mark.parametrize("flow", FLOWS)
def test_each_of_them_alone_has_room(flow: str) -> None:
    story = Story()
    story.retell(BEGUN + f"of {flow}\nwish running\nlook\n")
    assert all(tier.run is not None for tier in story.world.flows[flow].tiers.values())
