"""A real PostgreSQL: it starts, is killed, comes back with its data, and ends; also for a root that can have no namespace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
import pytest

from scribengin.core.process import within
from scribengin.embedded import server as no_root
from scribengin.embedded.postgres import Postgres

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_committed_outlives_a_kill_and_a_stop(tmp_path: Path) -> None:
    with Postgres(tmp_path) as server:
        with psycopg.connect(server.uri) as connection:
            connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 100) AS id")
        pid, address = server.pid, server.address
        server.kill()
        assert not server.answers()
        server.start()
        assert (server.address, server.pid != pid) == (address, True)
        server.stop()
        server.start(max_connections="10")
        with psycopg.connect(server.uri) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (100,)
            assert connection.execute("SHOW max_connections").fetchone() == ("10",)
    assert server.pid is None


def test_one_that_was_released_is_found_again(tmp_path: Path) -> None:
    first = Postgres(tmp_path)
    first.start()
    first.release()
    second = Postgres(tmp_path)
    try:
        assert second.pid == first.pid
        assert second.answers()
    finally:
        second.stop()
    assert within(60.0, lambda: first.pid is None)


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root needs no other user")
def test_where_root_can_have_no_namespace_it_runs_for_nobody(public_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(no_root, "_may_have_a_namespace", lambda: False)
    with Postgres(public_path) as server, psycopg.connect(server.uri) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert (public_path / "data").stat().st_uid == 65534
