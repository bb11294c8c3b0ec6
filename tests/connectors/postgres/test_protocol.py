"""Every crash point of a Batch's way into a table, without Spark, on a real server: nothing lost, doubled or invented."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from harness.broken_sql import Blind, RecordFirst, RowsFirst
from harness.faults.table_flows import read_table
from harness.unit_protocol import UnitsDriver
from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.postgres import client
from scribengin.connectors.postgres.options import SINK
from scribengin.connectors.postgres.sink import PostgresSink, PostgresUnitSink
from scribengin.testing import campaign
from scribengin.testing.checker import Found
from scribengin.testing.protocol import FLOW, SINKS, Driver, Job
from scribengin.testing.trials import killed, overtaken

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.embedded.postgres import Postgres
    from scribengin.testing.trials import Outcome

BATCH = ("stage.mid_write", "stage.closed", "stage.after", "decide.after", "publish.before", "publish.record.before")
BEHIND = ("publish.record.after", "publish.after", "commit.before")
"""what else a Batch passes concerns the sink as little as it does a folder's"""
TELLING = ("stage.mid_write", "decide.after", "publish.record.before", "publish.record.after")
"""where one that sleeps has most to spoil; it sleeps at the others under `long`"""
UNITS = ("stage.mid_write", "marker.read", "transaction.sent", "transaction.commit.before", "transaction.commit.after")
"""what a unit passes that commits by itself"""
WHOLE = ("stage.after", "decide.after", "publish.record.before", "publish.record.after", "commit.before")
"""and then its Batch"""
ABANDONED_MS = 500


@dataclass(frozen=True, slots=True)
class TableJob(Job):
    """As Job; each sink has a table of its name in `schema`. With `by_key` rows replace those of their key."""

    server: str = ""
    schema: str = ""
    by_key: bool = False
    by_unit: bool = False
    """whether units commit by themselves"""

    def read(self, torn: list[str]) -> dict[str, list[Found]]:
        with closing(client.driver().connect(self.server, autocommit=True)) as connection:
            return {node: [Found(node, row) for row in read_table(connection, self.schema, node)] for node in SINKS}

    def staged(self) -> int:
        """Tables that nobody has taken away."""
        with closing(client.driver().connect(self.server, autocommit=True)) as connection:
            query = "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename LIKE 'rows\\_%%'"
            return int(connection.execute(query, (f"{self.schema}_own",)).fetchone()[0])


def place_of(job: Job, node: str) -> ConnectorContext:
    assert isinstance(job, TableJob)
    keyed = {"mode": "upsert", "key": ("part", "seq")} if job.by_key else {}
    options = {"server": job.server, "table": f"{job.schema}.{node}", "staging": f"{job.schema}_own"} | keyed
    return ConnectorContext(node, job.out, SINK.filled(options), flow=FLOW)


def table_sink(job: Job, node: str) -> PostgresSink:
    return PostgresSink(place_of(job, node))


def driver_of(job: Job, units: type[PostgresUnitSink] = PostgresUnitSink) -> Driver:
    assert isinstance(job, TableJob)
    return UnitsDriver(job, lambda job, node: units(place_of(job, node))) if job.by_unit else Driver(job, table_sink)


def table_driver(job: Job, units: type[PostgresUnitSink] = PostgresUnitSink) -> Driver:
    """In a process of its own, whose sessions the server ends soon where they sleep in a transaction."""
    client.ABANDONED_MS = ABANDONED_MS
    return driver_of(job, units)


@pytest.fixture
def make_job(server: Postgres, tmp_path: Path) -> Callable[..., TableJob]:
    schema = f"jobs_{uuid4().hex[:12]}"
    with closing(client.driver().connect(server.uri, autocommit=True)) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return partial(TableJob, tmp_path / "state", tmp_path / "out", server=server.uri, schema=schema)


def assert_clean(outcome: Outcome, job: TableJob) -> None:
    assert outcome.clean, str(outcome)
    assert campaign.BUG not in outcome.statuses, str(outcome)
    assert campaign.audit(job, driver_of) == ()


@pytest.mark.parametrize(
    ("point", "nth", "by_key"), [(point, *((1, True), (2, False))[at % 2]) for at, point in enumerate((*BATCH, *BEHIND))]
)
def test_a_driver_killed_at(point: str, nth: int, by_key: bool, make_job: Callable[..., TableJob]) -> None:
    job = make_job(by_key=by_key)
    outcome = killed(job, [f"{point}@{nth}:kill"], driver_of)
    assert outcome.statuses == (-9,), "the point was not reached"
    assert_clean(outcome, job)
    assert job.staged() == 0


@pytest.mark.parametrize("then", ["publish.record.before", "publish.record.after", "recovery.mid"])
def test_a_driver_killed_and_killed_again_in_recovery(then: str, make_job: Callable[..., TableJob]) -> None:
    job = make_job()
    outcome = killed(job, ["decide.after@2:kill", f"{then}:kill", f"{then}:kill"], driver_of)
    assert outcome.statuses[0] == -9
    assert_clean(outcome, job)


@pytest.mark.parametrize(
    "point", [point if point in TELLING else pytest.param(point, marks=pytest.mark.long) for point in (*BATCH, *BEHIND)]
)
def test_a_driver_that_sleeps_and_wakes_after_its_successor_changes_nothing(point: str, make_job: Callable[..., TableJob]) -> None:
    job = make_job()
    assert_clean(overtaken(job, f"{point}@2", table_driver), job)


@pytest.mark.parametrize(
    "point", [*UNITS[1:], WHOLE[0], *(pytest.param(point, marks=pytest.mark.long) for point in (UNITS[0], *WHOLE[1:]))]
)
def test_a_driver_whose_units_commit_by_themselves_killed_at(point: str, make_job: Callable[..., TableJob]) -> None:
    job = make_job(by_unit=True)
    # of two units a Batch, the second one of the second
    outcome = killed(job, [f"{point}@{4 if point in UNITS else 2}:kill"], driver_of)
    assert outcome.statuses == (-9,), "the point was not reached"
    assert_clean(outcome, job)


@pytest.mark.parametrize(
    "point", [point if point in UNITS[2:4] else pytest.param(point, marks=pytest.mark.long) for point in (*UNITS, *WHOLE)]
)
def test_a_driver_whose_units_commit_by_themselves_that_sleeps_changes_nothing(point: str, make_job: Callable[..., TableJob]) -> None:
    job = make_job(by_unit=True)
    assert_clean(overtaken(job, f"{point}@2", table_driver), job)


@pytest.mark.parametrize(
    ("broken", "trial", "finds"),
    [
        (RowsFirst, partial(killed, faults=["transaction.commit.before@4:kill"]), "doubled"),
        (RecordFirst, partial(killed, faults=["transaction.commit.before@4:kill"]), "lost"),
        (Blind, partial(killed, faults=["transaction.commit.after@4:kill"]), "doubled"),
        (Blind, partial(overtaken, point="transaction.sent@4"), "doubled"),
    ],
)
def test_the_checker_catches_in_units(
    broken: type[PostgresUnitSink], trial: Callable[..., Outcome], finds: str, make_job: Callable[..., TableJob]
) -> None:
    outcome = trial(make_job(by_unit=True), make_driver=partial(table_driver, units=broken))
    assert getattr(outcome.findings, finds), str(outcome)
