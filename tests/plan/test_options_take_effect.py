"""Each option of a connector and each property of an edge, wherever it can be: it has an effect, or a problem tells."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import scribengin
from scribengin.connectors.catalog import sink_types, source_types
from scribengin.local.prepare import sink_place, source_place
from scribengin.plan.tier_flows import plan_flow
from scribengin.plan.validate import validate_file
from scribengin.spec.model import EdgeProperties
from tests.plan.test_any_option import NODES, flow_text, good, needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.options import NodeType, Option
    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow

OTHERS = {
    "int": ("7", "3", "70000"),
    "float": ("0.25",),
    "duration": ("7s", "3h"),
    "bytes": ("7MiB", "70MiB"),
    "bool": ("true", "false"),
    "text": ("other",),
    "list": ("[other]",),
    "path": ("other",),
}
PACKAGE = Path(scribengin.__file__).parent
STATIC = [node for node in source_types().values() if "static" in node.abilities]
GROUPED = [node for node in sink_types().values() if node.by_member is not None]


def others(option: Option) -> Iterator[str]:
    """Values that are not its default, the likeliest first."""
    default = str(option.default).lower() if isinstance(option.default, bool) else str(option.default)
    values = [*option.choices, *([option.example] if option.example else []), *OTHERS.get(option.kind, ()), good(option)]
    yield from dict.fromkeys(value for value in values if value != default)


def checked(folder: Path, text: str) -> tuple[Flow | None, list[Problem]]:
    path = folder / "flow.yaml"
    path.write_text(text)
    return validate_file(path, {"STORE_SECRET": "s3cr3t-of-the-store"})


def attempts(folder: Path, node: NodeType, option: Option, template: str = "") -> Iterator[tuple[Flow | None, list[Problem]]]:
    """The flow with each other value of the option, beside each format for which it means something."""
    for format_ in option.formats or ("",):
        for value in others(option):
            options = needed(node) | ({"format": format_} if format_ else {}) | {option.name: value}
            text = flow_text(node, options) if not template else template.replace("NODE", node_text(node, options))
            yield checked(folder, text)


def node_text(node: NodeType, options: dict[str, str]) -> str:
    return ", ".join([f"type: {node.type}", *(f"{name}: {value}" for name, value in options.items())])


def cases(nodes: list[NodeType]) -> list[Any]:
    return [pytest.param(node, option, id=f"{node.role}-{node.type}-{option.name}") for node in nodes for option in node.options]


def names_read() -> frozenset[str]:
    """Each text in the code, but where options are declared and flows are read."""
    files = [file for file in PACKAGE.rglob("*.py") if file.name != "options.py" and file.relative_to(PACKAGE).parts[0] != "spec"]
    nodes = (each for file in files for each in ast.walk(ast.parse(file.read_text())))
    return frozenset(each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str))


@pytest.fixture(scope="module")
def read() -> frozenset[str]:
    return names_read()


@pytest.mark.parametrize(("node", "option"), cases(NODES))
def test_an_option_reaches_its_connector_which_reads_it_or_is_a_problem(
    node: NodeType, option: Option, tmp_path: Path, read: frozenset[str]
) -> None:
    if len(option.choices) == 1:
        return  # there is no other value
    told = []
    for flow, problems in attempts(tmp_path, node, option):
        told += [problem for problem in problems if problem.severity == "error"]
        if flow is None or any(problem.severity == "error" for problem in problems):
            continue
        place = source_place(flow, "a") if node.role == "source" else sink_place(flow, "k")
        if option.required or place.options[option.name] != node.filled({}, flow.defaults.profile)[option.name]:
            assert option.name in read, f"no code reads {option.name}"
            return
    assert told, "neither a value that is taken, nor a problem"


BESIDE_A_STREAM = """
version: 1
name: looks
sources:
  main: {type: files, path: main, format: json, schema: "id BIGINT, own STRING"}
  a: {NODE, static: true, schema: "id BIGINT, s STRING, country STRING, ts TIMESTAMP, requestParameters STRING, value STRING"}
