"""Each option of each connector with values of every wrong kind: a problem with place and remedy, or a flow whose ends can be opened."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.errors import ScribenginError
from scribengin.local.prepare import open_sinks, open_sources, prepare_valid
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scribengin.core.options import NodeType, Option

SCHEMA = "schema: 'id BIGINT, s STRING, country STRING, ts TIMESTAMP'"
BESIDE = {
    ("source", "agents"): {"path": "/var/log/app.log"},
    ("sink", "http"): {"delivery": "at_least_once"},
    ("sink", "spark"): {"delivery": "at_least_once", "path": "out/kept"},
    ("sink", "summary"): {"sql": '"SELECT country, count(*) AS n FROM rows GROUP BY country"'},
}
"""what a connector needs beside the options that are declared as required"""
TEXTS = [
    *("", "  ", "a\nb", "a\0b", "x" * 300, "é", "a b", "~nobody9/x", "/proc/nope/out", "/etc/passwd/x"),
    *(
        "://",
        "http://",
        "http:///x",
        "http://[::1",
        "http://h:99999/",
        "https://h:port",
        "http://u:p@h",
        "s3://",
        "s3://[::1/x",
        "s3://b/a\0b",
    ),
    *("hdfs://", "file://", "file:///a\0b", "thrift://h:0", "postgresql://[::1/d", "postgresql://h:x/d", "postgresql://a:1,b:2/d"),
    *(":", "host:-1", "[::1", ",", "a,,b", "*", "[", "**[", "(?P<", "(a", "{", "{nope}", "%Q", "$.a[", "\\", "${env:NOPE}", "2026-13-01"),
]
VALUES = [
    *("null", "[]", "[a, a]", "[[x]]", "[{a: 1}]", "[null]", "['']", "[-1]", "{}", "{a: b}", "{a: null}", "{'': x}", "{a: [1]}"),
    *("-1", "0", "0.0", "99999999999999999999999999", "1e400", ".nan", "-.inf", "true", "5 parsecs", "1e30d", "99999999999999999999TiB"),
    *("99999999999999999999999 days", "!!binary aGk=", "2026-01-01", "'${secret:file/a\\0b}'", "'${secret:env/NOPE}'"),
    *map(json.dumps, TEXTS),
]
KINDS = {"bool": "true", "int": "5", "float": "0.5", "duration": "5s", "bytes": "1MiB"}
NODES = [*source_types().values(), *sink_types().values()]


def good(option: Option) -> str:
    return option.example or KINDS.get(option.kind, option.choices[0] if option.choices else "x")


def needed(node: NodeType) -> dict[str, str]:
    return {option.name: good(option) for option in node.options if option.required} | BESIDE.get((node.role, node.type), {})


def flow_text(node: NodeType, options: Mapping[str, str]) -> str:
    given_ = "".join(f", {name}: {value}" for name, value in options.items())
    schema = "" if node.type == "sequence" else f", {SCHEMA}"
    source, sink = f"type: files, path: data, format: json, {SCHEMA}", "type: files, path: out, format: json"
    if node.role == "source":
        source = f"type: {node.type}{given_}{schema}"
    else:
        sink = f"type: {node.type}{given_}"
    return f"version: 1\nname: any\nsources:\n  a: {{{source}}}\nsinks:\n  k: {{from: a, {sink}}}\n"


def with_key(option: Option, key: Option, value: str) -> str:
    """The section, or the list with one, in which that key has the value."""
    keys = {each.name: good(each) for each in option.keys if each.required} | {key.name: value}
    section = "{" + ", ".join(f"{name}: {each}" for name, each in keys.items()) + "}"
    return f"[{section}]" if option.kind == "list" else section


def misuses(node: NodeType, each: int) -> Iterator[tuple[Option, str]]:
    """(option, value) with one value of `each`: other ones for each option."""
    for nth, option in enumerate(node.options):
        values = VALUES[nth % each :: each]
        yield from ((option, value) for value in values)
        yield from ((option, with_key(option, key, value)) for key in option.keys for value in values)


def look(folder: Path, text: str) -> str:
    """What became of it; fails where that is neither a problem with place and remedy, nor a flow whose ends open or say why not."""
    file = folder / "flow.yaml"
    file.write_text(text)
    flow, problems = validate_file(file, {})
    for problem in problems:
        assert problem.message, text
        assert problem.remedy, (text, problem)
        assert problem.place.line >= 1, (text, problem)
        assert problem.place.column >= 1, (text, problem)
    if flow is None or any(problem.severity == "error" for problem in problems):
        return "refused"
    prepared = prepare_valid(file, flow, problems, state=folder / "state")
    for tier in prepared.tiers:
        try:
            open_sources(tier.plan.flow)
            open_sinks(tier.plan.flow, tier.plan, tier.folder)
        except ScribenginError as error:
            refused = error
            break
    else:
        return "taken"
    assert refused.remedy, (text, refused)
    return "refused when opened"


def look_at_each(folder: Path, node: NodeType, each: int) -> None:
    assert look(folder, flow_text(node, needed(node))) == "taken"
    for option, value in misuses(node, each):
        beside = {"format": option.formats[0]} if option.formats else {}
        look(folder, flow_text(node, needed(node) | beside | {option.name: value}))


@pytest.mark.parametrize("node", NODES, ids=lambda node: f"{node.role}-{node.type}")
def test_each_option_with_wrong_values_is_a_problem_with_a_place_or_is_taken(node: NodeType, tmp_path: Path) -> None:
    look_at_each(tmp_path, node, 9)


@pytest.mark.long
@pytest.mark.parametrize("node", NODES, ids=lambda node: f"{node.role}-{node.type}")
def test_each_option_with_each_wrong_value_is_a_problem_with_a_place_or_is_taken(node: NodeType, tmp_path: Path) -> None:
    look_at_each(tmp_path, node, 1)


SCALARS = st.sampled_from(VALUES) | st.text(st.characters(exclude_categories=("Cs",)), max_size=12).map(json.dumps)


@st.composite
def misused(draw: st.DrawFn) -> str:
    node = draw(st.sampled_from(NODES))
    options = draw(st.lists(st.sampled_from(node.options), min_size=1, max_size=4, unique_by=lambda option: option.name))
    return flow_text(node, needed(node) | {option.name: draw(SCALARS | st.just(good(option))) for option in options})


@settings(max_examples=200)
@given(text=misused())
def test_several_options_with_any_values_are_problems_with_places_or_are_taken(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    look(tmp_path_factory.getbasetemp(), text)
