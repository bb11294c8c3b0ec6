"""`type: summary` in runs: several tasks, Batches that are run again, a question that changes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from scribengin.local import summaries
from scribengin.local.prepare import prepare
from scribengin.local.summaries import read_summaries, snapshot_file
from scribengin.state.folder import StateFolder
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    import pytest

    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: totals
sources:
  n: {type: sequence, rows: ROWS, max_rows: 40, splits: 3, rate: 1000000}
steps:
  s: {from: n, select: {id: id, kind: "CASE WHEN id % 3 = 0 THEN 'three' END"}}
sinks:
  kinds: {from: s, type: summary, sql: "SELECT kind, count(*) AS n, sum(id) AS total FROM rows GROUP BY kind ORDER BY n"}
"""


def rows(folder: FlowFolder) -> list[dict[str, Any]]:
    (summary,) = read_summaries(prepare(folder.path / "flow.yaml", state=None))["summaries"]
    found: list[dict[str, Any]] = summary["rows"]
    return found


def expected(count: int) -> list[dict[str, Any]]:
    threes = range(0, count, 3)
    others = [number for number in range(count) if number % 3]
    return [{"kind": "three", "n": len(threes), "total": sum(threes)}, {"kind": None, "n": len(others), "total": sum(others)}]


def test_each_row_counts_once_over_tasks_runs_replays_and_snapshots(folder: FlowFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "EVERY", 2)
    folder.flow(FLOW.replace("ROWS", "100"))
    result = ran(folder)
    assert [list(each["rows"]) for each in result.summaries] == [expected(100)]
    assert rows(folder) == expected(100)

    # Spark has not heard of the last Batch: it runs it again, which was decided already
    query = StateFolder(folder.path / ".scribengin", "totals").query("kinds")
    last = max(int(file.name) for file in (query.checkpoint / "commits").glob("[0-9]*"))
    for name in (f"commits/{last}", f"offsets/{last + 1}"):
        for file in (query.checkpoint / name, (query.checkpoint / name).with_name(f".{name.partition('/')[2]}.crc")):
            file.unlink(missing_ok=True)
    folder.flow(FLOW.replace("ROWS", "160"))
    ran(folder)
    assert rows(folder) == expected(160)
    assert snapshot_file(query, "kinds").is_file()

    # without the snapshot the decisions say the same
    shutil.rmtree(query.work("kinds"))
    assert rows(folder) == expected(160)

    # another question begins with the next Batch
    another = FLOW[: FLOW.index("sql:")] + 'sql: "SELECT count(*) AS n FROM rows"}\n'
    folder.flow(another.replace("ROWS", "200"))
    ran(folder)
    assert rows(folder) == [{"n": 40}]


STEPS = """
from collections import Counter


class Best:
    def __init__(self):
        self.seen = Counter()

    def add(self, record):
        if record["id"] == 13:
            raise ValueError("unlucky")
        self.seen[record["id"] % 7] += 1

    def merge(self, other):
        self.seen += other.seen

    def result(self):
        return [{"rest": rest, "n": n} for rest, n in sorted(self.seen.items())]
"""


def test_a_class_adds_up_in_tasks_and_one_that_fails_to_merge_holds_nothing_up(folder: FlowFolder) -> None:
    text = FLOW.replace("ROWS", "100")
    text = text[: text.index("  kinds:")] + '  best: {from: s, type: summary, python: "steps:Best"}\n'
    folder.flow(text).steps(STEPS)
    ran(folder)
    assert rows(folder) == [{"rest": rest, "n": len(range(rest, 100, 7)) - (rest == 6)} for rest in range(7)]
    assert [(letter.reason, letter.row) for letter in letters(folder, "totals", "best")] == [("raised", 13)]

    folder.steps(STEPS.replace("self.seen += other.seen", "raise ValueError('no')")).flow(text.replace("rows: 100", "rows: 120"))
    result = folder.run()
    assert (result.state, result.balanced, result.summaries) == ("finished", True, ())
    assert "merge raised ValueError: no" in result.problems[-1].message
    folder.steps(STEPS)
    assert sum(row["n"] for row in rows(folder)) == 119
