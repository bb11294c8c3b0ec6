"""What waits before a feed, and up to which moment it has all that was at its source in the log: never later than a look began."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.core.types import parse_schema
from scribengin.spark.program import SourceRef
from scribengin.spark.source_input import Feed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def feed(data: Path, limits: BatchLimits | None = None, **options: Any) -> Feed:
    said = {"path": str(data), "format": "json", "settle": 0.0, **options}
    ref = SourceRef("s", "files", ConnectorContext("s", data.parent, said, parse_schema("id BIGINT"), data.parent), 0)
    return Feed(ref, data.parent / "sources", limits or BatchLimits())


def test_all_that_was_there_before_a_look_began_is_in_the_log_where_nothing_waits(data: Path) -> None:
    files = feed(data)
    assert files.backlog(0)["clear_at"] is None, "nobody has looked"
    for number in range(2):
        (data / f"{number}.jsonl").write_text('{"id": 1}\n')
        before = time.time()
        assert files.next(number) == number + 1
        clear_at = files.backlog(number)["clear_at"]
        assert before <= clear_at <= time.time(), "it is in the log, though no Batch has it"
    again = time.time()
    assert files.next(2) == 2
    assert files.backlog(2)["clear_at"] >= again, "an empty look says it too"


def test_nothing_is_said_while_a_file_waits(data: Path) -> None:
    files = feed(data, BatchLimits(max_files=1))
    for name in "ab":
        (data / f"{name}.jsonl").write_text('{"id": 1}\n')
    assert files.next(0) == 1
    assert files.backlog(1)["clear_at"] is None
    assert files.next(1) == 2
    assert files.backlog(2)["clear_at"] is not None
    unsettled = feed(data, settle=3600.0)
    (data / "c.jsonl").write_text('{"id": 1}\n')
    assert unsettled.next(2) == 2
    assert unsettled.backlog(2)["clear_at"] is None


def test_how_much_waits_is_unknown_while_a_feed_that_starts_again_has_only_the_batch_of_the_one_before(data: Path) -> None:
    """Were it told as all that waits, a flow that feeds a reader that fails would go on at each of its restarts."""
    (data / "a.jsonl").write_text('{"id": 1}\n')
    assert feed(data).next(0) == 1
    (data / "b.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    again = feed(data)
    for _ in range(2):
        assert again.next(0) == 1
        waits = again.backlog(0)
        assert (waits["bytes"], waits["files"], waits["rows"], waits["clear_at"]) == (None, None, None, None)
    assert again.next(1) == 2
    waits = again.backlog(0)
    assert (waits["bytes"], waits["files"]) == (30, 2)
