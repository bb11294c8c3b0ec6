from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.spec.parse import Parsed, parse_flow

sys.path.insert(0, str(Path(__file__).parent))  # declared_flows, which several modules here use

HEAD = 'version: 1\nname: shop\nsources:\n  a: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP"}\n'
TAIL = "sinks:\n  kept: {from: a, type: files, path: out, format: json}\n"

Parse = Callable[..., Parsed]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """`parse(text)` of a whole file; `parse(step="…")` of one step `s` in a flow that is right otherwise."""

    def run(text: str = "", *, step: str = "", environment: Mapping[str, str] | None = None, folder: Path = tmp_path) -> Parsed:
        whole = text or f"{HEAD}steps:\n  s: {step}\n{TAIL}"
        types = {"source_types": source_types(), "sink_types": sink_types()}
        return parse_flow(whole, "shop.yaml", folder=folder, environment=environment or {}, **types)

    return run
