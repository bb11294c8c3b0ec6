"""The conformance suite of sinks over groups of two whose members need no server: of each way in which a sink commits."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors import catalog
from scribengin.connectors.keyed.sink import KeyedSink
from scribengin.connectors.objects.manifests import Manifests, lineages
from scribengin.core.store import LocalStore
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_sink
from scribengin.testing.sqlite_store import SqliteStore
from tests.connectors.delta.conftest import read_table
from tests.connectors.group.alternating import Alternating, Driver, OfferingAlternating
from tests.connectors.group.disks import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.contract import ConnectorContext

EXAMPLE = Path(__file__).parents[3] / "examples" / "sql-database" / "src"

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING")
ROWS = [{"id": n, "name": None if n == 2 else f"name {n}"} for n in range(4)]


def _as_row(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record.get(name) for name in SCHEMA.names}


def files(at: Path) -> list[dict[str, Any]]:
    parts = sorted(at.glob("kept/part-*.jsonl"))
    return [_as_row(json.loads(line)) for part in parts for line in part.read_text().splitlines()]


def objects(at: Path) -> list[dict[str, Any]]:
    store = LocalStore(at)
    names = [file["name"] for each in lineages(store) for _, record in Manifests(store, each).committed() for file in record["files"]]
    return [_as_row(json.loads(line)) for name in names for line in (store.get(name) or b"").splitlines()]


def delta(at: Path) -> list[dict[str, Any]]:
    return read_table(at / "kept")


def sql(at: Path) -> list[dict[str, Any]]:
    if not (at / "kept.db").exists():
        return []
    with closing(sqlite3.connect(at / "kept.db")) as database:
        database.row_factory = sqlite3.Row
        there = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'kept'").fetchone()
        return [dict(row) for row in database.execute("SELECT * FROM kept")] if there else []


def keyed(at: Path) -> list[dict[str, Any]]:
    return [_as_row(row) for row in SqliteStore(at / "store.db").documents()]


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "files": (files, {"path": "{at}/kept", "format": "json"}),
    "objects": (objects, {"url": "file://{at}", "format": "json"}),
    "delta": (delta, {"path": "{at}/kept"}),
    "sql": (sql, {"database": "{at}/kept.db", "table": "kept"}),
    "keyed": (keyed, {"store": "{at}/store.db"}),
}
"""type, or layer, → (rows that stand below a folder, options of a member there)"""


def opened(type_: str, place: ConnectorContext) -> Any:
    if type_ == "keyed":
        return KeyedSink(place, SqliteStore(Path(place.options["store"])), key=(), connections=2)
    if type_ == "sql":
        from scribengin_sqlite_table import make_sink

        return make_sink(place)
    return catalog.open_sink(type_, place)


def filled(type_: str, options: dict[str, Any]) -> dict[str, Any]:
    if type_ == "keyed":
        return options
    if type_ == "sql":
        from scribengin_sqlite_table import SINK

        return SINK.filled(options)
    return catalog.sink_types()[type_].filled(options)


@pytest.fixture(scope="module", autouse=True)
def _example() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        yield


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    """Of the two members."""
    made = [tmp_path / "a", tmp_path / "b"]
    for place in made:
        place.mkdir()
    return made


def options_of(type_: str, places: list[Path]) -> list[dict[str, Any]]:
    return [filled(type_, {name: value.format(at=place) for name, value in KINDS[type_][1].items()}) for place in places]


@pytest.mark.parametrize("type_", KINDS)
def test_a_group_keeps_the_contract_of_one_sink(type_: str, places: list[Path], tmp_path: Path) -> None:
    rows_below, given = KINDS[type_][0], tuple(options_of(type_, places))
    kind = OfferingAlternating if type_ == "keyed" else Alternating

    def found() -> list[dict[str, Any]]:
        return [row for place in places for row in rows_below(place)]

    check_sink(lambda: kind(type_, given, tmp_path, opened), found, schema=SCHEMA, rows=ROWS)
    assert all(map(rows_below, places)), "Batches have gone to both"
    assert kind(type_, given, tmp_path, opened).clear(owner="conformance", flow="flow") > 0
    assert found() == []


@pytest.mark.parametrize("type_", KINDS)
def test_an_audit_finds_a_batch_that_stands_at_a_member_that_it_was_not_decided_for(type_: str, places: list[Path], tmp_path: Path) -> None:
    members = dict(zip(("near", "far"), options_of(type_, places), strict=True))
    driver = Driver(type_, members, tmp_path, Clock(), SCHEMA, opened)
    driver.recover()
    driver.put(ROWS[:2])
    assert [text for each in driver.audit() for text in each.violations] == []
    driver.decided[0] = replace(driver.decided[0], behind={**driver.decided[0].behind, "member": "far"})
    found = [text for each in driver.audit() for text in each.violations]
    assert "member near: batch 0 is published, but there is no decision for it" in found
    assert any(text.startswith("member far: ") for text in found)
