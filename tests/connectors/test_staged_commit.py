"""The commit records of sinks of staged files: one decision for each number, and none of a driver that was replaced."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Receipt
from scribengin.connectors.staged_commit import CLOSED_BY, StagedCommit, commit_record
from scribengin.core import faults
from scribengin.core.errors import FencedError
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.types import arrow_schema, parse_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Commits:
    """The log of a lineage, and its commits; a record also says which one it follows."""

    def __init__(self, folder: Path, *, consecutive: bool) -> None:
        self.log = NumberedLog(folder / "batches", "commit")
        self.commit = StagedCommit(sink="kept", where="the place", log=self.log, consecutive=consecutive)

    def write(self, decided: Decided) -> Mapping[str, Any]:
        return self.commit.write(decided, self._build)

    def _build(self, decided: Decided, before: Mapping[str, Any] | None) -> dict[str, Any]:
        record = commit_record(decided, sink="kept", owner="me", format="json")
        return record | {"follows": None if before is None else before["number"]}


@pytest.fixture(params=[True, False], ids=["consecutive", "with gaps"])
def commits(request: pytest.FixtureRequest, tmp_path: Path) -> Commits:
    return Commits(tmp_path, consecutive=request.param)


def decide(number: int, *, term: int = 1, attempt: str = "a", hash_: str | None = None) -> Decided:
    segments = [{"staged": f"{unit}-{attempt}", "name": f"part-{number}-{unit}", "rows": 2, "bytes": 20, "crc": 7} for unit in (0, 1)]
    receipts = tuple(Receipt("kept", unit, 2, 20, (segment,)) for unit, segment in enumerate(segments))
    return Decided(BatchId("flow", "query", "one", number, term), hash_ or f"h{number}", receipts)


def at(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], object]) -> None:
    """Do something else, once, when a process is at that crash point."""

    def reached(name: str) -> None:
        if name == point:
            monkeypatch.setattr(faults, "reached", lambda _: None)
            act()

    monkeypatch.setattr(faults, "reached", reached)


def test_a_record_holds_the_decision_and_is_written_once(commits: Commits) -> None:
    first, second = commits.write(decide(0)), commits.write(decide(1, term=3))
    assert (first["follows"], second["follows"]) == (None, 0)
    files = [{"staged": f"{unit}-a", "name": f"part-1-{unit}", "rows": 2, "bytes": 20, "crc": 7} for unit in (0, 1)]
    assert second == {
        **{"owner": "me", "flow": "flow", "query": "query", "sink": "kept", "lineage": "one", "number": 1, "hash": "h1", "term": 3},
        **{"format": "json", "rows": 4, "files": files, "follows": 0},
    }
    assert commits.write(decide(1, term=3)) == second, "done before: the same record, which follows the same one"
    assert list(commits.log.since()) == [(0, first), (1, second)]


@pytest.mark.parametrize(("differing", "other"), [("hash", {"hash_": "other"}), ("term", {"term": 2}), ("files", {"attempt": "b"})])
def test_a_batch_that_was_decided_otherwise_is_fenced(commits: Commits, differing: str, other: Mapping[str, Any]) -> None:
    commits.write(decide(0))
    stored = commits.write(decide(1))
    with pytest.raises(FencedError, match=rf"batch 1 already exists with another {differing} \(the place\)"):
        commits.write(decide(1, **other))
    assert commits.log.read(1) == stored


def test_an_older_batch_is_fenced_even_if_it_was_decided_equally(commits: Commits) -> None:
    for number in range(4):
        commits.write(decide(number))
    for number in range(3):
        with pytest.raises(FencedError, match=f"refuses batch {number} of lineage one: batch 3 already exists"):
            commits.write(decide(number))


def test_an_older_batch_is_fenced_even_if_its_number_is_free(commits: Commits) -> None:
    for number in (0, 1, 3):
        commits.write(decide(number))
    with pytest.raises(FencedError, match="refuses batch 2 of lineage one: batch 3 already exists"):
        commits.write(decide(2))
    assert commits.log.read(2) is None


def test_with_gaps_the_newest_record_counts_wherever_it_is(tmp_path: Path) -> None:
    commits = Commits(tmp_path, consecutive=False)
    assert [commits.write(decide(number))["follows"] for number in (2, 3, 9)] == [None, 2, 3]
    assert commits.write(decide(9))["follows"] == 3
    for number in (3, 4, 6):
        with pytest.raises(FencedError, match=f"refuses batch {number} of lineage one: batch 9 already exists"):
            commits.write(decide(number))
    with pytest.raises(FencedError, match="batch 9 exists under the newer Term 1; this one has Term 0"):
        commits.write(decide(12, term=0))


def test_a_sink_that_joins_late_follows_no_batch(commits: Commits) -> None:
    assert commits.write(decide(7))["follows"] is None
    assert commits.write(decide(8))["follows"] == 7


def test_a_lineage_without_gaps_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits(tmp_path, consecutive=True)
    commits.write(decide(0))
    monkeypatch.setattr(NumberedLog, "newest", lambda _: pytest.fail("thousands of names are read for each Batch"))
    assert commits.write(decide(1))["follows"] == 0
    assert commits.write(decide(1))["follows"] == 0


def test_an_older_term_is_fenced(commits: Commits) -> None:
    commits.write(decide(0, term=5))
    with pytest.raises(
        FencedError, match=r"refuses batch 1 .* batch 0 exists under the newer Term 5; this one has Term 4 \(the place\)"
    ) as told:
        commits.write(decide(1, term=4))
    assert (told.value.code, told.value.node) == ("fenced", "kept")
    assert commits.write(decide(1, term=5))["term"] == 5


def test_of_two_drivers_that_have_both_had_their_turn_one_commits(commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    commits.write(decide(0))
    other = decide(1, term=2, attempt="b")
    at(monkeypatch, "publish.record.before", lambda: commits.write(other))
    with pytest.raises(FencedError, match="batch 1 already exists with another term"):
        commits.write(decide(1))
    record = commits.log.read(1)
    assert (record["term"], record["files"][0]["staged"]) == (2, "0-b")


def test_the_same_decision_may_be_published_by_two_at_once(commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, "publish.record.before", lambda: commits.write(decide(0)))
    assert commits.write(decide(0)) == commits.log.read(0)


def test_a_closed_lineage_commits_nothing_more(commits: Commits) -> None:
    commits.write(decide(0))
    commits.log.put(1, {CLOSED_BY: "two"})
    with pytest.raises(FencedError, match="batch 1 already exists with another owner"):
        commits.write(decide(1))
    with pytest.raises(FencedError, match="a newer lineage has taken over"):
        commits.write(decide(2))
    with pytest.raises(FencedError, match="batch 1 already exists"):
        commits.write(decide(0))
    assert commits.log.newest() == 1


def test_a_lineage_that_is_closed_while_its_driver_is_suspended_commits_nothing_more(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits.write(decide(0))
    at(monkeypatch, "publish.record.before", lambda: commits.log.put(1, {CLOSED_BY: "two"}))
    with pytest.raises(FencedError, match="batch 1 already exists with another owner"):
        commits.write(decide(1))
    assert commits.log.read(1) == {CLOSED_BY: "two"}


def test_nothing_is_written_before_the_first_crash_point_and_the_record_by_the_second(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []
    monkeypatch.setattr(faults, "reached", lambda point: seen.append((point, commits.log.has(0))))
    commits.write(decide(0))
    assert seen == [("publish.record.before", False), ("publish.record.after", True)]


def test_old_records_that_are_folded_count(commits: Commits) -> None:
    commits.log.put(1999, commits.write(decide(0)) | {"number": 1999})
    commits.log.fold(lambda _, records: len(list(records)))
    assert commits.log.high_mark() == 999
    with pytest.raises(FencedError, match="batch 1999 already exists"):
        commits.write(decide(0))
    assert commits.write(decide(2000))["follows"] == 1999


ROWS = parse_schema("id BIGINT NOT NULL")
TAKEN = {
    "files": "owner.json names another lineage",
    "objects": "is now that of sink .kept., lineage two",
    "delta": "owner.json names another",
}


@pytest.mark.parametrize("type_", TAKEN)
def test_a_driver_whose_place_was_taken_over_changes_nothing_there(type_: str, tmp_path: Path) -> None:
    connector = import_module(f"scribengin.connectors.{type_}")
    at = {"path": "out"} if type_ != "objects" else {"url": f"file://{tmp_path}/out"}
    options = connector.SINK.filled(at if type_ == "delta" else at | {"format": "json"})
    old, new = (connector.make_sink(ConnectorContext("kept", tmp_path, options, flow="flow")) for _ in range(2))
    old.prepare(owner="me", lineage="one")
    stream = old.stream(BatchId("flow", "query", "one", 0, 1), 0, "a", ROWS)
    stream.write(pa.RecordBatch.from_pylist([{"id": 1}], schema=arrow_schema(ROWS)))
    decided = Decided(BatchId("flow", "query", "one", 0, 1), "h0", (stream.close(),))
    new.prepare(owner="me", lineage="two", adopt=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(FencedError, match=TAKEN[type_]):
        old.publish(decided)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
