"""What a flow that goes to groups is told: where members lie, what a plan says, and that `at` stands for what else a node must say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors import catalog
from scribengin.connectors.group.sink import GroupSink
from scribengin.core.errors import InputError
from scribengin.local.prepare import open_sinks, prepare, source_place
from scribengin.plan.groups import group_notes

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.local.prepare import PreparedFlow

FLOW = """
version: 1
name: copied
sources: {numbers: {type: files, path: in, format: json, schema: "part INT, seq BIGINT"}}
steps:
  whole: {from: numbers, filter: seq >= 0}
  again: {from: whole, filter: part >= 0}
sinks:
  kept: {from: again, type: files, path: kept, format: json, to: disks}
  told: {from: again, type: kafka, topic: t, format: json, to: clusters}
tiers: {first: {steps: [whole]}, second: {steps: [again]}}
edges: {"whole -> again": {channel: {type: kafka, topic: c}, to: clusters.far}}
groups:
  disks: {members: [{at: /mnt/a}, {at: b, cost: 3}, {at: c}]}
  clusters: {members: [{at: "near:9092", name: near}, {at: "far:9092", name: far, cost: 2}]}
"""


@pytest.fixture
def made(tmp_path: Path) -> Any:
    def make(text: str = FLOW) -> PreparedFlow:
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "flow.yaml").write_text(text)
        return prepare(tmp_path / "flow.yaml", state=None)

    return make


def test_at_is_the_bootstrap_in_kafka_and_a_folder_above_the_node_s_path_elsewhere(made: Any) -> None:
    first, second = made().tiers
    flow = second.plan.flow
    sinks: dict[str, Any] = open_sinks(flow)
    assert [str(sink.path) for sink in sinks["kept"]._sinks.values()] == ["/mnt/a/kept", f"{flow.folder}/b/kept", f"{flow.folder}/c/kept"]
    assert [sink._options["bootstrap"] for sink in sinks["told"]._sinks.values()] == ["near:9092", "far:9092"]
    place = source_place(flow, "whole")
    assert [(name, options["bootstrap"], options["topic"]) for name, _, options in place.members] == [("far", "far:9092", "c")]
    (channel,) = open_sinks(first.plan.flow).values()
    assert isinstance(channel, GroupSink)


def test_a_folder_channel_without_a_path_gets_one_below_each_member(made: Any) -> None:
    prepared = made(FLOW.replace("{type: kafka, topic: c}, to: clusters.far", "folder, to: disks"))
    place = source_place(prepared.tiers[1].plan.flow, "whole")
    assert [options["path"] for _, _, options in place.members] == [f"{at}/scribengin-copied-whole-second" for at in ("/mnt/a", "b", "c")]


def test_the_plan_says_who_is_first_that_a_batch_waits_and_that_order_is_lost(made: Any) -> None:
    first, second = made().tiers
    assert list(group_notes(second.plan.flow)) == [
        "kept goes to group disks: first to m1 (path /mnt/a/kept, cost 1) and m3 (path c/kept, cost 1) in turn, then m2 (path b/kept, "
        "cost 3); the available member with the lowest cost is used; a Batch that is decided for a member waits for it, later "
        "Batches go to "
        "other members; order across members is not kept",
        "told goes to group clusters: first to near (bootstrap near:9092, cost 1), then far (bootstrap far:9092, cost 2); the available "
        "member with the lowest cost is used; a Batch that is decided for a member waits for it, later Batches go to other members; "
        "order across members is not kept",
    ]
    (edge,) = (hint for hint in first.plan.hints if "group" in hint)
    assert edge.endswith("goes to member far of group clusters (bootstrap far:9092); its Batches wait until it is available")


def test_a_member_s_place_and_cost_are_no_part_of_what_a_batch_s_rows_depend_on(made: Any) -> None:
    before = [query.fingerprint for tier in made().tiers for query in tier.plan.queries]
    moved = FLOW.replace("at: b, cost: 3", "at: elsewhere, cost: 5").replace("near:9092", "nearer:9092").replace("clusters.far", "clusters")
    assert [query.fingerprint for tier in made(moved).tiers for query in tier.plan.queries] == before


def test_an_edge_to_a_group_that_is_not_end_to_end_is_refused(made: Any) -> None:
    for text in (
        FLOW.replace("to: clusters.far", "to: clusters, durability: best_effort"),
        FLOW.replace("to: clusters.far", "to: clusters.far").replace(
            "\nsources:", "\ndefaults: {edge: {durability: store_on_failure}}\nsources:"
        ),
    ):
        with pytest.raises(InputError) as told:
            made(text)
        (problem,) = told.value.problems
        assert (problem.code, problem.place.line) == ("group-durability", text[: text.index("durability: ")].count("\n") + 1)


def test_a_sink_to_a_group_is_written_exactly_once_whatever_delivery_is_asked_for(made: Any) -> None:
    flow = made(FLOW.replace("topic: t,", "topic: t, delivery: at_least_once,")).tiers[1].plan.flow
    assert all(sink.exactly_once for sink in open_sinks(flow)["told"]._sinks.values())


def test_a_member_s_name_travels_with_the_packs_that_go_there(made: Any, tmp_path: Path) -> None:
    flow = made(FLOW.replace("{type: kafka, topic: c}, to: clusters.far", "folder, to: disks")).tiers[0].plan.flow
    (sink,) = open_sinks(flow).values()
    assert isinstance(sink, GroupSink)
    assert [member._wire._member for member in sink._sinks.values()] == ["m1", "m2", "m3"]  # type: ignore[attr-defined]


def test_a_node_without_a_group_is_opened_as_ever(made: Any) -> None:
    flow = made(FLOW.replace(", to: disks", "")).tiers[1].plan.flow
    assert not isinstance(open_sinks(flow)["kept"], GroupSink)
    assert json.dumps(list(source_place(flow, "whole").members)) != "[]"
    known = {
        "files",
        "objects",
        "hdfs",
        "kafka",
        "postgres",
        "delta",
        "opensearch",
        "elasticsearch",
        "cassandra",
        "hbase",
        "http",
        "spark",
        "console",
        "summary",
    }
    assert catalog.sink_types().keys() == known
