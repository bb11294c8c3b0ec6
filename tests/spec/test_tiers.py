"""`tiers`, `edges`, `groups`, `defaults.edge`, `defaults.trace`, `merge.origin` and a sink's `to`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from scribengin import Flow, source
from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.errors import InputError
from scribengin.core.secret import Secret
from scribengin.spec import tier_keys
from scribengin.spec.dump import dump_flow
from scribengin.spec.json_schema import flow_schema
from scribengin.spec.model import Autoscale, Channel, Depth, EdgeProperties, Encryption, Group, Member, Merge, Pack, Rate, Resources, Tier
from scribengin.spec.parse import parse_flow
from tests.design_flow import TWEETS

TYPES = {"source_types": source_types(), "sink_types": sink_types()}
VALIDATOR = Draft202012Validator(flow_schema(**TYPES))

HEAD = "version: 1\nname: shop\nsources: {a: {type: sequence}}\nsinks: {k: {from: a, type: console}}\n"

CUT = """\
defaults: {edge: {compression: zstd}, trace: 0.01}
tiers:
  edge: {steps: [known, hot], group: hosts_a, resources: {cores: 2, memory: 2GiB}, trigger: 1s}
  core: {steps: [tagged, by_hour], acknowledge: state}        # checkpoint | state
edges:
  "hot -> tagged":
    channel: kafka
    compression: zstd
    encryption: {keyring: secrets/channel.keys}
    pack: {rows: 1000, bytes: 256KiB, linger: 50ms}
    ordering: key
    key: [user]
    retention: 7d
    limit: {rows: 5000, bytes: 10MiB}
    high_water: {rows: 100000, bytes: 1GiB, age: 5m}
    low_water: {rows: 50000}
    capacity: {rows: 1000000, bytes: 10GiB, age: 1h}
    durability: store_on_failure
    spill: 1GiB
    to: wan
  "tagged->by_hour":
    channel: {topic: hours, bootstrap: "b:9092", config: {sasl.password: "${secret:env/K1}"}, partitions: 4, replication: 3}
    encryption: {keys: {k1: "${secret:env/K1}"}}
    to: wan.far
  " tagged   ->  kept": {encryption: none, channel: {path: out/hand}}
groups:
  hosts_a: {members: [{at: host1, cost: 1}, {at: host2, name: second, cost: 2}]}
  wan: {members: [{at: near}, {at: far, name: far}]}
