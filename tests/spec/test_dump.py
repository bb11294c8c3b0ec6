from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from declared_flows import flows, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.options import NodeType, Option
from scribengin.core.secret import Secret
from scribengin.core.units import parse_bytes, parse_duration_s, show_bytes_exactly, show_duration_exactly
from scribengin.spec.dump import dump_flow
from scribengin.spec.fmt import format_text
from scribengin.spec.parse import Parsed, parse_flow
from scribengin.spec.yaml_document import Document, Mapping, Scalar
from scribengin.spec.yaml_text import write_yaml

if TYPE_CHECKING:
    from scribengin.spec.model import Flow

TYPES = {"source_types": source_types(), "sink_types": sink_types()}


def read(text: str) -> Parsed:
    return parse_flow(text, "f.yaml", folder=Path(), environment={}, **TYPES)


@pytest.mark.parametrize("examples", [40, pytest.param(100, marks=pytest.mark.long)])
def test_a_dumped_flow_reads_back_as_the_same(examples: int) -> None:
    @settings(max_examples=examples)
    @given(flows())
    def same(flow: Flow) -> None:
        parsed = read(dump_flow(flow, **TYPES))
        assert parsed.problems == ()
        assert parsed.flow == flow

    same()


@pytest.mark.parametrize("examples", [25, pytest.param(50, marks=pytest.mark.long)])
def test_a_resolved_flow_means_the_same_and_resolving_it_again_changes_nothing(examples: int) -> None:
    @settings(max_examples=examples)
    @given(flows())
    def same(flow: Flow) -> None:
        text = dump_flow(flow, resolved=True, **TYPES)
        parsed = read(text)
        assert parsed.problems == ()
        assert parsed.flow is not None
        assert dump_flow(parsed.flow, resolved=True, **TYPES) == text
        for source in flow.sources.values():
            assert parsed.flow.sources[source.id].options.items() >= source.options.items()
            assert parsed.flow.sources[source.id].on_error == flow.on_error(source)
        for step in flow.steps.values():
            assert parsed.flow.steps[step.id].action == step.action

    same()


@settings(max_examples=20)
@given(flows())
def test_the_layout_of_a_flow_can_change_and_its_meaning_stays(flow: Flow) -> None:
    text = dump_flow(flow, **TYPES)
    laid_out = format_text(text)
    assert read(laid_out).flow == flow
    assert format_text(laid_out) == laid_out


@given(st.dictionaries(texts, texts, min_size=1, max_size=4))
def test_every_text_survives_the_writer(data: dict[str, str]) -> None:
    document = Document(write_yaml({"m": data, "l": list(data.values())}), "f.yaml")
    assert document.problems == []
    assert isinstance(document.root, Mapping)
    mapping = document.root.entries["m"][1]
    assert isinstance(mapping, Mapping)
    found = {name: value.value for name, (_, value) in mapping.entries.items() if isinstance(value, Scalar)}
    assert found == data


@given(st.floats(0, 1e12, allow_nan=False))
def test_a_duration_is_shown_so_that_it_reads_back(seconds: float) -> None:
    assert parse_duration_s(show_duration_exactly(seconds)) == seconds


@given(st.integers(0, 2**52))
def test_a_size_is_shown_so_that_it_reads_back(count: int) -> None:
    assert parse_bytes(show_bytes_exactly(count)) == count


def test_a_secret_is_dumped_as_its_reference_and_shown_by_nothing(tmp_path: Path) -> None:
    types = {
        "vault": NodeType("vault", "source", "", (Option("password", "text", "", secret=True), Option("heads", "map", "", secret=True)))
    }
    text = (
        "version: 1\nname: shop\nsources:\n  v: {type: vault, password: 'x${secret:env/PW}', heads: {a: '${secret:file/key}'}}\n"
        "sinks: {s: {from: v, type: console}}\n"
    )
    (tmp_path / "key").write_text("s3cond\n")
    kwargs = {"folder": tmp_path, "environment": {"PW": "hunter2"}, "source_types": types, "sink_types": sink_types()}
    parsed = parse_flow(text, "f.yaml", **kwargs)
    assert parsed.flow is not None
    assert parsed.problems == ()
    password = parsed.flow.sources["v"].options["password"]
    assert isinstance(password, Secret)
    assert password.reveal() == "xhunter2"
    assert parsed.flow.sources["v"].options["heads"]["a"].reveal() == "s3cond"
    assert "hunter2" not in str(asdict(parsed.places)["filled"])
    dumped = dump_flow(parsed.flow, source_types=types, sink_types=sink_types())
    assert "hunter2" not in f"{dumped}{parsed}{password}{password!r}{parsed.flow!r}"
    assert "s3cond" not in f"{dumped}{parsed}"
    assert parse_flow(dumped, "f.yaml", **kwargs).flow == parsed.flow
