"""What a run does when something fails: told with its place and remedy, tried again where that helps, and never swallowed."""

import pytest

from scribengin.core.errors import InputError
from scribengin.spark import query as query_module

FLOW = """\
version: 1
name: shaky
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, word STRING"}
steps:
  worked: {from: rows, python: "steps:work"}
sinks:
  kept: {from: worked, type: files, path: out, format: json}
"""
# `path` counts how often a worker died; the step kills its own worker until it has done so `times`
DIES = """\
import os, signal
from pathlib import Path

def work(row):
    deaths = Path({path!r})
    if row["id"] == 7 and deaths.stat().st_size < {times}:
        with deaths.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return row
"""


@pytest.fixture
def dying(folder):
    """A flow over twenty rows; `times` workers are killed by the seventh."""

    def make(times):
        (folder.path / "deaths").write_text("")
        folder.flow(FLOW).steps(DIES.format(path=str(folder.path / "deaths"), times=times))
        return folder.data("data/a.jsonl", [{"id": id_, "word": "w"} for id_ in range(20)])

    return make


CLAIMS = """\
from pathlib import Path
from scribengin.core.records import seal, unseal

def work(row):
    if row["id"] == 2:
        owner = Path({owner!r})
        claims = unseal(owner.read_bytes(), "owner", 1, owner)
        owner.write_bytes(seal("owner", 1, [*claims, claims[-1] | {{"owner": "somebody"}}]))
    return row
"""


def test_a_batch_that_is_decided_and_not_published_is_not_called_committed(folder):
    owner = folder.path / "out" / "_scribengin" / "owner.json"
    folder.flow(FLOW.replace("json, schema", "json, max_files: 1, schema")).steps(CLAIMS.format(owner=str(owner)))
    for id_ in (1, 2, 3):
        folder.data(f"data/{id_}.jsonl", [{"id": id_, "word": "w"}])
    result = folder.run()
    assert result.state == "failed"
    assert "(the query has committed 1 Batch, and one more is decided but not published yet)" in result.problems[-1].message


def log_of(folder):
    return (folder.path / ".scribengin/shaky/main/tmp/run.log").read_text()


def test_a_worker_that_dies_starts_the_query_again_and_loses_nothing(dying):
    folder = dying(3)  # two tries of the task in the first start, one in the second
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True)
    assert [row["id"] for row in folder.read("out")] == list(range(20))
    log = log_of(folder)
    assert "query restarts query=kept" in log
    assert "wait_s=0.000" in log
    assert log.count("query finished") == 1


def test_under_once_three_more_starts_are_tried_then_the_query_has_failed(dying, monkeypatch):
    monkeypatch.setattr(query_module, "BACK_OFF_S", (0.0, 0.05, 0.1, 0.2))
    folder = dying(10_000)
    result = folder.run()
    assert result.state == "failed"
    log = log_of(folder)
    assert log.count("query restarts") == 3
    assert "Traceback" in log
    (problem,) = result.problems
    assert (problem.place.line, problem.place.column) == (8, 3)
    assert "query kept: " in problem.message
    assert "the query has committed 0 Batches" in problem.message
    assert "run.log" in problem.remedy


def test_a_query_that_failed_for_good_does_not_stop_the_others(folder):
    folder.flow(FLOW.replace("python: ", "on_error: fail, python: ") + "  all: {from: rows, type: files, path: all, format: json}\n")
    folder.steps("def work(row):\n    raise ValueError('no such word')\n")
    folder.data("data/a.jsonl", [{"id": 1, "word": "w"}])
    result = folder.run()
    assert result.state == "failed"
    assert {query.name: query.state for query in result.queries} == {"kept": "failed", "all": "finished"}
    assert [row["id"] for row in folder.read("all")] == [1]
    (problem,) = result.problems
    assert "no such word" in problem.message
    assert log_of(folder).count("query failed") == 1
    assert "steps.py" in problem.message or "steps.py" in log_of(folder)


def test_what_only_spark_knows_is_told_before_the_first_batch_with_its_line(folder):
    flow = FLOW.replace('  worked: {from: rows, python: "steps:work"}', "  worked: {from: rows, filter: no_such_function(id) > 1}")
    folder.flow(flow).data("data/a.jsonl", [{"id": 1, "word": "w"}])
    with pytest.raises(InputError) as caught:
        folder.run()
    (problem,) = [problem for problem in caught.value.problems if problem.severity == "error"]
    assert (problem.place.line, problem.place.column) == (6, 3)
    assert "no_such_function" in problem.message
    assert not (folder.path / "out").exists()
