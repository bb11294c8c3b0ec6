"""examples/connector is what docs/connectors.md says: installed from outside, found by its entry point, exactly once; and
examples/sql-database what docs/sql-databases.md says."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of, run_commands

from scribengin.connectors import catalog
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.core.errors import Refused, SourceError
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_sink, check_source
from scribengin.testing.conformance_sources import Bench, check_changing_source
from scribengin.testing.own_sinks import check_trials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

CONNECTOR = ROOT / "examples" / "connector"
DATABASE = ROOT / "examples" / "sql-database"
SCHEMA = parse_schema("id BIGINT NOT NULL, customer STRING, amount DOUBLE")
ROWS = [{"id": number, "customer": None if number == 2 else "ada", "amount": number / 4} for number in range(6)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the two examples, and nothing else."""
    target, sources = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("source")
    left = shutil.ignore_patterns("*.db", ".scribengin", "data")
    copies = [str(shutil.copytree(example, sources / example.name, ignore=left)) for example in (CONNECTOR, DATABASE)]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(target), *copies], check=True, env=os.environ | {"PYTHONWARNINGS": ""})
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the example's flow, as a clone of the project has it."""
    copy = tmp_path / "examples" / "connector"
    copy.mkdir(parents=True)
    for name in ("flow.yaml", "make_orders.py"):
        shutil.copy(CONNECTOR / name, copy)
    return copy


