"""`maintain`: turns by hand, and what lies in a sink's folder that no record names."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.cli.main import main
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.orphans import find_orphans
from scribengin.connectors.files.sink import FilesSink
from scribengin.core.types import arrow_schema, parse_schema

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """
version: 1
name: orders
sources:
  orders: {type: files, path: data, format: json, schema: id BIGINT}
sinks:
  kept: {from: orders, type: files, path: out, format: json, roll: {size: 1MiB, every: 1h}}
"""
SCHEMA = parse_schema("id BIGINT")


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A flow whose sink has committed three segments."""
    (tmp_path / "flow.yaml").write_text(FLOW)
    options = {"path": "out", "format": "json", "roll": {"size": 2**20, "every": 3600.0}}
    sink = FilesSink(ConnectorContext("kept", tmp_path, SINK.filled(options)))
    sink.prepare(owner="me", lineage="l1")
    for number in range(3):
        id_ = BatchId("orders", "kept", "l1", number, 1)
        stream = sink.stream(id_, 0, "a", SCHEMA)
        stream.write(pa.RecordBatch.from_pylist([{"id": number}], arrow_schema(SCHEMA)))
        sink.publish(Decided(id_, f"h{number}", (stream.close(),)))
    return tmp_path / "flow.yaml"


def say(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    with pytest.raises(SystemExit) as left:
        main(["maintain", *map(str, arguments)])
    said = capsys.readouterr()
    assert left.value.code == status, said
    return said.out + said.err


def found(capfd: pytest.CaptureFixture[str], *arguments: object) -> Any:
    with pytest.raises(SystemExit) as left:
        main(["maintain", *map(str, arguments), "--json"])
    assert left.value.code == 0
    return json.loads(capfd.readouterr().out)["result"]


def test_one_turn_says_what_it_did_and_when_more_is_due(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = flow.parent / "out"
    said = say(capsys, flow)
    assert said.startswith(f"{out}: nothing to do; hidden segments are due in ")
    assert "3 segments merged to 1 files (27 B)" in say(capsys, flow, "--flush")
    assert say(capsys, flow, "--once") == f"{out}: nothing to do\n"


def test_what_no_record_names_is_listed_and_only_what_is_asked_for_is_deleted(flow: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = flow.parent / "out"
    internal = out / "_scribengin/l1"
    strange, part = out / "notes.txt", out / "part-of-mine.jsonl"
    late, draft, undecided = (
        internal / "staged/0000000001/late",
        internal / f".published.{'0' * 32}",
        internal / "staged/0000000003/under-way",
    )
    for path in (strange, part, late, draft, undecided):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 10)
    rows = found(capfd, flow, "--report")
    assert {(row["path"], row["kind"], row["may_be_used"]) for row in rows} == {
        (str(strange), "foreign", True),
        (str(part), "foreign", True),
        (str(late), "attempt", False),
        (str(draft), "draft", True),
    }
    assert all(row["bytes"] == 10 and 0 <= row["age_s"] < 3600 and not row["removed"] for row in rows)
    assert late.exists()
    assert {row["path"] for row in found(capfd, flow, "--remove-orphans") if row["removed"]} == {str(late)}
    assert (late.exists(), draft.exists(), strange.exists(), undecided.exists()) == (False, True, True, True)
    assert [row for row in found(capfd, flow, "--remove-foreign") if row["removed"]] == [], "somebody may be writing them"
    for path in (strange, part):
        old(path)
    assert "permanently deletes 2 files (20 B) that are not Scribengin's" in say(capfd, flow, "--remove-foreign", status=2)
    assert strange.exists()
    assert {row["path"] for row in found(capfd, flow, "--remove-foreign", "--yes") if row["removed"]} == {str(strange), str(part)}
    assert (draft.exists(), undecided.exists(), len(list((internal / "hidden").iterdir()))) == (True, True, 3)


def commit(flow: Path, number: int, *, path: str = "out") -> None:
    sink = FilesSink(ConnectorContext("kept", flow.parent, SINK.filled({"path": path, "format": "json"})))
    sink.prepare(owner="me", lineage="l1")
    id_ = BatchId("orders", "kept", "l1", number, 1)
    stream = sink.stream(id_, 0, "a", SCHEMA)
    stream.write(pa.RecordBatch.from_pylist([{"id": number}], arrow_schema(SCHEMA)))
    sink.publish(Decided(id_, f"h{number}", (stream.close(),)))


def old(path: Path) -> None:
    os.utime(path, (time.time() - 7200,) * 2)


def test_a_batch_that_is_published_while_files_are_looked_at_is_not_foreign(flow: Path) -> None:
    out, numbers = flow.parent / "out", iter(range(3, 100))

    def publish_one_more() -> float:
        commit(flow, next(numbers))
        return time.time()

    assert [each.path for each in find_orphans(out, now_s=publish_one_more)] == []
    assert len(list(out.glob("part-*"))) >= 2


def test_what_another_sink_keeps_further_down_is_not_foreign(flow: Path, capfd: pytest.CaptureFixture[str]) -> None:
    commit(flow, 0, path="by_country")
    (flow.parent / "by_country").rename(flow.parent / "out/by_country")  # no sink begins there any more; it may have before
    for path in (flow.parent / "out/by_country").rglob("*"):
        old(path)
    assert found(capfd, flow, "--report") == []


def test_mistakes_are_told(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--once and --every exclude each other" in say(capsys, flow, "--once", "--every", "1m", status=2)
    assert "no unit" in say(capsys, flow, "--every", "1", status=2)
    assert "whose hosts maintain its folders" in say(capsys, "orders", status=2)
    (flow.parent / "out/_scribengin/owner.json").write_bytes(b"torn")
    assert "owner.json is torn" in say(capsys, flow, status=1)


def test_what_the_disk_refuses_is_told_and_is_no_bug(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keeping = flow.parent / "out/_scribengin/l1/keeping.json"
    keeping.unlink()
    keeping.mkdir()
    said = say(capsys, flow, status=3)
    assert f"{flow.parent / 'out'}: maintenance failed: [Errno 21] Is a directory" in said
    assert "Traceback" not in said
