"""Servers that do not let us: a certificate that nobody trusts, a wrong password, a disk that is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from harness.faults.small_disk import SmallDisk, no_small_disk
from scribengin.connectors.contract import BatchId, BatchLimits, ConnectorContext, Decided
from scribengin.connectors.postgres.options import SINK, SOURCE
from scribengin.connectors.postgres.sink import PostgresSink
from scribengin.connectors.postgres.source import PostgresSource
from scribengin.core.errors import ScribenginError, SinkError, SourceError, Unreachable
from scribengin.core.secret import Secret
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.embedded import postgres as embedded
from scribengin.embedded.postgres import Postgres
from tests.connectors.postgres.tls_door import Authority, TlsDoor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HBA = "host all postgres 127.0.0.1/32 trust\nhost all etl 127.0.0.1/32 scram-sha-256\n"


@dataclass
class Guarded:
    """A server that asks users for passwords, behind TLS."""

    folder: Path
    server: Postgres
    authority: Authority
    uri: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    for each in (folder, *folder.parents[:3]):
        each.chmod(each.stat().st_mode | 0o055)
    authority = Authority(folder, "authority")
    certificate, hba = folder / "server.pem", folder / "hba.conf"
    authority.give(certificate, address="127.0.0.1")
    hba.write_text(HBA)
    started = Postgres(folder / "server")
    try:
        started.start(hba_file=str(hba))
        with psycopg.connect(started.uri, autocommit=True) as admin, TlsDoor(certificate, admin.info.port) as door:
            admin.execute("CREATE ROLE etl LOGIN PASSWORD 'right one'; CREATE TABLE orders (id bigint PRIMARY KEY)")
            admin.execute("GRANT ALL ON orders TO etl; GRANT CREATE ON DATABASE postgres TO etl; GRANT CREATE ON SCHEMA public TO etl")
            admin.execute("INSERT INTO orders VALUES (1)")
            yield Guarded(folder, started, authority, f"postgresql://etl@127.0.0.1:{door.port}/postgres")
    finally:
        started.stop()


def ask(uri: str, config: dict[str, Any]) -> list[ScribenginError | None]:
    """What source and sink say at their check."""
    said: list[ScribenginError | None] = []
    source = PostgresSource(ConnectorContext("in", None, SOURCE.filled({"server": uri, "table": "orders", "config": config})))  # type: ignore[arg-type]
    sink = PostgresSink(ConnectorContext("out", None, SINK.filled({"server": uri, "table": "kept", "config": config}), flow="flow"))  # type: ignore[arg-type]
    for check in (source.reader, lambda: sink.prepare(owner="me", lineage="one")):
        try:
            check()
            said.append(None)
        except ScribenginError as error:
            said.append(error)
    return said


def test_a_certificate_that_is_not_trusted_is_told_with_what_to_do(guarded: Guarded) -> None:
    password = Secret("right one", "${secret:env/PASSWORD}")
    trusted = {"sslmode": "verify-full", "sslrootcert": str(guarded.authority.path), "password": password}
    assert ask(guarded.uri, trusted) == [None, None]
    stranger = Authority(guarded.folder, "stranger")
    for config, told in (
        (trusted | {"sslrootcert": str(stranger.path)}, "certificate verify failed"),
        (trusted | {"sslrootcert": str(guarded.folder / "none.pem")}, "does not exist"),
        (trusted | {"host": "localhost"}, 'does not match host name "localhost"'),
    ):
        for error in ask(guarded.uri, config):
            assert error is not None
            assert told in error.message
            assert error.code == "postgres-trust"
            assert "sslrootcert" in error.remedy


def test_a_wrong_password_is_told_and_shown_nowhere(guarded: Guarded) -> None:
    config = {"sslmode": "verify-full", "sslrootcert": str(guarded.authority.path), "password": Secret("hunter2", "${secret:env/PASSWORD}")}
    for given in (config, {name: value for name, value in config.items() if name != "password"}, {"sslmode": "disable"}):
        for error in ask(guarded.uri, given):
            assert error is not None
            assert (error.code, error.remedy) == ("postgres-login", "correct the user in `server` and the password in `config`")
            assert "hunter2" not in f"{error} {error.__cause__}"


def test_a_standby_is_read_once_and_not_as_it_grows(guarded: Guarded) -> None:
    server, signal = guarded.server, guarded.folder / "server/data/standby.signal"
    asks = str(guarded.folder / "hba.conf")  # also of who comes behind this test
    server.stop()
    signal.touch()
    server.start(hba_file=asks)
    try:
        given = {"server": server.uri, "table": "orders", "every": 0.0}
        once = PostgresSource(ConnectorContext("in", guarded.folder, SOURCE.filled(given)))
        assert [stream.rows for stream in once.reader().split(BatchLimits(), final=True)] == [1]
        with pytest.raises(SourceError, match="is a standby") as told:
            PostgresSource(ConnectorContext("in", guarded.folder, SOURCE.filled(given | {"mode": "incremental", "by": "id"}))).reader()
        assert told.value.remedy == "name the primary in `server`"
    finally:
        server.stop()
        signal.unlink()
        server.start(hba_file=asks)


class SmallServer(Postgres):
    """A server with a tablespace `small` on a disk of a megabyte, where the tables of its database are made."""

    def __init__(self, folder: Path, disk: SmallDisk) -> None:
        super().__init__(folder / "server")
        self.disk = disk


@pytest.fixture
def small(public_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallServer]:
    if reason := no_small_disk():
        pytest.skip(reason)
    room = public_path / "room"
    with SmallDisk(room, "1m") as disk:
        # the server is root's child where the disk is seen, and in a namespace of its own nobody special there
        as_ever = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
        monkeypatch.setattr(embedded, "unprivileged_prefix", lambda: (*disk.wrap([], public_path), *as_ever))
        with SmallServer(public_path, disk) as server:
            with psycopg.connect(server.uri, autocommit=True) as admin:
                admin.execute(f"CREATE TABLESPACE small LOCATION '{room}'")
                admin.execute("ALTER DATABASE postgres SET default_tablespace = small")
            yield server


SCHEMA = parse_schema("id BIGINT NOT NULL, body STRING")


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
def test_a_table_that_is_dropped_behind_a_decision_is_told_and_the_batch_comes_once_it_is_restored(
    server: Postgres, database: Any, options: dict[str, Any]
) -> None:
    given = SINK.filled({"server": server.uri, "table": "kept", "config": {"dbname": database.info.dbname}} | options)

    def opened() -> PostgresSink:
        own = PostgresSink(ConnectorContext("out", None, given, flow="flow"))  # type: ignore[arg-type]
        own.prepare(owner="me", lineage="one")
        return own

    def staged(sink: PostgresSink, number: int) -> Decided:
        stream = sink.stream(BatchId("flow", "query", "one", number, 1), 0, f"attempt-{number}", SCHEMA)
        rows = [{"id": number * 10 + id_, "body": "x"} for id_ in range(3)]
        assert not stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA)))
        return Decided(BatchId("flow", "query", "one", number, 1), f"hash {number}", (stream.close(),))

    sink = opened()
    first = staged(sink, 0)
    sink.publish(first)
    waits = staged(sink, 1)
    database.execute("DROP TABLE kept")
    for each in (sink, opened()):
        with pytest.raises(SinkError, match=r'did not accept batch 1 into public.kept: relation "public\.kept" does not exist') as told:
            each.publish(waits)
        assert told.value.code == "postgres-table"
        assert told.value.remedy == "restore it, with its rows; or start over: scribengin reset FLOW --outputs"
    with pytest.raises(
        SinkError, match=r"table public.kept at .* does not exist any more, nor do the rows that were written to it"
    ) as told:
        staged(opened(), 2)
    assert told.value.code == "table-gone"
    assert database.execute("SELECT to_regclass('kept') AS there").fetchone()["there"] is None, (
        "it is not made again, as if there had been no rows"
    )
    database.execute("CREATE TABLE kept (id bigint PRIMARY KEY, body text)")
    sink.publish(waits)
    sink.publish(waits)
    assert [row["id"] for row in database.execute("SELECT id FROM kept ORDER BY id")] == [10, 11, 12]
    violations = [each.violations for each in sink.audit(lineage="one", decided=[first, waits])]
    assert violations[1] == ()
    assert bool(violations[0]) == (not options), "rows that were dropped are counted where rows are only added"


def test_a_full_disk_at_the_server_loses_nothing_and_what_waits_comes_when_there_is_room(small: SmallServer) -> None:
    schema = parse_schema("id BIGINT, body STRING")
    sink = PostgresSink(ConnectorContext("out", None, SINK.filled({"server": small.uri, "table": "kept"}), flow="flow"))  # type: ignore[arg-type]
    sink.prepare(owner="me", lineage="one")

    def staged(number: int, rows: int, attempt: str) -> Decided:
        batch = BatchId("flow", "query", "one", number, 1)
        stream = sink.stream(batch, 0, attempt, schema)
        body = [{"id": number * 1000 + id_, "body": "x" * 900} for id_ in range(rows)]
        try:
            assert not stream.write(pa.RecordBatch.from_pylist(body, schema=arrow_schema(schema)))
            return Decided(batch, f"hash {number}", (stream.close(),))
        except BaseException:
            stream.abort()
            raise

    def there() -> int:
        with psycopg.connect(small.uri) as connection:
            return int((connection.execute("SELECT count(*) FROM kept").fetchone() or (0,))[0])

    sink.publish(staged(0, 100, "a"))
    with pytest.raises(Unreachable, match="No space left on device") as told:
        staged(1, 2000, "b")
    assert "has free space" in told.value.remedy
    decided = staged(1, 400, "c")
    with pytest.raises(Unreachable, match="No space left on device"):
        sink.publish(decided)
    assert there() == 100
    small.disk.grow("8m")
    sink.publish(decided)
    sink.publish(decided)
    assert there() == 500
    assert [each.violations for each in sink.audit(lineage="one", decided=[decided])] == [()]
