"""The plan of a cut flow: what `plan` says of its tiers, channels and paths."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from flows import flow, sink, source, step, tweets

from scribengin.plan.diff import PlanChanges
from scribengin.plan.explain_tiers import as_json, as_mermaid, explain
from scribengin.plan.tier_flows import FlowPlan, plan_flow
from scribengin.spec.model import (
    Autoscale,
    Channel,
    Dedupe,
    Defaults,
    Depth,
    EdgeProperties,
    Encryption,
    Filter,
    Flow,
    Merge,
    Pack,
    Rate,
    Resources,
    Tier,
)

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.plan.guarantees import FlowPath

SECRET = "aHVudGVyMg=="


def tier(id_: str, steps: str, **rest: object) -> Tier:
    return Tier(id_, tuple(steps.split()), **rest)  # type: ignore[arg-type]


def cut(made: Flow, *tiers: Tier, **rest: object) -> Flow:
    return replace(made, tiers={each.id: each for each in tiers}, **rest)  # type: ignore[arg-type]


@pytest.fixture
def three(tmp_path: Path) -> Flow:
    """The tweets in three tiers, with much said of one edge and something of all."""
    edge = EdgeProperties(
        compression="zstd",
        encryption=Encryption(keys={"k1": SECRET}, use="k1"),
        pack=Pack(rows=100),
        durability="store_on_failure",
        limit=Rate(rows=5000),
        low_water=Depth(rows=7),
        channel=Channel(topic="t", bootstrap="b:9092", config={"sasl.password": SECRET}),
    )
    return cut(
        tweets(tmp_path),
        tier("edge", "known hot", group="hosts", resources=Resources(2, 2**30), trigger_s=1.0),
        tier("core", "tagged"),
        tier("store", "kept by_hour counts", acknowledge="state"),
        edges={"hot -> tagged": edge},
        defaults=Defaults(edge=EdgeProperties(compression="lz4", pack=Pack(linger_s=0.05))),
    )


def paths_of(made: Flow) -> dict[str, FlowPath]:
    """`source -> sink` → path."""
    return {f"{path.source} -> {path.sink}": path for path in plan_flow(made).paths}


def test_the_head_names_the_tiers_and_counts_the_queries(three: Flow) -> None:
    lines = explain(plan_flow(three)).splitlines()
    assert lines[0] == "flow tweets: 3 tiers (edge, core, store), 4 queries"
    assert "tier edge: on group hosts, 2 cores, 1.0 GiB, a Batch every 1s" in lines
    assert "tier store: acknowledges rows when they have left its state" in lines


def test_a_tier_says_how_many_workers_share_its_batches(tmp_path: Path) -> None:
    made = cut(
        tweets(tmp_path),
        tier("edge", "known", group="hosts", workers="each"),
        tier("core", "hot", workers="each"),
        tier("last", "tagged", group="hosts", workers=3),
    )
    lines = explain(plan_flow(made)).splitlines()
    assert "tier edge: one worker on each host of group hosts (the workers share each Batch)" in lines
    assert "tier core: one worker on each host (the workers share each Batch)" in lines
    assert "tier last: on group hosts, 3 workers share each Batch" in lines
    assert [each["workers"] for each in as_json(plan_flow(made))["tiers"]] == ["each", "each", 3]


def test_a_tier_says_the_bounds_of_its_executors(tmp_path: Path) -> None:
    advised, changed = Autoscale(60.0, 8), Autoscale(120.0, 4, 2, "act")
    made = cut(tweets(tmp_path), tier("edge", "known", autoscale=advised), tier("core", "hot", autoscale=changed), tier("last", "tagged"))
    lines = explain(plan_flow(made)).splitlines()
    assert "tier edge: 1 to 8 executors, advised on to keep the lag below 1m" in lines
    assert "tier core: 2 to 4 executors, changed to keep the lag below 2m" in lines
    scales = [each["autoscale"] for each in as_json(plan_flow(made))["tiers"]]
    assert scales == [
        {"lag_s": 60.0, "min": 1, "max": 8, "mode": "advise"},
        {"lag_s": 120.0, "min": 2, "max": 4, "mode": "act"},
        None,
    ]


def test_ends_of_channels_are_words_and_no_secret_is_told(three: Flow) -> None:
    plan = plan_flow(three)
    text = explain(plan)
    assert "hot_to_core  <- hot     writes to core" in text
    assert "reads from edge" in text
    told = text + json.dumps(as_json(plan)) + as_mermaid(plan)
    assert SECRET not in told
    assert "bootstrap" not in told


def test_every_property_stands_with_the_place_that_says_it(three: Flow) -> None:
    (channel,) = (each for each in as_json(plan_flow(three))["channels"] if each["id"] == "hot_to_core")
    found = {name: (each["value"], each["said"]) for name, each in channel["properties"].items()}
    assert found["channel"] == ("topic t at b:9092, 4 partitions when it is created, config (secret)", "edge")
    assert found["compression"] == ("zstd", "edge")
    assert found["encryption"] == ("AES-GCM; key k1 encrypts; keys are k1", "edge")
    assert found["pack"] == ("100 rows, 768.0 KiB, linger 0.05s", "edge, built-in, defaults.edge")
    assert found["ordering"] == ("none: the channel does not keep the order of a source's rows", "built-in")
    assert found["limit"] == ("5,000 rows/s", "edge")
    assert found["low_water"] == ("7 rows, 2.0 GiB", "edge, built-in")
    assert found["durability"] == ("store_on_failure", "edge")
    assert found["spill"] == ("at most 1.0 GiB", "built-in")
    (other,) = (each for each in as_json(plan_flow(three))["channels"] if each["id"] == "tagged_to_store")
    assert other["properties"]["compression"] == {"value": "lz4", "said": "defaults.edge"}
    assert other["properties"]["low_water"]["said"] == "half of high_water"


def test_the_text_of_a_cut_flow_fits_a_hundred_columns(three: Flow) -> None:
    lines = explain(plan_flow(three), PlanChanges(())).splitlines()
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if line != line.rstrip()] == []


def test_the_picture_has_a_box_for_each_tier_and_a_cylinder_for_each_channel_with_all_its_arrows(three: Flow) -> None:
    picture = as_mermaid(plan_flow(three))
    assert picture.count("subgraph t_") == 3
    assert picture.count("subgraph") == picture.count(" end\n")
    assert 'c_hot_to_core[("hot_to_core: topic t")]' in picture
    arrows = set(re.findall(r"^ *(\S+) --> (\S+)$", picture, re.MULTILINE))
    assert ("edge__hot_to_core__hot", "c_hot_to_core") in arrows
    assert ("c_hot_to_core", "core__tagged_to_store__tagged") in arrows
    assert ("c_tagged_to_store", "store__kept__kept") in arrows
    boxes = set(re.findall(r"^ *(\S+?)(?:\[|\{\{)", picture, re.MULTILINE))
    assert {end for arrow in arrows for end in arrow} <= boxes


def test_steps_behind_a_cut_that_depend_on_lateness_or_order_are_named(three: Flow, tmp_path: Path) -> None:
    (tmp_path / "keeps.py").write_text("class Seen:\n    def __call__(self, row):\n        return row\n")
    hints = as_json(plan_flow(three))["hints"]
    assert [hint for hint in hints if hint.endswith("splitting into tiers may change which rows are late")]
    fused = as_json(plan_flow(replace(three, tiers={})))["hints"]
    assert not [hint for hint in fused if "splitting" in hint]
    before = cut(tweets(tmp_path), tier("edge", "known hot tagged hashtags by_hour"), tier("store", "counts"))
    assert not [hint for hint in as_json(plan_flow(before))["hints"] if "late" in hint], "it stands before the cut"
    made = flow(source(), step("a", "tweets", Filter("id > 1")), step("d", "a", Dedupe(("id",))), sink("k", "d"), folder=tmp_path)
    assert '"d" keeps the first of equal rows' in "\n".join(as_json(plan_flow(cut(made, tier("x", "a"), tier("y", "d k"))))["hints"])


# --- paths ---


def chain(**edges: str) -> Flow:
    """source → a → b → c → kept, each step a tier of its own; the durability of the edges ab and bc is as said."""
    steps = [step("a", "tweets", Filter("id > 1")), step("b", "a", Filter("id > 2")), step("c", "b", Filter("id > 3"))]
    made = flow(source(), *steps, sink("kept", "c"))
    said = {f"{name[0]} -> {name[1]}": EdgeProperties(durability=durability) for name, durability in edges.items()}  # type: ignore[arg-type]
    return cut(made, tier("x", "a"), tier("y", "b"), tier("z", "c kept"), edges=said)


def test_a_path_of_end_to_end_edges_is_exactly_once() -> None:
    path = paths_of(chain())["tweets -> kept"]
    assert (path.guarantee, path.weakest, path.strengthen) == ("exactly once", (), "")
    assert path.tiers == ("x", "y", "z")
    assert path.channels == ("a_to_y", "b_to_z")


def test_a_best_effort_edge_makes_the_whole_path_at_most_once_and_is_named() -> None:
    path = paths_of(chain(ab="store_on_failure", bc="best_effort"))["tweets -> kept"]
    assert path.guarantee == "at most once"
    assert path.weakest == ("b -> c",)
    assert path.strengthen == '`durability: end_to_end` on "b -> c"'


def test_an_edge_with_a_spill_is_exactly_once_and_its_bound_is_told() -> None:
    path = paths_of(chain(ab="store_on_failure"))["tweets -> kept"]
    assert (path.guarantee, path.weakest, path.strengthen) == ("exactly once", (), "")
    assert '"a -> b" stores up to 1.0 GiB of rows that cannot be written immediately; then the writing tier waits' in path.reason


def test_an_end_that_may_double_is_the_weakest_and_with_a_lossy_edge_nothing_is_left() -> None:
    made = chain()
    made = replace(made, sinks={"kept": replace(made.sinks["kept"], delivery="at_least_once")})
    assert paths_of(made)["tweets -> kept"].guarantee == "at least once"
    lossy = replace(made, edges={"a -> b": EdgeProperties(durability="best_effort")})
    path = paths_of(lossy)["tweets -> kept"]
    assert path.guarantee == "nothing"
    assert "a better guarantee than at least once also needs another source or sink" in path.strengthen


def test_the_delivery_of_a_flow_is_asked_of_its_own_sinks_and_of_no_channel() -> None:
    made = replace(chain(), defaults=Defaults(delivery="at_least_once"))
    made = replace(made, sinks={"kept": replace(made.sinks["kept"], delivery="exactly_once")})
    assert paths_of(made)["tweets -> kept"].guarantee == "exactly once"


def test_at_a_fork_each_branch_has_its_own_guarantee_and_where_it_joins_again_the_weakest_rules() -> None:
    steps = [
        step("a", "tweets", Filter("id > 1")),
        step("left", "a", Filter("id > 2")),
        step("right", "a", Filter("id > 3")),
        step("both", "left right", Merge()),
    ]
    made = flow(source(), *steps, sink("l", "left"), sink("r", "right"), sink("all", "both"))
    made = cut(
        made,
        tier("x", "a"),
        tier("y", "left l"),
        tier("z", "right r"),
        tier("end", "both"),
        tier("last", "all"),
        edges={"a -> right": EdgeProperties(durability="best_effort")},
    )
    paths = paths_of(made)
    assert paths["tweets -> l"].guarantee == "exactly once"
    assert paths["tweets -> r"].guarantee == "at most once"
    assert paths["tweets -> all"].guarantee == "at most once"
    assert set(paths["tweets -> all"].channels) == {"a_to_y", "a_to_z", "left_to_end", "right_to_end", "both_to_last"}
    assert paths["tweets -> all"].weakest == ("a -> right",)


def test_a_path_that_forks_between_two_tiers_counts_every_channel_on_the_way() -> None:
    steps = [step("a", "tweets", Filter("id > 1")), step("l", "a", Filter("id > 2")), step("r", "a", Filter("id > 3"))]
    made = flow(source(), *steps, step("both", "l r", Merge()), sink("all", "both"))
    edges = {"r -> both": EdgeProperties(durability="best_effort")}
    made = cut(made, tier("x", "a"), tier("y", "l r"), tier("z", "both"), tier("end", "all"), edges=edges)
    path = paths_of(made)["tweets -> all"]
    assert set(path.channels) == {"a_to_y", "l_to_z", "r_to_z", "both_to_end"}
    assert path.guarantee == "at most once"


def test_a_flow_that_is_not_cut_has_the_paths_of_its_only_tier(tmp_path: Path) -> None:
    plan: FlowPlan = plan_flow(tweets(tmp_path))
    said = [(path.source, path.sink, path.guarantee, path.reason) for path in plan.paths]
    assert said == [(each.source, each.sink, each.guarantee, each.reason) for query in plan.tiers[0].queries for each in query.guarantees]
