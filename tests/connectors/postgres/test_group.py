"""A group of two servers: the contract over both, and one that is killed while a Batch is decided for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scribengin.connectors.postgres.options import SINK
from scribengin.core.errors import Unreachable
from scribengin.core.types import parse_schema
from scribengin.embedded.postgres import Postgres
from scribengin.testing.conformance import check_sink
from tests.connectors.group.alternating import Alternating, Driver
from tests.connectors.group.disks import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING")
ROWS = [{"id": n, "name": None if n == 2 else f"name {n}"} for n in range(4)]


@pytest.fixture(scope="module")
def other(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that may be killed. It is asked for behind `server`, which opens the folders around."""
    folder = tmp_path_factory.mktemp("other")
    folder.chmod(0o755)
    with Postgres(folder) as started:
        yield started


@pytest.fixture
def members(database: Any, other: Postgres) -> Iterator[dict[str, dict[str, Any]]]:
    """`near`, which may be killed, and `far`; in each a table of the test's own."""
    info, name = database.info, f"near_{database.info.dbname}"
    with psycopg.connect(other.uri, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    near = f"{other.uri.rpartition('/')[0]}/{name}"
    far = f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"
    yield {member: SINK.filled({"server": uri, "table": "kept"}) for member, uri in (("near", near), ("far", far))}
    if not other.answers():
        other.start()


def rows_at(options: dict[str, Any]) -> list[dict[str, Any]]:
    with psycopg.connect(options["server"], autocommit=True, row_factory=psycopg.rows.dict_row) as session:
        there = session.execute("SELECT to_regclass('kept') AS there").fetchone()
        return session.execute("SELECT * FROM kept ORDER BY id").fetchall() if there and there["there"] else []


def test_two_databases_keep_the_contract_of_one(members: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    given = tuple(members.values())

    def found() -> list[dict[str, Any]]:
        return [row for each in given for row in rows_at(each)]

    poison = [{"id": 9, "name": "a\0b"}]
    check_sink(lambda: Alternating("postgres", given, tmp_path), found, schema=SCHEMA, rows=ROWS, poison=poison)
    assert all(map(rows_at, given))


def test_a_batch_waits_for_the_server_that_it_was_decided_for_and_later_ones_go_to_the_other(
    members: dict[str, dict[str, Any]], other: Postgres, tmp_path: Path
) -> None:
    clock = Clock()
    driver = Driver("postgres", members, tmp_path, clock, SCHEMA)
    driver.recover()
    assert driver.put([{"id": 0}]) == "near"
    owed = driver.decide([{"id": 1}])
    other.kill()
    with pytest.raises(Unreachable, match=r'batch 1 is decided for member "near" and waits for it: .* cannot be connected to') as waits:
        driver.publish(owed)
    assert waits.value.code == "group-waits"
    driver.start()  # and so it is in the next process
    with pytest.raises(Unreachable, match='batch 1 is decided for member "near" and waits for it'):
        driver.recover()
    assert rows_at(members["far"]) == []
    other.start()
    driver.recover()
    assert [row["id"] for row in rows_at(members["near"])] == [0, 1]
    other.kill()
    assert driver.put([{"id": 2}]) == "far"
    other.start()
    clock.seconds += 3600
    assert driver.put([{"id": 3}]) == "near", "it is tried again"
    assert [[row["id"] for row in rows_at(each)] for each in members.values()] == [[0, 1, 3], [2]]
    assert [(each.number, each.rows, each.violations) for each in driver.audit()] == [(n, 1, ()) for n in range(4)]


def test_a_batch_at_another_member_too_and_rows_that_are_gone_are_found(members: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    driver = Driver("postgres", members, tmp_path, Clock(), SCHEMA)
    driver.recover()
    driver.put([{"id": 0}, {"id": 1}])
    driver.put([{"id": 2}])
    with psycopg.connect(members["near"]["server"], autocommit=True) as session:
        session.execute("DELETE FROM kept WHERE id = 0")
        session.execute("INSERT INTO kept VALUES (7, 'stranger')")
        commit = session.execute("SELECT * FROM scribengin.commits WHERE number = 1").fetchone()
    with psycopg.connect(members["far"]["server"], autocommit=True) as session:
        session.execute("INSERT INTO scribengin.commits VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", commit)
    found = {text for each in driver.audit() for text in each.violations}
    assert found == {
        "member near: batch 0: expected 2 rows in public.kept, found 1",
        "member near: 1 rows in public.kept belong to no batch",
        "member far: batch 1 is published, but there is no decision for it",
    }


def test_a_database_that_may_only_be_read_or_is_another_is_passed_over(members: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    driver = Driver("postgres", members, tmp_path, Clock(), SCHEMA)
    driver.recover()
    driver.put([{"id": 0}])
    with psycopg.connect(members["near"]["server"], autocommit=True) as session:
        session.execute(f'ALTER DATABASE "{session.info.dbname}" SET default_transaction_read_only = on')
    assert driver.put([{"id": 1}]) == "far"
    with psycopg.connect(members["far"]["server"], autocommit=True) as session:
        session.execute("DROP SCHEMA scribengin CASCADE")
    with pytest.raises(Unreachable, match=r".* has no claim of public.kept: the flow claimed another database") as told:
        driver.decide([{"id": 2}])
    assert "read-only transaction" in told.value.message
