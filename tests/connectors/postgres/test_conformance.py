"""The conformance suite of sinks over a real table: all its benches, and two sinks of SQL tables that are wrong on purpose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from harness.broken_sql import MarkerOutside, SharedTable
from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.postgres.options import SINK
from scribengin.connectors.postgres.sink import PostgresSink
from scribengin.core.secret import Secret
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_sink

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING")
WIDER = parse_schema("id BIGINT NOT NULL, name STRING, colour STRING")
ROWS = [{"id": n, "name": None if n == 2 else f"name {n}"} for n in range(4)]
PASSWORD = "s3cr3t-p4ssw0rd"


def check(kind: type[PostgresSink], database: Any, folder: Path, **benches: Any) -> None:
    def place(port: int) -> ConnectorContext:
        uri = f"postgresql://{database.info.user}@{database.info.host}:{port}/{database.info.dbname}"
        config = {"password": Secret(PASSWORD, "${secret:env/PASSWORD}")}
        return ConnectorContext("kept", folder, SINK.filled({"server": uri, "table": "kept", "config": config}), flow="flow")

    def read() -> list[dict[str, Any]]:
        there = database.execute("SELECT to_regclass('kept') AS there").fetchone()["there"]
        return database.execute("SELECT * FROM kept").fetchall() if there else []

    where, nowhere = place(database.info.port), place(1)
    check_sink(lambda: kind(where), read, schema=SCHEMA, rows=ROWS, away=lambda: kind(nowhere), **benches)


def test_the_sink_passes_with_all_benches(database: Any, tmp_path: Path) -> None:
    poison = [{"id": 9, "name": "a\0b"}]
    wider = (WIDER, [row | {"colour": "red"} for row in ROWS])
    check(PostgresSink, database, tmp_path, poison=poison, wider=wider, secret=PASSWORD, folders=[tmp_path])


def test_a_staging_table_that_attempts_share_is_told(database: Any, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="attempts leave alone what another one has staged"):
        check(SharedTable, database, tmp_path)


def test_a_commit_record_outside_of_the_transaction_is_told(database: Any, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as told:
        check(MarkerOutside, database, tmp_path, every_line=True)
    assert re.search(r"a driver dies at [\w/]+\.py:\d+ and comes again: the place has each decided row once; lost: 1 x ", str(told.value))