@pytest.fixture
def connector(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The installed package."""
    monkeypatch.syspath_prepend(str(installed))
    yield importlib.import_module("scribengin_sqlite")
    catalog._modules.cache_clear()  # a suite may have read the connectors meanwhile: those of later tests are others


def make_table(folder: Path, rows: list[tuple[object, ...]]) -> ConnectorContext:
    """A place of the source whose table holds the rows."""
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER NOT NULL, customer TEXT, amount REAL)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
        database.commit()
    return ConnectorContext("orders", folder, {"database": "shop.db", "table": "orders", "max_rows": 3})


def test_the_source_keeps_the_contract(connector: ModuleType, tmp_path: Path) -> None:
    place = make_table(tmp_path, [*(tuple(row.values()) for row in ROWS), (7, "linus", "a lot")])
    assert check_source(connector.make_source(place), declared=connector.SOURCE) == 7


def test_the_source_keeps_the_contract_while_its_table_changes(connector: ModuleType, tmp_path: Path) -> None:
    make_table(tmp_path, [])
    ids = count()

    def add(rows: int) -> None:
        make_table(tmp_path, [(next(ids), "ada", 0.5) for _ in range(rows)])

    def change() -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            database.execute("UPDATE orders SET amount = 1e6 WHERE id = 0")
            database.commit()

    options = {"database": "shop.db", "table": "orders", "max_rows": 3}
    place = ConnectorContext("orders", tmp_path, options)
    check_changing_source(Bench(lambda: connector.make_source(place), add, connector.SOURCE, options, change=change))


def test_the_source_tells_that_rows_changed_after_they_were_taken(connector: ModuleType, tmp_path: Path) -> None:
    source = connector.make_source(make_table(tmp_path, [tuple(row.values()) for row in ROWS]))
    (stream,) = source.reader().split(BatchLimits())
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("UPDATE orders SET amount = 1e6 WHERE id = 1")
        database.commit()
    with pytest.raises(SourceError, match="rows 1 to 3 of table orders changed after they were taken"):
        list(source.read(stream))


def rows_in(file: Path, table: str) -> list[dict[str, object]]:
    """What a reader finds there."""
    with closing(sqlite3.connect(file)) as database:
        database.row_factory = sqlite3.Row
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            return []
        return [dict(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY rowid")]


def test_the_sink_keeps_the_contract(connector: ModuleType, tmp_path: Path) -> None:
    def read_back() -> list[dict[str, object]]:
        return rows_in(tmp_path / "out.db", "kept")

    place = ConnectorContext("kept", tmp_path, {"database": "out.db", "table": "kept"})
    wider = (parse_schema(f"{SCHEMA}, colour STRING"), [row | {"colour": "red"} for row in ROWS])
    check_sink(
        lambda: connector.make_sink(place), read_back, schema=SCHEMA, rows=ROWS, wider=wider, every_line=True, declared=connector.SINK
    )
    sink = connector.make_sink(place)
    assert sink.unlike(wider[0]) == ['the table has no column "colour"']
    with pytest.raises(Refused, match="others have written there too"):
        sink.clear(owner="conformance", flow="another")
    assert sink.clear(owner="conformance", flow="flow", dry_run=True) == len(read_back()) > 0
    assert sink.clear(owner="conformance", flow="flow") > 0
    assert read_back() == []
    sink.prepare(owner="another", lineage="after")


def test_the_sink_comes_through_the_trials_of_real_drivers(connector: ModuleType, tmp_path: Path) -> None:
    check_trials(
        tmp_path,
        connector.make_sink,
        lambda at, node: {"database": str(at / f"{node}.db"), "table": "kept"},
        lambda at, node: rows_in(at / f"{node}.db", "kept"),
        keeps_lock=True,
    )


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rows_arrive_once_though_the_driver_dies_in_the_middle_of_its_commit(installed: Path, folder: Path) -> None:
    subprocess.run([sys.executable, "make_orders.py"], cwd=folder, check=True, capture_output=True)
    command = [sys.executable, "-m", "scribengin.cli", "run", "flow.yaml", "--once"]
    armed = os.environ | {"PYTHONPATH": str(installed), "SCRIBENGIN_FAULT": "publish.record.before:kill", "PYTHONWARNINGS": ""}
    killed = subprocess.run(command, cwd=folder, env=armed, capture_output=True, text=True, check=False, start_new_session=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not large_orders(folder)

    # what the page says, which makes more orders and goes on
    lines = "".join(block.text for block in blocks_of("examples/connector/README.md") if block.language == "sh").splitlines()
    run_commands(lines, folder.parents[1], PYTHONPATH=str(installed))

    with closing(sqlite3.connect(folder / "shop.db")) as database:
        expected = database.execute("SELECT id, customer, amount FROM orders WHERE typeof(amount) = 'real' AND amount >= 100").fetchall()
    assert large_orders(folder) == expected


def make_customers(folder: Path) -> Path:
    """The folder of the other example, as a clone of the project has it."""
    copy = folder / "examples" / "sql-database"
    copy.mkdir(parents=True)
    for name in ("flow.yaml", "make_changes.py"):
        shutil.copy(DATABASE / name, copy)
    return copy


def test_the_flow_of_the_database_that_joins_the_sql_layer_is_right(installed: Path, tmp_path: Path) -> None:
    run_commands(["mkdir data", "scribengin plan flow.yaml > plan.txt"], make_customers(tmp_path), PYTHONPATH=str(installed))
    assert "exactly once" in (tmp_path / "examples/sql-database/plan.txt").read_text()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_database_that_joins_the_sql_layer_takes_changes_by_spark(installed: Path, tmp_path: Path) -> None:
    folder = make_customers(tmp_path)
    lines = "".join(block.text for block in blocks_of("examples/sql-database/README.md") if block.language == "sh").splitlines()
    run_commands(lines, tmp_path, PYTHONPATH=str(installed))
    last = {row["id"]: row for row in map(json.loads, (folder / "data/000000.jsonl").read_text().splitlines())}
    with closing(sqlite3.connect(folder / "customers.db")) as database:
        found = database.execute("SELECT id, name, at FROM customers ORDER BY id").fetchall()
    assert found == [(row["id"], row["name"], row["at"]) for _, row in sorted(last.items()) if row["op"] != "delete"]


def large_orders(folder: Path) -> list[tuple[int, str, float]]:
    with closing(sqlite3.connect(folder / "large.db")) as database:
        there = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'large_orders'").fetchone()
        return database.execute("SELECT id, customer, amount FROM large_orders ORDER BY rowid").fetchall() if there else []
