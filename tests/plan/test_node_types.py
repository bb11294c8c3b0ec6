"""A connector of another package brings its own checks and facts, by its entry point, as a built-in one does."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scribengin.connectors import catalog
from scribengin.local.run import is_endless
from scribengin.plan.flow_links import Meeting, meetings
from scribengin.plan.validate import validate_file
from scribengin.spec.load import load_flow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow

CONNECTOR = """
from scribengin.connectors.files.options import BY_TIME_CHECKS, CLOSE, PARTITION_BY
from scribengin.connectors.objects.options import PLACE_CHECK, WRITER_CHECK
from scribengin.core.options import REQUIRED, NodeType, Option, StoreUrl
from scribengin.core.types import parse_schema

REEL = Option("reel", "int", "the reel", REQUIRED)

SOURCE = NodeType(
    type="tape",
    role="source",
    doc="Reads a tape.",
    options=(REEL, Option("blocks", "int", "blocks to read")),
    abilities=frozenset({"bounded"}),
    locations="tape_checks:reels",
    fixed_columns=parse_schema("block BIGINT NOT NULL, data STRING"),
    ends_by="blocks",
)
SINK = NodeType(
    type="tape",
    role="sink",
    doc="Writes a tape.",
    options=(
        REEL,
        Option("key", "text", "the column that names a block"),
        Option("copy", "text", "the store that it is copied to"),
        PARTITION_BY,
        CLOSE,
    ),
    abilities=frozenset({"append"}),
    locations="tape_checks:reels",
    store_url=StoreUrl("copy", ("vault",), "write vault://HALL/SHELF"),
    closed_for_good="a full reel is locked",
    checks=(
        *("tape_checks:reel_is_free", "tape_checks:one_writer_a_reel", "tape_checks:key_is_there"),
        *(PLACE_CHECK, WRITER_CHECK, *BY_TIME_CHECKS),
    ),
)
"""

CHECKS = """
from scribengin.connectors.addresses import DataLocation


def reels(options):
    yield DataLocation("table", "robot", str(options["reel"]))


def reel_is_free(node):
    if node.options.get("reel") == 0:
        yield node.problem("tape-reel", node.path("reel"), f"{node.called} writes to reel 0, which is the label", "write reel: 1")


def one_writer_a_reel(node):
    for other in node.earlier():
        if other.type == node.type and other.options.get("reel") == node.options.get("reel"):
            yield node.problem_at_key("tape-writers", node.path("reel"), f"{node.called} and {other.called} write to one reel")


def key_is_there(node):
    names = [column.name for column in node.columns or ()]
    if names and node.options.get("key") not in (None, *names):
        yield node.problem("tape-key", node.path("key"), f"{node.called} has no column {node.options['key']}; it has {', '.join(names)}")
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    about = site / "scribengin_tape-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "tape_connector.py").write_text(CONNECTOR)
    (site / "tape_checks.py").write_text(CHECKS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: scribengin-tape\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[scribengin.connectors]\ntape = tape_connector\n")
    monkeypatch.syspath_prepend(site)
    for module in ("tape_connector", "tape_checks"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    catalog._modules.cache_clear()
    yield
    catalog._modules.cache_clear()


def checked(folder: Path, source: str, *sinks: str) -> tuple[Flow | None, list[Problem]]:
    written = "".join(f"  k{number}: {{from: s, type: tape, delivery: at_least_once, {sink}}}\n" for number, sink in enumerate(sinks))
    file = folder / "flow.yaml"
    file.write_text(f"version: 1\nname: taped\nsources:\n  s: {{{source}}}\nsinks:\n{written}")
    problems = validate_file(file, {})[1]
    flow = load_flow(file, source_types=catalog.source_types(), sink_types=catalog.sink_types(), environment={}).flow
    return flow, problems


def test_its_checks_find_what_is_wrong_with_a_node_and_its_neighbours(tmp_path: Path) -> None:
    problems = checked(tmp_path, "type: tape, reel: 7, blocks: 3", "reel: 0, key: block", "reel: 2, key: date", "reel: 2")[1]
    assert [(each.code, each.place.line, each.message) for each in problems] == [
        ("tape-reel", 6, 'sink "k0" writes to reel 0, which is the label'),
        ("tape-key", 7, 'sink "k1" has no column date; it has block, data'),
        ("tape-writers", 8, 'sink "k2" and sink "k1" write to one reel'),
    ]


def test_its_facts_hold(tmp_path: Path) -> None:
    flow, problems = checked(tmp_path, 'type: tape, reel: 7, schema: "block BIGINT"', "reel: 1")
    assert [each.message for each in problems] == ['source "s" has the fixed columns block BIGINT and data STRING']
    assert flow is not None
    assert is_endless(flow.sources["s"])
    flow, problems = checked(tmp_path, "type: tape, reel: 7, blocks: 3", "reel: 1")
    assert not problems
    assert flow is not None
    assert not is_endless(flow.sources["s"])


def test_the_checks_of_places_in_stores_hold_for_the_option_that_it_names(tmp_path: Path) -> None:
    source = "type: tape, reel: 7, blocks: 3"
    problems = checked(tmp_path, source, "reel: 1, copy: s3://hall/a", "reel: 2, copy: vault://hall/b", "reel: 3, copy: vault://hall/b/c")[
        1
    ]
    assert [(each.code, each.place.line, each.message, each.remedy) for each in problems] == [
        ("object-url", 6, 'sink "k0": copy begins with "s3://"', "write vault://HALL/SHELF"),
        (
            "object-two-writers",
            8,
            'sink "k2" writes to vault://hall/b/c, sink "k1" to vault://hall/b',
            "give each its own prefix; none may be inside another",
        ),
    ]


def test_its_reason_why_a_folder_stays_closed_is_told(tmp_path: Path) -> None:
    by = 'partition_by: [{time: at, path: "dt=%Y-%m-%d"}], close: {delay: 1h, late: reopen}'
    problems = checked(tmp_path, "type: tape, reel: 7, blocks: 3", f"reel: 1, {by}")[1]
    assert 'sink "k0" has late: reopen, but a full reel is locked' in [each.message for each in problems]


def test_flows_that_share_its_place_meet(tmp_path: Path) -> None:
    writer = checked(tmp_path, "type: tape, reel: 7, blocks: 3", "reel: 1", "reel: 2")[0]
    reader = checked(tmp_path, "type: tape, reel: 2, blocks: 3", "reel: 3")[0]
    assert writer is not None
    assert reader is not None
    (met,) = meetings([replace(writer, name="writer"), replace(reader, name="reader")])
    assert met == Meeting("writer", "k1", "reader", "s", "table 2")


def test_its_checks_are_loaded_only_for_a_flow_that_has_such_a_node(tmp_path: Path) -> None:
    (tmp_path / "site" / "tape_checks.py").write_text("raise AssertionError")
    file = tmp_path / "flow.yaml"
    file.write_text("version: 1\nname: shown\nsources: {s: {type: sequence, rows: 1}}\nsinks: {k: {from: s, type: console}}\n")
    assert not validate_file(file, {})[1]
