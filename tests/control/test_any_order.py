"""Whatever happens, in whatever order: nothing is served twice, and once things go well again every flow comes to what is wanted of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.control.decide import decide
from scribengin.control.master import Attention
from scribengin.control.standbys import waiting
from scribengin.control.world import RunId, Start
from scribengin.registry.records import is_helper, tier_of
from tests.control.story import Story

TIERS = ("edge", "core", "store")
HELPED = (*TIERS, "core~2", "core~3")
BEGUN = "nodes a b\nflow f: edge -> core -> store\nstandby core\nwish running\nlook\n"
READY = "up store\nup core\nup edge\nlook\nlook\nspare core running\nspare core says standby\nlook\n"
"""all runs, and the spare waits"""
EACH = BEGUN.replace("wish", "each core\nwish")
BEGINNINGS = st.sampled_from([BEGUN, BEGUN + READY, EACH, EACH + READY.replace("up core\n", "up core\nup core~2\n")])
HAPPENINGS = st.one_of(
    st.sampled_from(
        [
            "look",
            "wish running",
            "wish paused",
            "wish drained",
            "wish stopped",
            "wish running v2",
            "wish running v3 without core",
            "nodes a b",
            "nodes b",
            "nodes a",
            "decommission a",
            "each core",
            "each none",
            "room a 0",
            "room a any",
            "the launcher loses what is asked next",
            "wait 2",
            "wait 20",
            "wait 400",
        ]
    ),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["process"]),
        st.sampled_from(HELPED),
        st.sampled_from(["running", "gone", "exited 1"]),
    ),
    st.builds("lease {}{}".format, st.sampled_from(HELPED), st.sampled_from(["", " lost"])),
    st.sampled_from(
        ["spare core running", "spare core gone", "spare core exited 1", "lease core spare", "standby core", "standby core none"]
    ),
    st.builds("spare core says {}".format, st.sampled_from(["standby", "failed permanent x", "stopped"])),
    st.builds(
        "{} {}".format,
        st.sampled_from(["gone run", "gone wanted", "damaged run", "damaged wanted", "damaged report"]),
        st.sampled_from(HELPED),
    ),
    st.builds("report {} {}".format, st.sampled_from(HELPED), st.sampled_from(["running commits 3", "recovering x", "failed permanent x"])),
)

DELAYS = st.sampled_from(["max_delay 300", "delay 400 x", "delay 301", "delay 280", "delay 200", "delay unknown"])


def _possible(story: Story, words: list[str]) -> bool:
    """False for what cannot happen: a process says or becomes something that is not there, or has ended."""
    if words[0] in ("decommission", "room"):
        return words[1] in story.world.nodes
    if words[0] in ("gone", "damaged"):
        return words[2] in story.world.flows["f"].tiers
    if words[0] not in ("process", "lease", "report", "spare"):
        return True
    tier = story.world.flows["f"].tiers.get(words[1])
    if tier is None:
        return False
    if words[0] == "spare" or words[2:] == ["spare"]:
        spare = waiting(tier)
        there = None if spare is None else story.world.processes.get(RunId("f", words[1], spare.number))
        return there is not None and not there.ended and tier.wish is not None and (words[0] != "lease" or tier.lease is None)
    if tier.run is None or tier.wish is None:
        return False
    process = story.world.processes.get(RunId("f", words[1], tier.run.number))
    if words[0] == "lease" and words[2:] == ["lost"]:
        return True
    return process is not None and not process.ended and tier.run.ended_at is None and (words[0] != "lease" or tier.lease is None)


def _begun(beginning: str, happenings: list[str]) -> Story:
    story = Story()
    story.retell(beginning)
    for happening in happenings:
        if _possible(story, happening.split()):
            story.retell(happening)
    return story


@settings(max_examples=150, deadline=None)
@given(BEGINNINGS, st.lists(HAPPENINGS, max_size=40))
def test_a_run_is_started_only_where_no_earlier_one_can_still_be_at_work(beginning: str, happenings: list[str]) -> None:
    story = _begun(beginning, [])
    for happening in happenings:
        if not _possible(story, happening.split()):
            continue
        if happening == "look":
            decided = decide(story.seen())
            assert decide(story.seen()) == decided, "the same world, the same actions"
            started = Counter(action.tier for action in decided if isinstance(action, Start))
            assert all(times == 1 for times in started.values())
            for action in decided:
                if isinstance(action, Start):
                    _has_its_own_host(story, action)
                    serving = {action.run.number}
                    if action.spare and (run := story.world.flows["f"].tiers[action.tier].run) is not None:
                        serving.add(run.number)
                    for id_, process in story.world.processes.items():
                        assert id_.tier != action.tier or process.ended or id_.number in serving, f"{id_} is at work yet"
        story.retell(happening)


def _has_its_own_host(story: Story, action: Start) -> None:
    """A helper of a tier that has a worker on each host does not start beside another worker of it."""
    flow = story.world.flows["f"]
    if not is_helper(action.tier) or tier_of(action.tier) not in flow.each:
        return
    for name, tier in flow.tiers.items():
        if name != action.tier and tier_of(name) == tier_of(action.tier) and tier.run is not None and tier.run.ended_at is None:
            assert tier.run.node != action.run.node, f"{name} is there yet"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([BEGUN, EACH]), st.lists(HAPPENINGS | DELAYS, max_size=40))
def test_a_flow_without_attention_is_one_about_which_there_is_nothing_to_decide(beginning: str, happenings: list[str]) -> None:
    story = _begun(beginning.removesuffix("look\n"), [])
    attention = Attention(rounds=0)
    for happening in [*happenings, "look", "wait 400", "look", "look"]:
        if happening != "look":
            if _possible(story, happening.split()):
                story.retell(happening)
            continue
        selected = attention.select(story.seen())
        decided = decide(story.seen(), selected)
        assert decided == decide(story.seen())
        attention.note(story.world, selected, decided)
        story.retell(happening)


def test_a_delay_needs_attention_where_it_crosses_what_is_allowed_and_only_there() -> None:
    story, attention = Story(), Attention(rounds=0)
    story.retell("nodes a b\nflow f: edge\nmax_delay 300\nwish running\nlook\nup edge\ndelay 5\nlook\n")
    for delay, needs in ((5, True), (200, False), (301, True), (301, True), (400, False), (280, True), (275, False), (260, True)):
        story.retell(f"delay {delay}\n")
        selected = attention.select(story.seen())
        assert bool(selected) == needs, delay
        decided = decide(story.seen(), selected)
        assert decided == decide(story.seen())
        attention.note(story.world, selected, decided)
        story.retell("look")
    assert story.world.flows["f"].status.state == "running"  # type: ignore[union-attr]


def test_what_stands_as_it_stood_needs_no_attention_and_still_has_its_turn() -> None:
    story = Story()
    story.retell("nodes a b\nflow f: edge -> core\nwish running\nlook\nup core\nup edge\nlook\n")
    never, sometimes = Attention(rounds=0), Attention(rounds=10)
    for attention in (never, sometimes):
        attention.note(story.world, attention.select(story.seen()), decide(story.seen()))
    assert [never.select(story.world) for _ in range(10)] == [set()] * 10
    assert sum(len(sometimes.select(story.world)) for _ in range(10)) == 1


@settings(max_examples=150, deadline=None)
@given(BEGINNINGS, st.lists(HAPPENINGS, max_size=40), st.sampled_from(["running", "paused", "stopped", "drained"]))
def test_once_all_goes_well_the_flow_comes_to_its_goal_and_then_nothing_is_done(beginning: str, happenings: list[str], goal: str) -> None:
    story = _begun(beginning, happenings)
    story.retell(f"nodes a b\nwish {goal}\n")
    for _ in range(60):
        story.retell("look\nwait 30")
        _obey(story)
    flow = story.world.flows["f"]
    there = sorted(tier.run.node for name, tier in flow.tiers.items() if tier_of(name) == "core" and tier.run and not tier.run.ended_at)
    if goal == "running" and (flow.wanted_tiers is None or "core" in flow.wanted_tiers):
        assert there == ["a", "b"] if flow.each else len(there) == 1
    status = story.world.flows["f"].status
    assert status is not None
    assert status.state == {"drained": "stopped"}.get(goal, goal)
    assert decide(story.seen()) == []


def _obey(story: Story) -> None:
    """All workers do what is wanted of them, at once."""
    story.world = replace(story.world, nodes={name: replace(node, free_cores=None) for name, node in story.world.nodes.items()})
    # what stands on no record and on a node that answers is dealt with by the master
    for name, tier in story.world.flows["f"].tiers.items():
        run, wish = tier.run, tier.wish
        process = story.world.processes.get(RunId("f", name, run.number)) if run is not None else None
        if run is None or wish is None or process is None or process.ended or run.ended_at is not None:
            if tier.lease is not None:  # its session is over
                story.retell(f"lease {name} lost")
            continue
        spare = waiting(tier)
        waits = spare is not None and (there := story.world.processes.get(RunId("f", name, spare.number))) is not None and not there.ended
        if wish.goal in ("running", "paused"):
            story.retell(f"process {name} running\nlease {name}\nreport {name} {wish.goal}")
            story.retell(f"spare {name} running\nspare {name} says standby" if waits else "")
        else:
            story.retell(f"report {name} {wish.goal}\nprocess {name} exited 0\nlease {name} lost")
            story.retell(f"spare {name} says stopped\nspare {name} exited 0" if waits else "")
    # a decommissioned node that has answered again is as good as any
    story.world = replace(story.world, nodes={name: replace(node, decommissioned=False) for name, node in story.world.nodes.items()})
