"""The rules for tables over sink types of another package: other modes, other options, and locations of their own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from scribengin.connectors import catalog
from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONNECTOR = """
from scribengin.connectors.addresses import DataLocation
from scribengin.core.options import REQUIRED, NodeType, Option


def shelves(options):
    yield DataLocation("table", options["store"].lower(), str(options["table"]))


SINK = NodeType(
    type="shelf",
    role="sink",
    doc="Puts rows on a shelf.",
    options=(
        Option("store", "text", "the store", REQUIRED, example="main"),
        Option("table", "text", "the table", REQUIRED, example="orders"),
        Option("mode", "choice", "what is done with a row", "ignore", ("ignore", "append", "upsert")),
        Option("key", "list", "the columns that identify a row", (), example="[id]"),
    ),
    abilities=frozenset({"append"}),
    locations=shelves,
)
"""
FILE = """
from scribengin.core.options import REQUIRED, NodeType, Option

SINK = NodeType(
    type="drawer",
    role="sink",
    doc="Puts rows into a file.",
    options=(
        Option("database", "path", "the file", REQUIRED, example="shop.db", by_member=True),
        Option("table", "text", "the table", REQUIRED, example="orders"),
        Option("key", "text", "the column that identifies a row"),
        Option("version", "int", "the version of the file's form", 1),
    ),
    abilities=frozenset({"append"}),
)
"""
MODULES = {"shelf": ("shelf_connector", CONNECTOR), "drawer": ("drawer_connector", FILE)}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    about = site / "scribengin_shelf-1.0.dist-info"
    about.mkdir(parents=True)
    for module, text in MODULES.values():
        (site / f"{module}.py").write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)
    points = "".join(f"{name} = {module}\n" for name, (module, _) in MODULES.items())
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: scribengin-shelf\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[scribengin.connectors]\n{points}")
    monkeypatch.syspath_prepend(site)
    catalog._modules.cache_clear()
    yield
    catalog._modules.cache_clear()


def told(folder: Path, *sinks: str, source: str = "type: sequence, rows: 3") -> list[str]:
    written = "".join(f"  k{number}: {{from: s, delivery: at_least_once, {sink}}}\n" for number, sink in enumerate(sinks))
    file = folder / "flow.yaml"
    file.write_text(f"version: 1\nname: kept\nsources:\n  s: {{{source}}}\nsinks:\n{written}")
    return [f"{each.code}: {each.message}" for each in validate_file(file, {})[1]]


@pytest.mark.parametrize("mode", [", mode: ignore", ""])
def test_a_mode_that_only_the_type_knows_needs_nothing(mode: str, tmp_path: Path) -> None:
    assert told(tmp_path, f"type: shelf, store: main, table: orders{mode}") == []
    assert told(tmp_path, f"type: shelf, store: main, table: orders, key: [id]{mode}") == []


def test_of_a_mode_that_is_known_the_rules_hold(tmp_path: Path) -> None:
    (missing,) = told(tmp_path, "type: shelf, store: main, table: orders, mode: upsert")
    assert missing == 'table-mode: sink "k0" has mode: upsert but no `key`, the columns that identify a row'
    (unused,) = told(tmp_path, "type: shelf, store: main, table: orders, mode: append, key: [id]")
    assert unused == 'table-mode: sink "k0" has "key", which mode: append does not use'


def test_one_table_is_found_by_its_location_however_it_is_written(tmp_path: Path) -> None:
    assert told(tmp_path, "type: shelf, store: main, table: orders", "type: shelf, store: MAIN, table: orders") == [
        'table-two-writers: sink "k1" and sink "k0" both write to table orders'
    ]
    assert told(tmp_path, "type: shelf, store: main, table: orders", "type: shelf, store: other, table: orders") == []
    short, long = (f"type: postgres, server: 'postgresql://etl@{server}/shop', table: orders" for server in ("db1", "DB1:5432"))
    assert [each.partition(":")[0] for each in told(tmp_path, short, long)] == ["table-two-writers"]


def test_a_table_that_feeds_itself_is_found_by_its_location(tmp_path: Path) -> None:
    read = "type: postgres, server: 'postgresql://r@db1:5432/shop', table: public.orders, mode: incremental, by: at"
    assert told(tmp_path, "type: postgres, server: 'postgresql://w@db1/shop', table: orders", source=read) == [
        'table-feeds-itself: sink "k0" writes to table orders, which source "s" of the same flow reads'
    ]
    assert told(tmp_path, "type: postgres, server: 'postgresql://w@db2/shop', table: orders", source=read) == []


def test_without_locations_the_option_of_members_tells_places_apart(tmp_path: Path) -> None:
    """As in examples/sql-database."""
    assert told(tmp_path, "type: drawer, database: a.db, table: orders", "type: drawer, database: b.db, table: orders") == []
    (same,) = told(tmp_path, "type: drawer, database: a.db, table: orders", "type: drawer, database: a.db, table: orders")
    assert same.startswith("table-two-writers")


def test_options_of_those_names_that_mean_something_else_are_left_alone(tmp_path: Path) -> None:
    assert told(tmp_path, "type: drawer, database: a.db, table: orders, key: n, version: 2") == []


def test_a_location_is_not_asked_of_a_node_with_an_error(tmp_path: Path) -> None:
    assert [each.partition(":")[0] for each in told(tmp_path, "type: shelf, table: orders")] == ["missing-key"]
