"""Which Queries may go on in place of which when a flow is cut otherwise, and what `plan` says where they may not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from flows import flow, sink, source, step

from scribengin.plan.diff import PlanChanges, StoredQuery, label_of
from scribengin.plan.flow_diff import flow_changes
from scribengin.plan.tier_flows import FlowPlan, plan_flow
from scribengin.plan.topology import topology_of
from scribengin.spec.model import Aggregate, Channel, Defaults, EdgeProperties, Encryption, Filter, Flow, Rate, Tier, WindowSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.plan.query_moves import Moves


def declared(*, stateful: bool = False, **tiers: str) -> Flow:
    """tweets → a → b → kept, and a → other; `tiers`: name → steps. With `stateful` b keeps state."""
    second = Aggregate((), (("n", "count(*)"),), WindowSpec("ts", 3600.0, 3600.0)) if stateful else Filter("id > 2")
    made = flow(source(), step("a", "tweets", Filter("id > 1")), step("b", "a", second), sink("kept", "b"), sink("other", "a"))
    return replace(made, tiers={name: Tier(name, tuple(steps.split())) for name, steps in tiers.items()})


CUT = {"x": "a other", "y": "b kept"}


def ran(plan: FlowPlan, *, position: int = 3, **rest: Mapping[str, Any]) -> dict[tuple[str, str], StoredQuery]:
    """The Queries of the plan as they are stored when all is through: 100 rows each way."""
    found = {}
    for tier in plan.tiers:
        for number, query in enumerate(tier.queries):
            found[tier.tier, query.name] = StoredQuery(
                query.name,
                f"{tier.tier}-{query.name}-{number}",
                query.fingerprint,
                query.state_fingerprint,
                dict.fromkeys(query.sources, position),
                9,
                query.parts,
                tier.tier,
                query.sources,
                query.sinks,
                dict.fromkeys(query.sinks, 100),
                dict.fromkeys(query.sources, 100),
            )
    for name, changed in rest.items():
        key = next(key for key in found if key[1] == name)
        found[key] = replace(found[key], **changed)
    return found


def compared(
    before: Flow, after: Flow, reached: Mapping[str, object] | None = None, **rest: Mapping[str, Any]
) -> tuple[PlanChanges, Moves]:
    """`reached`: stored Query → what it has read; all have read the same where nothing is said."""
    old = plan_flow(before)
    live = ran(old, **rest)
    known = topology_of(old) if before.tiers else None
    return flow_changes(plan_flow(after), known, list(live.values()), [], lambda query, _: (reached or {}).get(query.name, "all"))


def fates(changes: PlanChanges) -> dict[str, str]:
    return {change.label: change.fate for change in changes.queries}


def test_what_stays_as_it_is_cut_is_unchanged() -> None:
    changes, moves = compared(declared(**CUT), declared(**CUT))
    assert set(fates(changes).values()) == {"unchanged"}
    assert changes.channels == ()
    assert (moves.arrivals, moves.refusals) == ((), ())


def test_a_flow_that_is_cut_goes_on_where_its_queries_ended() -> None:
    changes, moves = compared(declared(), declared(**CUT))
    assert fates(changes) == {"x.a_to_y": "kept", "x.other": "kept", "y.kept": "kept", "kept": "gone", "other": "gone"}
    arrivals = {arrival.query.name: arrival for arrival in moves.arrivals}
    assert [arrivals["a_to_y"].donors["tweets"].query.name, arrivals["a_to_y"].donors["tweets"].position] == ["kept", 3]
    assert arrivals["other"].donors["tweets"].query.name == "other"
    assert arrivals["kept"].donors == {}
    assert arrivals["kept"].adopts == {"kept": ("main-kept-0",)}
    assert not arrivals["a_to_y"].adopts


def test_a_fused_flow_goes_on_where_the_end_of_its_chain_is() -> None:
    changes, moves = compared(declared(**CUT), declared())
    assert fates(changes) == {"kept": "kept", "other": "kept", "x.a_to_y": "gone", "x.other": "gone", "y.kept": "gone"}
    (channel,) = changes.channels
    assert (channel.fate, "no unread rows" in channel.says) == ("gone", True)
    arrivals = {arrival.query.name: arrival for arrival in moves.arrivals}
    assert arrivals["kept"].donors["tweets"].query.name == "a_to_y"
    assert arrivals["kept"].adopts == {"kept": ("y-kept-0",)}


def test_rows_that_wait_in_a_channel_refuse_it_with_their_number_and_the_remedy() -> None:
    changes, moves = compared(declared(**CUT), declared(), kept={"read": {"a": 93}})
    refused = next(change for change in changes.queries if change.label == "kept")
    assert refused.fate == "refused"
    assert '7 rows in channel "a_to_y" have not been read by "y.kept"' in refused.says
    assert "--once" in refused.remedy
    assert "7 unread rows" in changes.channels[0].says
    assert changes.refused
    assert moves.refusals


def test_rows_that_were_read_twice_refuse_it_too() -> None:
    changes, _ = compared(declared(**CUT), declared(), kept={"read": {"a": 107}})
    assert "more than once" in next(change for change in changes.queries if change.label == "kept").says


def test_queries_that_have_not_read_the_same_refuse_to_become_one() -> None:
    shared = declared(x="a", y="b kept", z="other")
    changes, _ = compared(declared(), shared, {"kept": "all", "other": "less"})
    assert fates(changes)["x.a_to_y"] == "kept"
    one = replace(shared, tiers={"x": Tier("x", ("a",)), "y": Tier("y", ("b", "kept", "other"))})
    changes, _ = compared(declared(), one, {"kept": "all", "other": "less"})
    refused = next(change for change in changes.queries if change.label == "x.a_to_y")
    assert refused.fate == "refused"
    assert '"kept" (position 3) and "other" (position 3) have read tweets to different positions' in refused.says


def test_state_whose_step_is_fed_by_another_name_cannot_be_taken_along_and_the_plan_says_how_it_is_made_again() -> None:
    changes, _ = compared(declared(stateful=True), declared(stateful=True, **CUT))
    refused = next(change for change in changes.queries if change.label == "y.kept")
    assert refused.fate == "refused"
    assert 'the state of "kept" (after Batch 9) cannot be moved' in refused.says
    assert "scribengin reset" in refused.remedy
    assert "which rebuilds the state from the start of the sources" in refused.remedy
    changes, _ = compared(declared(), declared(stateful=True, **CUT))
    assert "would keep state" in next(change for change in changes.queries if change.label == "y.kept").says


def test_a_query_with_state_stays_where_it_is_while_others_are_moved_before_it() -> None:
    before = declared(stateful=True, x="a", y="b kept other")
    after = declared(stateful=True, w="a", y="b kept other")
    changes, moves = compared(before, after)
    assert fates(changes)["w.a_to_y"] == "kept"
    assert fates(changes)["y.kept"] == "unchanged"
    (arrival,) = moves.arrivals
    assert arrival.adopts == {"a_to_y": ("x-a_to_y-0",)}


def test_a_batch_of_which_some_is_committed_must_end_where_it_began() -> None:
    changes, _ = compared(declared(), declared(**CUT), kept={"pending": True})
    assert "has a Batch that is not completely written" in next(change for change in changes.queries if change.label == "x.a_to_y").says


def test_a_sink_that_changes_in_the_same_step_is_refused() -> None:
    after = declared(**CUT)
    after = replace(after, sinks=after.sinks | {"kept": replace(after.sinks["kept"], options={"path": "elsewhere", "format": "json"})})
    changes, _ = compared(declared(), after)
    assert "has changed" in next(change for change in changes.queries if change.label == "y.kept").says


def test_a_new_sink_in_a_new_tier_is_new_and_moves_nothing() -> None:
    before = declared(**CUT)
    after = replace(before, sinks=before.sinks | {"more": sink("more", "b")}, tiers=before.tiers | {"z": Tier("z", ("more",))})
    changes, moves = compared(before, after)
    assert fates(changes)["z.more"] == fates(changes)["y.b_to_z"] == "new"
    assert fates(changes)["x.a_to_y"] == fates(changes)["y.kept"] == "unchanged"
    assert moves.arrivals == ()


def test_a_channel_in_another_place_is_begun_anew_when_the_old_one_is_read() -> None:
    before = declared(**CUT)
    after = replace(before, edges={"a -> b": EdgeProperties(channel=Channel(path="elsewhere"))})
    changes, moves = compared(before, after)
    assert {arrival.query.name for arrival in moves.arrivals} == {"a_to_y", "kept"}
    assert "has a new location" in changes.channels[0].says
    changes, _ = compared(before, after, kept={"read": {"a": 1}})
    assert changes.refused


@pytest.mark.parametrize(
    ("edge", "fate", "changed"),
    [
        (EdgeProperties(compression="zstd"), "kept", ("compression",)),
        (EdgeProperties(limit=Rate(rows=5)), "kept", ("limit",)),
        (EdgeProperties(ordering="key", key=("user",)), "refused", ("ordering",)),
        (EdgeProperties(encryption=Encryption(keyring="k")), "refused", ("encryption",)),
    ],
)
def test_properties_hold_from_the_next_batch_unless_what_is_under_way_would_contradict_them(
    edge: EdgeProperties, fate: str, changed: tuple[str, ...]
) -> None:
    before = declared(**CUT)
    after = replace(before, edges={"a -> b": edge})
    (channel,) = compared(before, after, kept={"read": {"a": 1}})[0].channels
    assert (channel.fate, channel.changed) == (fate, changed)
    assert ("99 unread rows" in channel.says) == (fate == "refused")
    (drained,) = compared(before, after)[0].channels
    assert drained.fate == "kept"


def test_another_key_of_the_same_encryption_needs_nothing_to_be_read_first() -> None:
    before = replace(declared(**CUT), defaults=Defaults(edge=EdgeProperties(encryption=Encryption(keyring="k"))))
    after = replace(before, defaults=Defaults(edge=EdgeProperties(encryption=Encryption(keyring="l"))))
    (channel,) = compared(before, after, kept={"read": {"a": 1}})[0].channels
    assert channel.fate == "kept"


def test_two_channels_that_one_query_feeds_are_moved_with_it() -> None:
    changes, moves = compared(declared(x="a b", y="kept other"), declared(w="a b", y="kept other"))
    (arrival,) = moves.arrivals
    assert (arrival.key, set(arrival.adopts)) == (("w", "to_y"), {"a_to_y", "b_to_y"})
    assert fates(changes)["y.kept"] == fates(changes)["y.other"] == "unchanged"
    changes, moves = compared(declared(x="a b", y="kept other"), declared(x="a b", y="kept", z="other"))
    assert {change.name: change.fate for change in changes.channels} == {"a_to_z": "new", "a_to_y": "gone"}
    assert {arrival.key for arrival in moves.arrivals} == {("x", "a_to_z"), ("x", "b_to_y"), ("z", "other")}
    assert fates(changes)["y.kept"] == "unchanged"


def test_a_new_sink_behind_a_feeder_that_is_moved_is_told_to_miss_what_was_read_before() -> None:
    before = declared()
    before = replace(before, sinks={"kept": before.sinks["kept"]})
    after = replace(
        before, sinks=before.sinks | {"other": sink("other", "a")}, tiers={"x": Tier("x", ("a",)), "y": Tier("y", ("b", "kept", "other"))}
    )
    changes, _ = compared(before, after)
    new = next(change for change in changes.queries if change.label == "y.other")
    assert new.fate == "new"
    assert "a_to_y does not contain the rows that its writer read before" in new.says


def test_a_query_whose_letters_wait_to_be_replayed_is_not_left_for_another_and_says_so_where_its_sink_goes() -> None:
    whole, cut = plan_flow(declared()), plan_flow(declared(**CUT))
    stored = ran(whole)
    stored["main", "kept"] = replace(stored["main", "kept"], waiting=2)
    changes, moves = flow_changes(cut, None, list(stored.values()), [], lambda query, source: query.sources[source])
    assert moves.refusals
    said = {change.label: change for change in changes.queries}
    assert all('2 dead letters wait to be replayed in "kept"' in said[label_of(*refusal.key)].says for refusal in moves.refusals)
    assert "--once" in said[label_of(*moves.refusals[0].key)].remedy
    without = plan_flow(replace(declared(), sinks={"other": declared().sinks["other"]}, steps={"a": declared().steps["a"]}))
    changes, moves = flow_changes(without, None, list(stored.values()), [], lambda query, source: query.sources[source])
    (gone,) = [change for change in changes.queries if change.fate == "gone"]
    assert (moves.refusals, gone.says.partition("; 2 ")[2]) == ((), "dead letters wait to be replayed until a sink uses it again")


def chain(names: str, stateful: str = "", **tiers: str) -> Flow:
    """tweets → each of `names` → kept; `tiers`: name → steps. Those in `stateful` keep state."""
    nodes: list[Any] = [source()]
    for id_ in names.split():
        above = nodes[-1].id
        counted = Aggregate((), (("n", "count(*)"),), WindowSpec("ts", 3600.0, 3600.0))
        nodes.append(step(id_, above, counted if id_ in stateful.split() else Filter("id > 1")))
    made = flow(*nodes, sink("kept", nodes[-1].id))
    return replace(made, tiers={name: Tier(name, tuple(steps.split())) for name, steps in tiers.items()})


THREE = chain("a b c", x="a", y="b", z="c kept")
FOUR = chain("a b m c", x="a", y="b", w="m", z="c kept")


@pytest.mark.parametrize(
    ("before", "after", "reads", "left"),
    [
        (THREE, FOUR, {"y.b_to_w": {"a": ("y.b_to_z", 3)}, "w.m_to_z": {}, "z.kept": {}}, {"y.b_to_z": ["y.b_to_w"]}),
        (
            THREE,
            chain("a b m c", x="a", y="b m", z="c kept"),
            {"y.m_to_z": {"a": ("y.b_to_z", 3)}, "z.kept": {}},
            {"y.b_to_z": ["y.m_to_z"]},
        ),
        (FOUR, THREE, {"y.b_to_z": {"a": ("y.b_to_w", 3)}, "z.kept": {}}, {"y.b_to_w": ["y.b_to_z"], "w.m_to_z": ["y.b_to_z"]}),
        (
            FOUR,
            chain("a b m c", x="a", y="b", z="m c kept"),
            {"y.b_to_z": {"a": ("y.b_to_w", 3)}, "z.kept": {}},
            {"w.m_to_z": ["y.b_to_z"]},
        ),
        (FOUR, chain("a b m c", x="a", y="b m", z="c kept"), {"y.m_to_z": {"a": ("y.b_to_w", 3)}}, {"w.m_to_z": ["y.m_to_z"]}),
        (
            THREE,
            chain("a m b c", x="a", w="m", y="b", z="c kept"),
            {"x.a_to_w": {"tweets": ("x.a_to_y", 3)}, "w.m_to_y": {}, "y.b_to_z": {}},
            {"x.a_to_y": ["x.a_to_w"]},
        ),
    ],
    ids=["put between", "step before a cut", "taken out", "merged forward", "merged back", "put behind the first"],
)
def test_a_tier_comes_and_goes_between_two_others_which_go_on_where_those_behind_its_place_ended(
    before: Flow, after: Flow, reads: dict[str, dict[str, tuple[str, int]]], left: dict[str, list[str]]
) -> None:
    changes, moves = compared(before, after)
    assert not changes.refused
    arrivals = {label_of(*arrival.key): arrival for arrival in moves.arrivals}
    assert {
        label: {source: (donor.query.label, donor.position) for source, donor in arrival.donors.items()}
        for label, arrival in arrivals.items()
    } == reads
    leaving = {label_of(*key): [label_of(*each) for each in to] for key, to in moves.leaving.items()}
    assert {label: leaving[label] for label in left} == left


def test_what_waits_behind_the_place_of_a_new_tier_is_to_be_read_first_and_what_waits_before_it_stays() -> None:
    changes, moves = compared(THREE, FOUR, kept={"read": {"b": 90}})
    assert [refusal.why for refusal in moves.refusals] == ['10 rows in channel "b_to_z" have not been read by "z.kept"']
    assert "--once" in next(change for change in changes.queries if change.label == "y.b_to_w").remedy
    changes, _ = compared(THREE, FOUR, b_to_z={"read": {"a": 90}})
    assert not changes.refused


def test_a_step_that_kept_state_and_goes_with_its_tier_is_told_of() -> None:
    changes, moves = compared(chain("a b c", "b", x="a", y="b", z="c kept"), chain("a c", x="a", z="c kept"))
    assert moves.refusals
    assert 'the state of "y.b_to_z"' in next(change.says for change in changes.queries if change.label == "x.a_to_z")


SUMMED = chain("a b c", "b", x="a", y="b", z="c kept")


@pytest.mark.parametrize(
    ("before", "after", "state", "donors"),
    [
        (SUMMED, chain("a b m c", "b", x="a", y="b", w="m", z="c kept"), {"y.b_to_w": "y.b_to_z"}, {"a": ("y.b_to_z", 3)}),
        (SUMMED, chain("a b m c", "b", x="a", y="b m", z="c kept"), {"y.m_to_z": "y.b_to_z"}, {"a": ("y.b_to_z", 3)}),
        (SUMMED, chain("a b c", "b", x="a", yy="b", z="c kept"), {"yy.b_to_z": "y.b_to_z"}, {"a": ("y.b_to_z", 3)}),
        (SUMMED, chain("a b c", "b", x="a", y="b c kept"), {"y.kept": "y.b_to_z"}, {"a": ("y.b_to_z", 3)}),
        (chain("a b c", "b", x="a", y="b c kept"), SUMMED, {"y.b_to_z": "y.kept"}, {"a": ("y.kept", 3)}),
        (chain("a b c", "b", x="a b c kept"), chain("a b c", "b", x="a b", y="c kept"), {"x.b_to_y": "x.kept"}, {"tweets": ("x.kept", 3)}),
        (chain("a b", "b", x="a", y="b kept"), chain("a b m", "b", x="a", y="b", w="m kept"), {"y.b_to_w": "y.kept"}, {"a": ("y.kept", 3)}),
    ],
    ids=["tier behind", "step behind", "renamed", "merged", "split", "cut first", "step and tier before the sink"],
)
def test_a_step_with_state_goes_on_with_it_where_its_tier_is_cut_otherwise(
    before: Flow, after: Flow, state: dict[str, str], donors: dict[str, tuple[str, int]]
) -> None:
    changes, moves = compared(before, after)
    assert not changes.refused, [(change.label, change.says) for change in changes.queries]
    arrivals = {label_of(*arrival.key): arrival for arrival in moves.arrivals}
    assert {label: arrival.state.label for label, arrival in arrivals.items() if arrival.state is not None} == state
    (label,) = state
    assert {source: (each.query.label, each.position) for source, each in arrivals[label].donors.items()} == donors
    says = next(change.says for change in changes.queries if change.label == label)
    assert says.startswith(f"continues with the state of {state[label]} (after Batch 9)")


def test_what_waits_for_a_step_with_state_in_a_channel_that_goes_is_read_before() -> None:
    after = chain("a b c", "b", x="a", yy="b", z="c kept")
    changes, _ = compared(SUMMED, after, b_to_z={"read": {"a": 93}})
    says = next(change.says for change in changes.queries if change.label == "yy.b_to_z")
    assert says == '7 rows in channel "a_to_y" have not been read by "y.b_to_z"'


def test_the_name_of_what_feeds_a_step_keeps_its_state() -> None:
    changes, _ = compared(SUMMED, chain("a m b c", "b", x="a", w="m", y="b", z="c kept"))
    refused = next(change for change in changes.queries if change.label == "y.b_to_z")
    assert "would read m, but they read a before" in refused.says
    assert refused.remedy.startswith("to keep the state, name their input a,")
    changes, moves = compared(SUMMED, chain("first a b c", "b", x="first", w="a", y="b", z="c kept"), b_to_z={"read": {"a": 90}})
    assert not changes.refused
    assert fates(changes)["y.b_to_z"] == "unchanged"
    assert {arrival.key for arrival in moves.arrivals} == {("x", "first_to_w"), ("w", "a_to_y")}


def test_another_state_is_never_gone_on_with() -> None:
    other = chain("a b c", "b", x="a", yy="b", z="c kept")
    windowed = replace(other.steps["b"], action=Aggregate((), (("n", "count(*)"),), WindowSpec("ts", 60.0, 60.0)))
    changes, _ = compared(SUMMED, replace(other, steps={**other.steps, "b": windowed}))
    refused = next(change for change in changes.queries if change.label == "yy.b_to_z")
    assert "no tier has exactly its stateful steps" in refused.says


def test_a_sink_that_another_step_feeds_is_taken_over_with_its_options_alone() -> None:
    before, after = chain("a b", x="a", y="b kept"), chain("a b m", x="a", y="b", w="m kept")
    assert not compared(before, after)[0].refused
    moved = after.sinks["kept"]
    after = replace(after, sinks={"kept": replace(moved, options={**moved.options, "path": "elsewhere"})})
    assert "has changed" in next(change.says for change in compared(before, after)[0].queries if change.label == "w.kept")
