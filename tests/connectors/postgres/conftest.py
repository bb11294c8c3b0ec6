"""One PostgreSQL for all tests of this folder: a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scribengin.embedded.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    folder = tmp_path_factory.mktemp("postgres")
    for each in (folder, *folder.parents[:3]):  # where there are no namespaces it runs for another user
        each.chmod(each.stat().st_mode | 0o055)
    with Postgres(folder) as started:
        yield started


@pytest.fixture
def database(server: Postgres) -> Iterator[Any]:
    """A connection to an empty database of its own; its `info.dbname` says which."""
    with psycopg.connect(server.uri, autocommit=True) as admin:
        name = f"test_{admin.execute('SELECT count(*) FROM pg_database').fetchone()[0]}_{admin.info.backend_pid}"  # type: ignore[index]
        admin.execute(f"CREATE DATABASE {name}")
        try:
            with psycopg.connect(server.uri, dbname=name, autocommit=True, row_factory=psycopg.rows.dict_row) as own:
                yield own
        finally:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
