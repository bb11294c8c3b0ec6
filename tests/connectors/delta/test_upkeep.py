"""`maintain` of a Delta table: files become larger and fewer, and nothing that a Batch or a reader needs goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from scribengin.cli.main import main
from scribengin.connectors.delta import commits
from scribengin.connectors.delta.folder import FolderPlace
from scribengin.connectors.delta.maintenance import keep_table
from scribengin.connectors.delta.sink import DeltaSink
from scribengin.connectors.files.sink import PublishedFiles
from scribengin.connectors.files.sink_folders import LineageFolder
from scribengin.core.types import parse_schema
from tests.connectors.delta.driver import Writer, place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Read = Callable[[Path], list[dict[str, Any]]]

SCHEMA = parse_schema("id BIGINT, c STRING")
LARGE = 1 << 20
RETAIN_S = 7 * 86400.0


def parquet_files(path: Path) -> int:
    return len([*path.glob("**/*.parquet")])


def test_small_files_become_large_ones_once_there_are_many_and_an_audit_finds_the_rows(tmp_path: Path, read: Read) -> None:
    writer, decided = Writer(place(tmp_path, partition_by=["c"]), SCHEMA), []
    for number in range(16):
        each, _ = writer.stage(number, [{"id": number, "c": "a b"}, {"id": 100 + number, "c": None}])
        writer.sink.publish(each)
        decided.append(each)
        if number == 14:
            assert not keep_table(FolderPlace("", tmp_path / "kept"), LARGE, RETAIN_S).anything
    done = keep_table(FolderPlace("", tmp_path / "kept"), LARGE, RETAIN_S)
    assert (done.merged, done.merged_files) == (32, 2)
    assert done.merged_bytes > 0
    assert len(DeltaTable(tmp_path / "kept").file_uris()) == 2
    assert parquet_files(tmp_path / "kept") == 34, "readers of older versions still need the small ones"
    told = list(writer.sink.audit(lineage="one", decided=decided))
    assert [(each.number, each.rows, each.violations) for each in told] == [(number, 2, ()) for number in range(16)]
    assert len(read(tmp_path / "kept")) == 32
    done = keep_table(FolderPlace("", tmp_path / "kept"), LARGE, 0.0)
    assert (done.files, parquet_files(tmp_path / "kept")) == (32, 2)
    assert len(read(tmp_path / "kept")) == 32
    assert all(not each.violations for each in writer.sink.audit(lineage="one", decided=decided))
    assert not keep_table(FolderPlace("", tmp_path / "kept"), LARGE, 0.0, flush=True).anything
    assert writer.sink.clear(owner="me", flow="flow") == 32


def test_rows_that_are_missing_behind_a_compaction_are_told(tmp_path: Path) -> None:
    writer, decided = Writer(place(tmp_path), SCHEMA), []
    for number in range(2):
        each, _ = writer.stage(number, [{"id": 10 * number + n, "c": "a"} for n in range(5)])
        writer.sink.publish(each)
        decided.append(each)
    assert keep_table(FolderPlace("", tmp_path / "kept"), LARGE, RETAIN_S, flush=True).merged == 2
    DeltaTable(tmp_path / "kept").delete("id = 3")
    told = [text for each in writer.sink.audit(lineage="one", decided=decided) for text in each.violations]
    assert told == [f"1 rows are missing in {tmp_path / 'kept'}: expected 10, found 9"]


def test_a_batch_that_is_recorded_or_staged_keeps_its_files(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(place(tmp_path), SCHEMA)
    writer.write(0, [{"id": 0, "c": "a"}])
    decided, _ = writer.stage(1, [{"id": 1, "c": "a"}])
    undecided, _ = writer.stage(2, [{"id": 2, "c": "a"}])
    (tmp_path / "kept" / "stray.parquet").write_bytes(b"nobody's")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(commits.TableCommits, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            writer.sink.publish(decided)
    assert (tmp_path / "kept" / decided.receipts[0].segments[0]["name"]).exists(), "it has its name, and is not in the log"
    assert keep_table(FolderPlace("", tmp_path / "kept"), LARGE, 0.0, flush=True).files == 1
    again = Writer(place(tmp_path), SCHEMA)
    again.sink.recover(decided, lineage="one", before=2)
    again.sink.publish(undecided)
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [0, 1, 2]


def test_what_is_committed_while_files_are_looked_for_stays(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(place(tmp_path), SCHEMA)
    writer.write(0, [{"id": 0, "c": "a"}])
    decided, _ = writer.stage(1, [{"id": 1, "c": "a"}])
    vacuum = DeltaTable.vacuum

    def between(table: DeltaTable, *args: Any, **named: Any) -> list[str]:
        with monkeypatch.context() as patched:
            patched.setattr(LineageFolder, "write_mark", lambda *_: None)
            # they have their names, and are not committed yet
            PublishedFiles._reveal(writer.sink, writer.sink._of("one"), decided.batch, {"files": decided.receipts[0].segments})
            found = vacuum(table, *args, **named)
            assert len(found) == 1
            writer.sink.publish(decided)
        return found

    monkeypatch.setattr(DeltaTable, "vacuum", between)
    assert keep_table(FolderPlace("", tmp_path / "kept"), LARGE, 0.0).files == 0
    assert sorted(row["id"] for row in read(tmp_path / "kept")) == [0, 1]


def test_a_compaction_and_rows_that_are_replaced_do_not_lose_each_other(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = place(tmp_path, mode="upsert", key=["id"])
    writer = Writer(where, SCHEMA)
    for number in range(3):
        writer.write(number, [{"id": n, "c": f"{number}"} for n in (number, number + 10)])
    update, first = DeltaTable.update_incremental, iter([True])

    def compacted_first(table: DeltaTable) -> None:
        update(table)
        if next(first, False):
            assert keep_table(FolderPlace("", tmp_path / "kept"), LARGE, RETAIN_S, flush=True).merged == 3

    monkeypatch.setattr(DeltaTable, "update_incremental", compacted_first)
    writer.write(3, [{"id": 10, "c": "newest"}, {"id": 20, "c": "newest"}])
    assert next(first, None) is None
    found = {row["id"]: row["c"] for row in read(tmp_path / "kept")}
    assert found == {0: "0", 1: "1", 2: "2", 10: "newest", 11: "1", 12: "2", 20: "newest"}


def test_what_killed_tasks_have_staged_goes(tmp_path: Path) -> None:
    writer = Writer(place(tmp_path), SCHEMA)
    late, _ = writer.stage(0, [{"id": 0, "c": "a"}])
    other = Writer(place(tmp_path), SCHEMA, term=2)
    other.write(0, [{"id": 0, "c": "a"}])
    staged = tmp_path / "kept/_scribengin/one/staged/0000000000" / late.receipts[0].segments[0]["staged"]
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.write_bytes(b"by an attempt that came late")
    assert keep_table(FolderPlace("", tmp_path / "kept"), LARGE, RETAIN_S).files == 1
    assert not staged.exists()


def test_the_command_keeps_tables_beside_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flow.yaml").write_text(
        "version: 1\nname: flow\nsources: {a: {type: files, path: data, format: text}}\n"
        "sinks: {kept: {from: a, type: delta, path: kept}, out: {from: a, type: files, path: out, format: text}}\n"
    )
    writer = Writer(place(tmp_path), SCHEMA)
    for number in range(3):
        writer.write(number, [{"id": number, "c": "a"}])
    with pytest.raises(SystemExit) as left:
        main(["maintain", str(tmp_path / "flow.yaml"), "--flush"])
    assert left.value.code == 0
    told = capsys.readouterr().out
    assert "kept: 3 segments merged to 1 files" in told
    assert "out: nothing to do" in told


def test_a_folder_without_a_table_is_none_to_keep(tmp_path: Path) -> None:
    assert not keep_table(FolderPlace("", tmp_path / "none"), LARGE, 0.0).anything
    DeltaSink(place(tmp_path)).prepare(owner="me", lineage="one")
    assert not keep_table(FolderPlace("", tmp_path / "kept"), LARGE, 0.0).anything
