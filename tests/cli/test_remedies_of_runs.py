"""Commands that runs print, and what moves their sources: typed as they are, the flow runs again and its ledger balances."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.cli import confirm
from scribengin.cli.commands import run as run_command
from scribengin.connectors.spark import sink as writer
from scribengin.connectors.spark.sink import SparkWriterSink
from scribengin.core.errors import ScribenginError, SinkError
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.state.folder import renew_owner
from tests.plugins.remedies import mentions

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Command

    from tests.conftest import FlowFolder

    Follow = Callable[[str], None]

ROWS = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", max_files: 1}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""
WINDOWS = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 1m}
steps:
  counts: {from: rows, aggregate: {by: [id], window: {time: ts, size: 1m}, columns: {n: count(*)}}}
sinks:
  kept: {from: counts, type: files, path: out, format: json}
"""
TIERS = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", max_files: 1}
steps:
  first: {from: rows, filter: id >= 0}
  second: {from: first, filter: id >= 0}
sinks:
  kept: {from: second, type: files, path: out, format: json}
tiers: {front: {steps: [first]}, back: {steps: [second, kept]}}
edges:
  "first -> second": {channel: {path: handed}, durability: store_on_failure}
"""
GROUP = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", max_files: 1}
sinks:
  kept: {from: rows, type: files, path: kept, format: json, to: wan}
groups: {wan: {members: [{at: near, name: near}, {at: far, name: far, cost: 2}]}}
"""
BACK = ("offsets", "set", "flow.yaml", "rows", "0", "--yes")


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": id_, "ts": f"2026-03-01T10:{id_:02}:00Z"} for id_ in ids]


@pytest.fixture
def follow(folder: FlowFolder, command: Command, monkeypatch: pytest.MonkeyPatch) -> Follow:
    """Does what the commands of a remedy say, in their order, as a person who answers yes; runs are in the Spark of the tests."""

    def runs(_paths: Any, settings: Any, _display: Any) -> Any:
        return folder.run(state=settings.state, append_new_lineage=settings.append_new_lineage)

    monkeypatch.setattr(run_command, "_run", runs)
    monkeypatch.setattr(confirm, "_asks", lambda _: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _prompt: "y")

    def does(remedy: str) -> None:
        found = mentions(remedy)
        assert found, remedy
        for mention in found:
            ended = command(*mention.words)
            assert ended.status == 0, (shlex.join(mention.words), ended.err)

    return does


def problem_of(command: Command, *words: str) -> dict[str, Any]:
    [problem] = command(*words, "--json").object["problems"]
    return problem


def refused_run(folder: FlowFolder) -> tuple[str, str]:
    """(code, remedy) of a run that does not go through."""
    try:
        result = folder.run()
    except ScribenginError as error:
        return error.code, prepare(folder.path / "flow.yaml", state=None).named(error.remedy)
    [query] = [query for query in result.queries if query.remedy]
    [problem] = result.problems
    return problem.code, query.remedy


def runs_well(folder: FlowFolder) -> None:
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True), result.problems
    assert audit_flow(prepare(folder.path / "flow.yaml", state=None)).balanced