steps: {j: {from: [main, a], join: {key: [id], how: left}}}
sinks: {k: {from: j, type: files, path: out, format: json}}
"""
SAID_OF_TABLES_TOO = {
    "split",
    "page",
    "keep_alive",
    "config",
    "settings",
    "endpoint",
    "region",
    "path_style",
    "ca_file",
    "profile",
    "server",
}
"""options of pace that are used where a table is read whole: by tasks, and on the way there"""


@pytest.mark.parametrize(("node", "option"), cases(STATIC))
def test_an_option_of_streams_is_told_at_a_table(node: NodeType, option: Option, tmp_path: Path) -> None:
    if not option.of_streams:
        assert not option.pace or option.name in SAID_OF_TABLES_TOO, "is it used where the source is static? else: of_streams=True"
        return
    for _, problems in attempts(tmp_path, node, option, BESIDE_A_STREAM):
        assert [problem for problem in problems if f"`{option.name}`" in problem.message or problem.severity == "error"]
    assert any(problem.code == "no-effect" for _, problems in attempts(tmp_path, node, option, BESIDE_A_STREAM) for problem in problems)


@pytest.mark.parametrize("level", ["high_water", "low_water", "capacity"])
def test_a_level_of_a_table_is_told(level: str, tmp_path: Path) -> None:
    node = f"type: files, path: x, format: json, {level}: {{rows: 5}}"
    _, problems = checked(tmp_path, BESIDE_A_STREAM.replace("NODE", node))
    assert [(problem.code, problem.severity) for problem in problems] == [("no-effect", "warning")]


GROUP = """
version: 1
name: grouped
sources: {a: {type: files, path: data, format: json, schema: "id BIGINT, s STRING, user STRING, text STRING, trace_id STRING"}}
sinks: {k: {from: a, to: places, NODE}}
groups: {places: {members: [{at: "one:9092"}, {at: "two:9092"}]}}
"""


@pytest.mark.parametrize(("node", "option"), cases(GROUPED))
def test_an_option_of_a_sink_is_that_of_each_member_or_a_problem(node: NodeType, option: Option, tmp_path: Path) -> None:
    told = []
    for flow, problems in attempts(tmp_path, node, option, GROUP):
        told += problems
        if flow is None or any(problem.severity == "error" for problem in problems):
            continue
        place = sink_place(flow, "k")
        values = [dict(options)[option.name] for _, _, options in place.members]
        if option is not node.by_member:
            assert values == [place.options[option.name]] * 2
        else:
            assert values[0] != values[1]
            assert option.kind == "path" or any(problem.code == "group-option" for problem in problems)
        return
    assert told, "neither a value that is taken, nor a problem"


CUT = """
version: 1
name: cut
sources: {a: {type: files, path: data, format: json, schema: "id BIGINT, u STRING"}}
steps: {s: {from: a, filter: id > 0}, t: {from: s, filter: id > 1}}
sinks: {k: {from: t, type: files, path: out, format: json}}
tiers: {x: {steps: [s]TIER}, y: {steps: [t]}}
edges: {"s -> t": {EDGE}}
groups: {g: {members: [{at: "h1:9092"}, {at: "h2:9092"}]}}
"""
CHANNELS = {"folder": "channel: {type: folder, path: c}", "kafka": "channel: {type: kafka, topic: c, bootstrap: 'b:9092'}"}
PROPERTIES = {
    "compression": "compression: zstd",
    "encryption": "encryption: {keys: {k1: AAAAAAAAAAAAAAAAAAAAAA==}}",
    "pack": "pack: {rows: 7}",
    "ordering": "ordering: key, key: [id]",
    "key": "key: [id]",
    "retention_s": "retention: 3d",
    "limit": "limit: {rows: 5}",
    "high_water": "high_water: {rows: 5}",
    "low_water": "low_water: {rows: 5}",
    "capacity": "capacity: {rows: 30000000}",
    "durability": "durability: best_effort",
    "spill": "durability: store_on_failure, spill: 7MiB",
    "to": "to: g.m1",
}
OF_CHANNELS = {
    "topic": "z",
    "path": "z",
    "bootstrap": "'c:9092'",
    "config": "{security.protocol: SSL}",
    "partitions": "7",
    "replication": "2",
}


def ends(folder: Path, edge: str, tier: str = "") -> tuple[Any, list[Problem]]:
    """(what its ends are built of and what holds them back, problems)"""
    flow, problems = checked(folder, CUT.replace("EDGE", edge).replace("TIER", tier))
    if flow is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    plan = plan_flow(flow)
    held = [(each.edge.limit, each.edge.high_water, each.edge.low_water, each.edge.capacity) for each in plan.channels]
    nodes = [[*tier.flow.sources.values(), *tier.flow.sinks.values()] for tier in plan.tiers]
    return (held, nodes), problems


def test_each_property_of_an_edge_is_tried() -> None:
    assert {field.name for field in fields(EdgeProperties)} == {*PROPERTIES, "channel"}


@pytest.mark.parametrize("property_", PROPERTIES)
@pytest.mark.parametrize("kind", CHANNELS)
def test_a_property_of_an_edge_changes_what_its_ends_are_built_of_or_is_a_problem(kind: str, property_: str, tmp_path: Path) -> None:
    bare, _ = ends(tmp_path, CHANNELS[kind])
    built, problems = ends(tmp_path, f"{CHANNELS[kind]}, {PROPERTIES[property_]}")
    assert built != bare or problems


@pytest.mark.parametrize("key", OF_CHANNELS)
@pytest.mark.parametrize("to", ["", ", to: g"])
@pytest.mark.parametrize("kind", CHANNELS)
def test_a_key_of_a_channel_changes_what_its_ends_are_built_of_or_is_a_problem(kind: str, to: str, key: str, tmp_path: Path) -> None:
    given = {"kafka": {"topic": "c", "bootstrap": "'b:9092'"}, "folder": {"path": "c"}}[kind]

    def channel(keys: dict[str, str]) -> str:
        return "channel: {" + ", ".join(f"{name}: {value}" for name, value in ({"type": kind} | keys).items()) + "}" + to

    without = {name: value for name, value in given.items() if not (to and name == "bootstrap")}
    bare, _ = ends(tmp_path, channel(without))
    assert bare is not None
    built, problems = ends(tmp_path, channel(without | {key: OF_CHANNELS[key]}))
    assert problems or built != bare
    if key == "partitions" and kind == "folder":
        assert [problem.code for problem in problems] == ["no-effect"]
    if key == "bootstrap" and kind == "kafka" and to:
        assert [problem.code for problem in problems] == ["no-effect"]


def test_state_is_acknowledged_where_it_is_kept(tmp_path: Path) -> None:
    _, problems = ends(tmp_path, CHANNELS["folder"], ", acknowledge: state")
    assert [(problem.code, problem.severity) for problem in problems] == [("no-effect", "warning")]
    text = CUT.replace("EDGE", CHANNELS["folder"]).replace("TIER", ", acknowledge: state").replace("filter: id > 0", "dedupe: {key: [id]}")
    assert checked(tmp_path, text)[1] == [problem for problem in checked(tmp_path, text)[1] if problem.code != "no-effect"]
