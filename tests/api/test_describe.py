"""What people see of hand edits, damaged records and tasks: by the API, by its client, and by the commands that stand on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from scribengin.api.views import RegistryView
from scribengin.cli.commands.describe import command as describe
from scribengin.cli.commands.list import command as list_flows
from scribengin.client.client import Client
from scribengin.registry.contract import Create
from scribengin.registry.record_io import read_record, set_aside
from scribengin.registry.records import (
    Desired,
    MaintenanceOwner,
    MaintenanceReport,
    Spec,
    StatusRecord,
    Task,
    TierSpec,
    TierWish,
    id_of_folder,
)
from scribengin.registry.tree import DESIRED, KEEPING, RUN, SPEC, STATUS, TASK, UPKEEP_LEASE, UPKEPT, WANTED

if TYPE_CHECKING:
    from scribengin.registry.records import Goal

    from .conftest import Bench

REFUSED = {DESIRED("tweets").path: {"version": 1, "why": "is not valid JSON: oops", "remedy": "say it anew"}}
OUT = "/data/out"
WISHES: dict[str, Goal] = {"core": "running", "core~2": "running", "core~3": "stopped"}
TASKS = [
    Task(
        query="kept",
        batch=7,
        sources={"tweets": [f"a.jsonl[{number}]"]},
        sinks={"kept": {"unit": number, "rows": 1_200, "bytes": 5}},
        owner="tweets.core-1",
        position={"tweets": 8},
    )
    for number in range(2)
]


def fill(bench: Bench) -> None:
    person = bench.person
    person.commit(
        SPEC("tweets", "1").create(
            Spec(package="0" * 64, path="flow.yaml", base="/b", state="/s", tiers={"core": TierSpec(folders=(OUT,), workers="each")})
        ),
        DESIRED("tweets").create(Desired(state="running", version=1)),
        *(WANTED("tweets", name).create(TierWish(version=1, goal=goal, generation=1)) for name, goal in WISHES.items()),
        STATUS("tweets").create(StatusRecord(state="running", version=1, generation=3, goal="running", refused=REFUSED)),
        *(TASK("tweets", "core", str(number)).create(task) for number, task in enumerate(TASKS)),
        KEEPING(id_of_folder(OUT)).create(MaintenanceOwner(path=OUT, node="h1", writers=("other.main", "tweets.core"))),
        UPKEPT(id_of_folder(OUT)).create(
            MaintenanceReport(node="h1", at="2026-01-02T03:04:05", did_at="2026-01-01T00:00:00", folded=1_000, files=2)
        ),
        Create(UPKEEP_LEASE(id_of_folder(OUT)).path, {"id": "h1", "host": "h1.example", "pid": 7}, ephemeral=True),
    )
    bench.store.write_raw(DESIRED("tweets").path, b"oops")
    bench.store.write_raw("flows/tweets/runs", b"")
    bench.store.write_raw(RUN("tweets", "core").path, b"torn")
    damaged = read_record(person, RUN("tweets", "core"))
    set_aside(person, damaged)  # type: ignore[arg-type]


def test_refused_and_set_aside_records_and_tasks_are_shown_with_and_without_a_master(bench: Bench) -> None:
    master = bench.master()
    fill(bench)
    with Client([master.url]) as client:
        for plane in (client, RegistryView(bench.person)):
            (row,) = plane.flows()
            assert (row.state, row.wanted, row.version) == ("running", "running", 1), "what masters go on with"
            assert row.refused == REFUSED
            view = plane.flow("tweets")
            assert view.status is not None
            assert view.status.refused == REFUSED
            assert [(tier.tier, tier.workers, tier.wanted_workers) for tier in view.tiers] == [("core", "each", 2)]
            assert [each["path"] for each in view.set_aside] == [RUN("tweets", "core").path]
            (folder,) = view.folders
            assert (folder.path, folder.node, folder.writers, folder.folded) == (OUT, "h1", ("other.main", "tweets.core"), 1_000)
            assert folder.keeper is not None
            assert (folder.keeper.pid, folder.looked_at) == (7, "2026-01-02T03:04:05")
            tasks = plane.tasks("tweets")
            assert [(task.tier, task.task, task.batch, task.position["tweets"]) for task in tasks] == [("core", 0, 7, 8), ("core", 1, 7, 8)]
            assert tasks[1].sources == {"tweets": ["a.jsonl[1]"]}


def test_people_read_what_was_refused_and_what_each_task_does(bench: Bench) -> None:
    master = bench.master()
    fill(bench)
    runner = CliRunner()
    said = runner.invoke(describe, ["tweets", "--tasks", "--master", master.url], standalone_mode=False)
    assert said.exception is None, said.output
    assert "refused: flows/tweets/desired is not valid JSON: oops" in said.output
    assert "say it anew" in said.output
    assert "each (2)" in said.output
    assert "set aside: flows/tweets/runs/core is not valid JSON" in said.output
    assert "tweets: a.jsonl[1]" in said.output
    assert (
        "folder /data/out: maintained by h1, looked at 2026-01-02T03:04:05; 2026-01-01T00:00:00: 1,000 commit records folded" in said.output
    )
    assert "kept: 1,200 rows" in said.output
    said = runner.invoke(list_flows, ["--master", master.url], standalone_mode=False)
    assert "refused: flows/tweets/desired is not valid JSON: oops; say it anew" in said.output


def test_tasks_of_a_flow_that_is_not_there_are_no_empty_list(bench: Bench) -> None:
    answer = bench.master().ask("GET", "/v1/flows/nobody/tasks")
    assert (answer.status_code, answer.json()["code"]) == (404, "flow-unknown")