@pytest.mark.executes("spark-needed")
def test_a_batch_that_only_a_run_can_hand_over_is_handed_over_by_it(
    folder: FlowFolder, command: Command, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = "type: spark, format: parquet, path: out, delivery: at_least_once}"
    folder.flow(ROWS.replace("type: files, path: out, format: json}", sink)).data("data/a.jsonl", rows(1))

    def fails(*_args: Any, **_named: Any) -> None:
        raise SinkError("it is full", node="kept")

    with monkeypatch.context() as patch:
        patch.setattr(SparkWriterSink, "publish", fails)
        assert folder.run().state == "failed"
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_running", lambda: None)
        problem = problem_of(command, *BACK)
    assert problem["code"] == "spark-needed"
    follow(problem["remedy"])
    assert command(*BACK).status == 0


@pytest.mark.executes("outbox-waits")
def test_what_waits_for_a_channel_goes_over_in_the_run_that_is_named(folder: FlowFolder, command: Command, follow: Follow) -> None:
    folder.flow(TIERS).data("data/a.jsonl", rows(1))
    away = folder.path / "handed"
    away.write_text("a file where the channel's folder belongs")
    folder.run(tier="front")
    problem = problem_of(command, *BACK)
    assert (problem["code"], "1 rows" in problem["message"]) == ("outbox-waits", True), problem
    away.unlink()
    follow(problem["remedy"])
    assert [row["id"] for row in folder.read("out")] == [1]
    assert command(*BACK).status == 0


@pytest.mark.executes("position-back")
def test_a_query_that_keeps_state_reads_all_again_after_the_reset_that_is_named(
    folder: FlowFolder, command: Command, follow: Follow
) -> None:
    folder.flow(WINDOWS).data("data/a.jsonl", rows(1, 2, 3))
    runs_well(folder)
    problem = problem_of(command, *BACK)
    assert problem["code"] == "position-back"
    follow(problem["remedy"])
    runs_well(folder)


@pytest.mark.executes("state-foreign")
def test_a_state_of_another_installation_is_read_again_after_the_reset_that_is_named(folder: FlowFolder, follow: Follow) -> None:
    folder.flow(ROWS).data("data/a.jsonl", rows(1))
    runs_well(folder)
    renew_owner(folder.path / ".scribengin")
    code, remedy = refused_run(folder)
    assert code == "state-foreign"
    folder.flow(ROWS.replace("path: out", "path: out2"))
    follow(remedy)
    runs_well(folder)


@pytest.mark.executes("group-changed")
def test_a_sink_that_left_its_group_writes_on_after_the_reset_that_is_named(folder: FlowFolder, follow: Follow) -> None:
    folder.flow(GROUP).data("data/a.jsonl", rows(1))
    runs_well(folder)
    folder.flow(GROUP.replace(", to: wan", "")).data("data/b.jsonl", rows(2))
    code, remedy = refused_run(folder)
    assert code == "group-changed"
    follow(remedy)
    runs_well(folder)


@pytest.mark.executes("delta-gone")
def test_a_table_that_is_gone_is_written_again_after_the_reset_that_is_named(folder: FlowFolder, follow: Follow) -> None:
    folder.flow(ROWS.replace("type: files, path: out, format: json", "type: delta, path: out")).data("data/a.jsonl", rows(1))
    runs_well(folder)
    shutil.rmtree(folder.path / "out/_delta_log")
    folder.data("data/b.jsonl", rows(2))
    code, remedy = refused_run(folder)
    assert code == "delta-gone"
    follow(remedy)
    runs_well(folder)


def tear(folder: FlowFolder, pattern: str) -> None:
    """Let the end of a file of the state be lost."""
    [file] = (folder.path / ".scribengin").rglob(pattern)
    file.write_bytes(file.read_bytes()[:-3])


@pytest.mark.executes("state")
@pytest.mark.parametrize("pattern", ["lineage.json", "decisions/0000000000.json", "sources/rows/0000000000.json"])
def test_a_state_with_a_torn_file_is_read_again_after_the_reset_that_is_named(
    folder: FlowFolder, command: Command, follow: Follow, pattern: str
) -> None:
    folder.flow(ROWS).data("data/a.jsonl", rows(1))
    runs_well(folder)
    tear(folder, pattern)
    code, remedy = refused_run(folder)
    assert code == "state"
    assert "is torn" in command("reset", "flow.yaml", "--dry-run").out or pattern != "decisions/0000000000.json"
    follow(remedy)
    runs_well(folder)


@pytest.mark.executes("state")
def test_a_state_that_has_lost_whose_it_is_begins_at_other_places_after_the_reset_that_is_named(folder: FlowFolder, follow: Follow) -> None:
    folder.flow(ROWS).data("data/a.jsonl", rows(1))
    runs_well(folder)
    tear(folder, "installation.json")
    code, remedy = refused_run(folder)
    assert (code, "give the sinks other places" in remedy) == ("state", True)
    folder.flow(ROWS.replace("path: out", "path: out2"))
    follow(remedy)
    runs_well(folder)


@pytest.mark.parametrize("pattern", ["decisions/0000000000.json", "installation.json"])
def test_a_state_of_a_newer_version_is_not_taken_for_a_damaged_one(folder: FlowFolder, command: Command, pattern: str) -> None:
    folder.flow(ROWS).data("data/a.jsonl", rows(1))
    runs_well(folder)
    [file] = (folder.path / ".scribengin").rglob(pattern)
    newer = file.read_bytes().replace(b'"format":1,', b'"format":99,')
    file.write_bytes(newer)
    problem = problem_of(command, "reset", "flow.yaml", "--yes")
    assert (problem["code"], problem["remedy"]) == ("state", "run the newer version")
    assert file.read_bytes() == newer