"""
GIB = 2**30


def cut_flow() -> str:
    flow = TWEETS.partition("\ntests:")[0].replace("defaults: {delivery: exactly_once, on_error: dead_letter, trigger: 1s}\n", "")
    return flow.replace("path: out/kept,", "path: out/kept, to: wan.far,") + "\n" + CUT


def test_every_form_is_read(parse: Any) -> None:
    parsed = parse(cut_flow(), environment={"K1": "c2VjcmV0"})
    assert parsed.problems == ()
    flow, secret = parsed.flow, Secret("c2VjcmV0", "${secret:env/K1}")
    assert flow.defaults.edge == EdgeProperties(compression="zstd")
    assert flow.defaults.trace == 0.01
    assert flow.tiers == {
        "edge": Tier("edge", ("known", "hot"), "hosts_a", Resources(2, 2 * GIB), 1.0),
        "core": Tier("core", ("tagged", "by_hour"), acknowledge="state"),
    }
    assert flow.edges == {
        "hot -> tagged": EdgeProperties(
            Channel("kafka"),
            "zstd",
            Encryption("secrets/channel.keys"),
            Pack(1000, 256 * 1024, 0.05),
            "key",
            ("user",),
            7 * 86400.0,
            Rate(5000, 10 * 2**20),
            Depth(100_000, GIB, 300.0),
            Depth(50_000),
            Depth(1_000_000, 10 * GIB, 3600.0),
            "store_on_failure",
            GIB,
            "wan",
        ),
        "tagged -> by_hour": EdgeProperties(
            Channel("kafka", "hours", None, "b:9092", {"sasl.password": secret}, 4, 3),
            encryption=Encryption(None, {"k1": secret}, "k1"),
            to="wan.far",
        ),
        "tagged -> kept": EdgeProperties(Channel("folder", path="out/hand"), encryption=Encryption(none=True)),
    }
    assert flow.groups == {
        "hosts_a": Group("hosts_a", (Member("host1", "m1"), Member("host2", "second", 2.0))),
        "wan": Group("wan", (Member("near", "m1"), Member("far", "far"))),
    }
    assert flow.sinks["kept"].to == "wan.far"


def test_a_cut_flow_is_written_without_its_secrets_and_reads_back_as_the_same(parse: Any) -> None:
    environment = {"K1": "c2VjcmV0"}
    flow = parse(cut_flow(), environment=environment).flow
    text = dump_flow(flow, **TYPES)
    assert "c2VjcmV0" not in f"{text}{flow!r}"
    assert parse(text, environment=environment).flow == flow
    assert parse(dump_flow(flow, resolved=True, **TYPES), environment=environment).flow.edges == flow.edges


def test_an_editor_takes_a_cut_flow() -> None:
    assert [error.message for error in VALIDATOR.iter_errors(YAML(typ="safe").load(cut_flow()))] == []


def test_a_resolved_flow_leaves_the_trigger_of_its_sinks_to_their_tiers(parse: Any) -> None:
    def sinks(tier: str) -> dict[str, Any]:
        flow = parse(HEAD + f"tiers: {{t: {{steps: [a, k]{tier}}}}}\n").flow
        return parse(dump_flow(flow, resolved=True, **TYPES)).flow.sinks["k"].trigger_s

    assert sinks("") == 0.0
    assert sinks(", trigger: 5s") is None


def test_the_parts_of_an_edge_keep_their_places_however_its_arrow_is_spelled(parse: Any) -> None:
    parsed = parse(HEAD + 'edges:\n  "a->k": {compression: zstd}\n')
    place = parsed.places.value(("edges", "a -> k", "compression"))
    assert (place.line, place.column) == (6, len('  "a->k": {compression: ') + 1)
    assert parsed.places.key(("edges", "a -> k")).column == 3


def test_the_python_form_takes_the_same_words(parse: Any) -> None:
    rows = source("sequence", id="a")
    cut = {
        "tiers": {"near": {"steps": ["a", "big"]}, "far": {"steps": ["both"], "trigger": "5s"}},
        "edges": {"big->both": {"channel": "kafka", "pack": {"rows": 10}}},
        "groups": {"g": {"members": [{"at": "h"}]}},
    }
    big = rows.filter("id > 1", id="big")
    made = Flow(
        "shop",
        big.merge(rows, id="both", origin="came_by").to("console", id="k", to="g.m1"),
        defaults={"edge": {"compression": "lz4"}, "trace": 1},
        **cut,
    )
    text = (
        "version: 1\nname: shop\ndefaults: {edge: {compression: lz4}, trace: 1}\nsources: {a: {type: sequence}}\n"
        "steps:\n  big: {from: a, filter: id > 1}\n  both: {from: [big, a], merge: {how: union, origin: came_by}}\n"
        "sinks: {k: {from: both, type: console, to: g.m1}}\n"
        "tiers: {near: {steps: [a, big]}, far: {steps: both, trigger: 5s}}\n"
        "edges: {big -> both: {channel: kafka, pack: {rows: 10}}}\n"
        "groups: {g: {members: [{at: h}]}}\n"
    )
    parsed = parse(text)
    assert parsed.problems == ()
    assert made == parsed.flow
    assert made.steps["both"].action == Merge(origin="came_by")
    assert parse_flow(dump_flow(made, **TYPES), "f.yaml", folder=Path(), environment={}, **TYPES).flow == made


@pytest.mark.parametrize(
    "cut",
    [{"tiers": {"near": {"stepz": ["a"]}}}, {"edges": {"a": {"compression": "zstd"}}}, {"groups": {"g": {"members": []}}}],
    ids=lambda cut: next(iter(cut)),
)
def test_what_is_wrong_in_the_parts_of_a_python_flow_is_told_at_the_call_of_flow(cut: dict[str, Any]) -> None:
    output = source("sequence", id="a").to("console", id="k")
    line = sys._getframe().f_lineno + 2
    with pytest.raises(InputError) as raised:
        Flow("shop", output, **cut)
    assert {problem.place.line for problem in raised.value.problems} == {line}


def problems_of(parse: Any, text: str) -> list[tuple[str, str, str]]:
    """(code, remedy, the whole problem) of each, all of them at the mark «, which is taken out of the text."""
    before, mark, after = text.partition("«")
    parsed = parse(before + after, environment={"K": "k"})
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    assert mark
    found = [(problem.place.line, problem.place.column) for problem in parsed.problems]
    assert found == [(line, column)], [str(problem) for problem in parsed.problems]
    return [(problem.code, problem.remedy, str(problem)) for problem in parsed.problems]


@pytest.mark.parametrize(
    ("edge", "code", "told"),
    [
        ("«compresion: zstd", "unknown-key", 'did you mean "compression"?'),
        ("«rows: 5", "unknown-key", '"rows" belongs to `pack`'),
        ("compression: «zip", "bad-choice", "gzip"),
        ("channel: «kafak", "bad-choice", 'did you mean "kafka"?'),
        ("channel: {type: folder, «topic: t}", "key-misplaced", "write type: kafka"),
        ("channel: {type: kafka, «path: t}", "key-misplaced", "write type: folder"),
        ("channel: {topic: t, «path: p}", "key-misplaced", "`channel.path`"),
        ("channel: {type: folder, «bootstrap: t}", "key-misplaced", "`channel.bootstrap`"),
        ("channel: {partitions: «0}", "out-of-range", "write at least 1"),
        ("channel: «{}", "wrong-kind", "is empty"),
        ("«", "wrong-kind", "is empty"),
        ("encryption: «{use: k1}", "encryption-keys", "neither"),
        ("encryption: {keyring: f, keys: «{k1: x}}", "encryption-keys", "both"),
        ('encryption: {keys: {k1: x, key2: "${secret:env/K}"}, use: «key3}', "encryption-keys", 'did you mean "key2"?'),
        ("encryption: {keys: «{k1: x, k2: y}}", "encryption-keys", "add use: k1"),
        ("encryption: {keyring: f, use: «k1}", "encryption-keys", "take `use` out"),
        ("encryption: {keys: «{}}", "encryption-keys", "has no key"),
        ("encryption: «aes", "bad-choice", "none"),
        ("pack: {rows: «0}", "out-of-range", "write at least 1"),
        ("pack: {bytes: «10}", "bad-unit", "no unit"),
        ("pack: {linger: «50}", "bad-unit", "no unit"),
        ("pack: «{}", "wrong-kind", "is empty"),
        ("ordering: «key", "missing-key", "add key:"),
        ("ordering: «key, key: []", "missing-key", "add key:"),
        ("«key: [id]", "key-misplaced", "add ordering: key"),
        ("ordering: none, «key: id", "key-misplaced", "`ordering: key`"),
        ("retention: «0s", "out-of-range", "write at least 1s"),
        ("limit: {rows: «-5}", "out-of-range", "write at least 1"),
        ("limit: {rows: «5.5}", "bad-value", "not a whole number"),
        ("high_water: {age: «0s}", "out-of-range", "write at least 1ms"),
        ("high_water: {rows: 10}, low_water: {rows: «11}", "water-levels", "is 11, more than the 10 of high_water"),
        ("high_water: {bytes: «2MiB}, capacity: {bytes: 1MiB}", "water-levels", "is 2MiB, more than the 1MiB of capacity"),
        ("low_water: {age: «2h}, capacity: {age: 1h}", "water-levels", "is 2h, more than the 1h of capacity"),
        ("«spill: 1GiB", "key-misplaced", "store_on_failure"),
        ("durability: best_effort, «spill: 1GiB", "key-misplaced", "store_on_failure"),
        ("durability: «DFO", "bad-choice", "store_on_failure"),
        ("to: «a.b.c", "bad-name", "group.member"),
        ("to: «Wan", "bad-name", "group.member"),
    ],
)
def test_what_is_wrong_in_an_edge_is_told_at_its_place(parse: Any, edge: str, code: str, told: str) -> None:
    node = "«{}" if edge == "«" else f"{{{edge}}}"
    text = HEAD + f'edges: {{"a -> k": {node}}}\n'
    ((found, _, problem),) = problems_of(parse, text)
    assert found == code
    assert told in problem


@pytest.mark.parametrize(
    "edge",
    [
        "high_water: {rows: 10}, low_water: {rows: 10}, capacity: {rows: 10}",
        "high_water: {rows: 10}, low_water: {bytes: 1GiB}",
        "durability: store_on_failure, spill: 1B",
        "ordering: key, key: id",
        "encryption: {keys: {k1: x, k2: y}, use: k2}",
        "pack: {linger: 0s}",
        "x-note: {any: thing}, ordering: none",
    ],
)
def test_what_is_right_in_an_edge_is_taken(parse: Any, edge: str) -> None:
    assert parse(HEAD + f'edges: {{"a -> k": {{{edge}}}}}\n').problems == ()


@pytest.mark.parametrize(("said", "workers"), [("3", 3), ("each", "each"), ('"each"', "each"), ('"${env:N}"', 2)])
def test_workers_are_a_number_or_each(parse: Any, said: str, workers: int | str) -> None:
    parsed = parse(HEAD + f"tiers: {{one: {{steps: [k], workers: {said}}}}}\n", environment={"N": "2"})
    assert parsed.problems == ()
    assert parsed.flow.tiers["one"].workers == workers


def test_autoscale_has_bounds_and_only_advises_unless_it_is_to_act(parse: Any) -> None:
    def tier(text: str) -> Tier:
        parsed = parse(HEAD + f"tiers: {{t: {{steps: a, {text}}}}}\n")
        assert parsed.problems == ()
        assert parse(dump_flow(parsed.flow, **TYPES)).flow == parsed.flow
        found: Tier = parsed.flow.tiers["t"]
        return found

    assert tier("autoscale: {lag: 1m, max: 8}").autoscale == Autoscale(60.0, 8, 1, "advise")
    assert tier("autoscale: {lag: 90s, min: 2, max: 2, mode: act}").autoscale == Autoscale(90.0, 2, 2, "act")
    assert tier("resources: {executors: 8}, autoscale: {lag: 1m, min: 2, max: 8}").resources.executors == 8
    assert tier("trigger: 1s").autoscale is None


@pytest.mark.parametrize(
    ("said", "code", "told"),
    [
        ("«eech", "bad-value", 'did you mean "each"?'),
        ("«all", "bad-value", "write a number, such as 3, or each"),
        ("«0", "out-of-range", "write at least 1"),
        ("«2.5", "bad-value", "not a whole number"),
        ('«"3"', "bad-value", "write 3 without quotes"),
        ("«[each]", "wrong-kind", "write 3"),
    ],
)
def test_workers_that_are_neither_a_number_nor_each(parse: Any, said: str, code: str, told: str) -> None:
    ((found, remedy, problem),) = problems_of(parse, HEAD + f"tiers: {{one: {{steps: [k], workers: {said}}}}}\n")
    assert found == code
    assert told in f"{problem} {remedy}"


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("a", 'write "a -> b"'),
        ("a => k", 'did you mean "a -> k"?'),
        ("a → k", 'did you mean "a -> k"?'),
        ("k <- a", 'did you mean "a -> k"?'),
        ("a -> r.big", 'did you mean "a -> r"?'),
        ("A -> k", 'write "a -> b"'),
        ("a -> b -> k", 'write "a -> b"'),
        ("a.b.c -> k", 'write "a -> b"'),
    ],
)
def test_an_edge_is_called_by_its_two_ends(parse: Any, key: str, told: str) -> None:
    ((code, remedy, _),) = problems_of(parse, HEAD + f'edges:\n  «"{key}": {{compression: zstd}}\n')
    assert code == "edge-form"
    assert told in remedy


def test_an_edge_that_stands_twice_in_two_spellings_is_told(parse: Any) -> None:
    text = HEAD + 'edges:\n  "a -> k": {compression: zstd}\n  «"a->k": {compression: gzip}\n'
    ((code, _, problem),) = problems_of(parse, text)
    assert code == "duplicate-key"
    assert 'edge "a -> k"' in problem


@pytest.mark.parametrize(
    ("defaults", "code", "told"),
    [
        ("edge: {«to: g}", "key-misplaced", "write it under `edges`"),
        ("edge: {channel: {«topic: t}}", "key-misplaced", "names a single location"),
        ("edge: {channel: {«path: t}}", "key-misplaced", "names a single location"),
        ("edge: {«spill: 1GiB}", "key-misplaced", "`defaults.edge.spill` of the flow"),
        ("edge: {«copression: zstd}", "unknown-key", 'did you mean "compression"?'),
        ("edge: «{}", "wrong-kind", "is empty"),
        ("trace: «1.5", "out-of-range", "write at most 1"),
        ("trace: «-1", "out-of-range", "write at least 0"),
        ("trace: «.nan", "bad-value", "not a number"),
        ("trace: «always", "bad-value", "not a number"),
    ],
)
def test_what_is_wrong_in_the_defaults_is_told_at_its_place(parse: Any, defaults: str, code: str, told: str) -> None:
    ((found, _, problem),) = problems_of(parse, HEAD + f"defaults: {{{defaults}}}\n")
    assert found == code
    assert told in problem


@pytest.mark.parametrize(
    ("default", "edge", "code"),
    [
        ("high_water: {rows: 10}", "low_water: {rows: «11}", "water-levels"),
        ("low_water: {rows: 10}", "high_water: {rows: «9}", "water-levels"),
        ("low_water: {rows: 10}", "low_water: {bytes: 1MiB}, high_water: {rows: «9}", "water-levels"),
        ("ordering: none", "«key: [id]", "key-misplaced"),
        ("durability: end_to_end", "«spill: 1MiB", "key-misplaced"),
        ("ordering: key, key: [id]", "ordering: none, «key: [id]", "key-misplaced"),
    ],
)
def test_an_edge_is_right_together_with_what_the_defaults_say(parse: Any, default: str, edge: str, code: str) -> None:
    ((found, _, _),) = problems_of(parse, HEAD + f'defaults: {{edge: {{{default}}}}}\nedges: {{"a -> k": {{{edge}}}}}\n')
    assert found == code


@pytest.mark.parametrize(
    ("default", "edge"),
    [
        ("ordering: key, key: [id]", "key: [ts]"),
        ("ordering: key, key: [id]", "ordering: key"),
        ("durability: store_on_failure", "spill: 1MiB"),
        ("durability: store_on_failure, spill: 1MiB", "durability: best_effort"),
        ("high_water: {rows: 10}, low_water: {rows: 5}", "high_water: {rows: 100}, low_water: {rows: 50}"),
    ],
)
def test_an_edge_may_rest_on_what_the_defaults_say(parse: Any, default: str, edge: str) -> None:
    assert parse(HEAD + f'defaults: {{edge: {{{default}}}}}\nedges: {{"a -> k": {{{edge}}}}}\n').problems == ()


@pytest.mark.parametrize(
    ("part", "code", "told"),
    [
        ("tiers: {«t: {group: g}}", "missing-key", "add steps: a"),
        ("tiers: {«T: {steps: [a]}}", "bad-name", 'write "t"'),
        ("tiers: {t: {steps: [a, «a]}}", "twice", "take one of the two out"),
        ("tiers: {t: {steps: a, resources: {cores: «0}}}", "out-of-range", "write at least 1"),
        ("tiers: {t: {steps: a, resources: {«cpus: 1}}}", "unknown-key", "keys here are cores, memory"),
        ("tiers: {t: {steps: a, resources: «{}}}", "wrong-kind", "is empty"),
        ("tiers: {t: {steps: a, acknowledge: «never}}", "bad-choice", "checkpoint, state"),
        ("tiers: {t: {steps: a, «autoscale: {lag: 1m}}}", "missing-key", "add max: 8"),
        ("tiers: {t: {steps: a, autoscale: «8}}", "wrong-kind", "write {lag: 1m, …}"),
        ("tiers: {t: {steps: a, autoscale: {lag: «1, max: 8}}}", "bad-unit", "as in 30s"),
        ("tiers: {t: {steps: a, autoscale: {lag: 1m, max: «0}}}", "out-of-range", "write at least 1"),
        ("tiers: {t: {steps: a, autoscale: {lag: 1m, min: «9, max: 8}}}", "autoscale-bounds", "write values with min ≤ max"),
        ("tiers: {t: {steps: a, resources: {executors: «9}, autoscale: {lag: 1m, max: 8}}}", "autoscale-bounds", "begins with min"),
        ("tiers: {t: {steps: a, resources: {executors: «1}, autoscale: {lag: 1m, min: 2, max: 8}}}", "autoscale-bounds", "outside 2 to 8"),
        ("tiers: {t: {steps: a, autoscale: {lag: 1m, max: 8, mode: «now}}}", "bad-choice", "advise, act"),
        ("tiers: {t: {steps: a, group: «g.m1}}", "bad-name", "lower-case"),
        ("tiers: {t: {steps: a, «step: b}}", "unknown-key", "take it out"),
        ("tiers: «{}", "wrong-kind", "is empty"),
        ("tiers: «[t]", "wrong-kind", "not a mapping"),
        ("edges: «{}", "wrong-kind", "is empty"),
        ("groups: {g: {members: «[]}}", "group-empty", "has no members"),
        ("groups: {«G: {members: [{at: h}]}}", "bad-name", 'write "g"'),
        ("groups: {«g: {}}", "missing-key", "add members:"),
        ("groups: {g: {members: [{at: h}, {at: «h}]}}", "twice", 'the place "h"'),
        ("groups: {g: {members: [{at: h, name: x}, {at: i, name: «x}]}}", "twice", 'the name "x"'),
        ("groups: {g: {members: [{at: h, name: m2}, {at: «i}]}}", "twice", 'the name "m2"'),
        ("groups: {g: {members: [{at: h, cost: «0}]}}", "out-of-range", "write at least 0.001"),
        ("groups: {g: {members: [{at: h, cost: «.inf}]}}", "bad-value", "not a number"),
        ("groups: {g: {members: [«{cost: 1}]}}", "missing-key", "add at: host1"),
        ("groups: {g: {members: [«h]}}", "wrong-kind", "write {at: host1"),
        ("groups: {g: {members: [{«att: h, at: h}]}}", "unknown-key", "take it out"),
    ],
)
def test_what_is_wrong_in_tiers_and_groups_is_told_at_its_place(parse: Any, part: str, code: str, told: str) -> None:
    ((found, _, problem),) = problems_of(parse, HEAD + part + "\n")
    assert found == code
    assert told in problem


def test_the_sections_with_an_error_in_them_are_named(parse: Any) -> None:
    assert parse(HEAD).unread == frozenset()
    assert parse(HEAD + "tiers: {t: {step: a}}\ngroups: {g: {members: [{at: h}]}}\n").unread == {"tiers"}
    assert parse(HEAD + "edges: [a]\ngroups: {g: {}}\n").unread == {"edges", "groups"}
    assert parse(HEAD + "defaults: {edge: {spill: 1GiB}}\n").unread == {"defaults"}
    assert parse(HEAD + "defaults: {trigger: 5}\n").unread == {"defaults"}


def test_a_sink_goes_to_a_group_or_to_a_member_of_it(parse: Any) -> None:
    text = HEAD.replace("type: console", "type: console, to: «{}")
    assert parse(text.replace("«{}", "wan")).flow.sinks["k"].to == "wan"
    ((code, _, _),) = problems_of(parse, text.replace("{}", "wan.Second"))
    assert code == "bad-name"


def test_the_origin_belongs_to_unions(parse: Any) -> None:
    assert parse(step="{from: [a, b], merge: {origin: o}}").flow.steps["s"].action == Merge(origin="o")
    (problem,) = parse(step="{from: [a, b], merge: {how: intersect, key: id, origin: o}}").problems
    assert problem.code == "key-misplaced"


def test_the_example_of_every_key_is_taken(parse: Any) -> None:
    beside = {"key": "ordering: key, ", "spill": "durability: store_on_failure, ", "ordering": "key: [user], ", "use": "keys: {k1: x}, "}
    beside |= {"lag": "max: 8, ", "max": "lag: 1m, ", "min": "lag: 1m, max: 8, ", "mode": "lag: 1m, max: 8, "}
    agents = {"agents": "tiers: {{t: {{{}}}}}", "gateways": "tiers: {{t: {{agents: web, {}}}}}"}
    homes = {
        tier_keys.TIER: "tiers: {{t: {{steps: [a], {}}}}}",
        tier_keys.EDGE: 'edges: {{"a -> k": {{{}}}}}',
        tier_keys.DEFAULT_EDGE: "defaults: {{edge: {{{}}}}}",
        tier_keys.CHANNEL: 'edges: {{"a -> k": {{channel: {{{}}}}}}}',
        tier_keys.ENCRYPTION: 'edges: {{"a -> k": {{encryption: {{{}}}}}}}',
        tier_keys.PACK: 'edges: {{"a -> k": {{pack: {{{}}}}}}}',
        tier_keys.LIMIT: 'edges: {{"a -> k": {{limit: {{{}}}}}}}',
        tier_keys.DEPTH: 'edges: {{"a -> k": {{capacity: {{{}}}}}}}',
        tier_keys.RESOURCES: "tiers: {{t: {{steps: [a], resources: {{{}}}}}}}",
        tier_keys.AUTOSCALE: "tiers: {{t: {{steps: [a], autoscale: {{{}}}}}}}",
        tier_keys.MEMBER: "groups: {{g: {{members: [{{at: h, {}}}]}}}}",
        tier_keys.GROUP: "groups: {{g: {{{}}}}}",
    }
    assert {*homes, tier_keys.DEFAULT_CHANNEL} == {*tier_keys.SECTIONS}
    for section, home in homes.items():
        for key in section.keys:
            if key.name in ("steps", "at"):
                continue
            for example in {key.example, *key.choices}:
                before = "" if example == "none" else beside.get(key.name, "")
                text = HEAD + agents.get(key.name, home).format(f"{before}{key.name}: {example}") + "\n"
                assert parse(text, environment={"K1": "k"}).problems == (), text
