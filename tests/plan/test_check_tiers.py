"""Rules on tiers, edges, channels and groups. In the flows « marks where the one problem must stand."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flat_places import PathPlaces
from hypothesis import event, given, settings
from hypothesis import strategies as st

from scribengin import Flow, source
from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.problems import Place
from scribengin.plan.channels import BUILT_IN, edge_properties
from scribengin.plan.check import check_flow
from scribengin.plan.graph import Graph, inputs_of
from scribengin.plan.tier_flows import plan_flow
from scribengin.plan.tiers import assign
from scribengin.plan.validate import validate_file
from scribengin.spec import tier_keys
from scribengin.spec.call_sites import CallPlaces
from scribengin.spec.dump import edge_data
from scribengin.spec.model import Channel, Depth, EdgeProperties, Tier
from scribengin.spec.parse import parse_flow

if TYPE_CHECKING:
    from scribengin.core.problems import Problem

TYPES = {"source_types": source_types(), "sink_types": sink_types()}
COLUMNS = "id BIGINT, user STRING, amount DOUBLE, raw BINARY, ts TIMESTAMP"
HEAD = f'version: 1\nname: shop\nsources:\n  orders: {{type: files, path: data, format: json, schema: "{COLUMNS}"}}\n'
CHAIN = HEAD + (
    "steps:\n"
    "  known: {from: orders, filter: id > 1}\n"
    "  hot: {from: known, filter: id > 2}\n"
    "  tagged: {from: hot, filter: id > 3}\n"
    "sinks:\n"
    "  kept: {from: tagged, type: files, path: out/kept, format: json}\n"
)
CUT = CHAIN + "tiers:\n  near: {steps: [known, hot]}\n  core: {steps: [tagged]}\n"
DIAMOND = HEAD + (
    "steps:\n"
    "  known: {from: orders, filter: id > 1}\n"
    "  hot: {from: known, filter: id > 2}\n"
    "  cold: {from: known, filter: id <= 2}\n"
    "  both: {from: [hot, cold]}\n"
    "sinks:\n"
    "  kept: {from: both, type: files, path: out/kept, format: json}\n"
)
FAN_IN = DIAMOND + "tiers:\n  near: {steps: [known]}\n  a: {steps: [hot]}\n  b: {steps: [cold]}\n  core: {steps: [both]}\n"
FORK = HEAD + (
    "steps:\n"
    "  known: {from: orders, filter: id > 1}\n"
    "  split: {from: known, route: {big: id > 100, otherwise: small}}\n"
    "sinks:\n"
    "  one: {from: known, type: files, path: out/one, format: json}\n"
    "  two: {from: known, type: files, path: out/two, format: json}\n"
    "  big: {from: split.big, type: files, path: out/big, format: json}\n"
    "  small: {from: split.small, type: files, path: out/small, format: json}\n"
)
KAFKA = "{from: tagged, type: kafka, bootstrap: %s, topic: %s, format: json}"
TWO_TABLES = HEAD + (
    '  users: {type: files, path: ref, format: json, schema: "id BIGINT, name STRING", static: true}\n'
    "steps:\n"
    "  names: {from: users, filter: id > 0}\n"
    "  known: {from: [orders, names], join: {key: [id]}}\n"
    "sinks:\n"
    "  kept: {from: known, type: files, path: out/kept, format: json}\n"
)


def problems(folder: Path, text: str) -> list[Problem]:
    file = folder / "flow.yaml"
    file.write_text(text)
    return validate_file(file, {})[1]


def marked(folder: Path, text: str) -> Problem:
    """The one problem of a flow; it stands where the text has its mark."""
    before, mark, after = text.partition("«")
    assert mark
    found = problems(folder, before + after)
    assert len(found) == 1, [str(problem) for problem in found]
    assert (found[0].place.line, found[0].place.column) == (before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1), str(found[0])
    assert found[0].remedy
    return found[0]


def check(folder: Path, text: str, code: str, told: str) -> None:
    problem = marked(folder, text)
    assert problem.code == code
    assert told in f"{problem.message}; {problem.remedy}"


@pytest.mark.parametrize("text", [CHAIN, CUT, FAN_IN, TWO_TABLES], ids=["fused", "cut", "fan-in", "tables"])
def test_a_flow_that_is_right_has_no_problem(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == []


@pytest.mark.parametrize(
    ("tiers", "code", "told"),
    [
        ("near: {steps: [known]}\n  core: {steps: [tagged, «known]}", "tier-twice", 'step "known", which is already in tier "near"'),
        ("near: {steps: [orders, known]}\n  core: {steps: [«orders, tagged]}", "tier-twice", 'source "orders"'),
        ("near: {steps: [known]}\n  core: {steps: [tagged, «taged]}", "tier-node-unknown", 'did you mean "tagged"?'),
        ("near: {steps: [known]}\n  core: {steps: [«x]}", "tier-node-unknown", "nodes are orders, known, hot, tagged, kept"),
        ("near: {steps: [known]}\n  core: {steps: «[]}", "tier-empty", "add node ids to its `steps`"),
        ("near: {steps: [known, tagged]}\n  core: {steps: [hot]}", "", ""),
    ],
)
def test_what_tiers_name(tmp_path: Path, tiers: str, code: str, told: str) -> None:
    if code:
        check(tmp_path, f"{CHAIN}tiers:\n  {tiers}\n", code, told)
    else:
        assert {problem.code for problem in problems(tmp_path, f"{CHAIN}tiers:\n  {tiers}\n")} == {"tier-cycle"}


@pytest.mark.parametrize(("said", "workers"), [("3", "3 workers"), ("each", "a worker on each host")])
def test_workers_that_could_share_nothing(tmp_path: Path, said: str, workers: str) -> None:
    once = CHAIN.replace("sources:\n  orders: {", "sources:\n  orders: {watermark: ts 10m, ").replace(
        "filter: id > 3", "dedupe: {key: [id]}"
    )
    text = f"{once}tiers: {{one: {{steps: [known, kept], workers: «{said}}}}}\n"
    check(tmp_path, text, "workers-alone", f'tier "one" has {workers}, but its work cannot be shared')


def test_a_branch_in_a_tier_is_sent_to_its_step(tmp_path: Path) -> None:
    text = FORK + "tiers:\n  near: {steps: [known]}\n  core: {steps: [«split.big]}\n"
    check(tmp_path, text, "tier-node-unknown", 'write the whole step, not a branch: "split"')


def test_a_node_between_tiers_is_told_with_the_tiers_that_it_may_run_in(tmp_path: Path) -> None:
    text = DIAMOND.replace("  both:", "  «both:") + "tiers:\n  near: {steps: [known, hot]}\n  far: {steps: [cold]}\n"
    check(tmp_path, text, "tier-unclear", 'reads from tiers "near" and "far"; add it to the `steps` of near or far')
    assert problems(tmp_path, text.replace("«", "").replace("[cold]", "[cold, both]")) == []


def test_a_step_that_several_tiers_read_and_that_reads_a_source_is_told(tmp_path: Path) -> None:
    text = FORK.replace("  known:", "  «known:") + "tiers:\n  a: {steps: [one]}\n  b: {steps: [two, split]}\n"
    check(tmp_path, text, "tier-unclear", 'is read by tiers "b" and "a"')


def test_the_memory_of_a_driver_is_that_of_the_tier_unless_it_has_executors(tmp_path: Path) -> None:
    tiers = "tiers:\n  all: {steps: [known, hot, tagged], resources: {memory: 1GiB%s, spark: {«spark.driver.memory: 2g}}}\n"
    check(tmp_path, CHAIN + tiers % "", "spark-setting", "spark.driver.memory cannot be set here")
    right = (tiers % ", executors: 2").replace("«spark.driver.memory: 2g", "spark.driver.memory: 2g, spark.driver.memoryOverhead: 1g")
    assert problems(tmp_path, CHAIN + right) == []
    scaled = (tiers % "").replace("«spark.driver.memory: 2g}}}", "spark.driver.memory: 2g}}, autoscale: {lag: 1m, max: 4}}")
    assert problems(tmp_path, CHAIN + scaled) == [], "it has executors too"


def test_what_no_tier_reaches_is_told_once(tmp_path: Path) -> None:
    lonely = "  far: {from: n, filter: id > 1}\n  further: {from: far, filter: id > 1}\n"
    text = CUT.replace("steps:\n", "  n: {type: sequence}\nsteps:\n").replace(
        "sinks:\n", f"{lonely}sinks:\n  shown: {{from: further, type: console}}\n"
    )
    check(tmp_path, text.replace("  far:", "  «far:"), "tier-unclear", "has no neighbour that is listed in a tier")


def test_tiers_that_feed_each_other_are_told_with_the_way(tmp_path: Path) -> None:
    text = CHAIN + "tiers:\n  core: {steps: [hot]}\n  «near: {steps: [known, tagged]}\n"
    problem = marked(tmp_path, text.replace("  core", "  «core").replace("«near", "near"))
    assert problem.code == "tier-cycle"
    assert 'core -> near -> core, by "hot -> tagged", "known -> hot"' in problem.message


def test_a_circle_of_three_tiers_is_told_once(tmp_path: Path) -> None:
    text = CHAIN + "tiers:\n  «a: {steps: [known, kept]}\n  b: {steps: [hot]}\n  c: {steps: [tagged]}\n"
    check(tmp_path, text, "tier-cycle", "a -> b -> c -> a")


def test_a_tier_of_tables_alone_is_told(tmp_path: Path) -> None:
    text = TWO_TABLES + "tiers:\n  side: «{steps: [users, names]}\n  near: {steps: [known]}\n"
    check(tmp_path, text, "tier-empty", "users, names are static")
    assert problems(tmp_path, TWO_TABLES + "tiers:\n  side: {steps: [names]}\n") == []


def test_sinks_that_commit_together_stay_in_one_tier(tmp_path: Path) -> None:
    together = FORK.replace("out/one, format: json", "out/one, format: json, together: x").replace(
        "out/two, format: json", "out/two, format: json, together: «x"
    )
    tiers = "tiers:\n  near: {steps: [known, one]}\n  far: {steps: [two]}\n  rest: {steps: [split]}\n"
    check(tmp_path, together + tiers, "together-cut", 'in tier "far", but sink "one", which commits with it as "x", is in "near"')
    assert problems(tmp_path, (together + tiers).replace("«", "").replace("[known, one]", "[known]").replace("[two]", "[one, two]")) == []


@pytest.mark.parametrize(
    ("edges", "code", "told"),
    [
        ('«"hot -> taged": {compression: zstd}', "edge-unknown", 'did you mean "hot -> tagged"?'),
        ('«"known -> tagged": {compression: zstd}', "edge-unknown", 'step "tagged" does not read "known"; did you mean "hot -> tagged"?'),
        ('«"hotter -> tagged": {compression: zstd}', "edge-unknown", 'did you mean "hot -> tagged"?'),
        ('«"known -> hot": {compression: zstd}', "edge-uncut", 'both of its ends are in tier "near"'),
        ('«"tagged->kept": {compression: zstd}', "edge-uncut", 'both of its ends are in tier "core"'),
        ('«"orders -> known": {compression: zstd}', "edge-from-source", 'name "orders" under the `steps`'),
    ],
)
def test_an_edge_with_properties_is_an_arrow_that_is_cut(tmp_path: Path, edges: str, code: str, told: str) -> None:
    check(tmp_path, f"{CUT}edges:\n  {edges}\n", code, told)


def test_the_same_edges_are_right_when_the_flow_runs_as_one(tmp_path: Path) -> None:
    edges = (
        'edges:\n  "hot -> tagged": {channel: {topic: t}}\n  "known -> hot": {compression: zstd}\n  "orders -> known": {limit: {rows: 5}}\n'
    )
    assert problems(tmp_path, CHAIN + edges) == []
    check(tmp_path, CHAIN + edges.replace('  "hot -> tagged"', '  «"hot -> kept"'), "edge-unknown", "did you mean")


def test_an_edge_without_the_branch_of_its_route_is_told(tmp_path: Path) -> None:
    text = FORK + "tiers:\n  near: {steps: [known, split]}\n  far: {steps: [big]}\n"
    check(tmp_path, text + 'edges:\n  «"split -> big": {compression: zstd}\n', "edge-unknown", 'did you mean "split.big -> big"?')
    assert problems(tmp_path, text + 'edges:\n  "split.big -> big": {compression: zstd}\n') == []


def test_a_source_in_a_tier_of_its_own_hands_its_rows_on(tmp_path: Path) -> None:
    edge = 'edges:\n  "orders -> known": {compression: zstd}\n'
    assert problems(tmp_path, CUT.replace("near: {steps: [known", "in: {steps: orders}\n  near: {steps: [known") + edge) == []


def test_a_table_has_no_channel(tmp_path: Path) -> None:
    text = TWO_TABLES + "tiers:\n  side: {steps: [orders, names]}\n  near: {steps: [known]}\nedges:\n"
    check(tmp_path, text + '  «"names -> known": {compression: zstd}\n', "edge-from-source", "is static, so each tier reads it itself")
    assert problems(tmp_path, text + '  "orders -> known": {compression: zstd}\n') == []


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (CUT.replace("[known, hot]", "[known, hot], group: «hots"), "group-unknown", 'did you mean "hosts"?'),
        (CUT + 'edges:\n  "hot -> tagged": {to: «wan}\n', "group-unknown", "groups are hosts"),
        (CUT + 'edges:\n  "hot -> tagged": {to: «hosts.secnd}\n', "member-unknown", 'did you mean "second"?'),
        (CHAIN.replace("out/kept,", "out/kept, to: «hosts.m2,"), "member-unknown", "its members are m1, second"),
        (CHAIN.replace("out/kept,", "out/kept, to: «hostz.m2,"), "group-unknown", 'sink "kept" names the group "hostz"'),
    ],
)
def test_groups_and_members_that_are_named_are_there(tmp_path: Path, text: str, code: str, told: str) -> None:
    groups = "groups: {hosts: {members: [{at: a}, {at: b, name: second}]}}\n"
    check(tmp_path, text + groups, code, told)
    right = text.replace("«", "").replace("hots", "hosts").replace("wan", "hosts").replace("secnd", "second").replace(".m2", ".m1")
    assert problems(tmp_path, right.replace("hostz", "hosts") + groups) == []


def test_a_group_of_a_flow_without_groups_is_told_with_how_to_add_it(tmp_path: Path) -> None:
    check(tmp_path, CHAIN.replace("out/kept,", "out/kept, to: «wan,"), "group-unknown", "add groups: {wan: {members: [{at: …}]}}")


def test_a_tier_runs_on_hosts_and_not_on_places_of_data(tmp_path: Path) -> None:
    on_group = CUT.replace("[known, hot]", "[known, hot], group: hosts")
    assert problems(tmp_path, on_group + "groups: {hosts: {members: [{at: pc-7.example.org}, {at: node_b}]}}\n") == []
    check(
        tmp_path,
        on_group + "groups: {hosts: {members: [{at: a}, {at: «/mnt/a}]}}\n",
        "group-host",
        '"/mnt/a" is not a valid name of a host',
    )
    assert problems(tmp_path, CHAIN.replace("out/kept,", "out/kept, to: disks,") + "groups: {disks: {members: [{at: /mnt/a}]}}\n") == []


ONE_CHANNEL = FORK + "tiers:\n  near: {steps: [known]}\n  far: {steps: [one, two, split]}\nedges:\n"


def test_edges_that_share_a_channel_say_the_same(tmp_path: Path) -> None:
    edges = '  "known -> one": {compression: zstd}\n  «"known -> two": {compression: gzip}\n  "known -> split": {compression: zstd}\n'
    check(tmp_path, ONE_CHANNEL + edges, "edges-differ", "share one channel, but differ in compression; write the same")
    assert problems(tmp_path, ONE_CHANNEL + edges.replace("«", "").replace("gzip", "zstd")) == []


def test_an_edge_that_says_nothing_differs_from_one_that_says_something(tmp_path: Path) -> None:
    edges = '  «"known -> two": {retention: 2d}\n'
    text = ONE_CHANNEL.replace("[one, two, split]", "[two, one, split]").replace(
        "far: {steps: [two, one, split]", "far: {steps: [one, two]}\n  rest: {steps: [split]"
    )
    check(tmp_path, text + edges, "edges-differ", "differ in retention")
    first = edges.replace("known -> two", "known -> one")
    check(tmp_path, text + first, "edges-differ", "differ in retention")
    default = "defaults: {edge: {retention: 2d}}\n"
    assert problems(tmp_path, default + text + edges.replace("«", "")) == []
    folder = edges.replace("«", "").replace("retention: 2d", "channel: folder")
    assert problems(tmp_path, "defaults: {edge: {channel: folder}}\n" + text + folder) == []


SHARED = "edges:\n  %s: {channel: {path: hand}%s}\n  %s: {channel: {path: %s}%s}\n"


def test_two_channels_do_not_lie_in_one_place(tmp_path: Path) -> None:
    text = CHAIN + "tiers:\n  near: {steps: [known]}\n  mid: {steps: [hot]}\n  core: {steps: [tagged]}\n"
    edges = SHARED % ('"known -> hot"', "", '"hot -> tagged"', "«./hand", "")
    check(tmp_path, text + edges, "channel-shared", 'which edge "known -> hot" (folder hand) also uses')
    check(tmp_path, text + edges.replace("./hand", "hand/deep"), "channel-shared", "is folder hand/deep")
    assert problems(tmp_path, text + edges.replace("«./hand", "hand2")) == []
    topics = edges.replace("path: hand}", "topic: t, bootstrap: b}").replace("path: «./hand}", "topic: «t, bootstrap: b}")
    check(tmp_path, text + topics, "channel-shared", "is topic t")
    assert problems(tmp_path, text + topics.replace("«t, bootstrap: b", "t, bootstrap: c")) == []


def test_a_place_is_shared_by_what_one_union_reads_and_its_writers_agree(tmp_path: Path) -> None:
    edges = SHARED % ('"hot -> both"', ", compression: zstd", '"cold -> both"', "hand", ", compression: zstd")
    assert problems(tmp_path, FAN_IN + edges) == []
    differing = edges.replace(
        '"cold -> both": {channel: {path: hand}, compression: zstd', '«"cold -> both": {channel: {path: hand}, pack: {rows: 5}'
    )
    check(tmp_path, FAN_IN + differing, "edges-differ", "write to folder hand, but differ in compression, pack")
    assert problems(tmp_path, FAN_IN + edges.replace("zstd}\n", "zstd, limit: {rows: 5}}\n", 1)) == []


def test_a_place_is_shared_by_what_one_sink_reads(tmp_path: Path) -> None:
    text = FAN_IN.replace("  both: {from: [hot, cold]}\n", "").replace("from: both", "from: [hot, cold]").replace("[both]", "[kept]")
    edges = SHARED % ('"hot -> kept"', "", '"cold -> kept"', "hand", "")
    assert problems(tmp_path, text + edges) == []


def test_a_place_is_shared_by_the_tiers_that_read_one_node(tmp_path: Path) -> None:
    text = FORK + "tiers:\n  near: {steps: [known, split]}\n  a: {steps: [one]}\n  b: {steps: [two]}\n"
    edges = SHARED % ('"known -> one"', "", '"known -> two"', "«hand", "")
    assert problems(tmp_path, text + edges.replace("«", "")) == []
    check(tmp_path, text + edges.replace("«hand", "«hand/deep"), "channel-shared", "is folder hand/deep")


@pytest.mark.parametrize("step", ["join: {key: [id], how: semi}", "merge: {how: intersect, key: [id]}"])
def test_two_inputs_that_are_compared_do_not_share_a_place(tmp_path: Path, step: str) -> None:
    text = FAN_IN.replace("both: {from: [hot, cold]}", f"both: {{from: [hot, cold], {step}}}")
    edges = SHARED % ('"hot -> both"', "", '"cold -> both"', "hand", "")
    assert "channel-shared" in {problem.code for problem in problems(tmp_path, text + edges)}


def test_two_unions_do_not_share_a_place(tmp_path: Path) -> None:
    text = FAN_IN.replace("sinks:\n", "  more: {from: [hot, cold]}\nsinks:\n  shown: {from: more, type: console}\n")
    text = text.replace("core: {steps: [both]}", "core: {steps: [both]}\n  rest: {steps: [more]}")
    edges = SHARED % ('"hot -> both"', "", '"cold -> more"', "«hand", "")
    check(tmp_path, text + edges, "channel-shared", 'which edge "hot -> both" (folder hand) also uses')


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CUT + 'edges:\n  "hot -> tagged": {channel: {path: «out/kept/in}}\n', 'sink "kept" also uses'),
        (CUT + 'edges:\n  "hot -> tagged": {channel: {path: «data}}\n', 'source "orders" also uses'),
        (
            CUT.replace("kept: {from: tagged, type: files, path: out/kept, format: json}", "kept: " + KAFKA % ("b", "t"))
            + 'edges:\n  "hot -> tagged": {channel: {topic: «t}}\n',
            'sink "kept" also uses',
        ),
    ],
)
def test_a_channel_does_not_lie_where_a_node_of_the_flow_reads_or_writes(tmp_path: Path, text: str, told: str) -> None:
    check(tmp_path, text, "channel-shared", told)


@pytest.mark.parametrize(
    ("key", "code", "told"),
    [
        ("[user, «usr]", "column-unknown", 'did you mean "user"?'),
        ("[«amount]", "edge-key-type", "is DOUBLE"),
        ("[«ts]", "edge-key-type", "is TIMESTAMP"),
    ],
)
def test_the_key_of_an_ordered_edge_is_made_of_its_columns(tmp_path: Path, key: str, code: str, told: str) -> None:
    check(tmp_path, f'{CUT}edges:\n  "hot -> tagged": {{ordering: key, key: {key}}}\n', code, told)
    check(tmp_path, f"defaults: {{edge: {{ordering: key, key: {key}}}}}\n{CUT}", code, told)


def test_texts_bytes_and_whole_numbers_order_rows(tmp_path: Path) -> None:
    assert problems(tmp_path, f'{CUT}edges:\n  "hot -> tagged": {{ordering: key, key: [id, user, raw]}}\n') == []
    assert problems(tmp_path, f'defaults: {{edge: {{ordering: key, key: x}}}}\n{CUT}edges:\n  "hot -> tagged": {{key: user}}\n') == []
    assert problems(tmp_path, f"defaults: {{edge: {{ordering: key, key: x}}}}\n{CHAIN}") == []
    assert problems(tmp_path, f'defaults: {{edge: {{ordering: key, key: x}}}}\n{CUT}edges:\n  "hot -> tagged": {{ordering: none}}\n') == []


def test_a_channel_over_kafka_has_brokers(tmp_path: Path) -> None:
    edges = 'edges:\n  "hot -> tagged": {channel: «kafka}\n'
    check(
        tmp_path,
        CUT + edges,
        "channel-cluster",
        'no node of the flow has `bootstrap`; add the brokers: channel: {type: kafka, bootstrap: "broker1:9092"}',
    )
    one = CUT.replace("sinks:\n", "sinks:\n  sent: " + KAFKA % ("b1", "t") + "\n")
    assert problems(tmp_path, one + edges.replace("«", "")) == []
    two = one.replace("sinks:\n", "sinks:\n  more: " + KAFKA % ("b2", "t") + "\n")
    check(tmp_path, two + edges, "channel-cluster", "nodes have b1 and b2")
    assert problems(tmp_path, two + edges.replace("«kafka", "{type: kafka, bootstrap: b1}")) == []
    assert problems(tmp_path, two) == []


def test_brokers_may_stand_in_the_defaults_and_are_missed_there_once(tmp_path: Path) -> None:
    text = "defaults: {edge: {channel: «kafka}}\n" + FAN_IN
    check(tmp_path, text, "channel-cluster", "its brokers are not known")
    assert problems(tmp_path, text.replace("«kafka", "{type: kafka, bootstrap: b}")) == []
    assert problems(tmp_path, text.replace("«kafka", "folder")) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "tiers:\n  near: {steps: [known]}\n  far: {steps: [tagged], group: g}\ngroups: {g: {«membrs: []}}\n",
        "tiers:\n  near: {«step: [known]}\n",
        "tiers:\n  near: {steps: [known, hot]}\n  core: {steps: [tagged], «gruop: x}\n",
        "tiers:\n  near: {steps: [known, hot], group: g}\n  core: {steps: [tagged]}\ngroups: {g: {members: [{at: h, «cst: 1}]}}\n",
        'tiers:\n  near: {steps: [known, hot]}\n  core: {steps: [tagged]}\nedges: {"hot -> tagged": {channel: kafka, «presure: 1}}\n',
    ],
)
def test_what_only_follows_from_a_part_that_cannot_be_read_is_not_told(tmp_path: Path, wrong: str) -> None:
    found = problems(tmp_path, CHAIN + wrong.replace("«", ""))
    assert [problem.code for problem in found] == ["unknown-key"]


def test_a_tier_that_cannot_be_read_may_have_named_what_no_other_names(tmp_path: Path) -> None:
    found = problems(tmp_path, DIAMOND + "tiers:\n  near: {steps: [known, hot]}\n  far: {steps: [cold]}\n  end: {step: [both]}\n")
    assert [problem.code for problem in found] == ["unknown-key"]


def test_a_tier_and_a_sink_are_judged_whatever_is_wrong_with_the_nodes(tmp_path: Path) -> None:
    text = DIAMOND.replace("filter: id <= 2", "filtr: id <= 2").replace("out/kept,", "out/kept, to: wan,")
    found = problems(tmp_path, text + "tiers:\n  both: {steps: [nowhere]}\n  rest: {steps: [known]}\n")
    assert {problem.code for problem in found} == {"unknown-key", "tier-node-unknown", "group-unknown"}


def test_what_only_follows_from_a_broken_node_is_not_told(tmp_path: Path) -> None:
    text = DIAMOND.replace("filter: id <= 2", "«filtr: id <= 2").replace("  cold:", "  cold:")
    cut = "tiers:\n  near: {steps: [known, hot]}\n  far: {steps: [cold]}\n"
    edges = 'edges:\n  "cold -> both": {compression: zstd}\n  "hot -> both": {compression: zstd}\n  "known -> cold": {pack: {rows: 1}}\n'
    found = problems(tmp_path, (text + cut + edges).replace("«", ""))
    assert [problem.code for problem in found] == ["unknown-key"]


def test_a_circle_of_nodes_is_told_and_no_circle_of_tiers(tmp_path: Path) -> None:
    twisted = DIAMOND.replace("known: {from: orders", "known: {from: both") + "tiers:\n  near: {steps: [hot]}\n  far: {steps: [cold]}\n"
    assert {problem.code for problem in problems(tmp_path, twisted)} <= {"cycle", "source-unread"}
    text = CUT.replace("known: {from: orders", "known: {from: tagged")
    assert {problem.code for problem in problems(tmp_path, text)} <= {"cycle", "source-unread"}


@st.composite
def cuts(draw: st.DrawFn, graph: Graph) -> list[list[str]]:
    """Tiers that feed each other one way; some nodes are left to be placed."""
    rank: dict[str, int] = {}
    for id_ in graph.order:
        rank[id_] = max((rank[parent] for parent in graph.parents[id_]), default=0) + draw(st.integers(0, 1))
    named = [id_ for id_ in rank if id_ in graph.flow.steps or draw(st.booleans())]
    return [[id_ for id_ in named if rank[id_] == each and draw(st.integers(0, 9))] for each in sorted({rank[id_] for id_ in named})]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_tiers_and_edges_name_it_is_told_or_planned(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([CHAIN, DIAMOND, FORK, TWO_TABLES]))
    parsed = parse_flow(text, "flow.yaml", folder=Path(), environment={}, **TYPES)
    assert parsed.flow is not None
    graph = Graph(parsed.flow)
    steps = data.draw(
        st.one_of(cuts(graph), st.lists(st.lists(st.sampled_from([*graph.nodes, "nowhere"]), max_size=3, unique=True), max_size=3))
    )
    arrows = [f"{reference} -> {id_}" for id_, node in graph.nodes.items() for reference in inputs_of(node)]
    names = data.draw(st.lists(st.sampled_from([*arrows, "known -> nowhere"]), max_size=3, unique=True))
    edge = st.sampled_from(
        [
            EdgeProperties(compression="zstd"),
            EdgeProperties(Channel("folder", path="hand")),
            EdgeProperties(Channel("kafka")),
            EdgeProperties(ordering="key", key=("id",)),
        ]
    )
    flow = replace(
        parsed.flow,
        tiers={f"t{number}": Tier(f"t{number}", tuple(each)) for number, each in enumerate(steps)},
        edges={name: data.draw(edge) for name in names},
    )
    found = check_flow(flow, PathPlaces(), **TYPES)
    assert all(problem.remedy for problem in found)
    if found:
        return
    event("planned" if len(flow.tiers) > 1 else "fused")
    placed = assign(Graph(flow))
    assert placed.torn == {}
    assert set(placed.tier_of) >= {*flow.steps, *flow.sinks}
    plan = plan_flow(flow)
    assert [tier.tier for tier in plan.tiers] == list(placed.order(flow.tiers or ["main"]))
    assert all(tier.queries for tier in plan.tiers)


def test_the_page_names_what_an_edge_has_that_says_nothing() -> None:
    built_in = edge_data(BUILT_IN)
    told = {key.name: key.default for key in tier_keys.EDGE.keys if key.default}
    pack = {key.name: key.default for key in tier_keys.PACK.keys}
    assert pack == {name: str(value) for name, value in built_in.pop("pack").items()}
    for level in ("high_water", "capacity"):
        depth = built_in.pop(level)
        assert told.pop(level) == f"{depth['rows']} rows or {depth['bytes']}"
    assert told.pop("low_water") == "half of high_water"
    flow = parse_flow(CHAIN, "flow.yaml", folder=Path(), environment={}, **TYPES).flow
    assert flow is not None
    assert edge_properties(flow, "hot -> tagged").low_water == Depth(5_000_000, 2 * 2**30)
    assert told == {name: value for name, value in built_in.items() if value != {}}


def test_the_tiers_of_a_python_flow_are_checked_at_its_call() -> None:
    rows = source("sequence", id="a").filter("id > 1", id="big")
    line = sys._getframe().f_lineno + 1
    made = Flow("shop", rows.to("console", id="k"), tiers={"big": {"steps": ["big", "j"]}}, edges={"big -> k": {"compression": "zstd"}})
    places = CallPlaces.of(made, Place(__file__, line, 1))
    found = check_flow(made, places, source_types=source_types(), sink_types=sink_types())
    assert [(problem.code, problem.place.line) for problem in found] == [("tier-node-unknown", line), ("edge-uncut", line)]


@pytest.mark.parametrize("name", ["main", "channels"])
def test_names_that_every_flow_has_in_its_state_are_no_names_of_tiers(name: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(CUT.replace("near:", f"{name}:"))
    _, problems = validate_file(path, {})
    assert [(problem.code, problem.place.line) for problem in problems] == [
        ("tier-name", CUT.splitlines().index("  near: {steps: [known, hot]}") + 1)
    ]


def test_a_keyring_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    text = CUT + 'edges:\n  "hot -> tagged": {encryption: {keyring: keys}}\n'
    (tmp_path / "keys").write_text("k1 " + "A" * 43 + "=\n")
    (tmp_path / "keys").chmod(0o600)
    assert not problems(tmp_path, text)
    (tmp_path / "keys").chmod(0o644)
    (found,) = problems(tmp_path, text)
    assert (found.code, found.severity, found.place.line) == ("keyring", "warning", text.count("\n"))
    assert "chmod 600" in found.message
